//! `kineto status`: prints the state of requests in running processes.

use super::listener::Listener;
use super::print_text;
use kineto_base::text::printable;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints for each process whether it is recording, for which request, how many requests wait, and how the last one
/// ended.
///
/// The processes must have been started with KINETO_TRIGGER_DIR, or built with `trigger_folder`.
///
/// Exit status: 0 if all processes answered; 1 if not; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
pub(crate) struct StatusArguments {
    /// The processes, which may be in containers.
    #[arg(required = true, value_name = "PID")]
    pids: Vec<u32>,
    /// Prints a JSON object for each process.
    #[arg(long)]
    json: bool,
    /// The folder in which the processes poll for requests. [default: KINETO_TRIGGER_DIR in their environment]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &StatusArguments) -> ExitCode {
    let mut all_well = true;
    for pid in &arguments.pids {
        let status = Listener::find(*pid, arguments.dir.as_deref()).and_then(|listener| listener.read_status());
        match status.and_then(|text| serde_json::from_str::<Value>(&text).map_err(|why| why.to_string())) {
            Ok(status) if arguments.json => print_text(&format!("{}\n", in_one_line(&status))),
            Ok(status) => print_text(&format_status(*pid, &status)),
            Err(why) => all_well &= super::trigger::report_failure(*pid, &why),
        }
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the state of a process as a line of text; `None` if it takes no requests.
pub(crate) fn state_line(pid: u32) -> Option<String> {
    let status = Listener::find(pid, None).and_then(|listener| listener.read_status()).ok()?;
    Some(format_status(pid, &serde_json::from_str(&status).ok()?))
}

/// Returns the status as JSON in one line, without control characters.
fn in_one_line(status: &Value) -> String {
    let mut line = String::new();
    for each in status.to_string().chars() {
        if each.is_control() { line += &format!("\\u{:04x}", u32::from(each)) } else { line.push(each) }
    }
    line
}

/// Returns the status as text.
fn format_status(pid: u32, status: &Value) -> String {
    let text = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // The process must not control the terminal.
        printable(&text)
    };
    let mut lines = format!("{pid}: {}", text(&status["state"]));
    if status["request"].as_str().is_some_and(|id| !id.is_empty()) {
        lines += &format!(" (request {})", text(&status["request"]));
    }
    lines += &format!("; requests waiting: {}\n", text(&status["waiting"]));
    let last = &status["last"];
    if !last.is_null() {
        lines += &format!("{pid}: last request: {}", text(&last["outcome"]));
        for (key, before) in [("path", " to "), ("reason", ": ")] {
            if !last[key].is_null() {
                lines += &format!("{before}{}", text(&last[key]));
            }
        }
        lines += "\n";
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_shown_in_lines() {
        let status = serde_json::json!({"state": "recording", "request": "7", "waiting": 1, "last":
            {"outcome": "written", "path": "/tmp/a\u{1b}.json", "reason": null}});
        let expected = "5: recording (request 7); requests waiting: 1\n5: last request: written to /tmp/a .json\n";
        assert_eq!(format_status(5, &status), expected);
        let hostile = serde_json::json!({"state": "\u{9b}2J\u{7f}\n"});
        assert_eq!(in_one_line(&hostile), r#"{"state":"\u009b2J\u007f\n"}"#);
        let status = serde_json::json!({"state": "idle", "request": null, "waiting": 0, "last": null});
        assert_eq!(format_status(5, &status), "5: idle; requests waiting: 0\n");
    }
}

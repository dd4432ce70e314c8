//! `kineto trigger`: starts recordings in running processes.

use super::listener::{Listener, Progress, SubmittedRequest};
use super::print_text;
use kineto_base::text::printable;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Starts recordings in running processes, and reports their results.
///
/// The processes must have been started with KINETO_TRIGGER_DIR, or built with `trigger_folder`. The options are those
/// of `dyno gputrace`. Several processes start at the same time. Files are written where each process may write
/// (KINETO_ONDEMAND_TRACE_DIR), with its id in the name.
///
/// Exit status: 0 if all files were written (with --no-wait: if all requests were submitted); 1 if not; 2 for wrong
/// arguments.
#[derive(clap::Args, Debug)]
pub(crate) struct TriggerArguments {
    /// The processes to record, which may be in containers.
    #[arg(required = true, value_name = "PID")]
    pids: Vec<u32>,
    /// Path of the trace as the process sees it; `_<pid>` is inserted before `.json`. By default it is
    /// `/tmp/libkineto_activities_<pid>.json`.
    #[arg(long, value_name = "PATH", value_parser = one_line)]
    log_file: Option<String>,
    /// Duration of the recording, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    duration_ms: u64,
    /// Number of iterations to record instead, if the program counts them (`Profiler::step`).
    #[arg(long, value_name = "COUNT", default_value_t = -1, allow_negative_numbers = true)]
    iterations: i64,
    /// Writes what the process has recorded in this last time, such as 10s or 500ms, instead of a new recording. The process
    /// must be recording, as with KINETO_OVERFLOW=keep_newest.
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = ["duration_ms", "iterations", "profile_memory"])]
    last: Option<Duration>,
    /// Start time in milliseconds since 1970; 0 means soon.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    profile_start_time: u64,
    /// Starts a recording of iterations at a multiple of this number.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    profile_start_iteration_roundup: u64,
    /// Records shapes of inputs.
    #[arg(long)]
    record_shapes: bool,
    /// Records a memory profile instead of a trace.
    #[arg(long)]
    profile_memory: bool,
    /// Records call stacks.
    #[arg(long)]
    with_stacks: bool,
    /// Counts floating-point operations.
    #[arg(long)]
    with_flops: bool,
    /// Records the modules of operations.
    #[arg(long)]
    with_modules: bool,
    /// Activity types to record: comma-separated names of libkineto. [default: the configuration of the process]
    #[arg(long, value_name = "TYPES", value_parser = one_line)]
    activities: Option<String>,
    /// Cancels all pending requests of the processes, and discards their recordings.
    #[arg(long)]
    cancel: bool,
    /// The folder in which the processes poll for requests. [default: KINETO_TRIGGER_DIR in their environment]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Submits the requests without waiting for results.
    #[arg(long)]
    no_wait: bool,
    /// Maximum waiting time in seconds. [default: a minute more than the recording; an hour for iterations]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

/// The start delay for several processes, by which time all have taken their requests.
const START_DELAY: Duration = Duration::from_secs(2);
/// The interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Submits the requests, and polls them until they end.
pub(crate) fn run(arguments: &TriggerArguments) -> ExitCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = arguments.start_ms(now);
    let text = arguments.request_text(start);
    let mut pids = arguments.pids.clone();
    pids.sort_unstable();
    pids.dedup();
    let (mut requests, mut all_well) = (Vec::new(), true);
    for pid in pids {
        match Listener::find(pid, arguments.dir.as_deref()).and_then(|listener| listener.submit_request(&text)) {
            Ok(request) => requests.push(request),
            Err(why) => all_well &= report_failure(pid, &why),
        }
    }
    if arguments.no_wait {
        requests.iter().for_each(|request| print_text(&format!("{}: request submitted\n", request.listener.pid)));
        requests.clear();
    }
    let deadline = Instant::now() + arguments.wait_limit(Duration::from_millis(start).saturating_sub(now));
    while !requests.is_empty() {
        requests.retain_mut(|request| match poll_request(request, Instant::now() < deadline) {
            None => true,
            Some(is_well) => {
                all_well &= is_well;
                false
            }
        });
        std::thread::sleep(POLL_INTERVAL);
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the progress; returns the result once the request has ended.
fn poll_request(request: &mut SubmittedRequest, is_in_time: bool) -> Option<bool> {
    let pid = request.listener.pid;
    let Progress { lines, end } = match request.poll() {
        Ok(news) => news,
        Err(why) => return Some(report_failure(pid, &why)),
    };
    let last = lines.len().saturating_sub(1);
    for (nth, line) in lines.iter().enumerate() {
        match end.filter(|_| nth == last) {
            None => print_text(&format!("{pid}: {line}\n")),
            Some(true) => {
                print_text(&format!("{}{pid}: {line}\n", colored_mark(std::io::stdout().is_terminal(), "32m✓")))
            }
            Some(false) => drop(report_failure(pid, line)),
        }
    }
    if end == Some(true) && request.listener.has_own_files() {
        print_text(&format!("{pid}: from this file system, its files are below /proc/{pid}/root\n"));
    }
    if end.is_none() && !is_in_time {
        return Some(report_failure(pid, &timeout_message(request)));
    }
    end
}

/// Returns the message for a timeout (--timeout).
fn timeout_message(request: &SubmittedRequest) -> String {
    if request.withdraw() {
        "the request was not taken in time and was withdrawn: the process is recording, polls \
                 another folder, or does not trust this user (see its log)"
            .to_owned()
    } else {
        format!("its file was not written in time; the result will be in {}", request.answer_location())
    }
}

/// The request that cancels all others.
pub(crate) const CANCEL: &str = "CANCEL=true";

/// Prints why there is no file; returns false.
pub(crate) fn report_failure(pid: u32, why: &str) -> bool {
    let mut stderr = std::io::stderr();
    // Paths come from the process's environment; they must not control the terminal.
    let why = why.lines().map(printable).collect::<Vec<_>>().join("\n");
    let _ = stderr.write_all(format!("{}{pid}: {why}\n", colored_mark(stderr.is_terminal(), "31m✗")).as_bytes());
    false
}

/// Returns a coloured mark, on a terminal.
fn colored_mark(is_terminal: bool, mark: &str) -> String {
    if is_terminal { format!("\x1b[{mark}\x1b[0m ") } else { String::new() }
}

/// Parses a text that fits into one line of a request.
fn one_line(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.contains(char::is_control) {
        Err("expected a single line of text")
    } else {
        Ok(text.to_owned())
    }
}

/// Parses a time with its unit, above 0.
fn parse_time(text: &str) -> Result<Duration, &'static str> {
    let expected = "expected a time such as 10s, 500ms or 2m";
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).ok_or(expected)?);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return Err(expected),
    };
    let milliseconds = number.parse::<u32>().ok().filter(|number| *number > 0).ok_or(expected)?;
    Ok(Duration::from_millis(u64::from(milliseconds) * unit_ms))
}

impl TriggerArguments {
    fn counts_iterations(&self) -> bool {
        self.iterations > 0
    }

    /// Returns the start of the recordings, in milliseconds since 1970; 0 means soon.
    fn start_ms(&self, now: Duration) -> u64 {
        if self.cancel || self.last.is_some() {
            return 0;
        }
        let together = || u64::try_from((now + START_DELAY).as_millis()).unwrap_or(0);
        match self.profile_start_time {
            0 if self.pids.len() > 1 && !self.counts_iterations() => together(),
            start => start,
        }
    }

    /// Returns the maximum waiting time for a recording that starts `ahead` from now.
    fn wait_limit(&self, ahead: Duration) -> Duration {
        let asked_for = if self.counts_iterations() { HOUR } else { ahead + Duration::from_millis(self.duration_ms) };
        let wait_limit = self.timeout.map_or(asked_for + MINUTE, Duration::from_secs);
        wait_limit.min(24 * HOUR)
    }

    /// Returns the request in the format of `dyno gputrace`: its keys in its order, then our own keys.
    fn request_text(&self, start: u64) -> String {
        if self.cancel {
            return CANCEL.to_owned();
        }
        let mut lines = Vec::new();
        let mut line = |key: &str, value: &dyn ToString| lines.push(format!("{key}={}", value.to_string()));
        if let Some(path) = &self.log_file {
            // The process may have another working directory.
            let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
            line("ACTIVITIES_LOG_FILE", &quote_path(&path.to_string_lossy()));
        }
        if let Some(last) = self.last {
            line("PROFILE_LAST_MSECS", &last.as_millis());
            return lines.join("\n");
        }
        if self.counts_iterations() {
            line("PROFILE_START_ITERATION", &0);
            line("PROFILE_START_ITERATION_ROUNDUP", &self.profile_start_iteration_roundup);
            line("ACTIVITIES_ITERATIONS", &self.iterations);
        } else {
            line("PROFILE_START_TIME", &start);
            line("ACTIVITIES_DURATION_MSECS", &self.duration_ms);
        }
        line("PROFILE_REPORT_INPUT_SHAPES", &self.record_shapes);
        if self.profile_memory {
            line("PROFILE_PROFILE_MEMORY", &true);
            line("PROFILE_MEMORY", &true);
            line("PROFILE_MEMORY_DURATION_MSECS", &self.duration_ms);
        }
        line("PROFILE_WITH_STACK", &self.with_stacks);
        line("PROFILE_WITH_FLOPS", &self.with_flops);
        line("PROFILE_WITH_MODULES", &self.with_modules);
        if let Some(types) = &self.activities {
            line("ACTIVITY_TYPES", types);
        }
        lines.join("\n")
    }
}

/// Quotes a path that would otherwise be misread.
fn quote_path(path: &str) -> String {
    if path.contains(['#', '"']) || path.trim() != path {
        format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: TriggerArguments,
    }

    fn arguments(words: &str) -> TriggerArguments {
        Line::try_parse_from(["kineto"].into_iter().chain(words.split(' '))).unwrap().arguments
    }

    #[test]
    fn request_text_equals_that_of_dyno_gputrace() {
        assert_eq!(
            arguments("7 --log-file /tmp/a.json").request_text(0),
            "ACTIVITIES_LOG_FILE=/tmp/a.json\nPROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=500\n\
             PROFILE_REPORT_INPUT_SHAPES=false\nPROFILE_WITH_STACK=false\nPROFILE_WITH_FLOPS=false\n\
             PROFILE_WITH_MODULES=false"
        );
        let words = "7 --log-file /tmp/a.json --iterations 3 --profile-start-iteration-roundup 10 --record-shapes \
                     --profile-memory --duration-ms 20 --with-stacks --with-flops --with-modules --activities kernel";
        assert_eq!(
            arguments(words).request_text(0),
            "ACTIVITIES_LOG_FILE=/tmp/a.json\nPROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=10\n\
             ACTIVITIES_ITERATIONS=3\nPROFILE_REPORT_INPUT_SHAPES=true\nPROFILE_PROFILE_MEMORY=true\n\
             PROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=20\nPROFILE_WITH_STACK=true\nPROFILE_WITH_FLOPS=true\n\
             PROFILE_WITH_MODULES=true\nACTIVITY_TYPES=kernel"
        );
    }

    #[test]
    fn last_records_are_asked_for_by_a_time() {
        let text = "ACTIVITIES_LOG_FILE=/tmp/a.json\nPROFILE_LAST_MSECS=10000";
        assert_eq!(arguments("7 8 --last 10s --log-file /tmp/a.json").request_text(0), text);
        assert_eq!(arguments("7 8 --last 500ms").start_ms(Duration::from_secs(100)), 0);
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert!(
            ["", "10", "s", "0s", "10h", "-1s", "1.5s", "99999999999s"].iter().all(|text| parse_time(text).is_err())
        );
        assert!(Line::try_parse_from(["kineto", "7", "--last", "1s", "--duration-ms", "5"]).is_err());
    }

    #[test]
    fn several_processes_start_together() {
        let now = Duration::from_secs(100);
        assert_eq!(arguments("7").start_ms(now), 0);
        assert_eq!(arguments("7 8").start_ms(now), 102_000);
        assert_eq!(arguments("7 8 --iterations 3").start_ms(now), 0);
        assert_eq!(arguments("7 8 --profile-start-time 5").start_ms(now), 5);
        assert_eq!(arguments("7 --iterations -1").request_text(9).lines().next(), Some("PROFILE_START_TIME=9"));
        assert_eq!(arguments("7").wait_limit(Duration::from_secs(2)), Duration::from_millis(62_500));
        assert_eq!(arguments("7 --timeout 3").wait_limit(Duration::ZERO), Duration::from_secs(3));
    }

    #[test]
    fn paths_are_absolute_and_quoted() {
        let first = |words: &str| arguments(words).request_text(0).lines().next().map(str::to_owned);
        assert!(first("7 --log-file a.json").unwrap().starts_with("ACTIVITIES_LOG_FILE=/"));
        assert_eq!(first("7 --log-file /a#\"b\\.json").unwrap(), "ACTIVITIES_LOG_FILE=\"/a#\\\"b\\\\.json\"");
        for wrong in ["", "a\nB=1", "\u{7}"] {
            assert!(one_line(wrong).is_err(), "{wrong:?}");
        }
    }
}

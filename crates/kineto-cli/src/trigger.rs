//! `kineto trigger`: has running processes traced.

use super::listener::{Asked, Listener, News};
use super::say;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Has running processes traced, and says what becomes of it.
///
/// The processes wait for requests in a folder: they were started with KINETO_TRIGGER_DIR, or built with
/// `trigger_folder`. What may be asked for is what `dyno gputrace` may ask for, by the same options. Several processes start
/// at one time. The files lie where each process is allowed to write (KINETO_ONDEMAND_TRACE_DIR), with its number in the
/// name.
///
/// Exit status: 0 if all files were written (with --no-wait: if all requests were left); 1 if not; 2 if the arguments are
/// wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct TriggerArguments {
    /// The processes to be traced, which may be in containers.
    #[arg(required = true, value_name = "PID")]
    pids: Vec<u32>,
    /// Where each trace goes, as the process sees it; `_<pid>` goes before `.json`.
    /// By default it is `/tmp/libkineto_activities_<pid>.json`.
    #[arg(long, value_name = "PATH", value_parser = one_line)]
    log_file: Option<String>,
    /// How long is recorded, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    duration_ms: u64,
    /// For how many iterations is recorded instead, if the program counts them (`Profiler::step`).
    #[arg(long, value_name = "COUNT", default_value_t = -1, allow_negative_numbers = true)]
    iterations: i64,
    /// When the recording starts, in milliseconds since 1970; 0 is soon.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    profile_start_time: u64,
    /// A recording of iterations starts with a multiple of this.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    profile_start_iteration_roundup: u64,
    /// Asks for the shapes of inputs.
    #[arg(long)]
    record_shapes: bool,
    /// Takes a memory profile in place of a trace.
    #[arg(long)]
    profile_memory: bool,
    /// Asks for call stacks.
    #[arg(long)]
    with_stacks: bool,
    /// Asks for counts of operations.
    #[arg(long)]
    with_flops: bool,
    /// Asks for the modules that operations are in.
    #[arg(long)]
    with_modules: bool,
    /// What is recorded, by libkineto's names with commas between. [default: what the process is set to]
    #[arg(long, value_name = "TYPES", value_parser = one_line)]
    activities: Option<String>,
    /// Cancels all requests of the processes that have not ended, and discards what they have recorded.
    #[arg(long)]
    cancel: bool,
    /// The folder in which the processes look for requests. [default: KINETO_TRIGGER_DIR in their environment]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Leaves the requests and does not wait for what becomes of them.
    #[arg(long)]
    no_wait: bool,
    /// How many seconds are waited at most. [default: a minute more than is asked for; an hour for iterations]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

/// Several processes start so long from now, by when all have taken their requests.
const AHEAD: Duration = Duration::from_secs(2);
/// So often it is looked for news.
const MOMENT: Duration = Duration::from_millis(20);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Leaves the requests, and follows them to their ends.
pub(crate) fn run(arguments: &TriggerArguments) -> ExitCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = arguments.start(now);
    let text = arguments.text(start);
    let mut pids = arguments.pids.clone();
    pids.sort_unstable();
    pids.dedup();
    let (mut asked, mut all_well) = (Vec::new(), true);
    for pid in pids {
        match Listener::find(pid, arguments.dir.as_deref()).and_then(|listener| listener.ask(&text)) {
            Ok(one) => asked.push(one),
            Err(why) => all_well &= fails(pid, &why),
        }
    }
    if arguments.no_wait {
        asked.iter().for_each(|one| say(&format!("{}: asked\n", one.listener.pid)));
        asked.clear();
    }
    let deadline = Instant::now() + arguments.patience(Duration::from_millis(start).saturating_sub(now));
    while !asked.is_empty() {
        asked.retain_mut(|one| match follow(one, Instant::now() < deadline) {
            None => true,
            Some(is_well) => {
                all_well &= is_well;
                false
            }
        });
        std::thread::sleep(MOMENT);
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says what is new; returns whether there is a file, when that is decided.
fn follow(asked: &mut Asked, is_in_time: bool) -> Option<bool> {
    let pid = asked.listener.pid;
    let News { lines, end } = match asked.look() {
        Ok(news) => news,
        Err(why) => return Some(fails(pid, &why)),
    };
    let last = lines.len().saturating_sub(1);
    for (nth, line) in lines.iter().enumerate() {
        match end.filter(|_| nth == last) {
            None => say(&format!("{pid}: {line}\n")),
            Some(true) => say(&format!("{}{pid}: {line}\n", mark(std::io::stdout().is_terminal(), "32m✓"))),
            Some(false) => drop(fails(pid, line)),
        }
    }
    if end == Some(true) && asked.listener.has_own_files() {
        say(&format!("{pid}: from here, its files are below /proc/{pid}/root\n"));
    }
    if end.is_none() && !is_in_time {
        return Some(fails(pid, &too_late(asked)));
    }
    end
}

/// Why nothing is waited for any longer (--timeout).
fn too_late(asked: &Asked) -> String {
    match asked.withdraw() {
        true => "it has not taken the request in time, which is taken back: it records something else, looks in \
                 another folder, or does not trust this user (its log says so)"
            .to_owned(),
        false => format!("its file was not written in time; what becomes of it stands in {}", asked.answers_in()),
    }
}

/// The request that takes all others back.
pub(crate) const CANCEL: &str = "CANCEL=true";

/// Says why there is no file; returns that there is none.
pub(crate) fn fails(pid: u32, why: &str) -> bool {
    let mut stderr = std::io::stderr();
    // Paths come from the process's environment, and the process must not control this terminal.
    let why = why.replace(|each: char| each.is_control() && each != '\n', " ");
    let _ = stderr.write_all(format!("{}{pid}: {why}\n", mark(stderr.is_terminal(), "31m✗")).as_bytes());
    false
}

/// A mark in its colour, for people.
fn mark(is_terminal: bool, mark: &str) -> String {
    if is_terminal { format!("\x1b[{mark}\x1b[0m ") } else { String::new() }
}

/// A text that stands in one line of a request.
fn one_line(text: &str) -> Result<String, &'static str> {
    match text.is_empty() || text.contains(char::is_control) {
        true => Err("expected a text of one line"),
        false => Ok(text.to_owned()),
    }
}

impl TriggerArguments {
    fn counts_iterations(&self) -> bool {
        self.iterations > 0
    }

    /// When the recordings start, in milliseconds since 1970; 0 is soon.
    fn start(&self, now: Duration) -> u64 {
        if self.cancel {
            return 0;
        }
        let together = || u64::try_from((now + AHEAD).as_millis()).unwrap_or(0);
        match self.profile_start_time {
            0 if self.pids.len() > 1 && !self.counts_iterations() => together(),
            start => start,
        }
    }

    /// How long is waited, if the start is so far ahead.
    fn patience(&self, ahead: Duration) -> Duration {
        let asked_for = if self.counts_iterations() { HOUR } else { ahead + Duration::from_millis(self.duration_ms) };
        let patience = self.timeout.map_or(asked_for + MINUTE, Duration::from_secs);
        patience.min(24 * HOUR)
    }

    /// The request as `dyno gputrace` writes it: its keys, in its order, and what only we have behind.
    fn text(&self, start: u64) -> String {
        if self.cancel {
            return CANCEL.to_owned();
        }
        let mut lines = Vec::new();
        let mut line = |key: &str, value: &dyn ToString| lines.push(format!("{key}={}", value.to_string()));
        if let Some(path) = &self.log_file {
            // The process may have been started elsewhere.
            let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
            line("ACTIVITIES_LOG_FILE", &quoted(&path.to_string_lossy()));
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

/// Puts a path in quotes if it would be read as something else.
fn quoted(path: &str) -> String {
    match path.contains(['#', '"']) || path.trim() != path {
        true => format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")),
        false => path.to_owned(),
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
    fn the_text_is_that_of_dyno_gputrace() {
        assert_eq!(
            arguments("7 --log-file /tmp/a.json").text(0),
            "ACTIVITIES_LOG_FILE=/tmp/a.json\nPROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=500\n\
             PROFILE_REPORT_INPUT_SHAPES=false\nPROFILE_WITH_STACK=false\nPROFILE_WITH_FLOPS=false\n\
             PROFILE_WITH_MODULES=false"
        );
        let words = "7 --log-file /tmp/a.json --iterations 3 --profile-start-iteration-roundup 10 --record-shapes \
                     --profile-memory --duration-ms 20 --with-stacks --with-flops --with-modules --activities kernel";
        assert_eq!(
            arguments(words).text(0),
            "ACTIVITIES_LOG_FILE=/tmp/a.json\nPROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=10\n\
             ACTIVITIES_ITERATIONS=3\nPROFILE_REPORT_INPUT_SHAPES=true\nPROFILE_PROFILE_MEMORY=true\n\
             PROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=20\nPROFILE_WITH_STACK=true\nPROFILE_WITH_FLOPS=true\n\
             PROFILE_WITH_MODULES=true\nACTIVITY_TYPES=kernel"
        );
    }

    #[test]
    fn several_processes_have_one_start() {
        let now = Duration::from_secs(100);
        assert_eq!(arguments("7").start(now), 0);
        assert_eq!(arguments("7 8").start(now), 102_000);
        assert_eq!(arguments("7 8 --iterations 3").start(now), 0);
        assert_eq!(arguments("7 8 --profile-start-time 5").start(now), 5);
        assert_eq!(arguments("7 --iterations -1").text(9).lines().next(), Some("PROFILE_START_TIME=9"));
        assert_eq!(arguments("7").patience(Duration::from_secs(2)), Duration::from_millis(62_500));
        assert_eq!(arguments("7 --timeout 3").patience(Duration::ZERO), Duration::from_secs(3));
    }

    #[test]
    fn paths_are_absolute_and_no_comment() {
        let first = |words: &str| arguments(words).text(0).lines().next().map(str::to_owned);
        assert!(first("7 --log-file a.json").unwrap().starts_with("ACTIVITIES_LOG_FILE=/"));
        assert_eq!(first("7 --log-file /a#\"b\\.json").unwrap(), "ACTIVITIES_LOG_FILE=\"/a#\\\"b\\\\.json\"");
        for wrong in ["", "a\nB=1", "\u{7}"] {
            assert!(one_line(wrong).is_err(), "{wrong:?}");
        }
    }
}

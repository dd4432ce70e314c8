//! Arguments and reading of a command's trace file.

use crate::print_error;
use kineto_base::text::{count_with_noun, escaped_path};
use kineto_trace::Error;
use kineto_trace::Timestamp;
use kineto_trace::analysis::{EventFilter, Events, Note, ReadOptions};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of a trace or a live file that a folder has: more than a machine has memory for.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 40;

/// Returns whether an argument means the standard input, or the standard output of the command if it is an output.
pub(crate) fn is_standard_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns an error for a command whose output's name gives the format, if the output is the standard output.
pub(crate) fn check_has_name(output: &Path) -> Result<(), String> {
    match is_standard_stream(output) {
        true => Err(
            "cannot write -: the name of the output gives the format, and the standard output has none; name a file"
                .to_owned(),
        ),
        false => Ok(()),
    }
}

/// A trace that the user has named, or one of a folder that the user has named.
#[derive(Clone, Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    /// Whether a folder had it: another user may have put a link or a pipe there.
    is_found: bool,
}

impl TraceFile {
    pub(crate) fn named(path: &Path) -> TraceFile {
        TraceFile { path: path.to_owned(), is_found: false }
    }
}

impl Deref for TraceFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// The arguments of commands that read one trace.
#[derive(clap::Args, Debug)]
pub(crate) struct TraceInput {
    /// The trace file, JSON or Perfetto's format, plain or gzip; `-` is the standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    part: EventSelection,
}

/// The arguments that select a part of a trace.
#[derive(clap::Args, Debug)]
pub(crate) struct EventSelection {
    /// Reads a truncated file up to its last event.
    #[arg(long)]
    partial: bool,
    /// Only the step `ProfilerStep#N`, and the device work launched in it.
    #[arg(long, value_name = "N", help_heading = "Part of the trace")]
    step: Option<u64>,
    /// Only what begins this many milliseconds after the start of the trace, or later.
    #[arg(long, value_name = "MS", help_heading = "Part of the trace")]
    from: Option<f64>,
    /// Only what begins less than this many milliseconds after the start of the trace.
    #[arg(long, value_name = "MS", help_heading = "Part of the trace")]
    to: Option<f64>,
    /// Only this thread, and the device work that it launched.
    #[arg(long, value_name = "ID", help_heading = "Part of the trace")]
    thread: Option<i64>,
    /// Of devices, only this stream.
    #[arg(long, value_name = "NUMBER", help_heading = "Part of the trace")]
    stream: Option<u64>,
    /// Only events whose name contains this text.
    #[arg(long, value_name = "TEXT", help_heading = "Part of the trace")]
    name: Option<String>,
}

impl TraceInput {
    /// Returns the path of the trace.
    pub(crate) fn path(&self) -> &Path {
        &self.trace
    }

    /// Reads the trace.
    ///
    /// # Errors
    /// If it cannot be read, or if no event is selected.
    pub(crate) fn read_events(&self) -> Result<Events, Error> {
        let events = self.part.read_events(&TraceFile::named(&self.trace))?;
        if self.part.is_whole() || !events.is_empty() {
            return Ok(events);
        }
        let why = format!("no event matches the selection ({})", self.part.description());
        Err(Error::from_io("read", &self.trace, io::Error::other(why), "change it"))
    }
}

impl EventSelection {
    /// Reads the part of a trace; `-` is the standard input.
    pub(crate) fn read_events(&self, trace: &TraceFile) -> Result<Events, Error> {
        let events = read_events(trace, self.partial)?;
        let filter = self.event_filter(events.window().0);
        events.filtered(&filter)
    }

    /// Returns whether the whole trace is selected.
    pub(crate) fn is_whole(&self) -> bool {
        self.description().is_empty()
    }

    /// Returns the selected part as text; empty for the whole trace.
    pub(crate) fn description(&self) -> String {
        let parts = [
            self.step.map(|step| format!("step {step}")),
            self.from.map(|from| format!("from {from} ms")),
            self.to.map(|to| format!("to {to} ms")),
            self.thread.map(|thread| format!("thread {thread}")),
            self.stream.map(|stream| format!("stream {stream}")),
            self.name.as_ref().map(|name| format!("names with \"{name}\"")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Returns a warning that no slice of a trace is selected.
    pub(crate) fn empty_warning(&self, path: &Path) -> String {
        let path = path.display();
        match self.description() {
            part if part.is_empty() => format!("{path}: the trace has no slice; record spans or device work"),
            part => format!("{path}: no slice matches the selection ({part}); change it"),
        }
    }

    fn event_filter(&self, start: Timestamp) -> EventFilter {
        let mut filter = EventFilter::new();
        if self.from.is_some() || self.to.is_some() {
            let from = self.from.map_or(Timestamp::default(), |from| add_millis(start, from));
            let to = self.to.map_or(Timestamp::from_nanos(u64::MAX), |to| add_millis(start, to));
            filter = filter.within(from, to);
        }
        let filter = self.step.into_iter().fold(filter, EventFilter::step);
        let filter = self.thread.into_iter().fold(filter, EventFilter::thread);
        let filter = self.stream.into_iter().fold(filter, EventFilter::stream);
        self.name.iter().fold(filter, |filter, name| filter.name(name))
    }
}

/// Returns `start` plus `ms` milliseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a conversion to u64 saturates")]
fn add_millis(start: Timestamp, ms: f64) -> Timestamp {
    Timestamp::from_nanos(start.as_nanos().saturating_add((ms * 1e6).round() as u64))
}

/// Reads a trace; `-` is the standard input. A terminal shows the progress.
///
/// # Errors
/// If it cannot be read. A folder has no traces then.
pub(crate) fn read_events(trace: &TraceFile, partial: bool) -> Result<Events, Error> {
    let path = &trace.path;
    if !trace.is_found && path.is_dir() {
        return Err(folder_error(path));
    }
    let is_shown = io::stderr().is_terminal();
    let mut options = ReadOptions::new().partial(partial);
    if is_shown {
        let (name, begun) = (escaped_path(path), Instant::now());
        options = options.on_progress(move |bytes| show_progress(&name, bytes, begun.elapsed()));
    }
    let events = match trace.is_found {
        true => tracing_kineto::open_entry(path, FILE_BYTES_MAX)
            .map_err(|why| Error::from_io("read", path, why, "name it, if you trust it"))
            .and_then(|file| options.read_file(file, path)),
        false if is_standard_stream(path) => options.from_reader(io::stdin().lock()),
        false => options.read(path),
    };
    if is_shown {
        erase_line();
    }
    events
}

/// Returns why a folder is not read as a trace.
fn folder_error(folder: &Path) -> Error {
    let found = trace_files(folder).into_iter().find(|trace| trace.is_found);
    if let Some(name) = found.as_deref().and_then(Path::file_name) {
        let advice = format!("name one of its traces, such as {}", escaped_path(Path::new(name)));
        return Error::from_io("read", folder, io::Error::other("it is a folder"), &advice);
    }
    let why = io::Error::other("the folder has no trace (*.json, *.pftrace, each also with .gz)");
    Error::from_io("read", folder, why, "write one there, or name a subfolder: these are not read")
}

/// Prints how many events of a file were left out while it was read, by cause, if any were.
pub(crate) fn warn_of_left_out(path: &Path, events: &Events) {
    let is_left_out =
        |note: &Note| matches!(note, Note::OtherPhase | Note::WithoutTime | Note::EndWithoutBegin | Note::LostState);
    let left_out: Vec<_> = events.notes().filter(|(note, _)| is_left_out(note)).collect();
    if !left_out.is_empty() {
        let events = count_with_noun(left_out.iter().map(|(_, count)| count).sum(), "event");
        let causes: Vec<_> = left_out.iter().map(|(note, count)| format!("{note} ({count})")).collect();
        print_error(&format_args!("{}: left out {events}: {}", path.display(), causes.join(", ")));
    }
}

/// Returns the traces of a folder, without those in its subfolders, in order of their names: rank2 comes before rank10. Of any other
/// path, returns the path.
///
/// A folder without traces is returned itself: reading it gives the error.
pub(crate) fn trace_files(path: &Path) -> Vec<TraceFile> {
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        [".json", ".pftrace", ".perfetto-trace"].iter().any(|end| name.ends_with(end))
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| is_trace(path) && !path.is_dir()).collect();
    files.sort_by_cached_key(|path| (numbers_apart(&path.to_string_lossy()), path.clone()));
    if files.is_empty() {
        return vec![TraceFile::named(path)];
    }
    files.into_iter().map(|path| TraceFile { path, is_found: true }).collect()
}

/// Splits a name into texts, each with the number that follows it, so that names compare by numbers: its digits and how many they are.
fn numbers_apart(name: &str) -> Vec<(String, usize, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (text, numbered) = rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        let end = numbered.find(|c: char| !c.is_ascii_digit()).unwrap_or(numbered.len());
        let (number, after) = numbered.split_at(end);
        let digits = number.trim_start_matches('0');
        parts.push((text.to_owned(), digits.len(), digits.to_owned()));
        rest = after;
    }
    parts
}

/// Reads traces on all cores, and calls `each` with the results in the order of the traces.
pub(crate) fn for_each_trace<T: Send>(
    traces: &[TraceFile],
    read: impl Fn(&TraceFile) -> T + Sync,
    mut each: impl FnMut(&Path, T),
) {
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let work = |sender: &mpsc::Sender<_>| {
        let take_next = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            Some((index, traces.get(index)?))
        };
        while let Some((index, path)) = take_next() {
            // The receiver outlives all senders.
            let _ = sender.send((index, read(path)));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(traces.len());
    thread::scope(|scope| {
        let start = |_: &usize| {
            let sender = sender.clone();
            thread::Builder::new().spawn_scoped(scope, move || work(&sender)).is_ok()
        };
        if (0..threads).filter(start).count() == 0 {
            work(&sender);
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut paths = traces.iter().enumerate().peekable();
        for (index, result) in results {
            early.insert(index, result);
            while let Some((path, result)) =
                paths.peek().and_then(|(index, path)| Some((&***path, early.remove(index)?)))
            {
                each(path, result);
                paths.next();
            }
        }
    });
}

/// Shows how much of a file is read, unless reading takes no longer than a moment.
fn show_progress(name: &str, bytes: u64, elapsed: Duration) {
    const MOMENT: Duration = Duration::from_millis(500);
    const MEGABYTE: u64 = 1_000_000;
    /// Prints progress each time this many bytes are read.
    const STEP: u64 = 10 * MEGABYTE;
    if elapsed > MOMENT && bytes % STEP < STEP / 20 {
        let _ = write!(io::stderr().lock(), "\r\x1b[Kreading {name}: {} MB", bytes / MEGABYTE);
    }
}

fn erase_line() {
    let _ = write!(io::stderr().lock(), "\r\x1b[K");
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn folders_list_traces_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a1.json", "rank01.json", "rank2.json.gz", "rank2b.json", "rank10.pftrace", "rank11.json"];
        for name in names.iter().rev().chain(&["notes.txt"]) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("rank3.json")).unwrap();
        let found = trace_files(folder.path());
        let found: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(found, names);
    }
}

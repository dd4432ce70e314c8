//! The newest records of a live file, as a table.

use crate::trace_file::FILE_BYTES_MAX;
use kineto_base::text::{count_with_noun, escaped_path, printable};
use kineto_trace::Timestamp;
use kineto_trace::analysis::{Event, Events};
use rustix::fs::{FlockOperation, flock};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tracing_kineto::{Trace, open_entry};

/// The newest records of a recording that may still run.
pub(super) struct LiveView {
    path: PathBuf,
    process: u32,
    recorded_ns: u64,
    interval_ns: u64,
    /// The time since the newest record.
    age_ns: u64,
    /// Whether no process records into the file any more.
    is_left: bool,
    spans: Vec<SpanRow>,
    open_spans: u64,
    threads: usize,
    devices: Option<DeviceTimes>,
    losses: Vec<(String, u64)>,
    /// What was torn, because the program wrote it meanwhile.
    torn: String,
    memory: FileMemory,
    read_in: Duration,
}

/// The spans of a name that ended in the interval.
struct SpanRow {
    name: String,
    durations: Vec<u64>,
}

/// The work of devices in the interval.
struct DeviceTimes {
    work: u64,
    busy_ns: u64,
}

/// The memory of a live file.
#[derive(Clone, Copy)]
struct FileMemory {
    used: u64,
    limit: u64,
}

impl LiveView {
    /// Reads a live file, and measures what ended in the last seconds.
    ///
    /// Nothing is mapped, so the program does not notice. Records that it replaces meanwhile are left out.
    ///
    /// # Errors
    /// If it cannot be read, with the reason.
    pub(super) fn read(path: &Path, seconds: f64) -> Result<LiveView, String> {
        /// The program may replace the tables of the file while they are read.
        const TRIES: usize = 3;

        let begun = Instant::now();
        let mut last_error = String::new();
        for _ in 0..TRIES {
            let file = open_entry(path, FILE_BYTES_MAX)
                .map_err(|why| format!("cannot open it: {why}; run this command as its user or as root"))?;
            let memory =
                FileMemory::of(&file).map_err(|why| format!("cannot read its size: {why}; check its file system"))?;
            // Before the reading, which takes time: later records are not read.
            let now = SystemTime::now().into();
            match Trace::read_segment_from(&file, path) {
                Ok(segment) => {
                    let torn = torn_text(&segment.to_string());
                    let view = LiveView::new(&segment.trace, seconds, now);
                    let (path, process, is_left) = (path.to_owned(), segment.process_id, is_unlocked(&file));
                    return Ok(LiveView { path, process, torn, memory, is_left, read_in: begun.elapsed(), ..view });
                }
                Err(error) => last_error = error.to_string(),
            }
        }
        Err(last_error)
    }

    /// Measures the last seconds before `now`. If the newest record is later, the clock was set back: then those before that record.
    fn new(trace: &Trace, seconds: f64, now: Timestamp) -> LiveView {
        let events = trace.events();
        let start = events.window().0;
        let newest = newest_record(&events).unwrap_or(start);
        let end = newest.max(now);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most an hour, checked by the caller"
        )]
        let wanted = (seconds * 1e9) as u64;
        let interval_ns = wanted.min(end.since(start));
        let from = Timestamp::from_nanos(end.as_nanos() - interval_ns);
        let slices = || events.iter().filter(Event::is_slice);
        let mut by_name: HashMap<&str, Vec<u64>> = HashMap::new();
        let mut open_spans = 0;
        for span in slices().filter(Event::is_op) {
            if span.is_unfinished() {
                open_spans += 1;
            } else if span.end() > from {
                by_name.entry(span.name()).or_default().push(span.duration_ns());
            }
        }
        let mut spans: Vec<_> = by_name.into_iter().map(|(name, durations)| SpanRow::new(name, durations)).collect();
        spans.sort_by(|a, b| (b.total_ns(), &a.name).cmp(&(a.total_ns(), &b.name)));
        let stats = trace.stats();
        let losses = stats.losses.iter().filter(|(loss, _)| loss.is_loss());
        LiveView {
            path: PathBuf::new(),
            process: 0,
            recorded_ns: newest.since(start),
            interval_ns,
            age_ns: end.since(newest),
            is_left: false,
            spans,
            open_spans,
            threads: stats.threads,
            devices: DeviceTimes::new(&events, from, end),
            losses: losses.map(|(loss, count)| (loss.as_str().to_owned(), *count)).collect(),
            torn: String::new(),
            memory: FileMemory { used: 0, limit: 0 },
            read_in: Duration::ZERO,
        }
    }

    /// The lines of a table that are not a span's.
    pub(super) const HEAD_LINES: usize = 8;

    /// Returns the table: lines on the recording, and one for each name.
    pub(super) fn format(&self, rows: usize) -> String {
        let count: usize = self.spans.iter().map(|row| row.durations.len()).sum();
        let seconds = seconds_of(self.interval_ns);
        let mut text = format!(
            "process {}   recorded {:.1} s   threads: {}   open spans: {}   read in {:.0} ms\n",
            self.process,
            seconds_of(self.recorded_ns),
            self.threads,
            self.open_spans,
            self.read_in.as_secs_f64() * 1e3
        );
        text += &format!("{}\n", escaped_path(&self.path));
        if self.is_left {
            let process = self.process;
            text +=
                &format!("process {process} has ended or stopped recording; kineto repair makes a trace of the file\n");
        }
        let busy = self.devices.as_ref().map_or_else(
            || "no device work".to_owned(),
            |devices| {
                format!(
                    "devices busy {:.1} %, {} of work",
                    percent_of(devices.busy_ns, self.interval_ns),
                    count_with_noun(devices.work, "piece")
                )
            },
        );
        let used = format!("memory {:.1} of {:.1} MiB", mebibytes(self.memory.used), mebibytes(self.memory.limit));
        let (rate, age) = (per_second(count, seconds), format_age(self.age_ns));
        text += &format!("last {seconds:.1} s: {rate:.1} spans/s   newest record: {age} ago\n{busy}   {used}\n");
        let losses: Vec<_> = self.losses.iter().map(|(cause, count)| format!("{cause} ({count})")).collect();
        let lost = if losses.is_empty() { "nothing".to_owned() } else { losses.join(", ") };
        text += &format!("lost: {lost}   torn: {}\n", self.torn);
        text += &format!("  {:>9} {:>12} {:>12} {:>12} {:>12}  span\n", "spans/s", "mean", "p99", "max", "total");
        for row in self.spans.iter().take(rows) {
            text += &row.format(seconds);
        }
        match self.spans.len().saturating_sub(rows) {
            0 => text,
            more => text + &format!("  … {more} more\n"),
        }
    }
}

impl SpanRow {
    fn new(name: &str, mut durations: Vec<u64>) -> SpanRow {
        durations.sort_unstable();
        SpanRow { name: printable(name), durations }
    }

    fn total_ns(&self) -> u64 {
        self.durations.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    fn format(&self, seconds: f64) -> String {
        let count = self.durations.len();
        let rank = (count * 99).div_ceil(100).saturating_sub(1);
        let p99 = self.durations.get(rank).copied().unwrap_or(0);
        let [mean, p99, max, total] = [
            self.total_ns() / (count.max(1) as u64),
            p99,
            self.durations.last().copied().unwrap_or(0),
            self.total_ns(),
        ]
        .map(format_time);
        format!("  {:>9.1} {mean:>12} {p99:>12} {max:>12} {total:>12}  {}\n", per_second(count, seconds), self.name)
    }
}

impl DeviceTimes {
    /// Returns `None` if the recording has no device work.
    fn new(events: &Events, from: Timestamp, to: Timestamp) -> Option<DeviceTimes> {
        let work = || events.iter().filter(|event| event.is_slice() && event.is_device_work());
        work().next()?;
        let (mut count, mut busy_ns, mut covered) = (0, 0, from);
        // Events are in order of their start.
        for event in work().filter(|event| event.end() > from && event.start() < to) {
            count += 1;
            let (start, end) = (event.start().max(covered), event.end().min(to));
            if end > start {
                busy_ns += end.since(start);
                covered = end;
            }
        }
        Some(DeviceTimes { work: count, busy_ns })
    }
}

impl FileMemory {
    fn of(file: &File) -> io::Result<FileMemory> {
        /// The unit of `st_blocks`.
        const BLOCK: u64 = 512;
        let metadata = file.metadata()?;
        Ok(FileMemory { used: metadata.blocks().saturating_mul(BLOCK), limit: metadata.len() })
    }
}

/// Returns the time of the newest record: an open span lasts to the end of the window, so its start counts.
fn newest_record(events: &Events) -> Option<Timestamp> {
    let time = |event: Event<'_>| if event.is_unfinished() { event.start() } else { event.end() };
    events.iter().map(time).max()
}

/// Returns whether no process holds the lock of a live file, which its process holds while it records. Another one that reads the
/// file may hold it for a moment.
fn is_unlocked(file: &File) -> bool {
    let is_free = flock(file, FlockOperation::NonBlockingLockShared).is_ok();
    if is_free {
        // Closing the file would unlock it too.
        let _ = flock(file, FlockOperation::Unlock);
    }
    is_free
}

/// Returns what a segment's text says in addition to its missing end, which a recording that runs does not have.
fn torn_text(segment: &str) -> String {
    let rest = segment.strip_prefix("incomplete: its end is missing").unwrap_or(segment);
    let rest = rest.trim_start_matches(", ");
    if rest.is_empty() { "nothing".to_owned() } else { rest.to_owned() }
}

fn seconds_of(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Formats the age of a record.
fn format_age(ns: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;

    match ns / 1_000_000_000 {
        0..120 => format!("{:.1} s", seconds_of(ns)),
        seconds if seconds < 2 * HOUR => format!("{} min", seconds / MINUTE),
        seconds if seconds < 2 * DAY => format!("{} h", seconds / HOUR),
        seconds => format!("{} days", seconds / DAY),
    }
}

fn format_time(ns: u64) -> String {
    if ns < 1_000_000 { format!("{:.2} us", ns as f64 / 1e3) } else { format!("{:.2} ms", ns as f64 / 1e6) }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

fn per_second(count: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn percent_of(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

//! `kineto report`: writes a page about traces that needs no network and no other file.

mod data;
mod page;

use crate::trace_file::{EventSelection, TraceFile, is_standard_stream, trace_files};
use crate::{RunResult, print_error, print_text};
use kineto_base::text::escaped_path;
use kineto_model::write::file::temporary_name;
use kineto_trace::analysis::{Diff, Events, TraceProfile};
use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes a page (HTML) about where the time of traces went, to read in a browser and to send to others.
///
/// The page has the figures of `kineto summary --json`, charts, tables and a timeline that zooms. It is one file of at most 2 MB,
/// loads nothing from a network, and prints. If a trace is large, the timeline lists its longest slices and counts the others.
///
/// Exit status: 0 if the page was written; 1 if not, or if a trace could not be read or nothing of it is selected; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto report app.pt.trace.json.gz\n  \
    kineto report app.pt.trace.json.gz --step 7 -o step7.html\n  \
    kineto report traces/rank*.json.gz -o ranks.html\n  \
    kineto report --diff main.json.gz branch.json.gz -o change.html")]
pub(crate) struct ReportArguments {
    /// The trace files, or folders of them without subfolders; `-` is the standard input.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The file to write, `-` for the standard output; by default the trace's name with `.html`, for several traces `report.html`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compares the second trace or folder (B) with the first (A), as `kineto diff` does.
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    part: EventSelection,
}

/// The exit status for wrong arguments.
const WRONG_ARGUMENTS: u8 = 2;

/// The size of the data in a page; its template is about 80 kB.
const MAX_DATA_BYTES: usize = 1_800_000;

/// The size of a comparison in it.
const MAX_DIFF_BYTES: usize = 300_000;

/// Writes the page, and prints its path and size.
pub(crate) fn run(arguments: &ReportArguments) -> RunResult {
    if arguments.diff && arguments.traces.len() != 2 {
        print_error(&"error: --diff compares two traces or folders; name both");
        return Ok(ExitCode::from(WRONG_ARGUMENTS));
    }
    let sides: Vec<Vec<TraceFile>> = arguments.traces.iter().map(|path| trace_files(path)).collect();
    let traces = sides.concat();
    let output = arguments.output.clone().unwrap_or_else(|| default_output(&traces));
    let is_piped = is_standard_stream(&output);
    let cannot_write = |error| format!("cannot write {}: {error}", output.display());
    if !is_piped {
        check_output(&output, &traces).map_err(cannot_write)?;
    }
    let data = PageData::read(arguments, &sides, traces.len());
    let is_complete = data.unread.is_empty();
    let status = if is_complete && !data.lacks_selection { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if data.sections.is_empty() || (arguments.diff && !is_complete) {
        return Ok(status);
    }
    let title = match (data.sections.as_slice(), arguments.traces.as_slice()) {
        (_, [a, b]) if arguments.diff => format!("{} and {}", data::file_name(a), data::file_name(b)),
        ([only], _) => data::file_name(&only.path),
        (all, _) => format!("{} traces", all.len()),
    };
    let page = page::render_page(&title, &data.into_json(arguments));
    if is_piped {
        print_text(&page);
    } else {
        write_file(&output, &page).map_err(cannot_write)?;
        print_text(&format!("{}: {}\n", escaped_path(&output), format_size(page.len())));
    }
    Ok(status)
}

/// The parts of a page.
#[derive(Debug, Default)]
struct PageData {
    sections: Vec<TraceSection>,
    /// The traces of A and B, if they are compared.
    profiles: [Vec<TraceProfile>; 2],
    /// The names of the traces that could not be read.
    unread: Vec<String>,
    /// Whether nothing of a trace is selected.
    lacks_selection: bool,
}

/// The part of a page on one trace.
#[derive(Debug)]
struct TraceSection {
    path: TraceFile,
    side: usize,
    span_ns: u64,
    has_details: bool,
    /// JSON.
    data: String,
}

impl PageData {
    /// Reads the traces, one by one. Prints the errors of those that cannot be read.
    fn read(arguments: &ReportArguments, sides: &[Vec<TraceFile>], traces: usize) -> PageData {
        /// With more traces, only the first half of this number has details, and the longest; the list of all has half of the data.
        const MAX_DETAILED: usize = 60;

        let all_sides = if arguments.diff { 2 } else { 1 };
        let detailed = if traces > MAX_DETAILED { MAX_DETAILED / 2 / all_sides } else { traces };
        let max_bytes = MAX_DATA_BYTES - if arguments.diff { MAX_DIFF_BYTES } else { 0 };
        let budget = max_bytes / traces.clamp(1, MAX_DETAILED);
        let mut data = PageData::default();
        let paths = sides
            .iter()
            .enumerate()
            .flat_map(|(side, paths)| paths.iter().enumerate().map(move |(place, path)| (side, place, path)));
        for (index, (side, place, path)) in paths.enumerate() {
            let events = match arguments.part.read_events(path) {
                Ok(events) => events,
                Err(error) => {
                    print_error(&error);
                    data.unread.push(data::file_name(path));
                    continue;
                }
            };
            let budget = ((if arguments.diff { place } else { index }) < detailed).then_some(budget);
            if !events.iter().any(|event| event.is_slice()) {
                print_error(&arguments.part.empty_warning(path));
                data.lacks_selection |= !arguments.part.is_whole();
            }
            data.sections.push(TraceSection::new(arguments, path, side, &events, budget));
            if let Some(profiles) = data.profiles.get_mut(side).filter(|_| arguments.diff) {
                profiles.push(events.profile());
            }
        }
        data.add_details_of_longest(arguments, budget);
        data
    }

    /// Adds the details of the longest trace of each side. It is known only when all were read, so it is read again.
    fn add_details_of_longest(&mut self, arguments: &ReportArguments, budget: usize) {
        for side in 0..self.profiles.len() {
            let Some(section) = self.longest(Some(side)).and_then(|longest| self.sections.get_mut(longest)) else {
                continue;
            };
            if section.has_details || is_standard_stream(&section.path) {
                continue;
            }
            if let Ok(events) = arguments.part.read_events(&section.path) {
                *section = TraceSection::new(arguments, &section.path, side, &events, Some(budget));
            }
        }
    }

    /// Returns the index of the first longest trace, of all or of a side.
    fn longest(&self, side: Option<usize>) -> Option<usize> {
        let of_side = self.sections.iter().enumerate().filter(|(_, trace)| side.is_none_or(|side| trace.side == side));
        of_side.max_by_key(|(index, trace)| (trace.span_ns, Reverse(*index))).map(|(index, _)| index)
    }

    fn into_json(self, arguments: &ReportArguments) -> String {
        let [a, b] = &self.profiles;
        let diff = arguments.diff.then(|| data::diff_text(&Diff::between(a, b), &arguments.traces, MAX_DIFF_BYTES));
        let longest = self.longest(None);
        let sections: Vec<_> = self.sections.into_iter().map(|section| section.data).collect();
        data::report_data(&sections, longest, &self.unread, diff.as_deref().unwrap_or("null"), MAX_DATA_BYTES)
    }
}

impl TraceSection {
    /// Makes the data of a trace, with details of at most `budget` bytes if there is one and they fit.
    fn new(
        arguments: &ReportArguments,
        path: &TraceFile,
        side: usize,
        events: &Events,
        budget: Option<usize>,
    ) -> TraceSection {
        let range = events.slice_range();
        let name = if arguments.diff { ["A", "B"].get(side).unwrap_or(&"") } else { "" };
        let part = arguments.part.description();
        let details = budget.and_then(|budget| data::trace_data(path, events, (name, &part), budget));
        TraceSection {
            path: path.clone(),
            side,
            span_ns: range.end.since(range.start),
            has_details: details.is_some(),
            data: details.unwrap_or_else(|| data::brief_data(path, events, name)),
        }
    }
}

/// Returns the trace's path with `.html` for its extensions; for several traces, `report.html`.
fn default_output(traces: &[TraceFile]) -> PathBuf {
    const EXTENSIONS: [&str; 6] = [".gz", ".json", ".trace", ".pt", ".pftrace", ".perfetto-trace"];

    match traces {
        [only] if !is_standard_stream(only) => {
            let name = data::file_name(only);
            let mut stem = name.as_str();
            while let Some(shorter) = EXTENSIONS.into_iter().find_map(|end| stem.strip_suffix(end)) {
                stem = shorter;
            }
            only.with_file_name(format!("{}.html", if stem.is_empty() { "report" } else { stem }))
        }
        _ => PathBuf::from("report.html"),
    }
}

/// Fails if the output is a trace, or any other existing file that is not a page of this command.
fn check_output(output: &Path, traces: &[TraceFile]) -> io::Result<()> {
    /// The page's mark is in its first bytes.
    const START_BYTES: u64 = 1024;

    let other = |why: &str| Error::new(ErrorKind::AlreadyExists, format!("{why}; name another file with --output"));
    let mut start = Vec::new();
    match File::open(output) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.metadata()?.is_file() => return Err(other("it is not a file")),
        Ok(file) => file.take(START_BYTES).read_to_end(&mut start)?,
    };
    let real_path = |path: &Path| fs::canonicalize(path).ok();
    if traces.iter().any(|trace| real_path(trace).is_some() && real_path(trace) == real_path(output)) {
        return Err(other("it is the trace"));
    }
    if start.is_empty() || page::is_page(&start) {
        return Ok(());
    }
    Err(other("the file exists and is not a page of kineto report"))
}

/// Writes a file that appears under its name only when it is complete.
fn write_file(output: &Path, page: &str) -> io::Result<()> {
    // A link stays a link: its target is replaced.
    let target = fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
    // The name of the output may already be as long as the file system allows.
    let partial = temporary_name(&target.with_file_name("report"))?;
    let mut file = File::create_new(&partial)?;
    let written = file.write_all(page.as_bytes()).and_then(|()| fs::rename(&partial, &target));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

fn format_size(bytes: usize) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        _ => format!("{}.{:02} MB", bytes / 1_000_000, bytes % 1_000_000 / 10_000),
    }
}

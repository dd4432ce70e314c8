//! `kineto repair`: completes a trace that is cut off, rewrites what is not JSON, or makes one of a segment.

use crate::trace_file::{check_has_name, is_standard_stream, warn_of_left_out};
use crate::{RunResult, print_error, print_text};
use kineto_base::text::{count_with_noun, escaped_path};
use kineto_model::write::file::{FileFormat, is_unfinished_name, stem_and_end};
use kineto_trace::analysis::{self, Events};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_kineto::{Error, Segment, Trace};

/// Completes a trace that is cut off, so that every viewer opens it: copies all whole events and closes the file. Rewrites what
/// strict readers reject and others read, such as unescaped backslashes and control characters.
///
/// Of a segment (`.kseg`), writes the trace that it holds, without the parts that are damaged or missing. Of a folder of
/// segments, which a process with KINETO_OVERFLOW=spill has left, writes the trace of each, with its number. Of a live file
/// (`.klive`), which a killed process with KINETO_SHM_DIR has left, writes everything up to the last record; it is also the
/// last part of its folder of segments, if there is one.
///
/// The header of the copy has the key `tracing_kineto_incomplete` if something is missing. The files themselves are not changed.
///
/// Exit status: 0 if there is a whole file now of each, 1 if not, 2 if the arguments are wrong.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  kineto repair killed.pt.trace.json.gz -o whole.pt.trace.json.gz\n  \
                        kineto repair seg-000001.kseg\n  \
                        kineto repair /dev/shm/kineto-app-4242-5d41402a-0.klive -o app.pt.trace.json.gz\n  \
                        kineto repair app_4242_20261126T074938.123Z.segments -o app.pt.trace.json.gz")]
pub(crate) struct RepairArguments {
    /// The trace file, the segment, the live file, or the folder of segments.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The copy; default: `repaired-` and the file's name, in the same folder, with `.pt.trace.json.gz` for segments and live files.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Repairs the trace.
pub(crate) fn run(arguments: &RepairArguments) -> RunResult {
    let (trace, output) =
        (&arguments.trace, arguments.output.clone().unwrap_or_else(|| default_output(&arguments.trace)));
    if let Some(output) = &arguments.output {
        check_has_name(output)?;
        FileFormat::check_extension(output)?;
    }
    if is_standard_stream(trace) {
        return Err("cannot read -: a repair reads a trace twice; save it to a file first".into());
    }
    if trace.is_dir() {
        return repair_folder(trace, &output);
    }
    if let Some(error) = find_other_format(trace) {
        return Err(error.into());
    }
    let result = match is_segment(trace) {
        true => repair_segment(Trace::read_segment(trace), &output),
        false => repair_trace(trace, &output),
    }?;
    print_text(&format!("{result}\n"));
    Ok(ExitCode::SUCCESS)
}

/// Writes the traces of all segments in a folder; one that cannot be read does not keep the others from it.
fn repair_folder(folder: &Path, output: &Path) -> RunResult {
    let segments = Segment::files_in(folder)?;
    let (stem, end) = stem_and_end(output.file_name().unwrap_or_default());
    let (mut status, count, mut part) = (ExitCode::SUCCESS, segments.len(), 0);
    for (nth, segment) in (1..).zip(&segments) {
        // The names that the process would have given them. The live file is the last; earlier parts may be gone.
        part = part_number(segment).unwrap_or(part + 1);
        let mut name = stem.to_owned();
        name.push(format!(".part{part:04}{end}"));
        match repair_segment(Trace::read_segment_in(folder, segment), &output.with_file_name(name)) {
            Ok(result) => print_text(&format!("{nth} of {count}: {result}\n")),
            Err(error) => status = print_error(&error),
        }
    }
    Ok(status)
}

/// Copies the whole events of a trace that is cut off or not JSON; returns what it did.
fn repair_trace(trace: &Path, output: &Path) -> Result<String, Error> {
    let repair = analysis::repair(trace, output)?;
    // A truncated file may also be invalid before the cut, so read the result.
    let whole = if repair.is_some() { output } else { trace };
    let events = Events::read(whole)?;
    warn_of_left_out(whole, &events);
    let events = count_with_noun(events.len() as u64, "event");
    Ok(match repair {
        None => match complete_name(trace) {
            Some(name) => format!("{}: whole, {events}; rename it to {name}", escaped_path(trace)),
            None => format!("{}: whole, {events}", escaped_path(trace)),
        },
        Some(repair) => {
            let dropped = (repair.dropped_bytes > 0)
                .then(|| format!("; dropped {} at the end", count_with_noun(repair.dropped_bytes, "byte")));
            let rewritten = (repair.rewritten > 0).then(|| {
                format!(
                    "; rewrote {} that {} not JSON",
                    count_with_noun(repair.rewritten, "place"),
                    if repair.rewritten == 1 { "was" } else { "were" }
                )
            });
            format!(
                "{}: {events}{}{}",
                escaped_path(output),
                dropped.unwrap_or_default(),
                rewritten.unwrap_or_default()
            )
        }
    })
}

/// Writes the trace of a segment that was read; returns what it did.
fn repair_segment(segment: Result<Segment, Error>, output: &Path) -> Result<String, Error> {
    let segment = segment?;
    segment.trace.save(output)?;
    let events = count_with_noun(Events::read(output)?.len() as u64, "event");
    Ok(format!("{}: {events}; the segment is {segment}", escaped_path(output)))
}

/// Returns an error for a file that begins as none of the formats does.
fn find_other_format(trace: &Path) -> Option<String> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

    if !fs::metadata(trace).ok()?.is_file() {
        let name = escaped_path(trace);
        return Some(format!("{name} is a pipe or device, and a repair reads a trace twice; save it to a file first"));
    }
    let mut start = Vec::new();
    File::open(trace).ok()?.take(4096).read_to_end(&mut start).ok()?;
    let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&start).trim_ascii_start();
    // A line feed begins each packet of Perfetto's format.
    let is_trace =
        start.starts_with(GZIP) || start.starts_with(b"\n") || matches!(text.first(), None | Some(b'{' | b'['));
    (!is_trace && !is_segment(trace)).then(|| {
        format!(
            "{} is no trace: it is neither JSON, gzip nor Perfetto's format; name a file that a profiler wrote",
            trace.display()
        )
    })
}

/// Returns the number in the name of a segment.
fn part_number(segment: &Path) -> Option<u64> {
    let name = segment.file_name()?.to_str()?;
    name.strip_prefix("seg-")?.split('.').next()?.parse().ok()
}

/// Returns the name that a file would have got when it was complete; `None` if that is not a temporary file.
fn complete_name(trace: &Path) -> Option<&str> {
    let name = trace.file_name()?.to_str().filter(|name| is_unfinished_name(name))?;
    Some(name.strip_suffix(".tmp")?.rsplit_once('.')?.0)
}

fn is_segment(trace: &Path) -> bool {
    trace.extension().is_some_and(|extension| extension == "kseg" || extension == "klive")
}

fn default_output(trace: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from("repaired-");
    if is_segment(trace) || trace.is_dir() {
        name.push(trace.file_stem().unwrap_or_default());
        name.push(".pt.trace.json.gz");
    } else {
        name.push(complete_name(trace).map_or(trace.file_name().unwrap_or_default(), OsStr::new));
    }
    trace.with_file_name(name)
}

//! Dumps: what was recorded so far, in files of their own, while the recording continues.

use super::Session;
use super::requests::REQUEST_IS_RECORDING;
use crate::error::{Error, ErrorKind};
use crate::os::fork;
use crate::time::UtcTime;
use crate::trace::TraceMetadata;
use crate::write::file::stem_and_end;
use crate::write::sink::OneWriter;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that a thread writes while the recording continues, from [`Profiler::dump`](crate::Profiler::dump).
///
/// The file is written even if this is dropped, and the end of the process waits for it. A message reports the file.
#[derive(Debug)]
pub struct Dump {
    path: PathBuf,
    outcome: DumpOutcome,
    /// The fork generation of the process that writes it.
    process: u64,
}

#[derive(Debug)]
enum DumpOutcome {
    Pending(Receiver<Result<(), Error>>),
    Known(Result<(), Error>),
}

impl Dump {
    /// Returns the path of the file, which appears when it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether writing has ended.
    pub fn is_finished(&mut self) -> bool {
        if let DumpOutcome::Pending(outcome) = &self.outcome
            && self.process == fork::generation()
        {
            match outcome.try_recv() {
                Ok(outcome) => self.outcome = DumpOutcome::Known(outcome),
                Err(TryRecvError::Disconnected) => self.outcome = DumpOutcome::Known(Err(panicked(&self.path))),
                Err(TryRecvError::Empty) => return false,
            }
        }
        true
    }

    /// Waits until the file is complete; returns its path.
    ///
    /// # Errors
    /// Those of [`Trace::save`](crate::Trace::save); [`Forked`](ErrorKind::Forked) in a forked child, where nothing writes.
    pub fn wait(self) -> Result<PathBuf, Error> {
        if self.process != fork::generation() {
            let text = format!("{} is written by the parent process; wait there", self.path.display());
            return Err(Error::new(ErrorKind::Forked, text));
        }
        let outcome = match self.outcome {
            DumpOutcome::Pending(outcome) => outcome.recv().unwrap_or_else(|_| Err(panicked(&self.path))),
            DumpOutcome::Known(outcome) => outcome,
        };
        outcome.map(|()| self.path)
    }
}

fn panicked(path: &Path) -> Error {
    let text = format!("{} was not written: its thread panicked; please report this", path.display());
    Error::new(ErrorKind::Handler, text)
}

impl Session {
    /// Begins to write what was recorded so far to a file of its own.
    pub(crate) fn dump(self: &Arc<Self>, reason: &str) -> Result<Dump, Error> {
        self.dump_labeled(reason, reason, |_| ())
    }

    /// Does so with `label` in the file's name, and with what `describe` adds to the header.
    pub(super) fn dump_labeled(
        self: &Arc<Self>,
        label: &str,
        reason: &str,
        describe: impl FnOnce(&TraceMetadata),
    ) -> Result<Dump, Error> {
        let Some(output) = self.output_path() else {
            let advice =
                "cannot dump: the layer has no output; set `output` on the builder, or use `snapshot` and `save`";
            return Err(Error::new(ErrorKind::Config, advice));
        };
        if is_one_stream(&output) {
            let text =
                format!("cannot dump: the output {} takes one trace; use a file, or `snapshot`", output.display());
            return Err(Error::new(ErrorKind::Config, text));
        }
        if self.requests.active_request().is_some() {
            return Err(Error::new(ErrorKind::NotActive, REQUEST_IS_RECORDING));
        }
        let mut trace = self.recording.snapshot()?;
        let metadata = trace.separate_metadata();
        metadata.add_text("dump_reason", reason);
        describe(metadata);
        let number = self.dumps.fetch_add(1, Ordering::Relaxed) + 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = dump_path(&output, std::process::id(), since, number, label);
        let outcome = DumpOutcome::Pending(self.writes.write_in_background(self.clone(), trace, path.clone()));
        Ok(Dump { path, outcome, process: fork::generation() })
    }
}

/// Returns whether an output is a device or the program's writer, so that there is no folder for other files.
fn is_one_stream(output: &Path) -> bool {
    ["/dev", "/proc"].iter().any(|folder| output.starts_with(folder)) || output == Path::new(OneWriter::URL)
}

/// Returns `<stem>_<pid>_<UTC>_<number>_<reason><extensions>`, next to the output. Those of one process sort by time.
fn dump_path(output: &Path, pid: u32, since: Duration, number: u64, reason: &str) -> PathBuf {
    let (stem, end) = stem_and_end(output.file_name().unwrap_or_default());
    let pid = format!("_{pid}");
    let without_pid = stem.to_str().and_then(|stem| stem.strip_suffix(&*pid));
    let second = format!("{:#}", UtcTime(since.as_secs())).replace(['-', ':', 'Z'], "");
    let (millisecond, reason) = (since.subsec_millis(), name_part(reason));
    let mut name = without_pid.map_or(stem, OsStr::new).to_owned();
    name.push(format!("{pid}_{second}.{millisecond:03}Z_{number:03}_{reason}{end}"));
    match output.to_str().filter(|text| text.contains("://")).and_then(|url| url.rsplit_once('/')) {
        Some((folder, _)) => format!("{folder}/{}", name.display()).into(),
        None => output.with_file_name(name),
    }
}

/// Returns a reason as a part of a file name: at most 32 lower-case letters, digits and dashes.
fn name_part(reason: &str) -> String {
    const LONGEST: usize = 32;
    let is_kept = |letter: char| letter.is_ascii_alphanumeric();
    let words = reason.split(|letter| !is_kept(letter)).filter(|word| !word.is_empty());
    let mut part = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    part.truncate(LONGEST);
    let part = part.trim_end_matches('-');
    if part.is_empty() { "dump".to_owned() } else { part.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_time_number_and_reason() {
        let since = Duration::from_millis(1_700_000_000_005);
        for (output, reason, expected) in [
            ("/tmp/app.pt.trace.json.gz", "slow", "/tmp/app_7_20231114T221320.005Z_001_slow.pt.trace.json.gz"),
            ("/tmp/app_7.json", "GET /a?b", "/tmp/app_7_20231114T221320.005Z_001_get-a-b.json"),
            ("app.pftrace", "", "app_7_20231114T221320.005Z_001_dump.pftrace"),
            ("sink://x.json", "a", "sink://x_7_20231114T221320.005Z_001_a.json"),
            ("a.JSON.GZ", "a", "a_7_20231114T221320.005Z_001_a.JSON.GZ"),
            ("a.log.gz", "a", "a.log_7_20231114T221320.005Z_001_a.gz"),
            ("/tmp/x", "../../é", "/tmp/x_7_20231114T221320.005Z_001_dump"),
        ] {
            assert_eq!(dump_path(Path::new(output), 7, since, 1, reason), Path::new(expected), "{output}");
        }
        assert_eq!(name_part(&"ab ".repeat(20)), "ab-".repeat(11).trim_end_matches('-')[..32]);
    }

    #[test]
    #[cfg(unix)]
    fn name_keeps_bytes_that_are_not_utf8() {
        use std::os::unix::ffi::OsStrExt;

        let output = Path::new(OsStr::from_bytes(b"/tmp/\xff.json.gz"));
        let path = dump_path(output, 7, Duration::from_secs(1_700_000_000), 2, "slow");
        assert_eq!(path.as_os_str().as_bytes(), b"/tmp/\xff_7_20231114T221320.000Z_002_slow.json.gz");
    }
}

//! Dumps: what was recorded so far, in files of their own, while the recording continues.

use super::Session;
use super::observer::SessionEvent;
use super::retention::remove_old_dumps;
use super::writes::{ActiveWrite, BackgroundSave};
use crate::config::{Output, PlaceholderValues};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::text::count_with_noun;
use crate::text::joined;
use crate::time::UtcTime;
use crate::trace::Trace;
use crate::wait::wall;
use crate::write::file::stem_and_end;
use crate::write::sink::Writers;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

impl Session {
    /// Begins to write what was recorded so far to a file of its own.
    pub(crate) fn dump(self: &Arc<Self>, reason: &str) -> Result<BackgroundSave, Error> {
        let output = self.dump_output()?;
        let mark = self.recording.mark()?;
        let path = dump_path_now(&output, self.next_dump_number(), reason);
        let (session, taken) = (self.clone(), mark.clone());
        let (observers, reason) = (self.recording.observers.clone(), reason.to_owned());
        let in_header = reason.clone();
        let save = move |write: &ActiveWrite, path: &Path| {
            let mut trace = session.recording.take_snapshot(&taken)?;
            session.save_dump(write, &mut trace, path, &in_header)?;
            Ok(trace)
        };
        let report_end = move |saved: Result<&Path, Error>| {
            observers.notify(SessionEvent::DumpEnded { reason, dump: saved.map(Path::to_owned) });
        };
        let begun = BackgroundSave::start(self.writes.register_background(), path, save, report_end);
        begun.inspect_err(|_| self.recording.machine.remove_mark(&mark))
    }

    /// Counts a dump that begins; returns its number.
    pub(super) fn next_dump_number(&self) -> u64 {
        self.dumps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Writes a dump, whose header has the reason, and removes old dumps.
    pub(super) fn save_dump(
        &self,
        write: &ActiveWrite,
        trace: &mut Trace,
        path: &Path,
        reason: &str,
    ) -> Result<(), Error> {
        trace.separate_metadata().add_text("dump_reason", reason);
        write.save(trace, trace.destination(), path)?;
        let config = self.settings.first_config();
        // Other programs share the folder of the default output.
        remove_old_dumps(path, &config.dumps.kept, config.output == Output::Default);
        Ok(())
    }

    /// Returns whether the end of the program writes the trace of a recording; if not, reports that.
    pub(crate) fn writes_at_end(&self) -> bool {
        let Some(why) = self.why_unwritten_at_end() else { return true };
        let dumps = count_with_noun(self.dumps.load(Ordering::Relaxed), "dump");
        diag!(Stage, "trace", "wrote no file at the end, after {dumps}: {why}");
        false
    }

    /// Returns why the end of the program writes no trace, and what to do; `None` if it writes one. A configuration file that is
    /// read again may name an output.
    pub(super) fn why_unwritten_at_end(&self) -> Option<&'static str> {
        self.settings.first_config().why_unwritten_at_end()?;
        self.settings.next_config().why_unwritten_at_end()
    }

    /// Returns the output that the program misses if it drops a trace of its own unused.
    pub(crate) fn output_at_end(&self) -> Option<PathBuf> {
        let is_written = self.why_unwritten_at_end().is_none();
        is_written.then(|| self.output_path()).flatten()
    }

    /// Returns the output from which the names of dumps are made: without the number of a file, and without its time.
    pub(super) fn dump_output(&self) -> Result<PathBuf, Error> {
        let output = self.output_now("dump")?;
        if is_one_stream(&output) {
            let text = format!(
                "cannot dump: the output takes one trace ({}); use a file, or `snapshot`",
                Writers::output_name(&output)
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        let parts = PlaceholderValues { time: None, ..self.settings.next_config().placeholder_values() };
        Ok(self.expanded_output(&parts).map_or(output, |(path, _)| path))
    }
}

/// Returns the file of a dump that is written now, next to the output; its name has the number and the label.
pub(super) fn dump_path_now(output: &Path, number: u64, label: &str) -> PathBuf {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    dump_path(output, std::process::id(), since, number, label)
}

/// Returns whether dumps can be written next to the output of a layer.
pub(crate) fn can_dump(output: &Output, has_handler: bool) -> bool {
    match output {
        Output::Nowhere => false,
        Output::Default => !has_handler,
        Output::PerProcess(path) | Output::Exact(path) => !is_one_stream(path),
    }
}

/// Returns whether an output is a device or the program's writer, so that there is no folder for other files.
fn is_one_stream(output: &Path) -> bool {
    ["/dev", "/proc"].iter().any(|folder| output.starts_with(folder)) || Writers::is_url(output)
}

/// Returns `<stem>_<pid>_<UTC>_<number>_<reason><extensions>`, next to the output. Those of one process sort by time.
fn dump_path(output: &Path, pid: u32, since: Duration, number: u64, reason: &str) -> PathBuf {
    let (stem, end) = stem_and_end(output.file_name().unwrap_or_default());
    let mut name = with_process_and_time(stem, pid, since);
    name.push(format!("_{number:03}_{}{end}", name_part(reason)));
    match output.to_str().filter(|text| text.contains("://")).and_then(|url| url.rsplit_once('/')) {
        Some((folder, _)) => format!("{folder}/{}", name.display()).into(),
        None => output.with_file_name(name),
    }
}

/// Adds a process, unless the name ends with it, and a time: `app_4242_20261126T074938.123Z`.
pub(super) fn with_process_and_time(name: &OsStr, pid: u32, since: Duration) -> OsString {
    let pid = format!("_{pid}");
    let without_pid = name.to_str().and_then(|name| name.strip_suffix(&*pid));
    let mut name = without_pid.map_or(name, OsStr::new).to_owned();
    name.push(format!("{pid}_{}", time_part(since)));
    name
}

/// Returns the time since the Unix epoch as in a name: `20261126T074938.123Z`. Later times are later in the order of texts.
pub(super) fn time_part(since: Duration) -> String {
    let second = format!("{:#}", UtcTime(since.as_secs())).replace(['-', ':', 'Z'], "");
    format!("{second}.{:03}Z", since.subsec_millis())
}

/// Returns a reason as a part of a file name: at most 32 lower-case letters, digits and dashes.
fn name_part(reason: &str) -> String {
    const LONGEST: usize = 32;
    let is_kept = |letter: char| letter.is_ascii_alphanumeric();
    let words = reason.split(|letter| !is_kept(letter)).filter(|word| !word.is_empty());
    let mut part = joined(&words.collect::<Vec<_>>(), "-").to_ascii_lowercase();
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

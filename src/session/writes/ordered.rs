//! An output that no earlier trace replaces a later one in.

use super::Writes;
use crate::error::Error;
use crate::os::fork;
use crate::trace::Trace;
use crate::write::file::{Contents, Destination};
use crate::write::sink::Sinks;
use kineto_base::sorted::SortedMap;
use std::io;
use std::path::{Path, PathBuf};

/// The output of a session for one of its traces, which replaces no newer one: the last that was taken remains, also if an
/// earlier one takes longer to write.
pub(super) struct OrderedOutput<'o> {
    inner: &'o dyn Destination,
    newest: &'o fork::Own<SortedMap<PathBuf, u64>>,
    taken_as: u64,
}

impl Writes {
    /// Returns the output for a trace.
    pub(super) fn output_of<'o>(&'o self, trace: &'o Trace) -> OrderedOutput<'o> {
        let taken_as = trace.contents().info.taken_as;
        OrderedOutput { inner: trace.destination(), newest: &self.newest, taken_as }
    }
}

impl Destination for OrderedOutput<'_> {
    fn write_file(&self, path: &Path, gzip_level: u32, contents: &mut Contents<'_>) -> Result<PathBuf, Error> {
        /// No more files than that are being written at one time.
        const FILES_MAX: usize = 64;
        if !Sinks::is_file(path) {
            return self.inner.write_file(path, gzip_level, contents);
        }
        let (mut newest, mut is_outdated) = (None, false);
        let written = self.inner.write_file(path, gzip_level, &mut |name, out| {
            contents(name, out)?;
            // From here on until the file has its name.
            let known = self.newest.lock();
            is_outdated = known.get(path).is_some_and(|newest| *newest > self.taken_as);
            newest = Some(known);
            if is_outdated { Err(io::Error::other("a newer trace has been written")) } else { Ok(()) }
        });
        match (written, newest) {
            (Err(_), _) if is_outdated => Ok(path.to_owned()),
            (Ok(name), Some(mut known)) => {
                known.insert(path.to_owned(), self.taken_as);
                if known.len() > FILES_MAX {
                    let oldest = known.iter().min_by_key(|(_, taken_as)| **taken_as).map(|(path, _)| path.clone());
                    oldest.and_then(|oldest| known.remove(&oldest));
                }
                Ok(name)
            }
            (written, _) => written,
        }
    }
}

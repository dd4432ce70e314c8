//! Writes a trace as an execution trace: the host's operations as a graph.

use super::Trace;
use crate::error::Error;
use crate::write::execution::{ExecutionWriter, ForwardParents, ForwardQueries};
use crate::write::file::{Destination, stem_and_end};
use kineto_base::fallible;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

impl Trace {
    /// Writes the trace's operations as an execution trace (Chakra) to a file: `.json`, or `.json.gz` (compressed).
    ///
    /// Like PyTorch's `ExecutionTraceObserver`, in its schema 1.1.1-chakra.0.0.4: a node for each operation and annotation of
    /// the host, below the one around it on its thread.
    ///
    /// - Inputs come from the arguments `Concrete Inputs` (or the field `input_values`, a list in JSON whose tensors are
    ///   `[tensor, storage, offset, elements, bytes of one, "device"]`), `Input Dims`, `Input type` and `Input Strides`.
    /// - Outputs come from the fields `output_values`, `output_dims`, `output_types` and `output_strides`.
    /// - `op_schema`, `kernel_backend`, `kernel_file` and `tensor_range` come from fields of these names.
    /// - Lists are cut at 4096 elements, texts at 8192 bytes. Times are milliseconds since the Unix epoch, the date is in
    ///   UTC.
    ///
    /// A node's `rf_id` is the "External id" of its slice in the file that [`save`](Trace::save) writes, and its "Record
    /// function id" if the builder enabled [execution traces](crate::torch::TorchOptions::execution_trace). A backward
    /// operation belongs (`fw_parent`) to the operation that the thread of `fwd_thread` was in when it began. If process
    /// groups are known (the builder's [`distributed`](crate::KinetoLayerBuilder::distributed),
    /// [`Collective`](crate::Collective)s), the first thread's first node is torch's `## process_group:init ##`.
    ///
    /// # Errors
    /// Those of [`save`](Trace::save), except that it may be called again in strict mode.
    pub fn save_execution_trace(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.save_execution_trace_to(self.destination(), path.as_ref()).map(drop)
    }

    fn save_execution_trace_to(&self, to: &dyn Destination, path: &Path) -> Result<PathBuf, Error> {
        to.write_file(path, self.inner.info.config.gzip_level, &mut |_, out| self.write_execution_trace(out))
    }

    /// Writes the trace's operations as an execution trace; see [`save_execution_trace`](Trace::save_execution_trace).
    ///
    /// # Errors
    /// Those of `out`, and [`OutOfMemory`](io::ErrorKind::OutOfMemory), after which it can be written again.
    pub fn write_execution_trace(&self, mut out: impl Write) -> io::Result<()> {
        fallible::attempt(|| self.write_operations(&mut out))?
    }

    fn write_operations(&self, out: &mut dyn Write) -> io::Result<()> {
        let (start, end) = self.window();
        let groups = self.distributed_info().and_then(|info| info.groups_json());
        let (process, forward) = (self.inner.info.process, self.forward_parents(groups.is_some()));
        let mut writer = ExecutionWriter::new(out, (process, start), forward, groups)?;
        self.deliver_rows(&mut writer)?;
        writer.finish(end)
    }

    /// Saves it next to the trace in `saved`, if the builder enabled that.
    pub(super) fn save_next_execution_trace(&self, to: &dyn Destination, saved: &Path) -> Result<(), Error> {
        // The limit that closed the trace early leaves no time or space for another file.
        if self.inner.info.config.execution_trace && self.progress().file_cut().is_none() {
            self.save_execution_trace_to(to, &execution_trace_path(saved))?;
        }
        Ok(())
    }

    /// Returns the forward operations of backward ones.
    fn forward_parents(&self, with_groups: bool) -> ForwardParents {
        let mut questions = ForwardQueries::default();
        self.for_each(|activity| questions.add_activity(activity));
        if questions.is_empty() {
            return ForwardParents::default();
        }
        let mut answers = questions.into_second_pass(with_groups);
        self.for_each(|activity| answers.add_activity(activity));
        answers.finish()
    }
}

/// Returns the path of the execution trace for the trace in `path`: `app.et.json.gz` for `app.pt.trace.json.gz`.
fn execution_trace_path(path: &Path) -> PathBuf {
    let (stem, end) = stem_and_end(path.file_name().unwrap_or_default());
    let mut name = stem.to_owned();
    name.push(if end.to_ascii_lowercase().ends_with(".gz") { ".et.json.gz" } else { ".et.json" });
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execution_trace_is_next_to_the_trace() {
        for (path, expected) in [
            ("/tmp/app.pt.trace.json.gz", "/tmp/app.et.json.gz"),
            ("app.json", "app.et.json"),
            ("app.JSON.GZ", "app.et.json.gz"),
            ("app", "app.et.json"),
            ("s3://bucket/app.2.json", "s3://bucket/app.2.et.json"),
        ] {
            assert_eq!(execution_trace_path(Path::new(path)), Path::new(expected));
        }
    }
}

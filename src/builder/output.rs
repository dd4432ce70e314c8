//! Settings of the builder about the files and sinks that traces go to.

use super::KinetoLayerBuilder;
use crate::config::{Key, Output, Value};
use crate::distributed::DistributedInfo;
use crate::handler::TraceHandler;
use crate::trace::{EventEdit, PostProcess};
use crate::write::TraceSink;
use crate::write::sink::Writers;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// # Output: where traces go, and what their headers have
impl KinetoLayerBuilder {
    /// Sets the path of the trace that is written when the guard is dropped: Kineto's JSON, or Perfetto's own format for
    /// `.pftrace`; each also with `.gz`. The path is used as given; `build` resolves a relative one. It fails if the file
    /// cannot be created, if its extension is unknown, or if another layer of this process with a live guard has that
    /// output.
    ///
    /// In the path, `{host}`, `{pid}`, `{rank}` (0 if the process has none) and `{time}` (`20261123T143000Z`, when the file
    /// is written) are replaced by those of the process.
    ///
    /// Default: `KINETO_ACTIVITIES_LOG_FILE` with the process id inserted, else `/tmp/libkineto_activities_<pid>.json`, as in
    /// libkineto; a second layer's file has a number in its name.
    pub fn output(self, path: impl Into<PathBuf>) -> Self {
        self.with(Key::LogFile, Value::Output(Output::Exact(path.into())))
    }

    /// Writes no file when the guard is dropped; [`Profiler::stop`](crate::Profiler::stop) returns the traces.
    pub fn no_output(self) -> Self {
        self.with(Key::LogFile, Value::Output(Output::Nowhere))
    }

    /// Writes the trace to `writer` as JSON, in place of a file.
    ///
    /// It takes one trace, when the guard is dropped or the process exits; then it is dropped. A further trace is a reported
    /// error, and [`flush`](crate::KinetoGuard::flush) is one at any time. For several traces, use [`sink`](Self::sink) or
    /// [`on_trace_ready`](Self::on_trace_ready).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let socket = std::net::TcpStream::connect("collector:4000")?;
    /// let (layer, _guard) = tracing_kineto::KinetoLayer::builder().writer(socket).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn writer(self, writer: impl Write + Send + 'static) -> Self {
        let writers = Writers::default();
        let output = writers.add(Box::new(writer));
        self.sink(Writers::SCHEME, writers).output(output)
    }

    /// Registers a handler for `save("scheme://…")`, like kineto's logger factories.
    pub fn sink(mut self, scheme: impl Into<String>, sink: impl TraceSink + 'static) -> Self {
        self.sinks.push((scheme.into(), Arc::new(sink)));
        self
    }

    /// Passes each finished trace to a handler instead of saving it to the output: a closure `FnMut(Trace)`, or
    /// [`tensorboard_trace_handler`](crate::tensorboard_trace_handler).
    ///
    /// It runs on the thread that steps, stops or drops the guard, which wait for it as long as it takes. Without a schedule,
    /// it receives the trace of each stop. When the process exits without dropping the guard, it receives the records so far,
    /// on the exiting thread.
    pub fn on_trace_ready(mut self, handler: impl TraceHandler + 'static) -> Self {
        self.handler = Some(Box::new(handler));
        self
    }

    /// Changes the events of all traces. `edit` is called with each slice, instant and set of counter values whenever a trace
    /// is saved or read; it may rename the event, change its arguments, or leave it out.
    ///
    /// Like torch's `enableProfilerWithEventPostProcess`. It must make the same change each time. Statistics count the
    /// recorded events; async tracks are not changed. An event for which `edit` panics stays unchanged.
    pub fn post_process(mut self, edit: impl Fn(&mut EventEdit<'_>) + Send + Sync + 'static) -> Self {
        self.options.post_process = Some(PostProcess(Arc::new(edit)));
        self
    }

    /// Sets the compression level of `.gz` files, 0 to 9. Default: 1, which stores without compression in builds with debug assertions,
    /// where zlib is rarely optimized.
    pub fn gzip_level(self, level: u32) -> Self {
        self.with(Key::GzipLevel, Value::Int(level.into()))
    }

    /// Sets the size at which a file is closed. Default: none.
    ///
    /// It applies to files that the layer writes by itself: at the end of a recording, dumps, and traces of requests. Such a
    /// file ends after the rows that fit, and readers open it; its header has `tracing_kineto_incomplete`, with the number of
    /// rows, and a message reports that. It may exceed the limit by what is being compressed then, usually less than a MiB.
    /// [`Trace::save`](crate::Trace::save) writes the whole trace.
    pub fn file_limit_bytes(self, bytes: u64) -> Self {
        self.with(Key::FileLimit, Value::Bytes(bytes))
    }

    /// Sets whether the trace is written when the recording ends with the program: when the [`KinetoGuard`](crate::KinetoGuard)
    /// is dropped, the process exits, or a signal ends it. Default: true, unless [triggers](crate::Dumps::on) are set and no file
    /// is named; then only dumps are written.
    ///
    /// A message reports that nothing was written. Dumps that were triggered before are written in any case, and so is what the
    /// program itself saves, flushes, or records with [`Profiler::record`](crate::Profiler::record).
    pub fn write_at_end(self, on: bool) -> Self {
        self.with(Key::WriteAtEnd, Value::Bool(on))
    }

    /// Sets how long dropping the guard, or the end of a cycle, waits for the file without progress. Default: 5 s.
    ///
    /// At the end of the process, by `exit` or a signal, it limits the total time for all files. A file that would take
    /// longer is closed early, with the rows written so far and the header key `tracing_kineto_incomplete`. The wait for
    /// files lasts at least a second, however short the limit is.
    ///
    /// With devices, a stop first waits for launched work to end, at most as long.
    pub fn flush_timeout(self, timeout: Duration) -> Self {
        self.with(Key::FlushTimeout, Value::Time(timeout))
    }

    /// Writes the trace before SIGINT, SIGTERM or SIGHUP ends the process. Default: true.
    ///
    /// Applies only where the signal would end the process: an ignored signal stays ignored, and a handler of the program,
    /// installed before or after `build`, keeps control. A second signal ends the process at once. Unix only.
    pub fn flush_on_signals(self, on: bool) -> Self {
        self.with(Key::FlushOnSignals, Value::Bool(on))
    }

    /// Adds a text to the trace's header.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds a JSON value to the trace's header; `build` fails if it is invalid JSON.
    pub fn metadata_json(mut self, key: impl Into<String>, json: impl Into<String>) -> Self {
        self.metadata_json.push((key.into(), json.into()));
        self
    }

    /// Sets the rank of this process and the size of its job. Default: from `RANK`/`WORLD_SIZE`, Slurm's or Open MPI's
    /// variables.
    pub fn distributed(mut self, info: DistributedInfo) -> Self {
        self.overrides.distributed = Some(info);
        self
    }
}

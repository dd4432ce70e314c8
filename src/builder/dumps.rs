//! Settings of the builder about dumps of the newest records, and what files need.

use super::{KinetoLayerBuilder, spill};
use crate::config::{self, Config, DumpTrigger, Key, SourceSettings, Value};
use crate::error::{Error, ErrorKind};
use crate::session;
use std::time::Duration;

/// Selects when the newest records are dumped, and which dumps are kept; for [`KinetoLayerBuilder::dumps`].
///
/// ```
/// use std::time::Duration;
/// use tracing_kineto::{DumpTrigger, Dumps, KinetoLayer};
///
/// let slow = DumpTrigger::slow_span("request", Duration::from_millis(250));
/// let dumps = Dumps::on([slow, DumpTrigger::Panic]).after(Duration::from_millis(500)).keep(10, 256 << 20);
/// let builder = KinetoLayer::builder().output("app.pt.trace.json.gz").dumps(dumps);
/// ```
#[must_use = "pass it to `KinetoLayerBuilder::dumps`"]
#[derive(Clone, Debug, Default)]
pub struct Dumps(SourceSettings);

impl Dumps {
    /// Creates settings that leave all to the environment, the configuration file and the defaults.
    pub fn new() -> Dumps {
        Dumps::default()
    }

    /// Writes the newest records to a file of their own whenever one of these things happens, while the recording continues.
    /// Default: never.
    ///
    /// The dump is made [a second later](Self::after), so that the file shows what follows. A trigger before that joins
    /// the dump; those of the following [minute](Self::interval) write nothing. Both are counted: the next
    /// dump's header has `dump_triggers_joined` and `dump_triggers_skipped`. Files are named and written as by
    /// [`Profiler::dump`](crate::Profiler::dump), and the oldest are [removed](Self::keep). A
    /// [`SessionObserver`](crate::SessionObserver::dump_ended) receives the path of each.
    ///
    /// Without an [`output`](crate::KinetoLayerBuilder::output), the end of the program [writes](crate::KinetoLayerBuilder::write_at_end) no further file.
    ///
    /// Unless set, [`overflow`](crate::KinetoLayerBuilder::overflow) is [`KeepNewest`](crate::Overflow::KeepNewest) then, and the
    /// [limit](crate::KinetoLayerBuilder::buffer_limit_bytes) 64 MiB: about two million slices, which are written in some seconds. `build` fails
    /// if there is no file next to which dumps could lie.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tracing::info_span;
    /// use tracing_kineto::{DumpTrigger, Dumps, KinetoLayer};
    /// use tracing_subscriber::prelude::*;
    ///
    /// # fn main() -> Result<(), tracing_kineto::Error> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let output = folder.path().join("app.pt.trace.json.gz");
    /// let slow = DumpTrigger::slow_span("request", Duration::from_millis(5));
    /// let dumps = Dumps::on([slow, DumpTrigger::Panic]);
    /// let (layer, guard) = KinetoLayer::builder().output(output).dumps(dumps).build()?;
    /// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    ///     info_span!("request").in_scope(|| std::thread::sleep(Duration::from_millis(10)));
    /// });
    /// drop(guard); // app.pt.trace.json.gz, and app_4242_20261126T074938.123Z_001_slow-span-request.pt.trace.json.gz
    /// # let is_dump = |file: std::fs::DirEntry| {
    /// #     file.file_name().to_str().is_some_and(|name| name.ends_with("_001_slow-span-request.pt.trace.json.gz"))
    /// # };
    /// # // The thread that writes it may be slower than this one.
    /// # while !std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok).any(is_dump) {
    /// #     std::thread::sleep(Duration::from_millis(1));
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn on(triggers: impl IntoIterator<Item = DumpTrigger>) -> Self {
        Dumps(SourceSettings::default().with(Key::DumpOn, Value::DumpTriggers(triggers.into_iter().collect())))
    }

    /// Sets how long a dump waits after its trigger. Default: 1 s.
    pub fn after(self, time: Duration) -> Self {
        Dumps(self.0.with(Key::DumpAfter, Value::Duration(time)))
    }

    /// Sets the least time from one triggered dump to the next. Default: 60 s.
    pub fn interval(self, time: Duration) -> Self {
        Dumps(self.0.with(Key::DumpInterval, Value::Duration(time)))
    }

    /// Sets how many dumps are kept and how many bytes they may take. Default: 20, and 2 GiB.
    ///
    /// After each dump, also those of [`Profiler::dump`](crate::Profiler::dump), the oldest ones of this output are removed,
    /// whichever process of the same user wrote them; of the default output, only those of this process. The newest dump
    /// stays, and so do files of a [sink](crate::KinetoLayerBuilder::sink).
    pub fn keep(self, files: usize, bytes: u64) -> Self {
        Dumps(self.0.with(Key::DumpFiles, Value::of_size(files)).with(Key::DumpBytes, Value::Bytes(bytes)))
    }

    /// Sets the age from which dumps are removed. Default: any age is kept.
    ///
    /// Whenever a dump is written, older ones of this output are removed, as by [`keep`](Self::keep). The age is
    /// that of the file's last change. `build` fails for an age of 0.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let week = Duration::from_secs(7 * 86_400);
    /// let dumps = tracing_kineto::Dumps::new().keep(1000, 4 << 30).keep_for(week);
    /// ```
    pub fn keep_for(self, time: Duration) -> Self {
        Dumps(self.0.with(Key::DumpAge, Value::Duration(time)))
    }
}

/// # Dumps of the newest records
impl KinetoLayerBuilder {
    /// Sets when dumps are written and which are kept. Adds to an earlier call; the last value of a setting counts.
    pub fn dumps(self, dumps: Dumps) -> Self {
        self.with_all(dumps.0)
    }
}

/// Checks that dumps and segments can be written, if they are wanted. If not, that is an error where `is_fatal` returns true for
/// the key, and reported otherwise.
pub(super) fn settle_files(
    config: &mut Config,
    has_handler: bool,
    is_fatal: impl Fn(Key) -> bool,
) -> Result<(), Error> {
    let refuse = |key, why: &str| match is_fatal(key) {
        true => Err(Error::new(ErrorKind::Config, why)),
        false => {
            config::report_warnings(&[why.to_owned()]);
            Ok(())
        }
    };
    let can_dump = session::can_dump(&config.output, has_handler);
    if !config.dumps.triggers.is_empty() && !can_dump {
        let why = "DUMP_ON writes no dumps: the layer has no file next to which they could lie; set `output`, or remove DUMP_ON";
        refuse(Key::DumpOn, why)?;
        config.dumps.triggers.clear();
    }
    spill::settle_parts(config, has_handler, can_dump, refuse)
}

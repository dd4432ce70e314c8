//! Settings of the builder about recordings that do not fit into memory.

use super::KinetoLayerBuilder;
use crate::config::{Key, Overflow, SourceSettings, Split, Value};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of recordings that move to disk ([`Overflow::Spill`]), for [`KinetoLayerBuilder::spill`].
///
/// ```
/// use tracing_kineto::{KinetoLayer, Overflow, Spill, Split};
///
/// let spill = Spill::new().folder("/var/tmp").split(Split::Steps(100));
/// let builder = KinetoLayer::builder().output("app.pt.trace.json.gz").overflow(Overflow::Spill).spill(spill);
/// ```
#[must_use = "pass it to `KinetoLayerBuilder::spill`"]
#[derive(Clone, Debug, Default)]
pub struct Spill {
    settings: SourceSettings,
}

impl Spill {
    /// Creates settings that leave all to the environment, the configuration file and the defaults.
    pub fn new() -> Spill {
        Spill::default()
    }

    /// Sets the folder for the segments of [`Overflow::Spill`]. Default: that of the [`output`](crate::KinetoLayerBuilder::output).
    ///
    /// Each recording makes a folder of its own there, which only this user may read.
    pub fn folder(mut self, path: impl Into<PathBuf>) -> Self {
        let path: PathBuf = path.into();
        self.settings.set(Key::SpillFolder, path.as_path());
        self
    }

    /// Sets when a part of an [`Overflow::Spill`] recording ends, which becomes a file of its own. Default: each minute.
    ///
    /// In any case, a part ends when a quarter of the [limit](crate::KinetoLayerBuilder::buffer_limit_bytes) is filled, inside a step if need be. So
    /// raise the limit for larger parts. The size is checked about once a second, or when chunks fill. A `kill -9` loses the
    /// records since the last part, and one that is being written.
    ///
    /// With [`Split::Steps`], a part ends where [`step`](crate::Profiler::step) ends the step, and the next one begins with the
    /// next `ProfilerStep#`, also if other threads record meanwhile. The call does not wait for the disk. While the disk
    /// takes no parts, the oldest of more than 64 are joined. Kernels are in the part in which they were reported.
    ///
    /// `build` fails for a time, size or number of 0, for a size above a quarter of the limit, and without [`Overflow::Spill`].
    ///
    /// ```
    /// use tracing_kineto::{KinetoLayer, Overflow, Schedule, Spill, Split};
    /// use tracing_subscriber::prelude::*;
    ///
    /// # fn main() -> Result<(), tracing_kineto::Error> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let output = folder.path().join("app.pt.trace.json.gz");
    /// let (layer, guard) = KinetoLayer::builder()
    ///     .output(output)
    ///     .overflow(Overflow::Spill)
    ///     .spill(Spill::new().split(Split::Steps(2)))
    ///     .schedule(Schedule::new(0, 0, 4)?.repeat(1))
    ///     .build()?;
    /// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    ///     let profiler = guard.profiler();
    ///     (0..4).for_each(|_| drop(profiler.step()));
    /// });
    /// drop(guard); // app.part0001.pt.trace.json.gz with steps 0 and 1, app.part0002.pt.trace.json.gz with steps 2 and 3
    /// # assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn split(mut self, parts: Split) -> Self {
        self.settings.set(Key::Split, parts);
        self
    }
}

/// # Memory: how much records take, and what happens at the limit
impl KinetoLayerBuilder {
    /// Sets the most bytes that records may take, those in traces included. Default: 512 MiB.
    pub fn buffer_limit_bytes(mut self, bytes: u64) -> Self {
        self.overrides.set(Key::BufferLimit, Value::Bytes(bytes));
        self
    }

    /// Sets what happens at the buffer limit. Default: [`Overflow::Stop`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overrides.set(Key::Overflow, overflow);
        self
    }

    /// Sets where an [`Overflow::Spill`] recording is kept and how it is split. Adds to an earlier call; the last value of a
    /// setting counts.
    pub fn spill(mut self, spill: Spill) -> Self {
        self.overrides.merge(spill.settings);
        self
    }

    /// Sets how far back the records of [`Overflow::KeepNewest`] reach, if the memory suffices. Default: all that fit.
    ///
    /// Each trace begins at most this long before its end.
    pub fn keep(mut self, time: Duration) -> Self {
        self.overrides.set(Key::Keep, Value::Duration(time));
        self
    }

    /// Records into a file of a folder in shared memory, such as `/dev/shm`, so that a process that is killed leaves its records
    /// (Linux). Default: none.
    ///
    /// However the process ends, the file has every record that a thread has committed and that a collector has packed, and
    /// `kineto repair` or [`Trace::read_segment`](crate::Trace::read_segment) makes a trace of it. The file is removed when the
    /// trace is written or dropped. The next start with the same folder reports the files that killed processes have left.
    ///
    /// The file takes the memory that chunks would take otherwise, up to the [limit](Self::buffer_limit_bytes) and half of it
    /// for what chunks refer to. If the folder has less, or is not in memory, a message gives both figures, and the records are in the
    /// process's own memory.
    pub fn shm_folder(mut self, path: impl Into<PathBuf>) -> Self {
        let path: PathBuf = path.into();
        self.overrides.set(Key::ShmFolder, path.as_path());
        self
    }
}

//! Settings of the builder about records on disk while the recording runs: segments and live files.

use super::KinetoLayerBuilder;
use super::left::{list_files, repair_advice};
use crate::config::{Config, Key, Overflow, SourceSettings, Split, Value};
use crate::diag::diag;
use crate::error::Error;
use crate::segment::folder;
use crate::session;
use crate::write::sink::Sinks;
use std::path::{Path, PathBuf};

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
pub struct Spill(SourceSettings);

impl Spill {
    /// Creates settings that leave all to the environment, the configuration file and the defaults.
    pub fn new() -> Spill {
        Spill::default()
    }

    /// Sets the folder for the segments of [`Overflow::Spill`]. Default: that of the [`output`](crate::KinetoLayerBuilder::output).
    ///
    /// Each recording makes a folder of its own there, which only this user may read.
    pub fn folder(self, path: impl Into<PathBuf>) -> Self {
        Spill(self.0.with(Key::SpillFolder, Value::of_path(&path.into())))
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
    pub fn split(self, parts: Split) -> Self {
        Spill(self.0.with(Key::Split, Value::Split(parts)))
    }
}

/// # Memory on disk: records that are moved to files, and that outlive the process
impl KinetoLayerBuilder {
    /// Sets where an [`Overflow::Spill`] recording is kept and how it is split. Adds to an earlier call; the last value of a
    /// setting counts.
    pub fn spill(self, spill: Spill) -> Self {
        self.with_all(spill.0)
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
    pub fn shm_folder(self, path: impl Into<PathBuf>) -> Self {
        self.with(Key::ShmFolder, Value::of_path(&path.into()))
    }
}

/// Reports what processes that have ended have left where this one makes segments and live files.
pub(super) fn report_left_records(config: &Config, output: Option<&Path>) {
    let report = |found: &[PathBuf]| {
        if let Some((files, first)) = list_files(found) {
            diag!(Warning, "live", "records of processes that have ended: {files}; {}", repair_advice(first));
        }
    };
    let folders = (config.overflow.spills()).then(|| {
        let segments = config.spill_folder.as_deref().or_else(|| output.and_then(Path::parent));
        segments.map(folder::left_segment_folders).unwrap_or_default()
    });
    let folders = folders.unwrap_or_default();
    // `kineto repair` reads the live file of a folder with it.
    let named: Vec<_> = folders.iter().filter_map(|folder| folder::named_live_file(folder)).collect();
    if let Some(shm) = &config.shm_folder {
        let mut left = folder::left_live_files(shm);
        left.retain(|path| !named.contains(path));
        report(&left);
    }
    report(&folders);
}

/// Checks the settings of parts against the output and the limit, and leaves out what cannot be. `refuse` reports a problem
/// of a key, as an error or a warning.
pub(super) fn settle_parts(
    config: &mut Config,
    has_handler: bool,
    can_dump: bool,
    refuse: impl Fn(Key, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    if !config.overflow.spills() {
        if config.split.take().is_some() {
            let why = "SPLIT has no effect: only OVERFLOW=spill makes parts; set it, or remove SPLIT";
            refuse(Key::Split, why)?;
        }
        return Ok(());
    }
    let part_bytes = session::part_bytes_max(config.buffer_limit_bytes);
    if let Some(split @ Split::Bytes(bytes)) = config.split
        && bytes > part_bytes
    {
        let why = format!(
            "SPLIT={split} has no effect: a part ends at a quarter of the limit, {part_bytes} bytes; raise BUFFER_LIMIT_MB, \
             or make SPLIT smaller",
        );
        refuse(Key::Split, &why)?;
    }
    let output = config.output.expanded_path(&config.placeholder_values());
    let has_folder = config.spill_folder.is_some() || output.as_ref().is_some_and(|path| Sinks::is_file(path));
    let why = if has_handler {
        "OVERFLOW=spill moves no records: a trace handler gets whole traces; remove one of them"
    } else if output.is_some() && !can_dump {
        "OVERFLOW=spill moves no records: the output takes one trace, and there is one for each part; set a file as `output`"
    } else if !has_folder {
        "OVERFLOW=spill moves no records: there is no folder for them; set SPILL_DIR, or a file as `output`"
    } else {
        return Ok(());
    };
    refuse(Key::Overflow, why)?;
    config.set_overflow(Overflow::Stop);
    Ok(())
}

#[cfg(test)]
#[cfg(feature = "ondemand")]
mod tests {
    use super::super::dumps::settle_files;
    use crate::config::{Config, Env, Overflow, Overrides};
    use std::fs;

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn reload_restores_no_refused_overflow() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kineto.conf");
        for (file, env) in [("OVERFLOW=spill\n", None), ("", Some(("KINETO_OVERFLOW", "spill")))] {
            fs::write(&path, file).unwrap();
            let mut overrides = Overrides::default();
            overrides.set_config_file(path.clone());
            let mut config = Config::resolve(&overrides, &Env::from_pairs(env), &mut Vec::new()).unwrap();
            assert_eq!(config.overflow, Overflow::Spill);
            settle_files(&mut config, true, |_| false).unwrap();
            assert_eq!(config.overflow, Overflow::Stop);
            fs::write(&path, format!("{file}GZIP_LEVEL=2")).unwrap();
            let read = config.reread_file(&mut Vec::new()).unwrap();
            let reloaded = config.apply_reloaded(&read);
            assert_eq!((reloaded.overflow, reloaded.gzip_level), (Overflow::Stop, 2), "{file}");
        }
    }
}

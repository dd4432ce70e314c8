//! Recordings of a block: `profile!`, which prints a table of times, and `Trace::of`.

use crate::diag::{self, diag};
use crate::error::{Error, ErrorKind};
use crate::guard::KinetoGuard;
use crate::layer::KinetoLayer;
use crate::os::{terminal, thread};
use crate::profiler::{Profiler, profiler};
use crate::session::Status;
use crate::trace::Trace;
use kineto_model::activity::{ActivityGroup, ActivityType};
use kineto_trace::analysis::{Events, KeyAverages, TrackId};
use std::fmt;
use std::sync::OnceLock;
use tracing_core::dispatcher::{self, Dispatch};
use tracing_subscriber::layer::SubscriberExt;

/// The recording of a block; prints its table when it is dropped, unless by a panic.
#[must_use = "it ends when it is dropped"]
pub struct BlockRecording {
    name: String,
    state: Result<(Profiler, BlockExtent), Error>,
}

impl fmt::Debug for BlockRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockRecording").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The part of a recording that belongs to the block.
#[derive(Clone, Copy, Debug)]
enum BlockExtent {
    /// All of it: it was started for the block, which may be apart from a schedule.
    All { is_apart: bool },
    /// The block's annotation: the recording was running before, and continues.
    Annotation,
}

impl BlockRecording {
    /// Starts with the program's newest layer, or installs a layer for this purpose.
    pub fn begin(name: fmt::Arguments<'_>) -> BlockRecording {
        BlockRecording::new(name, profiler().map_or_else(install_layer, Ok))
    }

    /// Starts with that profiler.
    pub fn with_profiler(profiler: &Profiler, name: fmt::Arguments<'_>) -> BlockRecording {
        BlockRecording::new(name, Ok(profiler.clone()))
    }

    fn new(name: fmt::Arguments<'_>, profiler: Result<Profiler, Error>) -> BlockRecording {
        let state = profiler.and_then(|profiler| match profiler.status() {
            Status::Recording => Ok((profiler, BlockExtent::Annotation)),
            Status::Paused => {
                Err(Error::new(ErrorKind::AlreadyActive, "a recording is paused; resume or stop it first"))
            }
            _ => profiler.session()?.start_block().map(|is_apart| (profiler, BlockExtent::All { is_apart })),
        });
        BlockRecording { name: name.to_string(), state }
    }

    /// Returns the times of the block.
    fn block_averages(&self, profiler: &Profiler, extent: BlockExtent) -> Result<KeyAverages, Error> {
        let nothing = |why: &str| Error::new(ErrorKind::NotActive, format!("nothing was recorded: {why}"));
        match extent {
            BlockExtent::All { is_apart } => {
                let trace = if is_apart { profiler.session()?.stop()? } else { profiler.stop()? };
                trace.why_empty().map_or_else(|| Ok(trace.key_averages()), |why| Err(nothing(why)))
            }
            BlockExtent::Annotation => {
                let trace = profiler.snapshot()?;
                let why = trace.why_empty().unwrap_or("the annotation around the block was not");
                self.annotation_averages(&trace.events()).ok_or_else(|| nothing(why))
            }
        }
    }

    /// Returns the contents of the last annotation with the block's name on this thread.
    fn annotation_averages(&self, events: &Events) -> Option<KeyAverages> {
        let here = TrackId::Id(thread::id());
        let mut annotations = events.iter().filter(|event| event.kind() == Some(ActivityType::UserAnnotation));
        let block = annotations.rfind(|event| event.name() == self.name && event.track().thread == here)?;
        Some(events.averages().within(block.start(), block.end()).compute())
    }
}

impl Drop for BlockRecording {
    fn drop(&mut self) {
        let averages = match &self.state {
            Ok((profiler, extent)) => self.block_averages(profiler, *extent),
            Err(error) => Err(Error::new(error.kind(), error.to_string())),
        };
        match averages {
            _ if std::thread::panicking() => {}
            Ok(averages) => {
                let table = averages.table().header(format!("profile of \"{}\"", self.name)).row_limit(ROWS);
                let table = match terminal::width() {
                    Some(width) => table.width(width),
                    None => table,
                };
                diag::print_page(&table.to_string());
            }
            Err(error) => diag!(Warning, "profile", "\"{}\" ran without a profile: {error}", self.name),
        }
    }
}

/// The number of rows of each section.
const ROWS: usize = 30;

impl Trace {
    /// Records the spans and events that `work` emits on the calling thread, for tests and quick experiments.
    ///
    /// The thread's subscriber is replaced meanwhile by one with a default layer, without devices and without an output.
    /// Spans and events of other threads are not recorded.
    ///
    /// ```
    /// use tracing_kineto::Trace;
    ///
    /// let trace = Trace::of(|| tracing::info_span!("outer").in_scope(|| tracing::info_span!("inner").in_scope(|| ())))?;
    /// let names: Vec<_> = trace.events().iter().map(|event| event.name().to_owned()).collect();
    /// assert_eq!(names, ["outer", "inner"]);
    /// # Ok::<(), tracing_kineto::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a setting of the environment prevents the creation of a layer, or disables it.
    pub fn of(work: impl FnOnce()) -> Result<Trace, Error> {
        let builder = KinetoLayer::builder().no_output().record_from_start(true);
        let (layer, guard) = builder.activities(ActivityGroup::Cpu.types()).build()?;
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
        dispatcher::with_default(&dispatch, work);
        guard.finish()
    }
}

/// Installs a layer as the global default subscriber for the life of the process, if the program has none.
fn install_layer() -> Result<Profiler, Error> {
    static GUARD: OnceLock<KinetoGuard> = OnceLock::new();
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build()?;
    // A layer that cannot record must not occupy the program's only global default.
    guard.profiler().session()?;
    let subscriber = tracing_subscriber::registry().with(layer);
    dispatcher::set_global_default(Dispatch::new(subscriber)).map_err(|_| {
        let why = "the program's subscriber has no KinetoLayer: add one (`registry().with(layer)`), and keep its guard";
        Error::new(ErrorKind::NotActive, why)
    })?;
    Ok(GUARD.get_or_init(|| guard).profiler())
}

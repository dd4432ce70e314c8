//! The traits that every vendor module implements, and the program's own collectors.

use super::{Attempt, Capabilities, DeviceDescription, RecordSink, Selection, Unavailable};
use kineto_base::time::Timestamp;
use kineto_model::activity::{ActivityTypes, CorrelationId};
use std::fmt;
use std::time::{Duration, Instant};

/// A device's profiler: what it can record here, and how a recording of it starts.
///
/// One thread at a time calls these methods, and none may call the `Profiler`, which waits for them. A
/// panic is contained, and becomes the reason why nothing is recorded.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Instant;
/// use tracing_kineto::integration::{Capabilities, Collector, Recording, RecordSink, Selection, Unavailable};
/// use tracing_kineto::{ActivityType, ActivityTypes, KinetoLayer, Timestamp};
///
/// /// Records what the program's own driver reports to the sink, for example with `sink.record(|batch| batch.work(…))`.
/// #[derive(Clone, Debug, Default)]
/// struct Npu {
///     sink: Arc<Mutex<Option<RecordSink>>>,
/// }
///
/// impl Collector for Npu {
///     fn name(&self) -> &'static str {
///         "npu"
///     }
///     fn types(&self) -> ActivityTypes {
///         ActivityType::ConcurrentKernel.into()
///     }
///     fn probe(&self) -> Result<Capabilities, Unavailable> {
///         let mut capabilities = Capabilities::default();
///         capabilities.types = self.types();
///         Ok(capabilities)
///     }
///     fn start(
///         &self,
///         _: &Selection,
///         sink: RecordSink,
///     ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
///         *self.sink.lock().unwrap() = Some(sink);
///         Ok((self.probe()?, Box::new(self.clone())))
///     }
/// }
///
/// impl Recording for Npu {
///     fn stop(&self, _end: Timestamp, _deadline: Instant) {
///         self.sink.lock().unwrap().take();
///     }
/// }
///
/// let (layer, guard) = KinetoLayer::builder().no_output().collector(Npu::default()).build()?;
/// # drop((layer, guard));
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
pub trait Collector: fmt::Debug + Send + Sync {
    /// Returns its name: a single word in lower case, such as "cupti".
    fn name(&self) -> &'static str;

    /// Returns the types that it could record at best. It is not used if none of them is selected.
    fn types(&self) -> ActivityTypes;

    /// Returns whether a recording with this selection needs it. By default, it does if one of its
    /// [types](Collector::types) is selected.
    fn is_selected(&self, selection: &Selection) -> bool {
        !self.types().intersection(selection.types).is_empty()
    }

    /// Returns whether it is of no interest unless selected: then only the doctor examines it. Default: false.
    fn is_optional(&self) -> bool {
        false
    }

    /// Returns what it can record here. Loads the libraries that it needs; starts nothing.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    fn probe(&self) -> Result<Capabilities, Unavailable>;

    /// Starts to record the selection, and verifies that records arrive if it can. Returns what it records, and the
    /// recording, which writes its records to `sink` until its [`stop`](Recording::stop) returns.
    ///
    /// # Errors
    /// Why it cannot record, for example because another recording has the library.
    fn start(&self, selection: &Selection, sink: RecordSink)
    -> Result<(Capabilities, Box<dyn Recording>), Unavailable>;

    /// Returns the places of the last search for its libraries, with the outcomes.
    fn attempts(&self) -> Vec<Attempt> {
        Vec::new()
    }

    /// Returns the devices of this machine, ordered by number, for `kineto doctor`.
    fn devices(&self) -> Vec<DeviceDescription> {
        Vec::new()
    }
}

/// A recording of a [`Collector`], from its start to its [`stop`](Recording::stop), which is called once.
///
/// One thread at a time calls these methods, with these exceptions: every thread of the program may call
/// [`push`](Recording::push), [`pop`](Recording::pop), their counterparts for annotations,
/// [`pause`](Recording::pause) and [`resume`](Recording::resume). A call in progress may still arrive just after the stop;
/// the recording is dropped when the last one has returned. No method may call the `Profiler`, which
/// waits for them. A panic is contained: the [report](super::CollectorReport) names the method, and from then on only `stop`
/// is called.
pub trait Recording: fmt::Debug + Send + Sync {
    /// Notes that the calling thread enters a slice: calls that it makes from now on belong to it. Returns whether it
    /// was accepted; if not, there is no matching [`pop`](Recording::pop).
    ///
    /// Called only if external correlation is selected. Spans that the collector opens itself are not recorded.
    fn push(&self, _id: CorrelationId) -> bool {
        false
    }

    /// Notes that the calling thread leaves the slice that it pushed last. If the recording pauses or ends while the
    /// thread is inside slices, the thread leaves them at its first hook afterwards, in the next recording at the earliest.
    fn pop(&self) {}

    /// Returns whether it needs the slices. If no recording does, the layer does not push them. Default: true.
    fn takes_slices(&self) -> bool {
        true
    }

    /// Does the same as [`push`](Recording::push) for a slice of a user annotation; kineto's `pushUserCorrelationId`.
    /// By default it calls `push`: the trace knows the annotation of each piece of work anyway.
    fn push_annotation(&self, id: CorrelationId) -> bool {
        self.push(id)
    }

    /// Does the same as [`pop`](Recording::pop) for a slice that [`push_annotation`](Recording::push_annotation)
    /// pushed.
    fn pop_annotation(&self) {
        self.pop();
    }

    /// Pauses the recording: work that begins from now on is not wanted until [`resume`](Recording::resume). Work
    /// launched before is still delivered when it has ended. By default this does nothing, and the caller drops the
    /// records of the pause.
    ///
    /// `pause` and [`resume`](Recording::resume) alternate. Any thread of the program may call them, while others are
    /// in other methods, perhaps inside one of the vendor's callbacks. So they do not block.
    fn pause(&self) {}

    /// Resumes the recording: work that begins after the return is wanted.
    fn resume(&self) {}

    /// Returns whether it sees the calls by which a program opens and closes a [range](super::CaptureRange).
    fn sees_ranges(&self) -> bool {
        false
    }

    /// Delivers the records of work that has ended. A library may hold some back while later work runs: for those it waits up to
    /// `patience`.
    fn drain(&self, _patience: Duration) {}

    /// Returns why it has stopped before its [`stop`](Recording::stop), if it has. A schedule then skips the rest of
    /// the cycle.
    fn stopped(&self) -> Option<String> {
        None
    }

    /// Reads the clock of its records, in nanoseconds; `None` if that is CLOCK_REALTIME itself, or cannot be read.
    ///
    /// It is read between two readings of CLOCK_REALTIME: at both ends of a recording, at each pause and resume, and
    /// each second in which spans are recorded. If it does not lie between the two, timestamps are converted.
    fn clock(&self) -> Option<u64> {
        None
    }

    /// Ends the recording: delivers what began until `end`, and waits for it no longer than until `deadline`.
    fn stop(&self, end: Timestamp, deadline: Instant);

    /// Returns the devices that its records may name, ordered by number. Also called after the stop.
    fn devices(&self) -> Vec<DeviceDescription> {
        Vec::new()
    }
}

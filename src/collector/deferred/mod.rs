//! Work of devices whose times come later: a token when it is submitted, name and times when they are known.

mod brackets;
mod clock;
mod taken;

pub use clock::{AlignedBy, Alignment, DeviceClock};

use super::clock::now;
use super::contained::attempt;
use super::{
    ApiCall, Capabilities, Collector, DeviceDescription, RecordLayout, RecordSink, RecordView, Selection, Thread,
    Unavailable, Why,
};
use crate::os::{fork, thread};
use crate::time::Timestamp;
use clock::Knowledge;
use kineto_trace::activity::{ActivityType, ActivityTypes, ArgValue, CorrelationId};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use taken::{DeferredRecords, Resolved};

/// Records what a device does when the program alone can read its times, and late: torch's `recordVulkanEventToProfiler` as a
/// collector. Timestamp queries of Vulkan, wgpu or Metal, profiling events of OpenCL.
///
/// A cheap clone that any thread may use; give one to the builder's [`collector`](crate::KinetoLayerBuilder::collector).
/// [`submit`](DeferredEvents::submit) is a row on the calling thread, of the slice that it is in, and
/// [`resolve`](DeferredEvents::resolve) makes a row on the device's stream of it, with an arrow. There is one `DeferredEvents`
/// for a device, as each has a clock of its own. [Its clock](DeferredEvents::set_clock) is put against the host's by
/// calibrations, by statement, or by when the host submitted the work and saw its end, which needs nothing else; how far
/// times may be wrong then stands in the [report](crate::CollectorReport) and in each row (`clock_error_ns`).
///
/// Device rows come when the recording stops, since the last that is learned of the clock is true for the first row; a
/// snapshot has none. While nothing is recorded, `submit` is a load.
///
/// ```
/// use tracing_kineto::integration::{DeferredEvents, DeviceDescription, DeviceClock};
///
/// let gpu = DeferredEvents::new("toy");
/// gpu.set_device(DeviceDescription::new(0, "Toy 3000"));
/// gpu.set_clock(DeviceClock::ticking(52.083));
/// let (layer, guard) = tracing_kineto::KinetoLayer::builder().no_output().collector(gpu.clone()).build()?;
/// # drop(layer);
/// let submission = gpu.submit(0);
/// std::thread::sleep(std::time::Duration::from_millis(1)); // The device works, and its timestamps are read.
/// gpu.resolve(submission, "saxpy", 7_000, 9_000);
/// let trace = guard.finish()?;
/// assert_eq!(trace.stats().device_activities, 1);
/// println!("{}", gpu.alignment().unwrap());
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone)]
pub struct DeferredEvents {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    /// Which it is of the process.
    number: u64,
    /// Reads the host's clock, if that is not CLOCK_REALTIME.
    cpu_clock: Option<Box<ReadClock>>,
    /// Submissions are taken now.
    runs: AtomicBool,
    /// The number of the recording, or of the last one.
    recording: AtomicU64,
    settings: fork::Own<Settings>,
    known: fork::Own<Knowledge>,
    taken: fork::Own<DeferredRecords>,
    alignment: fork::Own<Option<Alignment>>,
}

type ReadClock = dyn Fn() -> u64 + Send + Sync;
type Resolver = dyn Fn(&[Submission], Instant) + Send + Sync;
type Calibrator = dyn Fn() -> Option<(u64, u64, Duration)> + Send + Sync;

#[derive(Clone)]
struct Settings {
    device: DeviceDescription,
    call: ActivityType,
    most: usize,
    resolver: Option<Arc<Resolver>>,
    calibrator: Option<Arc<Calibrator>>,
}

impl Default for Settings {
    fn default() -> Settings {
        let (call, most) = (ActivityType::PrivateUse1Runtime, 1 << 17);
        Settings { device: DeviceDescription::new(0, "device"), call, most, resolver: None, calibrator: None }
    }
}

/// What was submitted to a device, and has name and times later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Submission {
    /// The recording that it is of; 0 for none.
    recording: u64,
    /// Its correlation id.
    id: u64,
    stream: u32,
    /// When the host began with it.
    before: u64,
}

impl Submission {
    /// What nothing comes of.
    pub const NONE: Submission = Submission { recording: 0, id: 0, stream: 0, before: 0 };

    /// Whether it is recorded: name and times are wanted.
    pub fn is_recorded(&self) -> bool {
        self.recording != 0
    }

    /// The stream on which it was submitted.
    pub fn stream(&self) -> u32 {
        self.stream
    }
}

/// Correlation ids are told apart from those of vendors' libraries, which have 32 bits, since readers of a file look for them
/// in all of it.
static CORRELATION: AtomicU64 = AtomicU64::new(1 << 32);
static RECORDING: AtomicU64 = AtomicU64::new(1);
static NUMBER: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The slices that this thread is in, with the number and the recording of who was told.
    static INSIDE: RefCell<Vec<(u64, u64, u64)>> = const { RefCell::new(Vec::new()) };
}

/// The shape of a submission: its words are nothing.
#[derive(Debug)]
struct Submitted;

impl RecordLayout for Submitted {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("correlation", ArgValue::U64(record.correlation));
    }
}

impl DeferredEvents {
    /// Makes one of that name, one word in lower case, whose host's clock is CLOCK_REALTIME.
    pub fn new(name: &'static str) -> DeferredEvents {
        DeferredEvents::made(name, None)
    }

    /// Makes one whose host's clock is read by `read`, in nanoseconds, such as CLOCK_MONOTONIC: what
    /// [calibrations](DeferredEvents::calibrate) are against, and what a device's clock may be [stated](DeviceClock::of_cpu) to
    /// be. The session turns its times into those of CLOCK_REALTIME.
    pub fn with_cpu_clock(name: &'static str, read: impl Fn() -> u64 + Send + Sync + 'static) -> DeferredEvents {
        DeferredEvents::made(name, Some(Box::new(read)))
    }

    fn made(name: &'static str, cpu_clock: Option<Box<ReadClock>>) -> DeferredEvents {
        let shared = Shared {
            name,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            cpu_clock,
            runs: AtomicBool::new(false),
            recording: AtomicU64::new(0),
            settings: fork::Own::default(),
            known: fork::Own::default(),
            taken: fork::Own::default(),
            alignment: fork::Own::default(),
        };
        DeferredEvents { shared: Arc::new(shared) }
    }

    /// Says which device it is; before that it is device 0 without properties.
    pub fn set_device(&self, device: DeviceDescription) {
        self.shared.settings.lock().device = device;
    }

    /// Says what is known of the device's clock, and forgets all calibrations. Default: [`DeviceClock::ticking`] with 1 ns.
    pub fn set_clock(&self, clock: DeviceClock) {
        self.shared.known.lock().begin(clock);
    }

    /// Says what kind of call a submission is; default: [`PrivateUse1Runtime`](ActivityType::PrivateUse1Runtime), by which readers
    /// know whose device it is. HTA knows launches as [`CudaRuntime`](ActivityType::CudaRuntime) named `cudaLaunchKernel`, and
    /// without any has no queue lengths, and fails at its critical path. Their rows are there whatever types are selected.
    pub fn set_call_type(&self, call: ActivityType) {
        self.shared.settings.lock().call = call;
    }

    /// The most submissions, and the most rows of devices, in one recording; what is beyond is counted and not recorded, since
    /// each takes some 60 bytes until the stop. Default: 131,072.
    pub fn set_most(&self, most: usize) {
        self.shared.settings.lock().most = most;
    }

    /// Has `resolver` called when a recording stops with submissions that have no times yet: it is to
    /// [`resolve`](DeferredEvents::resolve) what it can until the deadline, which is the builder's `flush_timeout` away. It keeps
    /// the thread that stops the recording, and must not call the [`Profiler`](crate::Profiler).
    pub fn set_resolver(&self, resolver: impl Fn(&[Submission], Instant) + Send + Sync + 'static) {
        self.shared.settings.lock().resolver = Some(Arc::new(resolver));
    }

    /// Has `calibrator` called when a recording begins and when it stops: it reads both clocks at once and returns what
    /// [`calibrate`](DeferredEvents::calibrate) takes, ticks of the device, nanoseconds of the host, and the deviation; `None`
    /// if they cannot be read. Times of a recording lie between its calibrations then, so that a drift of the device's clock
    /// is known. It must not call the [`Profiler`](crate::Profiler).
    ///
    /// ```
    /// use tracing_kineto::integration::DeferredEvents;
    ///
    /// # fn read_both_clocks() -> Option<(u64, u64, std::time::Duration)> { None }
    /// let events = DeferredEvents::new("gpu");
    /// events.set_calibrator(read_both_clocks);
    /// ```
    pub fn set_calibrator(&self, calibrator: impl Fn() -> Option<(u64, u64, Duration)> + Send + Sync + 'static) {
        self.shared.settings.lock().calibrator = Some(Arc::new(calibrator));
    }

    /// Whether submissions are recorded now.
    pub fn is_recording(&self) -> bool {
        self.shared.runs.load(Ordering::Acquire)
    }

    /// Something is submitted on that stream now. See [`submit_as`](DeferredEvents::submit_as).
    pub fn submit(&self, stream: u32) -> Submission {
        self.submit_as("submit", stream, || ()).0
    }

    /// Calls `submit`, which submits something on that stream, and makes a row of that name of the call. What the device does
    /// of it begins after that of the host, and is over when it is [resolved](DeferredEvents::resolve).
    pub fn submit_as<R>(&self, name: &str, stream: u32, submit: impl FnOnce() -> R) -> (Submission, R) {
        if !self.is_recording() {
            return (Submission::NONE, submit());
        }
        let before = self.now();
        let done = submit();
        let after = self.now();
        let settings = self.shared.settings.lock();
        let (kind, most) = (settings.call, settings.most);
        drop(settings);
        let mut taken = self.shared.taken.lock();
        let Some(sink) = taken.sink.clone().filter(|sink| self.is_recording() && !sink.is_waiting()) else {
            return (Submission::NONE, done);
        };
        let submission =
            Submission { recording: taken.recording, id: CORRELATION.fetch_add(1, Ordering::Relaxed), stream, before };
        if !taken.admit(submission, most) {
            return (Submission::NONE, done);
        }
        drop(taken);
        let external = self.slice(submission.recording);
        sink.record(|batch| {
            let (name, thread) = (batch.name(name), Thread::Id(thread::id()));
            let (start, end, correlation) = (before, after.max(before + 1), submission.id);
            let (launches, shape, words) = (true, &Submitted, &[]);
            batch.call(&ApiCall { kind, name, thread, start, end, correlation, external, launches, shape, words });
        });
        (submission, done)
    }

    /// Says what a submission was, and when, in ticks of the device: it becomes a `kernel` of that name on its stream.
    ///
    /// May be called by any thread, until the recording stops; and again, for a submission that did more than one thing. That
    /// it is called now is taken for a sign that the work is over.
    pub fn resolve(&self, submission: Submission, name: &str, start: u64, end: u64) {
        self.resolve_as(submission, ActivityType::ConcurrentKernel, name, start, end);
    }

    /// Does the same for work of another type, such as [`GpuMemcpy`](ActivityType::GpuMemcpy).
    pub fn resolve_as(&self, submission: Submission, kind: ActivityType, name: &str, start: u64, end: u64) {
        if !submission.is_recorded() {
            return;
        }
        let after = self.now();
        let most = self.shared.settings.lock().most;
        let mut taken = self.shared.taken.lock();
        // In another recording the device may have another clock.
        if taken.recording == submission.recording {
            self.bracket([submission.before, after], [start, end]);
            taken.resolve(&Resolved { submission, kind, start, end }, name, most);
        }
    }

    /// Says that the device's clock showed `ticks` when the host's showed `host` nanoseconds, to within `deviation`. One at the
    /// start and one at the stop, or better each second, tell how the one drifts against the other.
    pub fn calibrate(&self, ticks: u64, host: u64, deviation: Duration) {
        let deviation = u64::try_from(deviation.as_nanos()).unwrap_or(u64::MAX);
        self.shared.known.lock().calibrate(ticks, host, deviation);
    }

    /// Says that the device did something from its first tick to its last, all of it between two moments of the host
    /// ([`now`](DeferredEvents::now)). Each submission is such a bracket by itself, from its call until it is resolved; one that
    /// is tighter, from just before the work was handed over until its end was first seen, tells more.
    pub fn bracket(&self, host: [u64; 2], ticks: [u64; 2]) {
        self.shared.known.lock().bracket(host, ticks);
    }

    /// Reads the host's clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.shared.cpu_clock.as_ref().map_or_else(now, |read| read())
    }

    /// Returns when a tick was on the host's clock, for all that is known now, and how far from there it may have been, in
    /// nanoseconds; `None` if nothing is known.
    pub fn locate(&self, ticks: u64) -> Option<(u64, u64)> {
        self.shared.known.lock().aligned().at(ticks)
    }

    /// Returns how the device's clock was put against the host's in the last recording that ended with rows of the device.
    pub fn alignment(&self) -> Option<Alignment> {
        *self.shared.alignment.lock()
    }

    /// Returns how many submissions of the recording that goes on have no times yet.
    pub fn open(&self) -> usize {
        self.shared.taken.lock().open.len()
    }

    /// The slice that the calling thread is in; 0 if it was told of none.
    fn slice(&self, recording: u64) -> u64 {
        let own = |told: &&(u64, u64, u64)| (told.0, told.1) == (self.shared.number, recording);
        let innermost = |inside: &RefCell<Vec<_>>| inside.borrow().iter().rev().find(own).map_or(0, |told| told.2);
        INSIDE.try_with(innermost).unwrap_or(0)
    }

    /// Reads both clocks by the program's calibrator.
    fn calibrate_now(&self, sink: &RecordSink) {
        let Some(calibrator) = self.shared.settings.lock().calibrator.clone() else { return };
        match attempt("calibrator", || calibrator()) {
            Ok(Some((ticks, host, deviation))) => self.calibrate(ticks, host, deviation),
            Ok(None) => {}
            Err(reason) => sink.note(reason.message()),
        }
    }

    /// Has the program's resolver see to what is open.
    fn resolve_open(&self, sink: &RecordSink, deadline: Instant) {
        let open = self.shared.taken.lock().open();
        let resolver = self.shared.settings.lock().resolver.clone().filter(|_| !open.is_empty());
        let Some(resolver) = resolver else { return };
        if let Err(reason) = attempt("resolver", || resolver(&open, deadline)) {
            sink.note(reason.message());
        }
        let over = Instant::now().saturating_duration_since(deadline);
        if over > Duration::from_millis(100) {
            sink.note(format!("the resolver took {over:.1?} longer than it may"));
        }
    }
}

impl fmt::Debug for DeferredEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, number, runs, .. } = &*self.shared;
        f.debug_struct("DeferredEvents")
            .field("name", name)
            .field("number", number)
            .field("runs", runs)
            .finish_non_exhaustive()
    }
}

impl Collector for DeferredEvents {
    fn name(&self) -> &'static str {
        self.shared.name
    }

    fn types(&self) -> ActivityTypes {
        use ActivityType as T;
        ActivityTypes::of(&[T::ConcurrentKernel, T::GpuMemcpy, T::GpuMemset]).with(self.shared.settings.lock().call)
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let clock = *self.shared.known.lock().clock();
        if !clock.is_possible() {
            let message = format!("there is no clock such as {clock:?}");
            return Err(Unavailable::new(Why::Incompatible, message, "say how many nanoseconds a tick takes"));
        }
        Ok(Capabilities { types: self.types(), ..Capabilities::default() })
    }

    fn start(&self, selection: &Selection, sink: RecordSink) -> Result<Capabilities, Unavailable> {
        let can = self.probe()?;
        let mut taken = self.shared.taken.lock();
        if taken.sink.is_some() {
            return Err(Unavailable::new(
                Why::Busy,
                "this collector is in use by another recording",
                "stop that recording first",
            ));
        }
        let recording = RECORDING.fetch_add(1, Ordering::Relaxed);
        *taken = DeferredRecords::new(recording, selection.types, sink.clone());
        drop(taken);
        self.shared.known.lock().forget_brackets();
        self.calibrate_now(&sink);
        self.shared.recording.store(recording, Ordering::Relaxed);
        self.shared.runs.store(true, Ordering::Release);
        Ok(can)
    }

    fn push(&self, id: CorrelationId) -> bool {
        let recording = self.shared.recording.load(Ordering::Relaxed);
        INSIDE.try_with(|inside| inside.borrow_mut().push((self.shared.number, recording, id.0))).is_ok()
    }

    fn pop(&self) {
        let own = |inside: &RefCell<Vec<(u64, u64, u64)>>| {
            let mut inside = inside.borrow_mut();
            let last = inside.iter().rposition(|told| told.0 == self.shared.number);
            last.map(|last| inside.remove(last))
        };
        _ = INSIDE.try_with(own);
    }

    fn pause(&self) {
        self.shared.runs.store(false, Ordering::Release);
    }

    fn resume(&self) {
        self.shared.runs.store(true, Ordering::Release);
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        self.shared.runs.store(false, Ordering::Release);
        let Some(sink) = self.shared.taken.lock().sink.clone() else { return };
        self.resolve_open(&sink, deadline);
        self.calibrate_now(&sink);
        let taken = std::mem::take(&mut *self.shared.taken.lock());
        let device = self.shared.settings.lock().device.id;
        if let Some(alignment) = taken.hand_over(&sink, device, &self.shared.known.lock()) {
            *self.shared.alignment.lock() = Some(alignment);
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        vec![self.shared.settings.lock().device.clone()]
    }

    fn clock(&self) -> Option<u64> {
        self.shared.cpu_clock.as_ref().map(|read| read())
    }
}

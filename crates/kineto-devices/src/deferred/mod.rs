//! Records device work whose timestamps become available later: a token at the submission, name and times afterwards.

mod brackets;
mod clock;
mod records;

pub use clock::{AlignedBy, Alignment, DeviceClock};
pub(super) use records::LAYOUTS;

use super::clock::realtime_now;
use super::library::panic::catch_panic;
use super::{
    ApiCall, Capabilities, Collector, DeviceDescription, RecordSink, Recording, Selection, Thread, Unavailable, Why,
};
use clock::ClockObservations;
use kineto_base::os::{fork, thread};
use kineto_base::time::Timestamp;
use kineto_base::wait::steady;
use kineto_model::activity::{ActivityType, ActivityTypes, CorrelationId};
use records::{DeferredRecords, Resolved, SUBMISSION};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Records device work when only the program can read its timestamps, and late: torch's `recordVulkanEventToProfiler`
/// as a collector. For example timestamp queries of Vulkan, wgpu or Metal, or profiling events of OpenCL.
///
/// It is a cheap clone that any thread may use. Pass one to the builder's
/// `collector`.
///
/// - [`submit`](DeferredEvents::submit) adds a row on the calling thread, in its current slice.
/// - [`resolve`](DeferredEvents::resolve) adds the row on the device's stream, with an arrow to it.
///
/// Make a `DeferredEvents` for each device, since each device has its own [clock](DeferredEvents::set_clock). That
/// clock is aligned with the host's by calibrations, by statement, or by the times of submission and end, which are
/// always known. The error of timestamps is in the [report](crate::CollectorReport) and in each row
/// (`clock_error_ns`).
///
/// Device rows appear when the recording stops: the final alignment applies to the first row too. A snapshot has
/// none. While nothing is recorded, `submit` is an atomic load.
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
    shared: Arc<DeferredState>,
}

struct DeferredState {
    name: &'static str,
    /// Its number in the process.
    number: u64,
    /// Reads the host's clock, if that is not CLOCK_REALTIME.
    cpu_clock: Option<Box<ReadClock>>,
    /// Whether submissions are accepted.
    runs: AtomicBool,
    settings: fork::Own<Settings>,
    known: fork::Own<ClockObservations>,
    records: fork::Own<DeferredRecords>,
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

/// A recording of [`DeferredEvents`].
#[derive(Debug)]
struct DeferredRecording {
    events: DeferredEvents,
    /// Its number in the process.
    number: u64,
    sink: RecordSink,
}

/// Work submitted to a device, which gets its name and times later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Submission {
    /// Its recording; 0 for none.
    recording: u64,
    /// Its correlation id.
    id: u64,
    stream: u32,
    /// The host's time at the start of the submission.
    before: u64,
}

impl Submission {
    /// A submission that is not recorded.
    pub const NONE: Submission = Submission { recording: 0, id: 0, stream: 0, before: 0 };

    /// Returns whether it is recorded, so that name and times are needed.
    pub fn is_recorded(&self) -> bool {
        self.recording != 0
    }

    /// Returns its stream.
    pub fn stream(&self) -> u32 {
        self.stream
    }
}

/// Above the ids of vendors' libraries, which have 32 bits: readers of a file treat all correlation ids alike.
static CORRELATION: AtomicU64 = AtomicU64::new(1 << 32);
static RECORDING: AtomicU64 = AtomicU64::new(1);
static NUMBER: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The slices that this thread is in, each with the number of the recording that it was pushed to.
    static INSIDE: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

impl DeferredEvents {
    /// Makes a collector of that name (a single word in lower case) whose host clock is CLOCK_REALTIME.
    pub fn new(name: &'static str) -> DeferredEvents {
        DeferredEvents::with_clock(name, None)
    }

    /// Makes a collector whose host clock is read by `read`, in nanoseconds, such as CLOCK_MONOTONIC.
    /// [Calibrations](DeferredEvents::calibrate) refer to it, and a device's clock may be
    /// [stated](DeviceClock::of_cpu) to be it. The session converts its times to CLOCK_REALTIME.
    pub fn with_cpu_clock(name: &'static str, read: impl Fn() -> u64 + Send + Sync + 'static) -> DeferredEvents {
        DeferredEvents::with_clock(name, Some(Box::new(read)))
    }

    fn with_clock(name: &'static str, cpu_clock: Option<Box<ReadClock>>) -> DeferredEvents {
        let shared = DeferredState {
            name,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            cpu_clock,
            runs: AtomicBool::new(false),
            settings: fork::Own::default(),
            known: fork::Own::default(),
            records: fork::Own::default(),
            alignment: fork::Own::default(),
        };
        DeferredEvents { shared: Arc::new(shared) }
    }

    /// Describes the device; by default it is device 0 without properties.
    pub fn set_device(&self, device: DeviceDescription) {
        self.shared.settings.lock().device = device;
    }

    /// Sets the properties of the device's clock, and drops all calibrations. Default: [`DeviceClock::ticking`] with
    /// 1 ns.
    pub fn set_clock(&self, clock: DeviceClock) {
        self.shared.known.lock().replace_clock(clock);
    }

    /// Sets the activity type of a submission's row. Default:
    /// [`PrivateUse1Runtime`](ActivityType::PrivateUse1Runtime), which tells readers whose device it is. HTA
    /// recognises launches as [`CudaRuntime`](ActivityType::CudaRuntime) rows named `cudaLaunchKernel`; without them
    /// it shows no queue lengths, and its critical path fails. These rows are recorded whatever types are selected.
    pub fn set_call_type(&self, call: ActivityType) {
        self.shared.settings.lock().call = call;
    }

    /// Limits the submissions, and the device rows, of a recording; further ones are only counted. Each takes some 60
    /// bytes until the stop. Default: 131,072.
    pub fn set_most(&self, most: usize) {
        self.shared.settings.lock().most = most;
    }

    /// Sets a function that is called when a recording stops with unresolved submissions. It
    /// [resolves](DeferredEvents::resolve) what it can until the deadline, which is the builder's `flush_timeout`
    /// away. It runs on the thread that stops the recording, and must not call the `Profiler`.
    pub fn set_resolver(&self, resolver: impl Fn(&[Submission], Instant) + Send + Sync + 'static) {
        self.shared.settings.lock().resolver = Some(Arc::new(resolver));
    }

    /// Sets a function that is called at the start and stop of a recording. It reads both clocks at once and returns
    /// the arguments of [`calibrate`](DeferredEvents::calibrate): ticks of the device, nanoseconds of the host, and
    /// the deviation; `None` if they cannot be read. The recording then lies between two calibrations, so the drift
    /// of the device's clock is known. It must not call the `Profiler`.
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

    /// Returns whether submissions are recorded now.
    pub fn is_recording(&self) -> bool {
        self.shared.runs.load(Ordering::Acquire)
    }

    /// Notes a submission to that stream. See [`submit_as`](DeferredEvents::submit_as).
    pub fn submit(&self, stream: u32) -> Submission {
        self.submit_as("submit", stream, || ()).0
    }

    /// Calls `submit`, which submits work to that stream, and adds a row of that name for the call. The device work
    /// begins after the call does, and ends before it is [resolved](DeferredEvents::resolve).
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
        let mut records = self.shared.records.lock();
        let Some(sink) = records.sink.clone().filter(|sink| self.is_recording() && !sink.is_waiting()) else {
            return (Submission::NONE, done);
        };
        let submission = Submission {
            recording: records.recording,
            id: CORRELATION.fetch_add(1, Ordering::Relaxed),
            stream,
            before,
        };
        if !records.add_submission(submission, most) {
            return (Submission::NONE, done);
        }
        drop(records);
        let external = slice_in(submission.recording);
        sink.record(|batch| {
            let (name, thread) = (batch.name(name), Thread::Id(thread::id()));
            let (start, end, correlation) = (before, after.max(before + 1), submission.id);
            let (launches, shape, words) = (true, &SUBMISSION, &[]);
            batch.call(&ApiCall { kind, name, thread, start, end, correlation, external, launches, shape, words });
        });
        (submission, done)
    }

    /// Sets the name and times of a submission, in device ticks: it becomes a `kernel` of that name on its stream.
    ///
    /// Any thread may call it until the recording stops, several times for a submission with several pieces of work.
    /// The work is assumed to have ended by the time of the call.
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
        let mut records = self.shared.records.lock();
        // In another recording the device may have another clock.
        if records.recording == submission.recording {
            self.bracket([submission.before, after], [start, end]);
            records.add_resolved_work(&Resolved { submission, kind, start, end }, name, most);
        }
    }

    /// Adds a calibration: the device's clock read `ticks` when the host's read `host` nanoseconds, to within
    /// `deviation`. Calibrations at start and stop, or better each second, determine the drift.
    pub fn calibrate(&self, ticks: u64, host: u64, deviation: Duration) {
        let deviation = u64::try_from(deviation.as_nanos()).unwrap_or(u64::MAX);
        self.shared.known.lock().add_calibration(ticks, host, deviation);
    }

    /// Adds a bracket: the device worked from the first to the last of `ticks`, between two times of the host's clock
    /// ([`now`](DeferredEvents::now)). Each submission is a bracket by itself, from its call until it is resolved. A
    /// tighter bracket, from just before the submission until its end was first seen, gives a better alignment.
    pub fn bracket(&self, host: [u64; 2], ticks: [u64; 2]) {
        self.shared.known.lock().add_bracket(host, ticks);
    }

    /// Reads the host's clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.shared.cpu_clock.as_ref().map_or_else(realtime_now, |read| read())
    }

    /// Converts a tick to the host's clock by the current alignment. Returns the time and its possible error, in
    /// nanoseconds; `None` without observations.
    pub fn locate(&self, ticks: u64) -> Option<(u64, u64)> {
        self.shared.known.lock().compute_alignment().convert_ticks(ticks)
    }

    /// Returns how the device's clock was aligned in the last recording that had device rows.
    pub fn alignment(&self) -> Option<Alignment> {
        *self.shared.alignment.lock()
    }

    /// Returns how many submissions of the current recording are unresolved.
    pub fn open(&self) -> usize {
        self.shared.records.lock().open.len()
    }

    /// Reads both clocks with the program's calibrator.
    fn calibrate_now(&self, sink: &RecordSink) {
        let Some(calibrator) = self.shared.settings.lock().calibrator.clone() else { return };
        match catch_panic("calibrator", || calibrator()) {
            Ok(Some((ticks, host, deviation))) => self.calibrate(ticks, host, deviation),
            Ok(None) => {}
            Err(reason) => sink.note(reason.message()),
        }
    }

    /// Calls the program's resolver for unresolved submissions.
    fn resolve_open(&self, sink: &RecordSink, deadline: Instant) {
        let open = self.shared.records.lock().open_submissions();
        let resolver = self.shared.settings.lock().resolver.clone().filter(|_| !open.is_empty());
        let Some(resolver) = resolver else { return };
        if let Err(reason) = catch_panic("resolver", || resolver(&open, deadline)) {
            sink.note(reason.message());
        }
        let over = steady().saturating_duration_since(deadline);
        if over > Duration::from_millis(100) {
            sink.note(format!("the resolver exceeded its deadline by {over:.1?}"));
        }
    }
}

/// Returns the slice of a recording that the calling thread is in; 0 for none.
fn slice_in(recording: u64) -> u64 {
    let innermost = |inside: &RefCell<Vec<(u64, u64)>>| {
        let inside = inside.borrow();
        inside.iter().rev().find(|(number, _)| *number == recording).map_or(0, |(_, slice)| *slice)
    };
    INSIDE.try_with(innermost).unwrap_or(0)
}

impl fmt::Debug for DeferredEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeferredState { name, number, runs, .. } = &*self.shared;
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
            let message = format!("invalid clock {clock:?}");
            return Err(Unavailable::new(Why::Incompatible, message, "set a positive number of nanoseconds a tick"));
        }
        Ok(Capabilities { types: self.types(), ..Capabilities::default() })
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        let can = self.probe()?;
        let mut records = self.shared.records.lock();
        if records.sink.is_some() {
            return Err(Unavailable::new(
                Why::Busy,
                "this collector is in use by another recording",
                "stop that recording first",
            ));
        }
        let number = RECORDING.fetch_add(1, Ordering::Relaxed);
        *records = DeferredRecords::new(number, selection.types, sink.clone());
        drop(records);
        self.shared.known.lock().forget_brackets();
        self.calibrate_now(&sink);
        self.shared.runs.store(true, Ordering::Release);
        Ok((can, Box::new(DeferredRecording { events: self.clone(), number, sink })))
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        vec![self.shared.settings.lock().device.clone()]
    }
}

impl Recording for DeferredRecording {
    fn push(&self, id: CorrelationId) -> bool {
        INSIDE.try_with(|inside| inside.borrow_mut().push((self.number, id.0))).is_ok()
    }

    fn pop(&self) {
        let remove_last = |inside: &RefCell<Vec<(u64, u64)>>| {
            let mut inside = inside.borrow_mut();
            let last = inside.iter().rposition(|(number, _)| *number == self.number);
            last.map(|last| inside.remove(last))
        };
        _ = INSIDE.try_with(remove_last);
    }

    fn pause(&self) {
        self.events.shared.runs.store(false, Ordering::Release);
    }

    fn resume(&self) {
        self.events.shared.runs.store(true, Ordering::Release);
    }

    fn clock(&self) -> Option<u64> {
        self.events.shared.cpu_clock.as_ref().map(|read| read())
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        let DeferredState { runs, settings, known, records, alignment, .. } = &*self.events.shared;
        runs.store(false, Ordering::Release);
        self.events.resolve_open(&self.sink, deadline);
        self.events.calibrate_now(&self.sink);
        let records = std::mem::take(&mut *records.lock());
        let device = settings.lock().device.id;
        if let Some(found) = records.deliver_rows(&self.sink, device, &known.lock()) {
            *alignment.lock() = Some(found);
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.events.devices()
    }
}

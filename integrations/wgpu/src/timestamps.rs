//! A device whose work is timed.

use crate::Gpu;
use crate::calibration::Calibrator;
use crate::encoder::{Pass, TimedEncoder};
use crate::queries::Queries;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing_kineto::integration::{AlignedBy, DeferredEvents};
use wgpu::{CommandEncoderDescriptor, Device, Features, PollType, Queue, SubmissionIndex};

/// The method that aligns the device's clock with the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Align {
    /// `VK_EXT_calibrated_timestamps` if the driver has it, else [`Brackets`](Align::Brackets).
    #[default]
    Best,
    /// The times when the host submitted work and observed its end: exact to some hundred microseconds, and better the sooner
    /// the device is polled.
    Brackets,
    /// The program knows that the device's ticks are nanoseconds of CLOCK_MONOTONIC.
    HostClock,
}

/// A device whose passes are timed while a recording runs; a cheap clone.
///
/// Timestamps are read when the program polls the device, without waiting. When a recording stops with unfinished work, it
/// waits for the device, up to the builder's `flush_timeout`.
#[derive(Clone, Debug)]
pub struct Timestamps {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) events: DeferredEvents,
    pub(crate) as_cuda: bool,
    pub(crate) device: Device,
    queue: Queue,
    align: Align,
    calibrator: Option<Calibrator>,
    calibrated: Mutex<Option<Instant>>,
    free: Mutex<Vec<Queries>>,
}

/// The interval at which both clocks are read while work is submitted.
const CALIBRATION: Duration = Duration::from_millis(500);

impl Timestamps {
    pub(crate) fn new(gpu: &Gpu, device: Device, queue: Queue, align: Align) -> Timestamps {
        let calibrator = if align == Align::Best { Calibrator::new(&device) } else { None };
        let (calibrated, free) = (Mutex::default(), Mutex::default());
        let (events, as_cuda) = (gpu.collector(), gpu.as_cuda);
        let inner = Arc::new(Inner { events, as_cuda, device, queue, align, calibrator, calibrated, free });
        // For a recording that runs already.
        inner.calibrate(Duration::ZERO);
        let weak: Weak<Inner> = Arc::downgrade(&inner);
        let calibrating = weak.clone();
        inner.events.set_calibrator(move || calibrating.upgrade()?.read_clocks());
        inner.events.set_resolver(move |_, deadline| {
            if let Some(inner) = weak.upgrade() {
                inner.wait(deadline);
            }
        });
        Timestamps { inner }
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Returns its queue. Work submitted directly to it is not timed.
    pub fn queue(&self) -> &Queue {
        &self.inner.queue
    }

    /// Returns whether passes can be timed: the device has `TIMESTAMP_QUERY`.
    pub fn are_there(&self) -> bool {
        self.inner.device.features().contains(Features::TIMESTAMP_QUERY)
    }

    /// Returns the method that aligns the device's clock with the host's.
    pub fn aligned_by(&self) -> AlignedBy {
        match (&self.inner.calibrator, self.inner.align) {
            (Some(_), _) => AlignedBy::Calibrations,
            (None, Align::HostClock) => AlignedBy::Statement,
            (None, _) => AlignedBy::Brackets,
        }
    }

    /// Creates an encoder whose passes are timed.
    pub fn encoder(&self, label: Option<&str>) -> TimedEncoder {
        let encoder = self.inner.device.create_command_encoder(&CommandEncoderDescriptor { label });
        TimedEncoder::new(self.inner.clone(), encoder)
    }

    /// Submits the encoded commands.
    pub fn submit(&self, encoder: TimedEncoder) -> SubmissionIndex {
        self.inner.calibrate(CALIBRATION);
        let (commands, timed) = encoder.finish();
        let before = self.inner.events.now();
        let index = self.inner.queue.submit([commands]);
        for (queries, passes) in timed {
            let inner = self.inner.clone();
            queries.read(move |queries, ticks| inner.resolve(before, queries, ticks, &passes));
        }
        index
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Returns unused queries.
    pub(crate) fn queries(&self) -> Queries {
        let free = lock(&self.free).pop();
        free.unwrap_or_else(|| Queries::new(&self.device))
    }

    /// Reads both clocks, if the last reading is older than `after`.
    fn calibrate(&self, after: Duration) {
        let mut last = lock(&self.calibrated);
        if last.is_some_and(|last| last.elapsed() < after) {
            return;
        }
        if let Some((ticks, host, deviation)) = self.read_clocks() {
            self.events.calibrate(ticks, host, deviation);
            *last = Some(Instant::now());
        }
    }

    /// Reads both clocks together, if the driver can.
    fn read_clocks(&self) -> Option<(u64, u64, Duration)> {
        self.calibrator.as_ref().and_then(Calibrator::read)
    }

    /// Delivers the times of passes that were submitted at `before`.
    fn resolve(&self, before: u64, queries: Queries, ticks: &[u64], passes: &[Pass]) {
        let after = self.events.now();
        lock(&self.free).push(queries);
        if let Some((first, last)) = ticks.iter().min().zip(ticks.iter().max()) {
            self.events.bracket([before, after], [*first, *last]);
        }
        for (pass, ticks) in passes.iter().zip(ticks.chunks_exact(2)) {
            if let [start, end] = ticks {
                self.events.resolve_as(pass.submission, pass.kind, &pass.name, *start, *end);
            }
        }
        // Keeps the time since the last calibration short.
        self.calibrate(CALIBRATION);
    }

    /// Waits for the device until the deadline.
    fn wait(&self, deadline: Instant) {
        while self.events.open() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = PollType::Wait { submission_index: None, timeout: Some(left) };
            // Work that was encoded but never submitted stays pending.
            if self.device.poll(wait).is_err() || self.device.poll(PollType::Poll).is_ok_and(|s| s.is_queue_empty()) {
                break;
            }
        }
    }
}

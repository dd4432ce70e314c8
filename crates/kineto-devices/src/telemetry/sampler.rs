//! The thread that samples the devices of a recording.

use super::FoundDevices;
use super::metric::{DeviceMetric, ReadError, SAMPLE, TelemetrySample};
use crate::buffered::commands::EndLimits;
use crate::clock::realtime_now;
use crate::library::contained::run_reader;
use crate::{CounterSample, DeviceDescription, RecordSink, Recording, Unavailable};
use kineto_base::os::thread;
use kineto_base::time::Timestamp;
use kineto_base::wait::{Condvar, steady};
use kineto_model::activity::ActivityType;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Reads the values of a device.
pub(super) trait DeviceReader: fmt::Debug + Send {
    /// Reads a value, in the unit of [`DeviceMetric`].
    ///
    /// # Errors
    /// Why there is no value.
    fn read(&mut self, metric: DeviceMetric) -> Result<i64, ReadError>;
}

/// The reasons for lower clocks by their bits, without those of an idle device.
pub(super) type ClockReasons = &'static [(u64, &'static str)];

/// A device that is sampled.
#[derive(Debug)]
pub(super) struct SampledDevice {
    description: DeviceDescription,
    device: Box<dyn DeviceReader>,
    reasons: ClockReasons,
    /// Values that are not read any more.
    is_missing: [bool; DeviceMetric::ALL.len()],
    /// The reasons for lower clocks that were noted.
    noted_reasons: u64,
}

impl SampledDevice {
    pub(super) fn new(
        description: DeviceDescription,
        device: Box<dyn DeviceReader>,
        reasons: ClockReasons,
    ) -> SampledDevice {
        let is_missing = [false; DeviceMetric::ALL.len()];
        SampledDevice { description, device, reasons, is_missing, noted_reasons: 0 }
    }

    pub(super) fn into_description(self) -> DeviceDescription {
        self.description
    }

    /// Reads all values; also returns those that cannot be read, with the reason.
    fn read_values(&mut self) -> (TelemetrySample, Vec<(DeviceMetric, ReadError)>) {
        let mut failures = Vec::new();
        let mut sample = TelemetrySample::default();
        for (metric, is_missing) in DeviceMetric::ALL.into_iter().zip(&mut self.is_missing) {
            if *is_missing {
                continue;
            }
            match self.device.read(metric) {
                Ok(value) => sample.set(metric, value),
                Err(ReadError::Pending) => {}
                Err(error) => {
                    *is_missing = matches!(error, ReadError::Unsupported | ReadError::Forbidden);
                    failures.push((metric, error));
                }
            }
        }
        (sample, failures)
    }

    /// Returns a sentence that names the values that exist, and why others are missing.
    pub(super) fn list_values(&mut self) -> String {
        let (_, missing) = self.read_values();
        let exists = |metric: &DeviceMetric| !missing.iter().any(|(known, _)| known == metric);
        let values: Vec<_> = DeviceMetric::ALL.into_iter().filter(exists).map(DeviceMetric::row_name).collect();
        let mut text = format!("{}: {}", self.description.label, values.join(", "));
        for (metric, error) in &missing {
            text.push_str(&format!("; {}: {}", metric.row_name(), explain(*error)));
        }
        text
    }

    /// Samples all values into a record.
    fn sample(&mut self, control: &SamplerControl, sink: &RecordSink) {
        let before = realtime_now();
        let (sample, failures) = self.read_values();
        let half = realtime_now().saturating_sub(before) / 2;
        // The recording may have ended during a call that took long: then nothing is expected of this thread.
        if control.is_stopping() {
            return;
        }
        for (metric, error) in failures {
            let (label, row) = (&self.description.label, metric.row_name());
            sink.note(format!("{label} has no {row}: {}", explain(error)));
        }
        if sample.is_empty() {
            return;
        }
        sink.clock_error(half);
        self.note_reasons(sample, sink);
        sink.record(|batch| {
            let (kind, name) = (ActivityType::HardwareCounters, batch.name("telemetry"));
            let (device, at, words) = ((self.description.id, 0), before.saturating_add(half), sample.to_words());
            batch.counters(&CounterSample::new(kind, name, device, at, &SAMPLE, &words));
        });
    }

    /// Notes reasons for lower clocks when they occur first.
    fn note_reasons(&mut self, sample: TelemetrySample, sink: &RecordSink) {
        let reasons = sample.get(DeviceMetric::ThrottleReasons).unwrap_or(0).cast_unsigned();
        let fresh = reasons & !self.noted_reasons;
        self.noted_reasons |= reasons;
        for (bit, reason) in self.reasons {
            if fresh & bit != 0 {
                sink.note(format!("{} lowered its clocks: {reason}", self.description.label));
            }
        }
    }
}

fn explain(error: ReadError) -> String {
    match error {
        ReadError::Unsupported => "the device or its driver does not support it".to_owned(),
        ReadError::Forbidden => "the process lacks the permission".to_owned(),
        ReadError::Pending => "there was no earlier reading".to_owned(),
        ReadError::Failed(code) => format!("the library returned {code}"),
    }
}

/// A recording of a vendor's devices.
#[derive(Debug)]
pub(super) struct TelemetryRecording {
    /// The library's name.
    library: &'static str,
    control: Arc<SamplerControl>,
    sink: RecordSink,
}

/// The commands of the recording to its thread, and the answers.
#[derive(Debug, Default)]
struct SamplerControl {
    state: Mutex<SamplerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SamplerState {
    is_paused: bool,
    is_stopping: bool,
    has_ended: bool,
    devices: Vec<DeviceDescription>,
}

impl SamplerControl {
    fn lock_state(&self) -> MutexGuard<'_, SamplerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut SamplerState)) {
        change(&mut self.lock_state());
        self.changed.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.lock_state().is_stopping
    }

    /// Waits until then, or until the end of a pause if that is later; returns `false` when the recording ends.
    fn wait_for_turn(&self, at: Instant) -> bool {
        let mut state = self.lock_state();
        while !state.is_stopping {
            state = if state.is_paused {
                self.changed.wait(&self.state, state)
            } else if steady() >= at {
                return true;
            } else {
                self.changed.wait_until(&self.state, state, at)
            };
        }
        false
    }

    /// Waits for the thread's end; returns `false` if it takes longer than `patience`.
    fn wait_for_end(&self, patience: Duration) -> bool {
        let (state, until) = (self.lock_state(), steady() + patience);
        self.changed.wait_while_until(&self.state, state, until, |state| !state.has_ended).has_ended
    }
}

/// Reports the thread's end and releases the library on drop, so that both happen after a panic too.
#[derive(Debug)]
struct SamplerEnd {
    control: Arc<SamplerControl>,
    release: fn(),
}

impl Drop for SamplerEnd {
    fn drop(&mut self) {
        (self.release)();
        self.control.change(|state| state.has_ended = true);
    }
}

/// How often a thread whose records are not wanted yet checks whether they are.
const UNTIL_BEGUN: Duration = Duration::from_millis(10);
/// The longest wait for a library that hangs in a reading.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

impl TelemetryRecording {
    /// Starts the thread, which calls `find` for the devices. The caller has acquired the lease.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(super) fn start(
        [collector, library]: [&'static str; 2],
        release: fn(),
        find: Box<dyn FnOnce() -> FoundDevices + Send>,
        period: Duration,
        sink: RecordSink,
    ) -> Result<TelemetryRecording, Unavailable> {
        let control = Arc::new(SamplerControl::default());
        // Dropped with the closure if the thread does not start.
        let end = SamplerEnd { control: control.clone(), release };
        let (own, own_sink) = (control.clone(), sink.clone());
        let work = move || {
            let _end = end;
            run_reader(&own_sink, || sample_until_end(find(), period, &own, &own_sink));
        };
        let thread = thread::spawn(&format!("kineto-{collector}"), Box::new(work));
        thread.map_err(|error| Unavailable::no_thread(&error))?;
        Ok(TelemetryRecording { library, control, sink })
    }
}

/// Samples all devices at each turn.
fn sample_until_end(found: FoundDevices, period: Duration, control: &SamplerControl, sink: &RecordSink) {
    let FoundDevices { mut devices, notes } = found;
    notes.into_iter().for_each(|note| sink.note(note));
    control.change(|state| state.devices = devices.iter().map(|device| device.description.clone()).collect());
    let mut at = steady();
    while control.wait_for_turn(at) {
        if !is_recording(sink) {
            at = steady() + UNTIL_BEGUN;
            continue;
        }
        devices.iter_mut().for_each(|device| device.sample(control, sink));
        // Turns that were missed, in a pause or by a slow library, are not made up for.
        let now = steady();
        at = Some(at + period).filter(|at| *at > now).unwrap_or(now + period);
    }
}

/// Returns whether records are wanted now: a pause ends for the collectors before it ends for their records.
fn is_recording(sink: &RecordSink) -> bool {
    let now = realtime_now();
    !sink.is_waiting() && !sink.record(|batch| batch.is_paused(now, now))
}

impl Recording for TelemetryRecording {
    fn takes_slices(&self) -> bool {
        false
    }

    fn pause(&self) {
        self.control.change(|state| state.is_paused = true);
    }

    fn resume(&self) {
        self.control.change(|state| state.is_paused = false);
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        self.control.change(|state| state.is_stopping = true);
        let patience = EndLimits::new(steady(), deadline).library.min(STOP_PATIENCE);
        if !self.control.wait_for_end(patience) {
            self.sink.note(format!("{} hung in a reading; its later samples are missing", self.library));
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.control.lock_state().devices.clone()
    }
}

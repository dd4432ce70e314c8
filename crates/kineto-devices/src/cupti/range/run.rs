//! The parts that the metrics of kernels and those of annotations share.

use super::super::callbacks::{BegunCall, StreamPlace};
use super::super::error::INVALID_PARAMETER;
use super::super::metric_shapes::metric_words;
use super::super::profiler::ffi::CallFailure;
use super::super::start::Loaded;
use super::super::subscriber::Subscriber;
use super::RangePlan;
use super::captures::Captures;
use super::ffi::{RangeApi, RangeUnit, device_of_call, stream_of_call};
use super::functions::{ContextEnd, WatchedCall, find_functions};
use super::session::{DeviceMetrics, MissReason};
use crate::buffered::recording::RecordingApi;
use crate::clock::realtime_now;
use crate::cuda::Driver;
use crate::{Batch, Capabilities, RecordSink};
use kineto_model::Loss;
use kineto_model::activity::ActivityType;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The settings, functions and counts of a recording with metrics.
#[derive(Debug)]
pub(crate) struct RangeRun {
    api: &'static RangeApi,
    pub(super) driver: &'static Driver,
    subscriber: Subscriber,
    pub(super) sink: RecordSink,
    pub(super) functions: BTreeMap<(u32, u32), WatchedCall>,
    pub(super) captures: Arc<Captures>,
    pub(super) is_over: AtomicBool,
    /// Ranges that were measured or are being measured.
    begun: AtomicU64,
    /// Ranges that could not be measured, and those beyond the limit.
    missed: AtomicU64,
    beyond_limit: AtomicU64,
    plan: RangePlan,
}

/// How long the end of a context or a recording waits for a thread that begins or ends a range.
pub(super) const END_LIMIT: Duration = Duration::from_millis(500);

impl RangeRun {
    /// Subscribes to the calls that submit work; adds a note about those that cannot be watched.
    pub(crate) fn start(
        plan: RangePlan,
        loaded: &Loaded,
        subscriber: Subscriber,
        sink: &RecordSink,
        capabilities: &mut Capabilities,
    ) -> RangeRun {
        let functions = find_functions(subscriber, plan.settings.unit);
        let is_newer = is_newer(loaded.interfaces.version, loaded.driver.version());
        capabilities.notes.extend(watch_calls(subscriber, functions.keys(), is_newer));
        RangeRun {
            api: plan.api,
            driver: loaded.driver,
            subscriber,
            sink: sink.clone(),
            functions,
            captures: Arc::default(),
            is_over: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            beyond_limit: AtomicU64::new(0),
            plan,
        }
    }

    pub(super) fn unit(&self) -> RangeUnit {
        self.plan.settings.unit
    }

    /// Adds what is measured to the capabilities.
    pub(super) fn describe(&self, capabilities: &mut Capabilities) {
        self.plan.describe(capabilities);
    }

    pub(super) fn now(&self) -> u64 {
        self.subscriber.timestamp().unwrap_or_else(realtime_now)
    }

    /// Returns whether what begins now is wanted.
    pub(super) fn is_recording(&self) -> bool {
        let now = self.now();
        !self.is_over.load(Ordering::Acquire) && !self.sink.is_waiting() && !self.sink.pauses().covers(now, now)
    }

    /// Counts a range that begins; returns whether it may be measured.
    pub(super) fn is_below_limit(&self) -> bool {
        let most = self.plan.settings.max_ranges;
        let next = |begun: u64| (begun < most || most == 0).then_some(begun + 1);
        let is_below = self.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        if !is_below {
            self.beyond_limit.fetch_add(1, Ordering::Relaxed);
        }
        is_below
    }

    /// Makes place for another range instead of one that was begun and has no row.
    pub(super) fn give_back(&self) {
        self.begun.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the metrics of a context's device; `None` if it cannot be measured.
    pub(super) fn find_device(&self, context: usize) -> Result<Option<&Arc<DeviceMetrics>>, MissReason> {
        let number = self.api.find_device(context).map_err(MissReason::Failed)?.cast_signed();
        Ok(self.plan.devices.iter().find(|metrics| metrics.device == number))
    }

    /// Counts a range that could not be measured.
    pub(super) fn count_missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
        self.sink.lost(Loss::VendorDropped, 1);
    }

    pub(super) fn note_context_failure(&self, failed: CallFailure) {
        let unit = self.plan.settings.unit.plural();
        self.sink.note(format!("{unit} of a context are not measured: {}", failed.to_unavailable()));
    }

    /// Packs the values of a range, after its launches if they are counted.
    pub(super) fn metric_words(&self, batch: &mut Batch<'_>, launches: Option<u64>, values: &[f64]) -> Vec<u64> {
        let launches = launches.map(|launches| (batch.name("launches"), launches as f64));
        let mut named: Vec<_> = launches.into_iter().collect();
        for (metric, value) in self.plan.settings.metrics.iter().zip(values) {
            if value.is_finite() {
                named.push((batch.name(metric), *value));
            } else {
                batch.count_lost(Loss::CounterValues, 1);
            }
        }
        metric_words(&named)
    }

    /// Notes how many ranges have no row.
    pub(super) fn note_unmeasured(&self, one: &str, several: &str) {
        let [missed, beyond] = [&self.missed, &self.beyond_limit].map(|counter| counter.load(Ordering::Relaxed));
        let noun = |count| if count == 1 { one } else { several };
        if missed > 0 {
            self.sink.note(format!("{missed} {} could not be measured", noun(missed)));
        }
        if beyond > 0 {
            let (most, verb) = (self.plan.settings.max_ranges, if beyond == 1 { "was" } else { "were" });
            self.sink
                .note(format!("{beyond} {} {verb} not measured: CUPTI_PROFILER_MAX_RANGES is {most}", noun(beyond)));
        }
    }
}

/// The contexts that a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedContexts {
    /// The handle of the one.
    handle: Option<usize>,
    /// The device of all.
    device: Option<i32>,
    /// Whether they end whatever the program has retained.
    pub(super) is_certain: bool,
}

impl EndedContexts {
    /// Returns whether a context of a device is one of them; `None` is a device that is not measured.
    pub(super) fn has(&self, context: usize, device: Option<i32>) -> bool {
        self.handle.is_none_or(|handle| handle == context) && self.device.is_none_or(|ended| device == Some(ended))
    }
}

impl RangeRun {
    /// Returns the contexts that a call ends.
    pub(super) fn find_ended_contexts(&self, call: &BegunCall, end: ContextEnd) -> EndedContexts {
        let handle = match end {
            // It is where a stream would be.
            ContextEnd::Handle => stream_of_call(call.params, Some(StreamPlace::At(0))),
            _ => None,
        };
        let device = match end {
            ContextEnd::Device | ContextEnd::Release => device_of_call(call.params),
            ContextEnd::CurrentDevice if call.context != 0 => {
                self.api.find_device(call.context).ok().map(u32::cast_signed)
            }
            _ => None,
        };
        let is_certain = (handle.is_some() || device.is_some()) && end != ContextEnd::Release;
        EndedContexts { handle, device, is_certain }
    }
}

/// Returns whether this CUPTI is newer than the driver, and so knows functions that the driver lacks.
fn is_newer(cupti: u32, driver: i32) -> bool {
    // Before 13.0 its versions have numbers of their own.
    let version = match cupti {
        ..=25 => 12_060,
        26 | 27 => 12_080,
        28..=99 => 12_090,
        cupti => cupti / 100 * 10,
    };
    i64::from(version) > i64::from(driver)
}

/// Subscribes to functions; returns a note that names those that are not watched, if there are such.
fn watch_calls<'f>(
    subscriber: Subscriber,
    functions: impl Iterator<Item = &'f (u32, u32)>,
    is_newer: bool,
) -> Option<String> {
    let mut failed = Vec::new();
    for (domain, function) in functions {
        match subscriber.enable_call(*domain, *function) {
            // The driver does not have the function, so nothing calls it.
            Err(INVALID_PARAMETER) if is_newer => {}
            Err(error) => failed.push((subscriber.api.callback_name(*domain, *function).unwrap_or_default(), error)),
            Ok(()) => {}
        }
    }
    let (_, error) = failed.first()?;
    let names = failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    Some(format!("could not subscribe to calls, whose work may be missing or in another range: {names}: {error}"))
}

impl RangePlan {
    /// Adds what is measured to the capabilities.
    fn describe(&self, capabilities: &mut Capabilities) {
        let unit = self.settings.unit;
        let passes: BTreeMap<_, _> =
            self.devices.iter().map(|metrics| (metrics.device.to_string(), metrics.passes)).collect();
        let (replay, times, left_out) = match unit {
            RangeUnit::Kernels => (
                "kernel",
                "a row lasts as long as its launch, which waits for all passes",
                "kernels are replayed for CUPTI_PROFILER_METRICS, so other records of devices are left out",
            ),
            RangeUnit::Annotations => (
                "none: one pass",
                "a row lasts from the first launch to the end of all work; the device is idle at both",
                "annotations wait for their work for CUPTI_PROFILER_METRICS, so other records of devices are left out",
            ),
        };
        let mut about = json!({
            "metrics": self.settings.metrics,
            "ranges": unit.plural(),
            "replay": replay,
            "passes": passes,
            "max_ranges": self.settings.max_ranges,
            "times": times,
            "left_out": "kernels, copies, fills, waits and events of devices",
        });
        let kind = match unit {
            RangeUnit::Kernels => ActivityType::CudaProfilerRange,
            RangeUnit::Annotations => {
                let nested = "the outermost annotation of a thread is measured";
                about.as_object_mut().map(|about| about.insert("nested".to_owned(), nested.into()));
                ActivityType::GpuUserAnnotation
            }
        };
        capabilities.metadata.push(("range_metrics".to_owned(), about.to_string()));
        capabilities.types = capabilities.types.with(kind);
        capabilities.is_incomplete |= !self.failed.is_empty();
        let failed = |(device, why): &(i32, _)| format!("{} of GPU {device} are not measured: {why}", unit.plural());
        capabilities.notes.extend(self.failed.iter().map(failed));
        capabilities.notes.push(left_out.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_cupti_and_the_driver_are_compared() {
        let pairs = [(130_500, 13_000), (130_500, 13_050), (130_001, 13_000), (24, 12_040), (24, 12_060), (28, 13_000)];
        assert_eq!(pairs.map(|(cupti, driver)| is_newer(cupti, driver)), [true, false, false, true, false, false]);
    }

    #[test]
    fn ended_contexts_are_those_of_the_handle_or_device() {
        let ended = |handle, device| EndedContexts { handle, device, is_certain: true };
        assert!(ended(Some(7), None).has(7, None) && !ended(Some(7), None).has(8, Some(0)));
        assert!(ended(None, Some(1)).has(7, Some(1)));
        assert!(!ended(None, Some(1)).has(7, None) && !ended(None, Some(1)).has(7, Some(0)));
        assert!(ended(None, None).has(7, None));
    }
}

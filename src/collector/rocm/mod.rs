//! AMD's GPUs, through rocprofiler-sdk (ROCm 7), or roctracer where there is none, or one that is too old.
//!
//! Nothing of AMD's is loaded before there is a device, or a program that has HIP, and something of it is asked for.

mod captures;
mod hip;
mod ids;
mod launches;
mod sdk;
mod search;
mod shapes;
mod streams;
mod tracer;

use super::vendor::VendorFolder;
use super::{Attempt, Capabilities, Collector, DeviceDescription, Options, RecordSink, Selection, Unavailable, Why};
use crate::time::Timestamp;
use kineto_trace::activity::{ActivityTypes, CorrelationId};
use sdk::Sdk;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tracer::Tracer;

/// Records HIP: kernels, copies, fills and calls of the runtime.
///
/// Works with rocprofiler-sdk 1.0 and newer, and with roctracer 4 (ROCm 4.5 to 6). There may be any number of these in a
/// process; one of them records at a time, and others are told that it is [busy](Why::Busy).
///
/// rocprofiler-sdk has to be told of a profiler before the program's first call of HIP: by a recording that is started, or
/// by [`Profiler::prepare`](crate::Profiler::prepare). Later, some versions refuse it.
pub struct Rocm {
    /// The ways to the devices, best first.
    ways: [Box<dyn Collector>; 2],
    /// The one that is gone, for good.
    chosen: OnceLock<usize>,
    /// Whether ids are taken.
    takes_ids: AtomicBool,
}

impl fmt::Debug for Rocm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rocm").finish_non_exhaustive()
    }
}

/// What the table of vendors refers to.
pub(super) const VENDOR: VendorFolder = VendorFolder::new(|options| Arc::new(Rocm::new(options)));

/// Returns the most rows of devices, calls and work together; by default 5,000,000, as in libkineto.
fn max_rows(options: &Options) -> u64 {
    options.number("ROCTRACER_MAX_EVENTS").map_or(5_000_000, |most| u64::try_from(most).unwrap_or(0))
}

/// The collector's name, whichever way is gone.
const NAME: &str = "rocm";

impl Rocm {
    /// Makes a collector that finds AMD's libraries by these options (`KINETO_ROCPROFILER_PATH`, `ROCM_PATH` …). Opens nothing yet.
    pub fn new(options: &Options) -> Rocm {
        let ways: [Box<dyn Collector>; 2] =
            [Box::new(Sdk::new(options.clone())), Box::new(Tracer::new(options.clone()))];
        Rocm { ways, chosen: OnceLock::new(), takes_ids: AtomicBool::new(false) }
    }

    /// The way that is gone, if one is.
    fn way(&self) -> Option<&dyn Collector> {
        self.ways.get(*self.chosen.get()?).map(|way| &**way)
    }

    /// Chooses the first way whose library is there and fits.
    fn choose(&self) -> Result<&dyn Collector, Unavailable> {
        if let Some(way) = self.way() {
            return Ok(way);
        }
        search::gate()?;
        let mut reasons = Vec::new();
        for (at, way) in self.ways.iter().enumerate() {
            match way.probe() {
                Ok(_) => {
                    let at = *self.chosen.get_or_init(|| at);
                    return Ok(&**self.ways.get(at).unwrap_or(way));
                }
                Err(reason) => reasons.push(reason),
            }
        }
        Err(refused(&reasons))
    }
}

/// Makes one reason of those of all ways.
fn refused(reasons: &[Unavailable]) -> Unavailable {
    // Without a device no library would be of use.
    if let Some(no_device) = reasons.iter().find(|reason| reason.why() == Why::NoDevice) {
        return no_device.clone();
    }
    let (why, advice) = reasons.first().map_or((Why::LibraryNotFound, ""), |best| (best.why(), best.advice()));
    let messages: Vec<_> = reasons.iter().map(Unavailable::message).collect();
    Unavailable::new(why, messages.join(", and "), advice)
}

impl Collector for Rocm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn types(&self) -> ActivityTypes {
        self.ways.iter().fold(ActivityTypes::EMPTY, |types, way| types | way.types())
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.choose()?.probe()
    }

    fn start(&self, selection: &Selection, sink: RecordSink) -> Result<Capabilities, Unavailable> {
        let way = self.choose()?;
        let capabilities = way.start(selection, sink)?;
        self.takes_ids.store(true, Ordering::Release);
        Ok(capabilities)
    }

    fn push(&self, id: CorrelationId) -> bool {
        self.takes_ids.load(Ordering::Acquire) && ids::push(id.0)
    }

    fn pop(&self) {
        if self.takes_ids.load(Ordering::Acquire) {
            ids::pop();
        }
    }

    fn pause(&self) {
        if let Some(way) = self.way() {
            way.pause();
        }
    }

    fn resume(&self) {
        if let Some(way) = self.way() {
            way.resume();
        }
    }

    fn drain(&self) {
        if let Some(way) = self.way() {
            way.drain();
        }
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        self.takes_ids.store(false, Ordering::Release);
        if let Some(way) = self.way() {
            way.stop(end, deadline);
        }
    }

    fn stopped(&self) -> Option<String> {
        self.way()?.stopped()
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.ways.iter().flat_map(|way| way.attempts()).collect()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.way().map(Collector::devices).unwrap_or_default()
    }

    fn clock(&self) -> Option<u64> {
        self.way()?.clock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_device_nothing_else_is_the_matter() {
        let [missing, no_device] =
            [(Why::LibraryNotFound, "a"), (Why::NoDevice, "b")].map(|(why, text)| Unavailable::new(why, text, text));
        let reason = refused(&[missing.clone(), no_device]);
        assert_eq!((reason.why(), reason.message(), reason.advice()), (Why::NoDevice, "b", "b"));
        let reason = refused(&[missing.clone(), missing]);
        assert_eq!((reason.why(), reason.message(), reason.advice()), (Why::LibraryNotFound, "a, and a", "a"));
    }
}

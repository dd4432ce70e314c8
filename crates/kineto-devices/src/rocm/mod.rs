//! The collector of AMD's GPUs, through rocprofiler-sdk (ROCm 7), or roctracer if that is missing or too old.
//!
//! It loads no library of AMD's unless its types are selected, and there is a device or the program uses HIP.
//! Both backends write into the same [`rows`], and end on the thread of [`buffered`](super::buffered).

mod arguments;
mod captures;
mod hip;
mod ids;
mod launches;
mod rows;
mod sdk;
mod search;
mod shapes;
mod smi;
mod streams;
#[cfg(feature = "roctracer")]
mod tracer;

use super::telemetry::Telemetry;
use super::vendor::VendorFolder;
use super::{
    Attempt, Capabilities, Collector, DeviceDescription, Options, RecordSink, Recording, Selection, Unavailable, Why,
};
use kineto_model::activity::ActivityTypes;
use sdk::Sdk;
use smi::RocmSmi;
use std::fmt;
use std::sync::{Arc, OnceLock};
#[cfg(feature = "roctracer")]
use tracer::Tracer;

/// Records HIP: kernels, copies, fills and API calls of the runtime.
///
/// Works with rocprofiler-sdk 1.0 and newer, and, with the feature `roctracer`, with roctracer 4 (ROCm 4.5 to 6). A process may have several of
/// these collectors; only one records at a time, and the others report that it is [busy](Why::Busy).
///
/// A profiler must register with rocprofiler-sdk before the program's first HIP call: start a recording before, or
/// call `Libkineto::prepare`. Some versions reject a later registration.
pub struct Rocm {
    /// The backends, best first.
    backends: Vec<Box<dyn Collector>>,
    /// The backend in use, chosen once.
    chosen: OnceLock<usize>,
}

impl fmt::Debug for Rocm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rocm").finish_non_exhaustive()
    }
}

/// This vendor's row in the table of vendors.
pub(super) static VENDOR: VendorFolder = VendorFolder::new(&[shapes::LAYOUTS], |options| {
    let rocm = Arc::new(Rocm::new(options));
    vec![rocm.clone(), Arc::new(Telemetry::<RocmSmi>::new(rocm, options))]
});

/// The attribute of a device that holds its place on the PCI bus: the domain in the upper half; below, 8 bits of the bus, 5 of the
/// slot, 3 of the function, and the partition in the 4 highest bits.
const PCI_PLACE: &str = "pciPlace";

/// Returns the most rows of calls and device work together; by default 5,000,000, as in libkineto.
fn max_rows(options: &Options) -> u64 {
    options.number("ROCTRACER_MAX_EVENTS").map_or(5_000_000, |most| u64::try_from(most).unwrap_or(0))
}

/// The collector's name, whichever backend is in use.
const NAME: &str = "rocm";

impl Rocm {
    /// Makes a collector that finds AMD's libraries by these options (`KINETO_ROCPROFILER_PATH`, `ROCM_PATH` …). Opens nothing yet.
    pub fn new(options: &Options) -> Rocm {
        let backends: Vec<Box<dyn Collector>> = vec![
            Box::new(Sdk::new(options.clone())),
            #[cfg(feature = "roctracer")]
            Box::new(Tracer::new(options.clone())),
        ];
        Rocm { backends, chosen: OnceLock::new() }
    }

    /// Returns the backend in use.
    fn backend(&self) -> Option<&dyn Collector> {
        self.backends.get(*self.chosen.get()?).map(|backend| &**backend)
    }

    /// Chooses the first backend whose library is present and compatible.
    fn choose_backend(&self) -> Result<&dyn Collector, Unavailable> {
        if let Some(backend) = self.backend() {
            return Ok(backend);
        }
        search::check_for_device()?;
        let mut reasons = Vec::new();
        for (at, backend) in self.backends.iter().enumerate() {
            match backend.probe() {
                Ok(_) => {
                    let at = *self.chosen.get_or_init(|| at);
                    return Ok(&**self.backends.get(at).unwrap_or(backend));
                }
                Err(reason) => reasons.push(reason),
            }
        }
        if !cfg!(feature = "roctracer") {
            reasons.push(Unavailable::not_built("roctracer"));
        }
        Err(join_reasons(&reasons))
    }
}

/// Joins the reasons of all backends.
fn join_reasons(reasons: &[Unavailable]) -> Unavailable {
    // Without a device, the other reasons do not matter.
    if let Some(no_device) = reasons.iter().find(|reason| reason.why() == Why::NoDevice) {
        return no_device.clone();
    }
    let (why, advice) = reasons.first().map_or((Why::LibraryNotFound, ""), |best| (best.why(), best.advice()));
    let messages: Vec<_> = reasons.iter().map(Unavailable::message).collect();
    let is_built = reasons.iter().all(|reason| reason.why() != Why::Disabled);
    let other = if is_built { "" } else { "; or enable the feature `roctracer` of tracing-kineto, for ROCm up to 6" };
    Unavailable::new(why, messages.join(", and "), format!("{advice}{other}"))
}

impl Collector for Rocm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn types(&self) -> ActivityTypes {
        self.backends.iter().fold(ActivityTypes::EMPTY, |types, backend| types | backend.types())
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.choose_backend()?.probe()
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        self.choose_backend()?.start(selection, sink)
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.backends.iter().flat_map(|backend| backend.attempts()).collect()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.backend().map(Collector::devices).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_device_hides_other_reasons() {
        let [missing, no_device] =
            [(Why::LibraryNotFound, "a"), (Why::NoDevice, "b")].map(|(why, text)| Unavailable::new(why, text, text));
        let reason = join_reasons(&[missing.clone(), no_device]);
        assert_eq!((reason.why(), reason.message(), reason.advice()), (Why::NoDevice, "b", "b"));
        let reason = join_reasons(&[missing.clone(), missing]);
        assert_eq!((reason.why(), reason.message(), reason.advice()), (Why::LibraryNotFound, "a, and a", "a"));
    }

    #[test]
    fn missing_backend_is_named_with_its_feature() {
        let missing = Unavailable::new(Why::LibraryNotFound, "there is no a", "install a");
        let reason = join_reasons(&[missing, Unavailable::not_built("roctracer")]);
        assert_eq!(reason.message(), "there is no a, and this build lacks tracing-kineto's feature `roctracer`");
        let advice = "install a; or enable the feature `roctracer` of tracing-kineto, for ROCm up to 6";
        assert_eq!((reason.why(), reason.advice()), (Why::LibraryNotFound, advice));
    }
}

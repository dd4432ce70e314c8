//! The collector of NVIDIA's GPUs, through libcupti.
//!
//! The library is searched when it is first needed, and no function of it is called before the driver has answered:
//! some versions end the process otherwise. A recording shares libcupti with other profilers ([`shared`]), or excludes
//! them where the version or the driver cannot do that ([`subscriber`]). CUPTI fills buffers of this crate
//! ([`buffered`](super::buffered)), which a thread ([`worker`]) reads ([`steps`], [`records`], [`selected_fields`]) into
//! the recording ([`reader`], [`shapes`]). [`start`] sets all of this up.

mod advice;
mod callbacks;
mod error;
mod ffi;
mod holders;
mod hub;
mod kernel_driver;
mod kernels;
mod markers;
mod metric_shapes;
mod names;
mod nvtx;
#[cfg(feature = "metrics")]
mod pm;
#[cfg(feature = "metrics")]
mod profiler;
#[cfg(feature = "metrics")]
mod profiler_ffi;
#[cfg(feature = "metrics")]
mod range;
#[cfg(not(feature = "metrics"))]
#[path = "no_metrics.rs"]
mod range;
mod reader;
mod records;
mod search;
mod selected_fields;
mod shapes;
mod shared;
mod start;
mod steps;
mod subscriber;
mod subscription;
mod worker;

#[cfg(feature = "metrics")]
pub use pm::{GpuMetrics, MetricDescription, PmSampling};
#[cfg(fuzzing)]
pub use reader::fuzzing::read_cupti_buffer;

use super::buffered::recording::{BufferedRecording, LibraryState};
use super::cuda::Nvml;
use super::library::Attempt;
use super::library::lazy::LazyLibrary;
use super::telemetry::Telemetry;
use super::vendor::VendorFolder;
use super::{
    Capabilities, Collector, CudaEvents, DeviceDescription, EventTimers, Options, RecordSink, Recording, Selection,
    Unavailable,
};
use hub::HUB;
use kineto_model::activity::ActivityTypes;
use start::Loaded;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Records CUDA: kernels, copies, fills, API calls of the runtime and the driver, waits and events. On request, it
/// also records NVTX ranges of libraries and device memory.
///
/// Works with libcupti 11.7 to 13.5, and with newer versions as long as records only grow. A process may have several
/// of these collectors; only one records at a time, and the others report that it is [busy](super::Why::Busy).
#[derive(Debug)]
pub struct Cupti {
    loaded: LazyLibrary<Loaded>,
}

thread_local! {
    /// The recording for which stale ids were removed on this thread.
    static CLEAN_FOR: Cell<u32> = const { Cell::new(0) };
}

static LIBRARY: LibraryState =
    LibraryState { name: "libcupti", pool: &HUB.pool, lease: &HUB.lease, clean_for: &CLEAN_FOR, sees_ranges: true };

/// This vendor's row in the table of vendors.
pub(super) static VENDOR: VendorFolder = VendorFolder {
    layouts: &[shapes::LAYOUTS, metric_shapes::LAYOUTS],
    new_collectors: |options| {
        vec![
            Arc::new(Cupti::new(options)),
            #[cfg(feature = "metrics")]
            Arc::new(PmSampling::new(options)),
            Arc::new(Telemetry::<Nvml>::new((), options)),
        ]
    },
    new_timers: Some(|| Arc::new(EventTimers::new(CudaEvents::new()))),
    warnings: advice::option_warning,
    examine: advice::examine,
};

impl Cupti {
    /// Makes a collector that finds libcupti by these options (`KINETO_CUPTI_PATH`, `CUDA_HOME` …). Opens nothing yet.
    pub fn new(options: &Options) -> Cupti {
        Cupti { loaded: LazyLibrary::new(options.clone()) }
    }

    /// Finds the libraries, searching again until they are found.
    fn load(&self) -> Result<&Loaded, Unavailable> {
        self.loaded.get_or_find(Loaded::find)
    }
}

impl Collector for Cupti {
    fn name(&self) -> &'static str {
        "cupti"
    }

    fn types(&self) -> ActivityTypes {
        start::supported_types()
    }

    fn is_selected(&self, selection: &Selection) -> bool {
        let by_types = !self.types().intersection(selection.types).is_empty();
        let by_options = selection.options.flag("NVTX_RANGES") || start::names_metrics(&selection.options);
        by_types || selection.range.is_some() || by_options
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.load().map(Loaded::capabilities)
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        let loaded = self.load()?;
        HUB.owner.claim();
        if HUB.owner.is_inherited() {
            return Err(Unavailable::in_fork("recorded CUDA"));
        }
        let lease = HUB.acquire_lease().ok_or_else(|| Unavailable::library_in_use("libcupti"))?;
        HUB.set_range(selection.range.clone());
        let (capabilities, commands, kinds, subscriber) = loaded.start_recording(selection, &sink, lease)?;
        let driver = loaded.driver;
        let recording = BufferedRecording {
            library: LIBRARY,
            api: subscriber,
            commands,
            kinds,
            sink,
            devices: Box::new(|| driver.devices().to_vec()),
            is_over: AtomicBool::new(false),
        };
        Ok((capabilities, Box::new(recording)))
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.get().map(|loaded| loaded.driver.devices().to_vec()).unwrap_or_default()
    }
}

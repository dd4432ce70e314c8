//! The collector of Intel's GPUs, through libpti_view (Intel's Profiling Tools Interfaces).
//!
//! The library is searched when it is first needed, and no function of it is called before the driver has answered:
//! it ends the process otherwise ([`start`], [`level_zero`]). PTI fills buffers of this crate
//! ([`buffered`](super::buffered)), which a thread ([`worker`]) reads ([`records`]) into the recording ([`reader`], [`shapes`]). Kernel metrics have their own API ([`scope`]).

mod callbacks;
mod error;
mod ffi;
mod hub;
mod level_zero;
mod names;
mod reader;
mod records;
mod scope;
mod scope_ffi;
mod search;
mod shapes;
mod start;
mod streams;
mod sysman;
mod views;
mod worker;

use super::buffered::recording::{BufferedRecording, LibraryState};
use super::library::Attempt;
use super::library::lazy::LazyLibrary;
use super::telemetry::Telemetry;
use super::vendor::VendorFolder;
use super::{Capabilities, Collector, DeviceDescription, Options, RecordSink, Recording, Selection, Unavailable};
use hub::{HUB, Lease};
use kineto_model::activity::ActivityTypes;
use start::Loaded;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use sysman::Sysman;

/// Records Intel's GPUs: kernels, copies, fills, API calls of SYCL's runtime and of Level Zero, waits, collective
/// operations. On request, it also samples kernel metrics.
///
/// Works with libpti_view 0.12 to 1.2, and with newer versions as long as records only grow. A process may have
/// several of these collectors; only one records at a time, and the others report that it is
/// [busy](super::Why::Busy).
#[derive(Debug)]
pub struct Xpu {
    loaded: LazyLibrary<Loaded>,
}

thread_local! {
    /// The recording for which stale ids were removed on this thread.
    static CLEAN_FOR: Cell<u32> = const { Cell::new(0) };
}

static LIBRARY: LibraryState =
    LibraryState { name: "libpti_view", pool: &HUB.pool, lease: &HUB.lease, clean_for: &CLEAN_FOR, sees_ranges: false };

/// This vendor's row in the table of vendors.
pub(super) static VENDOR: VendorFolder = VendorFolder::new(&[shapes::LAYOUTS], |options| {
    let xpu = Arc::new(Xpu::new(options));
    vec![xpu.clone(), Arc::new(Telemetry::<Sysman>::new(xpu, options))]
});

impl Xpu {
    /// Makes a collector that finds libpti_view by these options (`KINETO_PTI_PATH`, `ONEAPI_ROOT` …). Opens nothing yet.
    pub fn new(options: &Options) -> Xpu {
        Xpu { loaded: LazyLibrary::new(options.clone()) }
    }

    /// Finds the libraries, searching again until they are found.
    fn load(&self) -> Result<&Loaded, Unavailable> {
        if HUB.owner.is_inherited() {
            return Err(Unavailable::in_fork("used Intel's GPUs"));
        }
        self.loaded.get_or_find(|options, attempts| Loaded::find(options, attempts).inspect(|_| HUB.owner.claim()))
    }
}

impl Collector for Xpu {
    fn name(&self) -> &'static str {
        "xpu"
    }

    fn types(&self) -> ActivityTypes {
        start::supported_types()
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
        let lease = Lease::acquire().ok_or_else(|| Unavailable::library_in_use("libpti_view"))?;
        let (capabilities, commands, views) = loaded.start_recording(selection, &sink, lease)?;
        let streams = loaded.streams.clone();
        let recording = BufferedRecording {
            library: LIBRARY,
            api: loaded.api,
            commands,
            kinds: views,
            sink,
            devices: Box::new(move || streams.devices()),
            is_over: AtomicBool::new(false),
        };
        Ok((capabilities, Box::new(recording)))
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.get().map(|loaded| loaded.streams.devices()).unwrap_or_default()
    }
}

//! The backend for roctracer, which ROCm has up to version 6.
//!
//! roctracer calls back around HIP calls, on the threads that make them ([`callbacks`]); arguments are read by offset
//! ([`args`]). It delivers records of device work ([`records`]) on its own thread. Both go into the [`recording`], of
//! which a process has one at a time ([`hub`]). The recording's thread flushes records, and waits at the end ([`worker`]).

mod args;
mod callbacks;
mod error;
mod ffi;
mod functions;
mod hub;
mod recording;
mod records;
mod runtime;
mod start;
mod worker;

use crate::buffered::commands::ReaderCommands;
use crate::clock::to_vendor_clock;
use crate::library::Attempt;
use crate::library::lazy::LazyLibrary;
use crate::rocm::ids;
use crate::{Capabilities, Collector, DeviceDescription, Options, RecordSink, Recording, Selection, Unavailable};
use hub::HUB;
use kineto_base::time::Timestamp;
use kineto_model::activity::{ActivityTypes, CorrelationId};
use start::Loaded;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records HIP through roctracer: kernels, copies, fills, and calls.
#[derive(Debug)]
pub(crate) struct Tracer {
    loaded: LazyLibrary<Arc<Loaded>>,
}

/// A running recording, which the hub holds until its thread has ended.
#[derive(Debug)]
struct RunningTracer {
    loaded: Arc<Loaded>,
    commands: Arc<ReaderCommands>,
    sink: RecordSink,
}

impl Tracer {
    /// Makes a collector that finds the libraries by these options. Opens nothing yet.
    pub(crate) fn new(options: Options) -> Tracer {
        Tracer { loaded: LazyLibrary::new(options) }
    }

    /// Finds the libraries, searching again until they are found.
    fn load(&self) -> Result<&Arc<Loaded>, Unavailable> {
        self.loaded.get_or_find(|options, attempts| Loaded::find(options, attempts).map(Arc::new))
    }
}

impl Collector for Tracer {
    fn name(&self) -> &'static str {
        "roctracer"
    }

    fn types(&self) -> ActivityTypes {
        start::supported_types()
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.load().map(|loaded| loaded.capabilities())
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        HUB.owner.claim();
        if HUB.owner.is_inherited() {
            return Err(Unavailable::in_fork("recorded HIP"));
        }
        let loaded = self.load()?.clone();
        let (capabilities, commands) = loaded.start_recording(selection, &sink)?;
        Ok((capabilities, Box::new(RunningTracer { loaded, commands, sink })))
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.get().map(|loaded| loaded.devices.clone()).unwrap_or_default()
    }
}

impl Recording for RunningTracer {
    fn push(&self, id: CorrelationId) -> bool {
        ids::push(id.0)
    }

    fn pop(&self) {
        ids::pop();
    }

    fn drain(&self, patience: Duration) {
        self.commands.drain(Duration::from_secs(1), patience);
    }

    fn clock(&self) -> Option<u64> {
        self.loaded.api.timestamp()
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        let at = to_vendor_clock(end, self.loaded.api.timestamp());
        self.commands.stop_recording("roctracer", &self.sink, at, deadline);
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.devices.clone()
    }
}

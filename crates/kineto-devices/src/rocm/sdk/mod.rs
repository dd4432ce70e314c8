//! The backend for rocprofiler-sdk 1.0 and newer, which is part of ROCm 7.
//!
//! This tool registers once in a process, before HIP starts ([`hub`]): contexts can only be made then. The library
//! calls back at each HIP call ([`callbacks`]), whose arguments it formats as text ([`arguments`](super::arguments)). It delivers
//! buffers of records ([`records`]), which are read into the recording ([`reader`]). The recording's thread flushes them at
//! the end ([`worker`]).

mod agents;
mod callbacks;
mod ffi;
mod hub;
mod names;
mod reader;
mod records;
mod runtime;
mod worker;

use super::{ids, search};
use crate::buffered::commands::ReaderCommands;
use crate::clock::to_vendor_clock;
use crate::library::Attempt;
use crate::library::lazy::LazyLibrary;
use crate::{Capabilities, Collector, DeviceDescription, Options, RecordSink, Recording, Selection, Unavailable, Why};
use ffi::Api;
use hub::{HUB, Hub};
use kineto_base::time::Timestamp;
use kineto_model::activity::{ActivityType, ActivityTypes, CorrelationId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records HIP through rocprofiler-sdk.
#[derive(Debug)]
pub(super) struct Sdk {
    loaded: LazyLibrary<Loaded>,
}

/// The loaded library.
#[derive(Debug)]
struct Loaded {
    api: &'static Api,
    version: [u32; 3],
    path: Option<PathBuf>,
}

/// A recording, which the hub holds.
#[derive(Debug)]
struct SdkRecording {
    api: &'static Api,
    hub: &'static Hub,
    commands: Arc<ReaderCommands>,
    sink: RecordSink,
}

/// The library's names.
const NAMES: [&str; 2] = ["librocprofiler-sdk.so.1", "librocprofiler-sdk.so"];

/// The types that can be recorded at best.
const TYPES: ActivityTypes = ActivityTypes::of(&[
    ActivityType::ConcurrentKernel,
    ActivityType::GpuMemcpy,
    ActivityType::GpuMemset,
    ActivityType::CudaRuntime,
    ActivityType::ExternalCorrelation,
]);

impl Sdk {
    pub(super) fn new(options: Options) -> Sdk {
        Sdk { loaded: LazyLibrary::new(options) }
    }

    /// Finds the library, searching again until it is found.
    fn load(&self) -> Result<&Loaded, Unavailable> {
        self.loaded.get_or_find(Loaded::find)
    }

    /// Queries HIP's versions, and checks whether the library reports these calls. Without HIP in the program there
    /// is nothing to check.
    ///
    /// These calls start HIP if it has not started: by now this tool is registered, as required.
    fn verify_calls_arrive(hub: &Hub, capabilities: &mut Capabilities) -> Result<(), Unavailable> {
        let before = hub.call_count();
        let versions = runtime::hip_versions();
        let made = !versions.is_empty();
        capabilities.metadata.extend(versions);
        capabilities.proven = made.then(|| hub.call_count() != before);
        if capabilities.proven == Some(false) {
            let message =
                "it is too late to record AMD's devices: HIP was used before, so rocprofiler-sdk reports no calls";
            return Err(Unavailable::new(Why::Unsupported, message, hub::EARLIER));
        }
        Ok(())
    }
}

impl Loaded {
    fn find(options: &Options, attempts: &mut Vec<Attempt>) -> Result<Loaded, Unavailable> {
        let library =
            search::find_library(&NAMES, options.path("KINETO_ROCPROFILER_PATH").as_deref(), options, attempts)
                .ok_or_else(|| {
                    let advice = "install rocprofiler-sdk (ROCm 7), or set KINETO_ROCPROFILER_PATH to the file";
                    Unavailable::new(Why::LibraryNotFound, "there is no librocprofiler-sdk.so.1", advice)
                })?;
        let incompatible = |message| Unavailable::new(Why::Incompatible, message, "use librocprofiler-sdk of ROCm 7");
        let version = ffi::library_version(library)
            .ok_or_else(|| incompatible("librocprofiler-sdk does not report its version".to_owned()))?;
        let text = version.map(|part| part.to_string()).join(".");
        attempts.push(Attempt::new("rocprofiler_get_version", text.clone()));
        if version[0] < 1 {
            return Err(incompatible(format!("librocprofiler-sdk {text} is older than 1.0, whose records differ")));
        }
        let api = Api::new(library)
            .map_err(|name| incompatible(format!("librocprofiler-sdk {text} lacks {}", name.to_string_lossy())))?;
        let path = library.path_by_symbol(c"rocprofiler_get_version");
        Ok(Loaded { api: Box::leak(Box::new(api)), version, path })
    }

    fn capabilities(&self) -> Capabilities {
        let [major, minor, _] = self.version;
        Capabilities {
            types: TYPES,
            metadata: vec![("rocprofiler-sdk_version".to_owned(), format!("{major}.{minor}"))],
            library: self.path.clone(),
            ..Capabilities::default()
        }
    }
}

impl Collector for Sdk {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn types(&self) -> ActivityTypes {
        TYPES
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
        let hub = hub::register_tool(loaded.api)?;
        if hub.process_names().agents.lacks_gpu() {
            let advice = "run `rocm-smi`";
            return Err(Unavailable::new(Why::NoDevice, "rocprofiler-sdk finds no GPU", advice));
        }
        hub.acquire()?;
        let mut capabilities = loaded.capabilities();
        capabilities.types = TYPES.intersection(selection.types);
        Sdk::verify_calls_arrive(hub, &mut capabilities).inspect_err(|_| hub.cancel_start())?;
        hub.begin_recording(selection, sink.clone());
        let commands = worker::spawn_thread(hub, sink.clone())?;
        if hub.process_names().agents.devices.is_empty() {
            capabilities.notes.push("rocprofiler-sdk lists no GPU; the device of work is unknown".to_owned());
        }
        Ok((capabilities, Box::new(SdkRecording { api: loaded.api, hub, commands, sink })))
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        HUB.get().map(|hub| hub.process_names().agents.devices.clone()).unwrap_or_default()
    }
}

impl Recording for SdkRecording {
    fn push(&self, id: CorrelationId) -> bool {
        ids::push(id.0)
    }

    fn pop(&self) {
        ids::pop();
    }

    fn pause(&self) {
        self.hub.stop_context();
    }

    fn resume(&self) {
        if let Err(reason) = self.hub.start_context() {
            self.sink.note(format!("could not resume after a pause: {reason}"));
        }
    }

    fn drain(&self, patience: Duration) {
        self.commands.drain(Duration::from_secs(1), patience);
    }

    fn stopped(&self) -> Option<String> {
        self.hub.is_final().then(|| "rocprofiler-sdk has ended".to_owned())
    }

    fn clock(&self) -> Option<u64> {
        self.api.timestamp()
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        let at = to_vendor_clock(end, self.api.timestamp());
        self.commands.stop_recording("rocprofiler-sdk", &self.sink, at, deadline);
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.hub.process_names().agents.devices.clone()
    }
}

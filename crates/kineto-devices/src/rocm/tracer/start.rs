//! Finds the libraries, and starts a recording.

use super::args;
use super::callbacks;
use super::error::TracerError;
use super::ffi::{Api, PoolHandle};
use super::functions::Functions;
use super::hub::HUB;
use super::recording::TracerRecording;
use super::runtime::Hip;
use super::worker::{POOL, TRAITS, TracerLibrary};
use crate::buffered::commands::ReaderCommands;
use crate::buffered::engine::ReaderThread;
use crate::buffered::kinds::PausableKinds;
use crate::library::Attempt;
use crate::rocm::{hip, ids, search};
use crate::{Capabilities, DeviceDescription, Options, RecordSink, Selection, Unavailable, Why};
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The loaded libraries.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) hip: Hip,
    pub(super) api: Api,
    pub(super) functions: Functions,
    pub(super) devices: Vec<DeviceDescription>,
    version: (u32, u32),
    hip_version: Option<i32>,
    path: Option<PathBuf>,
}

/// The types of device work.
const OF_DEVICES: ActivityTypes =
    ActivityTypes::of(&[ActivityType::ConcurrentKernel, ActivityType::GpuMemcpy, ActivityType::GpuMemset]);

/// The size of each of the pool's two buffers.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// The names of roctracer.
const NAMES: [&str; 2] = ["libroctracer64.so.4", "libroctracer64.so"];

/// The major version whose records are known.
const MAJOR: u32 = 4;

/// Returns the types that can be recorded at best.
pub(super) fn supported_types() -> ActivityTypes {
    OF_DEVICES.with(ActivityType::CudaRuntime).with(ActivityType::ExternalCorrelation)
}

impl Loaded {
    /// Finds HIP first, then roctracer. roctracer searches for HIP only once, and ends the process when it needs HIP
    /// and there is none.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn find(options: &Options, attempts: &mut Vec<Attempt>) -> Result<Loaded, Unavailable> {
        let library = search::find_library(&search::HIP, None, options, attempts);
        let hip = library.and_then(|library| Hip::new(library).ok()).ok_or_else(|| {
            let advice = "install ROCm, or set ROCM_PATH";
            Unavailable::new(Why::LibraryNotFound, "there is no HIP runtime (libamdhip64)", advice)
        })?;
        let devices = hip.devices();
        if devices.is_empty() {
            let advice = "run `rocm-smi`, and check HIP_VISIBLE_DEVICES";
            return Err(Unavailable::new(Why::NoDevice, "HIP finds no GPU", advice));
        }
        let library = search::find_library(&NAMES, options.path("KINETO_ROCTRACER_PATH").as_deref(), options, attempts)
            .ok_or_else(|| {
                let advice = "install roctracer (ROCm up to 6), or set KINETO_ROCTRACER_PATH";
                Unavailable::new(Why::LibraryNotFound, "there is no libroctracer64.so.4", advice)
            })?;
        let other = "use the libroctracer64.so.4 of ROCm 5 or 6 (KINETO_ROCTRACER_PATH)";
        let api = Api::new(library).map_err(|name| {
            let message = format!("libroctracer64 lacks {}", name.to_string_lossy());
            Unavailable::new(Why::Incompatible, message, other)
        })?;
        let version = api.version();
        attempts.push(Attempt::new("roctracer_version", format!("{}.{}", version.0, version.1)));
        if version.0 != MAJOR {
            let message = format!("libroctracer64 is version {}.{}, whose records are unknown", version.0, version.1);
            return Err(Unavailable::new(Why::Incompatible, message, other));
        }
        let hip_version = hip.runtime_version();
        let functions =
            Functions::new(|number| api.function_name(number), hip_version.is_some_and(args::are_known_for));
        let path = library.path_by_symbol(c"roctracer_version_major");
        Ok(Loaded { hip, api, functions, devices, version, hip_version, path })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let (major, minor) = self.version;
        let mut metadata = vec![("roctracer_version".to_owned(), format!("{major}.{minor}"))];
        metadata.extend(self.hip_version.map(|is| ("hip_runtime_version".to_owned(), is.to_string())));
        metadata.extend(self.hip.driver_version().map(|is| ("hip_driver_version".to_owned(), is.to_string())));
        let mut notes = Vec::new();
        if !self.hip_version.is_some_and(args::are_known_for) {
            let version = self.hip_version.map_or("of unknown version".to_owned(), |is| is.to_string());
            notes.push(format!(
                "arguments of HIP calls, and with them streams and grids, are missing: their layout in HIP {version} \
                 is unknown"
            ));
        }
        let library = self.path.clone();
        Capabilities { types: supported_types(), metadata, library, notes, ..Capabilities::default() }
    }

    /// Starts to record.
    pub(super) fn start_recording(
        self: &Arc<Loaded>,
        selection: &Selection,
        sink: &RecordSink,
    ) -> Result<(Capabilities, Arc<ReaderCommands>), Unavailable> {
        let mut capabilities = self.capabilities();
        capabilities.types = selection.types.intersection(supported_types());
        if self.api.is_used_by_another() && HUB.pool.get().is_none() {
            let note = "another profiler of this process uses roctracer; only the last to start gets the records";
            capabilities.notes.push(note.to_owned());
        }
        let recording =
            TracerRecording::new(capabilities.types, super::super::max_rows(&selection.options), sink.clone());
        if !HUB.acquire(recording, self.clone()) {
            return Err(Unavailable::library_in_use("roctracer"));
        }
        ids::begin_recording();
        let records = !capabilities.types.intersection(OF_DEVICES).is_empty();
        let (loaded, sink) = (self.clone(), sink.clone());
        let mut library = TracerLibrary { loaded, records, pool: None, sink, has_failed: false };
        library.pool = self.enable_recording(records)?;
        let commands = Arc::new(ReaderCommands::new(&POOL));
        let kinds = Arc::new(PausableKinds::none());
        ReaderThread::spawn("kineto-roctracer", TRAITS, &POOL, &commands, &kinds, Box::new(library))?;
        capabilities.proven = self.verify_calls_arrive(selection);
        if capabilities.proven == Some(false) {
            capabilities.notes.push("no call was reported during the start".to_owned());
        }
        Ok((capabilities, commands))
    }

    /// Makes roctracer report calls, and write records of device work into the pool if selected.
    fn enable_recording(&self, records: bool) -> Result<Option<PoolHandle>, Unavailable> {
        let failed = |during: &str, error: TracerError| error.to_unavailable(during, &self.api.last_error_text());
        let calls = self.api.enable_calls(callbacks::on_call, &hip::NOISE);
        calls.map_err(|error| failed("roctracer_enable_domain_callback", error))?;
        let pool = match HUB.pool.get() {
            _ if !records => None,
            Some(pool) => Some(*pool),
            None => {
                let made = self.api.open_pool(BUFFER_BYTES, callbacks::on_records);
                let made = made.map_err(|error| failed("roctracer_open_pool_expl", error))?;
                Some(*HUB.pool.get_or_init(|| made))
            }
        };
        if let Some(pool) = pool {
            let enabled = self.api.enable_records(pool);
            enabled.map_err(|error| failed("roctracer_enable_domain_activity_expl", error))?;
        }
        self.api.start_domains();
        Ok(pool)
    }

    /// Disables calls and records. roctracer as a whole is not stopped: other tools may use it.
    pub(super) fn disable_recording(&self, records: bool) {
        let _ = self.api.disable_calls();
        if records {
            let _ = self.api.disable_records();
        }
    }

    /// Makes a call without effects, and checks whether it is reported.
    fn verify_calls_arrive(&self, selection: &Selection) -> Option<bool> {
        if selection.proof == Duration::ZERO {
            return None;
        }
        self.hip.driver_version()?;
        HUB.with_recording(|recording| {
            // This call is not part of the recording, which begins now.
            recording.rows.left = super::super::max_rows(&selection.options);
            recording.has_callback
        })
    }
}

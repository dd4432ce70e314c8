//! Finds the libraries, and starts a recording.

use super::callbacks;
use super::error::PtiError;
use super::ffi::{Api, Version, library_version};
use super::hub::{HUB, Lease};
use super::level_zero::{LevelZero, LevelZeroGpu};
use super::reader::Reader;
use super::scope::Sampling;
use super::scope_ffi::ScopeApi;
use super::search;
use super::streams::Streams;
use super::views::{self, Refused};
use super::worker::{PtiLibrary, TRAITS};
use crate::buffered::commands::ReaderCommands;
use crate::buffered::engine::ReaderThread;
use crate::buffered::kinds::PausableKinds;
use crate::buffered::pool::OverflowBuffers;
use crate::buffered::recording::RecordingApi;
use crate::library::{Attempt, Library};
use crate::{Capabilities, Options, RecordSink, Selection, Unavailable, Why};
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The loaded libraries.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) api: &'static Api,
    pub(super) streams: Arc<Streams>,
    gpus: Vec<LevelZeroGpu>,
    /// The API of metrics, or the name of a missing function.
    scope: Result<&'static ScopeApi, String>,
    version: Version,
    path: Option<PathBuf>,
    /// SYCL was loaded before PTI.
    is_late: bool,
}

/// The oldest version whose records are known.
const MIN_VERSION: Version = Version(0, 12, 0);

impl Loaded {
    /// Finds a GPU, the loader of its driver, and then PTI. Only PTI's version is queried before the driver has
    /// answered: without a driver, PTI ends the process.
    ///
    /// PTI is loaded before the driver starts, since it enables tracing by an environment variable.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn find(options: &Options, attempts: &mut Vec<Attempt>) -> Result<Loaded, Unavailable> {
        if !cfg!(target_os = "linux") {
            return Err(Unavailable::new(
                Why::Unsupported,
                "Intel's GPUs are recorded on Linux alone",
                "record on Linux",
            ));
        }
        search::check_for_gpu(attempts)?;
        let level_zero = LevelZero::open(attempts)?;
        let is_late = is_sycl_without_pti(&read_process_maps());
        let library = search::find_library(options, attempts).ok_or_else(|| {
            let message = "no usable libpti_view found";
            let advice = "`pip install intel-pti`, or set KINETO_PTI_PATH to the file";
            Unavailable::new(Why::LibraryNotFound, message, advice)
        })?;
        let (api, version) = resolve_functions(library, attempts)?;
        let gpus = level_zero.list_gpus(attempts)?;
        search::open_core(library, attempts);
        let scope =
            ScopeApi::new(library).map_err(|name| format!("libpti_view {version} lacks {}", name.to_string_lossy()));
        let scope = scope.map(|scope| &*Box::leak(Box::new(scope)));
        let (path, streams) = (library.path_by_symbol(c"ptiVersion"), Arc::new(Streams::new(gpus.clone())));
        // Cached from here on; a missing library is searched again at each start.
        Ok(Loaded { api: Box::leak(Box::new(api)), streams, gpus, scope, version, path, is_late })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let late = "SYCL was loaded before libpti_view, so its API calls may be missing; build the \
                    layer, or load libpti_view, before the first use of SYCL";
        Capabilities {
            types: match self.scope {
                Ok(_) => supported_types(),
                Err(_) => views::supported_types(),
            },
            metadata: vec![("xpupti_version".to_owned(), format!("\"{}\"", self.version))],
            library: self.path.clone(),
            notes: if self.is_late { vec![late.to_owned()] } else { Vec::new() },
            ..Capabilities::default()
        }
    }

    /// Starts to record, while holding the lease.
    pub(super) fn start_recording(
        &self,
        selection: &Selection,
        sink: &RecordSink,
        lease: Lease,
    ) -> Result<(Capabilities, Arc<ReaderCommands>, Arc<PausableKinds>), Unavailable> {
        let mut capabilities = self.capabilities();
        if !HUB.pool.open(selection.buffer_bytes, OverflowBuffers::Always(callbacks::SCRAPS)) {
            return Err(Unavailable::new(Why::Failed, "out of memory for records", "free memory, or raise its limit"));
        }
        HUB.pool.preallocate();
        self.streams.clear();
        let (commands, views) = self.enable_recording(selection, sink, lease, &mut capabilities)?;
        Ok((capabilities, commands, views))
    }

    /// Makes PTI record the selection into buffers of this crate.
    fn enable_recording(
        &self,
        selection: &Selection,
        sink: &RecordSink,
        mut lease: Lease,
        capabilities: &mut Capabilities,
    ) -> Result<(Arc<ReaderCommands>, Arc<PausableKinds>), Unavailable> {
        let failed = |error: PtiError| error.to_unavailable("ptiViewSetCallbacks");
        self.api.set_callbacks(callbacks::on_request, callbacks::on_complete).map_err(failed)?;
        let since = self.api.timestamp().unwrap_or(0);
        let (views, enabled, refused) = views::enable_views(&self.api, selection.types);
        let sampling = self.start_sampling(selection, capabilities);
        capabilities.types = enabled;
        if sampling.is_some() {
            capabilities.types |= ActivityTypes::from_type(ActivityType::XpuScopeProfiler);
        }
        if let (Some(first), true) = (refused.first(), capabilities.types.is_empty()) {
            return Err(first.error.to_unavailable("ptiViewEnable"));
        }
        for refused in refused.iter().filter(|refused| !refused.is_partial) {
            capabilities.is_incomplete = true;
            capabilities.notes.push(refusal_note(refused));
        }
        /// Longer than a flush takes: until the views are enabled, launches have no call in the trace.
        const PATIENCE: Duration = Duration::from_millis(100);
        let (calls, others) = views.into_iter().partition(|view| views::is_of_calls(*view));
        let views = Arc::new(PausableKinds::new(self.api, calls, others, PATIENCE));
        let commands = Arc::new(ReaderCommands::new(&HUB.pool));
        lease.views = Some(views.clone());
        let (types, streams) = (capabilities.types, self.streams.clone());
        let reader = Reader::new(sink.clone(), types, Box::new(self.api), streams, since);
        let library = PtiLibrary { api: self.api, views: views.clone(), reader, sampling, _lease: lease };
        ReaderThread::spawn("kineto-xpu", TRAITS, &HUB.pool, &commands, &views, Box::new(library))?;
        Ok((commands, views))
    }

    /// Starts to sample metrics, if selected.
    fn start_sampling(&self, selection: &Selection, capabilities: &mut Capabilities) -> Option<Sampling> {
        if !selection.types.contains(ActivityType::XpuScopeProfiler) {
            return None;
        }
        let api = self.scope.as_ref().map_err(Clone::clone);
        match api.and_then(|api| Sampling::start(api, &selection.options, &self.gpus)) {
            Ok((sampling, note)) => {
                capabilities.notes.extend(note);
                Some(sampling)
            }
            Err(why) => {
                capabilities.notes.push(format!("kernel metrics are not sampled: {why}"));
                None
            }
        }
    }
}

/// Resolves PTI's functions, if its version is supported.
fn resolve_functions(library: Library, attempts: &mut Vec<Attempt>) -> Result<(Api, Version), Unavailable> {
    let advice = "use PTI 0.12 or newer: `pip install -U intel-pti`";
    let incompatible = |message: String| Unavailable::new(Why::Incompatible, message, advice);
    let version = library_version(library).ok_or_else(|| incompatible("libpti_view lacks ptiVersion".to_owned()))?;
    attempts.push(Attempt::new("ptiVersion", version.to_string()));
    if version < MIN_VERSION {
        return Err(incompatible(format!("libpti_view {version} is too old: {MIN_VERSION} is required")));
    }
    let missing =
        |name: &std::ffi::CStr| incompatible(format!("libpti_view {version} lacks {}", name.to_string_lossy()));
    Ok((Api::new(library).map_err(missing)?, version))
}

/// Returns a note on why a type is not recorded.
fn refusal_note(refused: &Refused) -> String {
    let newer = if refused.kind == ActivityType::CollectiveComm { "; it needs PTI 0.17 or newer" } else { "" };
    format!(
        "{} is not recorded, or only in part: {}{}{newer}",
        refused.kind,
        refused.error,
        refused.error.advice_suffix()
    )
}

/// Returns the types that can be recorded at best.
pub(super) fn supported_types() -> ActivityTypes {
    views::supported_types().with(ActivityType::XpuScopeProfiler)
}

fn read_process_maps() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap_or_default()
}

fn is_sycl_without_pti(maps: &str) -> bool {
    maps.contains("/libsycl.so") && !maps.contains("/libpti_view.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_order() {
        assert!(Version(0, 11, 0) < MIN_VERSION && Version(0, 12, 4) >= MIN_VERSION && Version(1, 0, 0) > MIN_VERSION);
        assert_eq!(MIN_VERSION.to_string(), "0.12.0");
    }

    #[test]
    fn sycl_before_pti_is_detected() {
        assert!(is_sycl_without_pti("7f00 r-xp /opt/lib/libsycl.so.8\n"));
        assert!(!is_sycl_without_pti("7f00 r-xp /opt/lib/libsycl.so.8\n7f00 r-xp /opt/lib/libpti_view.so.1\n"));
        assert!(!is_sycl_without_pti(""));
    }
}

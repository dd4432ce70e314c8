//! Finds the libraries, and begins a recording with them.

use super::callbacks;
use super::error::PtiError;
use super::ffi::{Api, Version, version};
use super::hub::{HUB, Lease};
use super::level_zero::{LevelZero, LevelZeroGpu};
use super::reader::Reader;
use super::scope::Sampling;
use super::scope_ffi::ScopeApi;
use super::search;
use super::streams::Streams;
use super::views::{self, Refused, Views};
use super::worker::{ReaderCommands, Worker};
use crate::collector::library::{Attempt, Library};
use crate::collector::pool::OverflowBuffers;
use crate::collector::reader_commands::EndNotifier;
use crate::collector::{Capabilities, Options, RecordSink, Selection, Unavailable, Why};
use kineto_trace::activity::{ActivityType, ActivityTypes};
use std::path::PathBuf;
use std::sync::Arc;

/// The libraries, once they are found.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) api: &'static Api,
    pub(super) streams: Arc<Streams>,
    gpus: Vec<LevelZeroGpu>,
    /// What samples metrics, or what it lacks.
    scope: Result<&'static ScopeApi, String>,
    version: Version,
    path: Option<PathBuf>,
    /// SYCL was in the process before PTI.
    came_late: bool,
}

/// The oldest version whose records are known.
const LEAST: Version = Version(0, 12, 0);

impl Loaded {
    /// Finds a GPU, the loader of its driver, and only behind it PTI, of which nothing is called but its version before
    /// the driver has answered: it ends the process where there is none.
    ///
    /// PTI is loaded before the driver begins, since it says in the environment that it wants to trace.
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
        search::device(attempts)?;
        let level_zero = LevelZero::open(attempts)?;
        let came_late = is_sycl_without_pti(&maps());
        let library = search::library(options, attempts).ok_or_else(|| {
            let message = "there is no libpti_view that can be loaded";
            let advice = "`pip install intel-pti`, or set KINETO_PTI_PATH to the file";
            Unavailable::new(Why::LibraryNotFound, message, advice)
        })?;
        let (api, version) = functions(library, attempts)?;
        let gpus = level_zero.gpus(attempts)?;
        search::core(library, attempts);
        let scope =
            ScopeApi::new(library).map_err(|name| format!("libpti_view {version} has no {}", name.to_string_lossy()));
        let scope = scope.map(|scope| &*Box::leak(Box::new(scope)));
        let (path, streams) = (library.path(c"ptiVersion"), Arc::new(Streams::new(gpus.clone())));
        // For good, once all is there: what is missing is looked for anew at each start.
        Ok(Loaded { api: Box::leak(Box::new(api)), streams, gpus, scope, version, path, came_late })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let late = "SYCL was in the process before libpti_view: calls of its runtime may be missing; build the \
                    layer, or load libpti_view, before the first use of SYCL";
        Capabilities {
            types: match self.scope {
                Ok(_) => types(),
                Err(_) => views::types(),
            },
            metadata: vec![("xpupti_version".to_owned(), format!("\"{}\"", self.version))],
            library: self.path.clone(),
            notes: if self.came_late { vec![late.to_owned()] } else { Vec::new() },
            ..Capabilities::default()
        }
    }

    /// Begins to record, once the hub is ours.
    pub(super) fn start(
        &self,
        selection: &Selection,
        sink: &RecordSink,
        lease: Lease,
    ) -> Result<(Capabilities, Arc<ReaderCommands>, Arc<Views>), Unavailable> {
        let mut capabilities = self.capabilities();
        if !HUB.pool.open(selection.buffer_bytes, OverflowBuffers::Always(callbacks::SCRAPS)) {
            return Err(Unavailable::new(
                Why::Failed,
                "there is no memory for records",
                "free memory, or raise its limit",
            ));
        }
        HUB.pool.preallocate();
        self.streams.clear();
        let (commands, views) = self.arm(selection, sink, lease, &mut capabilities)?;
        Ok((capabilities, commands, views))
    }

    /// Has PTI record what is asked for into buffers of ours.
    fn arm(
        &self,
        selection: &Selection,
        sink: &RecordSink,
        mut lease: Lease,
        capabilities: &mut Capabilities,
    ) -> Result<(Arc<ReaderCommands>, Arc<Views>), Unavailable> {
        let failed = |error: PtiError| error.reason("ptiViewSetCallbacks");
        self.api.set_callbacks(callbacks::requested, callbacks::completed).map_err(failed)?;
        let since = self.api.timestamp().unwrap_or(0);
        let (views, enabled, refused) = Views::enable(Box::new(self.api), selection.types);
        let sampling = self.sample(selection, capabilities);
        capabilities.types = enabled;
        if sampling.is_some() {
            capabilities.types |= ActivityTypes::from_type(ActivityType::XpuScopeProfiler);
        }
        if let (Some(first), true) = (refused.first(), capabilities.types.is_empty()) {
            return Err(first.error.reason("ptiViewEnable"));
        }
        for refused in refused.iter().filter(|refused| !refused.is_beside) {
            capabilities.is_incomplete = true;
            capabilities.notes.push(refusal_note(refused));
        }
        let (views, commands) = (Arc::new(views), Arc::new(ReaderCommands::new(&HUB.pool)));
        lease.views = Some(views.clone());
        let (types, streams) = (capabilities.types, self.streams.clone());
        let reader = Reader::new(sink.clone(), types, Box::new(self.api), streams, since);
        let worker = Worker {
            api: self.api,
            views: views.clone(),
            reader,
            commands: commands.clone(),
            sampling,
            pausing: None,
            _lease: lease,
            _ended: EndNotifier(commands.clone()),
        };
        let thread = std::thread::Builder::new().name("kineto-xpu".to_owned());
        thread.spawn(move || worker.run()).map_err(|error| Unavailable::no_thread(&error))?;
        Ok((commands, views))
    }

    /// Begins to sample metrics, if that is selected.
    fn sample(&self, selection: &Selection, capabilities: &mut Capabilities) -> Option<Sampling> {
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
                capabilities.notes.push(format!("metrics of kernels are not sampled: {why}"));
                None
            }
        }
    }
}

/// Finds PTI's functions, if its version is one whose records are known.
fn functions(library: Library, attempts: &mut Vec<Attempt>) -> Result<(Api, Version), Unavailable> {
    let advice = "use PTI 0.12 or newer: `pip install -U intel-pti`";
    let incompatible = |message: String| Unavailable::new(Why::Incompatible, message, advice);
    let version = version(library).ok_or_else(|| incompatible("libpti_view has no ptiVersion".to_owned()))?;
    attempts.push(Attempt::new("ptiVersion", version.to_string()));
    if version < LEAST {
        return Err(incompatible(format!("libpti_view {version} is too old: {LEAST} is needed")));
    }
    let missing =
        |name: &std::ffi::CStr| incompatible(format!("libpti_view {version} has no {}", name.to_string_lossy()));
    Ok((Api::new(library).map_err(missing)?, version))
}

/// Returns why a type is not recorded.
fn refusal_note(refused: &Refused) -> String {
    let newer = if refused.kind == ActivityType::CollectiveComm { "; PTI 0.17 or newer has it" } else { "" };
    format!("{} is not recorded, or not all of it: {}{}{newer}", refused.kind, refused.error, refused.error.hint())
}

/// What can be recorded at best.
pub(super) fn types() -> ActivityTypes {
    views::types().with(ActivityType::XpuScopeProfiler)
}

fn maps() -> String {
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
        assert!(Version(0, 11, 0) < LEAST && Version(0, 12, 4) >= LEAST && Version(1, 0, 0) > LEAST);
        assert_eq!(LEAST.to_string(), "0.12.0");
    }

    #[test]
    fn sycl_should_come_behind_pti() {
        assert!(is_sycl_without_pti("7f00 r-xp /opt/lib/libsycl.so.8\n"));
        assert!(!is_sycl_without_pti("7f00 r-xp /opt/lib/libsycl.so.8\n7f00 r-xp /opt/lib/libpti_view.so.1\n"));
        assert!(!is_sycl_without_pti(""));
    }
}

//! Finds the libraries, and starts a recording.

use super::callbacks::{self, UNLOADS};
use super::error::{CuptiError, INVALID_PARAMETER};
use super::ffi::{Api, DRIVER, RUNTIME};
use super::hub::{HUB, Lease};
use super::nvtx::find_nvtx_fault;
use super::range::{RangeLibrary, RangePlan};
use super::reader::Reader;
use super::records::kind;
use super::selected_fields::RecordRestorer;
use super::shared::{self, NamedApi, SharedApi};
use super::subscriber::{Interfaces, Subscriber};
use super::subscription::Subscription;
use super::worker::{CuptiLibrary, HardwareTimes, TRAITS};
use super::{names, search};
use crate::buffered::commands::ReaderCommands;
use crate::buffered::engine::ReaderThread;
use crate::buffered::kinds::{KindSwitch, PausableKinds};
use crate::buffered::pool::{OverflowBuffers, ScrapLimits};
use crate::cuda::{Driver, cuda_version, is_inside_init};
use crate::library::{Attempt, Library};
use crate::{Capabilities, Options, RecordSink, Selection, Unavailable, Why};
use kineto_base::wait::{sleep, steady};
use kineto_model::activity::{ActivityType, ActivityTypes, DeviceType};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The loaded libraries.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) driver: &'static Driver,
    pub(super) interfaces: Interfaces,
    pub(super) library: Library,
    pub(super) path: Option<PathBuf>,
    /// The driver functions that unload kernels.
    unloads: Vec<u32>,
    ranges: OnceLock<Result<RangeLibrary, Unavailable>>,
}

/// The activity types, with their CUPTI kinds, in the order in which they are enabled.
///
/// Work comes before calls: the stop waits for the work of each recorded launch, and a program may launch meanwhile.
const KINDS: [(ActivityType, &[u32]); 9] = [
    (ActivityType::ConcurrentKernel, &[kind::CONCURRENT_KERNEL]),
    (ActivityType::GpuMemcpy, &[kind::MEMCPY, kind::MEMCPY2]),
    (ActivityType::GpuMemset, &[kind::MEMSET]),
    (ActivityType::CudaRuntime, &[kind::RUNTIME]),
    (ActivityType::CudaDriver, &[kind::DRIVER]),
    (ActivityType::ExternalCorrelation, &[kind::EXTERNAL_CORRELATION]),
    // Resolves waits: the event's own record says where it was recorded.
    (ActivityType::CudaSync, &[kind::SYNCHRONIZATION, kind::CUDA_EVENT]),
    (ActivityType::CudaEvent, &[kind::CUDA_EVENT]),
    (ActivityType::Overhead, &[kind::OVERHEAD]),
];

/// The types of NVTX markers.
const BY_NVTX: ActivityTypes = ActivityTypes::of(&[ActivityType::UserAnnotation, ActivityType::CpuInstantEvent]);

/// The CUPTI version since which a request for a buffer may be refused (libkineto's experience).
const REFUSALS_SINCE: u32 = 27;
/// The buffers that older versions get beyond the limit.
pub(super) const SCRAPS: ScrapLimits = ScrapLimits { bytes: 64 << 10, most: 32 };

impl Loaded {
    /// Finds the driver first, then the library: some versions end the process without a driver.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn find(options: &Options, attempts: &mut Vec<Attempt>) -> Result<Loaded, Unavailable> {
        if !cfg!(target_os = "linux") {
            return Err(Unavailable::new(Why::Unsupported, "CUDA is recorded on Linux alone", "record on Linux"));
        }
        let driver = Driver::open(attempts)?;
        let library = search::find_library(options, driver.version(), attempts).ok_or_else(|| {
            let message = format!("there is no libcupti for {}", cuda_version(driver.version()));
            let advice = "`pip install nvidia-cuda-cupti` (nvidia-cuda-cupti-cu12 for CUDA 12), or set KINETO_CUPTI_PATH \
                          to the file";
            Unavailable::new(Why::LibraryNotFound, message, advice)
        })?;
        let api = Api::new(library).map_err(|name| {
            let message = format!("libcupti lacks {}", name.to_string_lossy());
            Unavailable::new(Why::Incompatible, message, "use libcupti of CUDA 11.7 or newer")
        })?;
        if library.has_symbol(c"cuptiActivityEnable_v2") && !driver.has_export_table() {
            let message = "the CUDA driver has no cuGetExportTable, which this libcupti needs";
            return Err(Unavailable::new(Why::Incompatible, message, "use NVIDIA's driver, or libcupti 13.1 or older"));
        }
        let version = api.version().map_err(|error| error.to_unavailable("cuptiGetVersion", ""))?;
        attempts.push(Attempt::new("cuptiGetVersion", version.to_string()));
        let path = library.path_by_symbol(c"cuptiGetVersion");
        // Cached from here on; a missing library is searched again at each start.
        let (driver, api): (&_, &_) = (Box::leak(Box::new(driver)), Box::leak(Box::new(api)));
        let interfaces = Interfaces {
            version,
            api,
            named: NamedApi::new(library).ok().map(|named| &*Box::leak(Box::new(named))),
            shared: SharedApi::new(library)
                .ok()
                .filter(|_| version >= shared::SINCE)
                .map(|shared| &*Box::leak(Box::new(shared))),
        };
        // CUDA 13 has some 800 functions.
        let is_unload = |number: &u32| api.callback_name(DRIVER, *number).is_some_and(|it| UNLOADS.contains(&&*it));
        let unloads = (1..2048).filter(is_unload).collect();
        Ok(Loaded { driver, interfaces, library, path, unloads, ranges: OnceLock::new() })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let Interfaces { version, api, .. } = self.interfaces;
        let missing = api.missing_functions();
        let notes = match &missing[..] {
            [] => Vec::new(),
            missing => vec![format!("libcupti {version} lacks {}", missing.join(", "))],
        };
        Capabilities {
            types: supported_types(),
            metadata: vec![
                ("cupti_version".to_owned(), version.to_string()),
                ("cuda_driver_version".to_owned(), self.driver.version().to_string()),
            ],
            library: self.path.clone(),
            notes,
            ..Capabilities::default()
        }
    }

    /// Returns the functions that measure ranges.
    ///
    /// # Errors
    /// The library is too old.
    #[cfg(feature = "metrics")]
    pub(super) fn range_library(&self) -> Result<&RangeLibrary, Unavailable> {
        self.ranges.get_or_init(|| RangeLibrary::find(self)).as_ref().map_err(Unavailable::clone)
    }

    /// Prepares the metrics of kernels or annotations, if the selection names some; without the types that exclude each other.
    ///
    /// # Errors
    /// Why nothing can be measured, if nothing else is recorded.
    fn plan_ranges(&self, selection: &mut Selection) -> Result<(Option<RangePlan>, Option<Unavailable>), Unavailable> {
        if !names_metrics(&selection.options) {
            return Ok((None, None));
        }
        let records_else = !selection.types.intersection(supported_types()).is_empty() || selection.range.is_some();
        match RangePlan::new(self, selection) {
            Ok(plan) => {
                selection.types = RangePlan::allowed_types(selection.types);
                Ok((Some(plan), None))
            }
            Err(reason) if records_else => Ok((None, Some(reason))),
            Err(reason) => Err(reason),
        }
    }

    /// Starts to record, while holding the lease.
    pub(super) fn start_recording(
        &self,
        selection: &Selection,
        sink: &RecordSink,
        lease: Lease,
    ) -> Result<(Capabilities, Arc<ReaderCommands>, Arc<PausableKinds>, Subscriber), Unavailable> {
        // Inside `cuInit` the device count is not known yet, and records only arrive once it is done.
        let is_inside = is_inside_init();
        if !is_inside && self.driver.devices().is_empty() {
            let advice = "run `nvidia-smi`, and check CUDA_VISIBLE_DEVICES";
            return Err(Unavailable::new(Why::NoDevice, "the CUDA driver finds no GPU", advice));
        }
        let mut selection = selection.clone();
        let (plan, refused) = self.plan_ranges(&mut selection)?;
        let selection = &selection;
        // A library that others use must not be detached, and the first subscriber of a process decides about graphs for all.
        let exclusive = ["CUPTI_EXCLUSIVE", "TEARDOWN_CUPTI", "CUDA_GRAPH_TRACE"];
        let exclusive = exclusive.iter().any(|option| selection.options.flag(option));
        let (subscriber, other) = self.interfaces.subscribe(callbacks::on_call, exclusive)?;
        let mut capabilities = self.capabilities();
        capabilities.notes.extend(other.map(|name| format!("libcupti is shared with `{name}`")));
        let mut subscription = Subscription::new(subscriber, lease);
        if let Some(reason) = refused {
            capabilities.is_incomplete = true;
            capabilities.notes.push(format!("metrics are not measured: {reason}"));
        }
        let proof = if is_inside { Duration::ZERO } else { selection.proof };
        let ranges = plan.map(|plan| plan.start(self, subscriber, sink, &mut capabilities));
        if let Some(ranges) = &ranges {
            subscription.set_ranges(ranges.clone());
        }
        let (commands, kinds) = self.enable_recording(selection, sink, proof, subscription, &mut capabilities)?;
        if let Some(ranges) = ranges {
            ranges.describe(&mut capabilities);
        }
        capabilities.proven = self.verify_records_arrive(proof, capabilities.types, &commands);
        self.watch_unloads(subscriber, &mut capabilities);
        if selection.range.is_some() {
            watch_ranges(subscriber, &mut capabilities);
        }
        if selection.options.flag("NVTX_RANGES")
            && let Some(library) = &self.path
        {
            capabilities
                .notes
                .extend(find_nvtx_fault(selection.options.path("NVTX_INJECTION64_PATH").as_deref(), library));
        }
        Ok((capabilities, commands, kinds, subscriber))
    }

    /// Subscribes to the functions that unload kernels, whose names must be read before.
    fn watch_unloads(&self, subscriber: Subscriber, capabilities: &mut Capabilities) {
        HUB.set_unloads(&self.unloads);
        let enabled = self.unloads.iter().try_for_each(|call| subscriber.enable_call(DRIVER, *call));
        if let Err(error) = enabled {
            capabilities
                .notes
                .push(format!("could not subscribe to cuModuleUnload, so kernel names may be lost: {error}"));
        }
    }

    /// Makes CUPTI record the selection into buffers of this crate.
    fn enable_recording(
        &self,
        selection: &Selection,
        sink: &RecordSink,
        proof: Duration,
        mut subscription: Subscription,
        capabilities: &mut Capabilities,
    ) -> Result<(Arc<ReaderCommands>, Arc<PausableKinds>), Unavailable> {
        let mut subscriber = subscription.subscriber;
        // The selectable fields of NVTX markers are not sufficient.
        let takes_all = selection.options.flag("NVTX_RANGES") || selection.options.flag("CUPTI_ALL_FIELDS");
        subscriber.select_fields(!takes_all);
        if selection.options.flag("CUPTI_PER_THREAD_BUFFER_ENABLED")
            && let Err(error) = subscriber.use_per_thread_buffers()
        {
            capabilities.notes.push(format!("threads share buffers: {error}"));
        }
        let asked = selection.options.flag("CUPTI_HARDWARE_TIMES").then(|| subscriber.use_hardware_times());
        if let Some(Err(error)) = asked {
            let note = "the times of device work are not those of the hardware (needs a GPU of Blackwell or later without MIG \
                        or MPS, libcupti 12.8, and the start before the first context)";
            capabilities.notes.push(format!("{note}: {error}"));
        }
        let may_refuse = self.interfaces.version >= REFUSALS_SINCE;
        HUB.pool.open(
            selection.buffer_bytes,
            if may_refuse { OverflowBuffers::None } else { OverflowBuffers::Limited(SCRAPS) },
        );
        HUB.pool.preallocate();
        // Another profiler may have registered its callbacks since.
        let failed = |(call, error): (&str, CuptiError)| error.to_unavailable(call, "");
        subscriber.register_callbacks().map_err(failed)?;
        // Drops made for another profiler.
        subscriber.take_dropped_count();
        /// A resume may run in a callback, for which the thread that disables kinds waits.
        const PATIENCE: Duration = Duration::from_millis(2);
        HUB.layouts.clear();
        HUB.own_waits.clear();
        let kinds = enable_selection(&mut subscriber, selection, capabilities)?;
        let kinds = Arc::new(PausableKinds::new(subscriber, Vec::new(), kinds, PATIENCE));
        subscription.set_kinds(kinds.clone());
        let commands = Arc::new(ReaderCommands::new(&HUB.pool));
        let api = subscriber.api;
        let ask = Box::new(|domain, function| api.callback_name(domain, function));
        let mut reader = Reader::new(sink.clone(), capabilities.types, ask);
        reader.expect_types(selection.types | subscription.measured_types());
        if subscriber.selects_fields() {
            reader.restore_records(RecordRestorer::new(&HUB.layouts));
        }
        let (driver, teardown) = (self.driver, selection.options.flag("TEARDOWN_CUPTI"));
        let makes_test_call = makes_test_call(proof, capabilities.types);
        let hardware_times = asked.is_some_and(|asked| asked.is_ok()).then(HardwareTimes::default);
        let library =
            CuptiLibrary { subscriber, driver, reader, subscription, makes_test_call, teardown, hardware_times };
        HUB.set_reader(Some(commands.clone()));
        ReaderThread::spawn("kineto-cupti", TRAITS, &HUB.pool, &commands, &kinds, Box::new(library))?;
        Ok((commands, kinds))
    }

    /// Makes a call without effects, and checks whether its record arrives.
    fn verify_records_arrive(
        &self,
        patience: Duration,
        recorded: ActivityTypes,
        commands: &ReaderCommands,
    ) -> Option<bool> {
        if !makes_test_call(patience, recorded) {
            return None;
        }
        let until = steady() + patience;
        let before = HUB.pool.counts().filled;
        while HUB.pool.counts().filled == before {
            if steady() >= until {
                return Some(false);
            }
            let _ = self.driver.query_version();
            commands.drain_buffers(until.saturating_duration_since(steady()));
            if HUB.pool.counts().filled == before {
                sleep(Duration::from_millis(1));
            }
        }
        Some(true)
    }
}

/// Enables the selection; adds what is enabled to `capabilities`, and returns the kinds. Where a field is refused, it selects
/// no fields.
fn enable_selection(
    subscriber: &mut Subscriber,
    selection: &Selection,
    capabilities: &mut Capabilities,
) -> Result<Vec<u32>, Unavailable> {
    let before = capabilities.clone();
    let (mut enabled, mut refused) = enable_kinds(*subscriber, selection, capabilities);
    if refused == Some(INVALID_PARAMETER) && subscriber.selects_fields() {
        enabled.iter().for_each(|number| subscriber.disable_kind(*number));
        subscriber.select_fields(false);
        *capabilities = before;
        (enabled, refused) = enable_kinds(*subscriber, selection, capabilities);
    }
    match refused {
        Some(error) if enabled.is_empty() => Err(error.to_unavailable("cuptiActivityEnable", "")),
        _ => Ok(enabled),
    }
}

/// Enables each kind of the selection; returns those that are enabled, and the first error.
fn enable_kinds(
    subscriber: Subscriber,
    selection: &Selection,
    capabilities: &mut Capabilities,
) -> (Vec<u32>, Option<CuptiError>) {
    let mut enabled = Vec::new();
    let mut refused = None;
    capabilities.types = ActivityTypes::EMPTY;
    // Before a kind is enabled, as attributes must be.
    if selection.types.contains(ActivityType::CudaEvent)
        && let Err(error) = subscriber.record_event_times(true)
    {
        capabilities.notes.push(format!("events lack device timestamps: {error}"));
    }
    let all = KINDS.iter().flat_map(|(kind, numbers)| numbers.iter().map(|number| (*kind, *number)));
    // Kernels outside of graphs still have their own records.
    let graphs =
        selection.options.flag("CUDA_GRAPH_TRACE").then_some((ActivityType::ConcurrentKernel, kind::GRAPH_TRACE));
    for (kind, number) in graphs.into_iter().chain(all).filter(|(kind, _)| selection.types.contains(*kind)) {
        let outcome = if enabled.contains(&number) { Ok(()) } else { subscriber.enable_kind(number) };
        match outcome {
            Ok(()) => {
                enabled.push(number);
                capabilities.types |= ActivityTypes::from_type(kind);
            }
            Err(error) => {
                capabilities.is_incomplete = true;
                // Give the advice once.
                let advice = if refused == Some(error) { String::new() } else { error.advice_suffix() };
                capabilities.notes.push(format!("{kind} is not recorded, or only in part: {error}{advice}"));
                refused.get_or_insert(error);
            }
        }
    }
    if selection.options.flag("NVTX_RANGES") {
        enable_markers(subscriber, selection, capabilities, &mut enabled);
    }
    if selection.device_memory {
        match subscriber.enable_kind(kind::MEMORY2) {
            Ok(()) => {
                enabled.push(kind::MEMORY2);
                capabilities.memory_of = Some(DeviceType::Cuda);
            }
            Err(error) => {
                let advice = error.advice_suffix();
                capabilities.notes.push(format!("device memory is not recorded: {error}{advice}"));
            }
        }
    }
    for (domain, functions) in names::DISABLED_CALLS {
        let of_domain = if domain == RUNTIME { kind::RUNTIME } else { kind::DRIVER };
        if enabled.contains(&of_domain) {
            functions.iter().for_each(|function| subscriber.record_calls(domain, *function, false));
        }
    }
    (enabled, refused)
}

/// Enables NVTX markers.
fn enable_markers(
    subscriber: Subscriber,
    selection: &Selection,
    capabilities: &mut Capabilities,
    enabled: &mut Vec<u32>,
) {
    let types = selection.types.intersection(BY_NVTX);
    if types.is_empty() {
        return;
    }
    if let Err(error) = subscriber.enable_kind(kind::MARKER) {
        capabilities.notes.push(format!("NVTX ranges are not recorded: {error}{}", error.advice_suffix()));
        return;
    }
    enabled.push(kind::MARKER);
    capabilities.types |= types;
    match subscriber.enable_kind(kind::MARKER_DATA) {
        Ok(()) => enabled.push(kind::MARKER_DATA),
        Err(error) => {
            let what = "categories, colours and payloads of NVTX ranges are not recorded";
            capabilities.notes.push(format!("{what}: {error}"));
        }
    }
}

/// Subscribes to the functions by which the program begins and ends a range.
fn watch_ranges(subscriber: Subscriber, capabilities: &mut Capabilities) {
    for mark in &callbacks::MARKS {
        if let Err(error) = subscriber.enable_call(mark.domain, mark.function) {
            capabilities.notes.push(format!("could not subscribe to some cudaProfilerStart/Stop calls: {error}"));
        }
    }
}

fn makes_test_call(patience: Duration, recorded: ActivityTypes) -> bool {
    patience != Duration::ZERO && recorded.contains(ActivityType::CudaDriver)
}

/// Returns the types that can be recorded at best.
pub(super) fn supported_types() -> ActivityTypes {
    KINDS.iter().fold(ActivityTypes::EMPTY, |types, (kind, _)| types.with(*kind))
}

/// The metrics to measure of kernels or annotations.
pub(super) const METRICS: &str = "CUPTI_PROFILER_METRICS";

/// Returns whether metrics to measure are named.
pub(super) fn names_metrics(options: &Options) -> bool {
    !options.list(METRICS).is_empty()
}

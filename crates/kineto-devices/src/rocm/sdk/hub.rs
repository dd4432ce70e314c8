//! Process-wide state: this tool's registration, which is permanent, and the current recording.

use super::agents::Agents;
use super::callbacks;
use super::ffi::{Api, SdkStatus, text_at};
use super::names::{CODE_OBJECT, HIP_RUNTIME, Operations, Symbols};
use super::reader::{ProcessNames, Reader};
use super::records::{KERNEL_DISPATCH, MEMORY_COPY};
use crate::rocm::ids;
use crate::{RecordSink, Selection, Unavailable, Why};
use kineto_base::os::fork;
use kineto_base::wait::{sleep, steady};
use kineto_model::Loss;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

/// The hub of the process, once registration has begun.
pub(super) static HUB: OnceLock<Hub> = OnceLock::new();

/// State that the library's callbacks and the recording share.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) api: &'static Api,
    /// The process that registered: a forked child inherits the hub, but cannot use HIP.
    process: u32,
    known: OnceLock<Arc<ProcessNames>>,
    contexts: OnceLock<Contexts>,
    /// Why there are no contexts.
    refused: fork::Own<Option<(&'static str, SdkStatus)>>,
    symbols: fork::Own<Symbols>,
    /// A thread is registering.
    registers: AtomicBool,
    /// The library has ended.
    is_final: AtomicBool,
    taken: AtomicBool,
    /// The process that records, counted in forks from 1; 0 if none.
    records: AtomicU64,
    reader: fork::Own<Option<Reader>>,
    /// The number of callbacks for calls.
    calls: AtomicU64,
    /// A thread is flushing the buffer.
    flushes: AtomicBool,
    /// Records that the library has dropped, by its own count.
    dropped: AtomicU64,
}

/// The contexts of this tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contexts {
    /// Calls and work; it runs during recordings.
    main: u64,
    /// The buffer of records of work.
    buffer: u64,
}

/// Advice when registration is too late.
pub(super) const EARLIER: &str = "start the recording, or call Libkineto::prepare, before the program's first call of HIP, and \
                                  stop other profilers";

/// The size of the buffer, half of which holds some seven hundred kernels.
const BUFFER: usize = 256 << 10;

/// How long the end waits for a flush, and between polls.
const PATIENCE: Duration = Duration::from_millis(200);
const FLUSH_POLL: Duration = Duration::from_micros(200);

/// Registers this tool, unless it is registered.
///
/// # Errors
/// Why it cannot be registered.
pub(super) fn register_tool(api: &'static Api) -> Result<&'static Hub, Unavailable> {
    let hub = HUB.get_or_init(|| Hub::new(api));
    if hub.process != std::process::id() {
        return Err(Unavailable::in_fork("recorded AMD's devices"));
    }
    if hub.contexts().is_some() {
        return Ok(hub);
    }
    if hub.registers.swap(true, Ordering::AcqRel) {
        return Err(Unavailable::new(Why::Busy, "another thread is registering with rocprofiler-sdk", "try again"));
    }
    let forced = hub.api.force_configure(callbacks::configure);
    hub.registers.store(false, Ordering::Release);
    if hub.contexts().is_some() {
        return Ok(hub);
    }
    let (what, status) = match (forced, *hub.refused.lock()) {
        (_, Some(refused)) => refused,
        (Err(status), None) => ("rocprofiler_force_configure", status),
        (Ok(()), None) => {
            let message = "rocprofiler-sdk accepted this tool, but never initialized it";
            return Err(Unavailable::new(Why::Failed, message, "use rocprofiler-sdk of ROCm 7"));
        }
    };
    Err(hub.make_unavailable(what, status))
}

impl Hub {
    fn new(api: &'static Api) -> Hub {
        Hub {
            api,
            process: std::process::id(),
            known: OnceLock::new(),
            contexts: OnceLock::new(),
            refused: fork::Own::default(),
            symbols: fork::Own::default(),
            registers: AtomicBool::new(false),
            is_final: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            records: AtomicU64::new(0),
            reader: fork::Own::default(),
            calls: AtomicU64::new(0),
            flushes: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        }
    }

    /// Makes a reason with advice.
    fn make_unavailable(&self, what: &str, status: SdkStatus) -> Unavailable {
        let text = self.api.status_text(status);
        match status {
            SdkStatus::LOCKED => {
                let message = format!("it is too late to record AMD's devices: {what} returned {text}");
                Unavailable::new(Why::Unsupported, message, EARLIER)
            }
            SdkStatus::CONFLICT => {
                let message = format!("another tool records AMD's devices: {what} returned {text}");
                Unavailable::new(Why::Busy, message, "stop the other profiler")
            }
            _ => Unavailable::new(Why::Failed, format!("{what} failed: {text}"), "run `kineto doctor`"),
        }
    }

    /// Returns the library's names and agents; empty before `configure`.
    pub(super) fn process_names(&self) -> &Arc<ProcessNames> {
        static NOTHING: LazyLock<Arc<ProcessNames>> = LazyLock::new(Arc::default);
        self.known.get().unwrap_or(&NOTHING)
    }

    /// Returns the contexts, once they are made.
    pub(super) fn contexts(&self) -> Option<Contexts> {
        self.contexts.get().copied()
    }

    /// Queries operations and agents, and makes the contexts. Call it inside the library's callback, since the
    /// library is locked at any other time.
    pub(super) fn set_up_contexts(&self) {
        let api = self.api;
        let operations = Operations::query(|kind, each| _ = api.for_each_operation(kind, each));
        let mut agents = Agents::default();
        let _ = api.for_each_agent(&mut |agent| agents.add(agent, text_at));
        let _ = self.known.set(Arc::new(ProcessNames { operations, agents }));
        match self.make_contexts() {
            Ok(contexts) => _ = self.contexts.set(contexts),
            Err(refused) => *self.refused.lock() = Some(refused),
        }
    }

    fn make_contexts(&self) -> Result<Contexts, (&'static str, SdkStatus)> {
        let api = self.api;
        let failed = |what| move |status| (what, status);
        let creating = failed("rocprofiler_create_context");
        let telling = failed("rocprofiler_configure_callback_tracing_service");
        let starting = failed("rocprofiler_start_context");
        // Kernels are loaded long before a recording, so this context always runs.
        let names = api.create_context().map_err(creating)?;
        api.enable_callbacks(names, CODE_OBJECT, &[], callbacks::on_code).map_err(telling)?;
        api.start_context(names).map_err(starting)?;
        let main = api.create_context().map_err(creating)?;
        let functions = self.process_names().operations.recorded_functions();
        if functions.is_empty() {
            return Err(("rocprofiler_iterate_callback_tracing_kind_operations", SdkStatus::NO_KIND));
        }
        api.enable_callbacks(main, HIP_RUNTIME, &functions, callbacks::on_call).map_err(telling)?;
        let making = failed("rocprofiler_create_buffer");
        let buffer = api.create_buffer(main, BUFFER, callbacks::on_buffer).map_err(making)?;
        for kind in [KERNEL_DISPATCH, MEMORY_COPY] {
            let recording = failed("rocprofiler_configure_buffer_tracing_service");
            api.enable_records(main, kind, buffer).map_err(recording)?;
        }
        if api.is_valid(main) {
            Ok(Contexts { main, buffer })
        } else {
            Err(("rocprofiler_context_is_valid", SdkStatus::INVALID))
        }
    }

    /// Acquires the hub for a recording, and starts the context; records are not kept yet.
    ///
    /// # Errors
    /// Why it cannot start.
    pub(super) fn acquire(&self) -> Result<(), Unavailable> {
        if self.is_final() {
            let message = "rocprofiler-sdk has ended: the process is exiting";
            return Err(Unavailable::new(Why::Failed, message, "record before the process exits"));
        }
        if self.taken.swap(true, Ordering::AcqRel) {
            return Err(Unavailable::library_in_use("rocprofiler-sdk"));
        }
        self.start_context().inspect_err(|_| self.release())
    }

    /// Begins a recording: records are kept from now on.
    pub(super) fn begin_recording(&'static self, selection: &Selection, sink: RecordSink) {
        ids::begin_recording();
        let ask = Box::new(|kernel| self.symbols.lock().get(kernel));
        *self.reader.lock() = Some(Reader::new(sink, selection, self.process_names().clone(), ask));
        self.records.store(fork::generation() + 1, Ordering::Release);
    }

    /// Ends a recording that has not begun.
    pub(super) fn cancel_start(&self) {
        self.stop_context();
        self.release();
    }

    /// Ends the recording: another one may acquire the hub.
    pub(super) fn release(&self) {
        self.records.store(0, Ordering::Release);
        *self.reader.lock() = None;
        self.taken.store(false, Ordering::Release);
    }

    /// Starts the context.
    ///
    /// # Errors
    /// Why it does not start.
    pub(super) fn start_context(&self) -> Result<(), Unavailable> {
        let Some(contexts) = self.contexts().filter(|_| !self.is_final()) else { return Ok(()) };
        self.api
            .start_context(contexts.main)
            .map_err(|status| self.make_unavailable("rocprofiler_start_context", status))
    }

    /// Stops the context.
    pub(super) fn stop_context(&self) {
        if let Some(contexts) = self.contexts().filter(|_| !self.is_final()) {
            // A context that does not run need not be stopped.
            let _ = self.api.stop_context(contexts.main);
        }
    }

    /// Flushes the buffer; returns `false` if another thread is doing so, or if it fails.
    pub(super) fn flush_buffer(&self) -> bool {
        let Some(contexts) = self.contexts().filter(|_| !self.is_final()) else { return false };
        if self.flushes.swap(true, Ordering::AcqRel) {
            return false;
        }
        let flushed = self.api.flush_buffer(contexts.buffer).is_ok();
        self.flushes.store(false, Ordering::Release);
        flushed
    }

    /// Flushes the buffer completely. An accepted flush is asynchronous, and the next flush is accepted only when it
    /// is done.
    pub(super) fn flush_all(&self) {
        let patience_ends = steady() + PATIENCE;
        for _ in 0..2 {
            while !self.flush_buffer() && !self.is_final() && steady() < patience_ends {
                sleep(FLUSH_POLL);
            }
        }
    }

    /// Counts a callback for a call.
    pub(super) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many callbacks for calls arrived.
    pub(super) fn call_count(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns how many launches lack work that will certainly arrive, and that may arrive.
    pub(super) fn pending_counts(&self) -> [usize; 2] {
        self.reader.lock().as_ref().map_or([0; 2], Reader::pending_counts)
    }

    /// Notes that the library has ended: none of its functions may be called any more.
    pub(super) fn mark_final(&self) {
        self.is_final.store(true, Ordering::Release);
    }

    /// Returns whether the library has ended.
    pub(super) fn is_final(&self) -> bool {
        self.is_final.load(Ordering::Acquire)
    }

    /// Returns whether calls are recorded; never in a forked child.
    #[inline]
    pub(super) fn is_recording(&self) -> bool {
        self.records.load(Ordering::Acquire) == fork::generation() + 1
    }

    /// Calls `act` with the recording, if there is one.
    pub(super) fn with_reader(&self, act: impl FnOnce(&mut Reader)) {
        if let Some(reader) = &mut *self.reader.lock() {
            act(reader);
        }
    }

    /// Counts lost records.
    pub(super) fn add_loss(&self, cause: Loss, count: u64) {
        if count > 0 {
            self.with_reader(|reader| reader.sink().lost(cause, count));
        }
    }

    /// Sets the number of records that the library has dropped since it began.
    pub(super) fn set_dropped_total(&self, all: u64) {
        let before = self.dropped.swap(all, Ordering::Relaxed);
        self.with_reader(|reader| reader.count_lost(Loss::VendorDropped, all.saturating_sub(before)));
    }

    /// Adds a kernel that was loaded.
    pub(super) fn add_loaded_kernel(&self, kernel: u64, name: Option<String>) {
        match name {
            Some(name) => self.symbols.lock().add(kernel, &name),
            None => self.add_loss(Loss::DeviceRecordsUnread, 1),
        }
    }
}

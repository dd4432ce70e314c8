//! What there is one of in a process: this tool's registration, which is for good, and who records.

use super::agents::Agents;
use super::callbacks;
use super::ffi::{Api, SdkStatus, text_at};
use super::names::{CODE_OBJECT, HIP_RUNTIME, Operations, Symbols};
use super::reader::{ProcessNames, Reader};
use super::records::{KERNEL_DISPATCH, MEMORY_COPY};
use crate::buffer::Loss;
use crate::collector::rocm::ids;
use crate::collector::{RecordSink, Selection, Unavailable, Why};
use crate::os::fork;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// The one hub, once this tool has begun to register.
pub(super) static HUB: OnceLock<Hub> = OnceLock::new();

/// The one place where the library's callbacks and the recording meet.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) api: &'static Api,
    /// The process that registered: a forked child has a copy of the hub, and no HIP.
    process: u32,
    known: OnceLock<Arc<ProcessNames>>,
    contexts: OnceLock<Contexts>,
    /// Why there are none.
    refused: fork::Own<Option<(&'static str, SdkStatus)>>,
    symbols: fork::Own<Symbols>,
    /// A thread is registering.
    registers: AtomicBool,
    /// The library has ended.
    is_final: AtomicBool,
    taken: AtomicBool,
    /// In which process calls are wanted, counted in forks from 1; 0 in none.
    records: AtomicU64,
    reader: fork::Own<Option<Reader>>,
    /// Calls that were told of.
    calls: AtomicU64,
    /// A thread is having the buffer handed over.
    flushes: AtomicBool,
    /// Records that the library has dropped, as it counts them itself.
    dropped: AtomicU64,
}

/// What is recorded by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contexts {
    /// Calls and work; it runs while something is recorded.
    main: u64,
    /// Where records of work are put.
    buffer: u64,
}

/// What to do where it is too late.
pub(super) const EARLIER: &str = "start the recording, or call Profiler::prepare, before the program's first call of HIP, and \
                                  stop other profilers";

/// The size of the buffer: half of it is some seven hundred kernels.
const BUFFER: usize = 256 << 10;

/// How long the end waits between two looks, at first and at most.
const SHORTEST_WAIT: Duration = Duration::from_micros(200);
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// How long the end waits for work that may never come.
const PATIENCE: Duration = Duration::from_millis(200);

/// Registers this tool, unless that is done.
///
/// # Errors
/// Why it cannot be.
pub(super) fn register(api: &'static Api) -> Result<&'static Hub, Unavailable> {
    let hub = HUB.get_or_init(|| Hub::new(api));
    if hub.process != std::process::id() {
        return Err(Unavailable::in_fork("recorded AMD's devices"));
    }
    if hub.contexts().is_some() {
        return Ok(hub);
    }
    if hub.registers.swap(true, Ordering::AcqRel) {
        return Err(Unavailable::new(Why::Busy, "another thread registers with rocprofiler-sdk just now", "try again"));
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
            let message = "rocprofiler-sdk has taken this tool, but never asked what it records";
            return Err(Unavailable::new(Why::Failed, message, "use rocprofiler-sdk of ROCm 7"));
        }
    };
    Err(hub.reason(what, status))
}

/// Gives the hub up when it is dropped, also by a panic.
struct Release<'h>(&'h Hub);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
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

    /// What is the matter, and what to do about it.
    fn reason(&self, what: &str, status: SdkStatus) -> Unavailable {
        let words = self.api.words(status);
        match status {
            SdkStatus::LOCKED => {
                let message = format!("it is too late to record AMD's devices: {what} says {words}");
                Unavailable::new(Why::Unsupported, message, EARLIER)
            }
            SdkStatus::CONFLICT => {
                let message = format!("another tool records AMD's devices: {what} says {words}");
                Unavailable::new(Why::Busy, message, "stop the other profiler")
            }
            _ => Unavailable::new(Why::Failed, format!("{what} failed: {words}"), "run `kineto doctor`"),
        }
    }

    /// What is known of the library; nothing until it was asked.
    pub(super) fn known(&self) -> &Arc<ProcessNames> {
        static NOTHING: LazyLock<Arc<ProcessNames>> = LazyLock::new(Arc::default);
        self.known.get().unwrap_or(&NOTHING)
    }

    /// The contexts, once they are made.
    pub(super) fn contexts(&self) -> Option<Contexts> {
        self.contexts.get().copied()
    }

    /// Asks what there is, and makes the contexts: from within the library's call, since it is locked at any other time.
    pub(super) fn configure(&self) {
        let api = self.api;
        let operations = Operations::ask(|kind, each| _ = api.operations(kind, each));
        let mut agents = Agents::default();
        let _ = api.agents(&mut |agent| agents.add(agent, text_at));
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
        // Kernels are loaded long before they are recorded: this one runs from now on.
        let names = api.create_context().map_err(creating)?;
        api.tell_of(names, CODE_OBJECT, &[], callbacks::on_code).map_err(telling)?;
        api.start_context(names).map_err(starting)?;
        let main = api.create_context().map_err(creating)?;
        let functions = self.known().operations.recorded();
        if functions.is_empty() {
            return Err(("rocprofiler_iterate_callback_tracing_kind_operations", SdkStatus::NO_KIND));
        }
        api.tell_of(main, HIP_RUNTIME, &functions, callbacks::on_call).map_err(telling)?;
        let making = failed("rocprofiler_create_buffer");
        let buffer = api.create_buffer(main, BUFFER, callbacks::on_buffer).map_err(making)?;
        for kind in [KERNEL_DISPATCH, MEMORY_COPY] {
            let recording = failed("rocprofiler_configure_buffer_tracing_service");
            api.record(main, kind, buffer).map_err(recording)?;
        }
        if api.is_valid(main) {
            Ok(Contexts { main, buffer })
        } else {
            Err(("rocprofiler_context_is_valid", SdkStatus::INVALID))
        }
    }

    /// Takes the hub for a recording, and has the library tell of calls and work, of which nothing is kept yet.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn take(&self) -> Result<(), Unavailable> {
        if self.is_final() {
            let message = "rocprofiler-sdk has ended, as it does with the process";
            return Err(Unavailable::new(Why::Failed, message, "record before the process exits"));
        }
        if self.taken.swap(true, Ordering::AcqRel) {
            return Err(Unavailable::taken("rocprofiler-sdk"));
        }
        self.resume().inspect_err(|_| self.release())
    }

    /// Begins a recording: what comes from now on is kept.
    pub(super) fn begin(&'static self, selection: &Selection, sink: RecordSink) {
        ids::begin();
        let ask = Box::new(|kernel| self.symbols.lock().get(kernel));
        *self.reader.lock() = Some(Reader::new(sink, selection, self.known().clone(), ask));
        self.records.store(fork::generation() + 1, Ordering::Release);
    }

    /// Ends a recording that has not begun.
    pub(super) fn give_up(&self) {
        self.pause();
        self.release();
    }

    fn release(&self) {
        self.records.store(0, Ordering::Release);
        *self.reader.lock() = None;
        self.taken.store(false, Ordering::Release);
    }

    /// Has the library tell of calls and work.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn resume(&self) -> Result<(), Unavailable> {
        let Some(contexts) = self.contexts().filter(|_| !self.is_final()) else { return Ok(()) };
        self.api.start_context(contexts.main).map_err(|status| self.reason("rocprofiler_start_context", status))
    }

    /// Has the library tell of no more calls, nor of work that they launch.
    pub(super) fn pause(&self) {
        if let Some(contexts) = self.contexts().filter(|_| !self.is_final()) {
            // One that does not run need not be stopped.
            let _ = self.api.stop_context(contexts.main);
        }
    }

    /// Has what is in the buffer handed over; `false` if that is being done already, or cannot be.
    pub(super) fn flush(&self) -> bool {
        let Some(contexts) = self.contexts().filter(|_| !self.is_final()) else { return false };
        if self.flushes.swap(true, Ordering::AcqRel) {
            return false;
        }
        let flushed = self.api.flush(contexts.buffer).is_ok();
        self.flushes.store(false, Ordering::Release);
        flushed
    }

    /// Has what is in the buffer handed over, and waits for that: a flush that is taken is begun, and the next one is not
    /// taken before it is done.
    fn empty(&self) {
        let patience_ends = Instant::now() + PATIENCE;
        for _ in 0..2 {
            while !self.flush() && !self.is_final() && Instant::now() < patience_ends {
                std::thread::sleep(SHORTEST_WAIT);
            }
        }
    }

    /// A call was told of.
    pub(super) fn saw_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many calls were told of.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Waits until the work of what was launched until then has come, but not beyond the deadline, and ends the recording.
    pub(super) fn end(&self, at: u64, deadline: Instant) {
        let _release = Release(self);
        self.read(|reader| reader.close(at));
        let patience_ends = Instant::now() + PATIENCE;
        let mut wait = SHORTEST_WAIT;
        loop {
            self.flush();
            let (now, [owed, hoped]) = (Instant::now(), self.owed());
            let is_complete = owed == 0 && (hoped == 0 || now >= patience_ends);
            if is_complete || now >= deadline || self.is_final() {
                break;
            }
            std::thread::sleep(wait.min(deadline.saturating_duration_since(now)));
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.pause();
        // What came while that was done.
        self.empty();
        let [owed, _] = self.owed();
        if owed > 0 {
            let note = format!("{owed} launches had not ended by the time limit: their work is not here");
            self.read(|reader| reader.sink().note(note));
        }
    }

    fn owed(&self) -> [usize; 2] {
        self.reader.lock().as_ref().map_or([0; 2], Reader::owed)
    }

    /// The library ends: nothing in it may be called any more.
    pub(super) fn finalize(&self) {
        self.is_final.store(true, Ordering::Release);
    }

    /// Whether the library has ended.
    pub(super) fn is_final(&self) -> bool {
        self.is_final.load(Ordering::Acquire)
    }

    /// Whether calls are wanted; in a forked child, none are.
    #[inline]
    pub(super) fn records(&self) -> bool {
        self.records.load(Ordering::Acquire) == fork::generation() + 1
    }

    /// Calls `act` with the recording, if there is one.
    pub(super) fn read(&self, act: impl FnOnce(&mut Reader)) {
        if let Some(reader) = &mut *self.reader.lock() {
            act(reader);
        }
    }

    /// Counts what is not there.
    pub(super) fn lost(&self, cause: Loss, count: u64) {
        if count > 0 {
            self.read(|reader| reader.sink().lost(cause, count));
        }
    }

    /// The library has dropped that many records since it began.
    pub(super) fn dropped(&self, all: u64) {
        let before = self.dropped.swap(all, Ordering::Relaxed);
        self.read(|reader| reader.missing(Loss::VendorDropped, all.saturating_sub(before)));
    }

    /// A kernel was loaded.
    pub(super) fn loaded(&self, kernel: u64, name: Option<String>) {
        match name {
            Some(name) => self.symbols.lock().add(kernel, &name),
            None => self.lost(Loss::DeviceRecordsUnread, 1),
        }
    }
}

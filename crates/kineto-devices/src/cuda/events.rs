//! Times spans on CUDA devices by events of the driver.
#![allow(unsafe_code, reason = "the driver is foreign code")]

use super::cuda_version;
use super::driver::Driver;
use crate::library::functions;
use crate::{Capabilities, DeviceDescription, DeviceTimer, NotTimed, Token, Unavailable, Why};
use kineto_base::os::fork;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

/// Times spans by CUDA events (`cuEventRecord`), on the default stream of the context that is current on the thread.
///
/// It needs only the driver, which every CUDA program has, and no context of its own. A thread without a context, or
/// whose stream is being captured into a graph, gets no event. The default stream of a device's first context is
/// stream 7, as in CUPTI; other streams are numbered from 8, in order of first use. The resolution is half a
/// microsecond.
///
/// The default stream is the legacy default stream, which synchronizes with all streams that were not created as
/// non-blocking. So its events are ordered with the work of such streams. If the work runs on non-blocking streams,
/// name them with [`on_streams`](CudaEvents::on_streams).
///
/// ```
/// use tracing_kineto::KinetoLayer;
/// use tracing_kineto::integration::{CudaEvents, EventTimers};
///
/// // In addition to other collectors; `Mode::KinetoGpuFallback` does the same in place of CUPTI.
/// let builder = KinetoLayer::builder().collector(EventTimers::new(CudaEvents::new()));
/// ```
pub struct CudaEvents {
    /// Returns the stream that a thread works on; 0 for the default stream.
    stream: Box<dyn Fn() -> usize + Send + Sync>,
    loaded: OnceLock<(Driver, EventFunctions)>,
    pool: fork::Own<EventPool>,
}

/// The events made so far, which are reused. An event that failed is not.
#[derive(Debug, Default)]
struct EventPool {
    events: Vec<CudaEvent>,
    /// Free events by context.
    free: HashMap<usize, Vec<u64>>,
    /// Devices, contexts and streams seen so far.
    streams: Vec<(i32, usize, usize)>,
}

/// An event handle and its context.
#[derive(Clone, Copy, Debug)]
struct CudaEvent {
    handle: usize,
    context: usize,
}

type Place = *mut usize;

functions! {
    /// The driver's functions for events. Only the driver dereferences the handles.
    EventFunctions
    required {
        current = c"cuCtxGetCurrent": fn(Place) -> c_uint;
        device = c"cuCtxGetDevice": fn(*mut c_int) -> c_uint;
        push = c"cuCtxPushCurrent_v2": fn(usize) -> c_uint;
        pop = c"cuCtxPopCurrent_v2": fn(Place) -> c_uint;
        create = c"cuEventCreate": fn(Place, c_uint) -> c_uint;
        destroy = c"cuEventDestroy_v2": fn(usize) -> c_uint;
        record = c"cuEventRecord": fn(usize, usize) -> c_uint;
        query = c"cuEventQuery": fn(usize) -> c_uint;
        synchronize = c"cuEventSynchronize": fn(usize) -> c_uint;
        elapsed = c"cuEventElapsedTime": fn(*mut f32, usize, usize) -> c_uint;
    }
    optional {
        // Since CUDA 10.0.
        stream_is_capturing = c"cuStreamIsCapturing": fn(usize, *mut c_int) -> c_uint;
        // Since CUDA 10.1.
        capture_mode = c"cuThreadExchangeStreamCaptureMode": fn(*mut c_int) -> c_uint;
    }
}

/// `CUDA_ERROR_NOT_READY`
const NOT_READY: c_uint = 600;
/// CUPTI's number of the default stream.
const DEFAULT_STREAM: u32 = 7;

impl CudaEvents {
    /// Makes a timer on the default stream of each context. Calls nothing yet.
    pub fn new() -> CudaEvents {
        CudaEvents::with_stream_source(Box::new(|| 0))
    }

    /// Makes a timer on the streams that `stream` returns: the handle (`CUstream`) of the stream that the calling
    /// thread works on, in the current context; 0 for the default stream. It must not open spans.
    ///
    /// # Safety
    /// Each handle is 0, or that of a stream that exists until the span's event has been recorded.
    pub unsafe fn on_streams(stream: impl Fn() -> usize + Send + Sync + 'static) -> CudaEvents {
        CudaEvents::with_stream_source(Box::new(stream))
    }

    fn with_stream_source(stream: Box<dyn Fn() -> usize + Send + Sync>) -> CudaEvents {
        CudaEvents { stream, loaded: OnceLock::new(), pool: fork::Own::default() }
    }

    fn load_driver(&self) -> Result<&(Driver, EventFunctions), Unavailable> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let driver = Driver::open(&mut Vec::new())?;
        let calls = EventFunctions::new(driver.library()).map_err(|_| {
            let message = format!("the CUDA driver ({}) lacks functions for events", cuda_version(driver.version()));
            Unavailable::new(Why::Incompatible, message, "update NVIDIA's driver")
        })?;
        Ok(self.loaded.get_or_init(|| (driver, calls)))
    }

    /// Calls `query` with the handles of two events, in their context.
    fn query_events<R>(
        &self,
        tokens: [Token; 2],
        query_events: impl FnOnce(&EventFunctions, [usize; 2]) -> R,
    ) -> Option<R> {
        let (_, calls) = self.loaded.get()?;
        let [one, other] = {
            let pool = self.pool.lock();
            tokens.map(|token| pool.event(token.id))
        };
        let (one, other) = (one?, other?);
        calls.run_in_context(one.context, || query_events(calls, [one.handle, other.handle]))
    }
}

impl DeviceTimer for CudaEvents {
    fn name(&self) -> &'static str {
        "cuda_events"
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let (driver, _) = self.load_driver()?;
        Ok(Capabilities { library: driver.path(), ..Capabilities::default() })
    }

    fn record(&self) -> Result<Token, NotTimed> {
        let (_, calls) = self.loaded.get().ok_or(NotTimed::NoContext)?;
        let (context, device) = calls.current_context().ok_or(NotTimed::NoContext)?;
        let handle = (self.stream)();
        if calls.is_capturing(handle) {
            return Err(NotTimed::Capturing);
        }
        let (known, stream) = {
            let mut pool = self.pool.lock();
            (pool.take_event(context), pool.stream_number(device, context, handle))
        };
        let failed = |code: c_uint| NotTimed::Error(code.into());
        let id = match known {
            Some(id) => id,
            None => {
                let event = CudaEvent { handle: calls.create_event().map_err(failed)?, context };
                self.pool.lock().add(event)
            }
        };
        let event = self.pool.lock().event(id).ok_or(NotTimed::NoContext)?;
        match calls.record_event(event.handle, handle) {
            0 => Ok(Token { id, device, stream }),
            code => Err(failed(code)),
        }
    }

    fn has_passed(&self, token: Token) -> bool {
        // An event that cannot be queried is not worth waiting for.
        self.query_events([token; 2], |calls, [event, _]| calls.query_event(event) != NOT_READY).unwrap_or(true)
    }

    fn elapsed(&self, from: Token, to: Token) -> Option<Duration> {
        self.query_events([from, to], EventFunctions::elapsed_between).flatten()
    }

    fn release(&self, token: Token) {
        let mut pool = self.pool.lock();
        if let Some(event) = pool.event(token.id) {
            pool.free.entry(event.context).or_default().push(token.id);
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.get().map(|(driver, _)| driver.devices().to_vec()).unwrap_or_default()
    }
}

impl EventPool {
    fn event(&self, id: u64) -> Option<CudaEvent> {
        self.events.get(usize::try_from(id).ok()?).copied()
    }

    fn take_event(&mut self, context: usize) -> Option<u64> {
        self.free.get_mut(&context)?.pop()
    }

    fn add(&mut self, event: CudaEvent) -> u64 {
        self.events.push(event);
        self.events.len() as u64 - 1
    }

    /// Returns the number of a stream in rows: the default stream of a device's first context has CUPTI's number.
    fn stream_number(&mut self, device: i32, context: usize, stream: usize) -> u32 {
        let met = |known: &(i32, usize, usize)| *known == (device, context, stream);
        let at = self.streams.iter().position(met).unwrap_or_else(|| {
            self.streams.push((device, context, stream));
            self.streams.len() - 1
        });
        let is_default = |known: &(i32, usize, usize)| known.0 == device && known.2 == 0;
        match self.streams.iter().position(is_default) {
            Some(first) if first == at => DEFAULT_STREAM,
            _ => u32::try_from(at).map_or(u32::MAX - 1, |at| at.saturating_add(DEFAULT_STREAM + 1)),
        }
    }
}

impl EventFunctions {
    /// Returns the thread's context and its device.
    fn current_context(&self) -> Option<(usize, i32)> {
        let (mut context, mut device) = (0, 0);
        // SAFETY: the pointer is a valid place for a context.
        let asked = unsafe { (self.current)(&raw mut context) };
        if asked != 0 || context == 0 {
            return None;
        }
        // SAFETY: the pointer is a valid place for a device.
        (unsafe { (self.device)(&raw mut device) } == 0).then_some((context, device))
    }

    /// Returns whether an event on that stream would become part of a graph, or invalidate a capture.
    fn is_capturing(&self, stream: usize) -> bool {
        let mut status = 0;
        // SAFETY: the pointer is a valid place for a status, and the stream exists: `on_streams` requires it.
        let asked = self.stream_is_capturing.map(|query_events| unsafe { query_events(stream, &raw mut status) });
        // It fails on the default stream during a capture that must not synchronize with it.
        asked.is_some_and(|code| code != 0 || status != 0)
    }

    fn create_event(&self) -> Result<usize, c_uint> {
        let mut event = 0;
        // SAFETY: the pointer is a valid place for an event.
        match unsafe { (self.create)(&raw mut event, 0) } {
            0 => Ok(event),
            code => Err(code),
        }
    }

    fn record_event(&self, event: usize, stream: usize) -> c_uint {
        // SAFETY: the event belongs to the thread's context, and the stream exists: `on_streams` requires it.
        unsafe { (self.record)(event, stream) }
    }

    fn query_event(&self, event: usize) -> c_uint {
        // SAFETY: `create` made the event, and its context exists.
        unsafe { (self.query)(event) }
    }

    fn elapsed_between(&self, [from, to]: [usize; 2]) -> Option<Duration> {
        for event in [from, to] {
            // SAFETY: `create` made the event, and its context exists.
            if unsafe { (self.synchronize)(event) } != 0 {
                return None;
            }
        }
        let mut milliseconds = 0.0;
        // SAFETY: the pointer is a valid place for a duration, and `create` made both events.
        let asked = unsafe { (self.elapsed)(&raw mut milliseconds, from, to) };
        // Fails for negative durations.
        (asked == 0).then(|| Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).ok())?
    }

    /// Runs `work` in a context, in a capture mode that does not disturb another thread's capture.
    fn run_in_context<R>(&self, context: usize, work: impl FnOnce() -> R) -> Option<R> {
        // SAFETY: the driver rejects handles of destroyed contexts.
        if unsafe { (self.push)(context) } != 0 {
            return None;
        }
        // `CU_STREAM_CAPTURE_MODE_RELAXED`
        let mut mode = 2;
        // SAFETY: the pointer is a valid place for a mode, which is read and written.
        let exchanged = self.capture_mode.map(|exchange| unsafe { exchange(&raw mut mode) });
        let done = work();
        if exchanged == Some(0) {
            // SAFETY: the pointer is a valid place for a mode; this restores the previous mode.
            self.capture_mode.map(|exchange| unsafe { exchange(&raw mut mode) });
        }
        let mut popped = 0;
        // SAFETY: the pointer is a valid place for a context.
        unsafe { (self.pop)(&raw mut popped) };
        Some(done)
    }
}

impl Drop for CudaEvents {
    fn drop(&mut self) {
        let Some((_, calls)) = self.loaded.get() else { return };
        for CudaEvent { handle, context } in self.pool.lock().events.drain(..) {
            // SAFETY: `create` made the event, and its context exists.
            calls.run_in_context(context, || unsafe { (calls.destroy)(handle) });
        }
    }
}

impl Default for CudaEvents {
    fn default() -> CudaEvents {
        CudaEvents::new()
    }
}

impl fmt::Debug for CudaEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaEvents").field("loaded", &self.loaded.get().is_some()).finish_non_exhaustive()
    }
}

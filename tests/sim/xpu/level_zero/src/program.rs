//! The actions of a program: on SYCL, whose runtime calls Level Zero, or on Level Zero itself.

use crate::control;
use crate::engine;
use crate::shared::apis::{self, Api};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{
    BARRIER, Communication, HOST_COMMAND_LIST, HOST_COMMAND_QUEUE, HOST_DEVICE, HOST_EVENT, HOST_FENCE, KERNEL, MEMCPY,
    MEMCPY_PEER, MEMSET, NO_SYCL_QUEUE, Report, Synchronization, Work,
};
use crate::trace;
use sim_core::clock::thread_id;
use sim_core::engine::{COPY_SPEED, FILL_SPEED, Timing};
use sim_core::ffi::{StaticText, read_text};
use sim_core::handles::lock;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

sim_core::codes! {
    /// The result of these functions for what does not exist.
    Code(i32), NO_SUCH_THING;
    NO_SUCH_THING = -1;
}

const BARRIER_DURATION: u64 = 1_000;

static SYCL_QUEUES: AtomicU64 = AtomicU64::new(0);
static INVOCATIONS: AtomicU32 = AtomicU32::new(0);

/// The handle of the one context.
const CONTEXT: u64 = 0x5e00_0000_8000;

/// Work of a kind, with nothing else known of it.
pub(crate) fn blank(kind: u32) -> Work {
    Work { kind, context: CONTEXT, ..Work::default() }
}

/// A text that stays for good.
fn keep(text: &CStr) -> StaticText {
    static TEXTS: LazyLock<Mutex<HashMap<CString, &'static CStr>>> = LazyLock::new(Mutex::default);
    let mut texts = lock(&TEXTS);
    let kept = texts.entry(text.to_owned()).or_insert_with(|| Box::leak(text.to_owned().into_boxed_c_str()));
    StaticText(kept.as_ptr())
}

/// Gives work to a queue: on SYCL within a call of its runtime, which has the same correlation id.
fn submit(handle: u64, work: Work, timing: Timing, apis: (&Api, &Api)) -> Outcome {
    let (device, sycl_queue) = engine::queue(handle).ok_or(Code::NO_SUCH_THING)?;
    let (sycl_api, driver_api) = apis;
    let is_sycl = sycl_queue != NO_SYCL_QUEUE;
    let correlation = trace::next_correlation();
    let work = Work { queue: handle, device, sycl_queue, correlation, ..work };
    let mut work = Work { thread: thread_id(), ..work };
    if is_sycl {
        work.invocation = INVOCATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        (work.task_begin, work.enqueue_begin) = (now(), now());
    }
    let append = || trace::call(driver_api, correlation, || engine::submit(handle, work, timing));
    let done = if is_sycl { trace::call(sycl_api, correlation, append) } else { append() };
    if done { Ok(()) } else { Err(Code::NO_SUCH_THING) }
}

/// A transfer, which takes at least a microsecond.
fn transfer(bytes: u64, speed: u64) -> Timing {
    Timing { duration: (bytes / speed).max(1_000), ..Timing::default() }
}

/// Names of the places of memory, by PTI's numbers: pageable and pinned memory of the host, of a device, shared.
const PLACES: [char; 4] = ['M', 'H', 'D', 'S'];
const DEVICE: u32 = 2;

fn copy(queue: u64, work: Work, peer: &str) -> Outcome {
    let [source, target] = [work.source_type, work.target_type].map(|place| PLACES.get(place as usize).copied());
    let (Some(source), Some(target)) = (source, target) else { return Err(Code::NO_SUCH_THING) };
    let name = format!("zeCommandListAppendMemoryCopy({source}2{target}{peer})");
    let name = keep(&CString::new(name).unwrap_or_default());
    let copy_type = work.source_type * 4 + work.target_type;
    let work = Work { name, copy_type, engine_ordinal: 1, ..work };
    let apis = (&apis::urEnqueueUSMMemcpy, &apis::zeCommandListAppendMemoryCopy);
    submit(queue, work, transfer(work.bytes, COPY_SPEED), apis)
}

fn synchronize(queue: u64, kind: u32, api: &Api) {
    let correlation = trace::next_correlation();
    let start = now();
    trace::call(api, correlation, || engine::wait((kind != HOST_DEVICE).then_some(queue)));
    let end = now();
    trace::completed(&engine::harvest());
    trace::report(Report::Synchronized(Synchronization {
        kind,
        correlation,
        context: CONTEXT,
        queue: if kind == HOST_EVENT || kind == HOST_DEVICE { 0 } else { queue },
        event: if kind == HOST_EVENT { queue + 0x10_0000 } else { 0 },
        start,
        end,
        thread: thread_id(),
        api: api.id,
        wait_events: u32::from(kind == HOST_EVENT),
        result: 0,
    }));
}

sim_core::exports! {
    code_of as i32;

    /// Makes a queue of a device: SYCL's, or one of Level Zero alone. Gives its handle.
    fn simQueueCreate(device: u32, is_sycl: u32, place: *mut u64) {
        if device >= control::options().devices {
            return Err(Code::NO_SUCH_THING);
        }
        let make = |sycl| {
            let correlation = trace::next_correlation();
            trace::call(&apis::zeCommandListCreateImmediate, correlation, || engine::make(device, sycl))
        };
        let handle = if is_sycl == 0 {
            make(None)
        } else {
            let id = SYCL_QUEUES.fetch_add(1, Ordering::Relaxed);
            trace::call(&apis::urQueueCreate, trace::next_correlation(), || make(Some(id)))
        };
        give(place, handle)
    }

    /// Destroys a queue; Level Zero looks then what has ended.
    fn simQueueDestroy(queue: u64) {
        let is_there = engine::destroy(queue);
        trace::completed(&engine::harvest());
        if is_there { Ok(()) } else { Err(Code::NO_SUCH_THING) }
    }

    /// Gives a kernel to a queue. A name with `_us500` in it takes 500 us; the source file may be null.
    fn simSubmitKernel(queue: u64, name: *const c_char, file: *const c_char, line: u64) {
        let (name, file) = (read_text(name).unwrap_or(c""), read_text(file).unwrap_or(c""));
        let text = name.to_str().unwrap_or_default();
        let options = control::options();
        let timing = Timing::kernel(text, 0, options.no_finish.as_str(), options.overlap);
        let work = Work { name: keep(name), file: keep(file), line, ..blank(KERNEL) };
        submit(queue, work, timing, (&apis::urEnqueueKernelLaunch, &apis::zeCommandListAppendLaunchKernel))
    }

    /// Copies from one kind of memory to another: 0 pageable, 1 pinned, 2 the device's, 3 shared.
    fn simMemcpy(queue: u64, source_type: u32, target_type: u32, bytes: u64) {
        copy(queue, Work { source_type, target_type, bytes, ..blank(MEMCPY) }, "")
    }

    /// Copies from the memory of the queue's device to that of another.
    fn simMemcpyPeer(queue: u64, target: u32, bytes: u64) {
        if target >= control::options().devices {
            return Err(Code::NO_SUCH_THING);
        }
        let work = Work { target, source_type: DEVICE, target_type: DEVICE, bytes, ..blank(MEMCPY_PEER) };
        copy(queue, work, " - P2P")
    }

    /// Fills memory of the device.
    fn simMemset(queue: u64, value: u64, bytes: u64) {
        let name = keep(apis::zeCommandListAppendMemoryFill.name);
        let work = Work { name, value, bytes, source_type: DEVICE, target_type: DEVICE, ..blank(MEMSET) };
        let apis = (&apis::urEnqueueUSMFill, &apis::zeCommandListAppendMemoryFill);
        submit(queue, work, transfer(bytes, FILL_SPEED), apis)
    }

    /// Puts a barrier into a queue.
    fn simBarrier(queue: u64) {
        let apis = (&apis::urEnqueueEventsWaitWithBarrier, &apis::zeCommandListAppendBarrier);
        submit(queue, blank(BARRIER), Timing { duration: BARRIER_DURATION, ..Timing::default() }, apis)
    }

    /// Allocates memory of a device, as SYCL does; it is the calls that are of interest.
    fn simAllocate() {
        let driver = || trace::call(&apis::zeMemAllocDevice, trace::next_correlation(), || ());
        trace::call(&apis::urUSMDeviceAlloc, trace::next_correlation(), driver);
        Ok(())
    }

    /// Waits for a queue, by a function of the kind that PTI gives the number: 3 a fence, 4 an event, 5 a command list,
    /// 6 a command queue, 7 all that the device has, of whichever queue.
    fn simSynchronize(queue: u64, kind: u32) {
        let Some((_, sycl_queue)) = engine::queue(queue) else { return Err(Code::NO_SUCH_THING) };
        let (driver, sycl) = match kind {
            HOST_FENCE => (&apis::zeFenceHostSynchronize, &apis::urQueueFinish),
            HOST_EVENT => (&apis::zeEventHostSynchronize, &apis::urEventWait),
            HOST_COMMAND_LIST => (&apis::zeCommandListHostSynchronize, &apis::urQueueFinish),
            HOST_COMMAND_QUEUE => (&apis::zeCommandQueueSynchronize, &apis::urQueueFinish),
            HOST_DEVICE => (&apis::zeDeviceSynchronize, &apis::urQueueFinish),
            _ => return Err(Code::NO_SUCH_THING),
        };
        let wait = || synchronize(queue, kind, driver);
        if sycl_queue == NO_SYCL_QUEUE {
            wait()
        } else {
            trace::call(sycl, trace::next_correlation(), wait)
        }
        Ok(())
    }

    /// A collective operation of oneCCL, which keeps the calling thread for that many microseconds.
    fn simCollective(name: *const c_char, communicator: u64, send: u64, receive: u64, us: u64) {
        count(&control::counters().collectives);
        let start = now();
        sim_core::clock::sleep(Duration::from_micros(us));
        let (name, thread) = (keep(read_text(name).unwrap_or(c"")), thread_id());
        trace::report(Report::Communicated(Communication { start, end: now(), thread, send, receive, communicator, name }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_once() {
        assert_eq!(keep(c"a name").0, keep(&CString::new("a name").unwrap()).0);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let mut queue = 0;
        assert_eq!(simQueueCreate(9, 1, &raw mut queue), -1);
        assert_eq!((simMemset(1, 0, 1), simSynchronize(1, 4), simQueueDestroy(1)), (-1, -1, -1));
        assert_eq!(simQueueCreate(0, 1, &raw mut queue), 0);
        assert_eq!((simMemcpy(queue, 4, 0, 1), simMemcpyPeer(queue, 1, 1), simSynchronize(queue, 2)), (-1, -1, -1));
        assert_eq!(simQueueDestroy(queue), 0);
    }
}

//! Contexts, and the current context of each thread.

use crate::control;
use crate::error::{Error, Outcome, code_of, give, give_if_wanted};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{CONTEXT_SYNCHRONIZE, Report, Synchronization};
use crate::state::{self, State};
use crate::trace;
use sim_core::device::Stream;
use std::cell::RefCell;

/// A context: a device's primary one, or one that a program makes.
#[derive(Debug)]
pub(crate) struct Context {
    /// From 1.
    pub(crate) id: u32,
    pub(crate) device: i32,
    pub(crate) null_stream: u64,
    pub(crate) next_stream: u32,
}

/// The id of every context's default stream, as real traces have it.
const NULL_STREAM: u32 = 7;
/// The id of the first stream that a program makes.
const FIRST_STREAM: u32 = 13;

thread_local! {
    /// The thread's stack of contexts: handle and id.
    static STACK: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
}

/// The handle of the calling thread's context.
pub(crate) fn current() -> Option<u64> {
    top().map(|(handle, _)| handle)
}

/// Writes the handle and the device of the calling thread's context, zeros without one. Not traced.
#[unsafe(no_mangle)]
pub extern "C" fn simCurrentContext(context: *mut u64, device: *mut u32) {
    let current = current().unwrap_or_default();
    let number = state::lock().contexts.get(&current).map_or(0, |context| context.device as u32);
    // SAFETY: the caller promises a place for a handle.
    unsafe { context.write(current) };
    // SAFETY: the caller promises a place for a number.
    unsafe { device.write(number) };
}

/// Does what waits for the device: returns an error where streams are being captured, whose captures it invalidates. Not traced.
#[unsafe(no_mangle)]
pub extern "C" fn simSpoilCaptures() -> i32 {
    code_of(state::lock().objects.forbid_while_capturing().map_err(Error::from))
}

/// Its handle and id; zeros without one.
pub(crate) fn current_for_trace() -> (u64, u32) {
    top().unwrap_or_default()
}

fn top() -> Option<(u64, u32)> {
    STACK.try_with(|stack| stack.borrow().last().copied()).ok().flatten()
}

fn push(entry: (u64, u32)) {
    STACK.with(|stack| stack.borrow_mut().push(entry));
}

fn pop() -> Option<(u64, u32)> {
    STACK.with(|stack| stack.borrow_mut().pop())
}

/// Makes a context and its default stream.
fn create(state: &mut State, device: i32) -> Outcome<u64> {
    if device < 0 || device as u32 >= control::options().devices {
        return Err(Error::INVALID_DEVICE);
    }
    let handle = state.objects.ids.next_handle();
    let default = Stream { is_default: true, ..Stream::new(NULL_STREAM, handle, 0) };
    let null_stream = state.objects.add_stream(default);
    state.next_context += 1;
    let id = state.next_context;
    let context = Context { id, device, null_stream, next_stream: FIRST_STREAM };
    state.contexts.insert(handle, context);
    Ok(handle)
}

fn destroy(state: &mut State, handle: u64) -> Outcome {
    state.contexts.remove(&handle).ok_or(Error::INVALID_CONTEXT)?;
    state.objects.streams.retain(|_, stream| stream.owner != handle);
    Ok(())
}

/// The handle and the id of a context.
fn entry(state: &State, handle: u64) -> Outcome<(u64, u32)> {
    state.contexts.get(&handle).map(|context| (handle, context.id)).ok_or(Error::INVALID_CONTEXT)
}

fn create_current(place: *mut u64, device: i32) -> Outcome {
    let mut state = state::ready()?;
    let handle = create(&mut state, device)?;
    push(entry(&state, handle)?);
    give(place, handle)
}

/// Waits for all work of the calling thread's context.
pub(crate) fn synchronize(correlation: u32) -> Outcome {
    count(&control::counters().synchronizes);
    Error::unless(control::options().synchronize_error)?;
    let start = now();
    let (moments, mut wait) = {
        let mut state = state::ready()?;
        let (handle, context) = state.context()?;
        let wait = Synchronization::new(CONTEXT_SYNCHRONIZE, correlation, context.id, start);
        (state.objects.moments_of_owner(handle)?, wait)
    };
    moments.iter().for_each(|moment| moment.wait(now));
    sim_core::clock::sleep(std::time::Duration::from_millis(control::options().slow_synchronize));
    wait.end = now();
    trace::report(Report::Synchronized(wait));
    Ok(())
}

/// The device of the calling thread's context.
pub(crate) fn current_device() -> Outcome<i32> {
    Ok(state::ready()?.context()?.1.device)
}

api! {
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) |_| {
        let mut state = state::ready()?;
        let handle = match state.primary.get_mut(&device) {
            Some((handle, retained)) => {
                *retained += 1;
                *handle
            }
            None => {
                let handle = create(&mut state, device)?;
                state.primary.insert(device, (handle, 1));
                handle
            }
        };
        give(context, handle)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) |_| {
        let mut state = state::ready()?;
        let (handle, retained) = state.primary.get_mut(&device).ok_or(Error::INVALID_CONTEXT)?;
        *retained -= 1;
        if *retained == 0 {
            let handle = *handle;
            state.primary.remove(&device);
            destroy(&mut state, handle)?;
        }
        Ok(())
    }

    fn cuCtxCreate_v2(context: *mut u64, _flags: u32, device: i32) |_| {
        create_current(context, device)
    }

    fn cuCtxCreate_v4(context: *mut u64, _parameters: *const u8, _flags: u32, device: i32) |_| {
        create_current(context, device)
    }

    fn cuCtxDestroy_v2(context: u64) |_| {
        destroy(&mut *state::ready()?, context)?;
        if current() == Some(context) {
            pop();
        }
        Ok(())
    }

    fn cuCtxSetCurrent(context: u64) |_| {
        let entry = if context == 0 { None } else { Some(entry(&*state::ready()?, context)?) };
        pop();
        if let Some(entry) = entry {
            push(entry);
        }
        Ok(())
    }

    fn cuCtxGetCurrent(context: *mut u64) |_| {
        drop(state::ready()?);
        give(context, current().unwrap_or_default())
    }

    fn cuCtxPushCurrent_v2(context: u64) |_| {
        let entry = entry(&*state::ready()?, context)?;
        push(entry);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: *mut u64) |_| {
        let (handle, _) = pop().ok_or(Error::INVALID_CONTEXT)?;
        give_if_wanted(context, handle)
    }

    fn cuCtxGetDevice(device: *mut i32) |_| {
        give(device, current_device()?)
    }

    fn cuCtxSynchronize() |caller| {
        synchronize(caller.correlation)
    }

    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) |_| {
        state::ready()?.context()?;
        give(least, 0)?;
        give(greatest, -5)
    }
}

/// The name for older programs.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease(device: i32) -> i32 {
    cuDevicePrimaryCtxRelease_v2(device)
}

//! Contexts: services that are started and stopped together.

use crate::layout::{
    CODE_OBJECT, CallbackInfo, HIP_RUNTIME_API, KERNEL_DISPATCH, MEMORY_COPY, OldRecord, Passed, Record,
};
use crate::registration;
use crate::shared::counters::count;
use crate::shared::link;
use crate::shared::options::Service as Failing;
use crate::status::{Status, answer};
use crate::{buffer, layout};
use sim_core::ffi::slice;
use std::ffi::{c_int, c_void};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A client's callback: record, place for its own from enter to exit, its argument.
pub(crate) type Callback = extern "C" fn(Passed<Record>, *mut u64, *mut c_void);
type OldCallback = extern "C" fn(Passed<OldRecord>, *mut u64, *mut c_void);

/// A callback service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) context: u64,
    kind: u32,
    /// Those that it is called for; none for all.
    operations: Vec<i32>,
    callback: Callback,
    argument: usize,
}

/// A context.
#[derive(Debug, Default)]
struct Context {
    is_active: bool,
    services: Vec<Service>,
    /// Buffered services: kind and buffer.
    buffered: Vec<(u32, u64)>,
}

/// The handle of the first context; the others follow.
const FIRST: u64 = 0x40;

static CONTEXTS: RwLock<Vec<Context>> = RwLock::new(Vec::new());

fn read() -> RwLockReadGuard<'static, Vec<Context>> {
    CONTEXTS.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Vec<Context>> {
    CONTEXTS.write().unwrap_or_else(PoisonError::into_inner)
}

fn index(context: u64) -> usize {
    context.wrapping_sub(FIRST) as usize
}

/// The services of a kind in active contexts that are called for an operation.
pub(crate) fn services(kind: u32, operation: i32) -> Vec<Service> {
    let contexts = read();
    let active = contexts.iter().filter(|context| context.is_active).flat_map(|context| &context.services);
    let wants = |service: &&Service| {
        service.kind == kind && (service.operations.is_empty() || service.operations.contains(&operation))
    };
    active.filter(wants).cloned().collect()
}

/// The contexts that are active and want records of a kind, each with the buffer.
pub(crate) fn buffers(kind: u32) -> Vec<(u64, u64)> {
    let contexts = read();
    let active = (FIRST..).zip(contexts.iter()).filter(|(_, context)| context.is_active);
    let of_kind = |context: &Context| context.buffered.iter().find(|(its, _)| *its == kind).map(|(_, buffer)| *buffer);
    active.filter_map(|(handle, context)| Some((handle, of_kind(context)?))).collect()
}

pub(crate) fn stop_all() {
    write().iter_mut().for_each(|context| context.is_active = false);
}

pub(crate) fn exists(context: u64) -> Result<(), Status> {
    read().get(index(context)).map(|_| ()).ok_or(Status::CONTEXT_NOT_FOUND)
}

impl Service {
    /// Calls the client's function.
    pub(crate) fn call(&self, info: &CallbackInfo, data: &mut u64) {
        count(&link::counters().callbacks);
        let argument = self.argument as *mut c_void;
        if layout::is_old() {
            // SAFETY: a client of a version before 1.0 has handed in a function that takes that one's record.
            let callback = unsafe { std::mem::transmute::<Callback, OldCallback>(self.callback) };
            callback(Passed(info.old_record()), data, argument);
        } else {
            (self.callback)(Passed(info.record()), data, argument);
        }
    }
}

fn create(place: *mut u64) -> Result<(), Status> {
    // SAFETY: the caller promises a place that it has set to 0.
    if unsafe { place.read() } != 0 {
        return Err(Status::CONTEXT_ID_NOT_ZERO);
    }
    registration::open()?;
    let mut contexts = write();
    contexts.push(Context::default());
    // SAFETY: the same promise of the caller covers this place.
    unsafe { place.write(FIRST + contexts.len() as u64 - 1) };
    Ok(())
}

fn add_service(service: Service) -> Result<(), Status> {
    registration::open()?;
    let what = match service.kind {
        HIP_RUNTIME_API => Failing::Calls,
        CODE_OBJECT => Failing::Code,
        _ => return Err(Status::NOT_IMPLEMENTED),
    };
    enabled(what)?;
    let mut contexts = write();
    let context = contexts.get_mut(index(service.context)).ok_or(Status::CONTEXT_NOT_FOUND)?;
    if context.services.iter().any(|known| known.kind == service.kind) {
        return Err(Status::SERVICE_ALREADY_CONFIGURED);
    }
    context.services.push(service);
    Ok(())
}

fn add_buffered(context: u64, kind: u32, buffer: u64) -> Result<(), Status> {
    registration::open()?;
    let what = match kind {
        KERNEL_DISPATCH => Failing::Kernels,
        MEMORY_COPY => Failing::Copies,
        _ => return Err(Status::NOT_IMPLEMENTED),
    };
    enabled(what)?;
    buffer::exists(buffer)?;
    let mut contexts = write();
    let context = contexts.get_mut(index(context)).ok_or(Status::CONTEXT_NOT_FOUND)?;
    if context.buffered.iter().any(|(known, _)| *known == kind) {
        return Err(Status::SERVICE_ALREADY_CONFIGURED);
    }
    context.buffered.push((kind, buffer));
    Ok(())
}

fn enabled(what: Failing) -> Result<(), Status> {
    match link::options().enable_error.code_for(what) {
        0 => Ok(()),
        code => Err(Status::of(code)),
    }
}

fn switch(context: u64, on: bool) -> Result<(), Status> {
    let mut contexts = write();
    let its = contexts.get_mut(index(context)).ok_or(Status::CONTEXT_NOT_FOUND)?;
    if on && link::options().start_error != 0 {
        return Err(Status::of(link::options().start_error));
    }
    its.is_active = on;
    let counters = link::counters();
    count(if on { &counters.starts } else { &counters.stops });
    Ok(())
}

/// Makes a context.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_create_context(context: *mut u64) -> i32 {
    if context.is_null() {
        return Status::INVALID_ARGUMENT.code();
    }
    answer(create(context))
}

/// Lets a function be called for operations of a kind; `count` 0 is all of them.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_configure_callback_tracing_service(
    context: u64,
    kind: u32,
    operations: *const i32,
    count: usize,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> i32 {
    let Some(callback) = callback else { return Status::INVALID_ARGUMENT.code() };
    let operations = slice(operations, count).to_vec();
    answer(add_service(Service { context, kind, operations, callback, argument: argument as usize }))
}

/// Puts records of a kind into a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_configure_buffer_tracing_service(
    context: u64,
    kind: u32,
    _operations: *const i32,
    _count: usize,
    buffer: u64,
) -> i32 {
    answer(add_buffered(context, kind, buffer))
}

/// Starts the services of a context.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_start_context(context: u64) -> i32 {
    answer(switch(context, true))
}

/// Stops the services of a context; work that is under way still gets its record.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_stop_context(context: u64) -> i32 {
    answer(switch(context, false))
}

/// Whether a context is started.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_context_is_active(context: u64, status: *mut c_int) -> i32 {
    let active = read().get(index(context)).map(|context| context.is_active);
    // SAFETY: the caller promises a valid place for the result.
    unsafe { status.write(c_int::from(active == Some(true))) };
    answer(active.map(|_| ()).ok_or(Status::CONTEXT_NOT_FOUND))
}

/// Whether a context can be started.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_context_is_valid(context: u64, status: *mut c_int) -> i32 {
    let found = exists(context);
    // SAFETY: the caller promises a valid place for the result.
    unsafe { status.write(c_int::from(found.is_ok())) };
    answer(found)
}

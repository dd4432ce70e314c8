//! Contexts: services that are started and stopped together.

use crate::buffer;
use crate::layout::{CODE_OBJECT, CallbackInfo, HIP_RUNTIME_API, KERNEL_DISPATCH, MEMORY_COPY, Passed};
use crate::registration;
use crate::shared::counters::count;
use crate::shared::link;
use crate::shared::options::Service as Failing;
use crate::status::{Outcome, Status, code_of, give};
use sim_core::exports;
use sim_core::ffi::slice;
use sim_core::handles::Handles;
use std::ffi::{c_int, c_void};

/// A client's callback: record, place for its own from enter to exit, its argument.
pub(crate) type Callback = extern "C" fn(Passed, *mut u64, *mut c_void);

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

static CONTEXTS: Handles<Context> = Handles::behind(0x3f);

/// The services of a kind in active contexts that are called for an operation.
pub(crate) fn services(kind: u32, operation: i32) -> Vec<Service> {
    let wants = |service: &&Service| {
        service.kind == kind && (service.operations.is_empty() || service.operations.contains(&operation))
    };
    CONTEXTS.with_all(|contexts| {
        let active = contexts.values().filter(|context| context.is_active).flat_map(|context| &context.services);
        active.filter(wants).cloned().collect()
    })
}

/// The buffers of active contexts that want records of a kind.
pub(crate) fn buffers(kind: u32) -> Vec<u64> {
    CONTEXTS.with_all(|contexts| {
        let active = contexts.values().filter(|context| context.is_active).flat_map(|context| &context.buffered);
        active.filter(|(its, _)| *its == kind).map(|(_, buffer)| *buffer).collect()
    })
}

pub(crate) fn stop_all() {
    CONTEXTS.with_all(|contexts| contexts.values_mut().for_each(|context| context.is_active = false));
}

/// Does something with a context.
fn with(context: u64, act: impl FnOnce(&mut Context) -> Outcome) -> Outcome {
    CONTEXTS.with(context as usize, Status::CONTEXT_NOT_FOUND, act)
}

impl Service {
    /// Calls the client's function.
    pub(crate) fn call(&self, info: &CallbackInfo, data: &mut u64) {
        count(&link::counters().callbacks);
        let argument = self.argument as *mut c_void;
        (self.callback)(Passed(info.record()), data, argument);
    }
}

fn add_service(service: Service) -> Outcome {
    let what = match service.kind {
        HIP_RUNTIME_API => Failing::Calls,
        CODE_OBJECT => Failing::Code,
        _ => return Err(Status::NOT_IMPLEMENTED),
    };
    Status::unless(link::options().enable_error.code_for(what))?;
    with(service.context, |context| {
        if context.services.iter().any(|known| known.kind == service.kind) {
            return Err(Status::SERVICE_ALREADY_CONFIGURED);
        }
        context.services.push(service);
        Ok(())
    })
}

fn add_buffered(context: u64, kind: u32, buffer: u64) -> Outcome {
    let what = match kind {
        KERNEL_DISPATCH => Failing::Kernels,
        MEMORY_COPY => Failing::Copies,
        _ => return Err(Status::NOT_IMPLEMENTED),
    };
    Status::unless(link::options().enable_error.code_for(what))?;
    buffer::exists(buffer)?;
    with(context, |context| {
        if context.buffered.iter().any(|(known, _)| *known == kind) {
            return Err(Status::SERVICE_ALREADY_CONFIGURED);
        }
        context.buffered.push((kind, buffer));
        Ok(())
    })
}

fn switch(context: u64, on: bool) -> Outcome {
    with(context, |context| {
        if on {
            Status::unless(link::options().start_error)?;
        }
        context.is_active = on;
        let counters = link::counters();
        count(if on { &counters.starts } else { &counters.stops });
        Ok(())
    })
}

exports! {
    code_of as i32;

    /// Makes a context; the place must be set to 0.
    fn rocprofiler_create_context(place: *mut u64) {
        // SAFETY: the caller promises null or a valid place.
        if unsafe { place.as_ref() }.is_some_and(|id| *id != 0) {
            return Err(Status::CONTEXT_ID_NOT_ZERO);
        }
        registration::open()?;
        give(place, CONTEXTS.add(Context::default()) as u64)
    }

    /// Lets a function be called for operations of a kind; `count` 0 is all of them.
    fn rocprofiler_configure_callback_tracing_service(
        context: u64, kind: u32, operations: *const i32, count: usize, callback: Option<Callback>, argument: *mut c_void,
    ), by registration::open {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        let operations = slice(operations, count).to_vec();
        add_service(Service { context, kind, operations, callback, argument: argument as usize })
    }

    /// Puts records of a kind into a buffer.
    fn rocprofiler_configure_buffer_tracing_service(
        context: u64, kind: u32, _operations: *const i32, _count: usize, buffer: u64,
    ), by registration::open {
        add_buffered(context, kind, buffer)
    }

    /// Starts the services of a context.
    fn rocprofiler_start_context(context: u64) {
        switch(context, true)
    }

    /// Stops the services of a context; work that is under way still gets its record.
    fn rocprofiler_stop_context(context: u64) {
        switch(context, false)
    }

    /// Whether a context can be started.
    fn rocprofiler_context_is_valid(context: u64, status: *mut c_int) {
        let found = with(context, |_| Ok(()));
        give(status, c_int::from(found.is_ok()))?;
        found
    }
}

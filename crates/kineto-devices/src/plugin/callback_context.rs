//! Receives a plugin's calls: the registration of profilers, and the delivery of their events.
#![allow(unsafe_code, reason = "foreign code calls these functions with pointers")]

use super::abi::{Builder, DeviceInfo, Event, EventFlow, Handle, Interface, Registry, ResourceInfo, Versioned};
use super::events::{Events, Rejection};
use crate::DeviceDescription;
use crate::library::contained::in_callback;
use kineto_base::os::fork;
use std::ffi::{CStr, c_char, c_int};

/// The context of a plugin's calls, which pass it as a pointer. It is never freed. It accepts calls only while the plugin is
/// being called; a later call through a stored pointer fails.
#[derive(Debug)]
pub(super) struct CallbackContext<T: 'static>(fork::Own<Option<T>>);

impl<T> CallbackContext<T> {
    pub(super) fn new() -> &'static CallbackContext<T> {
        Box::leak(Box::new(CallbackContext(fork::Own::default())))
    }

    /// Accepts calls during `act`; returns what was received, and the result of `act`.
    fn accept_calls_during<R>(&'static self, empty: T, act: impl FnOnce(Handle) -> R) -> (Option<T>, R) {
        *self.0.lock() = Some(empty);
        let result = act(std::ptr::from_ref(self).cast_mut().cast());
        (self.0.lock().take(), result)
    }

    /// Returns the context of a handle.
    ///
    /// # Safety
    /// `handle` is null, or [`accept_calls_during`](CallbackContext::accept_calls_during) passed it to `act`.
    unsafe fn from_handle(handle: Handle) -> Option<&'static CallbackContext<T>> {
        // SAFETY: the handle is null or points to a context; contexts are never freed, and only changed under their
        // lock.
        unsafe { handle.cast::<CallbackContext<T>>().as_ref() }
    }

    /// Passes the received value to `take`, if calls are accepted; returns the status for foreign code.
    fn take_received(
        context: Option<&CallbackContext<T>>,
        take: impl FnOnce(&mut T) -> Result<(), Rejection>,
    ) -> c_int {
        let take = || context.is_some_and(|context| context.0.lock().as_mut().is_some_and(|open| take(open).is_ok()));
        if in_callback(take) { 0 } else { -1 }
    }
}

/// The profilers of a library, and what it failed to register.
#[derive(Debug, Default)]
pub(super) struct Registered {
    pub(super) profilers: Vec<Interface>,
    pub(super) refused: Vec<String>,
}

impl CallbackContext<Registered> {
    /// Calls a library's entry; returns the registered profilers, and the entry's status.
    pub(super) fn register_profilers(
        &'static self,
        entry: impl FnOnce(*const Registry) -> c_int,
    ) -> (Registered, c_int) {
        let (registered, status) = self.accept_calls_during(Registered::default(), |handle| {
            let registry = Registry { size: Registry::KNOWN, handle, register };
            entry(&raw const registry)
        });
        (registered.unwrap_or_default(), status)
    }
}

unsafe extern "C" fn register(handle: Handle, interface: *const Interface) -> c_int {
    // SAFETY: the plugin passes an interface, or null.
    let interface = unsafe { copy_struct(interface) };
    // SAFETY: the plugin passes the handle of its registry.
    let context = unsafe { CallbackContext::<Registered>::from_handle(handle) };
    CallbackContext::take_received(context, |registered| match interface {
        Ok(interface) => {
            registered.profilers.push(interface);
            Ok(())
        }
        Err(why) => {
            registered.refused.push(why.to_owned());
            Err(Rejection)
        }
    })
}

impl CallbackContext<Events> {
    /// Calls a profiler's `process`; returns the devices that it described, and its status.
    pub(super) fn receive_events(
        &'static self,
        events: Events,
        process: impl FnOnce(*const Builder) -> c_int,
    ) -> (Vec<DeviceDescription>, c_int) {
        let (events, status) = self.accept_calls_during(events, |handle| {
            let builder = Builder {
                size: Builder::KNOWN,
                handle,
                add_event,
                set_name,
                set_flow,
                add_metadata,
                add_device,
                add_resource,
            };
            process(&raw const builder)
        });
        (events.map(Events::finish).unwrap_or_default(), status)
    }

    /// Passes a value that could be read to `take`; counts a fault if it could not.
    fn take_read<R>(
        context: Option<&CallbackContext<Events>>,
        read: Result<R, &'static str>,
        take: impl FnOnce(&mut Events, R) -> Result<(), Rejection>,
    ) -> c_int {
        CallbackContext::take_received(context, |events| match read {
            Ok(read) => take(events, read),
            Err(why) => Err(events.count_fault(why)),
        })
    }
}

unsafe extern "C" fn add_event(handle: Handle, event: *const Event) -> c_int {
    // SAFETY: the plugin passes an event, or null.
    let event = unsafe { copy_struct(event) };
    // SAFETY: the plugin passes the handle of its builder.
    CallbackContext::take_read(unsafe { CallbackContext::from_handle(handle) }, event, Events::add_event)
}

unsafe extern "C" fn set_name(handle: Handle, name: *const c_char) -> c_int {
    // SAFETY: the plugin passes a C string, or null.
    let name = unsafe { copy_text(name) };
    // SAFETY: the plugin passes the handle of its builder.
    CallbackContext::take_read(unsafe { CallbackContext::from_handle(handle) }, name, |events, name| {
        events.set_name(&name)
    })
}

unsafe extern "C" fn set_flow(handle: Handle, flow: *const EventFlow) -> c_int {
    // SAFETY: the plugin passes an end of an arrow, or null.
    let flow = unsafe { copy_struct(flow) };
    // SAFETY: the plugin passes the handle of its builder.
    let context = unsafe { CallbackContext::from_handle(handle) };
    CallbackContext::take_read(context, flow, |events, flow| events.set_flow(flow.kind, flow.id, flow.is_start != 0))
}

unsafe extern "C" fn add_metadata(handle: Handle, key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: the plugin passes a C string as key, or null.
    let key = unsafe { copy_text(key) };
    // SAFETY: the plugin passes a C string as value, or null.
    let value = unsafe { copy_text(value) };
    // SAFETY: the plugin passes the handle of its builder.
    let context = unsafe { CallbackContext::from_handle(handle) };
    CallbackContext::take_read(context, key.and_then(|key| Ok((key, value?))), |events, (key, value)| {
        events.add_metadata(&key, &value)
    })
}

unsafe extern "C" fn add_device(handle: Handle, device: *const DeviceInfo) -> c_int {
    // SAFETY: the plugin passes a device, or null.
    let device = unsafe { copy_struct(device) };
    // SAFETY: its texts are C strings, or null.
    let texts = device.map(|device| [device.name, device.label].map(|of| unsafe { copy_text(of) }.unwrap_or_default()));
    // SAFETY: the plugin passes the handle of its builder.
    let context = unsafe { CallbackContext::from_handle(handle) };
    CallbackContext::take_read(
        context,
        device.and_then(|device| Ok((device, texts?))),
        |events, (device, [name, label])| events.add_device(device.id, device.order, &name, &label),
    )
}

unsafe extern "C" fn add_resource(handle: Handle, resource: *const ResourceInfo) -> c_int {
    // SAFETY: the plugin passes a resource, or null.
    let resource = unsafe { copy_struct(resource) };
    // SAFETY: its name is a C string, or null.
    let name = resource.map(|of| unsafe { copy_text(of.name) }.unwrap_or_else(|_| of.resource.to_string()));
    // SAFETY: the plugin passes the handle of its builder.
    let context = unsafe { CallbackContext::from_handle(handle) };
    CallbackContext::take_read(context, resource.and_then(|resource| Ok((resource, name?))), |events, (of, name)| {
        events.add_resource(of.device, of.resource, of.order, &name)
    })
}

/// Copies a struct of a plugin, if its size includes all fields known here.
///
/// # Safety
/// `theirs` is null, or a struct of at least the size that it names.
unsafe fn copy_struct<T: Versioned + Copy>(theirs: *const T) -> Result<T, &'static str> {
    if theirs.is_null() {
        return Err("null instead of a struct");
    }
    // SAFETY: every such struct begins with its size, and the caller guarantees that.
    let size = unsafe { theirs.cast::<usize>().read_unaligned() };
    if size < T::KNOWN {
        return Err("structs smaller than in any version");
    }
    let mut ours = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the struct is that long, and `ours` has room for it. It may lack the final padding.
    unsafe { std::ptr::copy_nonoverlapping(theirs.cast::<u8>(), ours.as_mut_ptr().cast::<u8>(), T::KNOWN) };
    // SAFETY: integers and pointers may have any value, functions are null or valid, and padding may be
    // uninitialized.
    Ok(unsafe { ours.assume_init() })
}

/// Copies a C string; replaces invalid UTF-8.
///
/// # Safety
/// `theirs` is null, or a C string.
unsafe fn copy_text(theirs: *const c_char) -> Result<String, &'static str> {
    if theirs.is_null() {
        return Err("null instead of a text");
    }
    // SAFETY: the caller guarantees a C string, which lives during the plugin's call.
    Ok(unsafe { CStr::from_ptr(theirs) }.to_string_lossy().into_owned())
}

//! What a plugin calls: where it registers its profilers, and where it hands over what they recorded.
#![allow(unsafe_code, reason = "foreign code calls with pointers of its own")]

use super::abi::{Builder, DeviceInfo, Event, EventFlow, Handle, Interface, Registry, ResourceInfo, Versioned};
use super::events::{Events, Refused};
use crate::collector::DeviceDescription;
use crate::collector::contained::in_callback;
use crate::os::fork;
use std::ffi::{CStr, c_char, c_int};

/// The context of a plugin's calls, which pass it as a pointer. It is never freed, and accepts calls only while the plugin is
/// asked for something: a later call with a pointer that the plugin has kept fails.
#[derive(Debug)]
pub(super) struct CallbackContext<T: 'static>(fork::Own<Option<T>>);

impl<T> CallbackContext<T> {
    pub(super) fn new() -> &'static CallbackContext<T> {
        Box::leak(Box::new(CallbackContext(fork::Own::default())))
    }

    /// Is open during `ask`; returns what has come, and what `ask` did.
    fn during<R>(&'static self, empty: T, ask: impl FnOnce(Handle) -> R) -> (Option<T>, R) {
        *self.0.lock() = Some(empty);
        let answer = ask(std::ptr::from_ref(self).cast_mut().cast());
        (self.0.lock().take(), answer)
    }

    /// Returns the context behind a handle.
    ///
    /// # Safety
    /// `handle` is one that [`during`](CallbackContext::during) of such a context has given out, or null.
    unsafe fn of(handle: Handle) -> Option<&'static CallbackContext<T>> {
        // SAFETY: the handle is null or points to a context; contexts are never freed, and are changed under their lock only.
        unsafe { handle.cast::<CallbackContext<T>>().as_ref() }
    }

    /// Has what is open take something, if anything is; returns what foreign code is told.
    fn take(context: Option<&CallbackContext<T>>, take: impl FnOnce(&mut T) -> Result<(), Refused>) -> c_int {
        let take = || context.is_some_and(|context| context.0.lock().as_mut().is_some_and(|open| take(open).is_ok()));
        if in_callback(take) { 0 } else { -1 }
    }
}

/// The profilers of a library, and what else it has tried to register.
#[derive(Debug, Default)]
pub(super) struct Registered {
    pub(super) profilers: Vec<Interface>,
    pub(super) refused: Vec<String>,
}

impl CallbackContext<Registered> {
    /// Has a library register its profilers; returns them with what its entry returned.
    pub(super) fn register(&'static self, entry: impl FnOnce(*const Registry) -> c_int) -> (Registered, c_int) {
        let (registered, status) = self.during(Registered::default(), |handle| {
            let registry = Registry { size: Registry::KNOWN, handle, register };
            entry(&raw const registry)
        });
        (registered.unwrap_or_default(), status)
    }
}

unsafe extern "C" fn register(handle: Handle, interface: *const Interface) -> c_int {
    // SAFETY: the plugin passes an interface, or null.
    let interface = unsafe { read(interface) };
    // SAFETY: it passes the handle that it was given.
    let context = unsafe { CallbackContext::<Registered>::of(handle) };
    CallbackContext::take(context, |registered| match interface {
        Ok(interface) => {
            registered.profilers.push(interface);
            Ok(())
        }
        Err(why) => {
            registered.refused.push(why.to_owned());
            Err(Refused)
        }
    })
}

impl CallbackContext<Events> {
    /// Has a profiler hand over its events; returns the devices that it has described, and what the function returned.
    pub(super) fn process(
        &'static self,
        events: Events,
        process: impl FnOnce(*const Builder) -> c_int,
    ) -> (Vec<DeviceDescription>, c_int) {
        let (events, status) = self.during(events, |handle| {
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

    /// Has the events take what could be read; what could not is counted.
    fn take_read<R>(
        context: Option<&CallbackContext<Events>>,
        read: Result<R, &'static str>,
        take: impl FnOnce(&mut Events, R) -> Result<(), Refused>,
    ) -> c_int {
        CallbackContext::take(context, |events| match read {
            Ok(read) => take(events, read),
            Err(why) => Err(events.fault(why)),
        })
    }
}

unsafe extern "C" fn add_event(handle: Handle, event: *const Event) -> c_int {
    // SAFETY: the plugin passes an event, or null.
    let event = unsafe { read(event) };
    // SAFETY: it passes the handle that it was given.
    CallbackContext::take_read(unsafe { CallbackContext::of(handle) }, event, Events::add)
}

unsafe extern "C" fn set_name(handle: Handle, name: *const c_char) -> c_int {
    // SAFETY: the plugin passes a C string, or null.
    let name = unsafe { text(name) };
    // SAFETY: it passes the handle that it was given.
    CallbackContext::take_read(unsafe { CallbackContext::of(handle) }, name, |events, name| events.name(&name))
}

unsafe extern "C" fn set_flow(handle: Handle, flow: *const EventFlow) -> c_int {
    // SAFETY: the plugin passes an end of an arrow, or null.
    let flow = unsafe { read(flow) };
    // SAFETY: it passes the handle that it was given.
    let context = unsafe { CallbackContext::of(handle) };
    CallbackContext::take_read(context, flow, |events, flow| events.flow(flow.kind, flow.id, flow.is_start != 0))
}

unsafe extern "C" fn add_metadata(handle: Handle, key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: the plugin passes a C string, or null.
    let key = unsafe { text(key) };
    // SAFETY: and another one.
    let value = unsafe { text(value) };
    // SAFETY: it passes the handle that it was given.
    let context = unsafe { CallbackContext::of(handle) };
    CallbackContext::take_read(context, key.and_then(|key| Ok((key, value?))), |events, (key, value)| {
        events.metadata(&key, &value)
    })
}

unsafe extern "C" fn add_device(handle: Handle, device: *const DeviceInfo) -> c_int {
    // SAFETY: the plugin passes a device, or null.
    let device = unsafe { read(device) };
    // SAFETY: its texts are C strings, or null.
    let texts = device.map(|device| [device.name, device.label].map(|of| unsafe { text(of) }.unwrap_or_default()));
    // SAFETY: it passes the handle that it was given.
    let context = unsafe { CallbackContext::of(handle) };
    CallbackContext::take_read(
        context,
        device.and_then(|device| Ok((device, texts?))),
        |events, (device, [name, label])| events.device(device.id, device.order, &name, &label),
    )
}

unsafe extern "C" fn add_resource(handle: Handle, resource: *const ResourceInfo) -> c_int {
    // SAFETY: the plugin passes a resource, or null.
    let resource = unsafe { read(resource) };
    // SAFETY: its name is a C string, or null.
    let name = resource.map(|of| unsafe { text(of.name) }.unwrap_or_else(|_| of.resource.to_string()));
    // SAFETY: it passes the handle that it was given.
    let context = unsafe { CallbackContext::of(handle) };
    CallbackContext::take_read(context, resource.and_then(|resource| Ok((resource, name?))), |events, (of, name)| {
        events.resource(of.device, of.resource, of.order, &name)
    })
}

/// Copies a struct of a plugin's, if it says that it has all the fields that are known here.
///
/// # Safety
/// Null, or a struct of which as much is there as it says.
unsafe fn read<T: Versioned + Copy>(theirs: *const T) -> Result<T, &'static str> {
    if theirs.is_null() {
        return Err("null where a struct belongs");
    }
    // SAFETY: every such struct begins with its size, and that is there.
    let size = unsafe { theirs.cast::<usize>().read_unaligned() };
    if size < T::KNOWN {
        return Err("structs that say they are smaller than any version of theirs was");
    }
    let mut ours = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: that many bytes are there, and `ours` has room for them. They may end before the struct's padding does.
    unsafe { std::ptr::copy_nonoverlapping(theirs.cast::<u8>(), ours.as_mut_ptr().cast::<u8>(), T::KNOWN) };
    // SAFETY: integers and pointers of any value, functions that are null or are there; the padding is of no matter.
    Ok(unsafe { ours.assume_init() })
}

/// Copies a C string; what is no UTF-8 is replaced.
///
/// # Safety
/// Null, or a C string.
unsafe fn text(theirs: *const c_char) -> Result<String, &'static str> {
    if theirs.is_null() {
        return Err("null where a text belongs");
    }
    // SAFETY: it is a C string, which stays while the plugin's call does.
    Ok(unsafe { CStr::from_ptr(theirs) }.to_string_lossy().into_owned())
}

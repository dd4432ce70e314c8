//! A plugin's side of `include/kineto_plugin.h`.
#![allow(unsafe_code, reason = "the host is foreign code")]

use super::{EventType, Plugin, PluginEvent, TraceBuilder};
use crate::text::c_string;
use kineto_devices::abi::{
    self, Create, DeviceInfo, EventFlow, Handle, Interface, OnProfiler, Process, Push, Query, Registry, ResourceInfo,
    Versioned,
};
use kineto_model::activity::ArgValue;
use kineto_model::write::json_text;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Exports a [`Plugin`](crate::integration::plugin::Plugin) from a shared library.
///
/// ```
/// use tracing_kineto::integration::plugin::{PluginEvent, EventType, NotStarted, Plugin, TraceBuilder};
///
/// struct Tpu;
///
/// impl Plugin for Tpu {
///     const NAME: &'static str = "tpu";
///     const TYPES: &'static [EventType] = &[EventType::Runtime, EventType::ConcurrentKernel];
///     fn start(_: &[EventType]) -> Result<Self, NotStarted> {
///         Ok(Tpu)
///     }
///     fn stop(&self) {}
///     fn deliver(&self, out: &mut TraceBuilder<'_>) {
///         out.device(0, "TPU v9", "TPU 0", 6_000_000);
///         out.event(&PluginEvent::new(EventType::ConcurrentKernel, "matmul"), &[]);
///     }
/// }
///
/// tracing_kineto::export_plugin!(Tpu);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export_plugin {
    ($plugin:ty) => {
        /// The entry point that the loading program calls.
        ///
        /// # Safety
        /// `registry` is null, or points to a `KinetoPlugin_Registry` that is valid during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn KinetoPlugin_register(registry: *const ::std::ffi::c_void) -> ::std::ffi::c_int {
            // SAFETY: the caller upholds the same contract.
            unsafe { $crate::__register::<$plugin>(registry) }
        }
    };
}

/// An arrow from a call to its device work.
const FLOW_ASYNC_CPU_GPU: u32 = 2;

/// Registers a plugin with the program that has loaded its library.
///
/// # Safety
/// `registry` is null, or points to a `KinetoPlugin_Registry` that is valid during the call.
#[doc(hidden)]
pub unsafe fn __register<P: Plugin>(registry: *const c_void) -> c_int {
    // SAFETY: by the caller's contract.
    let Some(registry) = (unsafe { checked_ref(registry.cast::<Registry>()) }) else { return -1 };
    let interface = Interface {
        size: Interface::KNOWN,
        create: Some(create::<P>),
        destroy: Some(destroy::<P>),
        query: Some(query::<P>),
        start: Some(start),
        stop: Some(stop::<P>),
        push: Some(push::<P>),
        pop: Some(pop::<P>),
        push_user: Some(push_user::<P>),
        pop_user: Some(pop_user::<P>),
        process: Some(process::<P>),
    };
    // SAFETY: the host's function takes its handle and an interface, which is valid during the call.
    unsafe { (registry.register)(registry.handle, &raw const interface) }
}

/// Returns 0 if `call` returns true, -1 if it returns false or panics.
fn status_of(call: impl FnOnce() -> bool) -> c_int {
    if catch_unwind(AssertUnwindSafe(call)).unwrap_or(false) { 0 } else { -1 }
}

/// Returns a struct of the loading program, unless it is null or lacks fields that are known here.
///
/// # Safety
/// Null, or a struct that is valid for `'h` and as large as its size field.
unsafe fn checked_ref<'h, T: Versioned>(theirs: *const T) -> Option<&'h T> {
    // SAFETY: the struct is not null, and begins with its size. The rest may be missing, so there is no reference yet.
    let is_whole = !theirs.is_null() && unsafe { theirs.cast::<usize>().read() } >= T::KNOWN;
    // SAFETY: by its size field, it is at least as large as `T`.
    is_whole.then(|| unsafe { &*theirs })
}

unsafe extern "C" fn query<P: Plugin>(query: *mut Query) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    let Some(query) = (unsafe { checked_ref(query) }) else { return -1 };
    if query.name.is_null() || query.types.is_null() {
        return -1;
    }
    let name = P::NAME.as_bytes();
    let length = name.len().min(query.name_max);
    // SAFETY: the host's buffer holds `name_max` bytes and a zero.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), query.name, length) };
    // SAFETY: `length` is at most `name_max`, the index of the zero.
    unsafe { query.name.wrapping_add(length).write(0) };
    for (at, kind) in P::TYPES.iter().take(query.types_max).enumerate() {
        // SAFETY: the host's array holds `types_max` numbers.
        unsafe { query.types.wrapping_add(at).write(kind.number()) };
    }
    0
}

unsafe extern "C" fn create<P: Plugin>(create: *mut Create) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    if unsafe { checked_ref(create) }.is_none() {
        return -1;
    }
    // SAFETY: it was checked above, and the host does not access it during the call.
    let Some(create) = (unsafe { create.as_mut() }) else { return -1 };
    let types = if create.types.is_null() {
        &[]
    } else {
        // SAFETY: the host's array has `types_len` numbers.
        unsafe { std::slice::from_raw_parts(create.types, create.types_len) }
    };
    let types: Vec<_> = types.iter().filter_map(|number| EventType::from_number(*number)).collect();
    status_of(|| {
        let Ok(plugin) = P::start(&types) else { return false };
        create.profiler = Box::into_raw(Box::new(plugin)).cast();
        true
    })
}

/// Does nothing: `create` has started the plugin.
unsafe extern "C" fn start(_: *mut OnProfiler) -> c_int {
    0
}

unsafe extern "C" fn destroy<P: Plugin>(params: *mut OnProfiler) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    let Some(params) = (unsafe { checked_ref(params) }).filter(|params| !params.profiler.is_null()) else { return -1 };
    // SAFETY: [`create`] returned it from a box, and the host does not use it again.
    let plugin = unsafe { Box::from_raw(params.profiler.cast::<P>()) };
    status_of(|| {
        drop(plugin);
        true
    })
}

/// Calls `call` with the plugin and a call's parameters, in which `handle` finds the plugin.
///
/// # Safety
/// `params` is null or the loading program's struct, valid during the call.
unsafe fn with_plugin<P: Plugin, T: Versioned>(
    params: *mut T,
    handle: fn(&T) -> Handle,
    call: impl FnOnce(&P, &T),
) -> c_int {
    // SAFETY: the caller upholds the same contract.
    let Some(params) = (unsafe { checked_ref(params) }) else { return -1 };
    // SAFETY: the host received the handle from `create` for the same `P`, and only shared references exist.
    let Some(plugin) = (unsafe { handle(params).cast::<P>().as_ref() }) else { return -1 };
    status_of(|| {
        call(plugin, params);
        true
    })
}

unsafe extern "C" fn stop<P: Plugin>(params: *mut OnProfiler) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    unsafe { with_plugin(params, |params| params.profiler, |plugin: &P, _| plugin.stop()) }
}

unsafe extern "C" fn pop<P: Plugin>(params: *mut OnProfiler) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    unsafe { with_plugin(params, |params| params.profiler, |plugin: &P, _| plugin.pop()) }
}

unsafe extern "C" fn pop_user<P: Plugin>(params: *mut OnProfiler) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    unsafe { with_plugin(params, |params| params.profiler, |plugin: &P, _| plugin.pop_annotation()) }
}

unsafe extern "C" fn push<P: Plugin>(params: *mut Push) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    unsafe { with_plugin(params, |params| params.profiler, |plugin: &P, params| plugin.push(params.id)) }
}

unsafe extern "C" fn push_user<P: Plugin>(params: *mut Push) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    unsafe { with_plugin(params, |params| params.profiler, |plugin: &P, params| plugin.push_annotation(params.id)) }
}

unsafe extern "C" fn process<P: Plugin>(params: *mut Process) -> c_int {
    // SAFETY: the host passes a struct that is valid during the call.
    let Some(known) = (unsafe { checked_ref(params) }) else { return -1 };
    // SAFETY: the host passes a struct that is valid during the call.
    let Some(builder) = (unsafe { checked_ref(known.builder) }) else { return -1 };
    // SAFETY: as above.
    unsafe { with_plugin(params, |params| params.profiler, |plugin: &P, _| plugin.deliver(&mut TraceBuilder(builder))) }
}

impl TraceBuilder<'_> {
    /// Adds an event with its arguments; returns whether the loading program has accepted it.
    ///
    /// Texts, numbers and booleans are kept; other values become JSON.
    pub fn event(&mut self, event: &PluginEvent<'_>, args: &[(&str, ArgValue<'_>)]) -> bool {
        let PluginEvent { kind, name, start, end, device, resource, correlation, span } = *event;
        let nanos = |at: crate::time::Timestamp| at.as_nanos().cast_signed();
        let (start, end) = (nanos(start), nanos(end));
        let id = span.cast_signed();
        let raw = abi::Event { size: abi::Event::KNOWN, kind: kind.number(), start, end, id, device, resource };
        // SAFETY: the host's function, with its handle and a struct that is valid during the call.
        if unsafe { (self.0.add_event)(self.0.handle, &raw const raw) } != 0 {
            return false;
        }
        let name = c_string(name);
        // SAFETY: the host's function, with its handle and a C string.
        unsafe { (self.0.set_name)(self.0.handle, name.as_ptr()) };
        if correlation != 0 {
            // The arrow starts at the host's end.
            let is_start = u8::from(kind.kind().is_cpu());
            let flow = EventFlow { size: EventFlow::KNOWN, kind: FLOW_ASYNC_CPU_GPU, id: correlation, is_start };
            // SAFETY: the host's function, with its handle and a struct that is valid during the call.
            unsafe { (self.0.set_flow)(self.0.handle, &raw const flow) };
        }
        if span != 0 {
            self.put_argument("External id", &span.to_string());
        }
        args.iter().for_each(|(key, value)| self.put_argument(key, &json_text(value)));
        true
    }

    fn put_argument(&self, key: &str, json: &str) {
        let (key, json) = (c_string(key), c_string(json));
        // SAFETY: the host's function, with its handle and two C strings.
        unsafe { (self.0.add_metadata)(self.0.handle, key.as_ptr(), json.as_ptr()) };
    }

    /// Describes a device: its name, the label of its rows, and their order among all groups.
    pub fn device(&mut self, id: i32, name: &str, label: &str, order: i64) -> bool {
        let (name, label) = (c_string(name), c_string(label));
        let (size, name, label) = (DeviceInfo::KNOWN, name.as_ptr(), label.as_ptr());
        let device = DeviceInfo { size, id: id.into(), order, name, label };
        // SAFETY: the host's function, with its handle and a struct that is valid during the call, as are its texts.
        unsafe { (self.0.add_device)(self.0.handle, &raw const device) == 0 }
    }

    /// Describes a stream or another part of a device: its name, and the order of its row.
    pub fn resource(&mut self, device: i32, resource: i32, name: &str, order: i32) -> bool {
        let name = c_string(name);
        let resource = ResourceInfo { size: ResourceInfo::KNOWN, device, resource, order, name: name.as_ptr() };
        // SAFETY: the host's function, with its handle and a struct that is valid during the call, as is its text.
        unsafe { (self.0.add_resource)(self.0.handle, &raw const resource) == 0 }
    }
}

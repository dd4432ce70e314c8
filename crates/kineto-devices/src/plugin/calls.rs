//! The functions of a profiler that a plugin registered.
#![allow(unsafe_code, reason = "calls foreign functions")]

use super::abi::{Builder, Create, Handle, Interface, NAME_MAX, OnProfiler, Process, Push, Query, Registry, Versioned};
use super::callback_context::{CallbackContext, Registered};
use crate::library::{Library, functions};
use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A profiler's name and types.
#[derive(Debug)]
pub(super) struct PluginProfile {
    pub(super) name: String,
    /// Event types, by number.
    pub(super) types: Vec<u32>,
}

type PushTo = unsafe extern "C" fn(*mut Push) -> c_int;
type PopFrom = unsafe extern "C" fn(*mut OnProfiler) -> c_int;

/// The capacity for a profiler's types: those known here, and some more of newer plugins.
const TYPES_MAX: usize = 64;

/// The functions of a profiler; the required ones are present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions(Interface);

/// A running profiler, into which every thread may push slices.
#[derive(Debug)]
pub(super) struct SharedProfiler {
    /// Null once it is closed.
    profiler: AtomicPtr<std::ffi::c_void>,
    /// How many threads are in a push or pop.
    inside: AtomicU32,
}

functions! {
    /// The entry point of a plugin.
    PluginApi
    required {
        register = c"KinetoPlugin_register": fn(*const Registry) -> c_int;
    }
}

/// Makes a library register its profilers; returns `None` if it is not a plugin.
pub(super) fn register_profilers(library: Library) -> Option<(Registered, c_int)> {
    let PluginApi { register } = PluginApi::new(library).ok()?;
    // SAFETY: the function takes a registry, which lives during the call.
    Some(CallbackContext::<Registered>::new().register_profilers(|registry| unsafe { register(registry) }))
}

impl Functions {
    /// Checks that the required functions are present.
    ///
    /// # Errors
    /// The name of a missing function.
    pub(super) fn new(interface: Interface) -> Result<Functions, &'static str> {
        let there = [
            (interface.create.is_some(), "profilerCreate"),
            (interface.destroy.is_some(), "profilerDestroy"),
            (interface.query.is_some(), "profilerQuery"),
            (interface.start.is_some(), "profilerStart"),
            (interface.stop.is_some(), "profilerStop"),
            (interface.process.is_some(), "profilerProcessEvents"),
        ];
        there.iter().find(|(is_there, _)| !is_there).map_or(Ok(Functions(interface)), |(_, name)| Err(name))
    }

    /// Queries the profiler's name and types.
    pub(super) fn query_profile(self) -> Result<PluginProfile, c_int> {
        // An extra byte: a plugin may omit the final NUL.
        let mut name = [0 as c_char; NAME_MAX + 2];
        let mut types = [0u32; TYPES_MAX];
        let mut query = Query {
            size: Query::KNOWN,
            profiler: ptr::null_mut(),
            name: name.as_mut_ptr(),
            name_max: NAME_MAX,
            types: types.as_mut_ptr(),
            types_max: types.len(),
        };
        // SAFETY: all pointers are valid during the call, with the capacities that are named.
        let status = self.0.query.map_or(-1, |of| unsafe { of(&raw mut query) });
        if status != 0 {
            return Err(status);
        }
        let name: Vec<u8> = name.iter().flat_map(|byte| byte.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
        let types = types.into_iter().filter(|number| *number != 0).collect();
        Ok(PluginProfile { name: String::from_utf8_lossy(&name).trim().to_owned(), types })
    }

    /// Makes a profiler for those types and starts it.
    ///
    /// # Errors
    /// The function that failed, and its status.
    pub(super) fn start_profiler(self, types: &[u32]) -> Result<ProfilerHandle, String> {
        let mut create =
            Create { size: Create::KNOWN, profiler: ptr::null_mut(), types: types.as_ptr(), types_len: types.len() };
        // SAFETY: all pointers are valid during the call.
        let status = self.0.create.map_or(-1, |of| unsafe { of(&raw mut create) });
        if status != 0 {
            return Err(failure_text("profilerCreate", status));
        }
        if create.profiler.is_null() {
            return Err("profilerCreate made no profiler".to_owned());
        }
        let profiler = ProfilerHandle(create.profiler.expose_provenance());
        match call_with_profiler(self.0.start, profiler) {
            0 => Ok(profiler),
            status => {
                let _ = call_with_profiler(self.0.destroy, profiler);
                Err(failure_text("profilerStart", status))
            }
        }
    }

    /// Stops a profiler, makes it deliver its records, and destroys it; returns the failures.
    pub(super) fn stop_profiler(
        self,
        profiler: ProfilerHandle,
        process: impl FnOnce(&dyn Fn(*const Builder) -> c_int) -> c_int,
    ) -> Vec<String> {
        let stopped = call_with_profiler(self.0.stop, profiler);
        let processed = process(&|builder| {
            let mut params = Process { size: Process::KNOWN, profiler: profiler.to_raw(), builder };
            // SAFETY: the profiler is not destroyed yet, and the builder lives during the call.
            self.0.process.map_or(-1, |of| unsafe { of(&raw mut params) })
        });
        let destroyed = call_with_profiler(self.0.destroy, profiler);
        let all = [("profilerStop", stopped), ("profilerProcessEvents", processed), ("profilerDestroy", destroyed)];
        all.iter().filter(|(_, status)| *status != 0).map(|(what, status)| failure_text(what, *status)).collect()
    }

    /// Returns the functions that push and pop slices, if the profiler has them. Those for user annotations are
    /// optional; without them annotations are pushed like other slices.
    fn push_pop_functions(self, annotates: bool) -> Option<(PushTo, PopFrom)> {
        let for_annotations = self.0.push_user.zip(self.0.pop_user).filter(|_| annotates);
        for_annotations.or_else(|| self.0.push.zip(self.0.pop))
    }

    /// Pushes a slice of the calling thread.
    pub(super) fn push_slice(self, shared: &SharedProfiler, id: u64, annotates: bool) -> bool {
        let Some((push, _)) = self.push_pop_functions(annotates) else { return false };
        shared.with_profiler(|profiler| {
            let mut params = Push { size: Push::KNOWN, id, profiler };
            // SAFETY: the profiler is not destroyed while a thread is in a push.
            (unsafe { push(&raw mut params) }) == 0
        })
    }

    /// Pops the slice that the calling thread pushed last.
    pub(super) fn pop_slice(self, shared: &SharedProfiler, annotates: bool) {
        let Some((_, pop)) = self.push_pop_functions(annotates) else { return };
        shared
            .with_profiler(|profiler| call_with_profiler(Some(pop), ProfilerHandle(profiler.expose_provenance())) == 0);
    }
}

/// The address of a plugin's profiler.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProfilerHandle(usize);

impl ProfilerHandle {
    fn to_raw(self) -> Handle {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

impl SharedProfiler {
    pub(super) fn new(profiler: ProfilerHandle) -> SharedProfiler {
        SharedProfiler { profiler: AtomicPtr::new(profiler.to_raw()), inside: AtomicU32::new(0) }
    }

    /// Rejects pushes from now on, while those in progress continue; returns the profiler, if there is one.
    pub(super) fn reject_pushes(&self) -> Option<ProfilerHandle> {
        let profiler = self.profiler.swap(ptr::null_mut(), Ordering::SeqCst);
        (!profiler.is_null()).then(|| ProfilerHandle(profiler.expose_provenance()))
    }

    /// Returns whether no thread is in a push or pop.
    pub(super) fn is_idle(&self) -> bool {
        self.inside.load(Ordering::SeqCst) == 0
    }

    /// Calls `act` with the profiler, unless it was closed; returns the result of `act`.
    fn with_profiler(&self, act: impl FnOnce(Handle) -> bool) -> bool {
        // Counted before the profiler is read, so `reject_pushes` waits for every thread that may have read it.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let profiler = self.profiler.load(Ordering::SeqCst);
        let accepted = !profiler.is_null() && act(profiler);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        accepted
    }
}

/// Calls a function whose only argument is a profiler.
fn call_with_profiler(
    function: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>,
    profiler: ProfilerHandle,
) -> c_int {
    let mut params = OnProfiler { size: OnProfiler::KNOWN, profiler: profiler.to_raw() };
    // SAFETY: the plugin made the profiler, which is not destroyed before its last call.
    function.map_or(-1, |of| unsafe { of(&raw mut params) })
}

fn failure_text(what: &str, status: c_int) -> String {
    format!("{what} failed with status {status}")
}

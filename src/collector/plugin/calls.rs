//! The functions of a profiler, as a plugin has registered them.
#![allow(unsafe_code, reason = "calls foreign functions")]

use super::abi::{
    Builder, Create, ENTRY, Handle, Interface, NAME_MAX, OnProfiler, Process, Push, Query, Registry, Versioned,
};
use super::callback_context::{CallbackContext, Registered};
use crate::collector::Library;
use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What a plugin says of a profiler.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) name: String,
    /// Event types, by number.
    pub(super) types: Vec<u32>,
}

type PushTo = unsafe extern "C" fn(*mut Push) -> c_int;
type PopFrom = unsafe extern "C" fn(*mut OnProfiler) -> c_int;

/// Room for the types of a profiler: those that are known here, and of a newer plugin some more.
const TYPES_MAX: usize = 64;

/// The functions of a profiler, those that it must have among them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions(Interface);

/// The profiler that records, which every thread may tell where it is.
#[derive(Debug, Default)]
pub(super) struct Running {
    profiler: AtomicPtr<std::ffi::c_void>,
    /// How many threads are telling it just now.
    inside: AtomicU32,
}

/// Has a library register what it has; `None` if it is no plugin.
pub(super) fn register(library: Library) -> Option<(Registered, c_int)> {
    // SAFETY: that is the type of the function which plugins give that name.
    let entry = unsafe { library.function::<unsafe extern "C" fn(*const Registry) -> c_int>(ENTRY) }?;
    // SAFETY: it takes such a registry, which is there during the call.
    Some(CallbackContext::<Registered>::new().register(|registry| unsafe { entry(registry) }))
}

impl Functions {
    /// Takes functions of which those are there that have to be.
    ///
    /// # Errors
    /// Which one is not.
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

    /// Asks for the profiler's name and types.
    pub(super) fn describe(self) -> Result<Described, c_int> {
        // One longer, and zeros behind: a plugin may forget to end its text.
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
        // SAFETY: all that it points to is there during the call, with the room that it says.
        let status = self.0.query.map_or(-1, |of| unsafe { of(&raw mut query) });
        if status != 0 {
            return Err(status);
        }
        let name: Vec<u8> = name.iter().flat_map(|byte| byte.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
        let types = types.into_iter().filter(|number| *number != 0).collect();
        Ok(Described { name: String::from_utf8_lossy(&name).trim().to_owned(), types })
    }

    /// Makes a profiler for those types and starts it.
    ///
    /// # Errors
    /// What failed, and with which status.
    pub(super) fn begin(self, types: &[u32]) -> Result<ProfilerHandle, String> {
        let mut create =
            Create { size: Create::KNOWN, profiler: ptr::null_mut(), types: types.as_ptr(), types_len: types.len() };
        // SAFETY: all that it points to is there during the call.
        let status = self.0.create.map_or(-1, |of| unsafe { of(&raw mut create) });
        if status != 0 {
            return Err(failed("profilerCreate", status));
        }
        if create.profiler.is_null() {
            return Err("profilerCreate made no profiler".to_owned());
        }
        let profiler = ProfilerHandle(create.profiler.expose_provenance());
        match on(self.0.start, profiler) {
            0 => Ok(profiler),
            status => {
                let _ = on(self.0.destroy, profiler);
                Err(failed("profilerStart", status))
            }
        }
    }

    /// Stops a profiler, has it hand over what it has, and destroys it; says what failed.
    pub(super) fn end(
        self,
        profiler: ProfilerHandle,
        process: impl FnOnce(&dyn Fn(*const Builder) -> c_int) -> c_int,
    ) -> Vec<String> {
        let stopped = on(self.0.stop, profiler);
        let processed = process(&|builder| {
            let mut params = Process { size: Process::KNOWN, profiler: profiler.handle(), builder };
            // SAFETY: the profiler is not destroyed yet, and the builder is there during the call.
            self.0.process.map_or(-1, |of| unsafe { of(&raw mut params) })
        });
        let destroyed = on(self.0.destroy, profiler);
        let all = [("profilerStop", stopped), ("profilerProcessEvents", processed), ("profilerDestroy", destroyed)];
        all.iter().filter(|(_, status)| *status != 0).map(|(what, status)| failed(what, *status)).collect()
    }

    /// The functions by which a thread says that it goes into a slice and out of it, if the profiler wants to know. Those for
    /// users' annotations may be missing, and then annotations are slices as others.
    fn ways(self, annotates: bool) -> Option<(PushTo, PopFrom)> {
        let of_users = self.0.push_user.zip(self.0.pop_user).filter(|_| annotates);
        of_users.or_else(|| self.0.push.zip(self.0.pop))
    }

    /// The calling thread goes into a slice.
    pub(super) fn push(self, running: &Running, id: u64, annotates: bool) -> bool {
        let Some((push, _)) = self.ways(annotates) else { return false };
        running.with(|profiler| {
            let mut params = Push { size: Push::KNOWN, id, profiler };
            // SAFETY: the profiler is not destroyed while it is told something.
            (unsafe { push(&raw mut params) }) == 0
        })
    }

    /// The calling thread goes out of the slice that it went into last.
    pub(super) fn pop(self, running: &Running, annotates: bool) {
        let Some((_, pop)) = self.ways(annotates) else { return };
        running.with(|profiler| on(Some(pop), ProfilerHandle(profiler.expose_provenance())) == 0);
    }
}

/// A profiler of a plugin's, by address.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProfilerHandle(usize);

impl ProfilerHandle {
    fn handle(self) -> Handle {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

impl Running {
    /// Threads may tell that profiler from now on.
    pub(super) fn open(&self, profiler: ProfilerHandle) {
        self.profiler.store(profiler.handle(), Ordering::SeqCst);
    }

    /// Threads may not from now on, but those that are at it stay; returns the profiler, if there is one.
    pub(super) fn close(&self) -> Option<ProfilerHandle> {
        let profiler = self.profiler.swap(ptr::null_mut(), Ordering::SeqCst);
        (!profiler.is_null()).then(|| ProfilerHandle(profiler.expose_provenance()))
    }

    /// Whether no thread is telling it something.
    pub(super) fn is_quiet(&self) -> bool {
        self.inside.load(Ordering::SeqCst) == 0
    }

    /// A forked child has none of the threads that are counted.
    pub(super) fn forget(&self) {
        self.profiler.store(ptr::null_mut(), Ordering::SeqCst);
        self.inside.store(0, Ordering::SeqCst);
    }

    /// Counted before the profiler is looked for, so whoever takes it away sees all that may have found it.
    fn with(&self, tell: impl FnOnce(Handle) -> bool) -> bool {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let profiler = self.profiler.load(Ordering::SeqCst);
        let told = !profiler.is_null() && tell(profiler);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        told
    }
}

/// Calls a function that takes a profiler and nothing else.
fn on(function: Option<unsafe extern "C" fn(*mut OnProfiler) -> c_int>, profiler: ProfilerHandle) -> c_int {
    let mut params = OnProfiler { size: OnProfiler::KNOWN, profiler: profiler.handle() };
    // SAFETY: the plugin has made that profiler, and it is not destroyed before its last call.
    function.map_or(-1, |of| unsafe { of(&raw mut params) })
}

fn failed(what: &str, status: c_int) -> String {
    format!("{what} failed with status {status}")
}

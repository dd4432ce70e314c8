//! The functions of ittnotify, which `ittapi-sys` links: each is null until a collector attaches.
#![allow(unsafe_code, reason = "ittnotify is C")]

use crate::text::c_string;

/// A domain of tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain(*const ittapi_sys::__itt_domain);
// SAFETY: ITT never frees domains, and every thread may use them.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// A string that ITT has interned.
#[derive(Clone, Copy, Debug)]
pub(super) struct StringHandle(*mut ittapi_sys::__itt_string_handle);
// SAFETY: ITT never frees string handles, and every thread may use them.
unsafe impl Send for StringHandle {}
// SAFETY: as above.
unsafe impl Sync for StringHandle {}

const NO_ID: ittapi_sys::__itt_id = ittapi_sys::__itt_id { d1: 0, d2: 0, d3: 0 };

impl Domain {
    /// Creates a domain; `None` if no collector is attached.
    pub(super) fn new(name: &str) -> Option<Domain> {
        let name = c_string(name);
        // SAFETY: a racing write by a collector replaces one valid function with another.
        let create = unsafe { ittapi_sys::__itt_domain_create_ptr__3_0 }?;
        // SAFETY: the name lives until the call returns.
        let domain = unsafe { create(name.as_ptr()) };
        (!domain.is_null()).then_some(Domain(domain))
    }

    /// Begins a task on the calling thread.
    pub(super) fn begin_task(self, name: StringHandle) {
        // SAFETY: as in `new`.
        if let Some(begin) = unsafe { ittapi_sys::__itt_task_begin_ptr__3_0 } {
            // SAFETY: domain and handle come from ITT.
            unsafe { begin(self.0, NO_ID, NO_ID, name.0) };
        }
    }

    /// Ends the task that the thread began last.
    pub(super) fn end_task(self) {
        // SAFETY: as in `new`.
        if let Some(end) = unsafe { ittapi_sys::__itt_task_end_ptr__3_0 } {
            // SAFETY: the domain comes from ITT.
            unsafe { end(self.0) };
        }
    }
}

impl StringHandle {
    /// Interns a string in ITT.
    pub(super) fn new(name: &str) -> StringHandle {
        let name = c_string(name);
        // SAFETY: as in `Domain::new`.
        let create = unsafe { ittapi_sys::__itt_string_handle_create_ptr__3_0 };
        // SAFETY: the name lives until the call returns.
        StringHandle(create.map_or(std::ptr::null_mut(), |create| unsafe { create(name.as_ptr()) }))
    }
}

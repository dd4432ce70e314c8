//! The functions of ittnotify, which `ittapi-sys` links: each is null until a collector is there.
#![allow(unsafe_code, reason = "ittnotify is C")]

use std::ffi::CString;

/// A domain of tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain(*const ittapi_sys::__itt_domain);
// SAFETY: ITT's domains live for ever, and every thread may use them.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// A name that ITT keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct StringHandle(*mut ittapi_sys::__itt_string_handle);
// SAFETY: ITT's handles live for ever, and every thread may use them.
unsafe impl Send for StringHandle {}
// SAFETY: as above.
unsafe impl Sync for StringHandle {}

const NO_ID: ittapi_sys::__itt_id = ittapi_sys::__itt_id { d1: 0, d2: 0, d3: 0 };

impl Domain {
    /// Makes a domain; `None` if no collector listens.
    pub(super) fn new(name: &str) -> Option<Domain> {
        let name = CString::new(name.replace('\0', "")).ok()?;
        // SAFETY: read before a collector replaces it or after, both are the function.
        let create = unsafe { ittapi_sys::__itt_domain_create_ptr__3_0 }?;
        // SAFETY: the name lives until the call returns.
        let domain = unsafe { create(name.as_ptr()) };
        (!domain.is_null()).then_some(Domain(domain))
    }

    /// The thread begins a task.
    pub(super) fn begin(self, name: StringHandle) {
        // SAFETY: as in `new`.
        if let Some(begin) = unsafe { ittapi_sys::__itt_task_begin_ptr__3_0 } {
            // SAFETY: domain and handle are ITT's own.
            unsafe { begin(self.0, NO_ID, NO_ID, name.0) };
        }
    }

    /// The thread ends the task that it began last.
    pub(super) fn end(self) {
        // SAFETY: as in `new`.
        if let Some(end) = unsafe { ittapi_sys::__itt_task_end_ptr__3_0 } {
            // SAFETY: the domain is ITT's own.
            unsafe { end(self.0) };
        }
    }
}

impl StringHandle {
    /// Has ITT keep that name.
    pub(super) fn new(name: &str) -> StringHandle {
        let name = CString::new(name.replace('\0', "")).unwrap_or_default();
        // SAFETY: as in `Domain::new`.
        let create = unsafe { ittapi_sys::__itt_string_handle_create_ptr__3_0 };
        // SAFETY: the name lives until the call returns.
        StringHandle(create.map_or(std::ptr::null_mut(), |create| unsafe { create(name.as_ptr()) }))
    }
}

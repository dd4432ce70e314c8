//! The statuses that functions return, and the last error of each thread.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use tracing_kineto::{Error, ErrorKind};

/// The result of a call; `tracing_kineto_status` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum CStatus {
    Ok = 0,
    NotInitialized = 1,
    Disabled = 2,
    ShutDown = 3,
    AlreadyInitialized = 4,
    NoLayer = 5,
    BadArgument = 6,
    NothingOpen = 7,
    Misnested = 8,
    NotRecording = 9,
    AlreadyRecording = 10,
    BadConfiguration = 11,
    Io = 12,
    Failed = 13,
    Panicked = 14,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) struct CallError {
    pub(super) status: CStatus,
    pub(super) why: Cow<'static, str>,
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

impl CStatus {
    /// Returns why calls do nothing in this state; empty while the library is active.
    pub(super) fn inactive_reason(self) -> &'static CStr {
        match self {
            CStatus::NotInitialized => c"nothing is recorded: the library is not initialized; call tracing_kineto_init first",
            CStatus::Disabled => {
                c"nothing is recorded: the environment does not enable it; set KINETO_ENABLED=1 or KINETO_ACTIVITIES_LOG_FILE"
            }
            CStatus::ShutDown => c"nothing is recorded after tracing_kineto_shutdown; call it at the end of the program",
            _ => c"",
        }
    }
}

impl CallError {
    pub(super) fn new(status: CStatus, why: impl Into<Cow<'static, str>>) -> CallError {
        CallError { status, why: why.into() }
    }

    /// Returns the error for a call in that state.
    pub(super) fn from_status(state: CStatus) -> CallError {
        CallError::new(state, state.inactive_reason().to_str().unwrap_or_default())
    }

    /// Keeps the message as the calling thread's last error.
    pub(super) fn store_as_last(&self) {
        let text = CString::new(self.why.replace('\0', "")).unwrap_or_default();
        // It fails only while the thread is ending, or inside this function.
        let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        let status = match error.kind() {
            ErrorKind::NotActive | ErrorKind::Forked => CStatus::NotRecording,
            ErrorKind::AlreadyActive => CStatus::AlreadyRecording,
            ErrorKind::Config => CStatus::BadConfiguration,
            ErrorKind::Io => CStatus::Io,
            ErrorKind::Json | ErrorKind::UnknownScheme => CStatus::BadArgument,
            _ => CStatus::Failed,
        };
        CallError::new(status, error.to_string())
    }
}

/// Calls `with` with the last error of the calling thread.
pub(super) fn with_last_error<R>(with: impl FnOnce(&CStr) -> R) -> Option<R> {
    LAST.try_with(|last| last.try_borrow().ok().map(|last| with(&last))).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Returns the constants of an enum of the header, without their prefix.
    pub(crate) fn constants(prefix: &str) -> BTreeMap<String, i32> {
        let header = include_str!("../include/tracing_kineto.h");
        let (_, list) = header.split_once(&format!("enum {prefix} {{")).unwrap();
        let (list, _) = list.split_once('}').unwrap();
        let constants = list.lines().filter_map(|line| line.trim().strip_prefix("TRACING_KINETO_")?.split_once(" = "));
        constants.map(|(name, number)| (name.to_owned(), number.trim_end_matches(',').parse().unwrap())).collect()
    }

    #[test]
    fn header_has_the_same_statuses() {
        use CStatus::*;
        let ours = [
            ("OK", Ok),
            ("NOT_INITIALIZED", NotInitialized),
            ("DISABLED", Disabled),
            ("SHUT_DOWN", ShutDown),
            ("ALREADY_INITIALIZED", AlreadyInitialized),
            ("NO_LAYER", NoLayer),
            ("BAD_ARGUMENT", BadArgument),
            ("NOTHING_OPEN", NothingOpen),
            ("MISNESTED", Misnested),
            ("NOT_RECORDING", NotRecording),
            ("ALREADY_RECORDING", AlreadyRecording),
            ("BAD_CONFIGURATION", BadConfiguration),
            ("IO", Io),
            ("FAILED", Failed),
            ("PANICKED", Panicked),
        ];
        let ours: BTreeMap<_, _> = ours.iter().map(|(name, status)| ((*name).to_owned(), *status as i32)).collect();
        assert_eq!(constants("tracing_kineto_status"), ours);
    }

    #[test]
    fn last_error_has_message_and_cause() {
        let cause = std::io::Error::other("disk full");
        let error = Error::from(kineto_model::Error::from_io(
            "write",
            std::path::Path::new("a.json"),
            cause,
            "free some space",
        ));
        let fault = CallError::from(error);
        assert_eq!(fault.status, CStatus::Io);
        fault.store_as_last();
        let message = with_last_error(|text| text.to_str().unwrap().to_owned()).unwrap();
        assert_eq!(message, "cannot write a.json: disk full; free some space");
        CallError::new(CStatus::Failed, "a\0b").store_as_last();
        assert_eq!(with_last_error(CStr::to_owned).unwrap().as_c_str(), c"ab");
    }
}

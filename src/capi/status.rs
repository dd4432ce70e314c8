//! What the functions return, and the sentence on what went wrong last on a thread.

use crate::error::{Error, ErrorKind};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString};

/// What a call came to; `tracing_kineto_status` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Status {
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

/// Why a call has not done what it was to do.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) status: Status,
    pub(super) why: Cow<'static, str>,
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

impl Status {
    /// What there is to say of calls that do nothing for what the library is at; empty where it is at work.
    pub(super) fn sentence(self) -> &'static CStr {
        match self {
            Status::NotInitialized => c"nothing is recorded before tracing_kineto_init",
            Status::Disabled => {
                c"the environment does not ask for a trace: set KINETO_ENABLED=1 or KINETO_ACTIVITIES_LOG_FILE"
            }
            Status::ShutDown => c"nothing is recorded after tracing_kineto_shutdown",
            _ => c"",
        }
    }
}

impl Fault {
    pub(super) fn new(status: Status, why: impl Into<Cow<'static, str>>) -> Fault {
        Fault { status, why: why.into() }
    }

    /// What the library is at stands in the way.
    pub(super) fn of(state: Status) -> Fault {
        Fault::new(state, state.sentence().to_str().unwrap_or_default())
    }

    /// Keeps the sentence for the calling thread to ask for.
    pub(super) fn keep(&self) {
        let text = CString::new(self.why.replace('\0', "")).unwrap_or_default();
        // Nobody asks once the thread is ending, nor from within this.
        let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let status = match error.kind() {
            ErrorKind::NotActive | ErrorKind::Forked => Status::NotRecording,
            ErrorKind::AlreadyActive => Status::AlreadyRecording,
            ErrorKind::Config => Status::BadConfiguration,
            ErrorKind::Io => Status::Io,
            ErrorKind::Json | ErrorKind::UnknownScheme => Status::BadArgument,
            _ => Status::Failed,
        };
        Fault::new(status, error.to_string())
    }
}

/// Calls `with` with the sentence on what went wrong last on the calling thread; it stays until something else does.
pub(super) fn last<R>(with: impl FnOnce(&CStr) -> R) -> Option<R> {
    LAST.try_with(|last| last.try_borrow().ok().map(|last| with(&last))).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The constants of the header that begin so, without that.
    pub(in crate::capi) fn constants(prefix: &str) -> BTreeMap<String, i32> {
        let header = include_str!("../../include/tracing_kineto.h");
        let (_, list) = header.split_once(&format!("enum {prefix} {{")).unwrap();
        let (list, _) = list.split_once('}').unwrap();
        let constants = list.lines().filter_map(|line| line.trim().strip_prefix("TRACING_KINETO_")?.split_once(" = "));
        constants.map(|(name, number)| (name.to_owned(), number.trim_end_matches(',').parse().unwrap())).collect()
    }

    #[test]
    fn the_header_has_the_same_statuses() {
        use Status::*;
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
    fn errors_keep_their_sentence_and_their_cause() {
        let cause = std::io::Error::other("disk full");
        let error = Error::io("write", std::path::Path::new("a.json"), cause, "make room");
        let fault = Fault::from(error);
        assert_eq!(fault.status, Status::Io);
        fault.keep();
        let said = last(|text| text.to_str().unwrap().to_owned()).unwrap();
        assert_eq!(said, "cannot write a.json: disk full; make room");
        Fault::new(Status::Failed, "a\0b").keep();
        assert_eq!(last(CStr::to_owned).unwrap().as_c_str(), c"ab");
    }
}

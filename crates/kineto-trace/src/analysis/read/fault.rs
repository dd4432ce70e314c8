//! What is wrong with a file, and where.

use crate::error::{Error, ErrorKind};
use std::io;

/// Why a file is not read any further.
#[derive(Debug)]
pub(in crate::analysis) struct Fault {
    pub(super) cause: Cause,
    /// At which byte of the text, from 0.
    pub(super) at: u64,
}

#[derive(Debug)]
pub(in crate::analysis) enum Cause {
    /// The text is no JSON; what was expected.
    NotJson(&'static str),
    /// The text begins like no JSON of a trace.
    OtherFormat,
    /// The text ends before its end.
    Truncated,
    /// It is JSON, but no trace; why.
    NotATrace(&'static str),
    /// A bound is passed; which.
    TooLarge(&'static str),
    /// The time for it is over.
    TimeLimit,
    /// What the file itself reports.
    Io(io::Error),
}

impl Fault {
    pub(super) fn new(cause: Cause, at: u64) -> Fault {
        Fault { cause, at }
    }

    /// Returns the error for the caller.
    pub(super) fn into_error(self) -> Error {
        let at = self.at;
        match self.cause {
            Cause::NotJson(expected) => Error::new(
                ErrorKind::Json,
                format!(
                    "not JSON: expected {expected} at byte {at}; correct the file there (PyTorch leaves quotes in metadata unescaped)"
                ),
            ),
            Cause::OtherFormat => Error::new(
                ErrorKind::Json,
                format!(
                    "not JSON: no {{ or [ at byte {at}; give a trace file of Kineto, PyTorch or chrome://tracing, plain or gzip"
                ),
            ),
            Cause::Truncated => Error::new(
                ErrorKind::Truncated,
                format!(
                    "cut off at byte {at}, as if its writer was killed; read what is there with ReadOptions::partial"
                ),
            ),
            Cause::NotATrace(why) => Error::new(
                ErrorKind::NotATrace,
                format!("not a trace: {why} (at byte {at}); give a file of Kineto, PyTorch or chrome://tracing"),
            ),
            Cause::TooLarge(what) => {
                Error::new(ErrorKind::TooLarge, format!("{what} (at byte {at}); ReadOptions has the limits"))
            }
            Cause::TimeLimit => Error::new(
                ErrorKind::Timeout,
                format!("the time limit was reached at byte {at}; raise it in ReadOptions"),
            ),
            Cause::Io(error) => {
                Error::new(ErrorKind::Io, format!("cannot read: {error} (at byte {at}); check the file and its disk"))
            }
        }
    }
}

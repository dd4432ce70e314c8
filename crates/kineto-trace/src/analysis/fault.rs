//! Errors in a file, with their position.

use crate::{Error, ErrorKind};
use std::io;

/// A place in a text, as editors show it; both numbers are from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) line: u64,
    /// In bytes.
    pub(super) column: u64,
}

/// Why reading stopped.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(super) cause: Cause,
    /// The offset in bytes, from 0.
    pub(super) at: u64,
}

#[derive(Debug)]
pub(crate) enum Cause {
    /// Not JSON; contains what was expected.
    NotJson(&'static str),
    /// Not JSON directly behind a text; contains what was expected.
    NotJsonAfterText(&'static str),
    /// Not a file in Perfetto's format; contains what was expected.
    NotProtobuf(&'static str),
    /// Does not begin like a trace in JSON.
    OtherFormat,
    /// Ends too early.
    Truncated,
    /// Ends too early, with no event before.
    WithoutEvents,
    /// JSON, but not a trace; contains why.
    NotATrace(&'static str),
    /// Exceeds a fixed limit; contains which.
    TooLarge(&'static str),
    /// Longer than the options allow.
    TooLong,
    /// The time limit passed.
    TimeLimit,
    /// Reading failed.
    Io(io::Error),
}

impl Fault {
    /// Boxed, so that a result is not larger than what was read.
    #[cold]
    pub(super) fn new(cause: Cause, at: u64) -> Box<Fault> {
        Box::new(Fault { cause, at })
    }

    /// Returns whether the value may be readable as other JSON. A text may seem to have no end, since a backslash precedes it.
    pub(super) fn may_be_rewritten(&self) -> bool {
        matches!(self.cause, Cause::NotJson(_) | Cause::NotJsonAfterText(_) | Cause::Truncated)
    }

    /// Converts it to an error for the caller. `place` is where it is in a file of JSON.
    pub(super) fn into_error(self, place: Option<Place>) -> Error {
        let byte = self.at;
        let at = match place {
            Some(Place { line, column }) => format!("line {line}, column {column} (byte {byte})"),
            None => format!("byte {byte}"),
        };
        match self.cause {
            Cause::NotJson(expected) => {
                Error::new(ErrorKind::Json, format!("not JSON: expected {expected} at {at}; correct the file there"))
            }
            Cause::NotJsonAfterText(expected) => Error::new(
                ErrorKind::Json,
                format!(
                    "not JSON: expected {expected} at {at}; correct the text before it (PyTorch leaves quotes in metadata unescaped)"
                ),
            ),
            Cause::NotProtobuf(expected) => Error::new(
                ErrorKind::NotATrace,
                format!("damaged Perfetto trace: expected {expected} at {at}; copy or record the file again"),
            ),
            Cause::OtherFormat => Error::new(
                ErrorKind::Json,
                format!(
                    "not JSON: no {{ or [ at {at}; give a trace file of Kineto, PyTorch, Perfetto or chrome://tracing, plain or gzip"
                ),
            ),
            Cause::Truncated => {
                // The command completes only files of JSON.
                let repair = if place.is_some() { ", or complete it with `kineto repair`" } else { "" };
                Error::new(
                    ErrorKind::Truncated,
                    format!("cut off at {at}, as if its writer was killed; read what is there with --partial{repair}"),
                )
            }
            Cause::WithoutEvents => Error::new(
                ErrorKind::Truncated,
                format!("cut off at {at}, before its first whole event; record it again"),
            ),
            Cause::NotATrace(why) => Error::new(
                ErrorKind::NotATrace,
                format!("not a trace: {why} (at {at}); give a file of Kineto, PyTorch, Perfetto or chrome://tracing"),
            ),
            Cause::TooLarge(what) => {
                Error::new(ErrorKind::TooLarge, format!("{what} (at {at}); shorten the file there"))
            }
            Cause::TooLong => Error::new(
                ErrorKind::TooLarge,
                format!("the file has more than {byte} bytes when unpacked, the reader's limit; record a shorter time"),
            ),
            Cause::TimeLimit => Error::new(
                ErrorKind::Timeout,
                format!("the reader's time limit was reached at {at}; give it more time"),
            ),
            Cause::Io(error) => {
                Error::new(ErrorKind::Io, format!("cannot read: {error} (at byte {byte}); check the file and its disk"))
            }
        }
    }
}

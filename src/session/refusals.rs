//! The errors of refused events.

use super::machine::{Event, Refusal, User};
use crate::error::{Error, ErrorKind};

pub(super) const PROGRAM_IS_RECORDING: &str = "the program is recording itself; try again when its recording has ended";
pub(super) const EVICTED_BY_PROGRAM: &str = "the program started its own recording";
pub(super) const REQUEST_IS_RECORDING: &str =
    "the running recording belongs to an external request; wait until it ends";

/// Returns the error of an event that was refused.
pub(super) fn refusal_error(event: Event, why: Refusal) -> Error {
    let (kind, text) = match (event, why) {
        (_, Refusal::NothingRuns) => (ErrorKind::NotActive, "no recording is running; start one first"),
        (Event::End(User::Request(_)), _) => (ErrorKind::NotActive, EVICTED_BY_PROGRAM),
        (Event::End(User::Program) | Event::Mark, _) => (ErrorKind::NotActive, REQUEST_IS_RECORDING),
        (Event::Prepare(User::Request(_)) | Event::Start(User::Request(_)), _) => {
            (ErrorKind::AlreadyActive, PROGRAM_IS_RECORDING)
        }
        _ => (ErrorKind::AlreadyActive, "a recording is running already; stop it first"),
    };
    Error::new(kind, text)
}

//! External correlation ids. Kinds are not checked, as the real library does not.

use crate::code::{Code, Outcome};
use crate::link;
use crate::shared::counters::count;
use sim_core::external;

pub(crate) fn push(kind: u32, id: u64) -> Outcome {
    count(&link::counters().pushes);
    Code::unless(link::options().push_error)?;
    external::push(kind, id);
    Ok(())
}

pub(crate) fn pop(kind: u32) -> Outcome<u64> {
    count(&link::counters().pops);
    external::pop(kind).ok_or(Code::EXTERNAL_ID_QUEUE_EMPTY)
}

//! External correlation ids. Kinds are not checked, as the real library does not.

use crate::code::{Code, Outcome, unless};
use crate::link;
use crate::shared::counters::count;
use sim_core::external;

pub(crate) fn push(kind: u32, id: u64) -> Outcome {
    count(&link::counters().pushes);
    unless(link::options().push_error)?;
    external::push(kind, id);
    Ok(())
}

pub(crate) fn pop(kind: u32) -> Outcome<u64> {
    count(&link::counters().pops);
    external::pop(kind).ok_or(Code::EXTERNAL_ID_QUEUE_EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim_core::external::{depth, innermost};

    #[test]
    fn each_kind_of_each_thread_has_its_own_stack() {
        push(2, 10).unwrap();
        push(2, 11).unwrap();
        push(3, 20).unwrap();
        assert_eq!(innermost(), [(2, 11), (3, 20)]);
        assert_eq!((depth(), std::thread::spawn(depth).join().unwrap()), (3, 0));
        assert_eq!((pop(2), pop(2), pop(2)), (Ok(11), Ok(10), Err(Code::EXTERNAL_ID_QUEUE_EMPTY)));
        assert_eq!((pop(3), innermost()), (Ok(20), vec![]));
    }
}

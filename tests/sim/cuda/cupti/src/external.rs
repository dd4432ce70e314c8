//! External correlation ids, of the kinds that CUPTI knows.

use crate::code::{Code, Outcome};
use crate::link;
use crate::shared::counters::count;
use sim_core::external;

/// Kinds 1 to 5, `UNKNOWN` to `CUSTOM2`.
fn check(kind: u32) -> Outcome {
    if (1..=5).contains(&kind) { Ok(()) } else { Err(Code::INVALID_PARAMETER) }
}

pub(crate) fn push(kind: u32, id: u64) -> Outcome {
    count(&link::counters().pushes);
    match link::options().push_error {
        0 => {}
        code => return Err(Code(code)),
    }
    check(kind)?;
    external::push(kind, id).ok_or(Code::INVALID_OPERATION)
}

pub(crate) fn pop(kind: u32) -> Outcome<u64> {
    count(&link::counters().pops);
    check(kind)?;
    external::pop(kind).ok_or(Code::QUEUE_EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim_core::external::{depth, innermost};

    #[test]
    fn each_kind_of_each_thread_has_its_own_stack() {
        push(3, 10).unwrap();
        push(3, 11).unwrap();
        push(4, 20).unwrap();
        assert_eq!(innermost(), [(3, 11), (4, 20)]);
        assert_eq!((depth(), std::thread::spawn(depth).join().unwrap()), (3, 0));
        assert_eq!((pop(3), pop(3), pop(3)), (Ok(11), Ok(10), Err(Code::QUEUE_EMPTY)));
        assert_eq!(pop(4), Ok(20));
        assert_eq!((push(0, 1), push(6, 1)), (Err(Code::INVALID_PARAMETER), Err(Code::INVALID_PARAMETER)));
    }
}

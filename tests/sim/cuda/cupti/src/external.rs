//! External correlation ids: for each thread and kind a stack, which outlives sessions.

use crate::code::{Code, Outcome};
use crate::link;
use crate::shared::counters::count;
use std::cell::RefCell;

/// Kinds 1 to 5, `UNKNOWN` to `CUSTOM2`.
const KINDS: usize = 5;

thread_local! {
    static STACKS: RefCell<[Vec<u64>; KINDS]> = const { RefCell::new([const { Vec::new() }; KINDS]) };
}

fn index(kind: u32) -> Outcome<usize> {
    match kind as usize {
        kind @ 1..=KINDS => Ok(kind - 1),
        _ => Err(Code::INVALID_PARAMETER),
    }
}

fn with<T>(body: impl FnOnce(&mut [Vec<u64>; KINDS]) -> T) -> Outcome<T> {
    STACKS.try_with(|stacks| body(&mut stacks.borrow_mut())).map_err(|_| Code::INVALID_OPERATION)
}

pub(crate) fn push(kind: u32, id: u64) -> Outcome {
    count(&link::counters().pushes);
    match link::options().push_error {
        0 => {}
        code => return Err(Code(code)),
    }
    let index = index(kind)?;
    with(|stacks| stacks[index].push(id))
}

pub(crate) fn pop(kind: u32) -> Outcome<u64> {
    count(&link::counters().pops);
    let index = index(kind)?;
    with(|stacks| stacks[index].pop())?.ok_or(Code::QUEUE_EMPTY)
}

/// The kinds that the calling thread is inside of, each with its innermost id.
pub(crate) fn innermost() -> Vec<(u32, u64)> {
    let tops = |stacks: &mut [Vec<u64>; KINDS]| {
        let tops = (1..).zip(stacks.iter()).filter_map(|(kind, stack)| Some((kind, *stack.last()?)));
        tops.collect()
    };
    with(tops).unwrap_or_default()
}

/// How many ids the calling thread has pushed and not popped.
pub(crate) fn depth() -> u64 {
    with(|stacks| stacks.iter().map(|stack| stack.len() as u64).sum()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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

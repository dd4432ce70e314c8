//! External correlation ids: for each thread and kind a stack, which outlives sessions.

use crate::code::{Code, Outcome, unless};
use crate::link;
use crate::shared::counters::count;
use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static STACKS: RefCell<BTreeMap<u32, Vec<u64>>> = const { RefCell::new(BTreeMap::new()) };
}

fn with<T>(body: impl FnOnce(&mut BTreeMap<u32, Vec<u64>>) -> T) -> Option<T> {
    STACKS.try_with(|stacks| body(&mut stacks.borrow_mut())).ok()
}

/// Kinds are not looked at, as the real library does not.
pub(crate) fn push(kind: u32, id: u64) -> Outcome {
    count(&link::counters().pushes);
    unless(link::options().push_error)?;
    with(|stacks| stacks.entry(kind).or_default().push(id));
    Ok(())
}

pub(crate) fn pop(kind: u32) -> Outcome<u64> {
    count(&link::counters().pops);
    with(|stacks| stacks.get_mut(&kind).and_then(Vec::pop)).flatten().ok_or(Code::EXTERNAL_ID_QUEUE_EMPTY)
}

/// The kinds that the calling thread is inside of, each with its innermost id.
pub(crate) fn innermost() -> Vec<(u32, u64)> {
    with(|stacks| stacks.iter().filter_map(|(kind, stack)| Some((*kind, *stack.last()?))).collect()).unwrap_or_default()
}

/// How many ids the calling thread has pushed and not popped.
pub(crate) fn depth() -> u64 {
    with(|stacks| stacks.values().map(|stack| stack.len() as u64).sum()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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

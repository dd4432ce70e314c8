//! External correlation ids: for each thread and kind a stack, which outlives sessions.

use std::cell::RefCell;
use std::collections::BTreeMap;

type Stacks = BTreeMap<u32, Vec<u64>>;

thread_local! {
    static STACKS: RefCell<Stacks> = const { RefCell::new(BTreeMap::new()) };
}

fn with<T>(body: impl FnOnce(&mut Stacks) -> T) -> Option<T> {
    STACKS.try_with(|stacks| body(&mut stacks.borrow_mut())).ok()
}

/// Pushes an id. Returns none if the calling thread is ending.
pub fn push(kind: u32, id: u64) -> Option<()> {
    with(|stacks| stacks.entry(kind).or_default().push(id))
}

pub fn pop(kind: u32) -> Option<u64> {
    with(|stacks| stacks.get_mut(&kind).and_then(Vec::pop)).flatten()
}

/// Returns the kinds that the calling thread has pushed ids of, each with its innermost id.
pub fn innermost() -> Vec<(u32, u64)> {
    with(|stacks| stacks.iter().filter_map(|(kind, stack)| Some((*kind, *stack.last()?))).collect()).unwrap_or_default()
}

/// Returns how many ids the calling thread has pushed and not popped.
pub fn depth() -> u64 {
    with(|stacks| stacks.values().map(|stack| stack.len() as u64).sum()).unwrap_or_default()
}

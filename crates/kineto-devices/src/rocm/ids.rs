//! A thread-local stack of slices. It replaces AMD's own stacks, since callbacks run on the calling thread.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The slices of a thread, outermost first.
#[derive(Debug)]
struct SliceStack {
    /// The recording in which they were pushed.
    recording: u64,
    ids: Vec<u64>,
}

/// The deepest nesting; further slices are not accepted.
const DEEPEST: usize = 1 << 12;

/// Counts recordings, so that leftovers of an earlier recording are ignored; a forked child continues the count.
static RECORDING: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static STACK: RefCell<SliceStack> = const { RefCell::new(SliceStack { recording: 0, ids: Vec::new() }) };
}

/// Begins a recording: all stacks count as empty.
pub(super) fn begin_recording() {
    RECORDING.fetch_add(1, Ordering::Relaxed);
}

/// Pushes a slice of the calling thread; returns whether it was accepted.
pub(super) fn push(id: u64) -> bool {
    with_stack(|ids| {
        let fits = ids.len() < DEEPEST;
        if fits {
            ids.push(id);
        }
        fits
    })
    .unwrap_or(false)
}

/// Pops the slice that the calling thread pushed last.
pub(super) fn pop() {
    with_stack(Vec::pop);
}

/// Returns the calling thread's innermost slice, 0 if none.
pub(super) fn innermost() -> u64 {
    with_stack(|ids| ids.last().copied()).flatten().unwrap_or(0)
}

/// Returns `None` on a thread that is ending, and in nested calls.
fn with_stack<R>(act: impl FnOnce(&mut Vec<u64>) -> R) -> Option<R> {
    let with_stack = |stack: &RefCell<SliceStack>| {
        let mut stack = stack.try_borrow_mut().ok()?;
        let recording = RECORDING.load(Ordering::Relaxed);
        if stack.recording != recording {
            stack.recording = recording;
            stack.ids.clear();
        }
        Some(act(&mut stack.ids))
    };
    STACK.try_with(with_stack).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    // A single test: recordings are counted for the whole process.
    #[test]
    fn stacks_are_per_thread_and_per_recording() {
        begin_recording();
        assert_eq!(innermost(), 0);
        assert!(push(7) && push(8));
        assert_eq!(innermost(), 8);
        std::thread::scope(|scope| _ = scope.spawn(|| assert_eq!(innermost(), 0)));
        pop();
        assert_eq!(innermost(), 7);
        begin_recording();
        assert_eq!(innermost(), 0, "an earlier recording's do not count");
        pop();
        let taken = (0..DEEPEST as u64 + 10).filter(|id| push(*id + 1)).count();
        assert_eq!((taken, innermost()), (DEEPEST, DEEPEST as u64), "it does not grow for ever");
    }
}

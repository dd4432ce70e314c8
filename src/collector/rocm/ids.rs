//! The slices that each thread is in, as it has pushed them: AMD's own stacks are not used, since a callback has the
//! calling thread at hand.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The slices of one thread, outermost first.
#[derive(Debug)]
struct Stack {
    /// The recording that they were pushed in.
    recording: u64,
    ids: Vec<u64>,
}

/// No thread is in more slices; what comes beyond is not taken.
const DEEPEST: usize = 1 << 12;

/// Counts recordings, so that what an earlier one has left on a thread does not count; a forked child goes on counting.
static RECORDING: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack { recording: 0, ids: Vec::new() }) };
}

/// A recording begins: no thread is in a slice yet.
pub(super) fn begin() {
    RECORDING.fetch_add(1, Ordering::Relaxed);
}

/// The calling thread enters a slice; returns whether it was taken.
pub(super) fn push(id: u64) -> bool {
    with(|ids| {
        let fits = ids.len() < DEEPEST;
        if fits {
            ids.push(id);
        }
        fits
    })
    .unwrap_or(false)
}

/// The calling thread leaves the slice that it pushed last.
pub(super) fn pop() {
    with(Vec::pop);
}

/// Returns the slice that the calling thread is in, 0 if none.
pub(super) fn innermost() -> u64 {
    with(|ids| ids.last().copied()).flatten().unwrap_or(0)
}

/// `None` on a thread that ends, and within itself.
fn with<R>(act: impl FnOnce(&mut Vec<u64>) -> R) -> Option<R> {
    let with_stack = |stack: &RefCell<Stack>| {
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

    // One test: recordings are counted for the whole process.
    #[test]
    fn each_thread_has_its_own_and_each_recording_begins_anew() {
        begin();
        assert_eq!(innermost(), 0);
        assert!(push(7) && push(8));
        assert_eq!(innermost(), 8);
        std::thread::scope(|scope| _ = scope.spawn(|| assert_eq!(innermost(), 0)));
        pop();
        assert_eq!(innermost(), 7);
        begin();
        assert_eq!(innermost(), 0, "an earlier recording's do not count");
        pop();
        let taken = (0..DEEPEST as u64 + 10).filter(|id| push(*id + 1)).count();
        assert_eq!((taken, innermost()), (DEEPEST, DEEPEST as u64), "it does not grow for ever");
    }
}

//! A guard against hooks inside hooks.

use std::cell::Cell;

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Guards against re-entry while a thread supplies a lane, a chunk or a span's state, or holds the ring's lock. Meanwhile
/// spans of the allocator or the registry are not recorded, because their hooks would need the same resources.
pub(crate) struct Busy(());

impl Busy {
    /// Returns `None` if the thread is already busy, or ending.
    pub(crate) fn begin() -> Option<Busy> {
        // Not `then_some`: it would create a `Busy` whose drop clears the other's flag.
        BUSY.with(|busy| !busy.replace(true)).then(|| Busy(()))
    }

    /// Returns whether the thread is busy.
    #[inline]
    pub(crate) fn is_held() -> bool {
        BUSY.with(Cell::get)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.with(|busy| busy.set(false));
    }
}

//! Handlers of other copies of this crate in the process: shared libraries may each have one, with statics of its own.
//!
//! A copy recognizes the handler of another copy by the signals that the handler blocks: a set of real-time signals that no
//! program blocks together. It replaces that handler, and passes the signal on.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The handlers that were replaced, by signal.
static REPLACED: [AtomicUsize; 32] = [const { AtomicUsize::new(0) }; 32];

fn place(signal: libc::c_int) -> Option<&'static AtomicUsize> {
    REPLACED.get(usize::try_from(signal).ok()?)
}

/// Keeps the handler of another copy, which gets the signal next.
pub(super) fn keep(signal: libc::c_int, handler: libc::sighandler_t) {
    if let Some(place) = place(signal) {
        place.store(handler, Ordering::SeqCst);
    }
}

/// Takes the handler of another copy that gets the signal next.
pub(super) fn take(signal: libc::c_int) -> Option<libc::sighandler_t> {
    place(signal).map(|place| place.swap(0, Ordering::SeqCst)).filter(|handler| *handler != 0)
}

/// Calls the handler of another copy.
pub(super) fn call(signal: libc::c_int) {
    let handler = place(signal).map_or(0, |place| place.load(Ordering::SeqCst));
    if handler != 0 {
        // SAFETY: the handler was installed by another copy of this crate, which takes the signal alone, and is never unloaded.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

/// Which real-time signals a handler of this crate blocks, a bit for each from the first on. All versions of the crate have the same.
#[cfg(target_os = "linux")]
const MARK: u32 = 0b01_1010_0011_1010_0110_0101;
#[cfg(target_os = "linux")]
const MARK_BITS: libc::c_int = 22;

/// Marks the action of a handler as this crate's.
#[cfg(target_os = "linux")]
pub(super) fn mark(action: &mut libc::sigaction) {
    for bit in (0..MARK_BITS).filter(|bit| MARK >> bit & 1 != 0) {
        // SAFETY: the set is valid, and so is the signal.
        unsafe { libc::sigaddset(&raw mut action.sa_mask, libc::SIGRTMIN() + bit) };
    }
}

/// Returns whether an action is that of a copy of this crate.
#[cfg(target_os = "linux")]
pub(super) fn is_of_copy(action: &libc::sigaction) -> bool {
    let is_blocked = |bit: libc::c_int| {
        // SAFETY: the set is valid, and so is the signal.
        unsafe { libc::sigismember(&raw const action.sa_mask, libc::SIGRTMIN() + bit) == 1 }
    };
    action.sa_sigaction > libc::SIG_IGN && (0..MARK_BITS).all(|bit| is_blocked(bit) == (MARK >> bit & 1 != 0))
}

/// There are too few signals to mark a handler on this platform: the first copy handles signals alone.
#[cfg(not(target_os = "linux"))]
pub(super) fn mark(_action: &mut libc::sigaction) {}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_of_copy(_action: &libc::sigaction) -> bool {
    false
}

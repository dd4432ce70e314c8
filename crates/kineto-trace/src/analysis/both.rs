//! Two computations at once.

use std::thread;

/// Computes two things, the first on another thread if one can be started.
pub(super) fn compute_both<A: Send, B>(first: impl Fn() -> A + Sync, second: impl FnOnce() -> B) -> (A, B) {
    let first = &first;
    thread::scope(|scope| {
        let other = thread::Builder::new().name("kineto-analysis".into()).spawn_scoped(scope, first);
        let second = second();
        let first = match other.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // WebAssembly has no threads.
            Err(_) => first(),
        };
        (first, second)
    })
}

//! What is asked of the thread that reads a library's buffers, and what has come of it.

use super::pool::Pool;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The way to the thread of a recording; `E` says how the recording is to end.
#[derive(Debug)]
pub(super) struct Orders<E> {
    /// Where the thread waits.
    pool: &'static Pool,
    wanted: Mutex<Wanted<E>>,
    done: Condvar,
    /// Whether there is something in `wanted`.
    waiting: AtomicBool,
}

#[derive(Debug)]
struct Wanted<E> {
    /// How often a drain was asked for, and how many of those are done.
    drains: u64,
    drained: u64,
    end: Option<E>,
    ended: bool,
}

/// Says that the recording has ended when it is dropped, whatever ended it.
#[derive(Debug)]
pub(super) struct SaysEnded<E: Copy>(pub(super) Arc<Orders<E>>);

impl<E: Copy> Drop for SaysEnded<E> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// What the thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order<E> {
    /// To read what is complete, and to [say](Orders::drained) that all drains up to this one are done.
    Drain(u64),
    /// To end the recording, and to [say so](Orders::ended).
    End(E),
    /// To look at what else there is to do.
    Look,
}

/// How long the end of a recording may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndLimits {
    /// Until then, the end waits for device work that has begun.
    pub(super) work: Instant,
    /// For so long, it waits for the library.
    pub(super) library: Duration,
}

impl EndLimits {
    /// Divides the time that is left until `deadline`. Its last part is for the calls behind the wait for work: a library
    /// flushes its buffers and gives up what it held.
    pub(super) fn new(now: Instant, deadline: Instant) -> EndLimits {
        /// For these calls, and what a library that hangs costs at least.
        const CALLS: Duration = Duration::from_millis(500);
        let left = deadline.saturating_duration_since(now);
        EndLimits { work: now + (left - CALLS.min(left / 2)), library: left.max(CALLS) }
    }
}

impl<E: Copy> Orders<E> {
    /// For a thread that waits for buffers of this pool.
    pub(super) fn new(pool: &'static Pool) -> Orders<E> {
        let wanted = Wanted { drains: 0, drained: 0, end: None, ended: false };
        Orders { pool, wanted: Mutex::new(wanted), done: Condvar::new(), waiting: AtomicBool::new(false) }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted<E>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has what is complete read, and waits for that.
    pub(super) fn drain(&self, patience: Duration) {
        let mut wanted = self.wanted();
        wanted.drains += 1;
        let ticket = wanted.drains;
        self.order(wanted);
        self.wait(patience, |wanted| wanted.drained >= ticket || wanted.ended);
    }

    /// Has the recording ended, and waits for that; `false` if it takes longer than `patience`.
    pub(super) fn end(&self, end: E, patience: Duration) -> bool {
        let mut wanted = self.wanted();
        wanted.end = Some(end);
        self.order(wanted);
        self.wait(patience, |wanted| wanted.ended)
    }

    /// Has the thread look at what else there is to do.
    pub(super) fn nudge(&self) {
        self.order(self.wanted());
    }

    fn order(&self, wanted: MutexGuard<'_, Wanted<E>>) {
        self.waiting.store(true, Ordering::Release);
        drop(wanted);
        self.pool.wake();
    }

    fn wait(&self, patience: Duration, is_done: impl Fn(&Wanted<E>) -> bool) -> bool {
        let until = self.done.wait_timeout_while(self.wanted(), patience, |wanted| !is_done(wanted));
        !until.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Whether there is something for the thread to do.
    pub(super) fn are_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Takes what the thread is to do, if there is something.
    pub(super) fn take(&self) -> Option<Order<E>> {
        if !self.waiting.swap(false, Ordering::AcqRel) {
            return None;
        }
        let wanted = self.wanted();
        Some(match wanted.end {
            Some(end) => Order::End(end),
            None if wanted.drained < wanted.drains => Order::Drain(wanted.drains),
            None => Order::Look,
        })
    }

    /// All drains up to this one are done.
    pub(super) fn drained(&self, drains: u64) {
        self.wanted().drained = drains;
        self.done.notify_all();
    }

    /// The recording has ended.
    fn ended(&self) {
        self.wanted().ended = true;
        self.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_has_no_longer_than_the_limit() {
        let now = Instant::now();
        let limits = |ms| {
            let limits = EndLimits::new(now, now + Duration::from_millis(ms));
            ((limits.work - now).as_millis(), limits.library.as_millis())
        };
        assert_eq!([0, 200, 1000, 5000].map(limits), [(0, 500), (100, 500), (500, 1000), (4500, 5000)]);
        assert_eq!(EndLimits::new(now + Duration::from_secs(1), now).library.as_millis(), 500, "the deadline is over");
    }

    #[test]
    fn what_is_ordered_is_taken_and_waited_for() {
        static POOL: Pool = Pool::new();
        let (orders, long) = (Orders::new(&POOL), Duration::from_secs(60));
        assert!(!orders.are_waiting() && orders.take().is_none());
        orders.nudge();
        assert!(orders.are_waiting());
        assert_eq!(orders.take(), Some(Order::Look));
        orders.drain(Duration::ZERO);
        assert_eq!(orders.take(), Some(Order::Drain(1)));
        assert_eq!(orders.take(), None, "once");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    POOL.take(Instant::now() + long, || orders.are_waiting());
                    match orders.take() {
                        Some(Order::Drain(drains)) => orders.drained(drains),
                        Some(Order::End("now")) => return orders.ended(),
                        other => assert_eq!(other, None),
                    }
                }
            });
            orders.drain(long);
            assert_eq!(orders.wanted().drained, 2);
            assert!(orders.end("now", long));
        });
        orders.drain(long);
        assert!(!Orders::new(&POOL).end((), Duration::ZERO), "nobody does it");
    }
}

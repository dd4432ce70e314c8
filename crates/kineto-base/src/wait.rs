//! Time that a thread reads or waits for: the machine's, or a test's.
//!
//! Whatever waits, or compares times, takes the time from here; what measures the machine itself (a test's patience, the clocks' own
//! tests) takes it from [`std::time`]. With the feature `virtual-clock`, an environment variable selects a clock that
//! moves only if a test advances it.

#[cfg(not(all(feature = "virtual-clock", target_os = "linux")))]
#[path = "wait/no_virtual_clock.rs"]
mod virtual_clock;
#[cfg(all(feature = "virtual-clock", target_os = "linux"))]
#[path = "wait/virtual_clock.rs"]
pub mod virtual_clock;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};
use virtual_clock::{VirtualClock, selected};

/// A condition variable whose time limits are those of [`steady`].
#[derive(Debug, Default)]
pub struct Condvar {
    real: std::sync::Condvar,
    /// Counts notifications, for a virtual clock.
    notified: AtomicU64,
}

/// Returns the steady clock's time.
pub fn steady() -> Instant {
    let Some(clock) = selected() else { return Instant::now() };
    let (begin, at) = origin(clock);
    *begin + Duration::from_nanos(clock.now().saturating_sub(*at))
}

/// Returns an instant of this process, and the virtual clock's time then.
fn origin(clock: &VirtualClock) -> &'static (Instant, u64) {
    static ORIGIN: OnceLock<(Instant, u64)> = OnceLock::new();
    ORIGIN.get_or_init(|| (Instant::now(), clock.now()))
}

/// Returns how much time has passed since then.
pub fn since(begun: Instant) -> Duration {
    steady().saturating_duration_since(begun)
}

/// Returns CLOCK_REALTIME.
pub fn wall() -> SystemTime {
    selected().map_or_else(SystemTime::now, |clock| SystemTime::UNIX_EPOCH + Duration::from_nanos(clock.wall()))
}

/// Returns the steady time of a selected virtual clock, in nanoseconds, and a later one at each call.
#[inline(always)]
pub fn virtual_nanos() -> Option<u64> {
    selected().map(VirtualClock::tick)
}

/// Returns whether a virtual clock is selected.
pub fn is_virtual() -> bool {
    selected().is_some()
}

/// Sleeps for that time.
pub fn sleep(time: Duration) {
    match selected() {
        Some(clock) => wait_by(clock, steady().checked_add(time), &|| false),
        None => std::thread::sleep(time),
    }
}

/// Parks the thread until [`unpark`] wakes it, or until that time; it may also return earlier.
pub fn park_until(until: Option<Instant>) {
    thread_local! { static SEEN: Cell<u64> = const { Cell::new(0) }; }
    match (selected(), until) {
        // Any thread's wake ends the wait, since a virtual clock cannot see whose it is.
        (Some(clock), _) => SEEN.with(|seen| {
            wait_by(clock, until, &|| UNPARKED.load(Ordering::SeqCst) != seen.get());
            seen.set(UNPARKED.load(Ordering::SeqCst));
        }),
        (None, Some(until)) => std::thread::park_timeout(until.saturating_duration_since(Instant::now())),
        (None, None) => std::thread::park(),
    }
}

/// Wakes a thread that is in [`park_until`], or will be.
pub fn unpark(thread: &Thread) {
    thread.unpark();
    if let Some(clock) = selected() {
        UNPARKED.fetch_add(1, Ordering::SeqCst);
        clock.wake();
    }
}

static UNPARKED: AtomicU64 = AtomicU64::new(0);

/// Waits by `look`, which returns whether what it waits for has happened, once it has or after the time that it is given.
///
/// A virtual clock does not pass `until` before this has returned. What `look` waits for does not follow that clock: it is called
/// again and again.
pub(crate) fn look_until(until: Option<Instant>, look: &mut dyn FnMut(Duration) -> bool) {
    const MOMENT: Duration = Duration::from_millis(5);
    match selected() {
        Some(clock) => clock.look_until(deadline_by(clock, until), &mut || look(MOMENT)),
        None => _ = look(until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()))),
    }
}

fn wait_by(clock: &VirtualClock, until: Option<Instant>, is_done: &dyn Fn() -> bool) {
    clock.wait(deadline_by(clock, until), is_done);
}

/// Returns that time of the virtual clock, in nanoseconds.
fn deadline_by(clock: &VirtualClock, until: Option<Instant>) -> Option<u64> {
    let (begin, at) = origin(clock);
    let nanos = |passed: Duration| u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
    until.map(|until| at.saturating_add(nanos(until.saturating_duration_since(*begin))))
}

impl Condvar {
    /// Creates a condition that no thread waits for.
    pub const fn new() -> Condvar {
        Condvar { real: std::sync::Condvar::new(), notified: AtomicU64::new(0) }
    }

    /// Waits for a notification; `guard` is one of `mutex`. It may also return without one.
    pub fn wait<'m, T>(&self, mutex: &'m Mutex<T>, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
        match selected() {
            Some(clock) => self.wait_virtually(clock, mutex, guard, None),
            None => self.real.wait(guard).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Waits for a notification until that time; `guard` is one of `mutex`. It may also return earlier.
    pub fn wait_until<'m, T>(
        &self,
        mutex: &'m Mutex<T>,
        guard: MutexGuard<'m, T>,
        until: Instant,
    ) -> MutexGuard<'m, T> {
        match selected() {
            Some(clock) => self.wait_virtually(clock, mutex, guard, Some(until)),
            None => {
                let left = until.saturating_duration_since(Instant::now());
                self.real.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Waits while `is_awaited` returns true; `guard` is one of `mutex`.
    pub fn wait_while<'m, T>(
        &self,
        mutex: &'m Mutex<T>,
        mut guard: MutexGuard<'m, T>,
        mut is_awaited: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        while is_awaited(&mut guard) {
            guard = self.wait(mutex, guard);
        }
        guard
    }

    /// Waits while `is_awaited` returns true, until that time; `guard` is one of `mutex`.
    pub fn wait_while_until<'m, T>(
        &self,
        mutex: &'m Mutex<T>,
        mut guard: MutexGuard<'m, T>,
        until: Instant,
        mut is_awaited: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        while is_awaited(&mut guard) && steady() < until {
            guard = self.wait_until(mutex, guard, until);
        }
        guard
    }

    fn wait_virtually<'m, T>(
        &self,
        clock: &VirtualClock,
        mutex: &'m Mutex<T>,
        guard: MutexGuard<'m, T>,
        until: Option<Instant>,
    ) -> MutexGuard<'m, T> {
        let before = self.notified.load(Ordering::SeqCst);
        drop(guard);
        wait_by(clock, until, &|| self.notified.load(Ordering::SeqCst) != before);
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.real.notify_one();
        self.count_notification();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.real.notify_all();
        self.count_notification();
    }

    fn count_notification(&self) {
        if let Some(clock) = selected() {
            self.notified.fetch_add(1, Ordering::SeqCst);
            clock.wake();
        }
    }
}

//! Detects that this process is a forked child, at no cost on the span path.
#![allow(
    unsafe_code,
    reason = "pthread_atfork and a page that children find zeroed have no safe form; links between processes' values are raw pointers"
)]

mod wiped;

pub use wiped::WipedWord;

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// A value that each forked child has separately.
///
/// At the time of a fork another thread may be using the value: it may hold a lock, or be half way through a push. The child
/// has a copy of that state but not the thread, so it would wait forever. It creates a value of its own instead.
#[derive(Debug)]
pub struct PerProcess<T> {
    /// The generation in which it was created.
    born: u64,
    first: OwnLink<T>,
}

#[derive(Debug)]
struct OwnLink<T> {
    value: T,
    /// The link of the next generation; null until that uses it. Not a `OnceLock`, which a fork may copy half set. Untyped,
    /// so that all types share the code that sets it.
    next: AtomicPtr<()>,
}

impl<T> OwnLink<T> {
    const fn new(value: T) -> OwnLink<T> {
        OwnLink { value, next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next_or_create(&self, make: &dyn Fn(&T) -> T) -> &OwnLink<T> {
        let mut next = load_link(&self.next);
        if next.is_null() {
            let made = Box::into_raw(Box::new(OwnLink::new(make(&self.value))));
            next = publish_link(&self.next, made.cast());
            if next != made.cast() {
                // SAFETY: `made` comes from `Box::into_raw` above and was never published.
                drop(unsafe { Box::from_raw(made) });
            }
        }
        // SAFETY: a link that is not null came from a box of this type and stays until `self` is dropped, which the borrow
        // forbids.
        unsafe { &*next.cast() }
    }
}

fn load_link(next: &AtomicPtr<()>) -> *mut () {
    next.load(Ordering::Acquire)
}

/// Sets the link unless another thread has set it; returns the one that is set now.
fn publish_link(next: &AtomicPtr<()>, made: *mut ()) -> *mut () {
    match next.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(theirs) => theirs,
    }
}

impl<T> Drop for OwnLink<T> {
    fn drop(&mut self) {
        let next = *self.next.get_mut();
        if !next.is_null() {
            // SAFETY: it came from a box of this type, and `&mut self` means that there is no other reference.
            drop(unsafe { Box::from_raw(next.cast::<OwnLink<T>>()) });
        }
    }
}

impl<T> PerProcess<T> {
    /// Creates the value of this process.
    pub fn new(value: T) -> PerProcess<T> {
        PerProcess { born: generation(), first: OwnLink::new(value) }
    }

    /// Creates a static value for the first process.
    pub const fn of_first(value: T) -> PerProcess<T> {
        PerProcess { born: 0, first: OwnLink::new(value) }
    }

    /// Returns the value of this process, which `make` creates in a forked child. `make` receives the parent's value and must
    /// not wait for it: it may be half changed forever.
    pub fn get(&self, make: impl Fn(&T) -> T) -> &T {
        let generation = generation();
        if self.born == generation { &self.first.value } else { self.inherit(generation, &make) }
    }

    #[cold]
    fn inherit(&self, generation: u64, make: &dyn Fn(&T) -> T) -> &T {
        let mut link = &self.first;
        for _ in self.born..generation {
            link = link.next_or_create(make);
        }
        &link.value
    }
}

impl<T: Default> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new(T::default())
    }
}

/// A value behind a lock, which each forked child has separately, initially the default.
#[derive(Debug)]
pub struct Own<T>(PerProcess<Mutex<T>>);

impl<T: Default> Own<T> {
    /// Creates a static value.
    pub const fn of_first(value: T) -> Own<T> {
        Own(PerProcess::of_first(Mutex::new(value)))
    }

    /// Creates a value of this process.
    pub fn new(value: T) -> Own<T> {
        Own(PerProcess::new(Mutex::new(value)))
    }

    /// Locks the value of this process, ignoring poison.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.own_mutex().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the value of this process, unless another thread has locked it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.own_mutex().try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(value)) => Some(value.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn own_mutex(&self) -> &Mutex<T> {
        self.0.get(|_| Mutex::default())
    }
}

impl<T: Default> Default for Own<T> {
    fn default() -> Own<T> {
        Own::new(T::default())
    }
}

/// The number of forks between the process that first recorded and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The handler that each forked child runs; set by `call_in_children`.
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// Returns a number that differs in every forked child, also in one that was made by `clone(2)` without the C library.
pub fn generation() -> u64 {
    if wiped::mark_process() {
        enter_child();
    }
    GENERATION.load(Ordering::Relaxed)
}

/// Calls `in_child` in every forked child, on the thread that forked; only the first call has an effect.
///
/// `in_child` may only touch memory that exists, and allocate and free none: other threads may have held any lock at the time
/// of the fork.
#[cfg(unix)]
pub fn call_in_children(in_child: fn()) {
    extern "C" fn child() {
        wiped::mark_process();
        enter_child();
    }
    IN_CHILD.get_or_init(|| {
        // SAFETY: the handler is a plain function that lives for ever and does not unwind. It touches atomics and the forking
        // thread's own memory, allocates and frees nothing, and calls only mmap and close, which are safe after a fork.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
        in_child
    });
}

/// Begins a new generation, detaches it from the parent's shared files, and runs the handler of `call_in_children`.
#[cold]
fn enter_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    #[cfg(all(target_os = "linux", not(miri), feature = "segments"))]
    super::shared_file::detach_child();
    if let Some(in_child) = IN_CHILD.get() {
        in_child();
    }
}

/// Does nothing on this platform.
#[cfg(not(unix))]
pub fn call_in_children(_in_child: fn()) {}

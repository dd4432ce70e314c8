//! Objects by handle.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a thread has panicked with it: tests that fail leave the machine to others.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The objects that clients have made and not destroyed.
#[derive(Debug)]
pub struct Handles<T> {
    /// The last handle, and the objects.
    objects: Mutex<(usize, BTreeMap<usize, T>)>,
}

impl<T> Handles<T> {
    /// Handles begin behind `before`.
    pub const fn behind(before: usize) -> Handles<T> {
        Handles { objects: Mutex::new((before, BTreeMap::new())) }
    }

    pub fn add(&self, object: T) -> usize {
        let mut objects = lock(&self.objects);
        objects.0 += 1;
        let handle = objects.0;
        objects.1.insert(handle, object);
        handle
    }

    pub fn remove(&self, handle: usize) -> Option<T> {
        lock(&self.objects).1.remove(&handle)
    }

    /// Calls `act` with an object, under the lock of all.
    ///
    /// # Errors
    /// `missing` without such an object, or the error of `act`.
    pub fn with<R, E>(&self, handle: usize, missing: E, act: impl FnOnce(&mut T) -> Result<R, E>) -> Result<R, E> {
        lock(&self.objects).1.get_mut(&handle).map_or(Err(missing), act)
    }

    /// Calls `act` with all objects, in the order in which they were made.
    pub fn with_all<R>(&self, act: impl FnOnce(&mut BTreeMap<usize, T>) -> R) -> R {
        act(&mut lock(&self.objects).1)
    }
}

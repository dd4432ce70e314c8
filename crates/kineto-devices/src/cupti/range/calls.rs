//! The watched call that a thread is in, for each thing that is watched.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::thread::LocalKey;

/// A call that a thread is in, with its owner, a recording. The runtime's functions call the driver's: the outer call counts.
#[derive(Debug)]
pub(super) struct OpenCall<O, T> {
    /// A call that runs when its recording ends may have no callback at its return, and stays here.
    owner: Weak<O>,
    function: (u32, u32),
    data: T,
}

/// The call of a thread, as the value of a thread-local.
pub(super) type CallPlace<O, T> = RefCell<Option<OpenCall<O, T>>>;

/// The calls of all threads.
#[derive(Debug)]
pub(super) struct OpenCalls<O: 'static, T: 'static>(pub(super) &'static LocalKey<CallPlace<O, T>>);

impl<O, T> OpenCalls<O, T> {
    fn with_place<R>(&self, act: impl FnOnce(&mut Option<OpenCall<O, T>>) -> R) -> Option<R> {
        self.0.try_with(|place| act(&mut place.borrow_mut())).ok()
    }

    /// Returns whether the calling thread is in a call of that function.
    pub(super) fn is_in(&self, function: (u32, u32)) -> bool {
        self.with_place(|call| call.as_ref().is_some_and(|call| call.function == function)).unwrap_or(false)
    }

    /// Returns whether the calling thread is in a call of that owner, or its thread-locals are gone.
    pub(super) fn is_of(&self, owner: &Arc<O>) -> bool {
        let is_of = |call: &OpenCall<O, T>| std::ptr::eq(call.owner.as_ptr(), Arc::as_ptr(owner));
        self.with_place(|call| call.as_ref().is_some_and(is_of)).unwrap_or(true)
    }

    /// Enters a call.
    pub(super) fn enter(&self, owner: &Arc<O>, function: (u32, u32), data: T) {
        let call = OpenCall { owner: Arc::downgrade(owner), function, data };
        // The earlier one is dropped after the place is free again.
        drop(self.with_place(|place| place.replace(call)));
    }

    /// Leaves the call of that function; returns its owner, unless that is gone, and its data.
    pub(super) fn leave(&self, function: (u32, u32)) -> Option<(Arc<O>, T)> {
        let OpenCall { owner, data, .. } = self.with_place(|call| call.take_if(|call| call.function == function))??;
        Some((owner.upgrade()?, data))
    }
}

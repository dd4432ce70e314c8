//! Stub of the virtual clock for builds where none can be selected, from which the compiler removes it.

/// A clock that does not exist.
pub(super) enum VirtualClock {}

#[inline(always)]
pub(super) fn selected() -> Option<&'static VirtualClock> {
    None
}

impl VirtualClock {
    pub(super) fn now(&self) -> u64 {
        match *self {}
    }

    pub(super) fn tick(&self) -> u64 {
        match *self {}
    }

    pub(super) fn wall(&self) -> u64 {
        match *self {}
    }

    pub(super) fn wait(&self, _: Option<u64>, _: &dyn Fn() -> bool) {
        match *self {}
    }

    pub(super) fn look_until(&self, _: Option<u64>, _: &mut dyn FnMut() -> bool) {
        match *self {}
    }

    pub(super) fn wake(&self) {
        match *self {}
    }
}

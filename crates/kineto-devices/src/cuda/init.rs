//! Tracks whether a thread is inside of `cuInit`, which loads this library by injection.

use std::cell::Cell;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` inside of `cuInit`: the thread may hold any lock of the driver.
///
/// Meanwhile it calls no driver function except `cuDriverGetVersion`, which needs no initialisation, and waits for no
/// thread that does. CUPTI's functions are allowed: injected libraries are loaded there to call them.
pub fn inside_init<R>(work: impl FnOnce() -> R) -> R {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            IS_INSIDE.set(false);
        }
    }
    IS_INSIDE.set(true);
    let _end = End;
    work()
}

/// Returns whether the calling thread is inside of `cuInit`.
pub(crate) fn is_inside_init() -> bool {
    IS_INSIDE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_inside_until_work_returns() {
        assert!(!is_inside_init());
        let elsewhere = || std::thread::Builder::new().spawn(is_inside_init).unwrap().join().unwrap();
        let seen = inside_init(|| (is_inside_init(), elsewhere()));
        assert_eq!((seen, is_inside_init()), ((true, false), false));
        assert!(std::panic::catch_unwind(|| inside_init(|| panic!("on purpose"))).is_err());
        assert!(!is_inside_init());
    }
}

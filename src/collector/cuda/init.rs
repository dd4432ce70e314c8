//! Whether a thread is inside of `cuInit`, which has called this library.

use std::cell::Cell;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Does something inside of `cuInit`: the thread may hold any lock of the driver's.
///
/// Meanwhile it makes no call of the driver's but `cuDriverGetVersion`, which needs no initialisation, and waits for no
/// thread that makes one. CUPTI's calls are what a library is loaded there for.
#[cfg_attr(not(feature = "capi"), allow(dead_code, reason = "asked for by the functions for C"))]
pub(crate) fn inside_init<R>(work: impl FnOnce() -> R) -> R {
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
    fn one_thread_is_inside_until_it_comes_out() {
        assert!(!is_inside_init());
        let elsewhere = || std::thread::Builder::new().spawn(is_inside_init).unwrap().join().unwrap();
        let seen = inside_init(|| (is_inside_init(), elsewhere()));
        assert_eq!((seen, is_inside_init()), ((true, false), false));
        assert!(std::panic::catch_unwind(|| inside_init(|| panic!("on purpose"))).is_err());
        assert!(!is_inside_init());
    }
}

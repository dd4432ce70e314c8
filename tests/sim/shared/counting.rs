//! Counts that tests look at by their names.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counts of a machine.
macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// The counts, which the library of the machine owns and profilers add to.
        #[derive(Debug)]
        #[repr(C)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)+ }

        impl Counters {
            pub(crate) const fn new() -> Counters {
                Counters { $($name: AtomicU64::new(0),)+ }
            }

            /// The count of that name.
            pub(crate) fn get(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($name) => Some(self.$name.load(Ordering::Relaxed)),)+
                    _ => None,
                }
            }

            pub(crate) fn reset(&self) {
                $(self.$name.store(0, Ordering::Relaxed);)+
            }
        }
    };
}
pub(crate) use counters;

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

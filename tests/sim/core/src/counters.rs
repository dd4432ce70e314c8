//! Counters that tests read by name.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a machine.
pub trait Counts: Sync {
    /// Returns the counter of that name.
    fn get(&self, name: &str) -> Option<u64>;

    fn reset(&self);
}

/// Declares `Counters`, the counters of a machine.
#[macro_export]
macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// The counters. The library of the machine owns them, and profilers add to them.
        #[derive(Debug)]
        #[repr(C)]
        pub(crate) struct Counters { $(pub(crate) $name: std::sync::atomic::AtomicU64,)+ }

        impl Counters {
            pub(crate) const fn new() -> Counters {
                Counters { $($name: std::sync::atomic::AtomicU64::new(0),)+ }
            }
        }

        impl $crate::counters::Counts for Counters {
            fn get(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($name) => Some(self.$name.load(std::sync::atomic::Ordering::Relaxed)),)+
                    _ => None,
                }
            }

            fn reset(&self) {
                $(self.$name.store(0, std::sync::atomic::Ordering::Relaxed);)+
            }
        }
    };
}

/// Increments a counter.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

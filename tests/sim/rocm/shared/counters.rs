//! What the libraries count, for tests to look at.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// The counts, which HIP owns and the profilers add to.
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

counters! {
    // HIP's: calls by the program, its launches (a graph's counts once), and what the devices were given to do.
    calls,
    launches,
    kernels,
    memcpys,
    memsets,
    // Calls that wait for a device: a profiler makes none.
    synchronizes,
    // The profilers'.
    configures,
    starts,
    stops,
    callbacks,
    records,
    delivered_buffers,
    dropped,
    flushes,
    pushes,
    pops,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

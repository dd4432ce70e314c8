//! What the libraries count, for tests to look at.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// The counts, which Level Zero owns and PTI adds to.
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
    // Level Zero's: calls of `zeInit`, and what the program gave the devices to do.
    inits,
    kernels,
    memcpys,
    memsets,
    barriers,
    collectives,
    // Calls that wait for a device: a profiler makes none.
    synchronizes,
    // PTI's.
    api_records,
    external_records,
    device_records,
    sync_records,
    comms_records,
    overhead_records,
    requested_buffers,
    delivered_buffers,
    dropped,
    enables,
    disables,
    flushes,
    pushes,
    pops,
    scopes,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

//! What the two libraries count, for tests to look at.

#[path = "../../shared/counting.rs"]
mod counting;

pub(crate) use counting::count;
use counting::counters;
use std::sync::atomic::{AtomicU64, Ordering};

counters! {
    // The driver's: launches by the program (a graph's counts once), and what the devices were given to do.
    launches,
    kernels,
    memcpys,
    memsets,
    // Calls that wait for a device: a profiler makes none.
    synchronizes,
    // CUPTI's.
    api_records,
    external_records,
    device_records,
    requested_buffers,
    delivered_buffers,
    dropped,
    subscribes,
    unsubscribes,
    pushes,
    pops,
}

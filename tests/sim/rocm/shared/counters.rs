//! What the libraries count, for tests to look at.

#[path = "../../shared/counting.rs"]
mod counting;

pub(crate) use counting::count;
use counting::counters;
use std::sync::atomic::{AtomicU64, Ordering};

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

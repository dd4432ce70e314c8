//! Counters of the libraries, for tests.

pub(crate) use sim_core::counters::count;

sim_core::counters! {
    // Level Zero's: calls of `zeInit`, and submitted work.
    inits,
    kernels,
    memcpys,
    memsets,
    barriers,
    collectives,
    // Calls that wait for a device; a profiler makes none.
    synchronizes,
    // PTI's.
    api_records,
    device_records,
    requested_buffers,
    delivered_buffers,
    dropped,
    enables,
    pushes,
    pops,
    scopes,
}

//! Counters of the libraries, for tests.

pub(crate) use sim_core::counters::count;

sim_core::counters! {
    // HIP's: calls by the program, its launches (a graph's counts once), and submitted work.
    calls,
    launches,
    kernels,
    memcpys,
    memsets,
    // Calls that wait for a device; a profiler makes none.
    synchronizes,
    // The profilers'.
    configures,
    starts,
    stops,
    callbacks,
    records,
    delivered_buffers,
    dropped,
}

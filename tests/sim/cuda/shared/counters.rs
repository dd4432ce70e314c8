//! Counters of the two libraries, for tests.

pub(crate) use sim_core::counters::count;

sim_core::counters! {
    // The driver's: launches by the program (a graph's counts once), and submitted work.
    launches,
    kernels,
    memcpys,
    memsets,
    // Calls that wait for a device; a profiler makes none.
    synchronizes,
    // CUPTI's.
    api_records,
    device_records,
    requested_buffers,
    delivered_buffers,
    dropped,
    subscribes,
    unsubscribes,
    pushes,
    pops,
    profiler_inits,
    profiler_deinits,
    pm_enables,
    pm_disables,
    pm_decodes,
    range_enables,
    range_disables,
}

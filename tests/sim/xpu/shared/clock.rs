//! The clock of the simulated machine: CLOCK_MONOTONIC.
//!
//! The real PTI reads CLOCK_MONOTONIC_RAW, and measures its offset to real time each millisecond. This clock keeps pace
//! with real time, so one measurement is enough, and no record is off because a thread was preempted.

/// Reads the machine's clock, by which all work is timed.
pub(crate) use sim_core::clock::monotonic as now;
/// Reads the clock of PTI's timestamps, unless the client has set its own.
pub(crate) use sim_core::clock::real_time as wall;

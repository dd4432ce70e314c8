//! The clock of the simulated machine: CLOCK_MONOTONIC.
//!
//! The real PTI reads CLOCK_MONOTONIC_RAW, and finds out each millisecond how far real time is from it. This one keeps
//! pace with real time, so that once is enough, and no record is off because a thread had to wait in between.

/// Reads the machine's clock, by which all work is timed.
pub(crate) use sim_core::clock::monotonic as now;
/// Reads the clock of PTI's stamps, unless the client has a clock of its own.
pub(crate) use sim_core::clock::real_time as wall;

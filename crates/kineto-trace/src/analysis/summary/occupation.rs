//! The time that devices were busy, by class of work.

use super::intervals::Intervals;
use super::work::{Devices, WorkClass};

/// How devices spent the time from the start of their first work to the end of their last, in nanoseconds.
///
/// All devices and streams are combined: a moment is busy if anything runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupation {
    /// From the start of the first work to the end of the last.
    pub window_ns: u64,
    /// Any work ran.
    pub busy_ns: u64,
    /// A compute kernel ran.
    pub compute_ns: u64,
    /// Communication ran.
    pub communication_ns: u64,
    /// A copy or fill ran.
    pub memory_ns: u64,
    /// Communication ran without a compute kernel.
    pub exposed_communication_ns: u64,
    /// Communication and a compute kernel ran.
    pub overlapped_communication_ns: u64,
    /// The busy time divided by which classes ran together; the parts add up to it.
    pub exclusive: Exclusive,
}

/// Busy time by which classes ran together, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exclusive {
    /// Compute kernels alone.
    pub compute_ns: u64,
    /// Communication alone.
    pub communication_ns: u64,
    /// Copies and fills alone.
    pub memory_ns: u64,
    /// Compute kernels and communication.
    pub compute_communication_ns: u64,
    /// Compute kernels and copies.
    pub compute_memory_ns: u64,
    /// Communication and copies.
    pub communication_memory_ns: u64,
    /// All three.
    pub all_ns: u64,
}

impl Occupation {
    /// Returns `None` if no device worked.
    pub(super) fn new(devices: &Devices<'_>, busy: &Intervals) -> Option<Occupation> {
        let start = devices.busy_work().map(|work| work.start()).min()?;
        let end = devices.busy_work().map(|work| work.end()).max()?;
        let classes = [WorkClass::Compute, WorkClass::Communication, WorkClass::Memory];
        let [compute, comm, memory] = classes.map(|class| devices.times_of(class));
        let both = compute.intersection(&comm);
        let all = both.intersection(&memory).total_ns();
        let pairs = [both.total_ns(), compute.intersection(&memory).total_ns(), comm.intersection(&memory).total_ns()];
        let [compute_comm, compute_memory, comm_memory] = pairs.map(|ns| ns - all);
        let exclusive = Exclusive {
            compute_ns: compute.total_ns() - compute_comm - compute_memory - all,
            communication_ns: comm.total_ns() - compute_comm - comm_memory - all,
            memory_ns: memory.total_ns() - compute_memory - comm_memory - all,
            compute_communication_ns: compute_comm,
            compute_memory_ns: compute_memory,
            communication_memory_ns: comm_memory,
            all_ns: all,
        };
        Some(Occupation {
            window_ns: end.since(start),
            busy_ns: busy.total_ns(),
            compute_ns: compute.total_ns(),
            communication_ns: comm.total_ns(),
            memory_ns: memory.total_ns(),
            exposed_communication_ns: comm.total_ns() - both.total_ns(),
            overlapped_communication_ns: both.total_ns(),
            exclusive,
        })
    }

    /// Returns the time of the window in which nothing ran, in nanoseconds.
    pub fn idle_ns(&self) -> u64 {
        self.window_ns - self.busy_ns
    }
}

//! How busy devices were over time.

use super::intervals::Intervals;
use super::work::{Devices, Work, WorkClass};
use crate::analysis::events::{Events, TrackId};
use crate::sorting::sort_few_by_key;
use crate::time::Timestamp;
use std::ops::Range;

/// The busy time of one device, or of all, in intervals of equal length; made by [`Events::utilization`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Utilization {
    /// The device; `None` for all devices combined, where a moment is busy if anything runs.
    pub device: Option<TrackId>,
    /// The start of the first interval: the start of the trace's first slice.
    pub start: Timestamp,
    /// The length of an interval, in nanoseconds.
    pub bucket_ns: u64,
    /// The intervals; the last one may end after the trace.
    pub buckets: Vec<UtilizationBucket>,
}

/// The busy time in one interval, in nanoseconds. The parts do not overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UtilizationBucket {
    /// A compute kernel ran.
    pub compute_ns: u64,
    /// Communication ran, and no compute kernel.
    pub exposed_communication_ns: u64,
    /// Only copies and fills ran.
    pub memory_ns: u64,
}

impl UtilizationBucket {
    /// Returns the time in which anything ran.
    pub fn busy_ns(&self) -> u64 {
        self.compute_ns + self.exposed_communication_ns + self.memory_ns
    }
}

impl Events {
    /// Returns the busy time of devices in at most `buckets` intervals: all devices combined, then each by itself.
    ///
    /// The sum over the first is [`Occupation::busy_ns`](super::Occupation::busy_ns). The list is empty without device work.
    pub fn utilization(&self, buckets: usize) -> Vec<Utilization> {
        // Classes and times of work need no launches.
        let devices = Devices::without_launches(self);
        let device = |work: &Work<'_>| devices.streams.get(work.stream).map(|stream| &stream.device);
        let mut by_device: Vec<_> = devices.busy_work().filter_map(|work| Some((device(work)?, work))).collect();
        if by_device.is_empty() {
            return Vec::new();
        }
        let range = self.slice_range();
        sort_few_by_key(&mut by_device, |(device, _)| *device);
        let each = by_device.chunk_by(|(a, _), (b, _)| a == b).filter_map(|own| {
            let (device, _) = own.first()?;
            Some(utilization_of(Some((*device).clone()), own.iter().map(|(_, work)| *work), &range, buckets))
        });
        let mut all = vec![utilization_of(None, devices.busy_work(), &range, buckets)];
        all.extend(each);
        all
    }
}

/// Returns the busy time of some work in at most `buckets` intervals of `range`.
fn utilization_of<'w, 'e: 'w>(
    device: Option<TrackId>,
    work: impl Iterator<Item = &'w Work<'e>> + Clone,
    range: &Range<Timestamp>,
    buckets: usize,
) -> Utilization {
    let bucket_ns = range.end.since(range.start) / buckets.max(1) as u64 + 1;
    let union_of = |classes: &[WorkClass]| {
        Intervals::union(work.clone().filter(|work| classes.contains(&work.class)).map(|work| work.interval()))
    };
    let compute = union_of(&[WorkClass::Compute]);
    let kernels = union_of(&[WorkClass::Compute, WorkClass::Communication]);
    let busy = union_of(&[WorkClass::Compute, WorkClass::Communication, WorkClass::Memory]);
    let bucket = |index: u64| {
        let at =
            |index: u64| Timestamp::from_nanos(range.start.as_nanos().saturating_add(index.saturating_mul(bucket_ns)));
        let [compute, kernels, busy] = [&compute, &kernels, &busy].map(|set| set.ns_within(at(index), at(index + 1)));
        UtilizationBucket {
            compute_ns: compute,
            exposed_communication_ns: kernels - compute,
            memory_ns: busy - kernels,
        }
    };
    let count = range.end.since(range.start).div_ceil(bucket_ns);
    Utilization { device, start: range.start, bucket_ns, buckets: (0..count).map(bucket).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::ActivityType;
    use crate::analysis::sample::SampleTrace;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_of_buckets_equal_the_summary(
            work in prop::collection::vec((0usize..3, 0i64..3, 0u64..200, 0u64..30), 1..40),
            buckets in 0usize..50,
        ) {
            use ActivityType::{ConcurrentKernel, GpuMemcpy};

            let kinds = [(ConcurrentKernel, "gemm"), (ConcurrentKernel, "ncclAllReduce"), (GpuMemcpy, "Memcpy HtoD")];
            let sample = work.iter().fold(SampleTrace::default().op("train", 0, 250), |sample, work| {
                let (kind, name) = kinds[work.0];
                sample.work_on(kind, name, (work.1, 7), (work.2, work.2 + work.3), 0)
            });
            let events = sample.into_events();
            let (all, summary) = (events.utilization(buckets), events.summary());
            let occupation = summary.occupation.unwrap();
            let sum = |part: fn(&UtilizationBucket) -> u64| all[0].buckets.iter().map(part).sum::<u64>();
            prop_assert_eq!(sum(UtilizationBucket::busy_ns), occupation.busy_ns);
            prop_assert_eq!(sum(|bucket| bucket.compute_ns), occupation.compute_ns);
            prop_assert_eq!(sum(|bucket| bucket.exposed_communication_ns), occupation.exposed_communication_ns);
            prop_assert_eq!(sum(|bucket| bucket.memory_ns), occupation.exclusive.memory_ns);
            prop_assert_eq!(all.len() as u64, summary.devices + 1);
            prop_assert!(all.iter().all(|device| device.buckets.len() <= buckets.max(1)));
            let is_within = |device: &Utilization| device.buckets.iter().all(|bucket| bucket.busy_ns() <= device.bucket_ns);
            prop_assert!(all.iter().all(is_within));
        }
    }

    #[test]
    fn host_traces_have_no_utilization() {
        assert!(SampleTrace::default().op("train", 0, 10).into_events().utilization(9).is_empty());
    }
}

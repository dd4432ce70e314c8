//! A program's own records: pushed into a builder, then part of a recording or a trace of their own.

mod owned;
mod rows;
#[cfg(feature = "segments")]
mod stored;

use crate::error::{Error, ErrorKind};
use crate::time::Timestamp;
use kineto_base::budget::Budget;
use kineto_base::sorted::SortedMap;
use kineto_base::sorting::sort_few_by_key;
use kineto_model::activity::{Activity, ActivityType, ActivityTypes, ArgValue, Body};
use kineto_model::write::OwnedValue;
use owned::{OwnActivity, TrackId};
pub(in crate::trace) use rows::OwnRecords;
use std::fmt;
use std::sync::Arc;

/// Collects activities that the program has timed itself, such as those of another profiler, a runtime, or a file.
///
/// It corresponds to libkineto's `CpuTraceBuffer`. [`Libkineto::transfer`](crate::torch::Libkineto::transfer) adds its activities to
/// the running recording. [`finish`](CpuTraceBuilder::finish) returns a [`Trace`](crate::Trace) of them alone, which needs no
/// layer.
///
/// ```
/// use tracing_kineto::activity::{Activity, ActivityType, ArgValue, Body, Track};
/// use tracing_kineto::integration::{CpuTraceBuilder};
/// use tracing_kineto::{Timestamp};
///
/// let at = |us: u64| Timestamp::from_nanos(1_790_857_026_000_000_000 + us * 1000);
/// let mut builder = CpuTraceBuilder::new(at(0), "interpreter");
/// let body = Body::Slice { start: at(10), end: at(25) };
/// builder.push(&Activity::new(ActivityType::CpuOp, "matmul", Track::new(0, 7), body))?;
/// let trace = builder.finish(at(100));
/// assert_eq!(trace.events().len(), 1);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
pub struct CpuTraceBuilder {
    name: String,
    start: Timestamp,
    records: Vec<OwnActivity>,
    memory: MemoryLimit,
    /// The number of activities that exceeded the limit.
    refused: u64,
}

impl fmt::Debug for CpuTraceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuTraceBuilder")
            .field("name", &self.name)
            .field("records", &self.records.len())
            .finish_non_exhaustive()
    }
}

/// The records of a closed builder.
#[derive(Debug)]
pub(crate) struct CpuTrace {
    /// The builder's name; empty if the trace does not show it.
    pub(in crate::trace) name: String,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    records: Vec<OwnActivity>,
    /// The records of each row, in order of their start; the longest of equal starts first.
    rows: SortedMap<(TrackId, TrackId), Vec<usize>>,
    pub(in crate::trace) refused: u64,
    memory: MemoryLimit,
}

/// Limits the memory of the records, and takes it from a session's budget once they belong to a recording.
#[derive(Debug, Default)]
struct MemoryLimit {
    limit: u64,
    bytes: u64,
    budget: Option<Arc<dyn Budget>>,
}

impl CpuTraceBuilder {
    /// The default limit of a builder: 64 MiB.
    pub const DEFAULT_LIMIT_BYTES: u64 = 64 << 20;

    /// Creates a builder of activities from `start` on; `name` is shown on the row "Spans", as in libkineto.
    pub fn new(start: Timestamp, name: impl Into<String>) -> CpuTraceBuilder {
        let memory = MemoryLimit { limit: CpuTraceBuilder::DEFAULT_LIMIT_BYTES, bytes: 0, budget: None };
        CpuTraceBuilder { name: name.into(), start, records: Vec::new(), memory, refused: 0 }
    }

    /// Creates a nameless builder whose records count towards a session's budget.
    pub(crate) fn with_budget(budget: Arc<dyn Budget>) -> CpuTraceBuilder {
        let mut builder = CpuTraceBuilder::new(Timestamp::default(), "");
        builder.memory.budget = Some(budget);
        builder
    }

    /// Sets the limit in bytes. Default: [`DEFAULT_LIMIT_BYTES`](CpuTraceBuilder::DEFAULT_LIMIT_BYTES).
    #[must_use]
    pub fn limit_bytes(mut self, bytes: u64) -> Self {
        self.memory.limit = bytes;
        self
    }

    /// Copies an activity and returns its number, from 0. The order is free, as are the rows.
    ///
    /// Slices must have a [host type](ActivityType::is_cpu), instants and counters the type
    /// [`CpuInstantEvent`](ActivityType::CpuInstantEvent). Ids, links, arrows and arguments are kept. Process 0 means this
    /// one. A slice that ends before it starts is unfinished: it is drawn until the builder's end and marked
    /// `"finished": false`, as in libkineto. Slices on a row of the recording are merged into it; those that do not nest go
    /// to a second row.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for other types. [`TooLarge`](ErrorKind::TooLarge) at the limit; the trace's
    /// statistics count these too.
    pub fn push(&mut self, activity: &Activity<'_>) -> Result<usize, Error> {
        let fits = match activity.body {
            Body::Slice { .. } => activity.kind.is_cpu(),
            Body::Instant { .. } | Body::Counter { .. } => activity.kind == ActivityType::CpuInstantEvent,
        };
        if !fits {
            let why = format!(
                "cannot push {:?} of type {}: the type does not fit; push slices of host types, and instants and counters \
                 as {}",
                activity.name,
                activity.kind,
                ActivityType::CpuInstantEvent,
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let record = OwnActivity::new(activity);
        if !self.memory.reserve_bytes(record.memory_bytes()) {
            self.refused += 1;
            return Err(self.full_error());
        }
        self.records.push(record);
        Ok(self.records.len() - 1)
    }

    /// Sets an argument of the activity with that number. It replaces the one with that key, or is added as the last.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) at the limit, or if no activity has that number.
    pub fn set_arg(&mut self, number: usize, key: &str, value: ArgValue<'_>) -> Result<(), Error> {
        let Some(record) = self.records.get_mut(number) else {
            let why = format!("there is no activity {number}; take the number that `push` returned");
            return Err(Error::new(ErrorKind::TooLarge, why));
        };
        let value = OwnedValue::from_arg_value(value);
        if !self.memory.reserve_bytes(record.growth_with(key, &value)) {
            return Err(self.full_error());
        }
        record.set_arg(key, value);
        Ok(())
    }

    /// Returns the number of activities.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether there are no activities.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Calls `each` with every activity, in the order in which they were pushed.
    pub fn for_each(&self, mut each: impl FnMut(&Activity<'_>)) {
        self.records.iter().for_each(|record| each(&record.to_activity(&record.owned_args())));
    }

    fn full_error(&self) -> Error {
        let memory = &self.memory;
        let why = match &memory.budget {
            Some(_) => "the recording is full: the buffer limit is reached; raise buffer_limit_bytes".to_owned(),
            None => {
                format!("the builder is full: {} of {} bytes are used; raise limit_bytes", memory.bytes, memory.limit)
            }
        };
        Error::new(ErrorKind::TooLarge, why)
    }

    /// Takes the records' memory from a session's budget; `None` if that is exhausted.
    pub(crate) fn count_towards(mut self, budget: Arc<dyn Budget>) -> Option<CpuTraceBuilder> {
        if !budget.reserve_non_work(self.memory.bytes) {
            return None;
        }
        self.memory.budget = Some(budget);
        Some(self)
    }

    /// Closes the builder, and sorts its records.
    pub(crate) fn close(self, end: Timestamp) -> CpuTrace {
        let CpuTraceBuilder { name, start, mut records, memory, refused } = self;
        records.iter_mut().for_each(|record| record.end_by(end));
        let mut tracks = Vec::with_capacity(records.len());
        for (number, record) in records.iter().enumerate() {
            tracks.push((record.track.clone(), number));
        }
        let mut rows = SortedMap::group(tracks);
        let order = |number: &usize| records.get(*number).map(OwnActivity::sort_key);
        // Stable: records with equal times keep the order in which they were pushed.
        rows.values_mut().for_each(|row| sort_few_by_key(row, order));
        CpuTrace { name, start, end, records, rows, refused, memory }
    }
}

/// The counts for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::trace) struct OwnCounts {
    pub(in crate::trace) slices: u64,
    pub(in crate::trace) events: u64,
    pub(in crate::trace) unfinished: u64,
}

impl CpuTrace {
    /// Returns whether one of the records has one of these arguments.
    pub(in crate::trace) fn has_any_arg(&self, keys: &[&str]) -> bool {
        self.records.iter().any(|record| record.has_any_arg(keys))
    }

    /// Returns the size of the records in bytes.
    pub(in crate::trace) fn record_bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Counts the records of these types.
    pub(in crate::trace) fn count_records(&self, selected: ActivityTypes) -> OwnCounts {
        let mut counts = OwnCounts::default();
        for record in self.records.iter().filter(|record| selected.contains(record.kind)) {
            counts.unfinished += u64::from(!record.finished);
            match record.body {
                Body::Slice { .. } => counts.slices += 1,
                Body::Instant { .. } | Body::Counter { .. } => counts.events += 1,
            }
        }
        counts
    }
}

impl MemoryLimit {
    fn reserve_bytes(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.limit.saturating_sub(self.bytes);
        let has = fits && self.budget.as_ref().is_none_or(|budget| budget.reserve_non_work(bytes));
        self.bytes += if has { bytes } else { 0 };
        has
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.release_bytes(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kineto_model::activity::Track;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn ns(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    fn slice(name: &str) -> Activity<'_> {
        Activity::new(ActivityType::CpuOp, name, Track::new(0, 1), Body::Slice { start: ns(1), end: ns(2) })
    }

    #[derive(Debug)]
    struct TestBudget(AtomicU64);

    impl Budget for TestBudget {
        fn reserve_bytes(&self, bytes: u64) -> bool {
            self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
        }
        fn reserve_non_work(&self, bytes: u64) -> bool {
            self.reserve_bytes(bytes)
        }
        fn release_bytes(&self, bytes: u64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn activities_of_wrong_types_are_refused() {
        let mut builder = CpuTraceBuilder::new(ns(0), "x");
        let (mut kernel, mut instant) = (slice("k"), slice("i"));
        kernel.kind = ActivityType::ConcurrentKernel;
        instant.body = Body::Instant { at: ns(1) };
        for activity in [kernel, instant] {
            let error = builder.push(&activity).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(activity.kind.as_str()), "{error}");
        }
        assert!(builder.is_empty());
    }

    #[test]
    fn pushed_activities_are_new_records() {
        let finish = |builder: CpuTraceBuilder| builder.finish(ns(9));
        assert!(!finish(CpuTraceBuilder::new(ns(0), "x")).has_new_records());
        let mut builder = CpuTraceBuilder::new(ns(0), "x");
        builder.push(&slice("op")).unwrap();
        assert!(finish(builder).has_new_records());
    }

    #[test]
    fn full_builder_refuses_and_counts() {
        let mut builder = CpuTraceBuilder::new(ns(0), "x").limit_bytes(2000);
        let mut pushed = 0;
        let error = loop {
            match builder.push(&slice("op")) {
                Ok(number) => assert_eq!(number, pushed),
                Err(error) => break error,
            }
            pushed += 1;
        };
        assert_eq!((error.kind(), builder.len()), (ErrorKind::TooLarge, pushed));
        let long = "x".repeat(3000);
        assert_eq!(builder.set_arg(0, "k", ArgValue::Str(&long)).unwrap_err().kind(), ErrorKind::TooLarge);
        assert!(builder.set_arg(pushed, "k", ArgValue::I64(1)).is_err());
        builder.for_each(|activity| activity.args.visit(&mut |key, _| panic!("{key}")));
        assert_eq!(builder.close(ns(9)).refused, 1);
    }

    #[test]
    fn dropped_records_return_to_the_budget() {
        let budget = Arc::new(TestBudget(AtomicU64::new(3000)));
        let mut builder = CpuTraceBuilder::new(ns(0), "x");
        builder.push(&slice("op")).unwrap();
        let builder = builder.count_towards(budget.clone()).unwrap();
        let left = budget.0.load(Ordering::Relaxed);
        assert!(left < 3000);
        let mut within = CpuTraceBuilder::with_budget(budget.clone());
        while within.push(&slice("op")).is_ok() {}
        assert!(within.len() > 1 && budget.0.load(Ordering::Relaxed) < 200);
        let mut more = CpuTraceBuilder::new(ns(0), "x");
        for number in 0..9 {
            assert_eq!(more.push(&slice("op")).unwrap(), number);
        }
        assert!(more.count_towards(budget.clone()).is_none());
        drop(within);
        let closed = builder.close(ns(9));
        assert_eq!(budget.0.load(Ordering::Relaxed), left);
        drop(closed);
        assert_eq!(budget.0.load(Ordering::Relaxed), 3000);
    }
}

//! A program's own records: pushed one by one, then part of a recording, or a trace by themselves.

mod owned;
mod rows;

use crate::collector::Budget;
use crate::error::{Error, ErrorKind};
use crate::time::Timestamp;
use kineto_trace::activity::{Activity, ActivityType, ActivityTypes, ArgValue, Body};
use owned::{Lane, Owned};
pub(in crate::trace) use rows::{CpuRows, OwnRecords};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Takes activities that the program has timed itself: another profiler's, a runtime's, those of a file.
///
/// As libkineto's `CpuTraceBuffer` and the functions that torch fills it with. When it is full of what it was made for, hand
/// it to [`Profiler::transfer`](crate::Profiler::transfer), which puts it into the recording that goes on, or make a
/// [`Trace`](crate::Trace) of it alone with [`finish`](CpuTraceBuilder::finish), for which no layer is needed.
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
    records: Vec<Owned>,
    room: Room,
    /// How many activities found no room.
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

/// The records of a builder that takes no more.
#[derive(Debug)]
pub(crate) struct CpuTrace {
    /// Empty if nothing shows that it was one.
    pub(in crate::trace) name: String,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    records: Vec<Owned>,
    /// Those of each row, in order of their start, what lasts longer first.
    rows: BTreeMap<(Lane, Lane), Vec<usize>>,
    pub(in crate::trace) refused: u64,
    room: Room,
}

/// The memory of the records: no more than a limit, and out of a session's budget once they are part of one.
#[derive(Debug)]
struct Room {
    limit: u64,
    bytes: u64,
    budget: Option<Arc<dyn Budget>>,
}

impl CpuTraceBuilder {
    /// What a builder takes at most, in bytes, unless it is told otherwise: 64 MiB.
    pub const DEFAULT_LIMIT_BYTES: u64 = 64 << 20;

    /// Makes a builder for what begins at `start`; `name` is shown on a row of its own ("Spans"), as libkineto's.
    pub fn new(start: Timestamp, name: impl Into<String>) -> CpuTraceBuilder {
        let room = Room { limit: CpuTraceBuilder::DEFAULT_LIMIT_BYTES, bytes: 0, budget: None };
        CpuTraceBuilder { name: name.into(), start, records: Vec::new(), room, refused: 0 }
    }

    /// A builder whose records count towards a session's budget from the first on, and that nothing is shown of.
    pub(crate) fn within(budget: Arc<dyn Budget>) -> CpuTraceBuilder {
        let mut builder = CpuTraceBuilder::new(Timestamp::default(), "");
        builder.room.budget = Some(budget);
        builder
    }

    /// Takes no more than that many bytes. Default: [`DEFAULT_LIMIT_BYTES`](CpuTraceBuilder::DEFAULT_LIMIT_BYTES).
    #[must_use]
    pub fn limit_bytes(mut self, bytes: u64) -> Self {
        self.room.limit = bytes;
        self
    }

    /// Copies an activity and returns its number, from 0: in any order, of any rows.
    ///
    /// Slices are of a [host type](ActivityType::is_cpu), instants and counters of
    /// [`CpuInstantEvent`](ActivityType::CpuInstantEvent). Ids, links, arrows and arguments are kept as they are. The process
    /// 0 stands for this one. A slice that ends before it starts has not ended: it is drawn until the builder's end and
    /// marked `"finished": false`, as in libkineto. On a row that the recording has too, slices lie among its own; those that
    /// nest with no other go to a second row.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for other types; [`TooLarge`](ErrorKind::TooLarge) if there is no room left,
    /// which the trace's statistics count too.
    pub fn push(&mut self, activity: &Activity<'_>) -> Result<usize, Error> {
        let fits = match activity.body {
            Body::Slice { .. } => activity.kind.is_cpu(),
            Body::Instant { .. } | Body::Counter { .. } => activity.kind == ActivityType::CpuInstantEvent,
        };
        if !fits {
            let why = format!(
                "{:?} is {}, which a program cannot push so; push slices of host types, and instants and counters as \
                 {}",
                activity.name,
                activity.kind,
                ActivityType::CpuInstantEvent,
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let record = Owned::new(activity);
        if !self.room.take(record.bytes()) {
            self.refused += 1;
            return Err(self.full());
        }
        self.records.push(record);
        Ok(self.records.len() - 1)
    }

    /// Sets an argument of the activity with that number, in place of the one with that key, else behind all others.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there is no room left, or no activity with that number.
    pub fn set_arg(&mut self, number: usize, key: &str, value: ArgValue<'_>) -> Result<(), Error> {
        let Some(record) = self.records.get_mut(number) else {
            let why = format!("there is no activity {number}; take the number that `push` returned");
            return Err(Error::new(ErrorKind::TooLarge, why));
        };
        let before = record.bytes();
        let old = record.set_arg(key, value);
        let grown = record.bytes().saturating_sub(before);
        if self.room.take(grown) {
            return Ok(());
        }
        record.put_back(key, old);
        Err(self.full())
    }

    /// Returns how many activities it has.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether it has none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Calls `each` with every activity, in the order in which they were pushed.
    pub fn for_each(&self, mut each: impl FnMut(&Activity<'_>)) {
        self.records.iter().for_each(|record| each(&record.activity(&record.args())));
    }

    fn full(&self) -> Error {
        let room = &self.room;
        let why = match &room.budget {
            Some(_) => "the recording has no room left for it; raise buffer_limit_bytes".to_owned(),
            None => format!("the builder is full ({} bytes of {}); raise limit_bytes", room.bytes, room.limit),
        };
        Error::new(ErrorKind::TooLarge, why)
    }

    /// Takes what it has out of a session's budget; `None` if that has no room.
    pub(crate) fn count_towards(mut self, budget: Arc<dyn Budget>) -> Option<CpuTraceBuilder> {
        if !budget.reserve_beside_work(self.room.bytes) {
            return None;
        }
        self.room.budget = Some(budget);
        Some(self)
    }

    /// Takes no more, and puts what there is in order.
    pub(crate) fn close(self, end: Timestamp) -> CpuTrace {
        let CpuTraceBuilder { name, start, mut records, room, refused } = self;
        let mut rows: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (number, record) in records.iter_mut().enumerate() {
            record.end_by(end);
            rows.entry(record.track.clone()).or_default().push(number);
        }
        let order = |number: &usize| records.get(*number).map(Owned::order);
        // Stable: what begins and ends at once stays in the order in which it was pushed.
        rows.values_mut().for_each(|row| row.sort_by_key(order));
        CpuTrace { name, start, end, records, rows, refused, room }
    }
}

/// How many there are of what statistics count.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::trace) struct Counts {
    pub(in crate::trace) slices: u64,
    pub(in crate::trace) events: u64,
    pub(in crate::trace) unfinished: u64,
}

impl CpuTrace {
    /// Whether one of the records has one of these arguments.
    pub(in crate::trace) fn says(&self, keys: &[&str]) -> bool {
        self.records.iter().any(|record| record.says(keys))
    }

    /// Returns how many bytes the records take.
    pub(in crate::trace) fn bytes(&self) -> u64 {
        self.room.bytes
    }

    /// Counts what is of these types.
    pub(in crate::trace) fn counts(&self, selected: ActivityTypes) -> Counts {
        let mut counts = Counts::default();
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

impl Room {
    fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.limit.saturating_sub(self.bytes);
        let has = fits && self.budget.as_ref().is_none_or(|budget| budget.reserve_beside_work(bytes));
        self.bytes += if has { bytes } else { 0 };
        has
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kineto_trace::activity::Track;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn ns(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    fn slice(name: &str) -> Activity<'_> {
        Activity::new(ActivityType::CpuOp, name, Track::new(0, 1), Body::Slice { start: ns(1), end: ns(2) })
    }

    #[derive(Debug)]
    struct Bytes(AtomicU64);

    impl Budget for Bytes {
        fn reserve(&self, bytes: u64) -> bool {
            self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
        }
        fn reserve_beside_work(&self, bytes: u64) -> bool {
            self.reserve(bytes)
        }
        fn release(&self, bytes: u64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_a_program_cannot_push_is_refused_by_name() {
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
    fn a_full_builder_takes_no_more_and_counts_it() {
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
    fn what_it_takes_of_a_budget_comes_back() {
        let budget = Arc::new(Bytes(AtomicU64::new(3000)));
        let mut builder = CpuTraceBuilder::new(ns(0), "x");
        builder.push(&slice("op")).unwrap();
        let builder = builder.count_towards(budget.clone()).unwrap();
        let left = budget.0.load(Ordering::Relaxed);
        assert!(left < 3000);
        let mut within = CpuTraceBuilder::within(budget.clone());
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

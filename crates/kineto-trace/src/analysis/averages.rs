//! What the operations and kernels of a trace took, by name or whatever else: torch's `key_averages`.

use super::averaging::Averaging;
use super::events::Events;
use super::table::Table;
use std::fmt;

/// Counts and times of operations and kernels that have something in common, their name as a rule.
///
/// Operations of the host and work of devices are two sections, never added up: a kernel's time stands once in its own
/// row, and once as device time of the operation that launched it. What percentages are of: for host times,
/// [`cpu_base_ns`](KeyAverages::cpu_base_ns); for device times, of either section,
/// [`device_base_ns`](KeyAverages::device_base_ns).
///
/// ```
/// use kineto_trace::analysis::Events;
///
/// let trace = br#"{"traceEvents": [
///     {"ph": "X", "cat": "cpu_op", "name": "work", "pid": 1, "tid": 1, "ts": 10, "dur": 5},
///     {"ph": "X", "cat": "cpu_op", "name": "work", "pid": 1, "tid": 1, "ts": 20, "dur": 6}
/// ]}"#;
/// let averages = Events::from_reader(trace.as_slice())?.key_averages();
/// assert_eq!(averages.ops()[0].count(), 2);
/// println!("{}", averages.table().row_limit(10));
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct KeyAverages {
    pub(super) ops: Vec<Average>,
    pub(super) kernels: Vec<Average>,
    pub(super) annotations: Vec<Average>,
    /// What rows have in common beside their name.
    pub(super) groups: Vec<String>,
    pub(super) device: String,
    pub(super) has_memory: bool,
    /// Memory that was allocated and freed outside all operations, as torch's row.
    pub(super) outside: Option<Average>,
    pub(super) unlaunched_ns: u64,
    pub(super) flops: u64,
    pub(super) notes: Vec<String>,
}

impl fmt::Debug for KeyAverages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyAverages")
            .field("ops", &self.ops.len())
            .field("kernels", &self.kernels.len())
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// What the operations of one row of [`KeyAverages`] took together, or the kernels.
#[derive(Clone, Default)]
pub struct Average {
    pub(super) name: String,
    pub(super) keys: Vec<String>,
    pub(super) section: Section,
    /// Not inside another operation, the first time.
    pub(super) is_top_level: bool,
    pub(super) is_annotation: bool,
    /// The first event of the row.
    pub(super) first: u32,
    /// Slices of futures beyond the first of each.
    pub(super) further_polls: u64,
    pub(super) self_cpu_ns: i64,
    pub(super) cpu_ns: u64,
    pub(super) self_device_ns: u64,
    pub(super) device_ns: u64,
    pub(super) own: Bytes,
    pub(super) all: Bytes,
    pub(super) flops: u64,
    /// How long each took, sorted.
    pub(super) durations: Vec<u64>,
}

impl fmt::Debug for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Average")
            .field("name", &self.name)
            .field("count", &self.count())
            .field("self_cpu_ns", &self.self_cpu_ns)
            .field("self_device_ns", &self.self_device_ns)
            .finish_non_exhaustive()
    }
}

/// What the rows of a table are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Section {
    /// Operations of the host, annotations, and calls of runtimes and drivers.
    #[default]
    Ops,
    /// Kernels, copies and fills.
    Kernels,
    /// Annotations as devices saw them: from the first to the last work launched inside one. In no base.
    DeviceAnnotations,
}

/// Bytes allocated less bytes freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) host: i64,
    pub(super) device: i64,
}

impl Bytes {
    pub(super) fn add(&mut self, other: Bytes) {
        self.host = self.host.saturating_add(other.host);
        self.device = self.device.saturating_add(other.device);
    }
}

impl Events {
    /// Returns what the operations and kernels took, by name; torch's `key_averages()`.
    ///
    /// [`averages`](Events::averages) groups them by more than that.
    pub fn key_averages(&self) -> KeyAverages {
        self.averages().compute()
    }

    /// Says by what to group operations and kernels, and which of them.
    pub fn averages(&self) -> Averaging<'_> {
        Averaging::new(self)
    }
}

impl KeyAverages {
    /// Sets what stands below the table: what the recording lacks.
    #[doc(hidden)]
    #[must_use]
    pub fn with_notes(self, notes: Vec<String>) -> KeyAverages {
        KeyAverages { notes, ..self }
    }

    /// Returns the rows of the host, those of the most self time first.
    ///
    /// Operations and annotations, and calls of runtimes and drivers.
    pub fn ops(&self) -> &[Average] {
        &self.ops
    }

    /// Returns the rows of kernels, copies and fills, those of the most time first.
    pub fn kernels(&self) -> &[Average] {
        &self.kernels
    }

    /// Returns the rows of annotations as devices saw them: from the first work launched inside to the last.
    ///
    /// They contain the kernels and the time between, so no percentage is of them.
    pub fn device_annotations(&self) -> &[Average] {
        &self.annotations
    }

    /// Returns all rows: first the host's, then the devices'.
    pub fn iter(&self) -> impl Iterator<Item = &Average> {
        self.ops.iter().chain(&self.kernels).chain(&self.annotations)
    }

    /// Returns the first row of that name in a section.
    pub fn get(&self, section: Section, name: &str) -> Option<&Average> {
        self.iter().find(|row| row.section == section && row.name == name)
    }

    /// Returns what rows have in common beside their name, such as "Input Shapes".
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Returns what host percentages are of: the self times of all operations, in nanoseconds.
    ///
    /// That is each nanosecond of each thread that some operation took, once, where a trace is of this crate; see
    /// [`Average::self_cpu_ns`].
    pub fn cpu_base_ns(&self) -> i64 {
        self.ops.iter().map(|row| row.self_cpu_ns).fold(0, i64::saturating_add)
    }

    /// Returns what device percentages are of: the durations of all kernels, copies and fills, in nanoseconds.
    ///
    /// Work of several streams at one time counts for each; annotations do not count.
    pub fn device_base_ns(&self) -> u64 {
        self.kernels.iter().map(|row| row.self_device_ns).fold(0, u64::saturating_add)
    }

    /// Returns the device time that is in no operation's, since the launch is not known, in nanoseconds.
    pub fn unlaunched_ns(&self) -> u64 {
        self.unlaunched_ns
    }

    /// Returns the host and device bytes that were allocated, less those freed, outside all operations.
    pub fn unattributed_bytes(&self) -> (i64, i64) {
        self.outside.as_ref().map_or((0, 0), |row| (row.own.host, row.own.device))
    }

    /// Returns all operations as one row, named "Total"; torch's `total_average()`.
    ///
    /// Totals are sums of self times, so that nothing counts twice (torch adds up totals); an operation's FLOPs are left
    /// out where one around it has some.
    pub fn total_average(&self) -> Average {
        let mut total = Average { name: "Total".to_owned(), ..Average::default() };
        for row in &self.ops {
            total.self_cpu_ns = total.self_cpu_ns.saturating_add(row.self_cpu_ns);
            total.own.add(row.own);
            total.durations.extend_from_slice(&row.durations);
        }
        total.durations.sort_unstable();
        total.cpu_ns = u64::try_from(total.self_cpu_ns).unwrap_or(0);
        total.self_device_ns = self.device_base_ns();
        total.device_ns = total.self_device_ns;
        total.own.add(self.outside.as_ref().map(|row| row.own).unwrap_or_default());
        total.all = total.own;
        total.flops = self.flops;
        total
    }

    /// Returns a table to be printed, as torch's `table()`: say how, then format it.
    pub fn table(&self) -> Table<'_> {
        Table::new(self)
    }
}

impl Average {
    /// Returns the name that the row's events have; `ProfilerStep*` stands for `ProfilerStep#0` and so on.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what else they have in common, in the order of [`KeyAverages::groups`].
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns which section the row is in.
    pub fn section(&self) -> Section {
        self.section
    }

    /// Returns whether it is an annotation, of the host or as a device saw it.
    pub fn is_annotation(&self) -> bool {
        self.is_annotation
    }

    /// Returns how many calls there are. All polls of a future are one call, counted in the row of its first poll. Grouped by
    /// [thread](super::GroupBy::Thread), a row with later polls alone has their time and no call.
    pub fn count(&self) -> u64 {
        self.durations.len() as u64
    }

    /// Returns how many slices there are: more than [`count`](Average::count) where futures were polled more than once.
    pub fn polls(&self) -> u64 {
        self.count() + self.further_polls
    }

    /// Returns the time on the host without that of the operations inside, in nanoseconds.
    ///
    /// Each moment of a thread counts once: where operations overlap without nesting, for the one that began last. In files of
    /// other programs, which have those on one row, it counts for both, as in torch's tables.
    pub fn self_cpu_ns(&self) -> i64 {
        self.self_cpu_ns
    }

    /// Returns the time on the host from begin to end, in nanoseconds; nested ones of one name count each.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Returns the time of the kernels, copies and fills that these operations launched themselves, in nanoseconds.
    ///
    /// Of a row of kernels: their time. Of an annotation on devices: how long any stream of a device was in it, where torch
    /// adds up the times of all streams.
    pub fn self_device_ns(&self) -> u64 {
        self.self_device_ns
    }

    /// Returns the time of what these operations and those inside launched, in nanoseconds.
    pub fn device_ns(&self) -> u64 {
        self.device_ns
    }

    /// Returns the host memory that was allocated directly inside, less what was freed, in bytes.
    pub fn self_cpu_bytes(&self) -> i64 {
        self.own.host
    }

    /// Returns the host memory that was allocated inside, less what was freed, in bytes.
    pub fn cpu_bytes(&self) -> i64 {
        self.all.host
    }

    /// Returns the device memory that was allocated directly inside, less what was freed, in bytes.
    pub fn self_device_bytes(&self) -> i64 {
        self.own.device
    }

    /// Returns the device memory that was allocated inside, less what was freed, in bytes.
    pub fn device_bytes(&self) -> i64 {
        self.all.device
    }

    /// Returns the floating-point operations, 0 if none are known.
    pub fn flops(&self) -> u64 {
        self.flops
    }

    /// Returns the mean of `ns` for each call; 0 without calls, as torch does.
    pub(super) fn per_call(&self, ns: u64) -> f64 {
        if self.count() == 0 { 0.0 } else { ns as f64 / self.count() as f64 }
    }

    /// Returns how long the shortest took, in nanoseconds: on the host, or on the device if it is a row of a device.
    pub fn min_ns(&self) -> u64 {
        self.durations.first().copied().unwrap_or(0)
    }

    /// Returns how long the longest took, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.durations.last().copied().unwrap_or(0)
    }

    /// Returns how long one took on average, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        let sum: u128 = self.durations.iter().map(|ns| u128::from(*ns)).sum();
        sum as f64 / self.durations.len().max(1) as f64
    }

    /// Returns the sample standard deviation of how long they took, in nanoseconds; 0 for a single one.
    pub fn std_ns(&self) -> f64 {
        let mean = self.mean_ns();
        let squares: f64 = self.durations.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum();
        match self.durations.len() {
            0 | 1 => 0.0,
            n => (squares / (n - 1) as f64).sqrt(),
        }
    }

    /// Returns how long the quickest `quantile` (0 to 1) of them took at most, in nanoseconds: the nearest rank.
    pub fn percentile_ns(&self, quantile: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the count")]
        let rank = (quantile.clamp(0.0, 1.0) * self.durations.len() as f64).ceil() as usize;
        self.durations.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

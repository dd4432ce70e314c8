//! Times, counts and memory of operations and kernels, grouped by name: torch's `key_averages`.

mod builder;
mod columns;
mod export;
mod sort;
mod table;
mod timed;
pub(super) mod units;

pub use builder::{AveragesBuilder, GroupBy};
pub use sort::SortBy;
pub use table::Table;
pub use units::TimeUnit;

pub(super) use timed::is_timed;
pub(super) use units::format_short_time;

use crate::analysis::events::Events;
use kineto_model::named_values;
use std::fmt;

/// Counts and times of operations and kernels, grouped by name unless set otherwise.
///
/// Host operations and device work are separate sections and are never added up. A kernel's time appears in its own
/// row, and as device time of the operation that launched it. Host percentages are relative to
/// [`cpu_base_ns`](KeyAverages::cpu_base_ns), device percentages to [`device_base_ns`](KeyAverages::device_base_ns).
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
    /// Titles of the grouping keys in addition to the name.
    pub(super) groups: Vec<String>,
    pub(super) device: String,
    pub(super) has_memory: bool,
    /// Memory allocated and freed outside all operations, as torch's row.
    pub(super) outside_ops: Option<Average>,
    pub(super) unattributed_device_ns: u64,
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

/// One row of [`KeyAverages`]: operations or device work of one name and group.
#[derive(Clone, Default)]
pub struct Average {
    pub(super) name: String,
    pub(super) keys: Vec<String>,
    pub(super) section: Section,
    /// Whether its first operation was outside all others.
    pub(super) is_top_level: bool,
    pub(super) is_annotation: bool,
    /// The index of the row's first event.
    pub(super) first: u32,
    pub(super) enters: u64,
    pub(super) self_cpu_ns: i64,
    pub(super) cpu_ns: u64,
    pub(super) self_device_ns: u64,
    pub(super) device_ns: u64,
    pub(super) self_bytes: Bytes,
    pub(super) total_bytes: Bytes,
    pub(super) flops: u64,
    /// Durations in ascending order.
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

named_values! {
    /// The section of a row.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Section {
        /// Host operations, annotations, and runtime and driver calls.
        #[default]
        Ops => "ops",
        /// Kernels, copies and fills.
        Kernels => "kernels",
        /// Annotations on devices, from the first to the last work launched inside. They count towards no base.
        DeviceAnnotations => "device_annotations",
    }

    /// Returns its name in exports: `ops`, `kernels` or `device_annotations`.
    pub const fn as_str;
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
    /// Returns averages of operations and kernels by name; torch's `key_averages()`.
    ///
    /// [`averages`](Events::averages) has options for grouping and filtering.
    pub fn key_averages(&self) -> KeyAverages {
        self.averages().compute()
    }

    /// Returns a builder that groups and filters operations and kernels.
    pub fn averages(&self) -> AveragesBuilder<'_> {
        AveragesBuilder::new(self)
    }
}

impl KeyAverages {
    /// Sets the lines about lost records that are printed below the table.
    #[doc(hidden)]
    #[must_use]
    pub fn with_notes(self, notes: Vec<String>) -> KeyAverages {
        KeyAverages { notes, ..self }
    }

    /// Returns the rows of the host, by self time in descending order.
    ///
    /// They are operations, annotations, and runtime and driver calls.
    pub fn ops(&self) -> &[Average] {
        &self.ops
    }

    /// Returns the rows of kernels, copies and fills, by time in descending order.
    pub fn kernels(&self) -> &[Average] {
        &self.kernels
    }

    /// Returns the rows of annotations on devices, from the first to the last work launched inside.
    ///
    /// They include idle time between kernels, so they count towards no base.
    pub fn device_annotations(&self) -> &[Average] {
        &self.annotations
    }

    /// Returns all rows: host, kernels, device annotations.
    pub fn iter(&self) -> impl Iterator<Item = &Average> {
        self.ops.iter().chain(&self.kernels).chain(&self.annotations)
    }

    /// Returns the first row of a section that has this name.
    pub fn get(&self, section: Section, name: &str) -> Option<&Average> {
        self.iter().find(|row| row.section == section && row.name == name)
    }

    /// Returns the titles of the grouping keys in addition to the name, such as "Input Shapes".
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Returns the base of host percentages: the sum of all operations' self times, in nanoseconds.
    ///
    /// In traces of this crate, each nanosecond of a thread inside some operation counts once; see
    /// [`Average::self_cpu_ns`].
    pub fn cpu_base_ns(&self) -> i64 {
        self.ops.iter().map(|row| row.self_cpu_ns).fold(0, i64::saturating_add)
    }

    /// Returns the base of device percentages: the durations of all kernels, copies and fills, in nanoseconds.
    ///
    /// Work on several streams at the same time counts for each stream; annotations do not count.
    pub fn device_base_ns(&self) -> u64 {
        self.kernels.iter().map(|row| row.self_device_ns).fold(0, u64::saturating_add)
    }

    /// Returns the device time that is attributed to no operation, in nanoseconds.
    ///
    /// The launch is unknown, or no selected operation was around it.
    pub fn unattributed_device_ns(&self) -> u64 {
        self.unattributed_device_ns
    }

    /// Returns the net host and device bytes allocated outside all operations.
    pub fn unattributed_bytes(&self) -> (i64, i64) {
        self.outside_ops.as_ref().map_or((0, 0), |row| (row.self_bytes.host, row.self_bytes.device))
    }

    /// Returns all operations as one row, named "Total"; torch's `total_average()`.
    ///
    /// Totals are sums of self times, so nothing counts twice; torch adds up totals. FLOPs of an operation are left out
    /// if an operation around it has some.
    pub fn total_average(&self) -> Average {
        let mut total = Average { name: "Total".to_owned(), ..Average::default() };
        for row in &self.ops {
            total.self_cpu_ns = total.self_cpu_ns.saturating_add(row.self_cpu_ns);
            total.self_bytes.add(row.self_bytes);
            total.durations.extend_from_slice(&row.durations);
        }
        total.durations.sort_unstable();
        total.cpu_ns = u64::try_from(total.self_cpu_ns).unwrap_or(0);
        total.self_device_ns = self.device_base_ns();
        total.device_ns = total.self_device_ns;
        total.self_bytes.add(self.outside_ops.as_ref().map(|row| row.self_bytes).unwrap_or_default());
        total.total_bytes = total.self_bytes;
        total.flops = self.flops;
        total
    }

    /// Returns a table for display, as torch's `table()`.
    pub fn table(&self) -> Table<'_> {
        Table::new(self)
    }
}

impl Average {
    /// Returns the name of the row's events; `ProfilerStep*` covers `ProfilerStep#0` and so on.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the grouping keys, in the order of [`KeyAverages::groups`].
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns which section the row is in.
    pub fn section(&self) -> Section {
        self.section
    }

    /// Returns whether it is an annotation, on the host or on a device.
    pub fn is_annotation(&self) -> bool {
        self.is_annotation
    }

    /// Returns the number of calls.
    ///
    /// All enters of a future's span are one call, counted in the row of the first. If grouped by
    /// [thread](super::GroupBy::Thread), a row that has only later ones has their time and no call. An enter of a span
    /// inside itself is no call.
    pub fn count(&self) -> u64 {
        self.durations.len() as u64
    }

    /// Returns the number of enters of spans, those without a slice included; for other rows, the number of events.
    ///
    /// They count in the row of their call. Files written by other programs have an enter for each slice.
    pub fn enters(&self) -> u64 {
        self.enters
    }

    /// Returns the time on the host without that of operations inside, in nanoseconds.
    ///
    /// Each moment of a thread counts once. If operations overlap without nesting, it counts for the one that began
    /// last. Files of other programs may have such operations on one row; there it counts for both, as in torch's
    /// tables.
    pub fn self_cpu_ns(&self) -> i64 {
        self.self_cpu_ns
    }

    /// Returns the time on the host from begin to end, in nanoseconds; nested operations of one name each count.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Returns the time of the kernels, copies and fills that these operations launched themselves, in nanoseconds.
    ///
    /// For a row of kernels: their own time. For an annotation on devices: the time during which at least one stream of
    /// the device was in it; torch adds up the times of all streams.
    pub fn self_device_ns(&self) -> u64 {
        self.self_device_ns
    }

    /// Returns the time of the device work that these operations and those inside launched, in nanoseconds.
    pub fn device_ns(&self) -> u64 {
        self.device_ns
    }

    /// Returns the host memory allocated directly inside, less that freed, in bytes.
    pub fn self_cpu_bytes(&self) -> i64 {
        self.self_bytes.host
    }

    /// Returns the host memory allocated inside, less that freed, in bytes.
    pub fn cpu_bytes(&self) -> i64 {
        self.total_bytes.host
    }

    /// Returns the device memory allocated directly inside, less that freed, in bytes.
    pub fn self_device_bytes(&self) -> i64 {
        self.self_bytes.device
    }

    /// Returns the device memory allocated inside, less that freed, in bytes.
    pub fn device_bytes(&self) -> i64 {
        self.total_bytes.device
    }

    /// Returns the number of floating-point operations; 0 if unknown.
    pub fn flops(&self) -> u64 {
        self.flops
    }

    /// Returns the mean of `ns` for each call; 0 without calls, as torch does.
    pub(super) fn per_call(&self, ns: u64) -> f64 {
        if self.count() == 0 { 0.0 } else { ns as f64 / self.count() as f64 }
    }

    /// Returns the shortest duration in nanoseconds: on the host, or on the device for rows of devices.
    pub fn min_ns(&self) -> u64 {
        self.durations.first().copied().unwrap_or(0)
    }

    /// Returns the longest duration, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.durations.last().copied().unwrap_or(0)
    }

    /// Returns the mean duration, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        let sum: u128 = self.durations.iter().map(|ns| u128::from(*ns)).sum();
        sum as f64 / self.durations.len().max(1) as f64
    }

    /// Returns the sample standard deviation of the durations, in nanoseconds; 0 for a single one.
    pub fn std_ns(&self) -> f64 {
        let mean = self.mean_ns();
        let squares: f64 = self.durations.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum();
        match self.durations.len() {
            0 | 1 => 0.0,
            n => (squares / (n - 1) as f64).sqrt(),
        }
    }

    /// Returns the duration at `quantile` (0 to 1) by nearest rank, in nanoseconds.
    pub fn percentile_ns(&self, quantile: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the count")]
        let rank = (quantile.clamp(0.0, 1.0) * self.durations.len() as f64).ceil() as usize;
        self.durations.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

//! Compares two traces, or two sets of traces: what is slower, faster, new, gone or moved, and what the difference consists of.
//!
//! 1. Each trace is reduced to a [`TraceProfile`] (`profile`), so that sets of any size are compared.
//! 2. Classes of both sides are matched: by name, else by their place in a step (`matching`, `align`).
//! 3. A change counts if it exceeds the threshold and what the spread of steps and runs explains (`noise`, `runs`, `slow`, `verdicts`).
//! 4. The critical path divides the difference of the mean step into parts that add up to it exactly (`totals`).

mod align;
mod json;
mod matching;
mod noise;
mod outline;
mod profile;
mod runs;
mod screen;
mod sides;
mod slow;
#[cfg(test)]
mod tests;
mod totals;
mod verdicts;

pub use profile::{ClassKind, TraceProfile};
pub use screen::DiffScreen;

use super::summary::{PathKind, WorkClass};
use kineto_model::named_values;
use sides::MergedSide;

/// The differences between two traces, or two sets of traces; made by [`Diff::between`] and [`DiffOptions::compare`].
///
/// ```
/// use kineto_trace::analysis::{Diff, Events};
///
/// let trace = |ns: u32| {
///     let steps: Vec<_> = (0..20).map(|n| format!(
///         r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": {}, "dur": 90}},
///         {{"ph": "X", "cat": "cpu_op", "name": "load", "pid": 1, "tid": 1, "ts": {}, "dur": {}}}"#,
///         n * 100, n * 100 + 5, ns + n % 2,
///     )).collect();
///     Events::from_reader(format!("{{\"traceEvents\": [{}]}}", steps.join(",")).as_bytes())
/// };
/// let (before, after) = (trace(40)?, trace(50)?);
/// let diff = Diff::between(&[before.profile()], &[after.profile()]);
/// // More runs would tell whether the program or the machine was slower.
/// assert!(diff.is_slower_alike());
/// assert_eq!(diff.slower().map(|change| change.name()).collect::<Vec<_>>(), ["load"]);
/// println!("{}", diff.screen());
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diff {
    /// The relative change from which on a difference is reported, in percent.
    pub threshold_percent: f64,
    /// What is compared: steps if both sides have at least four, else the trace as a whole.
    pub unit: DiffUnit,
    /// The first side, the reference.
    pub a: DiffSide,
    /// The second side.
    pub b: DiffSide,
    /// The change of the mean step, or of the mean time of a trace.
    pub total: DiffTotal,
    /// What the change of the total consists of, sorted by descending change. The parts add up to the totals exactly.
    pub parts: Vec<DiffPart>,
    /// All classes, sorted: what changed first, then by descending change of time.
    pub classes: Vec<ClassChange>,
    /// The relative change that most classes of the host share, in percent.
    pub host_drift_percent: f64,
    /// The same of devices.
    pub device_drift_percent: f64,
    /// Whether both sides have enough runs to show how runs differ.
    has_enough_runs: bool,
    /// The side that lacks the steps which the other one has.
    side_without_steps: Option<&'static str>,
}

named_values! {
    /// What a difference is the mean of.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum DiffUnit {
        /// A step, `ProfilerStep#n`, to the end of its last work, but at most to the next step.
        Step => "step",
        /// A trace, from the start of its first slice to the end of its last.
        Trace => "trace",
    }

    /// Returns the name: "step" or "trace".
    pub const fn as_str;
}

/// The traces of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiffSide {
    /// The number of traces that take part.
    pub traces: u64,
    /// The number of their steps.
    pub steps: u64,
    /// The sum of their times from the first slice to the end of the last, in nanoseconds.
    pub span_ns: u64,
    /// The traces that take no part: no figure contains them.
    pub left_out: Vec<LeftOutTrace>,
}

/// A trace that takes no part in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOutTrace {
    /// Its place in the list of its side, from 0.
    pub trace: usize,
    /// Its rank in `distributedInfo`.
    pub rank: Option<i64>,
    /// Why it takes no part.
    pub reason: LeftOutReason,
}

named_values! {
    /// Why a trace takes no part in a comparison.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum LeftOutReason {
        /// The other side lacks its rank.
        RankOfOneSide => "rank_of_one_side",
        /// Its run lacks a rank that other runs of the side have.
        IncompleteRun => "incomplete_run",
        /// Its run has fewer than four steps, and other runs of the side have more.
        FewSteps => "few_steps",
    }

    /// Returns the name in JSON: "`rank_of_one_side`", "`incomplete_run`" or "`few_steps`".
    pub const fn as_str;
}

/// The change of the mean step or trace. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DiffTotal {
    /// The mean of the first side, rounded down.
    pub a_ns: u64,
    /// The mean of the second side, rounded down.
    pub b_ns: u64,
    /// What the change is.
    pub verdict: ChangeVerdict,
    /// The share of slow steps of both sides, from 0 to 1, if the mean changed more than the trimmed means tell.
    pub slow_steps: Option<[f64; 2]>,
    /// The relative change of the trimmed means, which outliers do not distort, in percent. `None` if there are too few values.
    pub change_percent: Option<f64>,
    /// The least probability of such a change by chance, of the tests by which the verdict was decided, corrected for their number.
    pub probability: Option<f64>,
}

/// A part of the total: time on the critical path, by kind and class. Times are nanoseconds of the mean step or trace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiffPart {
    /// What the time was spent on.
    pub kind: PathKind,
    /// The name of the class on either side; `None` for waits and for time without a name.
    pub name: Option<String>,
    /// The time of the first side.
    pub a_ns: u64,
    /// The time of the second side.
    pub b_ns: u64,
}

/// The difference of one class: an operation, annotation, call, or kernel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassChange {
    /// What it is.
    pub kind: ClassKind,
    /// The class of device work.
    pub work: Option<WorkClass>,
    /// Its figures on the first side; `None` if it is new.
    pub a: Option<ClassSide>,
    /// Its figures on the second side; `None` if it is gone.
    pub b: Option<ClassSide>,
    /// How both sides were matched.
    pub matched: MatchReason,
    /// What the change is.
    pub verdict: ChangeVerdict,
    /// Whether only the spread of steps supports the change: a loaded machine could cause it, too. Four runs a side decide.
    pub needs_runs: bool,
    /// The relative change of the trimmed mean time, in percent. `None` if there are too few values, or one side lacks it.
    pub change_percent: Option<f64>,
    /// The least probability of such a change by chance, of the tests by which the verdict was decided, corrected for their number.
    pub probability: Option<f64>,
    /// What else changed: where it runs, or how often.
    pub moves: Vec<ClassMove>,
}

/// One side of a class. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClassSide {
    /// Its names; several if several classes of this side match one of the other.
    pub names: Vec<String>,
    /// The number of events in all traces.
    pub count: u64,
    /// The sum of their times: durations of device work and annotations on devices, else self times.
    pub total_ns: u64,
    /// The sum of their durations, nested operations included.
    pub with_children_ns: u64,
    /// The mean number of events of a step or trace.
    pub mean_count: f64,
    /// The mean time of a step or trace, rounded down.
    pub mean_ns: u64,
    /// The trimmed mean of the steps in which it occurs, which outliers do not distort, times their share. `None` without steps, or if it occurs in
    /// less than half of the steps of both sides.
    pub typical_ns: Option<u64>,
}

impl ClassSide {
    /// Returns the trimmed mean of a step if there is one, else the mean time of a step or trace, in nanoseconds.
    pub fn per_unit_ns(&self) -> u64 {
        self.typical_ns.unwrap_or(self.mean_ns)
    }
}

named_values! {
    /// How two classes were matched.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum MatchReason {
        /// They have the same kind and name.
        Name => "name",
        /// They are at the same place of a step: in matching operations, in the same order, with similar work.
        Place => "place",
        /// There is no counterpart.
        Unmatched => "unmatched",
    }

    /// Returns the name: "name", "place" or "unmatched".
    pub const fn as_str;
}

named_values! {
    /// What a change is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum ChangeVerdict {
        /// It takes longer than the spread explains.
        Slower => "slower",
        /// It takes less time than the spread explains.
        Faster => "faster",
        /// Only the second side has it.
        New => "new",
        /// Only the first side has it.
        Gone => "gone",
        /// It takes the same time elsewhere, or in another number of events.
        Moved => "moved",
        /// It changed like most classes of its place, by no more than runs may differ: a clock, the load of the machine, or the build.
        Drift => "drift",
        /// It changed by more than the threshold, which the spread of steps and runs explains.
        Noise => "noise",
        /// It changed by more than the threshold, but there are too few values to tell whether by chance.
        TooFew => "too_few",
        /// It did not change by more than the threshold.
        Same => "same",
    }

    /// Returns the name in JSON, such as "slower" or "`too_few`".
    pub const fn as_str;
}

impl ChangeVerdict {
    /// Returns whether it is a change that a report lists: slower, faster, new, gone or moved.
    pub const fn is_change(self) -> bool {
        use ChangeVerdict as V;
        matches!(self, V::Slower | V::Faster | V::New | V::Gone | V::Moved)
    }
}

/// Where a class runs now, or how often.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClassMove {
    /// Most of its events are inside other operations: the names before and after; "" outside operations.
    Parent(String, String),
    /// Most of its time passes on another device or stream: "device/stream" before and after.
    Stream(String, String),
    /// The median number of events of a step.
    Count(f64, f64),
    /// The share of steps in which it takes much longer than usual, or occurs at all if usually it does not.
    SlowSteps(f64, f64),
}

impl DiffPart {
    /// Returns the change, in nanoseconds.
    pub fn change_ns(&self) -> i64 {
        signed_change(self.a_ns, self.b_ns)
    }
}

impl DiffTotal {
    /// Returns the change of the mean, in nanoseconds; the sum of the changes of all parts.
    pub fn change_ns(&self) -> i64 {
        signed_change(self.a_ns, self.b_ns)
    }

    /// Returns the relative change of the mean, in percent.
    pub fn mean_change_percent(&self) -> f64 {
        self.change_ns() as f64 * 100.0 / self.a_ns.max(1) as f64
    }
}

impl ClassChange {
    /// Returns its first name on the second side, else on the first.
    pub fn name(&self) -> &str {
        let names = self.b.as_ref().or(self.a.as_ref()).map_or(&[][..], |side| &side.names);
        names.first().map_or("", String::as_str)
    }

    /// Returns the change of the time of a step or trace ([`ClassSide::per_unit_ns`]), in nanoseconds.
    pub fn change_ns(&self) -> i64 {
        let time = |side: &Option<ClassSide>| side.as_ref().map_or(0, ClassSide::per_unit_ns);
        signed_change(time(&self.a), time(&self.b))
    }
}

fn signed_change(a: u64, b: u64) -> i64 {
    let change = i128::from(b) - i128::from(a);
    i64::try_from(change).unwrap_or(if change > 0 { i64::MAX } else { i64::MIN })
}

/// How two sides are compared.
///
/// ```
/// use kineto_trace::analysis::DiffOptions;
///
/// let options = DiffOptions::new().threshold_percent(1.0);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "call `compare`"]
pub struct DiffOptions {
    threshold_percent: f64,
}

impl Default for DiffOptions {
    fn default() -> DiffOptions {
        DiffOptions { threshold_percent: 3.0 }
    }
}

impl DiffOptions {
    /// Returns the default options.
    pub fn new() -> DiffOptions {
        DiffOptions::default()
    }

    /// Sets the relative change that is reported, in percent. Default: 3. Negative values count as 0.
    pub fn threshold_percent(self, percent: f64) -> DiffOptions {
        DiffOptions { threshold_percent: percent.max(0.0) }
    }

    /// Compares two sides of one or more traces: runs, or the ranks of a run.
    pub fn compare(&self, a: &[TraceProfile], b: &[TraceProfile]) -> Diff {
        let [a, b] = MergedSide::of_both(a, b);
        verdicts::compare_sides(&a, &b, self.threshold_percent)
    }
}

impl Diff {
    /// Compares two sides with the default options.
    pub fn between(a: &[TraceProfile], b: &[TraceProfile]) -> Diff {
        DiffOptions::new().compare(a, b)
    }

    /// Returns whether the mean step or any class is slower than the threshold and the spread explain.
    ///
    /// A class that [needs more runs](ClassChange::needs_runs) does not count.
    pub fn is_slower(&self) -> bool {
        self.total.verdict == ChangeVerdict::Slower || self.slower().any(|change| !change.needs_runs)
    }

    /// Returns whether the mean step or a class is slower in a way that few runs or values cannot distinguish from a clock or the
    /// machine's load, and nothing [is slower](Diff::is_slower) beyond that.
    pub fn is_slower_alike(&self) -> bool {
        let total = &self.total;
        let is_total = match total.verdict {
            ChangeVerdict::Drift => total.change_percent.is_some_and(|percent| percent > 0.0),
            ChangeVerdict::TooFew => total.change_ns() > 0,
            _ => false,
        };
        !self.is_slower() && (is_total || self.slower().next().is_some())
    }

    /// Returns the classes that are slower, by descending change of time.
    pub fn slower(&self) -> impl Iterator<Item = &ClassChange> {
        self.with_verdict(ChangeVerdict::Slower)
    }

    /// Returns the classes with a verdict, by descending change of time.
    pub fn with_verdict(&self, verdict: ChangeVerdict) -> impl Iterator<Item = &ClassChange> {
        self.classes.iter().filter(move |change| change.verdict == verdict)
    }

    /// Returns what changed: slower, faster, new, gone and moved classes, by descending change of time.
    pub fn changes(&self) -> impl Iterator<Item = &ClassChange> {
        self.classes.iter().filter(|change| change.verdict.is_change())
    }

    /// Returns all figures as a JSON object of the schema "kineto-diff/1"; times are in microseconds with three decimals.
    pub fn to_json(&self) -> String {
        json::diff_json(self).to_string()
    }

    /// Returns the differences as text.
    pub fn screen(&self) -> DiffScreen<'_> {
        DiffScreen::new(self)
    }
}

//! What a rule measures.

use super::nearest::nearest_names;
use super::quantity::Quantity;
use crate::analysis::summary::{PathKind, PathPlace};
use crate::{Error, ErrorKind};
use kineto_model::named_values;
use std::fmt;
use std::str::FromStr;

/// What a rule measures. The text is its name in a file of rules, such as "launches" or "duration.p99".
///
/// The rule's pattern ([`Rule::of`](super::Rule::of)) selects by name what is counted, in parentheses here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Figure {
    /// `synchronizations`: calls that wait for a device: `…Synchronize`, copies that are not asynchronous or put in a queue, frees of device memory.
    Synchronizations,
    /// `launches`: calls that put work on a device. Calls that copy or fill count if the trace has their work.
    Launches,
    /// `calls`: calls of a runtime or driver (name of the call).
    Calls,
    /// `kernels`: kernels (name of the kernel).
    Kernels,
    /// `copies`: copies by a device (name, such as `Memcpy DtoH*`).
    Copies,
    /// `fills`: fills by a device (name).
    Fills,
    /// `kernel_share`: the time of kernels (name) in percent of the time of all kernels.
    KernelShare,
    /// `unlinked_work`: kernels, copies and fills without a known launch.
    UnlinkedWork,
    /// `spans`: spans (name).
    Spans,
    /// `duration.…`: the durations of spans (name).
    Duration(Statistic),
    /// `busy`: the time during which any device worked, in percent.
    Busy,
    /// `idle`: the time during which no device worked.
    Idle,
    /// `longest_gap`: the longest time during which no device worked.
    LongestGap,
    /// `exposed_communication`: the time during which a device communicated and none computed, in percent.
    ExposedCommunication,
    /// `path.launch_delay` and its like: the share of one kind of the critical path, in percent.
    PathKind(PathKind),
    /// `path.host`, `path.device`, `path.wait`: the share of one place of the critical path, in percent.
    PathPlace(PathPlace),
    /// `device_memory_peak`: the most bytes that an allocator held on one device.
    DeviceMemoryPeak,
    /// `host_memory_peak`: the most bytes that an allocator held on the host.
    HostMemoryPeak,
    /// `losses`: records that the trace's writer lost (cause).
    Losses,
    /// `notes`: what was left out or repaired while reading (cause); without a pattern all but `async_track`, which is regular.
    Notes,
}

named_values! {
    /// How durations become one value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Statistic {
        /// The median, by nearest rank, as all percentiles.
        P50 => "p50",
        /// The 90th percentile.
        P90 => "p90",
        /// The 95th percentile.
        P95 => "p95",
        /// The 99th percentile.
        P99 => "p99",
        /// The 99.9th percentile.
        P999 => "p999",
        /// The longest.
        Max => "max",
        /// The shortest.
        Min => "min",
        /// The mean.
        Mean => "mean",
        /// The sum.
        Total => "total",
        /// The longest less the shortest, in percent of the median.
        Spread => "spread",
    }

    /// All statistics.
    pub const ALL;

    /// Returns its name, such as "p99".
    pub const fn as_str;
}

/// Which scopes a figure has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FigureScopes {
    /// Any scope.
    Any,
    /// The trace, or all spans together.
    NotEach,
    /// The trace, or each span.
    NotWithin,
    /// The trace alone.
    TraceOnly,
}

impl Figure {
    /// Returns all figures.
    pub fn all() -> Vec<Figure> {
        let mut all = vec![
            Figure::Synchronizations,
            Figure::Launches,
            Figure::Calls,
            Figure::Kernels,
            Figure::Copies,
            Figure::Fills,
            Figure::KernelShare,
            Figure::UnlinkedWork,
            Figure::Spans,
        ];
        all.extend(Statistic::ALL.iter().copied().map(Figure::Duration));
        all.extend([Figure::Busy, Figure::Idle, Figure::LongestGap, Figure::ExposedCommunication]);
        all.extend(PathKind::ALL.iter().copied().map(Figure::PathKind));
        all.extend([PathPlace::Host, PathPlace::Device, PathPlace::Wait].map(Figure::PathPlace));
        all.extend([Figure::DeviceMemoryPeak, Figure::HostMemoryPeak, Figure::Losses, Figure::Notes]);
        all
    }

    /// Returns the zero of its unit.
    pub(super) fn zero(self) -> Quantity {
        self.facts().1
    }

    /// Returns whether a rule must have a pattern; `None` if it must not.
    pub(super) fn pattern_needed(self) -> Option<bool> {
        self.facts().2
    }

    pub(super) fn scopes(self) -> FigureScopes {
        self.facts().3
    }

    /// Returns its name, the zero of its unit, whether a rule must have a pattern, and its scopes.
    fn facts(self) -> (&'static str, Quantity, Option<bool>, FigureScopes) {
        use FigureScopes::{Any, NotEach, NotWithin, TraceOnly};
        const COUNT: Quantity = Quantity::Count(0);
        const TIME: Quantity = Quantity::Nanoseconds(0);
        const SHARE: Quantity = Quantity::Percent(0.0);
        const BYTES: Quantity = Quantity::Bytes(0);

        match self {
            Figure::Synchronizations => ("synchronizations", COUNT, None, Any),
            Figure::Launches => ("launches", COUNT, None, Any),
            Figure::Calls => ("calls", COUNT, Some(false), Any),
            Figure::Kernels => ("kernels", COUNT, Some(false), Any),
            Figure::Copies => ("copies", COUNT, Some(false), Any),
            Figure::Fills => ("fills", COUNT, Some(false), Any),
            Figure::KernelShare => ("kernel_share", SHARE, Some(true), Any),
            Figure::UnlinkedWork => ("unlinked_work", COUNT, None, TraceOnly),
            Figure::Spans => ("spans", COUNT, Some(true), Any),
            Figure::Duration(Statistic::Spread) => ("spread", SHARE, Some(true), NotEach),
            Figure::Duration(statistic) => (statistic.as_str(), TIME, Some(true), NotEach),
            Figure::Busy => ("busy", SHARE, None, Any),
            Figure::Idle => ("idle", TIME, None, NotWithin),
            Figure::LongestGap => ("longest_gap", TIME, None, NotWithin),
            Figure::ExposedCommunication => ("exposed_communication", SHARE, None, Any),
            Figure::PathKind(kind) => (kind.as_str(), SHARE, None, NotWithin),
            Figure::PathPlace(PathPlace::Host) => ("host", SHARE, None, NotWithin),
            Figure::PathPlace(PathPlace::Device) => ("device", SHARE, None, NotWithin),
            Figure::PathPlace(PathPlace::Wait) => ("wait", SHARE, None, NotWithin),
            Figure::DeviceMemoryPeak => ("device_memory_peak", BYTES, None, TraceOnly),
            Figure::HostMemoryPeak => ("host_memory_peak", BYTES, None, TraceOnly),
            Figure::Losses => ("losses", COUNT, Some(false), TraceOnly),
            Figure::Notes => ("notes", COUNT, Some(false), TraceOnly),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Figure::Duration(_) => "duration.",
            Figure::PathKind(_) | Figure::PathPlace(_) => "path.",
            _ => "",
        })?;
        f.write_str(self.facts().0)
    }
}

impl FromStr for Figure {
    type Err = Error;

    fn from_str(name: &str) -> Result<Figure, Error> {
        let all = Figure::all();
        all.iter().find(|figure| figure.to_string() == name).copied().ok_or_else(|| {
            let names: Vec<_> = all.iter().map(Figure::to_string).collect();
            let nearest = nearest_names(name, names.iter().map(String::as_str));
            Error::new(ErrorKind::Config, format!("unknown figure \"{name}\"; nearest: {nearest}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_parse() {
        let all = Figure::all();
        let names: HashSet<_> = all.iter().map(Figure::to_string).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|figure| figure.to_string().parse::<Figure>().unwrap() == *figure));
    }

    #[test]
    fn unknown_name_gives_nearest() {
        let error = "duration.p98".parse::<Figure>().unwrap_err().to_string();
        assert!(error.starts_with("unknown figure \"duration.p98\"; nearest: `duration.p9"), "{error}");
    }
}

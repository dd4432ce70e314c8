//! Durations of kernels, annotations, collectives and copies by name or kind.

use super::intervals::Intervals;
use super::work::{Work, WorkClass, is_copy};
use crate::analysis::events::values::{as_signed, as_text};
use crate::analysis::events::{Event, StringId};
use crate::hash::HashMap;
use crate::sorting::sort_few_by_key;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The number, sum and spread of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Durations {
    /// The number of durations.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// The longest.
    pub max_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The sample standard deviation; 0 for a single duration.
    pub std_ns: f64,
}

impl Durations {
    fn new(all: impl Iterator<Item = u64> + Clone) -> Durations {
        let (count, sum) = all.clone().fold((0u64, 0u64), |(count, sum), ns| (count + 1, sum.saturating_add(ns)));
        if count == 0 {
            return Durations::default();
        }
        let mean = sum as f64 / count as f64;
        let squares: f64 = all.clone().map(|ns| (ns as f64 - mean).powi(2)).sum();
        Durations {
            count,
            sum_ns: sum,
            mean_ns: mean,
            max_ns: all.clone().max().unwrap_or(0),
            min_ns: all.min().unwrap_or(0),
            std_ns: if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 },
        }
    }
}

/// The kernels, copies and fills of one name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KernelFigures {
    /// The full name.
    pub name: String,
    /// The class of work.
    pub class: WorkClass,
    /// The durations.
    pub durations: Durations,
}

/// The annotations of one name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AnnotationFigures {
    /// The name.
    pub name: String,
    /// The durations.
    pub durations: Durations,
}

/// The collective operations of one kind on devices.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CollectiveFigures {
    /// The kind, such as "`AllReduce`"; "Other" if neither name nor arguments identify it.
    pub kind: &'static str,
    /// The durations.
    pub durations: Durations,
    /// The time during which at least one ran, in nanoseconds.
    pub union_ns: u64,
}

/// The copies or fills of one direction.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CopyFigures {
    /// The direction, such as "Memcpy `HtoD`", or "Memset".
    pub kind: String,
    /// The number of copies.
    pub count: u64,
    /// The number of copies with a known size.
    pub with_bytes: u64,
    /// The total size of those, in bytes.
    pub bytes: u64,
    /// The sum of all durations, in nanoseconds.
    pub sum_ns: u64,
    /// The time during which at least one ran, in nanoseconds.
    pub union_ns: u64,
    /// The mean rate of copies with a known size, in 10^9 bytes a second.
    pub gb_per_s: Option<f64>,
    /// The maximum rate of a single copy.
    pub max_gb_per_s: Option<f64>,
}

/// Groups by name, sorted by descending sum, then by name.
fn by_name<'e, T: Copy>(all: impl Iterator<Item = (Event<'e>, T)>) -> Vec<(&'e str, T, Durations)> {
    let mut groups: HashMap<&str, (T, Vec<u64>)> = HashMap::default();
    for (event, tag) in all {
        groups.entry(event.name()).or_insert_with(|| (tag, Vec::new())).1.push(event.duration_ns());
    }
    let rows = groups.into_iter().map(|(name, (tag, ns))| (name, tag, Durations::new(ns.iter().copied())));
    let mut rows: Vec<_> = rows.collect();
    sort_few_by_key(&mut rows, |(name, _, durations)| (Reverse(durations.sum_ns), *name));
    rows
}

/// Returns the kernels, copies and fills by name.
pub(super) fn kernel_figures(work: &[Work<'_>]) -> Vec<KernelFigures> {
    let rows = by_name(work.iter().map(|work| (work.event, work.class)));
    rows.into_iter().map(|(name, class, durations)| KernelFigures { name: name.to_owned(), class, durations }).collect()
}

/// Returns annotations by name.
pub(super) fn annotation_figures<'e>(events: impl Iterator<Item = Event<'e>>) -> Vec<AnnotationFigures> {
    let rows = by_name(events.map(|event| (event, ())));
    rows.into_iter().map(|(name, (), durations)| AnnotationFigures { name: name.to_owned(), durations }).collect()
}

/// Returns collectives on devices by kind, sorted by descending sum.
pub(super) fn collective_figures(work: &[Work<'_>]) -> Vec<CollectiveFigures> {
    let mut kinds: BTreeMap<&'static str, Vec<&Work<'_>>> = BTreeMap::new();
    for work in work.iter().filter(|work| work.class == WorkClass::Communication) {
        kinds.entry(collective_kind(&work.event)).or_default().push(work);
    }
    let figures = |(kind, all): (_, Vec<&Work<'_>>)| CollectiveFigures {
        kind,
        durations: Durations::new(all.iter().map(|work| work.duration_ns())),
        union_ns: Intervals::union(all.iter().map(|work| work.interval())).total_ns(),
    };
    let mut rows: Vec<_> = kinds.into_iter().map(figures).collect();
    sort_few_by_key(&mut rows, |row| Reverse(row.durations.sum_ns));
    rows
}

fn collective_kind(event: &Event<'_>) -> &'static str {
    const KINDS: [(&str, &str); 14] = [
        ("allreduce", "AllReduce"),
        // vLLM's all-reduce.
        ("crossdevicereduce", "AllReduce"),
        ("reducescatter", "ReduceScatter"),
        ("allgather", "AllGather"),
        ("alltoall", "AllToAll"),
        ("broadcast", "Broadcast"),
        ("sendrecv", "SendRecv"),
        ("send", "SendRecv"),
        ("recv", "SendRecv"),
        ("gather", "Gather"),
        ("scatter", "Scatter"),
        ("reduce", "Reduce"),
        ("barrier", "Barrier"),
        ("generic", "Generic"),
    ];

    let named = event.arg_by_id(StringId::COLLECTIVE).and_then(as_text).filter(|name| !name.is_empty());
    let name = named.unwrap_or(event.name()).to_lowercase().replace('_', "");
    let name = name.replace("nccldevkernel", "").replace("ncclkernel", "");
    KINDS.iter().find(|(word, _)| name.contains(word)).map_or("Other", |(_, kind)| kind)
}

/// Returns the copies and fills by direction.
pub(super) fn copy_figures(work: &[Work<'_>]) -> Vec<CopyFigures> {
    let mut kinds: BTreeMap<String, Vec<&Work<'_>>> = BTreeMap::new();
    for work in work.iter().filter(|work| is_copy(&work.event)) {
        kinds.entry(copy_kind(work.event.name())).or_default().push(work);
    }
    let figures = |(kind, all): (String, Vec<&Work<'_>>)| {
        let bytes = |work: &Work<'_>| work.event.arg_by_id(StringId::BYTES).and_then(as_signed)?.try_into().ok();
        let sized: Vec<(u64, u64)> = all.iter().filter_map(|work| Some((bytes(work)?, work.duration_ns()))).collect();
        let (total, ns) =
            sized.iter().fold((0u64, 0u64), |sum, (bytes, ns)| (sum.0.saturating_add(*bytes), sum.1 + ns));
        let rate = |(bytes, ns): &(u64, u64)| (*ns > 0).then(|| *bytes as f64 / *ns as f64);
        CopyFigures {
            kind,
            count: all.len() as u64,
            with_bytes: sized.len() as u64,
            bytes: total,
            sum_ns: all.iter().map(|work| work.duration_ns()).sum(),
            union_ns: Intervals::union(all.iter().map(|work| work.interval())).total_ns(),
            gb_per_s: rate(&(total, ns)),
            max_gb_per_s: sized.iter().filter_map(rate).max_by(f64::total_cmp),
        }
    };
    kinds.into_iter().map(figures).collect()
}

fn copy_kind(name: &str) -> String {
    /// The length of "Memcpy HtoD".
    const DIRECTION: usize = 11;

    if name.starts_with("Memset") {
        "Memset".to_owned()
    } else if name.starts_with("Memcpy") {
        name.chars().take(DIRECTION).collect()
    } else {
        "Memcpy Unknown".to_owned()
    }
}

//! Formats a summary as JSON, with names known from HTA and `torch.profiler`.

use super::groups::{AnnotationFigures, Durations};
use super::idle::IdleTime;
use super::occupation::Occupation;
use super::{Summary, WorkClass, path};
use crate::analysis::averages::Average;
use crate::analysis::events::{Note, TrackId};
use crate::sorting::{sort_few, sort_few_by_key};
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The maximum number of kernels, annotations and operations listed.
const ROWS: usize = 20;

/// Returns all figures; times are in microseconds.
pub(super) fn summary_json(summary: &Summary) -> Value {
    let occupation = summary.occupation.as_ref();
    let overlap = occupation.map_or((0, 0), |found| (found.communication_ns, found.overlapped_communication_ns));
    let queue_max = summary.queues.iter().map(|queue| queue.max).max().unwrap_or(0);
    let mut launch = launches_json(summary);
    if summary.launches.count == 0 {
        launch = json!({ "count": 0, "unlinked": summary.launches.unlinked });
    }
    json!({
        "schema": "kineto-summary/1",
        "unit": "us",
        "load": load_json(summary),
        "temporal": occupation.map(temporal_json),
        "overlap_pct": rounded_percent(overlap.1, overlap.0),
        "overlap": { "comm": ns_to_micros(overlap.0), "overlapped": ns_to_micros(overlap.1) },
        "kernels_total": kernels_total(summary),
        "kernels": summary.kernels.iter().take(ROWS).map(|row| {
            merge_objects(durations_json(&row.durations), json!({ "name": row.name, "class": row.class.as_str() }))
        }).collect::<Vec<_>>(),
        "comm_kinds": summary.collectives.iter().map(|row| {
            merge_objects(durations_json(&row.durations), json!({ "kind": row.kind, "union": ns_to_micros(row.union_ns) }))
        }).collect::<Vec<_>>(),
        "memory_bw": summary.copies.iter().map(|row| (row.kind.clone(), json!({
            "count": row.count, "with_bytes": row.with_bytes, "bytes": row.bytes, "sum": ns_to_micros(row.sum_ns),
            "union": ns_to_micros(row.union_ns), "gb_per_s": row.gb_per_s.map(round_to_thousandths),
            "max_gb_per_s": row.max_gb_per_s.map(round_to_thousandths),
        }))).collect::<serde_json::Map<_, _>>(),
        "idle": idle_json(summary),
        "gaps_top5": gaps_json(summary),
        "launch": launch,
        "queue": { "max": queue_max, "streams": list_json(&summary.queues, queue_json) },
        "steps": list_json(&summary.steps, |row| step_json(summary, row)),
        "critical_path": path::paths_json(summary),
        "annotations": {
            "host": annotations_json(&summary.host_annotations),
            "gpu": annotations_json(&summary.device_annotations),
        },
        "requests": summary.requests.iter().take(ROWS).map(|row| json!({
            "name": row.name, "count": row.count, "sum": ns_to_micros(row.sum_ns), "p50": ns_to_micros(row.p50_ns),
            "p95": ns_to_micros(row.p95_ns), "max": ns_to_micros(row.max_ns),
        })).collect::<Vec<_>>(),
        "memory": list_json(&summary.memory, memory_json),
        "counters": list_json(&summary.counters, counter_json),
        "ops_total": ops_total(summary),
        "ops_top20": top_ops_json(summary, |row| row.self_cpu_ns(), |_| true),
        "ops_device_top20": top_ops_json(summary, |row| row.self_device_ns().cast_signed(), |row| row.self_device_ns() > 0),
    })
}

fn load_json(summary: &Summary) -> Value {
    json!({
        "json_bytes": summary.file.bytes,
        "trace_events": summary.file.elements,
        "slices": summary.slices,
        "slices_without_time": summary.note_count(Note::WithoutTime),
        "negative_durations": summary.note_count(Note::NegativeDuration),
        "first_ts_ns": i128::from(summary.start.as_nanos()) - i128::from(summary.file.base_ns),
        "span": ns_to_micros(summary.span_ns),
        "cats": summary.categories,
        "device_events": summary.device_events,
        "devices": summary.devices,
        "streams": summary.stream_idle.len(),
        "rank": summary.rank,
        "dump_reason": summary.dump_reason,
        "losses": summary.losses.iter().cloned().collect::<BTreeMap<_, _>>(),
        "notes": summary.notes.iter().map(|(note, count)| (note.as_str(), count)).collect::<BTreeMap<_, _>>(),
    })
}

fn temporal_json(found: &Occupation) -> Value {
    let share = |ns| rounded_percent(ns, found.window_ns);
    let parts = &found.exclusive;
    json!({
        "window": ns_to_micros(found.window_ns),
        "busy": ns_to_micros(found.busy_ns),
        "idle": ns_to_micros(found.idle_ns()),
        "compute": ns_to_micros(found.compute_ns),
        "comm": ns_to_micros(found.communication_ns),
        "memory": ns_to_micros(found.memory_ns),
        "non_compute": ns_to_micros(found.busy_ns - found.compute_ns),
        "busy_pct": share(found.busy_ns),
        "idle_pct": share(found.idle_ns()),
        "compute_pct": share(found.compute_ns),
        "exposed_comm": ns_to_micros(found.exposed_communication_ns),
        "exclusive": {
            "compute_only": ns_to_micros(parts.compute_ns),
            "comm_only": ns_to_micros(parts.communication_ns),
            "memory_only": ns_to_micros(parts.memory_ns),
            "compute_comm": ns_to_micros(parts.compute_communication_ns),
            "compute_memory": ns_to_micros(parts.compute_memory_ns),
            "comm_memory": ns_to_micros(parts.communication_memory_ns),
            "all_three": ns_to_micros(parts.all_ns),
        },
    })
}

fn kernels_total(summary: &Summary) -> Value {
    let sum = |class: Option<WorkClass>| {
        let rows = summary.kernels.iter().filter(move |row| class.is_none_or(|class| row.class == class));
        let total = |(count, ns), row: &Durations| (count + row.count, ns + row.sum_ns);
        rows.map(|row| &row.durations).fold((0u64, 0u64), total)
    };
    let mut classes: Vec<_> = summary.kernels.iter().map(|row| row.class).collect();
    sort_few(&mut classes);
    classes.dedup();
    let by_class = classes.into_iter().map(|class| {
        let (count, ns) = sum(Some(class));
        (class.as_str().to_owned(), json!({ "count": count, "sum": ns_to_micros(ns) }))
    });
    let (count, ns) = sum(None);
    let by_class = by_class.collect::<serde_json::Map<_, _>>();
    json!({ "names": summary.kernels.len(), "count": count, "sum": ns_to_micros(ns), "by_class": by_class })
}

fn idle_json(summary: &Summary) -> Value {
    let causes = |idle: &IdleTime| {
        json!({
            "host_wait": ns_to_micros(idle.host_wait_ns),
            "kernel_wait": ns_to_micros(idle.kernel_wait_ns),
            "other": ns_to_micros(idle.other_ns),
        })
    };
    let streams = summary.stream_idle.iter().map(|row| {
        let [host_wait, kernel_wait, other] = row.idle.gaps;
        let gaps = json!({ "host_wait": host_wait, "kernel_wait": kernel_wait, "other": other });
        let stream = json!({ "device": track_id_json(&row.stream.device), "stream": track_id_json(&row.stream.stream), "gaps": gaps });
        merge_objects(causes(&row.idle), stream)
    });
    let split = json!({
        "split_before_launch": ns_to_micros(summary.idle.before_launch_ns),
        "split_after_launch": ns_to_micros(summary.idle.after_launch_ns),
        "split_unlinked": ns_to_micros(summary.idle.unlinked_ns),
        "streams": streams.collect::<Vec<_>>(),
    });
    merge_objects(causes(&summary.idle), split)
}

fn gaps_json(summary: &Summary) -> Vec<Value> {
    let host = |host: &super::GapHost| json!({ "name": host.name, "cat": host.category, "self_in_gap": ns_to_micros(host.self_ns) });
    let gap = |gap: &super::Gap| {
        json!({
            "start": since_start(summary, gap.start), "dur": ns_to_micros(gap.ns), "before": gap.before, "after": gap.after,
            "launch_start": gap.launch.map(|launch| since_start(summary, launch)), "host": gap.host.as_ref().map(host),
        })
    };
    summary.gaps.iter().map(gap).collect()
}

fn launches_json(summary: &Summary) -> Value {
    let found = &summary.launches;
    json!({
        "count": found.count,
        "unlinked": found.unlinked,
        "mean_delay": round_to_thousandths(found.mean_delay_ns / 1e3),
        "max_delay": ns_to_micros(found.max_delay_ns),
        "p50_delay": ns_to_micros(found.p50_delay_ns),
        "p95_delay": ns_to_micros(found.p95_delay_ns),
        "started_before_launch_returned": found.started_before_return,
        "started_before_launch_began": found.started_before_call,
        "mean_latency": round_to_thousandths(found.mean_latency_ns / 1e3),
        "max_latency": signed_micros(found.max_latency_ns),
        "mean_cpu_dur": round_to_thousandths(found.mean_call_ns / 1e3),
        "short_kernels": found.short_kernels,
        "runtime_outliers": found.slow_calls,
        "delay_outliers": found.long_delays,
    })
}

fn queue_json(row: &super::QueueFigures) -> Value {
    json!({
        "device": track_id_json(&row.stream.device), "stream": track_id_json(&row.stream.stream), "points": row.points, "max": row.max,
        "min": row.min, "mean_of_points": row.mean_of_points, "time_mean": row.time_mean,
    })
}

fn step_json(summary: &Summary, row: &super::StepFigures) -> Value {
    json!({
        "n": row.number, "start": since_start(summary, row.start), "dur": ns_to_micros(row.ns),
        "device_events": row.device_events, "device_sum": ns_to_micros(row.device_ns),
        "device_busy_launched": ns_to_micros(row.device_busy_ns),
        "device_busy_in_window": ns_to_micros(row.device_busy_in_window_ns),
        "device_end": row.device_end.map(|end| since_start(summary, end)),
        "end_with_device": ns_to_micros(row.ns_with_device()),
    })
}

fn annotations_json(rows: &[AnnotationFigures]) -> Vec<Value> {
    rows.iter()
        .take(ROWS)
        .map(|row| merge_objects(durations_json(&row.durations), json!({ "name": row.name })))
        .collect()
}

fn memory_json(row: &super::MemoryFigures) -> Value {
    json!({
        "device_type": row.device_type, "device": row.device, "peak_allocated": row.peak_allocated,
        "peak_reserved": row.peak_reserved, "allocations": row.allocations, "frees": row.frees,
        "allocated_bytes": row.allocated_bytes, "growth": row.growth,
    })
}

fn counter_json(row: &super::CounterFigures) -> Value {
    json!({
        "name": row.name, "series": row.series, "track": row.track, "count": row.count, "min": row.min,
        "max": row.max, "mean": row.mean, "last": row.last,
    })
}

fn ops_total(summary: &Summary) -> Value {
    let counts = summary.attribution;
    let found = [
        ("same", counts.same),
        ("external_id_differs", counts.external_id_differs),
        ("external_id_only", counts.external_id_only),
        ("nesting_only", counts.nesting_only),
        ("none", counts.none),
        ("external_id_refused", counts.external_id_refused),
    ];
    let attribution = found.into_iter().filter(|(_, count)| *count > 0);
    let rows = summary.averages.ops();
    json!({
        "rows": rows.len(),
        "self_cpu_sum": signed_micros(summary.averages.cpu_base_ns()),
        "self_device_sum": ns_to_micros(rows.iter().map(Average::self_device_ns).sum()),
        "device_sum": ns_to_micros(summary.averages.device_base_ns()),
        "attribution": attribution.map(|(how, count)| (how.to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
    })
}

/// Returns the operations with the greatest `key`, then by name.
fn top_ops_json(summary: &Summary, key: fn(&Average) -> i64, is_listed: fn(&Average) -> bool) -> Vec<Value> {
    let mut rows: Vec<&Average> = summary.averages.ops().iter().filter(|row| is_listed(row)).collect();
    sort_few_by_key(&mut rows, |row| (Reverse(key(row)), row.name()));
    let base = summary.averages.cpu_base_ns();
    let op = |row: &&Average| {
        json!({
            "name": row.name(), "annotation": row.is_annotation(), "count": row.count(),
            "self_cpu": signed_micros(row.self_cpu_ns()), "self_cpu_pct": signed_percent(row.self_cpu_ns(), base),
            "cpu_total": ns_to_micros(row.cpu_ns()), "self_device": ns_to_micros(row.self_device_ns()),
            "device_total": ns_to_micros(row.device_ns()),
        })
    };
    rows.iter().take(ROWS).map(op).collect()
}

fn durations_json(row: &Durations) -> Value {
    json!({
        "count": row.count, "sum": ns_to_micros(row.sum_ns), "mean": round_to_thousandths(row.mean_ns / 1e3),
        "max": ns_to_micros(row.max_ns), "min": ns_to_micros(row.min_ns), "std": round_to_thousandths(row.std_ns / 1e3),
    })
}

fn list_json<T>(rows: &[T], row_json: impl Fn(&T) -> Value) -> Vec<Value> {
    rows.iter().map(row_json).collect()
}

/// Merges two objects.
fn merge_objects(mut object: Value, more: Value) -> Value {
    if let (Some(members), Value::Object(more)) = (object.as_object_mut(), more) {
        members.extend(more);
    }
    object
}

fn track_id_json(id: &TrackId) -> Value {
    match id {
        TrackId::Id(id) => json!(id),
        TrackId::Name(name) => json!(name),
    }
}

fn since_start(summary: &Summary, at: Timestamp) -> f64 {
    let ns = i128::from(at.as_nanos()) - i128::from(summary.start.as_nanos());
    signed_micros(i64::try_from(ns).unwrap_or(i64::MAX))
}

pub(in crate::analysis) fn ns_to_micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

pub(in crate::analysis) fn signed_micros(ns: i64) -> f64 {
    ns as f64 / 1e3
}

pub(in crate::analysis) fn round_to_thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Returns a percentage with two decimals; `None` if `whole` is 0.
pub(super) fn rounded_percent(part: u64, whole: u64) -> Option<f64> {
    signed_percent(i64::try_from(part).ok()?, i64::try_from(whole).ok()?)
}

fn signed_percent(part: i64, whole: i64) -> Option<f64> {
    (whole != 0).then(|| (part as f64 * 1e4 / whole as f64).round() / 1e2)
}

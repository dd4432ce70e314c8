//! Formats a difference as JSON.

use super::{ClassChange, ClassMove, ClassSide, Diff, DiffPart, DiffSide, LeftOutTrace};
use crate::analysis::summary::{WorkClass, ns_to_micros, round_to_thousandths, signed_micros};
use serde_json::{Value, json};

/// Returns all figures; times are in microseconds.
pub(super) fn diff_json(diff: &Diff) -> Value {
    let total = &diff.total;
    json!({
        "schema": "kineto-diff/1",
        "unit": "us",
        "threshold_pct": diff.threshold_percent,
        "per": diff.unit.as_str(),
        "is_slower": diff.is_slower(),
        "is_slower_alike": diff.is_slower_alike(),
        "a": side_json(&diff.a),
        "b": side_json(&diff.b),
        "drift": { "host_pct": round_to_thousandths(diff.host_drift_percent), "device_pct": round_to_thousandths(diff.device_drift_percent) },
        "total": {
            "a": ns_to_micros(total.a_ns),
            "b": ns_to_micros(total.b_ns),
            "change": signed_micros(total.change_ns()),
            "change_pct": total.change_percent.map(round_to_thousandths),
            "probability": total.probability,
            "verdict": total.verdict.as_str(),
            "slow_steps": total.slow_steps.map(|shares| shares.map(round_to_thousandths)),
            "parts": diff.parts.iter().map(part_json).collect::<Vec<_>>(),
        },
        "classes": diff.classes.iter().map(class_json).collect::<Vec<_>>(),
    })
}

fn side_json(side: &DiffSide) -> Value {
    let left_out = |left_out: &LeftOutTrace| json!({ "trace": left_out.trace + 1, "rank": left_out.rank, "reason": left_out.reason.as_str() });
    json!({
        "traces": side.traces,
        "steps": side.steps,
        "span": ns_to_micros(side.span_ns),
        "left_out": side.left_out.iter().map(left_out).collect::<Vec<_>>(),
    })
}

fn part_json(part: &DiffPart) -> Value {
    json!({
        "kind": part.kind.as_str(),
        "name": part.name,
        "a": ns_to_micros(part.a_ns),
        "b": ns_to_micros(part.b_ns),
        "change": signed_micros(part.change_ns()),
    })
}

fn class_json(change: &ClassChange) -> Value {
    json!({
        "kind": change.kind.as_str(),
        "class": change.work.map(WorkClass::as_str),
        "name": change.name(),
        "a": change.a.as_ref().map(class_side_json),
        "b": change.b.as_ref().map(class_side_json),
        "change": signed_micros(change.change_ns()),
        "change_pct": change.change_percent.map(round_to_thousandths),
        "probability": change.probability,
        "verdict": change.verdict.as_str(),
        "needs_runs": change.needs_runs,
        "matched": change.matched.as_str(),
        "moves": change.moves.iter().map(move_json).collect::<Vec<_>>(),
    })
}

fn class_side_json(side: &ClassSide) -> Value {
    json!({
        "names": side.names,
        "count": side.count,
        "sum": ns_to_micros(side.total_ns),
        "with_children": ns_to_micros(side.with_children_ns),
        "mean_count": round_to_thousandths(side.mean_count),
        "mean": ns_to_micros(side.mean_ns),
        "typical": side.typical_ns.map(ns_to_micros),
    })
}

fn move_json(change: &ClassMove) -> Value {
    match change {
        ClassMove::Parent(a, b) => json!({ "of": "parent", "a": a, "b": b }),
        ClassMove::Stream(a, b) => json!({ "of": "stream", "a": a, "b": b }),
        ClassMove::SlowSteps(a, b) => {
            json!({ "of": "slow_steps", "a": round_to_thousandths(*a), "b": round_to_thousandths(*b) })
        }
        ClassMove::Count(a, b) => json!({ "of": "count", "a": a, "b": b }),
    }
}

//! The data of a page: figures of the summary, the timeline as columns, and series, as JSON of limited size.

use super::page::escape_json;
use kineto_trace::analysis::summary::{CounterSeries, Utilization};
use kineto_trace::analysis::timeline::{Timeline, TimelineLimits};
use kineto_trace::analysis::{Event, Events, Summary, TrackId};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;

/// Names and other texts outside of the summary are cut to this many characters.
const MAX_TEXT_CHARS: usize = 300;

/// Utilization is shown of at most so many devices.
const MAX_DEVICES: usize = 64;

/// The sizes of long texts and lists in a page.
#[derive(Clone, Copy)]
struct Cuts {
    chars: usize,
    rows: usize,
}

/// Returns the data of a page from those of its traces.
pub(super) fn report_data(traces: &[String]) -> String {
    format!(
        r#"{{"schema":"kineto-report/1","version":"{}","traces":[{}]}}"#,
        env!("CARGO_PKG_VERSION"),
        traces.join(",")
    )
}

pub(super) fn file_name(path: &Path) -> String {
    if path.as_os_str() == "-" {
        return "standard input".to_owned();
    }
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Returns the data of one trace in at most about `budget` bytes.
pub(super) fn trace_data(path: &Path, events: &Events, part: &str, budget: usize) -> String {
    /// The length of a bucket in the page, in bytes.
    const BUCKET_BYTES: usize = 24;

    let summary = events.summary();
    let devices = usize::try_from(summary.devices).unwrap_or(usize::MAX).clamp(1, MAX_DEVICES) + 1;
    let buckets = (budget / 6 / BUCKET_BYTES / devices).clamp(12, 240);
    let max_series = (budget / 20_000).clamp(4, 60);
    let utilization = events.utilization(buckets);
    let series = |series: Vec<CounterSeries>| {
        series.iter().take(max_series).map(|series| series_json(events, series)).collect::<Vec<_>>()
    };
    let points = (budget / 8000).clamp(20, 160);
    let findings = summary.findings().into_iter().map(|finding| {
        json!({ "title": finding.title, "evidence": finding.evidence, "gain": ns_to_micros(finding.gain_ns) })
    });
    let mut rest = json!({
        "file": file_name(path),
        "part": part,
        "findings": findings.collect::<Vec<_>>(),
        "notes": summary.notes.iter().map(|(note, count)| json!([note.to_string(), count, note.is_loss()])).collect::<Vec<_>>(),
        "utilization": utilization.iter().take(MAX_DEVICES + 1).map(utilization_json).collect::<Vec<_>>(),
        "counters": series(events.counter_series(points)),
        "memory": series(events.memory_series(points)),
    });
    shorten_value(&mut rest, Cuts { chars: MAX_TEXT_CHARS, rows: 1000 });
    // Sizes are those of escaped texts: names of C++ have many `<`.
    let rest = escape_json(&rest.to_string());
    let (figures, cut) = summary_text(&summary, budget / 3);
    let left = budget.saturating_sub(figures.len() + rest.len());
    let (timeline, args) = timeline_texts(events, left);
    format!(r#"{{"summary":{figures},"cut":{cut},"timeline":{timeline},"args":{args},"rest":{rest}}}"#)
}

/// Returns the timeline and the arguments of its slices as JSON of at most about `budget` bytes.
fn timeline_texts(events: &Events, budget: usize) -> (String, String) {
    const MIN_SLICES: usize = 50;

    /// About the length of a slice or a cell in the page, in bytes.
    const ITEM_BYTES: usize = 40;

    let mut limits = TimelineLimits::default();
    limits.slices = limits.slices.min(budget / ITEM_BYTES);
    limits.cells = limits.cells.min(budget / ITEM_BYTES);
    loop {
        let timeline = events.timeline(limits);
        let text = escape_json(&timeline_json(events, &timeline).to_string());
        if text.len() <= budget / 4 * 3 || limits.slices < MIN_SLICES {
            return (
                text.clone(),
                arguments_text(events, &timeline, budget.saturating_sub(text.len()).min(budget / 3)),
            );
        }
        let slices = limits.slices.saturating_mul(budget / 4 * 3) / text.len() / 10 * 9;
        limits.slices = slices.min(limits.slices / 10 * 9);
        limits.cells = limits.cells / 4 * 3;
    }
}

/// Returns the summary as JSON of at most about `budget` bytes, and whether texts and lists were cut for that.
fn summary_text(summary: &Summary, budget: usize) -> (String, bool) {
    let text = escape_json(&summary.to_json());
    if text.len() <= budget {
        // Not parsed, so figures are the same to the last digit.
        return (text, false);
    }
    let mut value = serde_json::from_str(&text).unwrap_or_default();
    for cuts in [(2000, 1000), (300, 1000), (300, 100), (60, 20)].map(|(chars, rows)| Cuts { chars, rows }) {
        shorten_value(&mut value, cuts);
        let text = escape_json(&value.to_string());
        if text.len() <= budget {
            return (text, true);
        }
    }
    (escape_json(&value.to_string()), true)
}

/// Cuts long texts, keys and lists.
fn shorten_value(value: &mut Value, cuts: Cuts) {
    match value {
        Value::String(text) => {
            if let Some(shorter) = shorten_text(text, cuts.chars) {
                *text = shorter;
            }
        }
        Value::Array(list) => {
            list.truncate(cuts.rows);
            list.iter_mut().for_each(|value| shorten_value(value, cuts));
        }
        Value::Object(members) => {
            let short = std::mem::take(members).into_iter().take(cuts.rows).map(|(key, mut value)| {
                shorten_value(&mut value, cuts);
                (shorten_text(&key, cuts.chars).unwrap_or(key), value)
            });
            members.extend(short);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the start of a text that is too long.
fn shorten_text(text: &str, max_chars: usize) -> Option<String> {
    let (end, _) = text.char_indices().nth(max_chars)?;
    Some(format!("{}…", text.get(..end)?))
}

/// Numbers texts in the order in which they are first used.
#[derive(Default)]
struct TextTable<'e> {
    numbers: HashMap<&'e str, usize>,
    texts: Vec<String>,
}

impl<'e> TextTable<'e> {
    fn number(&mut self, text: &'e str) -> usize {
        *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(shorten_text(text, MAX_TEXT_CHARS).unwrap_or_else(|| text.to_owned()));
            self.texts.len() - 1
        })
    }
}

/// Returns a timeline as columns: times are nanoseconds, starts are differences to the slice before.
///
/// Slices are numbered through all rows; `parent` and `launch` are such numbers, or -1.
fn timeline_json(events: &Events, timeline: &Timeline) -> Value {
    let slices = || timeline.rows.iter().flat_map(|row| &row.slices);
    let numbers: HashMap<usize, usize> = slices().enumerate().map(|(number, slice)| (slice.event, number)).collect();
    let number = |event: Option<usize>| event.and_then(|event| numbers.get(&event)).map_or(json!(-1), |it| json!(it));
    let (mut names, mut categories) = (TextTable::default(), TextTable::default());
    let rows: Vec<_> = timeline
        .rows
        .iter()
        .map(|row| {
            let listed = || row.slices.iter().filter_map(|slice| Some((slice, events.get(slice.event)?)));
            let starts: Vec<u64> = listed().map(|(_, event)| event.start().since(timeline.start)).collect();
            let previous = std::iter::once(&0).chain(&starts);
            let cells = row.cells.iter().map(|cell| json!([cell.index, cell.count, cell.busy_ns]));
            json!({
                "process": shorten_or_same(&row.process),
                "name": shorten_or_same(&row.name),
                "device": row.is_device,
                "tracks": row.tracks,
                "levels": row.levels,
                "start": starts.iter().zip(previous).map(|(start, before)| start - before).collect::<Vec<_>>(),
                "dur": listed().map(|(_, event)| event.duration_ns()).collect::<Vec<_>>(),
                "text": listed().map(|(_, event)| names.number(event.name())).collect::<Vec<_>>(),
                "cat": listed().map(|(_, event)| categories.number(event.category())).collect::<Vec<_>>(),
                "level": listed().map(|(slice, _)| slice.level).collect::<Vec<_>>(),
                "parent": listed().map(|(slice, _)| number(slice.parent)).collect::<Vec<_>>(),
                "launch": if row.is_device { listed().map(|(slice, _)| number(slice.launch)).collect::<Vec<_>>() } else { Vec::new() },
                "cells": cells.collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "span_ns": timeline.span_ns, "cell_ns": timeline.cell_ns, "rows": rows, "names": names.texts,
        "cats": categories.texts,
    })
}

fn shorten_or_same(text: &str) -> String {
    shorten_text(text, MAX_TEXT_CHARS).unwrap_or_else(|| text.to_owned())
}

/// Returns the arguments of the longest slices, by the slice's number, as JSON of at most about `budget` bytes.
fn arguments_text(events: &Events, timeline: &Timeline, budget: usize) -> String {
    let slices = timeline.rows.iter().flat_map(|row| &row.slices).enumerate();
    let mut longest: Vec<(usize, Event<'_>)> =
        slices.filter_map(|(number, slice)| Some((number, events.get(slice.event)?))).collect();
    longest.sort_by_key(|(number, event)| (Reverse(event.duration_ns()), *number));
    let mut text = String::from("{");
    for (number, event) in longest {
        let Some(args) = arguments_of(&event) else { continue };
        let separator = if text.len() > 1 { "," } else { "" };
        let member = escape_json(&format!("{separator}\"{number}\":{args}"));
        if text.len() + member.len() > budget {
            break;
        }
        text += &member;
    }
    text + "}"
}

/// Returns the arguments of an event, short; `None` if it has none.
fn arguments_of(event: &Event<'_>) -> Option<Value> {
    const MAX_ARGUMENTS: usize = 24;
    const MAX_VALUE_CHARS: usize = 160;

    let Ok(Value::Object(members)) = serde_json::from_str(&event.metadata_json()) else { return None };
    let short = |value: Value| match value {
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            Value::String(shorten_text(&text, MAX_VALUE_CHARS).unwrap_or(text))
        }
        Value::String(text) => Value::String(shorten_text(&text, MAX_VALUE_CHARS).unwrap_or(text)),
        value => value,
    };
    let members: Map<_, _> =
        members.into_iter().take(MAX_ARGUMENTS).map(|(key, value)| (shorten_or_same(&key), short(value))).collect();
    (!members.is_empty()).then_some(Value::Object(members))
}

fn utilization_json(found: &Utilization) -> Value {
    let device = found.device.as_ref().map(|device| match device {
        TrackId::Id(id) => json!(id),
        TrackId::Name(name) => json!(name),
    });
    json!({
        "device": device,
        "bucket_ns": found.bucket_ns,
        "compute": found.buckets.iter().map(|bucket| bucket.compute_ns).collect::<Vec<_>>(),
        "comm": found.buckets.iter().map(|bucket| bucket.exposed_communication_ns).collect::<Vec<_>>(),
        "memory": found.buckets.iter().map(|bucket| bucket.memory_ns).collect::<Vec<_>>(),
    })
}

/// Returns a series; times are nanoseconds since the start of the first slice, and may be negative.
fn series_json(events: &Events, series: &CounterSeries) -> Value {
    let start = i128::from(events.slice_range().start.as_nanos());
    let at = |ns: u64| i64::try_from(i128::from(ns) - start).unwrap_or(i64::MAX);
    let points = series.points.iter().map(|point| json!([at(point.at.as_nanos()), point.min, point.max, point.last]));
    json!({ "name": series.name, "series": series.series, "track": series.track, "points": points.collect::<Vec<_>>() })
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 nanoseconds")]
fn ns_to_micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

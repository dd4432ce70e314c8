//! The data of a page: figures of the summary, the timeline as columns, and series, as JSON of limited size.

use super::page::escape_json;
use crate::trace_file::is_standard_stream;
use kineto_trace::analysis::summary::{CounterSeries, Utilization, WorkClass};
use kineto_trace::analysis::timeline::{Timeline, TimelineLimits};
use kineto_trace::analysis::{Diff, Event, Events, Summary, TrackId};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

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

/// Returns the data of a page in at most about `budget` bytes; traces that do not fit are counted, but not the `longest`.
///
/// `unread` are the names of traces that are missing. `diff` is the comparison of its traces, or "null".
pub(super) fn report_data(
    traces: &[String],
    longest: Option<usize>,
    unread: &[String],
    diff: &str,
    budget: usize,
) -> String {
    const MAX_UNREAD: usize = 20;

    let names: Vec<_> = unread.iter().take(MAX_UNREAD).map(|name| shorten_or_same(name)).collect();
    let unread = escape_json(&json!({ "names": names, "more": unread.len() - names.len() }).to_string());
    let size_of_longest = longest.and_then(|longest| traces.get(longest)).map_or(0, String::len);
    let mut left = budget.saturating_sub(diff.len() + unread.len() + size_of_longest);
    let fitting = traces.iter().enumerate().filter(|(index, trace)| {
        let is_longest = Some(*index) == longest;
        let fits = trace.len() < left;
        if !is_longest {
            // The first are listed: none follows one that does not fit.
            left = if fits { left - trace.len() - 1 } else { 0 };
        }
        fits || is_longest
    });
    let listed: Vec<&str> = fitting.map(|(_, trace)| trace.as_str()).collect();
    format!(
        r#"{{"schema":"kineto-report/1","version":"{}","left_out":{},"unread":{unread},"traces":[{}],"diff":{diff}}}"#,
        env!("CARGO_PKG_VERSION"),
        traces.len() - listed.len(),
        listed.join(",")
    )
}

/// Returns a comparison as JSON of at most about `budget` bytes with the names of its sides; "null" if it is longer.
pub(super) fn diff_text(diff: &Diff, sides: &[PathBuf], budget: usize) -> String {
    let Some((figures, cut)) = shorten_json(&diff.to_json(), budget) else { return "null".to_owned() };
    let names = json!(sides.iter().map(|side| shorten_or_same(&file_name(side))).collect::<Vec<_>>());
    format!(r#"{{"figures":{figures},"cut":{cut},"sides":{}}}"#, escape_json(&names.to_string()))
}

/// Returns the data of a trace that the page lists without details.
///
/// `side` is the side of a comparison, else empty.
pub(super) fn brief_data(path: &Path, events: &Events, side: &str) -> String {
    const MAX_FILE_CHARS: usize = 100;

    let figures: Value = serde_json::from_str(&events.summary().to_json()).unwrap_or_default();
    let pick = |part: &str, keys: &[&str]| {
        let part = figures.get(part).filter(|part| part.is_object())?;
        Some(keys.iter().map(|key| ((*key).to_owned(), json!(part.get(key)))).collect::<Map<_, _>>())
    };
    let name = file_name(path);
    let brief = json!({
        "brief": true,
        "summary": {
            "load": pick("load", &["rank", "span"]),
            "temporal": pick("temporal", &["window", "busy", "compute", "exposed_comm", "idle"]),
        },
        "rest": { "side": side, "file": shorten_text(&name, MAX_FILE_CHARS).unwrap_or(name) },
    });
    escape_json(&brief.to_string())
}

pub(super) fn file_name(path: &Path) -> String {
    if is_standard_stream(path) {
        return "standard input".to_owned();
    }
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Returns the data of one trace in at most `budget` bytes; `None` if its shortest form is longer.
///
/// `side` is the side of a comparison, else empty; `part` the selected part of the trace.
pub(super) fn trace_data(path: &Path, events: &Events, (side, part): (&str, &str), budget: usize) -> Option<String> {
    /// The length of the names and signs between the parts.
    const FRAME_BYTES: usize = 100;

    let summary = events.summary();
    let budget = budget.saturating_sub(FRAME_BYTES);
    let (rest, is_rest_cut) =
        rest_text(events, &summary, &json!({ "file": file_name(path), "part": part, "side": side }), budget)?;
    let (figures, is_cut) = shorten_json(&summary.to_json(), budget / 3)?;
    let cut = is_cut || is_rest_cut;
    let (timeline, args) = timeline_texts(events, budget.saturating_sub(figures.len() + rest.len()))?;
    Some(format!(r#"{{"summary":{figures},"cut":{cut},"timeline":{timeline},"args":{args},"rest":{rest}}}"#))
}

/// Returns all but figures and slices, with texts `about` the trace, as JSON of at most a third of `budget`, and whether some of it was cut.
fn rest_text(events: &Events, summary: &Summary, about: &Value, budget: usize) -> Option<(String, bool)> {
    const MAX_HALVINGS: u32 = 8;
    /// The length of a bucket in the page, in bytes.
    const BUCKET_BYTES: usize = 24;

    let count = usize::try_from(summary.devices).unwrap_or(usize::MAX);
    for halvings in 0..MAX_HALVINGS {
        let share = budget >> halvings;
        // The first row is that of all devices; without the others it needs no name.
        let rows = (share / 3000).min(MAX_DEVICES.min(count)) + 1;
        let rows = if count > 1 && rows < 3 { 1 } else { rows };
        let utilization = events.utilization((share / 6 / BUCKET_BYTES / rows).clamp(6, 240));
        let points = (share / 8000).clamp(4, 160);
        let (counters, memory) = (events.counter_series(points), events.memory_series(points));
        let max_series = (share / 20_000).clamp(2, 60);
        let series = |series: &[CounterSeries]| {
            series.iter().take(max_series).map(|series| series_json(events, series)).collect::<Vec<_>>()
        };
        let findings = summary.findings().into_iter().map(|finding| {
            json!({ "title": finding.title, "evidence": finding.evidence, "gain": ns_to_micros(finding.gain_ns) })
        });
        let notes = summary.notes.iter().map(|(note, count)| json!([note.to_string(), count, note.is_loss()]));
        let mut rest = json!({
            "file": about.get("file"),
            "part": about.get("part"),
            "side": about.get("side"),
            "steps": steps_json(summary),
            "findings": findings.collect::<Vec<_>>(),
            "notes": notes.collect::<Vec<_>>(),
            "utilization": utilization.iter().take(rows).map(utilization_json).collect::<Vec<_>>(),
            "counters": series(&counters),
            "memory": series(&memory),
        });
        shorten_value(&mut rest, Cuts { chars: (MAX_TEXT_CHARS >> halvings).max(40), rows: 1000 });
        // Sizes are those of escaped texts: names of C++ have many `<`.
        let text = escape_json(&rest.to_string());
        if text.len() <= budget / 3 {
            let is_cut = rows < utilization.len() || counters.len().max(memory.len()) > max_series;
            return Some((text, is_cut || halvings > 0));
        }
    }
    None
}

/// Returns figures of all steps: the page may list only some.
fn steps_json(summary: &Summary) -> Value {
    let mut durations: Vec<u64> = summary.steps.iter().map(|step| step.ns).collect();
    durations.sort_unstable();
    let micros = |ns: Option<&u64>| ns.map(|ns| ns_to_micros(*ns));
    let median = summary.median_step_ns();
    json!({ "count": durations.len(), "min": micros(durations.first()), "median": micros(median.as_ref()), "max": micros(durations.last()) })
}

/// Returns the timeline and the arguments of its slices as JSON of at most `budget` bytes.
fn timeline_texts(events: &Events, budget: usize) -> Option<(String, String)> {
    /// About the length of a slice or a cell in the page, in bytes.
    const ITEM_BYTES: usize = 40;
    /// The number of attempts after which tracks share a row: their names may be long.
    const MAX_ATTEMPTS: usize = 3;

    let mut limits = TimelineLimits::default();
    limits.slices = limits.slices.min(budget / ITEM_BYTES);
    limits.cells = limits.cells.min(budget / ITEM_BYTES);
    let max_bytes = budget / 4 * 3;
    for attempt in 1.. {
        let timeline = events.timeline(limits);
        let text = escape_json(&timeline_json(events, &timeline).to_string());
        if text.len() <= max_bytes {
            let left = (budget - text.len()).min(budget / 3);
            let args = arguments_text(events, &timeline, left);
            return Some((text, args));
        }
        if limits.slices == 0 && limits.tracks == 0 {
            break;
        }
        let slices = limits.slices.saturating_mul(max_bytes) / text.len() / 10 * 9;
        limits.slices = slices.min(limits.slices / 10 * 9);
        limits.cells = limits.cells / 4 * 3;
        if attempt >= MAX_ATTEMPTS {
            limits.tracks /= 2;
        }
    }
    None
}

/// Returns JSON of at most `budget` bytes, and whether texts and lists were cut for that.
fn shorten_json(json: &str, budget: usize) -> Option<(String, bool)> {
    const CUTS: [(usize, usize); 6] = [(2000, 1000), (300, 1000), (300, 100), (60, 20), (40, 10), (30, 5)];

    let text = escape_json(json);
    if text.len() <= budget {
        // Not parsed, so figures are the same to the last digit.
        return Some((text, false));
    }
    let mut value = serde_json::from_str(json).unwrap_or_default();
    for cuts in CUTS.map(|(chars, rows)| Cuts { chars, rows }) {
        keep_slowest_step(&mut value, cuts.rows);
        shorten_value(&mut value, cuts);
        let text = escape_json(&value.to_string());
        if text.len() <= budget {
            return Some((text, true));
        }
    }
    None
}

/// Moves the slowest step to the last place that a cut leaves.
fn keep_slowest_step(summary: &mut Value, rows: usize) {
    let Some(steps) = summary.get_mut("steps").and_then(Value::as_array_mut) else { return };
    let duration = |step: &Value| step.get("dur").and_then(Value::as_f64).unwrap_or(0.0);
    let longest = steps.iter().map(duration).fold(0.0, f64::max);
    let slowest = steps.iter().position(|step| duration(step) >= longest);
    if let Some(slowest) = slowest.filter(|slowest| *slowest >= rows && rows > 0) {
        steps.swap(rows - 1, slowest);
    }
}

/// The members whose keys are names of the trace. All other objects have the members that the page expects.
const MAPS_BY_NAME: [&str; 3] = ["cats", "losses", "memory_bw"];

/// Cuts long texts, lists, and maps by name.
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
            for (key, value) in members {
                match value.as_object_mut().filter(|_| MAPS_BY_NAME.contains(&key.as_str())) {
                    Some(map) => shorten_map(map, cuts),
                    None => shorten_value(value, cuts),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cuts long names, and keeps those with the greatest counts.
fn shorten_map(map: &mut Map<String, Value>, cuts: Cuts) {
    let mut entries: Vec<_> = std::mem::take(map).into_iter().collect();
    let count = |value: &Value| value.get("count").unwrap_or(value).as_u64();
    entries.sort_by_key(|(_, value)| Reverse(count(value)));
    for (name, value) in entries.into_iter().take(cuts.rows) {
        let short = shorten_text(&name, cuts.chars).unwrap_or(name);
        // Names that differ only in their ends stay apart.
        let mut unique = short.clone();
        let mut number = 2;
        while map.contains_key(&unique) {
            unique = format!("{short}{number}");
            number += 1;
        }
        map.insert(unique, value);
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
                "kind": listed().map(|(_, event)| slice_kind(&event, row.is_device)).collect::<Vec<_>>(),
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

/// Returns the number by which the timeline colors a slice: 0 compute, 1 communication, 2 copies and fills, 3 calls, 4 annotations and
/// waits of devices, 5 other slices.
fn slice_kind(event: &Event<'_>, is_on_device: bool) -> u8 {
    match WorkClass::of(event) {
        Some(WorkClass::Compute) => 0,
        Some(WorkClass::Communication) => 1,
        Some(WorkClass::Memory) => 2,
        Some(WorkClass::Wait) => 4,
        None if is_on_device || event.category().ends_with("annotation") => 4,
        None if event.is_call() => 3,
        None => 5,
    }
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

fn ns_to_micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

//! Builds events from a recording.

use super::builder::{Builder, EventDraft};
use super::notes::Note;
use super::{Events, Phase, TrackId};
use crate::activity::{Activity, ActivityType, ArgValue, Args, Body, Flow, Lane, Track};
use crate::layout;
use crate::rows::{AsyncRow, ProcessRow, Rows, ThreadRow};
use crate::time::Timestamp;
use crate::write::{counter_value, json_text};
use std::borrow::Cow;
use std::io;

impl Builder {
    /// Adds the note that the events end early, at the time limit; returns the number of events so far.
    pub fn note_time_limit(&mut self) -> usize {
        self.events.notes.add(Note::TimeLimit, 1);
        self.events.rows.len()
    }

    /// Returns the events of a recording from `start` to `end`, with these header entries (keys, and values as JSON).
    pub fn finish_recording(mut self, header: Vec<(String, String)>, start: Timestamp, end: Timestamp) -> Events {
        let written = |(key, json): (String, String)| (key, json_text(&ArgValue::Json(&json)));
        self.events.header = header.into_iter().map(written).collect();
        (self.recorded.start, self.recorded.end) = (Some(signed_nanos(start)), Some(signed_nanos(end)));
        self.finish(0)
    }

    pub(crate) fn add_activity(&mut self, activity: &Activity<'_>) {
        let (phase, start, end) = match activity.body {
            Body::Slice { start, end } => {
                let (start, end) = layout::times_in_file(activity.kind, start, end);
                (Phase::Slice, start, end)
            }
            Body::Instant { at } => (Phase::Instant, at, at),
            Body::Counter { at } => return self.add_counters(activity, at),
        };
        let is_slice = phase == Phase::Slice;
        let arguments = self.events.arguments.store_all(activity.args, &mut self.events.strings);
        let name = if is_slice { layout::name_in_file(activity.name) } else { Cow::Borrowed(activity.name) };
        let new = EventDraft {
            phase,
            track: self.track_of(if is_slice { layout::track_in_file(activity) } else { activity.track }),
            start: signed_nanos(start),
            end: Some(signed_nanos(end)),
            category: self.events.strings.intern(activity.kind.as_str()),
            name: self.events.strings.intern(&name),
            arguments,
            external: if is_slice {
                layout::external_id(activity).map(|id| id.0)
            } else {
                Some(activity.linked.0).filter(|id| *id != 0)
            },
        };
        self.push(&new);
        activity.flow.into_iter().for_each(|flow| self.flow_of_last(flow));
    }

    /// Adds a set of counter values as a file has it: numbers only, and each hardware counter separately.
    fn add_counters(&mut self, activity: &Activity<'_>, at: Timestamp) {
        let mut values = Vec::new();
        activity.args.visit(&mut |key, value| values.extend(counter_value(value).map(|value| (key.to_owned(), value))));
        if activity.kind == ActivityType::HardwareCounters {
            let group = match activity.track.process {
                Lane::Id(device) => format!("GPU {device} Counters"),
                Lane::Name(name) => name.to_owned(),
            };
            let track = Track { process: Lane::Name(&group), thread: activity.track.thread };
            values.iter().for_each(|(name, value)| self.add_counter(activity.kind, name, track, at, &[("", *value)]));
        } else if !values.is_empty() {
            self.add_counter(activity.kind, activity.name, activity.track, at, &CounterValues(&values));
        }
        if let Some(flow) = activity.flow {
            let track = self.track_of(activity.track);
            self.add_flow(track, signed_nanos(at), flow);
        }
    }

    fn add_counter(&mut self, kind: ActivityType, name: &str, track: Track<'_>, at: Timestamp, values: &dyn Args) {
        let (phase, track, start) = (Phase::Counter, self.track_of(track), signed_nanos(at));
        let Events { arguments, strings, .. } = &mut self.events;
        let arguments = arguments.store_all(values, strings);
        let (category, name) = (strings.intern(kind.as_str()), strings.intern(name));
        let end = Some(start);
        self.push(&EventDraft { phase, track, start, end, category, name, arguments, external: None });
    }

    fn track_of(&mut self, track: Track<'_>) -> u32 {
        let (process, thread) = track_ids_in_file(track);
        self.track_number(process, thread)
    }
}

/// Values of a counter, by name.
struct CounterValues<'v>(&'v [(String, ArgValue<'static>)]);

impl Args for CounterValues<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.0.iter().for_each(|(name, value)| each(name, *value));
    }
}

impl Rows for Builder {
    fn write_process(&mut self, row: &ProcessRow<'_>) -> io::Result<()> {
        let process = self.process_entry(lane_id(row.process));
        row.name.clone_into(&mut process.name);
        row.label.clone_into(&mut process.label);
        Ok(())
    }
    fn write_thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        let (process, thread) = track_ids_in_file(row.track);
        self.name_track(process, thread, row.name);
        Ok(())
    }
    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        if self.deadline.is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.add_activity(activity);
        Ok(())
    }
    fn write_flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        let track = self.track_of(track);
        self.add_flow(track, signed_nanos(at), flow);
        Ok(())
    }
    fn write_async_track(&mut self, row: &AsyncRow<'_>) -> io::Result<()> {
        self.async_span(row.span);
        Ok(())
    }
}

/// Returns the track as in a file, with the absolute value of the thread id.
fn track_ids_in_file(track: Track<'_>) -> (TrackId, TrackId) {
    let thread = match track.thread {
        Lane::Id(id) => TrackId::Id(id.checked_abs().unwrap_or(0)),
        Lane::Name(name) => TrackId::Name(name.to_owned()),
    };
    (lane_id(track.process), thread)
}

fn lane_id(lane: Lane<'_>) -> TrackId {
    match lane {
        Lane::Id(id) => TrackId::Id(id),
        Lane::Name(name) => TrackId::Name(name.to_owned()),
    }
}

/// Returns nanoseconds as signed numbers, as libkineto does; they last until the year 2262.
fn signed_nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{CorrelationId, FlowEnd, FlowKind};
    use crate::analysis::Event;
    use crate::write::chrome::{ChromeWriter, Header};
    use proptest::prelude::*;

    /// The base of libkineto's times in 2026.
    const BASE: u64 = 1_790_857_026_000_000_000;

    /// An owned argument value.
    #[derive(Clone, Debug)]
    enum Value {
        Bool(bool),
        I64(i64),
        U64(u64),
        F64(f64),
        I128(i128),
        U128(u128),
        Str(String),
        Ints(Vec<i64>),
        Strs(Vec<String>),
        Json(String),
        Dict(Vec<(String, i64)>),
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::I64),
            any::<u64>().prop_map(Value::U64),
            (0..20_u64).prop_map(Value::U64),
            any::<f64>().prop_map(Value::F64),
            any::<f64>().prop_map(|float| Value::F64(float.trunc())),
            any::<i128>().prop_map(Value::I128),
            any::<u128>().prop_map(Value::U128),
            any::<String>().prop_map(Value::Str),
            any::<Vec<i64>>().prop_map(Value::Ints),
            any::<Vec<String>>().prop_map(Value::Strs),
            any::<(String, f64)>().prop_map(|all| Value::Json(serde_json::to_string(&all).unwrap())),
            any::<Vec<(String, i64)>>().prop_map(Value::Dict),
        ]
    }

    struct Owned<'o>(&'o [(String, Value)]);

    impl Args for Owned<'_> {
        fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
            for (key, value) in self.0 {
                let (texts, list): (Vec<&str>, Vec<(&str, ArgValue<'_>)>) = match value {
                    Value::Strs(texts) => (texts.iter().map(String::as_str).collect(), Vec::new()),
                    Value::Dict(list) => {
                        (Vec::new(), list.iter().map(|(key, value)| (key.as_str(), ArgValue::I64(*value))).collect())
                    }
                    _ => (Vec::new(), Vec::new()),
                };
                let list = list.as_slice();
                let value = match value {
                    Value::Bool(value) => ArgValue::Bool(*value),
                    Value::I64(value) => ArgValue::I64(*value),
                    Value::U64(value) => ArgValue::U64(*value),
                    Value::F64(value) => ArgValue::F64(*value),
                    Value::I128(value) => ArgValue::I128(*value),
                    Value::U128(value) => ArgValue::U128(*value),
                    Value::Str(text) => ArgValue::Str(text),
                    Value::Ints(list) => ArgValue::Ints(list),
                    Value::Strs(_) => ArgValue::Strs(&texts),
                    Value::Json(json) => ArgValue::Json(json),
                    Value::Dict(_) => ArgValue::Dict(&Slice(list)),
                };
                each(key, value);
            }
        }
    }

    struct Slice<'s>(&'s [(&'s str, ArgValue<'s>)]);

    impl Args for Slice<'_> {
        fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
            self.0.visit(each);
        }
    }

    /// An owned activity.
    #[derive(Clone, Debug)]
    struct OwnedActivity {
        kind: u8,
        phase: u8,
        name: String,
        place: (i64, Result<i64, String>),
        time: (u64, u64),
        ids: (u64, u64),
        flow: Option<(u8, u64, bool)>,
        args: Vec<(String, Value)>,
    }

    fn activities() -> impl Strategy<Value = OwnedActivity> {
        let key = prop_oneof![
            any::<String>(),
            prop::sample::select(vec!["External id", "external id", "correlation", "span id", "name", "stream"])
                .prop_map(str::to_owned),
        ];
        let args = prop::collection::vec((key, value()), 0..4).prop_map(|mut args| {
            let mut seen = std::collections::HashSet::new();
            args.retain(|(key, _)| seen.insert(key.clone()));
            args
        });
        let thread = prop_oneof![(-3..3_i64).prop_map(Ok), any::<String>().prop_map(Err)];
        let name = prop_oneof![any::<String>(), Just("kernel".to_owned())];
        let ids = (prop_oneof![0..9_u64, any::<u64>()], 0..9_u64);
        let flow = prop::option::of((0..3_u8, 0..5_u64, any::<bool>()));
        (0..29_u8, 0..3_u8, name, (-1..3_i64, thread), (0..50_u64, 0..50_u64), ids, flow, args).prop_map(
            |(kind, phase, name, place, time, ids, flow, args)| OwnedActivity {
                kind,
                phase,
                name,
                place,
                time,
                ids,
                flow,
                args,
            },
        )
    }

    /// Formats every property of an event.
    fn all(event: &Event<'_>) -> String {
        let place = (event.device_type(), event.device_index(), event.stream(), event.process(), event.thread());
        let flows: Vec<_> = event.flows().collect();
        let phase = (event.is_slice(), event.is_instant(), event.is_counter());
        format!(
            "{event:?} {phase:?} {:?} {:?} {:?} {:?} {flows:?} {place:?} {:?} {}",
            event.kind(),
            event.track(),
            event.id(),
            event.linked(),
            event.correlation(),
            event.metadata_json(),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn events_of_a_file_equal_those_of_the_recording(rows in prop::collection::vec(activities(), 0..12)) {
            let mut builder = Builder::default();
            let header = Header { metadata: &[], device_properties: &[], base: Timestamp::from_nanos(BASE) };
            let mut file = Vec::new();
            let mut writer = ChromeWriter::new(&mut file, &header).unwrap();
            for row in &rows {
                let start = Timestamp::from_nanos(BASE + 1 + row.time.0);
                let end = Timestamp::from_nanos(BASE + 1 + row.time.0 + row.time.1);
                let kinds = [FlowKind::ForwardBackward, FlowKind::AsyncCpuToGpu, FlowKind::FollowsFrom];
                let end_of = |start| if start { FlowEnd::Start } else { FlowEnd::Finish };
                let track = Track {
                    process: Lane::Id(row.place.0),
                    thread: row.place.1.as_ref().map_or_else(|name| Lane::Name(name), |id| Lane::Id(*id)),
                };
                let body = match row.phase {
                    0 => Body::Slice { start, end },
                    1 => Body::Instant { at: start },
                    _ => Body::Counter { at: start },
                };
                let args = Owned(&row.args);
                let mut activity = Activity::new(ActivityType::from_number(row.kind).unwrap(), &row.name, track, body);
                (activity.id, activity.linked) = (CorrelationId(row.ids.0), CorrelationId(row.ids.1));
                activity.flow =
                    row.flow.map(|(kind, id, start)| Flow { kind: kinds[usize::from(kind)], id, end: end_of(start) });
                activity.args = &args;
                builder.write_activity(&activity).unwrap();
                writer.write_activity(&activity).unwrap();
            }
            writer.finish(Timestamp::from_nanos(BASE), None, "").unwrap();
            let (recorded, read) = (builder.finish(0), Events::from_reader(file.as_slice()).unwrap());
            let text = String::from_utf8(file).unwrap();
            prop_assert_eq!(recorded.len(), read.len(), "{}", text);
            for (recorded, read) in recorded.iter().zip(read.iter()) {
                prop_assert_eq!(all(&recorded), all(&read), "{}", text);
            }
            prop_assert_eq!(recorded.tracks(), read.tracks());
            prop_assert_eq!(recorded.notes().collect::<Vec<_>>(), read.notes().collect::<Vec<_>>());
        }
    }
}

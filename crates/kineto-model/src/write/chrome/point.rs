//! Rows at one point in time: instants, counters, ends of arrows.

use std::borrow::Cow;

use super::ChromeWriter;
use crate::activity::{Activity, ActivityType, Flow, FlowEnd, Lane, Track};
use crate::write::value::{ArgsWithId, CounterValue, EXTERNAL_ID};
use kineto_base::time::Timestamp;

impl ChromeWriter<'_> {
    pub(super) fn put_instant(&mut self, activity: &Activity<'_>, at: Timestamp) {
        self.out.put_literal(b"\n{\"ph\":\"i\",\"cat\":\"");
        self.out.put_verbatim(activity.kind.as_str().as_bytes());
        self.out.put_literal(b"\",\"s\":\"t\",\"name\":");
        self.out.put_string(activity.name);
        self.place_and_time(activity.track, at);
        if activity.linked.0 != 0 {
            activity.args.visit(&mut |key, _| self.skipped += u64::from(key == EXTERNAL_ID));
        }
        self.args_if_any(&ArgsWithId::of_instant(activity));
        self.out.put_literal(b"},");
    }

    /// Writes one event with all series, or one event per hardware counter; nothing if no value is a number.
    pub(super) fn put_counter(&mut self, activity: &Activity<'_>, at: Timestamp) {
        let mut numbers = 0_u64;
        activity.args.visit(&mut |_, value| match CounterValue::from_arg_value(value) {
            Some(_) => numbers += 1,
            None => self.skipped += 1,
        });
        if activity.kind == ActivityType::HardwareCounters {
            self.hardware_counters(activity, at);
        } else if numbers > 0 {
            self.start_of_counter(activity.kind, activity.name, activity.track, at);
            let mut first = true;
            activity.args.visit(&mut |series, value| {
                if let Some(number) = CounterValue::from_arg_value(value) {
                    self.out.put_key(first, series);
                    self.out.put_number(number);
                    first = false;
                }
            });
            self.out.put_literal(b"}},");
        }
    }

    /// Writes one end of an arrow.
    pub(super) fn put_arrow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) {
        let name = flow.kind.as_str();
        match flow.end {
            FlowEnd::Start => self.out.put_literal(b"\n{\"ph\":\"s\",\"id\":"),
            FlowEnd::Finish => self.out.put_literal(b"\n{\"ph\":\"f\",\"id\":"),
        }
        self.out.put_wide_uint(flow.id);
        self.place_and_time(track, at);
        self.out.put_literal(b",\"cat\":\"");
        self.out.put_verbatim(name.as_bytes());
        self.out.put_literal(b"\",\"name\":\"");
        self.out.put_verbatim(name.as_bytes());
        match flow.end {
            FlowEnd::Start => self.out.put_literal(b"\"},"),
            FlowEnd::Finish => self.out.put_literal(b"\",\"bp\":\"e\"},"),
        }
    }

    /// Writes an event for each metric in the group of the device's counters; its series has an empty name.
    fn hardware_counters(&mut self, activity: &Activity<'_>, at: Timestamp) {
        let group = match activity.track.process {
            Lane::Id(device) => Cow::Owned(format!("GPU {device} Counters")),
            Lane::Name(name) => Cow::Borrowed(name),
        };
        let track = Track { process: Lane::Name(&group), thread: activity.track.thread };
        activity.args.visit(&mut |metric, value| {
            if let Some(number) = CounterValue::from_arg_value(value) {
                self.start_of_counter(activity.kind, metric, track, at);
                self.out.put_key(true, "");
                self.out.put_number(number);
                self.out.put_literal(b"}},");
            }
        });
    }

    fn start_of_counter(&mut self, kind: ActivityType, name: &str, track: Track<'_>, at: Timestamp) {
        self.out.put_literal(b"\n{\"ph\":\"C\",\"cat\":\"");
        self.out.put_verbatim(kind.as_str().as_bytes());
        self.out.put_literal(b"\",\"name\":");
        self.out.put_string(name);
        self.place_and_time(track, at);
        self.out.put_literal(b",\"args\":{");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{ArgValue, Body, CorrelationId, FlowKind};
    use crate::write::chrome::Rows;
    use crate::write::chrome::tests::{HEADER, SLICE, lines, ns, of};

    #[test]
    fn instants_and_counters_match_byte_for_byte() {
        let at = Body::Instant { at: ns(2000) };
        let instant = Activity { kind: ActivityType::CpuInstantEvent, body: at, ..SLICE };
        let bare = r#"{"ph":"i","cat":"cpu_instant_event","s":"t","name":"op","pid":1,"tid":2,"ts":1.000}"#;
        assert_eq!(of(instant), [bare]);
        let args: [(&str, ArgValue<'_>); 4] = [
            ("a", ArgValue::F64(0.5)),
            ("b", ArgValue::F64(f64::NAN)),
            ("c", ArgValue::Str("x")),
            ("d", ArgValue::Bool(true)),
        ];
        let with_args = bare.strip_suffix('}').unwrap().to_owned() + r#","args":{"a":0.5,"b":"nan","c":"x","d":true}}"#;
        assert_eq!(of(Activity { args: &args, ..instant }), [with_args]);

        let linked = of(Activity { linked: CorrelationId(5), ..instant });
        assert_eq!(linked, [bare.strip_suffix('}').unwrap().to_owned() + r#","args":{"External id":5}}"#]);
        let clash: [(&str, ArgValue<'_>); 1] = [("External id", ArgValue::I64(1))];
        assert_eq!(of(Activity { linked: CorrelationId(5), args: &clash, ..instant }), linked);

        let counter = Activity { body: Body::Counter { at: ns(2000) }, args: &args, ..instant };
        let expected =
            r#"{"ph":"C","cat":"cpu_instant_event","name":"op","pid":1,"tid":2,"ts":1.000,"args":{"a":0.5,"d":1}}"#;
        assert_eq!(of(counter), [expected]);
        let hardware = of(Activity { kind: ActivityType::HardwareCounters, ..counter });
        let expected = [("a", "0.5"), ("d", "1")].map(|(metric, value)| {
            format!(
                r#"{{"ph":"C","cat":"hardware_counters","name":"{metric}","pid":"GPU 1 Counters","tid":2,"ts":1.000,"args":{{"":{value}}}}}"#
            )
        });
        assert_eq!(hardware, expected);
    }

    #[test]
    fn counter_without_numbers_is_skipped_and_counted() {
        let args: [(&str, ArgValue<'_>); 2] = [("a", ArgValue::F64(f64::INFINITY)), ("b", ArgValue::Str("1"))];
        for kind in [ActivityType::CpuInstantEvent, ActivityType::HardwareCounters] {
            let counter = Activity { kind, body: Body::Counter { at: ns(2000) }, args: &args, ..SLICE };
            let mut file = Vec::new();
            let mut writer = ChromeWriter::new(&mut file, &HEADER).unwrap();
            writer.write_activity(&counter).unwrap();
            assert_eq!(writer.skipped, 2);
            assert!(of(counter).is_empty());
        }
    }

    #[test]
    fn arrows_follow_their_slice_or_are_separate() {
        let start = Flow { kind: FlowKind::FollowsFrom, id: 5, end: FlowEnd::Start };
        let finish = Flow { end: FlowEnd::Finish, ..start };
        let written = lines(|writer| {
            writer.write_activity(&Activity { flow: Some(start), ..SLICE }).unwrap();
            writer.write_flow(ns(3000), Track::new(3, 4), finish).unwrap();
        });
        assert!(written[0].starts_with(r#"{"ph":"X""#));
        let s = r#"{"ph":"s","id":5,"pid":1,"tid":2,"ts":2.500,"cat":"follows_from","name":"follows_from"}"#;
        let f = r#"{"ph":"f","id":5,"pid":3,"tid":4,"ts":2.000,"cat":"follows_from","name":"follows_from","bp":"e"}"#;
        assert_eq!(written[1..], [s, f]);
    }
}

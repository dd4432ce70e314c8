//! What happens at one point in time: instants, counters, ends of arrows.

use std::borrow::Cow;
use std::io::Write;

use super::ChromeWriter;
use crate::activity::{Activity, ActivityType, Flow, FlowEnd, Lane, Track};
use crate::time::Timestamp;
use crate::write::value::Number;

impl<W: Write> ChromeWriter<W> {
    pub(super) fn instant(&mut self, activity: &Activity<'_>, at: Timestamp) {
        self.out.raw(b"\n{\"ph\":\"i\",\"cat\":\"");
        self.out.verbatim(activity.kind.as_str());
        self.out.raw(b"\",\"s\":\"t\",\"name\":");
        self.out.string(activity.name);
        self.out.raw(b",");
        self.place(activity.track, at);
        self.args_if_any(activity.args);
        self.out.raw(b"},");
    }

    /// Writes one event with all series, or, of hardware counters, an event for each; nothing if no value is a number.
    pub(super) fn counter(&mut self, activity: &Activity<'_>, at: Timestamp) {
        let mut numbers = 0_u64;
        activity.args.visit(&mut |_, value| match Number::of(value) {
            Some(_) => numbers += 1,
            None => self.skipped += 1,
        });
        if activity.kind == ActivityType::HardwareCounters {
            self.hardware_counters(activity, at);
        } else if numbers > 0 {
            self.start_of_counter(activity.kind, activity.name, activity.track, at);
            let mut first = true;
            activity.args.visit(&mut |series, value| {
                if let Some(number) = Number::of(value) {
                    if !first {
                        self.out.raw(b",");
                    }
                    self.out.key(series);
                    self.out.number(number);
                    first = false;
                }
            });
            self.out.raw(b"}},");
        }
    }

    /// Writes one end of an arrow.
    pub(super) fn arrow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) {
        let name = flow.kind.as_str();
        match flow.end {
            FlowEnd::Start => self.out.raw(b"\n{\"ph\":\"s\",\"id\":"),
            FlowEnd::Finish => self.out.raw(b"\n{\"ph\":\"f\",\"id\":"),
        }
        self.out.wide(flow.id);
        self.out.raw(b",");
        self.place(track, at);
        self.out.raw(b",\"cat\":\"");
        self.out.verbatim(name);
        self.out.raw(b"\",\"name\":\"");
        self.out.verbatim(name);
        match flow.end {
            FlowEnd::Start => self.out.raw(b"\"},"),
            FlowEnd::Finish => self.out.raw(b"\",\"bp\":\"e\"},"),
        }
    }

    /// Writes an event for each metric, in a group of the device's counters; the series of each has the empty name.
    fn hardware_counters(&mut self, activity: &Activity<'_>, at: Timestamp) {
        let group = match activity.track.process {
            Lane::Id(device) => Cow::Owned(format!("GPU {device} Counters")),
            Lane::Name(name) => Cow::Borrowed(name),
        };
        let track = Track { process: Lane::Name(&group), thread: activity.track.thread };
        activity.args.visit(&mut |metric, value| {
            if let Some(number) = Number::of(value) {
                self.start_of_counter(activity.kind, metric, track, at);
                self.out.key("");
                self.out.number(number);
                self.out.raw(b"}},");
            }
        });
    }

    fn start_of_counter(&mut self, kind: ActivityType, name: &str, track: Track<'_>, at: Timestamp) {
        self.out.raw(b"\n{\"ph\":\"C\",\"cat\":\"");
        self.out.verbatim(kind.as_str());
        self.out.raw(b"\",\"name\":");
        self.out.string(name);
        self.out.raw(b",");
        self.place(track, at);
        self.out.raw(b",\"args\":{");
    }
}

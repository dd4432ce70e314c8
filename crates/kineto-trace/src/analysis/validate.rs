//! Checks a trace against the rules of the tools that read it.

use super::events::values::as_signed;
use super::events::{Event, Events, Note, StringId, id_number};
use super::summary::{Devices, find_overlong};
use crate::time::{EXACT_NS, Timestamp};

/// A rule of a reader that a trace breaks, with the first event that breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenRule {
    /// The tool that the rule is of.
    pub reader: &'static str,
    /// What is wrong, as a clause about the events or the file.
    pub problem: &'static str,
    /// What the tool does then.
    pub effect: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// The number of events that break the rule; 0 if it is about the file.
    pub count: u64,
    /// The index of the first of them.
    pub first: Option<usize>,
}

/// A rule without the events that break it.
struct ReaderRule {
    reader: &'static str,
    problem: &'static str,
    effect: &'static str,
    remedy: &'static str,
}

const OVERLAP: ReaderRule = ReaderRule {
    reader: "Perfetto",
    problem: "slices begin inside another slice of their track and end after it",
    effect: "before v57 drops them",
    remedy: "convert the file to .pftrace, which keeps them",
};
const EARLY: ReaderRule = ReaderRule {
    reader: "Perfetto",
    problem: "device events begin before the call that launched them",
    effect: "drops their arrows",
    remedy: "check the device's clock",
};
const INVALID_JSON: ReaderRule = ReaderRule {
    reader: "TensorBoard and HTA",
    problem: "texts, words or commas of the file are not JSON",
    effect: "reject the file",
    remedy: "write a copy with `kineto repair`, which rewrites them",
};
const OPEN_LIST: ReaderRule = ReaderRule {
    reader: "TensorBoard and HTA",
    problem: "the list of events has no end",
    effect: "reject the file",
    remedy: "write a copy with `kineto repair`, which closes it",
};
const CUT_OFF: ReaderRule = ReaderRule {
    reader: "TensorBoard and HTA",
    problem: "the file ends within an event",
    effect: "reject the file",
    remedy: "write a copy that ends with its last whole event, with `kineto repair` (or `kineto convert --partial` for .pftrace)",
};
const OVERLONG: ReaderRule = ReaderRule {
    reader: "every viewer",
    problem: "slices outlast the recording, or device work most of the other work of its stream",
    effect: "shows work that did not run meanwhile",
    remedy: "record again: the recorded end is wrong",
};
const NO_STREAM: ReaderRule = ReaderRule {
    reader: "HTA",
    problem: "device events have no integer argument `stream`",
    effect: "takes them for host events",
    remedy: "write the stream",
};
const NO_CORRELATION: ReaderRule = ReaderRule {
    reader: "HTA",
    problem: "device events have no argument `correlation`",
    effect: "lacks them in launch and queue figures, and drops them in traces with two or more steps",
    remedy: "write the id that the launching call has",
};
const NO_LAUNCH: ReaderRule = ReaderRule {
    reader: "HTA",
    problem: "device events have a `correlation` that no call has",
    effect: "lacks them in launch and queue figures, and drops them in traces with two or more steps",
    remedy: "record the calls of the runtime too, from before the first launch",
};
const OTHER_DEVICE: ReaderRule = ReaderRule {
    reader: "TensorBoard",
    problem: "device events have another `device` than their process id",
    effect: "shows no GPU utilization",
    remedy: "write the device's number as `pid`",
};
const COMPACT_RANK: ReaderRule = ReaderRule {
    reader: "HTA",
    problem: "the header has \"rank\": without a space behind it",
    effect: "takes the file for rank 0",
    remedy: "write a space after the colon",
};
const COARSE_TIMES: ReaderRule = ReaderRule {
    reader: "every viewer",
    problem: "times are so far from `baseTimeNanoseconds` that a double cannot hold their nanoseconds",
    effect: "rounds them, so that slices that touch overlap",
    remedy: "convert the file, which chooses a nearer base",
};

impl Events {
    /// Returns the rules of HTA, TensorBoard and Perfetto that the trace breaks.
    ///
    /// A file that cannot be read is an error of [`read`](Events::read) already. Of a file in Perfetto's format
    /// only Perfetto's rules count: the others do not read it, and its slices may overlap.
    ///
    /// ```
    /// # use kineto_trace::analysis::Events;
    /// let text = r#"[{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":1,"dur":2,"args":{"stream":7}}]"#;
    /// let broken = Events::from_reader(text.as_bytes())?.broken_rules();
    /// assert_eq!((broken[0].reader, broken[0].first), ("HTA", Some(0)));
    /// assert_eq!(broken[0].problem, "device events have no argument `correlation`");
    /// # Ok::<(), kineto_trace::Error>(())
    /// ```
    pub fn broken_rules(&self) -> Vec<BrokenRule> {
        let attribution = self.attribution();
        let work = || self.iter().filter(|event| event.is_slice() && event.is_device_work());
        let stream = |event: &Event<'_>| event.arg_by_id(StringId::STREAM).and_then(as_signed);
        let device = |event: &Event<'_>| event.arg_by_id(StringId::DEVICE).and_then(as_signed);
        let is_unlaunched = |event: &Event<'_>| event.correlation().is_some() && attribution.launch(*event).is_none();
        let is_early = |event: &Event<'_>| attribution.launch(*event).is_some_and(|call| event.start() < call.start());
        let mut broken = Vec::new();
        let of_file = [(Note::InvalidJson, INVALID_JSON), (Note::OpenList, OPEN_LIST), (Note::CutOff, CUT_OFF)];
        for (note, rule) in of_file {
            let count = self.notes().find(|(found, _)| *found == note).map(|(_, count)| count);
            broken.extend(count.map(|count| BrokenRule { count, ..rule.broken_by_file() }));
        }
        let overlong =
            find_overlong(self, &Devices::new(self, &attribution).by_stream()).into_iter().map(|(event, _)| event);
        broken.extend(OVERLONG.broken_by(overlong));
        if self.is_perfetto() {
            broken.extend(EARLY.broken_by(work().filter(is_early)));
            return broken;
        }
        broken.extend(OVERLAP.broken_by(self.overlapping_slices().into_iter()));
        broken.extend(EARLY.broken_by(work().filter(is_early)));
        broken.extend(NO_STREAM.broken_by(work().filter(|event| stream(event).is_none())));
        broken.extend(NO_CORRELATION.broken_by(work().filter(|event| event.correlation().is_none())));
        broken.extend(NO_LAUNCH.broken_by(work().filter(is_unlaunched)));
        let is_elsewhere =
            |event: &Event<'_>| device(event).is_some_and(|id| Some(id) != id_number(&event.track().process));
        broken.extend(OTHER_DEVICE.broken_by(work().filter(is_elsewhere)));
        broken.extend(self.has_compact_rank().then(|| COMPACT_RANK.broken_by_file()));
        broken.extend(self.has_coarse_times().then(|| COARSE_TIMES.broken_by_file()));
        broken
    }

    /// Returns whether the events were read from a file in Perfetto's format.
    pub fn is_perfetto(&self) -> bool {
        self.file.is_perfetto
    }

    /// Returns the slices that overlap the slices around them, in order of their start. Viewers accept overlaps of asynchronous slices.
    fn overlapping_slices(&self) -> Vec<Event<'_>> {
        let mut open: Vec<Vec<Timestamp>> = vec![Vec::new(); self.tracks.len()];
        let overlaps = |slice: &Event<'_>| {
            let Some(open) = open.get_mut(slice.track_index()) else { return false };
            while open.pop_if(|end| *end <= slice.start()).is_some() {}
            let overlaps = open.last().is_some_and(|end| *end < slice.end());
            if !overlaps {
                open.push(slice.end());
            }
            overlaps
        };
        self.iter().filter(|event| event.is_slice() && !event.track().is_async).filter(overlaps).collect()
    }

    /// Returns whether HTA's search for the rank fails.
    fn has_compact_rank(&self) -> bool {
        let info = self.metadata().find(|(key, _)| *key == "distributedInfo");
        info.and_then(|(_, json)| json.split_once("\"rank\":"))
            .is_some_and(|(_, rest)| !rest.starts_with(char::is_whitespace))
    }

    /// Returns whether a double cannot hold the times in the file.
    fn has_coarse_times(&self) -> bool {
        let last = self.rows.last().map_or(0, |row| i128::from(row.start.as_nanos()));
        last - i128::from(self.file.base_ns) > i128::from(EXACT_NS)
    }
}

impl ReaderRule {
    /// Returns the broken rule if there are such events.
    fn broken_by<'e>(&self, mut events: impl Iterator<Item = Event<'e>>) -> Option<BrokenRule> {
        let first = events.next()?.index();
        Some(BrokenRule { count: 1 + events.count() as u64, first: Some(first), ..self.broken_by_file() })
    }

    fn broken_by_file(&self) -> BrokenRule {
        let ReaderRule { reader, problem, effect, remedy } = *self;
        BrokenRule { reader, problem, effect, remedy, count: 0, first: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1,"dur":2,"args":{"correlation":1}},
        {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":5,"dur":10,"args":{"correlation":1,"device":0,"stream":7}}"#;

    /// Returns the problems of a trace with these changes: number of events, and index of the first.
    fn problems(changes: &[(&str, &str)], header: &str, more: &str) -> Vec<(&'static str, u64, Option<usize>)> {
        let events = changes.iter().fold(format!("{WHOLE}{more}"), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let text = format!("{{{header}\"traceEvents\":[{events}]}}");
        let broken = Events::from_reader(text.as_bytes()).unwrap().broken_rules();
        broken.into_iter().map(|rule| (rule.problem, rule.count, rule.first)).collect()
    }

    #[test]
    fn each_rule_names_the_event_that_breaks_it() {
        assert_eq!(problems(&[], "\"distributedInfo\": {\"rank\": 3},", ""), []);
        assert_eq!(problems(&[(",\"stream\":7", "")], "", ""), [(NO_STREAM.problem, 1, Some(1))]);
        assert_eq!(problems(&[("\"correlation\":1,", "")], "", ""), [(NO_CORRELATION.problem, 1, Some(1))]);
        assert_eq!(
            problems(&[("\"correlation\":1,", "\"correlation\":2,")], "", ""),
            [(NO_LAUNCH.problem, 1, Some(1))]
        );
        assert_eq!(problems(&[("\"device\":0", "\"device\":3")], "", ""), [(OTHER_DEVICE.problem, 1, Some(1))]);
        assert_eq!(problems(&[("\"ts\":5", "\"ts\":0.5")], "", ""), [(EARLY.problem, 1, Some(0))]);
        assert_eq!(problems(&[], "\"distributedInfo\": {\"rank\":3},", ""), [(COMPACT_RANK.problem, 0, None)]);
        assert_eq!(problems(&[("\"ts\":", "\"ts\":175900000000000")], "", ""), [(COARSE_TIMES.problem, 0, None)]);
    }

    #[test]
    fn overlap_counts_slices_that_a_viewer_drops() {
        let slice = |start: u32, end: u32| {
            format!(r#",{{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":2,"ts":{start},"dur":{}}}"#, end - start)
        };
        let nested = [(20, 50), (20, 30), (30, 50), (50, 60)].map(|(start, end)| slice(start, end)).concat();
        assert_eq!(problems(&[], "", &nested), []);
        let crossing = [(20, 50), (30, 60), (35, 55), (40, 45)].map(|(start, end)| slice(start, end)).concat();
        assert_eq!(problems(&[], "", &crossing), [(OVERLAP.problem, 2, Some(3))]);
        let row = |ph: &str, name: &str, ts: u32| {
            format!(r#",{{"ph":"{ph}","cat":"app","name":"{name}","pid":1,"tid":2,"id":1,"ts":{ts}}}"#)
        };
        let concurrent = [("b", "a", 20), ("b", "b", 30), ("e", "a", 40), ("e", "b", 50)];
        assert_eq!(problems(&[], "", &concurrent.map(|(ph, name, ts)| row(ph, name, ts)).concat()), []);
    }
}

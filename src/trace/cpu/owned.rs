//! An owned activity.

use crate::encoding::{encoded, encoded_as};
use crate::os::platform;
use crate::time::Timestamp;
use crate::trace::thread::SliceMarks;
use kineto_model::activity::{self, Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, Track};
use kineto_model::write::OwnedValue;
use std::cmp::Reverse;

/// A copy of an activity.
#[derive(Debug)]
pub(in crate::trace) struct OwnActivity {
    pub(super) kind: ActivityType,
    name: Box<str>,
    pub(super) track: (TrackId, TrackId),
    pub(super) body: Body,
    /// Whether it is a point in time, or a slice that has ended.
    pub(super) finished: bool,
    id: CorrelationId,
    linked: CorrelationId,
    flow: Option<Flow>,
    args: Vec<(Box<str>, OwnedValue)>,
}

/// A copy of a [lane](activity::Lane).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::trace) enum TrackId {
    Id(i64),
    Name(Box<str>),
}

/// The arguments of an owned activity, and those that the trace adds.
pub(super) struct OwnedArgs<'o> {
    args: &'o [(Box<str>, OwnedValue)],
    pub(super) marks: SliceMarks<'o>,
}

encoded! {
    OwnActivity { kind, name, track, body, finished, id, linked, flow, args }
}

encoded_as! {
    TrackId as Result<i64, Box<str>>: |track| match track {
        TrackId::Id(id) => Ok(*id),
        TrackId::Name(name) => Err(name.clone()),
    }, |track| Some(track.map_or_else(TrackId::Name, TrackId::Id));
}

const FUNCTION_ID: &str = "Record function id";

impl OwnActivity {
    pub(super) fn new(activity: &Activity<'_>) -> OwnActivity {
        let this_process = || TrackId::Id(i64::from(platform::process_id()));
        let process = Some(TrackId::from_lane(activity.track.process)).filter(|lane| *lane != TrackId::Id(0));
        let mut record = OwnActivity {
            kind: activity.kind,
            name: activity.name.into(),
            track: (process.unwrap_or_else(this_process), TrackId::from_lane(activity.track.thread)),
            body: activity.body,
            finished: !matches!(activity.body, Body::Slice { start, end } if end < start),
            id: activity.id,
            linked: activity.linked,
            flow: activity.flow,
            args: Vec::new(),
        };
        activity.args.visit(&mut |key, value| record.set_arg(key, OwnedValue::from_arg_value(value)));
        record
    }

    /// Sets an argument.
    pub(super) fn set_arg(&mut self, key: &str, value: OwnedValue) {
        match self.args.iter_mut().find(|(known, _)| **known == *key) {
            Some((_, known)) => *known = value,
            None => self.args.push((key.into(), value)),
        }
    }

    /// Returns how many bytes larger it is with an argument.
    pub(super) fn growth_with(&self, key: &str, value: &OwnedValue) -> u64 {
        let known = self.args.iter().find(|(known, _)| **known == *key);
        let before = known.map_or(0, |(key, value)| arg_bytes(key, value));
        arg_bytes(key, value).saturating_sub(before) as u64
    }

    /// Returns whether it has one of these arguments.
    pub(super) fn has_any_arg(&self, keys: &[&str]) -> bool {
        self.args.iter().any(|(key, _)| keys.contains(&&**key))
    }

    /// Returns its id, unless an argument replaces it.
    pub(super) fn id(&self) -> Option<u64> {
        let is_named = self.args.iter().any(|(key, _)| **key == *FUNCTION_ID);
        (!is_named).then_some(self.id.0)
    }

    /// Ends an unfinished activity.
    pub(super) fn end_by(&mut self, by: Timestamp) {
        if let Body::Slice { start, end } = &mut self.body
            && !self.finished
        {
            *end = by.max(*start);
        }
    }

    /// Returns the sort key: by start; of equal starts, the longest first.
    pub(in crate::trace) fn sort_key(&self) -> (Timestamp, Reverse<Timestamp>) {
        match self.body {
            Body::Slice { start, end } => (start, Reverse(end)),
            Body::Instant { at } | Body::Counter { at } => (at, Reverse(at)),
        }
    }

    pub(super) fn owned_args(&self) -> OwnedArgs<'_> {
        OwnedArgs { args: &self.args, marks: SliceMarks { finished: self.finished, ..SliceMarks::default() } }
    }

    pub(super) fn to_activity<'o>(&'o self, args: &'o dyn Args) -> Activity<'o> {
        let (process, thread) = (self.track.0.as_lane(), self.track.1.as_lane());
        let mut activity = Activity::new(self.kind, &self.name, Track { process, thread }, self.body);
        (activity.id, activity.linked, activity.flow) = (self.id, self.linked, self.flow);
        activity.args = args;
        activity
    }

    /// Returns its approximate size in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let args: usize = self.args.iter().map(|(key, value)| arg_bytes(key, value)).sum();
        (size_of::<OwnActivity>() + size_of::<usize>() + self.name.len() + args) as u64
    }
}

fn arg_bytes(key: &str, value: &OwnedValue) -> usize {
    size_of::<(Box<str>, OwnedValue)>() + key.len() + value.heap_bytes()
}

impl TrackId {
    fn from_lane(lane: activity::Lane<'_>) -> TrackId {
        match lane {
            activity::Lane::Id(id) => TrackId::Id(id),
            activity::Lane::Name(name) => TrackId::Name(name.into()),
        }
    }

    pub(super) fn as_lane(&self) -> activity::Lane<'_> {
        match self {
            TrackId::Id(id) => activity::Lane::Id(*id),
            TrackId::Name(name) => activity::Lane::Name(name),
        }
    }
}

impl Args for OwnedArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        // Each key occurs once.
        let SliceMarks { finished, thread, .. } = self.marks;
        let is_ours = |key: &str| !finished && key == "finished" || thread.is_some() && key == "thread id";
        for (key, value) in self.args.iter().filter(|(key, _)| !is_ours(key)) {
            each(key, value.as_arg_value());
        }
        self.marks.visit(each);
    }
}

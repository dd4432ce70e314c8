//! An owned activity.

use crate::encoding::{encoded, encoded_as};
use crate::os::platform;
use crate::time::Timestamp;
use kineto_model::activity::{self, Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, Track};
use kineto_model::write::OwnedValue;
use std::cmp::Reverse;

/// A copy of an activity.
#[derive(Debug)]
pub(super) struct OwnActivity {
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
    pub(super) finished: bool,
    /// The thread, if it is not on its own row.
    pub(super) thread: Option<i64>,
    /// Its id in an execution trace, unless the program has set one.
    pub(super) function: Option<u64>,
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
        activity.args.visit(&mut |key, value| drop(record.set_arg(key, value)));
        record
    }

    /// Sets an argument and returns the previous value.
    pub(super) fn set_arg(&mut self, key: &str, value: ArgValue<'_>) -> Option<OwnedValue> {
        let value = OwnedValue::from_arg_value(value);
        match self.args.iter_mut().find(|(known, _)| **known == *key) {
            Some((_, known)) => Some(std::mem::replace(known, value)),
            None => {
                self.args.push((key.into(), value));
                None
            }
        }
    }

    /// Undoes a [`set_arg`](OwnActivity::set_arg).
    pub(super) fn put_back(&mut self, key: &str, old: Option<OwnedValue>) {
        let Some(at) = self.args.iter().position(|(known, _)| **known == *key) else { return };
        match (old, self.args.get_mut(at)) {
            (Some(old), Some((_, value))) => *value = old,
            _ => drop(self.args.remove(at)),
        }
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
    pub(super) fn sort_key(&self) -> (Timestamp, Reverse<Timestamp>) {
        match self.body {
            Body::Slice { start, end } => (start, Reverse(end)),
            Body::Instant { at } | Body::Counter { at } => (at, Reverse(at)),
        }
    }

    pub(super) fn owned_args(&self) -> OwnedArgs<'_> {
        OwnedArgs { args: &self.args, finished: self.finished, thread: None, function: None }
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
        let args =
            self.args.iter().map(|(key, value)| size_of::<(Box<str>, OwnedValue)>() + key.len() + value.heap_bytes());
        let args = args.sum::<usize>();
        (size_of::<OwnActivity>() + size_of::<usize>() + self.name.len() + args) as u64
    }
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
        let is_ours = |key: &str| !self.finished && key == "finished" || self.thread.is_some() && key == "thread id";
        for (key, value) in self.args.iter().filter(|(key, _)| !is_ours(key)) {
            each(key, value.as_arg_value());
        }
        if !self.finished {
            each("finished", ArgValue::Bool(false));
        }
        if let Some(thread) = self.thread {
            each("thread id", ArgValue::I64(thread));
        }
        if let Some(function) = self.function {
            each(FUNCTION_ID, ArgValue::U64(function));
        }
    }
}

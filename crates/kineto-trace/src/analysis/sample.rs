//! Builds small traces for tests.

use super::events::{Builder, Events};
use crate::activity::{Activity, ActivityType, ArgValue, Args, Body, CorrelationId, NO_ARGS, Track};
use crate::time::Timestamp;

/// Builds a trace; host slices get ids from 1 on in order of their addition.
#[derive(Default)]
pub(super) struct SampleTrace {
    builder: Builder,
    next: u64,
}

impl SampleTrace {
    /// Adds an operation on thread 1; times are in microseconds.
    pub(super) fn op(self, name: &str, start: u64, end: u64) -> SampleTrace {
        self.host_slice(ActivityType::CpuOp, name, 1, (start, end), NO_ARGS)
    }

    /// Adds an operation with arguments.
    pub(super) fn op_with(self, name: &str, start: u64, end: u64, args: &dyn Args) -> SampleTrace {
        self.host_slice(ActivityType::CpuOp, name, 1, (start, end), args)
    }

    pub(super) fn host_slice(
        mut self,
        kind: ActivityType,
        name: &str,
        thread: i64,
        time: (u64, u64),
        args: &dyn Args,
    ) -> SampleTrace {
        self.next += 1;
        let body = Body::Slice { start: micros(time.0), end: micros(time.1) };
        let id = self.next;
        self.add_event((kind, name), Track::new(100, thread), body, (id, 0), args)
    }

    /// Adds device work, launched by the host slice with the id `linked`; 0 for none.
    pub(super) fn work(self, kind: ActivityType, name: &str, start: u64, end: u64, linked: u64) -> SampleTrace {
        self.work_on(kind, name, (0, 7), (start, end), linked)
    }

    /// Adds device work on any stream of any device.
    pub(super) fn work_on(
        self,
        kind: ActivityType,
        name: &str,
        (device, stream): (i64, i64),
        (start, end): (u64, u64),
        linked: u64,
    ) -> SampleTrace {
        let body = Body::Slice { start: micros(start), end: micros(end) };
        self.add_event(
            (kind, name),
            Track::new(device, stream),
            body,
            (0, linked),
            &[("device", ArgValue::I64(device))],
        )
    }

    pub(super) fn kernel(self, name: &str, start: u64, end: u64, linked: u64) -> SampleTrace {
        self.work(ActivityType::ConcurrentKernel, name, start, end, linked)
    }

    /// Adds an event about allocated or freed memory of a type of device.
    pub(super) fn memory(self, thread: i64, at: u64, bytes: i64, device: i64) -> SampleTrace {
        let args = [("Bytes", ArgValue::I64(bytes)), ("Device Type", ArgValue::I64(device))];
        let body = Body::Instant { at: micros(at) };
        self.add_event((ActivityType::CpuInstantEvent, "[memory]"), Track::new(100, thread), body, (0, 0), &args)
    }

    fn add_event(
        mut self,
        (kind, name): (ActivityType, &str),
        track: Track<'_>,
        body: Body,
        (id, linked): (u64, u64),
        args: &dyn Args,
    ) -> SampleTrace {
        let mut activity = Activity::new(kind, name, track, body);
        (activity.id, activity.linked, activity.args) = (CorrelationId(id), CorrelationId(linked), args);
        self.builder.add_activity(&activity);
        self
    }

    pub(super) fn into_events(self) -> Events {
        self.builder.finish(0)
    }
}

pub(super) fn micros(us: u64) -> Timestamp {
    Timestamp::from_nanos(us * 1000)
}

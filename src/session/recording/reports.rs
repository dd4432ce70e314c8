//! Slices that a program reports after the fact, one by one or in a builder.

use super::budget::PoolBudget;
use super::{SessionRecording, new_trace_id, trace_info};
use crate::clock::Converter;
use crate::config::Config;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::thread;
use crate::time::{Ticks, Timestamp};
use crate::trace::{CpuTrace, CpuTraceBuilder, DeviceRecords, Recorded, Trace, TraceInfo};
use kineto_base::budget::Budget;
use kineto_model::activity::{Activity, ActivityType, ActivityTypes, ArgValue, Args, Body, Track};
use std::sync::Arc;

/// The slices that the program reported.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) parts: Vec<Arc<CpuTrace>>,
    /// Single slices, until a snapshot or the stop.
    open: Option<CpuTraceBuilder>,
}

impl Reports {
    /// Closes the builder of single slices.
    pub(super) fn close_builder(&mut self, end: Timestamp) {
        self.parts.extend(self.open.take().map(|open| Arc::new(open.close(end))));
    }
}

impl SessionRecording {
    /// Adds a builder's activities to the recording.
    pub(crate) fn transfer(&self, builder: CpuTraceBuilder, end: Timestamp) -> Result<(), Error> {
        let mut state = self.lock_recording("")?;
        if builder.is_empty() {
            diag!(Warning, "transfer", "nothing was transferred: the builder has no activities; push some first");
            return Ok(());
        }
        let Some(builder) = builder.count_towards(self.pool_budget()) else {
            let why = "cannot transfer the builder: the buffer limit is reached; raise buffer_limit_bytes";
            return Err(Error::new(ErrorKind::TooLarge, why));
        };
        state.reports.parts.push(Arc::new(builder.close(end)));
        Ok(())
    }

    /// Records a finished slice of the calling thread.
    pub(crate) fn record_slice(
        &self,
        (name, backend): (&str, &str),
        (start, end): (Timestamp, Timestamp),
        args: &dyn Args,
    ) -> Result<(), Error> {
        let (track, body) = (Track::new(0, thread::id()), Body::Slice { start, end: end.max(start) });
        let args = SliceArgs { backend, args };
        let mut slice = Activity::new(ActivityType::CpuOp, name, track, body);
        slice.args = &args;
        let mut state = self.lock_recording("")?;
        let open = state.reports.open.get_or_insert_with(|| CpuTraceBuilder::with_budget(self.pool_budget()));
        open.push(&slice).map(drop)
    }

    fn pool_budget(&self) -> Arc<dyn Budget> {
        Arc::new(PoolBudget::new(self.recorder.clone()))
    }
}

/// The arguments of a backend's slice.
struct SliceArgs<'s> {
    backend: &'s str,
    args: &'s dyn Args,
}

impl Args for SliceArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if !self.backend.is_empty() {
            each("Backend", ArgValue::Str(self.backend));
        }
        self.args.visit(each);
    }
}

impl CpuTraceBuilder {
    /// Returns a trace of the pushed activities alone; it needs no layer and no recording.
    ///
    /// It supports everything that a recorded [`Trace`] does: saving, events, averages. Settings are the defaults; neither
    /// environment nor configuration file is read.
    #[must_use]
    pub fn finish(self, end: Timestamp) -> Trace {
        let own = self.close(end);
        let ticks = |at: Timestamp| Ticks(at.as_nanos());
        let recorded = Recorded::empty((ticks(own.start), ticks(own.end.max(own.start))));
        let mut config = Config::default();
        config.activities = ActivityTypes::ALL;
        let trace_info =
            TraceInfo { is_recording: false, clock: "program".into(), ..trace_info(&Arc::new(config), new_trace_id()) };
        let own = vec![Arc::new(own)];
        Trace::new(recorded, DeviceRecords::default(), own, Converter::of_nanoseconds(), Arc::default(), trace_info)
    }
}

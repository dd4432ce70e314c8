//! What a program reports after the fact: single slices, and what it has collected in a builder.

use super::budget::PoolBudget;
use super::{Phase, Session, State, facts, new_trace_id};
use crate::clock::Converter;
use crate::collector::Budget;
use crate::config::Config;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::thread;
use crate::time::{Ticks, Timestamp};
use crate::trace::{CpuTrace, CpuTraceBuilder, Facts, Recorded, Trace};
use kineto_trace::activity::{Activity, ActivityType, ActivityTypes, ArgValue, Args, Body, Track};
use std::sync::{Arc, MutexGuard};

/// What a recording has got from the program.
#[derive(Debug, Default)]
pub(super) struct Reports {
    parts: Vec<Arc<CpuTrace>>,
    /// Single slices, until somebody looks at the recording.
    open: Option<CpuTraceBuilder>,
}

impl Reports {
    /// Puts what came as single slices with the rest.
    pub(super) fn close(&mut self, end: Timestamp) {
        self.parts.extend(self.open.take().map(|open| Arc::new(open.close(end))));
    }

    pub(super) fn parts(&self) -> Vec<Arc<CpuTrace>> {
        self.parts.clone()
    }
}

impl Session {
    /// Puts what a builder has got into the recording.
    pub(crate) fn transfer(&self, builder: CpuTraceBuilder, end: Timestamp) -> Result<(), Error> {
        let mut state = self.recording()?;
        if builder.is_empty() {
            diag!(Warning, "transfer", "a builder without activities was transferred; the trace shows nothing of it");
            return Ok(());
        }
        let Some(builder) = builder.count_towards(self.budget()) else {
            let why = "the recording has no room left for what the builder has; raise buffer_limit_bytes";
            return Err(Error::new(ErrorKind::TooLarge, why));
        };
        state.reports.parts.push(Arc::new(builder.close(end)));
        Ok(())
    }

    /// Records a slice of the calling thread that has ended.
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
        let mut state = self.recording()?;
        let open = state.reports.open.get_or_insert_with(|| CpuTraceBuilder::within(self.budget()));
        open.push(&slice).map(drop)
    }

    fn recording(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.lock()?;
        self.check_process()?;
        if matches!(state.phase, Phase::Recording) {
            return Ok(state);
        }
        Err(Error::new(ErrorKind::NotActive, "no recording is going on; start one first"))
    }

    fn budget(&self) -> Arc<dyn Budget> {
        Arc::new(PoolBudget::new(self.recorder.clone()))
    }
}

/// What is said of a slice of a backend.
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
    /// Makes a trace of what was pushed, and of nothing else: no layer is needed, and no recording.
    ///
    /// It can do all that a recorded [`Trace`] can: be saved, looked into, averaged. Settings are the defaults; neither
    /// environment nor configuration file is read.
    #[must_use]
    pub fn finish(self, end: Timestamp) -> Trace {
        let own = self.close(end);
        let ticks = |at: Timestamp| Ticks(at.as_nanos());
        let recorded = Recorded::of_nothing((ticks(own.start), ticks(own.end.max(own.start))));
        let facts = Facts {
            is_recording: false,
            clock: "program",
            selected: ActivityTypes::ALL,
            ..facts(&Config::default(), new_trace_id())
        };
        let own = vec![Arc::new(own)];
        Trace::new(recorded, Vec::new(), own, Converter::of_nanoseconds(), Arc::default(), facts)
    }
}

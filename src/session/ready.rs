//! What comes before a recording: its collectors begin.

use super::budget::PoolBudget;
use super::gate::Gate;
use super::observer::Event;
use super::{Phase, Session, State};
use crate::collector::{Budget, CaptureRange, CollectorReport, Marks, Selection};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::time::Timestamp;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How long a collector may take to show that its records arrive.
const PROOF: Duration = Duration::from_millis(100);

impl Session {
    /// Has the collectors begin, so that a start takes no time; returns its number, and how each fared.
    pub(crate) fn prepare(&self) -> Result<(u64, Vec<CollectorReport>), Error> {
        let _call = self.call();
        let name = self.steps.new_trace_id(self.use_by_program());
        let mut state = self.lock()?;
        self.make_way(&mut state);
        let ticket = state.prepared + 1;
        let reports = self.ready_own(&mut state, Phase::Prepared(ticket), name)?;
        state.prepared = ticket;
        Ok((ticket, reports))
    }

    /// Has the collectors begin if nothing goes on, and goes over into `phase`.
    pub(super) fn ready(
        &self,
        state: &mut State,
        phase: Phase,
        name: Option<String>,
        config: Arc<Config>,
    ) -> Result<Vec<CollectorReport>, Error> {
        if self.recorder.is_forked() {
            // The parent's recording is the parent's.
            state.phase = Phase::Idle;
            self.recorder.adopt();
        }
        let reports = match state.phase {
            Phase::Idle => {
                state.trace_id = name.map(OnceLock::from).unwrap_or_default();
                state.config = config;
                let budget: Arc<dyn Budget> = Arc::new(PoolBudget::new(self.recorder.clone()));
                let starts = || self.collectors.start(&self.selection(&state.config), &budget);
                let reports = if self.config.mode.records() { starts() } else { Vec::new() };
                self.observers.note(Event::Prepared(state.config.flags));
                reports
            }
            Phase::Prepared(_) if matches!(phase, Phase::Idle) => Vec::new(),
            _ => {
                let why = "a recording is going on already; stop it first";
                return Err(Error::new(ErrorKind::AlreadyActive, why));
            }
        };
        state.phase = phase;
        Ok(reports)
    }

    /// Has them begin for a recording of the program's own, with the settings of now, unless it is prepared already.
    pub(super) fn ready_own(
        &self,
        state: &mut State,
        phase: Phase,
        name: Option<String>,
    ) -> Result<Vec<CollectorReport>, Error> {
        let reports = self.ready(state, phase, name, self.settings())?;
        state.output.clone_from(&state.config.output);
        Ok(reports)
    }

    /// Takes the [`prepare`](Session::prepare) of that number back, unless a recording has begun since.
    pub(crate) fn disarm(&self, ticket: u64) {
        let _call = self.call();
        let Ok(mut state) = self.lock() else { return };
        if matches!(state.phase, Phase::Prepared(current) if current == ticket) && !self.recorder.is_forked() {
            state.phase = Phase::Idle;
            drop(self.collectors.stop(Timestamp::default(), Instant::now()));
            self.observers.note(Event::Cancelled("the program has not started what it had prepared".to_owned()));
        }
    }

    /// What is asked of the collectors.
    pub(super) fn selection(&self, config: &Config) -> Selection {
        let gpu = &config.gpu;
        Selection {
            types: config.activities,
            buffer_bytes: gpu.buffer_bytes,
            per_thread_buffers: gpu.per_thread_buffers,
            graph_trace: gpu.graph_trace,
            teardown: gpu.teardown_cupti,
            proof: PROOF,
            device_memory: gpu.memory,
            nvtx_ranges: gpu.nvtx_ranges,
            nvtx_injection: config.nvtx_injection.clone(),
            range: gpu.profiler_range.then(|| {
                let gate: Weak<Gate> = Arc::downgrade(&self.gate);
                CaptureRange::new(gate as Weak<dyn Marks>)
            }),
            custom_config: gpu.custom_config.clone(),
            roctracer_max_events: gpu.roctracer_max_events,
            scope: gpu.scope.clone(),
        }
    }

    /// Returns how each collector fares that was asked to record.
    #[cfg(feature = "capi")]
    pub(crate) fn collector_reports(&self) -> Vec<CollectorReport> {
        self.collectors.reports()
    }

    /// Asks each collector what it can do here.
    pub(crate) fn probe(&self) -> Vec<CollectorReport> {
        self.collectors.probe()
    }
}

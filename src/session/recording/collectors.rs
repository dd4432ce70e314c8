//! Starts the collectors before a recording.

use super::budget::PoolBudget;
use super::windows::RecordingWindows;
use super::{RecordingState, SessionPhase, SessionRecording};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::session::observer::SessionEvent;
use crate::time::Timestamp;
use crate::wait::steady;
use kineto_base::budget::Budget;
use kineto_devices::{CaptureRange, CollectorReport, Marks, Selection};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long to wait for a collector's first records, which show that it works.
const PROOF: Duration = Duration::from_millis(100);

impl SessionRecording {
    /// Starts the collectors for the program, so that a later start takes no time. Returns the preparation's number, and a
    /// report for each collector.
    pub(in crate::session) fn prepare(
        &self,
        state: &mut RecordingState,
        trace_id: Option<String>,
    ) -> Result<(u64, Vec<CollectorReport>), Error> {
        let preparation = state.prepared + 1;
        let reports = self.start_own_collectors(state, SessionPhase::Prepared(preparation), trace_id)?;
        state.prepared = preparation;
        Ok((preparation, reports))
    }

    /// Starts the collectors if no recording is running or prepared, and enters `phase`.
    pub(in crate::session) fn start_collectors(
        &self,
        state: &mut RecordingState,
        phase: SessionPhase,
        trace_id: Option<String>,
        config: Arc<Config>,
    ) -> Result<Vec<CollectorReport>, Error> {
        if self.recorder.is_forked() {
            // A recording of the parent does not continue here.
            state.phase = SessionPhase::Idle;
            self.recorder.adopt_fork();
        }
        let reports = match state.phase {
            SessionPhase::Idle => {
                state.trace_id = trace_id.map(OnceLock::from).unwrap_or_default();
                state.config = config;
                let budget: Arc<dyn Budget> = Arc::new(PoolBudget::new(self.recorder.clone()));
                let starts = || self.collectors.start(&self.collector_selection(&state.config), &budget);
                let reports =
                    if self.settings.first_config().mode.has_recording_mode() { starts() } else { Vec::new() };
                self.observers.queue_event(SessionEvent::Prepared(state.config.flags));
                reports
            }
            SessionPhase::Prepared(_) if matches!(phase, SessionPhase::Idle) => Vec::new(),
            _ => {
                let why = "a recording is running already; stop it first";
                return Err(Error::new(ErrorKind::AlreadyActive, why));
            }
        };
        state.phase = phase;
        Ok(reports)
    }

    /// Starts the collectors with the current settings for a recording of the program, unless it is prepared already.
    pub(super) fn start_own_collectors(
        &self,
        state: &mut RecordingState,
        phase: SessionPhase,
        trace_id: Option<String>,
    ) -> Result<Vec<CollectorReport>, Error> {
        let reports = self.start_collectors(state, phase, trace_id, self.settings.next_config())?;
        state.output.clone_from(&state.config.output);
        Ok(reports)
    }

    /// Cancels the [`prepare`](SessionRecording::prepare) of that number, unless a recording has begun since.
    pub(crate) fn cancel_preparation(&self, preparation: u64) {
        let _scope = self.observers.notify_scope();
        let Ok(mut state) = self.lock_state() else { return };
        if matches!(state.phase, SessionPhase::Prepared(current) if current == preparation)
            && !self.recorder.is_forked()
        {
            state.phase = SessionPhase::Idle;
            drop(self.collectors.stop(Timestamp::default(), steady()));
            self.observers.queue_event(SessionEvent::Cancelled("the program dropped its preparation".to_owned()));
        }
    }

    /// Returns the types and options that the collectors record.
    pub(super) fn collector_selection(&self, config: &Config) -> Selection {
        let gpu = &config.gpu;
        let mut selection = Selection::of(config.activities);
        selection.buffer_bytes = gpu.buffer_bytes;
        selection.proof = PROOF;
        selection.device_memory = gpu.device_memory;
        selection.range = gpu.profiler_range.then(|| {
            let windows: Weak<RecordingWindows> = Arc::downgrade(&self.windows);
            CaptureRange::new(windows as Weak<dyn Marks>)
        });
        selection.custom_config.clone_from(&gpu.custom_config);
        selection.options = gpu.options.clone();
        selection
    }

    /// Asks each collector what it can do here.
    pub(crate) fn probe_collectors(&self) -> Vec<CollectorReport> {
        self.collectors.probe(&self.collector_selection(&self.settings.next_config()))
    }
}

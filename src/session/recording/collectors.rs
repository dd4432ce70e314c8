//! Starts the collectors before a recording.

use super::budget::PoolBudget;
use super::windows::RecordingWindows;
use super::{RecordingState, SessionRecording};
use crate::config::Config;
use crate::error::Error;
use crate::session::machine::{Effect, Event};
use crate::session::observer::SessionEvent;
use crate::session::refusals::EVICTED_BY_PROGRAM;
use kineto_base::budget::Budget;
use kineto_devices::{CaptureRange, CollectorReport, Marks, Selection};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

/// How long to wait for a collector's first records, which show that it works.
const PROOF: Duration = Duration::from_millis(100);

impl SessionRecording {
    /// Performs the effects of the program's preparation or start, with the current settings. Returns a report for each collector
    /// that was started.
    pub(in crate::session) fn perform_for_program(
        &self,
        state: &mut RecordingState,
        effects: &[Effect],
        trace_id: Option<String>,
        between: Option<(SystemTime, SystemTime)>,
    ) -> Result<Vec<CollectorReport>, Error> {
        let reports = self.perform(state, effects, trace_id, self.settings.next_config(), between)?;
        state.output.clone_from(&state.config.output);
        Ok(reports)
    }

    /// Performs the effects of a preparation or a start. If collectors are started, the recording has that trace id and these
    /// settings; with `between`, its trace is cut to these times.
    pub(in crate::session) fn perform(
        &self,
        state: &mut RecordingState,
        effects: &[Effect],
        trace_id: Option<String>,
        config: Arc<Config>,
        between: Option<(SystemTime, SystemTime)>,
    ) -> Result<Vec<CollectorReport>, Error> {
        let mut reports = Vec::new();
        if self.recorder.is_forked() {
            self.recorder.adopt_fork();
        }
        if effects.contains(&Effect::Discard) {
            self.discard(EVICTED_BY_PROGRAM);
        }
        if effects.contains(&Effect::StartCollectors) {
            state.trace_id = trace_id.map(OnceLock::from).unwrap_or_default();
            state.config = config;
            reports = self.start_collectors(&state.config);
        }
        if effects.contains(&Effect::BeginRecording) {
            self.begin_recording(state, between).inspect_err(|_| _ = self.machine.handle(Event::Fail))?;
        }
        Ok(reports)
    }

    /// Starts the collectors with these settings.
    fn start_collectors(&self, config: &Config) -> Vec<CollectorReport> {
        let budget: Arc<dyn Budget> = Arc::new(PoolBudget::new(self.recorder.clone()));
        let starts = || self.collectors.start(&self.collector_selection(config), &budget);
        let reports = if self.settings.first_config().mode.has_recording_mode() { starts() } else { Vec::new() };
        self.observers.queue_event(SessionEvent::Prepared(config.flags));
        reports
    }

    /// Cancels the program's preparation of that number, unless a recording has begun since.
    pub(crate) fn cancel_preparation(&self, preparation: u64) {
        let _scope = self.observers.notify_scope();
        self.discard_on(Event::CancelPreparation(preparation), "the program dropped its preparation");
    }

    /// Discards the recording or the preparation if that follows from an event, for that reason. Returns whether it did.
    pub(in crate::session) fn discard_on(&self, event: Event, why: &str) -> bool {
        let Ok((_state, effects)) = self.lock_for(event) else { return false };
        let is_discarded = effects.contains(&Effect::Discard);
        if is_discarded {
            self.discard(why);
        }
        is_discarded
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

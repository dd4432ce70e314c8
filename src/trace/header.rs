//! The header of a trace file.

#[cfg(feature = "segments")]
mod stored;

use super::{PostProcess, StackSymbols, Trace, Violations};
use crate::buffer::Loss;
use crate::config::Config;
use crate::distributed::DistributedInfo;
use crate::observer::ObserverReport;
use crate::recorder::CounterReport;
use crate::time::{Timestamp, base_time};
use crate::write::chrome::PRIVATE_USE1_KEY;
use crate::write::sink::Sinks;
use kineto_model::write::json_object;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The facts about a trace, apart from its records.
#[derive(Clone, Debug)]
pub(crate) struct TraceInfo {
    /// The settings of the recording. In a trace that was read from a segment, those that a segment lacks are the defaults.
    pub(crate) config: Arc<Config>,
    /// Whether it was recorded; otherwise it consists of a builder's records.
    pub(crate) is_recording: bool,
    /// The order in which the traces of this process were taken: of two of one recording, the later has all records of the
    /// earlier.
    pub(crate) taken_as: u64,
    /// The losses, by cause.
    pub(crate) losses: [u64; Loss::ALL.len()],
    /// The reports of span observers.
    pub(crate) observers: Vec<ObserverReport>,
    /// The reports of CPU counters.
    pub(crate) counters: Vec<CounterReport>,
    /// The symbols of return addresses.
    pub(crate) symbols: Arc<StackSymbols>,
    pub(crate) process: i64,
    pub(crate) process_name: String,
    pub(crate) host_name: String,
    /// 32 hexadecimal digits, or the requester's id.
    pub(crate) trace_id: String,
    /// The id that all traces of one request share; empty for none.
    pub(crate) group_trace_id: String,
    /// The settings in force, as a JSON object.
    pub(crate) effective: String,
    pub(crate) clock: Cow<'static, str>,
    /// Whether some threads are excluded.
    pub(crate) some_threads: bool,
    /// Whether it may be saved only once.
    pub(crate) is_strict: bool,
    pub(crate) sinks: Arc<Sinks>,
    /// The time limit for collecting events.
    #[cfg_attr(not(feature = "analysis"), expect(dead_code, reason = "events are made by the analysis"))]
    pub(crate) post_processing_timeout: Option<Duration>,
    /// The name of the PrivateUse1 backend.
    pub(crate) private_use1: Option<String>,
    /// Assertions that did not hold while it was recorded.
    pub(crate) violations: Violations,
    /// The program's callback that changes events.
    pub(crate) post_process: Option<PostProcess>,
}

impl TraceInfo {
    /// Returns the facts that follow from the settings; the others are empty.
    pub(crate) fn new(config: Arc<Config>) -> TraceInfo {
        TraceInfo {
            is_recording: true,
            taken_as: 0,
            losses: [0; Loss::ALL.len()],
            observers: Vec::new(),
            counters: Vec::new(),
            symbols: Arc::new(StackSymbols::new(config.slice_extras.stack_frames)),
            process: 0,
            process_name: String::new(),
            host_name: String::new(),
            trace_id: String::new(),
            group_trace_id: config.group_trace_id.clone(),
            effective: String::new(),
            clock: Cow::Borrowed(""),
            some_threads: false,
            is_strict: false,
            sinks: Arc::default(),
            post_processing_timeout: None,
            private_use1: None,
            violations: Violations::default(),
            post_process: None,
            config,
        }
    }
}

impl Trace {
    /// Returns the process's place in its job, and the known process groups.
    pub(super) fn distributed_info(&self) -> Option<DistributedInfo> {
        self.related_rows().groups.add_to(self.inner.info.config.distributed.as_ref())
    }

    /// The header's entries, and the base that times are written against.
    pub(super) fn header_and_base(&self) -> (Vec<(String, String)>, Timestamp) {
        let inner = &*self.inner;
        let info = &inner.info;
        let text = |text: &str| Value::from(text).to_string();
        let mut entries = vec![("trace_id".to_owned(), text(&info.trace_id))];
        if !info.group_trace_id.is_empty() {
            entries.push(("group_trace_id".to_owned(), text(&info.group_trace_id)));
        }
        if !info.host_name.is_empty() {
            entries.push(("host_name".to_owned(), text(&info.host_name)));
        }
        entries.extend(info.config.flags.enabled_names().map(|name| (name.to_owned(), "1".to_owned())));
        entries.extend(info.private_use1.iter().map(|name| (PRIVATE_USE1_KEY.to_owned(), text(name))));
        if !self.violations().is_empty() {
            entries.push(("invariant_violations".to_owned(), Violations::to_json(self.violations())));
        }
        // A collector's metadata may be invalid JSON.
        let json =
            |json: &String| serde_json::from_str(json).unwrap_or_else(|_| Value::from(json.as_str())).to_string();
        let collectors = inner.devices.header_entries().map(|(key, value)| (key.clone(), json(value)));
        let job = info.config.job_metadata.iter().map(|(key, value)| (key.clone(), text(value)));
        let about = [("tracing_kineto".to_owned(), self.own_metadata().to_string())];
        // The user's metadata wins, as in libkineto.
        for (key, value) in collectors.chain(job).chain(about).chain(inner.metadata.entries()) {
            match entries.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = value,
                None => entries.push((key, value)),
            }
        }
        (entries, base_time(self.window().0))
    }

    /// Returns this crate's own entries: losses, settings, clock.
    fn own_metadata(&self) -> Value {
        let stats = self.stats();
        let losses = stats.losses.iter().map(|(loss, n): &(Loss, u64)| (loss.as_str().to_owned(), (*n).into()));
        let mut about = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "slices": stats.slices,
            "events": stats.events,
            "losses": json_object(&mut { losses }),
            "clock": {
                "source": self.inner.info.clock,
                "error_ns": stats.clock_error_ns,
                "steps": self.inner.converter.clock_steps(),
            },
            "config": serde_json::from_str::<Value>(&self.inner.info.effective).unwrap_or_default(),
        });
        if let (Some(about), Some(omitted)) = (about.as_object_mut(), self.omitted().to_json(&self.inner.recorded)) {
            about.insert("omitted_enters".to_owned(), omitted);
        }
        if let (Some(about), true) = (about.as_object_mut(), stats.before_window > 0) {
            about.insert("before_window".to_owned(), stats.before_window.into());
        }
        if let (Some(about), true) = (about.as_object_mut(), self.inner.info.some_threads) {
            about.insert("threads".to_owned(), "some are left out".into());
        }
        if let (Some(about), false) = (about.as_object_mut(), stats.collectors.is_empty()) {
            let mut reports = stats.collectors.iter().map(|report| (report.name.clone(), report.to_json()));
            about.insert("collectors".to_owned(), json_object(&mut reports));
            about.insert("device_activities".to_owned(), stats.device_activities.into());
        }
        if let (Some(about), false) = (about.as_object_mut(), stats.observers.is_empty()) {
            let state =
                |report: &ObserverReport| report.state.as_ref().map_or_else(ToString::to_string, |()| "told".into());
            let mut reports =
                stats.observers.iter().map(|report| (report.name.clone().into_owned(), Value::from(state(report))));
            about.insert("observers".to_owned(), json_object(&mut reports));
        }
        if let (Some(about), false) = (about.as_object_mut(), stats.counters.is_empty()) {
            let state =
                |report: &CounterReport| report.state.as_ref().map_or_else(ToString::to_string, |()| "counted".into());
            let mut reports =
                stats.counters.iter().map(|report| (report.name.clone().into_owned(), Value::from(state(report))));
            about.insert("performance_events".to_owned(), json_object(&mut reports));
        }
        if let (Some(about), false) = (about.as_object_mut(), stats.recorded.is_empty()) {
            let start = self.window().0;
            let mut recorded = stats.recorded.iter().map(|time| (time.name.clone().into_owned(), time.to_json(start)));
            about.insert("recorded".to_owned(), json_object(&mut recorded));
        }
        if let (Some(why), Some(about)) = (self.why_empty(), about.as_object_mut()) {
            about.insert("empty".to_owned(), why.into());
        }
        about
    }
}

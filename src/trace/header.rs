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
use kineto_devices::Unavailable;
use kineto_model::write::{json_object, parse_json};
use serde_json::Value;
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
        for name in info.config.flags.enabled_names() {
            entries.push((name.to_owned(), "1".to_owned()));
        }
        if let Some(name) = &info.private_use1 {
            entries.push((PRIVATE_USE1_KEY.to_owned(), text(name)));
        }
        if !self.violations().is_empty() {
            entries.push(("invariant_violations".to_owned(), Violations::to_json(self.violations())));
        }
        let mut set = |key: String, value: String| match entries.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => entries.push((key, value)),
        };
        for (key, json) in inner.devices.header_entries() {
            // A collector's metadata may be invalid JSON.
            let value = parse_json(json).unwrap_or_else(|_| Value::from(json.as_str()));
            set(key.clone(), value.to_string());
        }
        for (key, value) in &info.config.job_metadata {
            set(key.clone(), text(value));
        }
        set("tracing_kineto".to_owned(), self.own_metadata().to_string());
        // The user's metadata wins, as in libkineto.
        for (key, value) in inner.metadata.entries() {
            set(key, value);
        }
        (entries, base_time(self.window().0))
    }

    /// Returns this crate's own entries: losses, settings, clock.
    fn own_metadata(&self) -> Value {
        let stats = self.stats();
        let clock = vec![
            ("source", (*self.inner.info.clock).into()),
            ("error_ns", stats.clock_error_ns.into()),
            ("steps", self.inner.converter.clock_steps().into()),
        ];
        let mut losses = Vec::new();
        for (loss, count) in &stats.losses {
            losses.push((loss.as_str(), (*count).into()));
        }
        let mut about: Vec<(&str, Value)> = vec![
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("slices", stats.slices.into()),
            ("events", stats.events.into()),
            ("losses", json_object(losses)),
            ("clock", json_object(clock)),
            ("config", parse_json(&self.inner.info.effective).unwrap_or_default()),
        ];
        if let Some(omitted) = self.omitted().to_json(&self.inner.recorded) {
            about.push(("omitted_enters", omitted));
        }
        if stats.before_window > 0 {
            about.push(("before_window", stats.before_window.into()));
        }
        if self.inner.info.some_threads {
            about.push(("threads", "some are left out".into()));
        }
        if !stats.collectors.is_empty() {
            let mut reports = Vec::new();
            for report in &stats.collectors {
                reports.push((&*report.name, report.to_json()));
            }
            about.push(("collectors", json_object(reports)));
            about.push(("device_activities", stats.device_activities.into()));
        }
        let state = |state: &Result<(), Unavailable>, usual: &str| match state {
            Ok(()) => Value::from(usual),
            Err(reason) => Value::from(reason.to_string()),
        };
        if !stats.observers.is_empty() {
            let mut reports = Vec::new();
            for report in &stats.observers {
                reports.push((&*report.name, state(&report.state, "told")));
            }
            about.push(("observers", json_object(reports)));
        }
        if !stats.counters.is_empty() {
            let mut reports = Vec::new();
            for report in &stats.counters {
                reports.push((&*report.name, state(&report.state, "counted")));
            }
            about.push(("performance_events", json_object(reports)));
        }
        if !stats.recorded.is_empty() {
            let mut times = Vec::new();
            for time in &stats.recorded {
                times.push((&*time.name, time.to_json(self.window().0)));
            }
            about.push(("recorded", json_object(times)));
        }
        if let Some(why) = self.why_empty() {
            about.push(("empty", why.into()));
        }
        json_object(about)
    }
}

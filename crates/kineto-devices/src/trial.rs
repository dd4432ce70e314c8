//! Runs a collector alone, without a session, a layer or a trace.

use super::records::collected::{Collected, Entry, Role};
use super::records::store::RecordSink;
use super::{Capabilities, Collector, RecordView, Recording, Selection, Thread, Unavailable};
use kineto_base::budget::Budget;
use kineto_base::os::platform;
use kineto_base::time::Timestamp;
use kineto_base::wait::steady;
use kineto_model::Loss;
use kineto_model::activity::ActivityType;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Runs a collector without a session: for tests of collectors, and to check whether a collector works here.
pub struct Trial<'c> {
    collector: &'c dyn Collector,
    recording: Box<dyn Recording>,
    is_stopped: bool,
    sink: RecordSink,
    capabilities: Capabilities,
}

impl fmt::Debug for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("collector", &self.collector.name()).finish_non_exhaustive()
    }
}

/// The records of a collector.
#[derive(Debug)]
#[non_exhaustive]
pub struct Findings {
    /// All records: calls, then work, then others, each in order of arrival.
    pub records: Vec<TrialRecord>,
    /// Lost or limited records, by cause.
    pub losses: Vec<(Loss, u64)>,
    /// Notes for the reader of the trace.
    pub notes: Vec<String>,
}

/// A record that a collector delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrialRecord {
    /// Its type.
    pub kind: ActivityType,
    /// Its name; empty for an external id.
    pub name: String,
    /// When it began, in nanoseconds of the collector's clock; 0 for an external id.
    pub start: u64,
    /// When it ended, 0 if it has not.
    pub end: u64,
    /// Its correlation id, 0 for none.
    pub correlation: u64,
    /// The slice of a call, of an external id, or of work whose launch is unknown; 0 for none.
    pub external: u64,
    /// For a call: whether it put work on a device.
    pub launches: bool,
    /// For a call: the thread that made it.
    pub thread: Option<Thread>,
    /// For device records: the device, -1 if it is not known.
    pub device: i32,
    /// For device records: the stream.
    pub stream: u32,
    /// Keys and values of its arguments, as text.
    pub args: Vec<(String, String)>,
}

impl<'c> Trial<'c> {
    /// Starts a collector.
    ///
    /// # Errors
    /// Why it cannot record.
    pub fn start(collector: &'c dyn Collector, selection: &Selection) -> Result<Trial<'c>, Unavailable> {
        if !platform::CAN_RECORD {
            return Err(Unavailable::on_this_platform());
        }
        let sink = unbounded_sink();
        let (capabilities, recording) = collector.start(selection, sink.clone())?;
        sink.discard_early_records();
        Ok(Trial { collector, recording, is_stopped: false, sink, capabilities })
    }

    /// Returns the capabilities that the collector's `start` returned.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the recording.
    pub fn recording(&self) -> &dyn Recording {
        &*self.recording
    }

    /// Stops the recording, which waits for device work no longer than `patience`; returns the records.
    pub fn stop(mut self, patience: Duration) -> Findings {
        self.stop_recording(patience);
        self.collect_findings(true)
    }

    fn stop_recording(&mut self, patience: Duration) {
        let now = platform::unix_time();
        let now = Timestamp::from_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        self.is_stopped = true;
        self.recording.stop(now, steady() + patience);
    }

    /// Returns the records delivered so far.
    pub fn look(&self) -> Findings {
        self.recording.drain(Duration::ZERO);
        self.collect_findings(false)
    }

    fn collect_findings(&self, close: bool) -> Findings {
        let mut collected = self.sink.collect_records(close);
        collected.devices = self.recording.devices();
        Findings::new(&collected)
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.is_stopped {
            self.stop_recording(Duration::ZERO);
        }
    }
}

impl Findings {
    fn new(collected: &Collected) -> Findings {
        let all = collected.calls().chain(collected.work()).chain(collected.other_records());
        let records = all.map(|entry| TrialRecord::new(collected, &entry)).collect();
        Findings { records, losses: collected.losses.clone(), notes: collected.notes.clone() }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_sink(sink: &RecordSink) -> Findings {
        Findings::new(&sink.collect_records(false))
    }

    /// Returns the records of a type.
    pub fn of(&self, kind: ActivityType) -> impl Iterator<Item = &TrialRecord> {
        self.records.iter().filter(move |record| record.kind == kind)
    }

    /// Returns how many records were lost or limited for that cause.
    pub fn lost(&self, cause: Loss) -> u64 {
        self.losses.iter().filter(|(known, _)| *known == cause).map(|(_, count)| *count).sum()
    }
}

impl TrialRecord {
    /// Returns an argument's value.
    pub fn arg(&self, key: &str) -> Option<&str> {
        self.args.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn new(collected: &Collected, entry: &Entry<'_>) -> TrialRecord {
        let role = entry.role();
        let is_external = role == Role::External;
        let device = match role {
            Role::Work | Role::Counter => entry.device_or_context().cast_signed(),
            Role::Sync | Role::Event => collected.device_of(entry.device_or_context()),
            Role::Memory => entry.memory_of().1.into(),
            _ => -1,
        };
        let on_device = matches!(role, Role::Work | Role::Sync | Role::Event | Role::Counter);
        let correlation = match role {
            Role::External => entry.start(),
            Role::Overhead => 0,
            _ => entry.correlation_id(),
        };
        let external = match role {
            Role::Call => entry.call_slice(),
            Role::External => entry.end(),
            Role::Work => entry.work_slice().unwrap_or(0),
            _ => 0,
        };
        let mut record = TrialRecord {
            kind: entry.kind(),
            name: if is_external { String::new() } else { collected.names.text(entry.name).to_owned() },
            start: if is_external { 0 } else { entry.start() },
            end: if matches!(role, Role::External | Role::Memory) { 0 } else { entry.end() },
            correlation,
            external,
            launches: role == Role::Call && entry.launches_work(),
            thread: (role == Role::Call).then(|| entry.thread()),
            device,
            stream: if on_device { entry.stream() } else { 0 },
            args: Vec::new(),
        };
        record.args = record.render_args(collected, entry);
        record
    }

    fn render_args(&self, collected: &Collected, entry: &Entry<'_>) -> Vec<(String, String)> {
        match entry.role() {
            Role::External => return Vec::new(),
            Role::Overhead if entry.words.is_empty() => return Vec::new(),
            Role::Memory => return vec![("bytes".to_owned(), entry.memory_bytes().to_string())],
            _ => {}
        }
        let shaped = RecordView {
            words: entry.words,
            names: &collected.names,
            start: Timestamp::from_nanos(self.start),
            end: Timestamp::from_nanos(self.end),
            correlation: self.correlation,
            device_id: self.device,
            device: collected.devices.iter().find(|device| device.id == self.device),
            stream: self.stream,
            wait: None,
        };
        let mut args = Vec::new();
        if let Some(shape) = collected.entry_layout(entry) {
            shape.visit(&shaped, &mut |key, value| args.push((key.to_owned(), format!("{value:?}"))));
        }
        args
    }
}

/// Makes a sink without a recording and without a limit.
pub fn unbounded_sink() -> RecordSink {
    RecordSink::new(Arc::new(Unbounded))
}

#[derive(Debug)]
pub(super) struct Unbounded;

impl Budget for Unbounded {
    fn reserve_bytes(&self, _bytes: u64) -> bool {
        true
    }

    fn reserve_non_work(&self, _bytes: u64) -> bool {
        true
    }

    fn release_bytes(&self, _bytes: u64) {}
}

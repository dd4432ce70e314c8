//! Converts a plugin's events into records.

use super::abi;
use super::event_type::{EventPlace, EventType};
use super::metadata;
use crate::records::pairs::{PAIRS, PAIRS_MAX};
use crate::{ApiCall, CounterSample, DeviceDescription, DeviceWork, External, Overhead, RecordSink, Stream, Thread};
use kineto_base::sorted::SortedMap;
use kineto_base::text::floor_char_boundary;
use kineto_model::activity::{ActivityType, ActivityTypes, CorrelationId};
use serde_json::Value;

/// Receives events; further data belongs to the last event.
#[derive(Debug)]
pub(super) struct Events {
    sink: RecordSink,
    /// The selected types.
    types: ActivityTypes,
    process: i32,
    last: Option<OpenEvent>,
    devices: SortedMap<i32, DeviceDescription>,
    faults: Faults,
}

/// An event that may still get further data.
#[derive(Debug)]
struct OpenEvent {
    kind: ActivityType,
    place: EventPlace,
    raw: abi::Event,
    name: String,
    arrow: Option<Arrow>,
    metadata_pairs: Vec<(String, Value)>,
}

/// An end of an arrow from a launch to its work.
#[derive(Clone, Copy, Debug)]
struct Arrow {
    id: u32,
    is_start: bool,
}

/// A plugin's errors, counted.
#[derive(Debug, Default)]
struct Faults(SortedMap<&'static str, u64>);

/// A call was rejected; the plugin gets the status -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rejection;

/// The kinds of arrows.
const FORWARD_BACKWARD: u32 = 1;
const ASYNC: u32 = 2;
/// Longer names, keys and texts are truncated.
const TEXT_MAX: usize = 4096;
/// One pair stays free for an arrow's correlation id.
const ARGUMENTS_MAX: usize = PAIRS_MAX - 1;
/// The most devices, and the most streams of a device.
const DEVICES_MAX: usize = 4096;

impl Faults {
    fn count_fault(&mut self, what: &'static str) -> Rejection {
        *self.0.get_or_insert_with(what, Default::default) += 1;
        Rejection
    }
}

impl Events {
    pub(super) fn new(sink: RecordSink, types: ActivityTypes) -> Events {
        let process = i32::try_from(std::process::id()).unwrap_or(0);
        Events { sink, types, process, last: None, devices: SortedMap::new(), faults: Faults::default() }
    }

    /// Starts an event; counts events of unknown or unselected types.
    pub(super) fn add_event(&mut self, raw: abi::Event) -> Result<(), Rejection> {
        self.finish_last();
        let Some(event_type) = EventType::from_number(raw.kind) else {
            return Err(self.faults.count_fault("events of unknown types"));
        };
        let (kind, place) = (event_type.kind(), event_type.place());
        if !self.types.contains(kind) && place != EventPlace::Correlation {
            return Err(self.faults.count_fault("events of types that are not selected"));
        }
        if raw.start <= 0 || raw.end < raw.start {
            return Err(self.faults.count_fault("events with invalid times"));
        }
        self.last = Some(OpenEvent { kind, place, raw, name: String::new(), arrow: None, metadata_pairs: Vec::new() });
        Ok(())
    }

    fn last_event(&mut self) -> Result<(&mut OpenEvent, &mut Faults), Rejection> {
        match &mut self.last {
            Some(last) => Ok((last, &mut self.faults)),
            None => Err(self.faults.count_fault("calls for a rejected event")),
        }
    }

    pub(super) fn set_name(&mut self, name: &str) -> Result<(), Rejection> {
        self.last_event().map(|(last, _)| last.name = truncated_text(name).to_owned())
    }

    pub(super) fn set_flow(&mut self, kind: u32, id: u32, is_start: bool) -> Result<(), Rejection> {
        let (last, faults) = self.last_event()?;
        match (kind, id) {
            (ASYNC, 1..) => last.arrow = Some(Arrow { id, is_start }),
            (FORWARD_BACKWARD, _) => {
                return Err(faults.count_fault("arrows from forward to backward, which only spans define"));
            }
            _ => return Err(faults.count_fault("arrows of unknown kind or without an id")),
        }
        Ok(())
    }

    /// Adds an argument, whose value is JSON.
    pub(super) fn add_metadata(&mut self, key: &str, json: &str) -> Result<(), Rejection> {
        let (last, faults) = self.last_event()?;
        let Some(value) = metadata::parse_value(json) else {
            return Err(faults.count_fault("arguments whose value is not JSON (a string needs quotes)"));
        };
        let value = match value {
            Value::String(text) => Value::from(truncated_text(&text)),
            value => value,
        };
        // A repeated key replaces the value.
        let (key, count) = (truncated_text(key), last.metadata_pairs.len());
        match last.metadata_pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None if count >= ARGUMENTS_MAX => {
                return Err(faults.count_fault("arguments beyond the 126th of an event"));
            }
            None => last.metadata_pairs.push((key.to_owned(), value)),
        }
        Ok(())
    }

    /// Describes a device.
    pub(super) fn add_device(&mut self, id: i64, order: i64, name: &str, label: &str) -> Result<(), Rejection> {
        let Ok(id) = i32::try_from(id) else {
            return Err(self.faults.count_fault("devices with a number beyond 32 bits"));
        };
        let (name, label) = (truncated_text(name), truncated_text(label));
        let device = self.device_of(id)?;
        let known = std::mem::take(&mut device.streams);
        *device = DeviceDescription::new(id, name);
        device.heading = Some(name.to_owned()).filter(|name| !name.is_empty());
        label.clone_into(&mut device.label);
        (device.order, device.streams) = (Some(order), known);
        Ok(())
    }

    /// Describes a part of a device; threads have the names that the program gives them.
    pub(super) fn add_resource(&mut self, device: i32, resource: i32, order: i32, name: &str) -> Result<(), Rejection> {
        if device == self.process {
            return Ok(());
        }
        let device = self.device_of(device)?;
        if device.streams.len() >= DEVICES_MAX {
            return Err(self.faults.count_fault("devices or parts of them beyond the first 4096"));
        }
        device.streams.push(Stream {
            id: resource.cast_unsigned(),
            name: truncated_text(name).to_owned(),
            order: order.into(),
        });
        Ok(())
    }

    fn device_of(&mut self, id: i32) -> Result<&mut DeviceDescription, Rejection> {
        if self.devices.len() >= DEVICES_MAX && !self.devices.contains_key(&id) {
            return Err(self.faults.count_fault("devices or parts of them beyond the first 4096"));
        }
        Ok(self.devices.get_or_insert_with(id, || DeviceDescription::new(id, String::new())))
    }

    /// Counts a call whose arguments could not be read.
    pub(super) fn count_fault(&mut self, what: &'static str) -> Rejection {
        self.faults.count_fault(what)
    }

    fn finish_last(&mut self) {
        if let Some(last) = self.last.take() {
            last.record_into(self);
        }
    }

    /// Ends the delivery: returns the described devices, and notes the errors in the trace.
    pub(super) fn finish(mut self) -> Vec<DeviceDescription> {
        self.finish_last();
        for (what, count) in self.faults.0.iter() {
            self.sink.note(format!("rejected: {count} {what}"));
        }
        self.devices.into_iter().map(|(_, value)| value).collect()
    }
}

fn truncated_text(text: &str) -> &str {
    text.get(..floor_char_boundary(text, TEXT_MAX)).unwrap_or_default()
}

impl OpenEvent {
    /// Adds the event to the recording.
    fn record_into(mut self, events: &mut Events) {
        let Events { sink, types, process, .. } = events;
        // The external id is shown as an arrow, so it is not shown as an argument too.
        let external = self.take_metadata_id("External id").unwrap_or(0);
        let correlation =
            self.arrow.map(|arrow| arrow.id.into()).or_else(|| self.metadata_id("correlation")).unwrap_or(0);
        if correlation != 0 && self.metadata_id("correlation").is_none() {
            self.metadata_pairs.retain(|(key, _)| key != "correlation");
            self.metadata_pairs.insert(0, ("correlation".to_owned(), correlation.into()));
        }
        // If calls are not recorded, only the work itself can name its slice.
        let has_calls = !types.intersection(ActivityTypes::RUNTIME.union(ActivityTypes::DRIVER)).is_empty();
        let (start, end) = (self.raw.start.cast_unsigned(), self.raw.end.cast_unsigned());
        // A call may be shown on the device whose queue it fills, like MTIA's.
        let is_elsewhere = ![0, *process].contains(&self.raw.device);
        let place = if self.place == EventPlace::Host && is_elsewhere { EventPlace::Device } else { self.place };
        sink.record(|batch| {
            let name = batch.name(&self.name);
            let words = &*metadata::pack_pairs(&self.metadata_pairs, batch);
            let (kind, shape) = (self.kind, &PAIRS);
            let (device, stream) = (self.raw.device, self.raw.resource.cast_unsigned());
            match place {
                EventPlace::Host => batch.call(&ApiCall {
                    kind,
                    name,
                    thread: Thread::Id(self.raw.resource.into()),
                    start,
                    end,
                    correlation,
                    external,
                    launches: self.arrow.is_some_and(|arrow| arrow.is_start),
                    shape,
                    words,
                }),
                EventPlace::Device => {
                    let work = DeviceWork { kind, name, device, stream, start, end, correlation, shape, words };
                    match external {
                        1.. if correlation == 0 || !has_calls => batch.work_of(CorrelationId(external), &work),
                        _ => batch.work(&work),
                    }
                }
                EventPlace::Counter => {
                    batch.counters(&CounterSample::new(kind, name, (device, stream), start, shape, words));
                }
                EventPlace::Correlation => batch.external(External { correlation, id: self.raw.id.cast_unsigned() }),
                EventPlace::Overhead => batch.overhead(&Overhead::new(name, (start, end))),
            }
        });
    }

    fn metadata_id(&self, key: &str) -> Option<u64> {
        self.metadata_pairs.iter().find(|(known, _)| known == key).and_then(|(_, value)| metadata::value_as_id(value))
    }

    fn take_metadata_id(&mut self, key: &str) -> Option<u64> {
        let id = self.metadata_id(key)?;
        self.metadata_pairs.retain(|(known, _)| known != key);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{self, Findings};
    use kineto_model::activity::ActivityType;
    use proptest::prelude::*;

    /// A call of a plugin.
    #[derive(Clone, Debug)]
    enum Call {
        Add { kind: u32, start: i64, end: i64, id: i64, device: i32, resource: i32 },
        Name(String),
        Flow(u32, u32, bool),
        Metadata(String, String),
        DeviceDescription(i64, String),
        Resource(i32, i32, String),
    }

    fn call() -> impl Strategy<Value = Call> {
        let times = prop_oneof![any::<i64>(), 1..1000i64];
        let add = (0..40u32, times.clone(), times, any::<i64>(), -2..4i32, any::<i32>());
        let key = prop_oneof![Just("correlation".to_owned()), Just("External id".to_owned()), ".{0,9}"];
        let json = prop_oneof![
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| number.to_string()),
            Just("\"7\"".to_owned()),
            Just("[1, {\"a\": null}]".to_owned()),
            ".{0,9}"
        ];
        prop_oneof![
            4 => add.prop_map(|(kind, start, end, id, device, resource)| {
                Call::Add { kind, start, end, id, device, resource }
            }),
            1 => ".{0,9}".prop_map(Call::Name),
            1 => (0..4u32, 0..4u32, any::<bool>()).prop_map(|(kind, id, is_start)| Call::Flow(kind, id, is_start)),
            2 => (key, json).prop_map(|(key, json)| Call::Metadata(key, json)),
            1 => (any::<i64>(), ".{0,9}").prop_map(|(id, name)| Call::DeviceDescription(id, name)),
            1 => (-2..4i32, any::<i32>(), ".{0,9}").prop_map(|(device, id, name)| Call::Resource(device, id, name)),
        ]
    }

    fn play(events: &mut Events, call: &Call) -> Result<(), Rejection> {
        match call {
            Call::Add { kind, start, end, id, device, resource } => events.add_event(abi::Event {
                size: 48,
                kind: *kind,
                start: *start,
                end: *end,
                id: *id,
                device: *device,
                resource: *resource,
            }),
            Call::Name(name) => events.set_name(name),
            Call::Flow(kind, id, is_start) => events.set_flow(*kind, *id, *is_start),
            Call::Metadata(key, json) => events.add_metadata(key, json),
            Call::DeviceDescription(id, name) => events.add_device(*id, 0, name, ""),
            Call::Resource(device, id, name) => events.add_resource(*device, *id, 0, name),
        }
    }

    fn events(types: ActivityTypes) -> (RecordSink, Events) {
        let sink = trial::unbounded_sink();
        (sink.clone(), Events::new(sink, types))
    }

    fn kernel(events: &mut Events) {
        let kind = EventType::ConcurrentKernel.number();
        let raw = abi::Event { size: 48, kind, start: 1, end: 2, id: 0, device: 0, resource: 0 };
        events.add_event(raw).unwrap();
    }

    #[test]
    fn arrow_keeps_all_arguments() {
        let (sink, mut events) = events(ActivityTypes::ALL);
        kernel(&mut events);
        let taken = (0..200).filter(|key| events.add_metadata(&format!("key {key}"), "1").is_ok()).count();
        assert_eq!(
            (taken, events.add_metadata("key 0", "2")),
            (ARGUMENTS_MAX, Ok(())),
            "one that is there has a place"
        );
        events.set_flow(ASYNC, 7, false).unwrap();
        events.finish();
        let found = Findings::of_sink(&sink);
        let args: Vec<_> = ["correlation", "key 0", "key 125"].map(|key| found.records[0].arg(key)).into();
        assert_eq!((args, found.records[0].args.len()), (vec![Some("7"), Some("2"), Some("1")], taken + 1));
    }

    #[test]
    fn zero_argument_is_kept() {
        let (sink, mut events) = events(ActivityTypes::ALL);
        kernel(&mut events);
        events.add_metadata("", "false").unwrap();
        events.finish();
        assert_eq!(Findings::of_sink(&sink).records[0].arg(""), Some("false"));
    }

    #[test]
    fn long_texts_are_truncated() {
        let (sink, mut events) = events(ActivityTypes::ALL);
        let long = "x".repeat(TEXT_MAX + 1);
        kernel(&mut events);
        events.set_name(&long).unwrap();
        events.add_metadata(&long, "1").unwrap();
        events.add_device(0, 0, &long, &long).unwrap();
        events.add_resource(0, 0, 0, &long).unwrap();
        let devices = events.finish();
        let Findings { records, .. } = Findings::of_sink(&sink);
        let device = &devices[0];
        let texts = [&records[0].name, &records[0].args[0].0, &device.name, &device.label, &device.streams[0].name];
        assert_eq!(texts.map(String::len), [TEXT_MAX; 5]);
    }

    #[test]
    fn work_is_linked_to_its_span_without_calls() {
        let kernels = ActivityTypes::from_type(ActivityType::ConcurrentKernel);
        for (types, is_of_span) in [(kernels, true), (kernels.with(ActivityType::PrivateUse1Runtime), false)] {
            let (sink, mut events) = events(types);
            kernel(&mut events);
            events.set_flow(ASYNC, 7, false).unwrap();
            events.add_metadata("External id", "9").unwrap();
            events.finish();
            let found = Findings::of_sink(&sink);
            let expected = if is_of_span { (0, 9) } else { (7, 0) };
            assert_eq!((found.records[0].correlation, found.records[0].external), expected);
        }
    }

    proptest! {
        /// For any calls of a plugin, accepted events are in the recording, and rejected ones are counted.
        #[test]
        fn accepted_events_are_recorded(calls in prop::collection::vec(call(), 0..60)) {
            let sink = trial::unbounded_sink();
            let mut events = Events::new(sink.clone(), ActivityTypes::ALL.without(ActivityType::GpuMemset));
            let (mut taken, mut refused) = (0, 0);
            for call in &calls {
                match play(&mut events, call) {
                    Ok(()) => taken += usize::from(matches!(call, Call::Add { .. })),
                    Err(Rejection) => refused += 1,
                }
            }
            let counted: u64 = events.faults.0.values().sum();
            let devices = events.finish();
            let found = Findings::of_sink(&sink);
            prop_assert_eq!(found.records.len(), taken);
            prop_assert_eq!(counted, refused);
            prop_assert!(devices.len() <= calls.len());
            prop_assert!(found.of(ActivityType::GpuMemset).next().is_none());
            for record in &found.records {
                let keys: std::collections::BTreeSet<_> = record.args.iter().map(|(key, _)| key).collect();
                prop_assert_eq!(keys.len(), record.args.len(), "a key comes once");
                prop_assert!(record.end >= record.start);
            }
        }
    }
}

//! Joins NVTX markers: a record begins a range, another ends it, and a third holds further data.

use super::records::{Marker, MarkerData};
use super::shapes;
use crate::OWN_NVTX_DOMAIN;
use crate::{ApiCall, Batch, Name, Thread, text};
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::collections::HashMap;

/// The domain of markers without a domain.
const DEFAULT_DOMAIN: &str = "default";

/// Flags of a marker.
const INSTANT: u32 = 1 << 0;
const START: u32 = 1 << 1;
const END: u32 = 1 << 2;
/// The flag of data with a colour.
const HAS_COLOR: u32 = 1 << 1;
/// The kind of markers that belong to a thread: pushed and popped ranges. Started and ended ranges belong to the
/// process.
const THREAD: u32 = 2;

/// The most ranges that may be open at once; more are counted as lost.
const OPEN: usize = 1 << 14;

/// The markers that lack some of their records.
#[derive(Debug)]
pub(super) struct Markers {
    types: ActivityTypes,
    /// By the number that their records share. Records arrive in any order: threads may have separate buffers.
    known: HashMap<u32, MarkerState>,
    /// Markers that have begun and ended. Their data may be the next record.
    complete: Vec<u32>,
    text: Vec<u8>,
}

/// The records of a marker so far.
#[derive(Clone, Copy, Debug, Default)]
struct MarkerState {
    begun: Option<Begun>,
    end: Option<u64>,
    details: Details,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    kind: ActivityType,
    name: Name,
    domain: Name,
    is_own: bool,
    thread: Thread,
    at: u64,
}

/// Further data of a marker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) category: u32,
    pub(super) color: Option<u32>,
    /// The type of the payload, and its bits.
    pub(super) payload: (u32, u64),
}

impl Markers {
    /// Keeps ranges and instants of these types.
    pub(super) fn new(types: ActivityTypes) -> Markers {
        Markers { types, known: HashMap::new(), complete: Vec::new(), text: Vec::new() }
    }

    /// Takes a record: the begin or end of a range, or an instant.
    pub(super) fn add_marker(&mut self, marker: &Marker<'_>, batch: &mut Batch<'_>) {
        let flags = marker.flags();
        let begun = (flags & (START | INSTANT) != 0).then(|| self.read_begin(marker, batch));
        let end = (flags & (END | INSTANT) != 0).then(|| marker.timestamp());
        let Some(known) = self.find_or_add(marker.id(), batch) else { return };
        (known.begun, known.end) = (begun.or(known.begun), end.or(known.end));
        if known.begun.is_some() && known.end.is_some() {
            self.complete.push(marker.id());
        }
    }

    /// Takes further data of a marker.
    pub(super) fn add_marker_data(&mut self, data: &MarkerData<'_>, batch: &mut Batch<'_>) {
        let color = (data.flags() & HAS_COLOR != 0).then(|| data.color());
        if let Some(known) = self.find_or_add(data.id(), batch) {
            known.details =
                Details { category: data.category(), color, payload: (data.payload_kind(), data.payload()) };
        }
    }

    fn find_or_add(&mut self, id: u32, batch: &mut Batch<'_>) -> Option<&mut MarkerState> {
        if self.known.len() >= OPEN && !self.known.contains_key(&id) {
            self.deliver_complete(batch);
            // Open markers without a begin by now have lost it.
            self.known.retain(|_, known| known.begun.is_some());
            if self.known.len() >= OPEN {
                batch.count_lost(Loss::DeviceRecordsOverLimit, 1);
                return None;
            }
        }
        Some(self.known.entry(id).or_default())
    }

    fn read_begin(&mut self, marker: &Marker<'_>, batch: &mut Batch<'_>) -> Begun {
        let name = self.name_at_or(marker.name(), "", batch);
        let domain = self.name_at_or(marker.domain(), DEFAULT_DOMAIN, batch);
        let thread = match (marker.object_kind(), marker.thread()) {
            // Any thread may end it. It is shown on the process's first thread, whose id is the process's.
            (kind, 0) if kind != THREAD => Thread::Id(marker.process().into()),
            (_, thread) => Thread::Handle(thread),
        };
        let is_instant = marker.flags() & INSTANT != 0;
        let kind = if is_instant { ActivityType::CpuInstantEvent } else { ActivityType::UserAnnotation };
        let is_own = marker.domain() != 0 && self.text == OWN_NVTX_DOMAIN.as_bytes();
        Begun { kind, name, domain, is_own, thread, at: marker.timestamp() }
    }

    /// Returns the text at that address, left in `self.text`, or `none`.
    fn name_at_or(&mut self, address: u64, none: &str, batch: &mut Batch<'_>) -> Name {
        if text::copy_c_string(address, &mut self.text) {
            batch.name(&String::from_utf8_lossy(&self.text))
        } else {
            batch.name(none)
        }
    }

    /// Delivers complete markers, at the end of a buffer.
    pub(super) fn deliver_complete(&mut self, batch: &mut Batch<'_>) {
        for id in std::mem::take(&mut self.complete) {
            if let Some(known) = self.known.remove(&id) {
                self.deliver(&known, batch);
            }
        }
    }

    /// Delivers ranges that have begun but not ended, at the end of the recording.
    pub(super) fn deliver_remaining(&mut self, batch: &mut Batch<'_>) {
        self.deliver_complete(batch);
        for known in std::mem::take(&mut self.known).into_values() {
            match known.begun {
                Some(_) => self.deliver(&known, batch),
                // It began before the recording.
                None => batch.count_lost(Loss::OutOfWindow, u64::from(known.end.is_some())),
            }
        }
    }

    fn deliver(&self, known: &MarkerState, batch: &mut Batch<'_>) {
        let Some(begun) = known.begun.filter(|begun| !begun.is_own && self.types.contains(begun.kind)) else { return };
        batch.call(&ApiCall {
            kind: begun.kind,
            name: begun.name,
            thread: begun.thread,
            start: begun.at,
            end: known.end.unwrap_or(0),
            correlation: 0,
            external: 0,
            launches: false,
            shape: &shapes::MARKER,
            words: &shapes::marker_words(begun.domain, &known.details),
        });
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::super::records::Record;
    use super::*;
    use crate::RecordSink;
    use crate::records::fields::make_record as record;
    use crate::trial::{self, Findings};

    fn address(text: &'static [u8]) -> u64 {
        if text.is_empty() { 0 } else { text.as_ptr().expose_provenance() as u64 }
    }

    fn marker(id: u64, flags: u32, at: u64, name: &'static [u8], domain: &'static [u8]) -> Vec<u8> {
        let own = [(4, 4, flags.into()), (8, 8, at), (16, 4, id), (20, 4, THREAD.into()), (24, 4, 40), (28, 4, 5)];
        record(12, 56, &[&own[..], &[(40, 8, address(name)), (48, 8, address(domain))]].concat())
    }

    fn data(id: u64, fields: &[(usize, usize, u64)]) -> Vec<u8> {
        record(13, 40, &[&[(8, 4, id)], fields].concat())
    }

    fn take(markers: &mut Markers, sink: &RecordSink, records: &[Vec<u8>]) {
        sink.record(|batch| {
            for bytes in records {
                match Record::from_bytes(bytes) {
                    Some(Record::Marker(marker)) => markers.add_marker(&marker, batch),
                    Some(Record::MarkerData(data)) => markers.add_marker_data(&data, batch),
                    other => panic!("{other:?}"),
                }
            }
            markers.deliver_complete(batch);
        });
    }

    fn found(buffers: &[&[Vec<u8>]]) -> Findings {
        let (sink, mut markers) = (trial::unbounded_sink(), Markers::new(ActivityTypes::ALL));
        buffers.iter().for_each(|records| take(&mut markers, &sink, records));
        sink.record(|batch| markers.deliver_remaining(batch));
        Findings::of_sink(&sink)
    }

    /// Type, name, start and end of each.
    fn shown(found: &Findings) -> Vec<String> {
        let line = |it: &trial::TrialRecord| format!("{} {} {}-{}", it.kind, it.name, it.start, it.end);
        found.records.iter().map(line).collect()
    }

    #[test]
    fn records_of_a_range_arrive_in_any_order() {
        let start = || marker(7, START, 10, b"all reduce\0", b"NCCL\0");
        let end = || marker(7, END, 20, b"", b"");
        let more = || data(7, &[(4, 4, 2), (12, 4, 1), (16, 8, 64), (24, 4, 0xFF00_8000), (28, 4, 3)]);
        let commands: [&[&[Vec<u8>]]; 4] = [
            &[&[start(), more(), end()]],
            &[&[start(), end(), more()]],
            &[&[more(), start()], &[end()]],
            &[&[end()], &[start(), more()]],
        ];
        for buffers in commands {
            let found = found(buffers);
            assert_eq!(shown(&found), ["user_annotation all reduce 10-20"]);
            let range = &found.records[0];
            let args =
                ["nvtx.domain", "nvtx.category", "nvtx.color", "nvtx.payload"].map(|key| range.arg(key).unwrap());
            assert_eq!((args, range.thread), ([r#""NCCL""#, "3", r##""#008000""##, "64"], Some(Thread::Handle(5))));
        }
    }

    #[test]
    fn missing_fields_yield_no_arguments() {
        let found = found(&[&[marker(1, INSTANT, 10, b"tick\0", b""), data(1, &[(4, 4, 1)])]]);
        assert_eq!(shown(&found), ["cpu_instant_event tick 10-10"]);
        assert_eq!(found.records[0].args, [("nvtx.domain".to_owned(), "\"default\"".to_owned())]);
    }

    #[test]
    fn payloads_are_numbers_of_their_type() {
        for (kind, bits, expected) in
            [(0, 1.5f64.to_bits(), "1.5"), (1, u64::MAX, "18446744073709551615"), (4, u64::MAX, "-1"), (6, 9, "")]
        {
            let found = found(&[&[data(1, &[(12, 4, kind), (16, 8, bits)]), marker(1, INSTANT, 1, b"a\0", b"")]]);
            assert_eq!(found.records[0].arg("nvtx.payload").unwrap_or_default(), expected, "{kind}");
        }
    }

    #[test]
    fn own_ranges_and_unselected_types_are_dropped() {
        let records = [
            marker(1, START, 1, b"span, op_id = 1\0", b"tracing-kineto\0"),
            marker(2, INSTANT, 2, b"event\0", b"tracing-kineto\0"),
            marker(3, INSTANT, 3, b"theirs\0", b""),
            marker(1, END, 4, b"", b""),
        ];
        let found = found(&[&records]);
        assert_eq!(shown(&found), ["cpu_instant_event theirs 3-3"]);
        assert_eq!(found.losses, []);
        let (sink, mut markers) =
            (trial::unbounded_sink(), Markers::new(ActivityTypes::from_type(ActivityType::UserAnnotation)));
        take(&mut markers, &sink, &records);
        assert!(Findings::of_sink(&sink).records.is_empty());
    }

    #[test]
    fn open_ranges_are_kept_and_orphan_ends_counted() {
        let found = found(&[&[marker(1, START, 1, b"open\0", b""), marker(2, END, 2, b"", b""), data(3, &[])]]);
        assert_eq!(shown(&found), ["user_annotation open 1-0"]);
        assert_eq!(found.losses, [(Loss::OutOfWindow, 1)]);
    }

    #[test]
    fn process_ranges_fall_back_to_the_first_thread() {
        let of_process = |thread: u64| {
            let mut bytes = marker(1, START, 1, b"a\0", b"");
            bytes[20..24].copy_from_slice(&1u32.to_ne_bytes());
            bytes[28..32].copy_from_slice(&u32::try_from(thread).unwrap().to_ne_bytes());
            found(&[&[bytes]]).records[0].thread
        };
        assert_eq!((of_process(9), of_process(0)), (Some(Thread::Handle(9)), Some(Thread::Id(40))));
    }

    #[test]
    fn open_ranges_are_limited() {
        let lost = |lonely: u64, open: u64| {
            let ends = (0..lonely).map(|id| marker(id, END, 1, b"", b""));
            let starts = (0..open).map(|id| marker(1 << 20 | id, START, 1, b"a\0", b""));
            found(&[&ends.chain(starts).collect::<Vec<_>>()]).lost(Loss::DeviceRecordsOverLimit)
        };
        let most = OPEN as u64;
        assert_eq!((lost(0, most), lost(0, most + 3), lost(most, most)), (0, 3, 0));
    }
}

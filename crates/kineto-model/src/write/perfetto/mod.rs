//! The Perfetto writer: Perfetto's own protobuf format (`.pftrace`).
//!
//! Times are exact nanoseconds since 1970, overlapping slices keep their length, and arguments keep their types.

mod annotations;
pub mod fields;
mod flows;
mod lanes;
mod proto;
mod sequence;
#[cfg(test)]
mod tests;
mod tracks;

pub use self::flows::{decode_flow_id, flow_kind_of_name};

use self::annotations::{put_arg, put_args};
use self::fields::{clock, event, packet};
use self::flows::flow_id;
use self::proto::Encoder;
use self::sequence::{Texts, put_realtime_clock};
use self::tracks::{LaneId, NewCounter, Tracks};
use super::chrome::{Header, INCOMPLETE};
use super::value::{ArgsWithId, CounterValue, EXTERNAL_ID};
use crate::activity::{Activity, ActivityType, ArgValue, Args, Body, Flow, FlowEnd, Lane, NO_ARGS, Track};
use crate::layout::{external_id, name_in_file, times_in_file, track_in_file};
use crate::rows::{AsyncRow, ProcessRow, Rows, SpanRow, ThreadRow};
use kineto_base::hash::HashMap;
use kineto_base::time::Timestamp;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;

/// Writes a trace as `TrackEvent`s, row by row.
///
/// Rows of a track should come in order of their starts; others take additional lanes. Names, categories, keys and
/// short values are written once per track. The writer holds a buffer of 256 KiB, up to 1 MiB of strings per track, and
/// the open slices.
pub struct PerfettoWriter<'w> {
    out: &'w mut dyn Write,
    /// Complete packets.
    packets: Encoder,
    base: u64,
    /// The start of the earliest event, relative to the base.
    earliest: Option<u64>,
    tracks: Tracks,
    last: LastEvent,
    /// Arrows of one id with several starts or ends.
    shared_flows: HashMap<(u8, u64), SharedFlow>,
    metadata: Vec<(String, String)>,
    device_properties: Vec<String>,
}

impl fmt::Debug for PerfettoWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerfettoWriter").field("base", &self.base).finish_non_exhaustive()
    }
}

/// Arrows of one id: each pair of a start and an end has a number.
#[derive(Debug, Default)]
struct SharedFlow {
    /// The number of ends of each start.
    ends: Vec<u64>,
    /// The number of starts written; ends before the first start belong to it.
    begun: usize,
    /// The first number of the current start.
    first: u64,
    /// The number of its ends written.
    written: u64,
}

/// The last event added, which may still get ends of arrows.
#[derive(Debug, Default)]
struct LastEvent {
    lane: LaneId,
    start: u64,
    end: u64,
    encoded: Encoder,
}

/// An event without its arguments; times are relative to the base.
#[derive(Clone, Copy, Debug)]
struct NewEvent<'n> {
    lane: LaneId,
    /// The type in `TrackEvent`.
    kind: u64,
    start: u64,
    end: u64,
    name: &'n str,
    category: &'n str,
}

/// The number of buffered bytes at which packets are written out.
const BUFFER: usize = 1 << 18;

/// The name of the instant that has the header's keys as arguments.
pub const TRACE_METADATA: &str = "trace_metadata";
/// Its argument about the file.
pub const ABOUT_FILE: &str = "tracing_kineto_file";
/// The member of [`ABOUT_FILE`] that is the seed of flow ids.
pub const FLOW_SEED: &str = "flow_seed";
/// The member of [`ABOUT_FILE`] that is the end of the recording, in nanoseconds.
pub const WINDOW_END: &str = "window_end_ns";

/// The argument that names the thread of a counter's value, unless it is the track's first.
pub const COUNTER_THREAD: &str = "tid";

/// The name of allocations and frees, whose totals become counters.
const MEMORY: &str = "[memory]";

impl<'w> PerfettoWriter<'w> {
    /// Writes the beginning of a file.
    ///
    /// # Errors
    /// If `out` fails; the same holds for all other methods.
    pub fn new(out: &'w mut dyn Write, header: &Header<'_>) -> io::Result<Self> {
        let base = header.base.as_nanos();
        let mut packets = Encoder::default();
        packets.put_message(packet::PACKET, |out| {
            out.put_message(packet::CLOCK_SNAPSHOT, |snapshot| {
                put_realtime_clock(snapshot, base);
                snapshot.put_uint(clock::PRIMARY, clock::REALTIME);
            });
        });
        Ok(PerfettoWriter {
            out,
            packets,
            base,
            earliest: None,
            tracks: Tracks::new(track_seed(header)),
            last: LastEvent::default(),
            shared_flows: HashMap::default(),
            metadata: header.metadata.to_vec(),
            device_properties: header.device_properties.to_vec(),
        })
    }

    /// Keeps the tracks of activities as they are, since they were read from a file: no row of waits, and no absolute ids.
    pub fn keep_tracks(&mut self) {
        self.tracks.keeps_ids = true;
    }

    /// Announces an arrow with several ends, each of which is written as a separate arrow.
    ///
    /// Each further call announces a further start of the same id: its ends follow it, up to the next start.
    pub fn set_ends(&mut self, flow: Flow, ends: u64) {
        self.shared_flows.entry(key_of(flow)).or_default().ends.push(ends);
    }

    /// Records in the file's metadata that it contains only the first `rows` of `of` rows.
    pub fn mark_incomplete(&mut self, rows: u64, of: u64) {
        self.metadata.push((INCOMPLETE.to_owned(), format!("{{\"rows\":{rows},\"of\":{of}}}")));
    }

    /// Writes the rest of the file, and flushes the writer.
    ///
    /// `window_end` is the end of the recording. `distributed` is a JSON object; it is ignored if the metadata has that key.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self, window_end: Timestamp, distributed: Option<&str>, trace_name: &str) -> io::Result<()> {
        self.add_last()?;
        self.tracks.end_all(&mut self.packets, self.base);
        self.add_metadata(window_end, distributed, trace_name)?;
        self.tracks.put_descriptors(&mut self.packets);
        self.out.write_all(self.packets.as_bytes())?;
        self.out.flush()
    }

    /// Adds an instant with all metadata, which every version of Perfetto can query.
    ///
    /// It is at the time of the earliest event. The viewer's timeline spans all events, and the base may be months
    /// earlier.
    fn add_metadata(&mut self, window_end: Timestamp, distributed: Option<&str>, trace_name: &str) -> io::Result<()> {
        const DISTRIBUTED: &str = "distributedInfo";

        let devices = format!("[{}]", self.device_properties.join(","));
        let mut metadata = std::mem::take(&mut self.metadata);
        if let Some(info) = distributed.filter(|_| metadata.iter().all(|(key, _)| key != DISTRIBUTED)) {
            metadata.push((DISTRIBUTED.to_owned(), info.to_owned()));
        }
        let place = Track { process: Lane::Name(""), thread: Lane::Name("Trace metadata") };
        let track = self.tracks.row_track(place);
        let lane = self.tracks.lane_at(track, 0);
        let (name, category, start) = (TRACE_METADATA, "", self.earliest.unwrap_or(0));
        let (flow_seed, window_end) = (ArgValue::U64(self.tracks.seed), ArgValue::U64(window_end.as_nanos()));
        let about_file: [(&str, ArgValue<'_>); 2] = [(FLOW_SEED, flow_seed), (WINDOW_END, window_end)];
        let instant = NewEvent { lane, kind: event::INSTANT, start, end: start, name, category };
        self.add_event(instant, |out, texts| {
            let mut add = |key: &str, value| put_arg(out, event::DEBUG_ANNOTATIONS, key, &value, texts);
            add("deviceProperties", ArgValue::Json(&devices));
            metadata.iter().for_each(|(key, value)| add(key, ArgValue::Json(value)));
            add("traceName", ArgValue::Str(trace_name));
            add(ABOUT_FILE, ArgValue::Dict(&about_file));
        })?;
        self.add_last()
    }

    /// Adds an event, which is written with the next one; `args` appends its remaining fields.
    fn add_event(&mut self, new: NewEvent<'_>, args: impl FnOnce(&mut Encoder, &mut Texts)) -> io::Result<()> {
        self.add_last()?;
        let PerfettoWriter { tracks, packets, last, base, earliest, .. } = self;
        let NewEvent { lane: at, kind, start, end, name, category } = new;
        let Some(lane) = tracks.get_mut(at) else { return Ok(()) };
        while let Some(end) = lane.open.pop_if(|end| *end <= start) {
            lane.sequence.put_slice_end(packets, *base, end);
        }
        if kind == event::SLICE_BEGIN {
            lane.open.push(end);
        }
        lane.time = start;
        *earliest = Some(earliest.map_or(start, |earliest| earliest.min(start)));
        (last.lane, last.start, last.end) = (at, start, end);
        let (out, texts) = (&mut last.encoded, lane.sequence.texts_mut());
        out.put_uint(event::TYPE, kind);
        if !category.is_empty() {
            match texts.category_id(category) {
                Some(number) => out.put_uint(event::CATEGORY_IDS, number),
                None => out.put_bytes(event::CATEGORIES, category.as_bytes()),
            }
        }
        if kind != event::COUNTER {
            match texts.name_id(name) {
                Some(number) => out.put_uint(event::NAME_ID, number),
                None => out.put_bytes(event::NAME, name.as_bytes()),
            }
        }
        args(out, texts);
        Ok(())
    }

    /// Writes the packet of the last event, which gets no more ends of arrows.
    fn add_last(&mut self) -> io::Result<()> {
        let PerfettoWriter { tracks, packets, last, base, .. } = self;
        if let Some(lane) = tracks.get_mut(last.lane).filter(|_| !last.encoded.is_empty()) {
            lane.sequence.put_event(packets, *base, last.start, &last.encoded);
        }
        last.encoded.clear();
        if packets.len() >= BUFFER {
            self.out.write_all(packets.as_bytes())?;
            packets.clear();
        }
        Ok(())
    }

    fn since_base(&self, at: Timestamp) -> u64 {
        at.as_nanos().saturating_sub(self.base)
    }

    fn add_slice(
        &mut self,
        place: Track<'_>,
        (start, end): (Timestamp, Timestamp),
        (name, category): (&str, &str),
        args: &dyn Args,
    ) -> io::Result<()> {
        let (start, end) = (self.since_base(start), self.since_base(end.max(start)));
        let track = self.tracks.row_track(place);
        let lane = self.tracks.lane_of_slice(track, None, start, end);
        let slice = NewEvent { lane, kind: event::SLICE_BEGIN, start, end, name, category };
        self.add_event(slice, |out, texts| put_args(out, args, texts))
    }

    fn add_instant(
        &mut self,
        place: Track<'_>,
        at: Timestamp,
        (name, category): (&str, &str),
        args: &dyn Args,
    ) -> io::Result<()> {
        let at = self.since_base(at);
        let track = self.tracks.row_track(place);
        let lane = self.tracks.lane_at(track, at);
        let instant = NewEvent { lane, kind: event::INSTANT, start: at, end: at, name, category };
        self.add_event(instant, |out, texts| put_args(out, args, texts))
    }

    fn add_counter(&mut self, new: &NewCounter<'_>, at: Timestamp, value: CounterValue) -> io::Result<()> {
        let at = self.since_base(at);
        let track = self.tracks.counter_track(new);
        let lane = self.tracks.lane_at(track, at);
        let counter = NewEvent { lane, kind: event::COUNTER, start: at, end: at, name: "", category: "" };
        let thread = self.tracks.other_thread(track, new);
        self.add_event(counter, |out, texts| {
            match value {
                CounterValue::Int(value) => out.put_int(event::COUNTER_VALUE, value),
                CounterValue::Float(value) => out.put_double(event::DOUBLE_COUNTER_VALUE, value),
            }
            if let Some(thread) = thread {
                put_arg(out, event::DEBUG_ANNOTATIONS, COUNTER_THREAD, &ArgValue::I64(thread), texts);
            }
        })
    }

    /// Adds the values of a counter, each to a separate track.
    fn add_counters(&mut self, activity: &Activity<'_>, at: Timestamp) -> io::Result<()> {
        let mut result = Ok(());
        activity.args.visit(&mut |series, value| {
            let Some(value) = CounterValue::from_arg_value(value).filter(|_| result.is_ok()) else { return };
            let name = match series {
                "" => activity.name.to_owned(),
                _ if activity.kind == ActivityType::HardwareCounters => series.to_owned(),
                _ => format!("{} {series}", activity.name),
            };
            let (group, source) = (activity.track.process, Some((activity, series)));
            result = self.add_counter(&NewCounter { group, name: &name, is_bytes: false, source }, at, value);
        });
        result
    }

    /// Adds the totals of an allocation as counters of its device.
    fn add_memory_totals(&mut self, activity: &Activity<'_>, at: Timestamp) -> io::Result<()> {
        let (mut totals, mut device) = (Vec::new(), String::new());
        activity.args.visit(&mut |key, value| match (key, CounterValue::from_arg_value(value)) {
            ("Total Allocated" | "Total Reserved", Some(total)) => totals.push((key.to_owned(), total)),
            ("Device Type", Some(CounterValue::Int(0))) => device = "CPU".to_owned(),
            ("Device Id", Some(CounterValue::Int(id))) if device.is_empty() => device = format!("GPU {id}"),
            _ => {}
        });
        totals.into_iter().try_for_each(|(key, total)| {
            let (group, name) = (activity.track.process, format!("{key} ({device})"));
            self.add_counter(&NewCounter { group, name: &name, is_bytes: true, source: None }, at, total)
        })
    }

    /// Adds an end of an arrow to the last event.
    fn add_flow(&mut self, flow: Flow) {
        let shared = self.shared_flows.get_mut(&key_of(flow));
        match flow.end {
            FlowEnd::Start => {
                for end in shared.map_or(0..1, SharedFlow::begin_start) {
                    self.last.encoded.put_fixed64(event::FLOW_IDS, flow_id(flow, end, self.tracks.seed));
                }
            }
            FlowEnd::Finish => {
                let id = flow_id(flow, shared.map_or(0, SharedFlow::add_end), self.tracks.seed);
                self.last.encoded.put_fixed64(event::TERMINATING_FLOW_IDS, id);
            }
        }
    }
}

impl SharedFlow {
    /// Returns the numbers of the arrows that begin at the next start.
    fn begin_start(&mut self) -> Range<u64> {
        if let Some(ends) = self.begun.checked_sub(1).and_then(|before| self.ends.get(before)) {
            (self.first, self.written) = (self.first + (*ends).max(1), 0);
        }
        let ends = self.ends.get(self.begun).copied().unwrap_or(1).max(1);
        self.begun += 1;
        self.first..self.first + ends
    }

    /// Returns the number of the arrow that ends at the next end.
    fn add_end(&mut self) -> u64 {
        self.written += 1;
        self.first + self.written - 1
    }
}

/// Returns a seed for track uuids that differs between recordings, so that files of several processes can be merged.
fn track_seed(header: &Header<'_>) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let mut hasher = DefaultHasher::new();
    (header.base.as_nanos(), header.metadata).hash(&mut hasher);
    hasher.finish()
}

fn key_of(flow: Flow) -> (u8, u64) {
    let [kind, ..] = flow.kind.as_str().as_bytes() else { return (0, flow.id) };
    (*kind, flow.id)
}

impl Rows for PerfettoWriter<'_> {
    fn write_process(&mut self, row: &ProcessRow<'_>) -> io::Result<()> {
        self.tracks.name_group(row.process, row.name, row.label, row.sort_index);
        Ok(())
    }

    fn write_thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        let track = self.tracks.row_track(row.track);
        let first = row.continues.map(|first| self.tracks.row_track(first));
        self.tracks.name_track(track, row.name, row.sort_index, first);
        Ok(())
    }

    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        let (name, category) = (name_in_file(activity.name), activity.kind.as_str());
        match activity.body {
            Body::Slice { start, end } => {
                let args =
                    ArgsWithId { key: EXTERNAL_ID, id: external_id(activity).map(|id| id.0), args: activity.args };
                let place = if self.tracks.keeps_ids { activity.track } else { track_in_file(activity) };
                if let Lane::Id(stream) = activity.track.thread
                    && place != activity.track
                {
                    self.tracks.name_sync_row(place, stream);
                }
                self.add_slice(place, times_in_file(activity.kind, start, end), (&name, category), &args)?;
            }
            Body::Instant { at } => {
                if activity.name == MEMORY {
                    self.add_memory_totals(activity, at)?;
                }
                let args = ArgsWithId::of_instant(activity);
                self.add_instant(activity.track, at, (activity.name, category), &args)?;
            }
            Body::Counter { at } => self.add_counters(activity, at)?,
        }
        activity.flow.into_iter().for_each(|flow| self.add_flow(flow));
        Ok(())
    }

    fn write_flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        let (row, time) = (self.tracks.row_track(track), self.since_base(at));
        let LastEvent { lane, start, end, encoded } = &self.last;
        if encoded.is_empty() || lane.track != row || !(*start..=*end).contains(&time) {
            self.add_instant(track, at, (flow.kind.as_str(), ""), NO_ARGS)?;
        }
        self.add_flow(flow);
        Ok(())
    }

    fn write_async_track(&mut self, row: &AsyncRow<'_>) -> io::Result<()> {
        let (start, end) = (self.since_base(row.start), self.since_base(row.end.max(row.start)));
        let track = self.tracks.async_span_track(row.on.process, row.name);
        let lane = self.tracks.lane_of_slice(track, Some(row.track), start, end);
        let slice = NewEvent { lane, kind: event::SLICE_BEGIN, start, end, name: row.name, category: "async" };
        let args = ArgsWithId { key: "span id", id: Some(row.span), args: row.args };
        self.add_event(slice, |out, texts| put_args(out, &args, texts))
    }

    fn write_span(&mut self, row: &SpanRow<'_>) -> io::Result<()> {
        let place = Track { process: Lane::Name("Spans"), thread: Lane::Name(row.name) };
        let name = format!("{} ({})", row.name, row.iteration);
        let args: [(&str, ArgValue<'_>); 1] = [("Op count", ArgValue::U64(row.op_count))];
        self.add_slice(place, (row.start, row.end), (&name, "Trace"), &args)?;
        let place = Track { process: Lane::Name("Traces"), thread: Lane::Name(row.name) };
        self.add_instant(place, row.start, (&format!("Iteration Start: {}", row.name), ""), NO_ARGS)
    }
}

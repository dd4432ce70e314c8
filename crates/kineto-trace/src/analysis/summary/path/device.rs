//! Predecessors of device work, and the work that a synchronizing call waits for.

use crate::activity::ActivityType;
use crate::analysis::events::values::{as_signed, as_text};
use crate::analysis::events::{Event, Events, TrackId};
use crate::analysis::relations::Attribution;
use crate::analysis::summary::work::{Devices, StreamId, Work, WorkClass};
use crate::hash::HashMap;
use crate::time::Timestamp;

/// Orders of device work, by its index in [`Devices::work`].
pub(super) struct WorkOrder {
    /// By work: the work before it in its stream that ends last, or [`NONE`].
    previous: Vec<u32>,
    /// The ends and indexes of all work, sorted.
    by_end: Vec<(Timestamp, u32)>,
    /// Pairs of work and the work whose event its stream waited for, sorted.
    event_sources: Vec<(u32, u32)>,
    /// By index of a call that waits: what it waits for, if the trace has a record of it.
    waits: HashMap<usize, CallWait>,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
struct CallWait {
    /// The only stream, as an index into [`Devices::streams`]; `None` for all.
    stream: Option<usize>,
    /// Work launched later is not waited for.
    launched_before: Timestamp,
}

const NONE: u32 = u32::MAX;

impl WorkOrder {
    pub(super) fn new(events: &Events, devices: &Devices<'_>, attribution: &Attribution<'_>) -> WorkOrder {
        let work = &devices.work;
        let mut last: Vec<Option<(Timestamp, u32)>> = vec![None; devices.streams.len()];
        let mut previous = vec![NONE; work.len()];
        for ((number, work), previous) in (0..).zip(work).zip(&mut previous) {
            let Some(last) = last.get_mut(work.stream) else { continue };
            *previous = last.map_or(NONE, |(_, last)| last);
            *last = (*last).max(Some((work.end(), number)));
        }
        let mut by_end: Vec<(Timestamp, u32)> = work.iter().map(Work::end).zip(0..).collect();
        by_end.sort_unstable();
        let syncs = SyncRecords::new(events, devices, attribution);
        WorkOrder { previous, by_end, event_sources: syncs.event_sources(devices), waits: syncs.waits }
    }

    /// Returns the index of the work before another in its stream; of several, the one that ends last.
    pub(super) fn previous(&self, work: usize) -> Option<usize> {
        self.previous.get(work).filter(|previous| **previous != NONE).map(|previous| *previous as usize)
    }

    /// Returns the work whose event a piece of work waited for; of several, the one that ends last.
    pub(super) fn event_source(&self, devices: &Devices<'_>, work: usize) -> Option<usize> {
        let first = self.event_sources.partition_point(|(of, _)| (*of as usize) < work);
        let sources = self.event_sources.get(first..)?.iter().take_while(|(of, _)| *of as usize == work);
        sources.map(|(_, source)| *source as usize).max_by_key(|source| devices.work.get(*source).map(Work::end))
    }

    /// Returns the number of pieces of work that ended by a time.
    pub(super) fn count_ended(&self, by: Timestamp) -> usize {
        self.by_end.partition_point(|(end, _)| *end <= by)
    }

    /// Returns the work that ended last from `since` (exclusive) to `until`, among the work that `is_candidate` accepts.
    ///
    /// Only the first `count` pieces by their end can have ended until then, and of those only indexes below `visited` are
    /// searched; lowers `count` to what later searches still need.
    pub(super) fn last_ended<'d, 'e>(
        &self,
        devices: &'d Devices<'e>,
        count: &mut usize,
        visited: usize,
        (since, until): (Timestamp, Timestamp),
        is_candidate: impl Fn(&Work<'e>) -> bool,
    ) -> Option<(usize, &'d Work<'e>)> {
        let ended = self.by_end.get(..*count)?;
        let is_done =
            |(end, number): &&(Timestamp, u32)| *end > until || (*end == until && *number as usize >= visited);
        *count -= ended.iter().rev().take_while(is_done).count();
        let ended = ended.get(..*count)?.iter().rev().take_while(|(end, _)| *end > since);
        let work = |(_, number): &(_, u32)| devices.work.get(*number as usize).map(|work| (*number as usize, work));
        ended.filter_map(work).find(|(number, work)| *number < visited && is_candidate(work))
    }

    /// Returns whether a call that waits for a device waits for this work.
    pub(super) fn is_awaited(&self, call: &Event<'_>, work: &Work<'_>) -> bool {
        let wait = self.waits.get(&call.index());
        let limit = wait.map_or(call.start(), |wait| wait.launched_before);
        let is_earlier = |launch: Event<'_>| launch.start() < limit || launch.index() == call.index();
        work.launch.is_none_or(is_earlier)
            && wait.and_then(|wait| wait.stream).is_none_or(|stream| stream == work.stream)
    }
}

/// Returns whether work of another stream can have held up a piece of work: both use one device.
pub(super) fn shares_device(devices: &Devices<'_>, work: &Work<'_>, other: &Work<'_>) -> bool {
    let device = |work: &Work<'_>| devices.streams.get(work.stream).map(|stream| &stream.device);
    other.stream != work.stream && other.class != WorkClass::Wait && device(work) == device(other)
}

/// How a call relates to device work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) enum CallRole {
    /// It returns when earlier work has ended.
    Synchronizes,
    /// It may return when its own copy has ended.
    Copies,
    /// It asks whether work has ended.
    Polls,
    /// It waits for nothing that is known.
    Other,
}

impl CallRole {
    /// Returns whether a call of this name waits for a device, in CUDA, HIP, Level Zero, SYCL's unified runtime or OpenCL. Unlike
    /// [`of`](CallRole::of) this includes copies, unless they are asynchronous, nodes of a graph, or put in a queue: whether such a call
    /// blocks is an argument, which traces lack.
    pub(in crate::analysis) fn is_wait(name: &str) -> bool {
        const WAITS: [&str; 4] = ["urEventWait", "piEventsWait", "clWaitForEvents", "clFinish"];

        match CallRole::of(name) {
            CallRole::Synchronizes => true,
            CallRole::Copies => !["Async", "Graph", "Enqueue"].iter().any(|part| name.contains(part)),
            _ => WAITS.contains(&name) || name.ends_with("QueueFinish"),
        }
    }

    /// Returns the role of a call of this name in CUDA or HIP.
    pub(super) fn of(name: &str) -> CallRole {
        const FREES: [&str; 6] =
            ["cudaFree", "cudaFreeHost", "cuMemFree_v2", "cuMemFreeHost", "hipFree", "hipHostFree"];

        if name.contains("Synchronize") || FREES.contains(&name) {
            CallRole::Synchronizes
        } else if name.contains("Memcpy") {
            CallRole::Copies
        } else if name.contains("EventQuery") || name.contains("StreamQuery") {
            CallRole::Polls
        } else {
            CallRole::Other
        }
    }
}

/// What the records of synchronizations say (`cuda_sync`).
#[derive(Default)]
struct SyncRecords {
    waits: HashMap<usize, CallWait>,
    stream_waits: Vec<StreamWaitRecord>,
}

/// A stream waits for an event that was recorded on another.
#[derive(Clone, Copy, Debug)]
struct StreamWaitRecord {
    /// The start of the call that makes the stream wait.
    called: Timestamp,
    stream: usize,
    source: usize,
    /// The start of the call that recorded the event.
    recorded: Timestamp,
}

impl SyncRecords {
    fn new(events: &Events, devices: &Devices<'_>, attribution: &Attribution<'_>) -> SyncRecords {
        let records = || events.iter().filter(|event| event.kind() == Some(ActivityType::CudaSync));
        let mut found = SyncRecords::default();
        if records().next().is_none() {
            return found;
        }
        let streams: HashMap<&StreamId, usize> =
            devices.streams.iter().enumerate().map(|(number, stream)| (stream, number)).collect();
        for record in records() {
            let Some(call) = attribution.launch(record) else { continue };
            let number = |key: &str| record.exact_arg(key).and_then(as_signed);
            let stream = |key: &str| {
                let device = StreamId::device_of(&record);
                streams.get(&StreamId { device, stream: TrackId::Id(number(key)?) }).copied()
            };
            let event_call = number("wait_on_cuda_event_record_corr_id").and_then(|id| u64::try_from(id).ok());
            let event_call = event_call.and_then(|id| attribution.call_by_id(record, id)).map(|call| call.start());
            let launched_before = event_call.unwrap_or(call.start());
            match record.exact_arg("cuda_sync_kind").and_then(as_text).unwrap_or(record.name()) {
                "Stream Wait Event" => {
                    let (Some(waiting), Some(source)) = (stream("stream"), stream("wait_on_stream")) else { continue };
                    let (called, recorded) = (call.start(), launched_before);
                    found.stream_waits.push(StreamWaitRecord { called, stream: waiting, source, recorded });
                }
                kind => {
                    let stream = stream(if kind == "Event Sync" { "wait_on_stream" } else { "stream" });
                    found.waits.insert(call.index(), CallWait { stream, launched_before });
                }
            }
        }
        found
    }

    /// Returns pairs of work and the work whose event its stream waited for, sorted.
    fn event_sources(&self, devices: &Devices<'_>) -> Vec<(u32, u32)> {
        if self.stream_waits.is_empty() {
            return Vec::new();
        }
        let mut launched: Vec<Vec<(Timestamp, u32)>> = vec![Vec::new(); devices.streams.len()];
        for (number, work) in (0..).zip(&devices.work) {
            if let (Some(launch), Some(stream)) = (work.launch, launched.get_mut(work.stream)) {
                stream.push((launch.start(), number));
            }
        }
        launched.iter_mut().for_each(|stream| stream.sort_unstable());
        let pair = |wait: &StreamWaitRecord| {
            let (waiting, source) = (launched.get(wait.stream)?, launched.get(wait.source)?);
            let work = waiting.get(waiting.partition_point(|(launch, _)| *launch < wait.called))?.1;
            let before = source.partition_point(|(launch, _)| *launch < wait.recorded).checked_sub(1)?;
            Some((work, source.get(before)?.1))
        };
        let mut pairs: Vec<_> = self.stream_waits.iter().filter_map(pair).collect();
        pairs.sort_unstable();
        pairs
    }
}

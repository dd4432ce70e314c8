//! Device work: its class, its stream and its launch.

use super::intervals::Intervals;
use crate::analysis::events::values::as_signed;
use crate::analysis::events::{Event, Events, StringId, TrackId};
use crate::analysis::relations::Attribution;
use crate::hash::HashMap;
use crate::sorting::sort_few_by_key;
use crate::time::Timestamp;
use kineto_model::named_values;

named_values! {
    /// The class of device work.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum WorkClass {
        /// Communication between devices: NCCL, RCCL and similar, all-reduces of vLLM and of PyTorch's symmetric memory, or work with a
        /// `Collective name`.
        Communication => "comm",
        /// Any other kernel.
        Compute => "compute",
        /// Copies and fills.
        Memory => "memory",
        /// An MTIA command that waits for an event; it occupies a stream without counting as busy.
        Wait => "wait",
    }

    /// Returns the name: "comm", "compute", "memory" or "wait".
    pub const fn as_str;
}

impl WorkClass {
    /// Returns the class of device work; `None` for any other event.
    pub fn of(event: &Event<'_>) -> Option<WorkClass> {
        event.is_device_work().then(|| WorkClass::from_work(event))
    }

    fn from_work(event: &Event<'_>) -> WorkClass {
        const MEMORY: [&str; 5] = ["Memcpy", "hipMemcpy", "Memset", "hipMemset", "dma"];
        const WAIT: [&str; 4] = ["event_wait", "event_record", "wait", "signal"];

        let (name, category) = (event.name(), event.category());
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if is_copy(event) || starts(&MEMORY) {
            WorkClass::Memory
        } else if is_communication(name) || event.arg_by_id(StringId::COLLECTIVE).is_some() {
            WorkClass::Communication
        } else if category == "mtia_ccp_events" && starts(&WAIT) {
            WorkClass::Wait
        } else {
            WorkClass::Compute
        }
    }
}

fn is_communication(name: &str) -> bool {
    const PREFIXES: [&str; 6] = ["nccl", "rccl", "oneccl", "hccl", "msccl", "nvshmem"];
    /// Kernels of C++ have a return type and namespaces before their name. The last four are vLLM's and those of symmetric memory.
    const PARTS: [&str; 6] = [
        "nccldevkernel",
        "ncclkernel",
        "cross_device_reduce_",
        "multimem_all_reduce",
        "one_shot_all_reduce",
        "two_shot_all_reduce",
    ];

    let has_prefix = |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    PREFIXES.iter().any(has_prefix) || {
        let name = name.to_ascii_lowercase();
        PARTS.iter().any(|part| name.contains(part))
    }
}

/// Returns whether an event is a copy or a fill.
pub(super) fn is_copy(event: &Event<'_>) -> bool {
    matches!(event.category(), "gpu_memcpy" | "gpu_memset")
}

/// A piece of device work.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Work<'e> {
    pub(in crate::analysis) event: Event<'e>,
    pub(in crate::analysis) class: WorkClass,
    pub(in crate::analysis) launch: Option<Event<'e>>,
    is_launch_sure: bool,
    /// An index into [`Devices::streams`].
    pub(in crate::analysis) stream: usize,
}

impl<'e> Work<'e> {
    /// Returns the launch to measure delays from; `None` if it is unknown, or if its number repeats.
    pub(in crate::analysis) fn sure_launch(&self) -> Option<Event<'e>> {
        self.launch.filter(|_| self.is_launch_sure)
    }

    pub(in crate::analysis) fn start(&self) -> Timestamp {
        self.event.start()
    }

    pub(in crate::analysis) fn end(&self) -> Timestamp {
        self.event.end()
    }

    pub(in crate::analysis) fn duration_ns(&self) -> u64 {
        self.event.duration_ns()
    }

    pub(in crate::analysis) fn interval(&self) -> (Timestamp, Timestamp) {
        (self.start(), self.end())
    }
}

/// A stream of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct StreamId {
    /// The argument `device` of its work, else the process on which it is drawn. A process that has a name instead of a
    /// number is always used: traces merged from several ranks have devices of equal numbers.
    pub device: TrackId,
    /// The argument `stream`, else the track on which it is drawn.
    pub stream: TrackId,
}

impl StreamId {
    pub(super) fn device_of(event: &Event<'_>) -> TrackId {
        let drawn = &event.track().process;
        let number = || event.arg_by_id(StringId::DEVICE).and_then(as_signed);
        number().filter(|_| matches!(drawn, TrackId::Id(_))).map_or(drawn.clone(), TrackId::Id)
    }

    fn stream_of(event: &Event<'_>) -> TrackId {
        let number = event.arg_by_id(StringId::STREAM).and_then(as_signed);
        number.map_or(event.track().thread.clone(), TrackId::Id)
    }
}

/// All device work, in order of its start.
#[derive(Debug)]
pub(in crate::analysis) struct Devices<'e> {
    pub(in crate::analysis) work: Vec<Work<'e>>,
    pub(in crate::analysis) streams: Vec<StreamId>,
}

impl<'e> Devices<'e> {
    pub(in crate::analysis) fn new(events: &'e Events, attribution: &Attribution<'e>) -> Devices<'e> {
        Devices::with_launches(events, |work| (attribution.launch(work), attribution.is_launch_sure(work)))
    }

    /// Returns all work without its launches.
    pub(super) fn without_launches(events: &'e Events) -> Devices<'e> {
        Devices::with_launches(events, |_| (None, false))
    }

    fn with_launches(events: &'e Events, launch: impl Fn(Event<'e>) -> (Option<Event<'e>>, bool)) -> Devices<'e> {
        let mut numbers: HashMap<StreamId, usize> = HashMap::default();
        let (mut work, mut streams) = (Vec::new(), Vec::new());
        for event in events.iter().filter(|event| event.is_slice() && event.is_device_work()) {
            let stream = StreamId { device: StreamId::device_of(&event), stream: StreamId::stream_of(&event) };
            let stream = *numbers.entry(stream).or_insert_with_key(|stream| {
                streams.push(stream.clone());
                streams.len() - 1
            });
            let (launch, is_launch_sure) = launch(event);
            work.push(Work { event, class: WorkClass::from_work(&event), launch, is_launch_sure, stream });
        }
        Devices { work, streams }
    }

    /// Returns the work of each stream, sorted by start and end; streams are sorted by device and number.
    pub(in crate::analysis) fn by_stream(&self) -> Vec<(&StreamId, Vec<Work<'e>>)> {
        let mut streams: Vec<_> = self.streams.iter().map(|stream| (stream, Vec::new())).collect();
        for work in &self.work {
            if let Some((_, all)) = streams.get_mut(work.stream) {
                all.push(*work);
            }
        }
        streams.iter_mut().for_each(|(_, all)| all.sort_by_key(Work::interval));
        sort_few_by_key(&mut streams, |(stream, _)| *stream);
        streams
    }

    /// Returns the times at which devices were busy.
    pub(in crate::analysis) fn busy_times(&self) -> Intervals {
        Intervals::union(self.busy_work().map(|work| work.interval()))
    }

    /// Returns the times at which work of a class ran.
    pub(in crate::analysis) fn times_of(&self, class: WorkClass) -> Intervals {
        Intervals::union(self.busy_work().filter(|work| work.class == class).map(|work| work.interval()))
    }

    /// Returns the work that counts as busy time.
    pub(in crate::analysis) fn busy_work(&self) -> impl Iterator<Item = &Work<'e>> + Clone {
        self.work.iter().filter(|work| work.class != WorkClass::Wait)
    }
}

//! Assigns events to tracks and lanes.
//!
//! Perfetto changes the times of slices that overlap on a track without nesting. So each track has lanes, which
//! Perfetto stores as separate tracks and draws as one. A slice goes to the first lane where it nests or begins after
//! all others.

use super::fields::{packet, track};
use super::lanes::{TrackLane, TrackLanes};
use super::proto::Encoder;
use super::sequence::Sequence;
use crate::activity::{Activity, ActivityType, Lane as Place, OVERHEAD_GROUP, Track};
use kineto_base::hash::{HashMap, HashSet};
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The groups and tracks of a file.
#[derive(Debug)]
pub(super) struct Tracks {
    pub(super) seed: u64,
    /// Whether ids of threads may be negative.
    pub(super) keeps_ids: bool,
    list: Vec<TrackState>,
    /// By uuid.
    numbers: HashMap<u64, usize>,
    groups: Vec<TrackGroup>,
    /// By uuid.
    group_numbers: HashMap<u64, usize>,
    /// The number of lanes.
    pub(super) sequences: u64,
    /// A cache of the last lookup: the process, the thread and the track's index.
    recent: Option<(i64, i64, usize)>,
}

/// A host process, or another group of tracks such as a device's.
#[derive(Debug)]
struct TrackGroup {
    uuid: u64,
    /// The process id, for a host process.
    process: Option<i64>,
    name: String,
    order: i64,
    /// Its id, name and label in Kineto's JSON, as JSON.
    description: String,
}

/// A thread, stream, counter or named track.
#[derive(Debug)]
struct TrackState {
    uuid: u64,
    group: u64,
    kind: TrackKind,
    name: String,
    order: i64,
    /// The first track of the same thread or stream, if this is an additional one.
    first: Option<usize>,
    lanes: TrackLanes,
    /// The first members of its description, as JSON.
    ids: String,
    /// Of a counter: the thread of its first value.
    thread: i64,
}

/// A counter that is not yet known to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewCounter<'n> {
    pub(super) group: Place<'n>,
    pub(super) name: &'n str,
    pub(super) is_bytes: bool,
    /// The activity that has the values, and the name of the series; `None` if it is derived from an instant.
    pub(super) source: Option<(&'n Activity<'n>, &'n str)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrackKind {
    /// A thread if its group is a process, else a row of its group.
    Row(Option<i64>),
    /// A counter, in bytes or of unknown unit.
    Counter { is_bytes: bool },
}

/// A track and a lane of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneId {
    pub(super) track: usize,
    lane: usize,
}

impl NewCounter<'_> {
    /// Returns the thread that has the values.
    fn thread(&self, keeps_ids: bool) -> Option<i64> {
        match self.source?.0.track.thread {
            Place::Id(id) => Some(thread_id(id, keeps_ids)),
            Place::Name(_) => None,
        }
    }
}

impl Tracks {
    /// `seed` differs between recordings, so that files can be joined.
    pub(super) fn new(seed: u64) -> Tracks {
        let (list, numbers, groups, group_numbers) = Default::default();
        Tracks { seed, keeps_ids: false, list, numbers, groups, group_numbers, sequences: 0, recent: None }
    }

    /// Returns a uuid derived from `parts` and the seed.
    pub(super) fn derive_uuid(&self, parts: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, parts).hash(&mut hasher);
        // Perfetto treats 0 as "no uuid".
        hasher.finish().max(1)
    }

    /// Names a group of tracks, and determines whether it is a host process.
    pub(super) fn name_group(&mut self, place: Place<'_>, name: &str, label: &str, order: i64) {
        let process = match place {
            Place::Id(id) if id != OVERHEAD_GROUP && (label.is_empty() || label == HOST) => Some(id),
            _ => None,
        };
        let kineto_name = name;
        let name = if label.is_empty() || label == HOST || name.starts_with(label) { name } else { label };
        let texts = format!("\"name\":{},\"labels\":{}", Value::from(kineto_name), Value::from(label));
        let description = format!("{{\"pid\":{},{texts}}}", place_as_json(place));
        let group = TrackGroup { uuid: self.derive_uuid(place), process, name: name.to_owned(), order, description };
        match self.group_numbers.get(&group.uuid).and_then(|number| self.groups.get_mut(*number)) {
            Some(known) => *known = group,
            None => self.add_group(group),
        }
    }

    fn add_group(&mut self, group: TrackGroup) {
        self.group_numbers.insert(group.uuid, self.groups.len());
        self.groups.push(group);
    }

    fn find_group(&self, uuid: u64) -> Option<&TrackGroup> {
        self.groups.get(*self.group_numbers.get(&uuid)?)
    }

    /// Returns the index of the track of a thread or stream.
    #[inline]
    pub(super) fn row_track(&mut self, place: Track<'_>) -> usize {
        let Track { process: Place::Id(process), thread: Place::Id(thread) } = place else {
            return self.find_row(place, None);
        };
        if let Some((_, _, number)) = self.recent.filter(|recent| (recent.0, recent.1) == (process, thread)) {
            return number;
        }
        let number = self.find_row(place, Some(thread));
        self.recent = Some((process, thread, number));
        number
    }

    fn find_row(&mut self, place: Track<'_>, id: Option<i64>) -> usize {
        let keeps_ids = self.keeps_ids;
        let name = |track: &mut TrackState| {
            match place.thread {
                Place::Name(name) => name.clone_into(&mut track.name),
                Place::Id(id) => track.order = id,
            }
            let thread = thread_as_json(place.thread, keeps_ids);
            track.ids = format!("\"pid\":{},\"tid\":{thread}", place_as_json(place.process));
        };
        self.find_or_add(self.derive_uuid(place), place.process, TrackKind::Row(id), name)
    }

    /// Returns the index of a counter's track.
    pub(super) fn counter_track(&mut self, new: &NewCounter<'_>) -> usize {
        let (uuid, keeps_ids) = (self.derive_uuid((new.group, "counter", new.name)), self.keeps_ids);
        self.find_or_add(uuid, new.group, TrackKind::Counter { is_bytes: new.is_bytes }, |track| {
            new.name.clone_into(&mut track.name);
            track.thread = new.thread(keeps_ids).unwrap_or(0);
            track.ids =
                new.source.map(|(activity, series)| counter_ids(activity, series, keeps_ids)).unwrap_or_default();
        })
    }

    /// Returns the thread of a counter's values if that is another one than the track's first.
    pub(super) fn other_thread(&self, number: usize, new: &NewCounter<'_>) -> Option<i64> {
        let first = self.list.get(number)?.thread;
        new.thread(self.keeps_ids).filter(|thread| *thread != first)
    }

    /// Returns the index of the track for async spans of a name.
    pub(super) fn async_span_track(&mut self, group: Place<'_>, name: &str) -> usize {
        let uuid = self.derive_uuid((group, "async", name));
        self.find_or_add(uuid, group, TrackKind::Row(None), |track| name.clone_into(&mut track.name))
    }

    fn find_or_add(
        &mut self,
        uuid: u64,
        group: Place<'_>,
        kind: TrackKind,
        init: impl FnOnce(&mut TrackState),
    ) -> usize {
        if let Some(number) = self.numbers.get(&uuid) {
            return *number;
        }
        let group = match group {
            Place::Name("") => 0,
            _ => {
                let group_uuid = self.derive_uuid(group);
                if !self.group_numbers.contains_key(&group_uuid) {
                    let (process, name) = match group {
                        Place::Id(id) => (Some(id), String::new()),
                        Place::Name(name) => (None, name.to_owned()),
                    };
                    let description = format!("{{\"pid\":{}}}", place_as_json(group));
                    self.add_group(TrackGroup { uuid: group_uuid, process, name, order: i64::MAX, description });
                }
                group_uuid
            }
        };
        let (name, lanes, ids) = Default::default();
        let mut track = TrackState { uuid, group, kind, name, order: 0, first: None, lanes, ids, thread: 0 };
        init(&mut track);
        self.numbers.insert(uuid, self.list.len());
        self.list.push(track);
        self.list.len() - 1
    }

    /// Names the row of waits for a stream, unless it has a name.
    pub(super) fn name_sync_row(&mut self, place: Track<'_>, stream: i64) {
        let number = self.row_track(place);
        if let Some(track) = self.list.get_mut(number).filter(|track| track.name.is_empty()) {
            track.name = format!("stream {stream} (sync)");
        }
    }

    /// Names a track; `first` makes it an additional lane of that track.
    pub(super) fn name_track(&mut self, number: usize, name: &str, order: i64, first: Option<usize>) {
        if let Some(track) = self.list.get_mut(number) {
            name.clone_into(&mut track.name);
            (track.order, track.first) = (order, first);
        }
    }

    /// Returns the lane of a slice; slices that do not come in order of their starts may need more lanes. The slice of an async span has
    /// an owner: its lane is one of that owner, or one without an open slice.
    pub(super) fn lane_of_slice(&mut self, track: usize, owner: Option<u64>, start: u64, end: u64) -> LaneId {
        self.find_lane(track, |lanes, sequence| lanes.place_slice(owner, (start, end), sequence))
    }

    /// Returns a lane for an event at a point in time.
    pub(super) fn lane_at(&mut self, track: usize, time: u64) -> LaneId {
        self.find_lane(track, |lanes, sequence| lanes.place_instant(time, sequence))
    }

    fn find_lane(
        &mut self,
        number: usize,
        place: impl FnOnce(&mut TrackLanes, &mut dyn FnMut(usize) -> Sequence) -> usize,
    ) -> LaneId {
        let Some(track) = self.list.get_mut(number) else { return LaneId::default() };
        let (uuid, kind) = (track.uuid, track.kind);
        let mut new_sequence = |lane| {
            self.sequences += 1;
            let uuid = match kind {
                // Values of a counter stay on one track in any order.
                TrackKind::Counter { .. } => uuid,
                TrackKind::Row(_) => lane_uuid(uuid, lane),
            };
            Sequence::new(self.sequences, uuid)
        };
        LaneId { track: number, lane: place(&mut track.lanes, &mut new_sequence) }
    }

    pub(super) fn get_mut(&mut self, at: LaneId) -> Option<&mut TrackLane> {
        self.list.get_mut(at.track)?.lanes.get_mut(at.lane)
    }

    /// Appends the ends of all open slices.
    pub(super) fn end_all(&mut self, out: &mut Encoder, base: u64) {
        for lane in self.list.iter_mut().flat_map(|track| track.lanes.iter_mut()) {
            while let Some(end) = lane.open.pop() {
                lane.sequence.put_slice_end(out, base, end);
            }
        }
    }

    /// Appends the descriptors of all groups and tracks.
    pub(super) fn put_descriptors(&self, out: &mut Encoder) {
        let host = self.groups.iter().find(|group| group.process.is_some());
        // Perfetto drops tracks whose parents have no descriptor.
        let parents: HashSet<u64> = self.list.iter().map(|track| track.group).collect();
        let is_parent =
            |group: &&TrackGroup| host.is_some_and(|host| host.uuid == group.uuid) || parents.contains(&group.uuid);
        for group in self.groups.iter().filter(is_parent) {
            put_descriptor(out, group.uuid, &group.description, |out| match group.process {
                Some(id) => out.put_message(track::PROCESS, |process| {
                    process.put_int(track::PROCESS_ID, id);
                    process.put_bytes(track::PROCESS_NAME, group.name.as_bytes());
                }),
                None => {
                    out.put_bytes(track::NAME, group.name.as_bytes());
                    if let Some(host) = host {
                        out.put_uint(track::PARENT, host.uuid);
                    }
                    out.put_int(track::RANK, group.order);
                    out.put_uint(track::CHILD_ORDERING, track::BY_RANK);
                }
            });
        }
        for state in &self.list {
            let process = self.find_group(state.group).and_then(|group| group.process);
            let first = state.first.and_then(|first| self.list.get(first));
            let lanes = match state.kind {
                TrackKind::Counter { .. } => 1,
                // A thread may have counters only; they take its name from here.
                TrackKind::Row(Some(_)) if process.is_some() && !state.name.is_empty() => state.lanes.len().max(1),
                TrackKind::Row(_) => state.lanes.len(),
            };
            (0..lanes).for_each(|lane| state.put_lane_descriptor(lane, first.unwrap_or(state), process, out));
        }
    }
}

impl TrackState {
    /// Appends the descriptor of a lane, with the name and position of the `first` track of its thread or stream.
    fn put_lane_descriptor(&self, lane: usize, first: &TrackState, process: Option<i64>, out: &mut Encoder) {
        let uuid = lane_uuid(self.uuid, lane);
        put_descriptor(out, uuid, &self.description(), |out| match (self.kind, process) {
            (TrackKind::Row(Some(id)), Some(process)) if uuid == first.uuid => {
                out.put_message(track::THREAD, |thread| {
                    thread.put_int(track::THREAD_PROCESS_ID, process);
                    thread.put_int(track::THREAD_ID, id);
                    thread.put_bytes(track::THREAD_NAME, self.name.as_bytes());
                })
            }
            (TrackKind::Row(Some(_)), Some(_)) => {
                out.put_bytes(track::NAME, b"overlapping");
                out.put_uint(track::PARENT, first.uuid);
            }
            (kind, _) => {
                out.put_bytes(track::NAME, first.display_name().as_bytes());
                if self.group != 0 {
                    out.put_uint(track::PARENT, self.group);
                }
                out.put_int(track::RANK, first.order);
                if let TrackKind::Counter { is_bytes } = kind {
                    out.put_message(track::COUNTER, |counter| {
                        if is_bytes {
                            counter.put_uint(track::UNIT, track::UNIT_BYTES);
                        }
                    });
                }
            }
        });
    }

    /// Returns its ids and name in Kineto's JSON; empty if its events are not in that.
    fn description(&self) -> String {
        match (self.ids.as_str(), self.kind) {
            ("", _) => String::new(),
            (ids, TrackKind::Counter { .. }) => format!("{{{ids}}}"),
            (ids, TrackKind::Row(_)) => format!("{{{ids},\"name\":{}}}", Value::from(self.name.as_str())),
        }
    }

    fn display_name(&self) -> String {
        match (self.kind, self.name.as_str()) {
            (TrackKind::Row(Some(id)), "") => format!("stream {id}"),
            (_, name) => name.to_owned(),
        }
    }
}

/// The label of host processes.
const HOST: &str = "CPU";

fn lane_uuid(uuid: u64, lane: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (uuid, lane).hash(&mut hasher);
    if lane == 0 { uuid } else { hasher.finish().max(1) }
}

/// Returns the ids of a counter in Kineto's JSON, which has a set for each hardware counter and the GPU in its group.
fn counter_ids(activity: &Activity<'_>, series: &str, keeps_ids: bool) -> String {
    let is_hardware = activity.kind == ActivityType::HardwareCounters;
    let process = match activity.track.process {
        Place::Id(device) if is_hardware => format!("\"GPU {device} Counters\""),
        process => place_as_json(process),
    };
    let (name, series) = if is_hardware && !series.is_empty() { (series, "") } else { (activity.name, series) };
    let (name, series) = (Value::from(name), Value::from(series));
    let (thread, category) = (thread_as_json(activity.track.thread, keeps_ids), activity.kind.as_str());
    format!("\"pid\":{process},\"tid\":{thread},\"counter\":{name},\"series\":{series},\"cat\":\"{category}\"")
}

fn place_as_json(place: Place<'_>) -> String {
    match place {
        Place::Id(id) => id.to_string(),
        Place::Name(name) => Value::from(name).to_string(),
    }
}

/// Returns the id of a thread as Kineto's JSON has it: not negative, unless it is kept.
fn thread_id(id: i64, keeps_ids: bool) -> i64 {
    if keeps_ids { id } else { id.checked_abs().unwrap_or(0) }
}

fn thread_as_json(place: Place<'_>, keeps_ids: bool) -> String {
    match place {
        Place::Id(id) => thread_id(id, keeps_ids).to_string(),
        Place::Name(_) => place_as_json(place),
    }
}

fn put_descriptor(out: &mut Encoder, uuid: u64, description: &str, fill: impl FnOnce(&mut Encoder)) {
    out.put_message(packet::PACKET, |out| {
        out.put_message(packet::TRACK_DESCRIPTOR, |descriptor| {
            descriptor.put_uint(track::UUID, uuid);
            fill(descriptor);
            if !description.is_empty() {
                descriptor.put_bytes(track::DESCRIPTION, description.as_bytes());
            }
        });
    });
}

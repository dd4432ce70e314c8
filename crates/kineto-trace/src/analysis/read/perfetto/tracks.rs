//! Tracks of a file, and the rows of Kineto that they become.
//!
//! This crate writes the ids and names of Kineto's JSON into the description of each track. In other files they follow from
//! processes, threads and names, such as "GPU 0" and "stream 7".

use super::wire::ProtoMessage;
use crate::analysis::events::{EventProcess, TrackId};
use crate::analysis::json_reader::{Json, JsonValue, Result};
use crate::hash::HashMap;
use crate::write::perfetto::fields::track;
use std::borrow::Cow;

/// What the file says about a track.
#[derive(Clone, Debug, Default)]
pub(super) struct TrackDescription {
    parent: u64,
    name: String,
    process: Option<DescribedProcess>,
    thread: Option<(i64, i64, String)>,
    counts_bytes: bool,
    rank: i64,
    child_ordering: u64,
    ids: Option<KinetoIds>,
}

#[derive(Clone, Debug, Default)]
struct DescribedProcess {
    id: i64,
    name: String,
    labels: Vec<String>,
}

/// The ids and names that this crate writes.
#[derive(Clone, Debug, Default)]
struct KinetoIds {
    process: Option<TrackId>,
    thread: Option<TrackId>,
    name: Option<String>,
    labels: Option<String>,
    counter: Option<String>,
    series: String,
    category: String,
}

/// A row of Kineto.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KinetoRow {
    pub(super) process: TrackId,
    pub(super) thread: TrackId,
    pub(super) name: String,
}

/// A counter of Kineto: the set that it belongs to, and its name in that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KinetoCounter {
    pub(super) process: TrackId,
    pub(super) thread: TrackId,
    pub(super) name: String,
    pub(super) series: String,
    pub(super) category: String,
}

/// The described tracks of a file, by uuid.
#[derive(Debug, Default)]
pub(super) struct TrackDescriptions {
    by_uuid: HashMap<u64, TrackDescription>,
    /// The uuids in order of the file.
    order: Vec<u64>,
}

/// The maximum number of enclosing tracks that are followed, since they may form a circle.
const PARENTS_MAX: usize = 64;

impl TrackDescriptions {
    /// Reads a descriptor, which replaces an earlier one of the same track.
    pub(super) fn read_descriptor(&mut self, mut message: ProtoMessage<'_>) -> Result<()> {
        let (mut uuid, mut described) = (0, TrackDescription::default());
        while let Some((field, value)) = message.next_field()? {
            match field {
                track::UUID => uuid = value.number(),
                track::NAME => described.name = decode(value.bytes()),
                track::PROCESS => described.process = Some(read_process(value.message())?),
                track::THREAD => described.thread = Some(read_thread(value.message())?),
                track::PARENT => described.parent = value.number(),
                track::COUNTER => described.counts_bytes = counts_bytes(value.message())?,
                track::CHILD_ORDERING => described.child_ordering = value.number(),
                track::RANK => described.rank = value.signed(),
                track::DESCRIPTION => described.ids = read_ids(value.bytes()),
                _ => {}
            }
        }
        if self.by_uuid.insert(uuid, described).is_none() {
            self.order.push(uuid);
        }
        Ok(())
    }

    /// Returns the row of a track; `number` tells tracks without a description apart.
    pub(super) fn row(&self, uuid: u64, number: u32) -> KinetoRow {
        let Some(described) = self.by_uuid.get(&uuid) else {
            let (process, thread) = ("undescribed".to_owned(), format!("track {number}"));
            return KinetoRow { process: TrackId::Name(process), thread: TrackId::Name(thread), name: String::new() };
        };
        if let Some(KinetoIds { process: Some(process), thread: Some(thread), name, .. }) = &described.ids {
            let name = name.clone().unwrap_or_default();
            return KinetoRow { process: process.clone(), thread: thread.clone(), name };
        }
        let mut around = described;
        for _ in 0..PARENTS_MAX {
            if let Some((process, thread, name)) = &around.thread {
                return KinetoRow { process: TrackId::Id(*process), thread: TrackId::Id(*thread), name: name.clone() };
            }
            match self.by_uuid.get(&around.parent) {
                Some(parent) => around = parent,
                None => break,
            }
        }
        let name = &described.name;
        let process = match (&described.process, self.by_uuid.get(&described.parent)) {
            (Some(process), _) => TrackId::Id(process.id),
            (None, Some(parent)) => group_id(parent),
            (None, None) => TrackId::Name(String::new()),
        };
        let thread = trailing_number(name, "stream ").map_or_else(|| TrackId::Name(name.clone()), TrackId::Id);
        KinetoRow { process, thread, name: name.clone() }
    }

    /// Returns whether the file describes a track.
    pub(super) fn has_track(&self, uuid: u64) -> bool {
        self.by_uuid.contains_key(&uuid)
    }

    /// Returns the counter that a track shows; `None` if it is not described, or derived from other events.
    pub(super) fn counter(&self, uuid: u64, number: u32) -> Option<KinetoCounter> {
        let described = self.by_uuid.get(&uuid)?;
        if let Some(KinetoIds {
            process: Some(process),
            thread: Some(thread),
            counter: Some(name),
            series,
            category,
            ..
        }) = &described.ids
        {
            let (process, thread, name) = (process.clone(), thread.clone(), name.clone());
            return Some(KinetoCounter { process, thread, name, series: series.clone(), category: category.clone() });
        }
        let is_total =
            || ["Total Allocated (", "Total Reserved ("].iter().any(|total| described.name.starts_with(total));
        if described.counts_bytes && is_total() {
            return None;
        }
        let KinetoRow { process, .. } = self.row(uuid, number);
        let name = described.name.clone();
        let (series, category) = Default::default();
        Some(KinetoCounter { process, thread: TrackId::Id(0), name, series, category })
    }

    /// Returns the rows that this crate has named.
    pub(super) fn named_rows(&self) -> impl Iterator<Item = (TrackId, TrackId, &str)> {
        self.by_uuid.values().filter_map(|described| match described.ids.as_ref()? {
            KinetoIds { process: Some(process), thread: Some(thread), name: Some(name), .. } => {
                Some((process.clone(), thread.clone(), name.as_str()))
            }
            _ => None,
        })
    }

    /// Returns the processes and devices that have a name, in order of the file.
    pub(super) fn processes(&self) -> impl Iterator<Item = EventProcess> {
        let described = self.order.iter().filter_map(|uuid| self.by_uuid.get(uuid));
        described.filter_map(|described| match (&described.ids, &described.process) {
            (Some(KinetoIds { process: Some(id), thread: None, name: Some(name), labels, .. }), _) => {
                Some(EventProcess { id: id.clone(), name: name.clone(), label: labels.clone().unwrap_or_default() })
            }
            (Some(_), _) => None,
            (None, Some(process)) => Some(EventProcess {
                id: TrackId::Id(process.id),
                name: process.name.clone(),
                label: process.labels.join(", "),
            }),
            (None, None) => match group_id(described) {
                id @ TrackId::Id(_) => Some(EventProcess { id, name: String::new(), label: described.name.clone() }),
                TrackId::Name(_) => None,
            },
        })
    }

    /// Returns the key by which the parent of a track sorts its children.
    pub(super) fn sort_key(&self, uuid: u64) -> (i64, String) {
        let Some(described) = self.by_uuid.get(&uuid) else { return (i64::MAX, String::new()) };
        match self.by_uuid.get(&described.parent).map_or(0, |parent| parent.child_ordering) {
            track::BY_RANK => (described.rank, String::new()),
            track::BY_NAME => (0, described.name.clone()),
            _ => (0, String::new()),
        }
    }
}

/// Returns the process of the tracks below a track: a process, a device by its name, or the name.
fn group_id(described: &TrackDescription) -> TrackId {
    if let Some(id) = described.ids.as_ref().and_then(|ids| ids.process.clone()) {
        return id;
    }
    match &described.process {
        Some(process) => TrackId::Id(process.id),
        None => {
            let name = &described.name;
            trailing_number(name, "GPU ").map_or_else(|| TrackId::Name(name.clone()), TrackId::Id)
        }
    }
}

/// Returns the number behind a word.
fn trailing_number(name: &str, word: &str) -> Option<i64> {
    name.strip_prefix(word)?.trim_end().parse().ok()
}

fn decode(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read_process(mut message: ProtoMessage<'_>) -> Result<DescribedProcess> {
    let mut process = DescribedProcess::default();
    while let Some((field, value)) = message.next_field()? {
        match field {
            track::PROCESS_ID => process.id = value.signed(),
            track::PROCESS_NAME => process.name = decode(value.bytes()),
            track::PROCESS_LABELS => process.labels.push(decode(value.bytes())),
            _ => {}
        }
    }
    Ok(process)
}

fn read_thread(mut message: ProtoMessage<'_>) -> Result<(i64, i64, String)> {
    let mut thread = (0, 0, String::new());
    while let Some((field, value)) = message.next_field()? {
        match field {
            track::THREAD_PROCESS_ID => thread.0 = value.signed(),
            track::THREAD_ID => thread.1 = value.signed(),
            track::THREAD_NAME => thread.2 = decode(value.bytes()),
            _ => {}
        }
    }
    Ok(thread)
}

fn counts_bytes(mut message: ProtoMessage<'_>) -> Result<bool> {
    let mut is_bytes = false;
    while let Some((field, value)) = message.next_field()? {
        if field == track::UNIT {
            is_bytes = value.number() == track::UNIT_BYTES;
        }
    }
    Ok(is_bytes)
}

/// Reads a description; `None` if it is another text than this crate writes.
fn read_ids(description: &[u8]) -> Option<KinetoIds> {
    let (mut ids, mut json) = (KinetoIds::default(), Json::new(description, 0));
    let text = |value: JsonValue<'_>| match value {
        JsonValue::Text(text) => text.decode_text().0.into_owned(),
        _ => String::new(),
    };
    let id = |value: JsonValue<'_>| match value {
        JsonValue::Number(number) => number.as_integer().map(TrackId::Id),
        JsonValue::Text(text) => Some(TrackId::Name(text.decode_text().0.into_owned())),
        _ => None,
    };
    let read = json.read_object(|key, json| {
        let (key, value): (Cow<'_, str>, _) = (key.decode_text().0, json.read_value()?);
        match key.as_ref() {
            "pid" => ids.process = id(value),
            "tid" => ids.thread = id(value),
            "name" => ids.name = Some(text(value)),
            "labels" => ids.labels = Some(text(value)),
            "counter" => ids.counter = Some(text(value)),
            "series" => ids.series = text(value),
            "cat" => ids.category = text(value),
            _ => {}
        }
        Ok(())
    });
    read.ok().filter(|()| ids.process.is_some()).map(|()| ids)
}

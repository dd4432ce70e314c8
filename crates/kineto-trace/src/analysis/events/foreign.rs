//! Device work and operations in traces of other tools, whose slices have no category of Kineto.
//!
//! Some tools tell device work by the names of processes and rows alone. Each piece of work is on one row of a stream; the other rows
//! of a device repeat it, by operation or by module, and become annotations.
//!
//! | Tool | Process of a device | Rows with its work |
//! |---|---|---|
//! | XLA (JAX, TensorFlow) | `/device:GPU:0` | `Stream #13(Compute)`; without such rows `XLA Ops` |
//! | `torch_npu` (Ascend) | `Ascend Hardware` | `Stream 2` |

use super::builder::Builder;
use super::notes::Note;
use super::{EventRow, EventTrack, Events, Phase, TrackId};
use crate::activity::ActivityType;
use crate::hash::{HashMap, HashSet};

/// What the slices of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowRole {
    Host,
    /// Work of a stream.
    Stream,
    /// Work by operation.
    Operations,
    /// Another row of a device.
    Other,
}

impl RowRole {
    fn of(process: &str, row: &str) -> RowRole {
        let is_device =
            process == "Ascend Hardware" || process.starts_with("/device:") && !process.starts_with("/device:CPU");
        match row {
            _ if !is_device => RowRole::Host,
            "XLA Ops" => RowRole::Operations,
            _ if row.starts_with("Stream ") => RowRole::Stream,
            _ => RowRole::Other,
        }
    }
}

impl Builder {
    /// Gives a type to the slices whose category Kineto does not know: those on rows of devices become device work and annotations.
    /// If the file has no slice of a known type and no header of its format, another tool wrote it, whose categories are
    /// its own, such as the module paths of tracing-chrome: the rest are operations.
    pub(super) fn take_foreign_slices(&mut self) {
        let is_known = |row: &EventRow| row.phase == Phase::Slice && row.kind.is_some();
        let is_foreign = !self.is_kinetos && !self.events.rows.iter().any(is_known);
        self.take_device_rows();
        if is_foreign {
            for row in foreign_slices(&mut self.events.rows) {
                row.kind = Some(ActivityType::CpuOp);
            }
        }
    }

    fn take_device_rows(&mut self) {
        let Events { tracks, processes, strings, rows, notes, .. } = &mut self.events;
        if processes.iter().all(|process| RowRole::of(&process.name, "") == RowRole::Host) {
            return;
        }
        let names: HashMap<&TrackId, &str> =
            processes.iter().map(|process| (&process.id, process.name.as_str())).collect();
        let role =
            |track: &EventTrack| RowRole::of(names.get(&track.process).copied().unwrap_or_default(), &track.name);
        let roles: Vec<RowRole> = tracks.iter().map(role).collect();
        let with = |role: RowRole| {
            let of_role = tracks.iter().zip(&roles).filter(move |(_, found)| **found == role);
            of_role.map(|(track, _)| &track.process).collect::<HashSet<_>>()
        };
        let (with_streams, with_operations) = (with(RowRole::Stream), with(RowRole::Operations));
        for row in foreign_slices(rows) {
            let (track, role) = (tracks.get(row.track as usize), roles.get(row.track as usize));
            let (Some(track), Some(role)) = (track, role.filter(|role| **role != RowRole::Host)) else { continue };
            let has_streams = with_streams.contains(&track.process);
            let is_work = *role == RowRole::Stream || *role == RowRole::Operations && !has_streams;
            if !has_streams && !with_operations.contains(&track.process) {
                notes.add(Note::UnknownDevice, 1);
            }
            let kind = match strings.get(row.name) {
                _ if !is_work => ActivityType::GpuUserAnnotation,
                // Waits of Ascend's streams.
                name if name.starts_with("EVENT_") || name.starts_with("NOTIFY_") => ActivityType::GpuUserAnnotation,
                name if name.starts_with("Memcpy") => ActivityType::GpuMemcpy,
                name if name.starts_with("Memset") => ActivityType::GpuMemset,
                _ => ActivityType::ConcurrentKernel,
            };
            (row.kind, row.category) = (Some(kind), strings.intern(kind.as_str()));
        }
    }
}

/// Returns the slices without a known type.
fn foreign_slices(rows: &mut [EventRow]) -> impl Iterator<Item = &mut EventRow> {
    rows.iter_mut().filter(|row| row.phase == Phase::Slice && row.kind.is_none())
}

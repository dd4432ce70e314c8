//! Totals of a path by kind and by name.

use super::{PathKind, PathPiece, PathPlace};
use crate::analysis::summary::findings::percent_of;
use crate::hash::HashMap;
use crate::time::Timestamp;
use std::cmp::Reverse;
use std::ops::Range;

/// The totals of a critical path. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathFigures {
    /// The start of the window.
    pub start: Timestamp,
    /// The length of the window, which is the sum of all kinds.
    pub window_ns: u64,
    /// The kinds that occur, sorted by descending time.
    pub kinds: Vec<PathKindFigures>,
    /// Work, operations, calls and annotations by kind and name, without waits; sorted by descending time.
    pub names: Vec<PathNameFigures>,
}

/// The pieces of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathKindFigures {
    /// The kind.
    pub kind: PathKind,
    /// The sum of their durations.
    pub ns: u64,
    /// Their number.
    pub pieces: u64,
}

/// The pieces of one kind whose events have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathNameFigures {
    /// The kind.
    pub kind: PathKind,
    /// The name.
    pub name: String,
    /// The sum of their durations.
    pub ns: u64,
    /// Their number.
    pub pieces: u64,
}

/// The critical path of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepPath {
    /// The step's number.
    pub number: u64,
    /// The totals of its path.
    pub figures: PathFigures,
}

impl PathFigures {
    pub(super) fn new<'e>(window: Range<Timestamp>, pieces: impl Iterator<Item = PathPiece<'e>>) -> PathFigures {
        let mut kinds = PathKind::ALL.map(|kind| PathKindFigures { kind, ns: 0, pieces: 0 });
        let mut names: HashMap<_, (u64, u64, &str)> = HashMap::default();
        for piece in pieces {
            let ns = piece.duration_ns();
            for kind in kinds.iter_mut().filter(|row| row.kind == piece.kind) {
                (kind.ns, kind.pieces) = (kind.ns + ns, kind.pieces + 1);
            }
            if let Some(event) = piece.event.filter(|_| piece.kind.place() != PathPlace::Wait) {
                let row = names.entry((piece.kind, event.name_id())).or_insert_with(|| (0, 0, event.name()));
                (row.0, row.1) = (row.0 + ns, row.1 + 1);
            }
        }
        let mut kinds: Vec<_> = kinds.into_iter().filter(|row| row.pieces > 0).collect();
        kinds.sort_by_key(|row| (Reverse(row.ns), row.kind));
        let name = |((kind, _), (ns, pieces, name)): (_, (u64, u64, &str))| PathNameFigures {
            kind,
            name: name.to_owned(),
            ns,
            pieces,
        };
        let mut names: Vec<_> = names.into_iter().map(name).collect();
        names.sort_by(|a, b| (b.ns, &a.name, a.kind).cmp(&(a.ns, &b.name, b.kind)));
        PathFigures { start: window.start, window_ns: window.end.since(window.start), kinds, names }
    }

    /// Returns the time of one kind, in nanoseconds.
    pub fn kind_ns(&self, kind: PathKind) -> u64 {
        self.kinds.iter().filter(|row| row.kind == kind).map(|row| row.ns).sum()
    }

    /// Returns the time in one place, in nanoseconds: the share of devices, of the host, or of waits.
    pub fn place_ns(&self, place: PathPlace) -> u64 {
        self.kinds.iter().filter(|row| row.kind.place() == place).map(|row| row.ns).sum()
    }

    /// Returns the share of one place in percent; 0 for an empty window.
    pub fn place_percent(&self, place: PathPlace) -> f64 {
        percent_of(self.place_ns(place), self.window_ns)
    }

    /// Returns the kernels, copies and fills by name ([`Device`](PathPlace::Device)), or operations, calls and annotations
    /// ([`Host`](PathPlace::Host)), sorted by descending time.
    pub fn names_in(&self, place: PathPlace) -> impl Iterator<Item = &PathNameFigures> {
        self.names.iter().filter(move |row| row.kind.place() == place)
    }
}

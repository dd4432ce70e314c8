//! Totals of a path by kind and by name.

use super::{PathKind, PathPiece, PathPlace};
use crate::analysis::summary::findings::percent_of;
use crate::hash::HashMap;
use crate::sorting::{sort_few_by, sort_few_by_key};
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
    /// The longest pieces of a host outside of operations, at most three, longest first.
    pub longest_outside: Vec<PathStretch>,
}

/// A piece of a path in which a thread is outside of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStretch {
    /// The start.
    pub start: Timestamp,
    /// The duration, in nanoseconds.
    pub ns: u64,
    /// The annotation or function around it.
    pub around: Option<String>,
    /// The event of the piece before it.
    pub before: Option<String>,
    /// The event of the piece after it.
    pub after: Option<String>,
}

/// The longest pieces outside of operations, each with the pieces next to it.
#[derive(Default)]
struct LongestOutside<'e> {
    recent: [Option<PathPiece<'e>>; 2],
    found: Vec<[Option<PathPiece<'e>>; 3]>,
}

impl<'e> LongestOutside<'e> {
    const MOST: usize = 3;

    /// Adds the next piece, in order of time or backwards; `None` ends the path.
    fn add(&mut self, piece: Option<PathPiece<'e>>) {
        let [before, middle] = self.recent;
        self.recent = [middle, piece];
        let Some(found) = middle.filter(|middle| middle.kind == PathKind::OutsideOperations) else { return };
        let key = |piece: &PathPiece<'_>| (Reverse(piece.duration_ns()), piece.start);
        let at = self.found.partition_point(|longer| longer[1].is_some_and(|longer| key(&longer) <= key(&found)));
        if at < Self::MOST {
            self.found.insert(at, [before, middle, piece]);
            self.found.truncate(Self::MOST);
        }
    }

    fn into_stretches(self) -> Vec<PathStretch> {
        let name = |piece: Option<PathPiece<'_>>| piece?.event.map(|event| event.name().to_owned());
        let stretch = |[one, middle, other]: [Option<PathPiece<'e>>; 3]| {
            let middle = middle?;
            let is_backward = one.is_some_and(|one| one.start > middle.start)
                || other.is_some_and(|other| other.start < middle.start);
            let (before, after) = if is_backward { (other, one) } else { (one, other) };
            let (around, before, after) = (name(Some(middle)), name(before), name(after));
            Some(PathStretch { start: middle.start, ns: middle.duration_ns(), around, before, after })
        };
        self.found.into_iter().filter_map(stretch).collect()
    }
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
        let mut kinds: Vec<_> =
            PathKind::ALL.iter().map(|kind| PathKindFigures { kind: *kind, ns: 0, pieces: 0 }).collect();
        let mut names: HashMap<_, (u64, u64, &str)> = HashMap::default();
        let mut outside = LongestOutside::default();
        for piece in pieces {
            outside.add(Some(piece));
            let ns = piece.duration_ns();
            for kind in kinds.iter_mut().filter(|row| row.kind == piece.kind) {
                (kind.ns, kind.pieces) = (kind.ns + ns, kind.pieces + 1);
            }
            if let Some(event) = piece.event.filter(|_| piece.kind.place() != PathPlace::Wait) {
                let row = names.entry((piece.kind, event.name_id())).or_insert_with(|| (0, 0, event.name()));
                (row.0, row.1) = (row.0 + ns, row.1 + 1);
            }
        }
        outside.add(None);
        kinds.retain(|row| row.pieces > 0);
        sort_few_by_key(&mut kinds, |row| (Reverse(row.ns), row.kind));
        let name = |((kind, _), (ns, pieces, name)): (_, (u64, u64, &str))| PathNameFigures {
            kind,
            name: name.to_owned(),
            ns,
            pieces,
        };
        let mut names: Vec<_> = names.into_iter().map(name).collect();
        sort_few_by(&mut names, |a, b| (b.ns, &a.name, a.kind).cmp(&(a.ns, &b.name, b.kind)));
        PathFigures {
            start: window.start,
            window_ns: window.end.since(window.start),
            kinds,
            names,
            longest_outside: outside.into_stretches(),
        }
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

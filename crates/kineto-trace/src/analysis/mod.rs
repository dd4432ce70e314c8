//! Analysis of a trace: its events in memory, from a recording or a file, and the tables computed from them.

mod averages;
mod both;
pub mod check;
mod csv;
mod diff;
mod events;
mod filter;
mod flops;
mod json;
mod percentile;
mod read;
mod relations;
mod rewrite;
#[cfg(test)]
mod sample;
mod speedscope;
mod stacks;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod timeline;
mod tree;
mod validate;

pub use crate::{Error, ErrorKind};
pub use averages::{Average, AveragesBuilder, GroupBy, KeyAverages, Section, SortBy, Table, TimeUnit};
pub use diff::{
    ChangeVerdict, ClassChange, ClassKind, ClassMove, ClassSide, Diff, DiffOptions, DiffPart, DiffScreen, DiffSide,
    DiffTotal, DiffUnit, LeftOutReason, LeftOutTrace, MatchReason, TraceProfile,
};
#[doc(hidden)]
pub use events::Builder;
pub use events::{Event, EventMetadata, EventProcess, EventTrack, Events, Note, OccupancyMetadata, Shape, TrackId};
pub use filter::EventFilter;
pub use flops::{FlopModel, FlopRegistry, Operands};
pub use read::{ReadOptions, Repair, repair};
pub use relations::{Attribution, AttributionCounts};
pub use stacks::{FoldedStacks, StackMetric};
pub use summary::Summary;
pub use tree::{EventTree, Violation};
pub use validate::BrokenRule;

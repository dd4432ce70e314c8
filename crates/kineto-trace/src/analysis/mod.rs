//! Analysis of a trace: its events in memory, from a recording or a file, and the tables computed from them.

mod averages;
#[cfg(feature = "reports")]
mod both;
#[cfg(feature = "reports")]
pub mod check;
mod csv;
#[cfg(feature = "reports")]
mod diff;
mod events;
mod fault;
mod filter;
mod flops;
mod json;
mod json_reader;
#[cfg(feature = "reports")]
mod percentile;
#[cfg(feature = "files")]
mod read;
mod relations;
#[cfg(feature = "files")]
mod rewrite;
#[cfg(test)]
mod sample;
mod speedscope;
mod stacks;
#[cfg(feature = "reports")]
pub mod summary;
#[cfg(test)]
mod tests;
#[cfg(feature = "reports")]
pub mod timeline;
mod tree;
#[cfg(feature = "reports")]
mod validate;

pub use crate::{Error, ErrorKind};
pub use averages::{Average, AveragesBuilder, GroupBy, KeyAverages, Section, SortBy, Table, TimeUnit};
#[cfg(feature = "reports")]
pub use diff::{
    ChangeVerdict, ClassChange, ClassKind, ClassMove, ClassSide, Diff, DiffOptions, DiffPart, DiffScreen, DiffSide,
    DiffTotal, DiffUnit, LeftOutReason, LeftOutTrace, MatchReason, TraceProfile,
};
#[doc(hidden)]
pub use events::Builder;
pub use events::{Event, EventMetadata, EventProcess, EventTrack, Events, Note, OccupancyMetadata, Shape, TrackId};
pub use filter::EventFilter;
pub use flops::{FlopModel, FlopRegistry, Operands};
#[cfg(feature = "files")]
pub use read::{ReadOptions, Repair, repair};
pub use relations::{Attribution, AttributionCounts};
pub use stacks::{FoldedStacks, StackMetric};
#[cfg(feature = "reports")]
pub use summary::Summary;
pub use tree::{EventTree, Violation};
#[cfg(feature = "reports")]
pub use validate::BrokenRule;

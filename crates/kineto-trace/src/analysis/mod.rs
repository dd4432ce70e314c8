//! Analysis of a trace: its events in memory, from a recording or a file, and the tables computed from them.

mod arguments;
mod arrows;
mod attribution;
mod averages;
mod averaging;
mod both;
mod builder;
mod by_id;
mod columns;
mod deadline;
mod event;
mod events;
mod export;
mod flops;
mod forest;
mod futures;
mod metadata;
mod nesting;
mod notes;
mod op;
mod read;
mod recorded;
mod rewrite;
#[cfg(test)]
mod sample;
mod shape;
mod sort;
mod stacks;
mod strings;
pub mod summary;
mod table;
mod timed;
mod tree;
mod units;
mod validate;
mod values;

pub use crate::error::{Error, ErrorKind};
pub use attribution::{Attribution, AttributionCounts};
pub use averages::{Average, KeyAverages, Section};
pub use averaging::{Averaging, GroupBy};
#[doc(hidden)]
pub use builder::Builder;
pub use event::Event;
pub use events::{EventProcess, EventTrack, Events, TrackId};
pub use flops::{FlopModel, FlopRegistry, Operands};
pub use metadata::{EventMetadata, OccupancyMetadata};
pub use notes::Note;
pub use read::{ReadOptions, Repair, repair};
pub use shape::Shape;
pub use sort::SortBy;
pub use stacks::{FoldedStacks, StackMetric};
pub use summary::Summary;
pub use table::Table;
pub use tree::{EventTree, Violation};
pub use units::TimeUnit;
pub use validate::BrokenRule;

//! What a trace says: its events in memory, from a recording or from a file, and the figures that are made of them.

mod arguments;
mod arrows;
mod attribution;
mod builder;
mod event;
mod events;
mod metadata;
mod nesting;
mod notes;
mod op;
mod read;
mod recorded;
mod shape;
mod strings;
mod tree;
mod values;

pub use attribution::{Attribution, AttributionCounts};
pub use event::Event;
pub use events::{EventProcess, EventTrack, Events, TrackId};
pub use metadata::{EventMetadata, OccupancyMetadata};
pub use notes::Note;
pub use read::ReadOptions;
pub use shape::Shape;
pub use tree::{EventTree, Violation};

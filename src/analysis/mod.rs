//! What a trace says: its events in memory, from a recording or from a file, and the figures that are made of them.

mod arguments;
mod event;
mod events;
mod recorded;
mod strings;

pub use event::Event;
pub use events::{EventTrack, Events, TrackId};

//! What the layer records of a program's spans and events.

mod async_calls;
mod async_tracks;
mod asyncs;
mod calls;
mod corners;
mod enters_fuzz;
mod events;
mod fields;
mod formatting;
mod instrument;
mod keep_newest;
mod limits;
mod names_and_kinds;
mod nesting;
mod other_layers;
mod scopes;
mod send_sync;
mod shape;
mod sharing;
mod stacks_and_counters;
mod thread_selection;
mod threads;

/// Depth up to which a thread keeps spans in frames (`src/recorder/frames.rs`); deeper spans take another path.
const FRAMES: usize = 254;

#[test]
fn frame_count_matches_the_source() {
    let source = include_str!("../../../src/recorder/frames.rs");
    assert!(source.contains(&format!("const FRAMES: usize = {};", FRAMES + 2)));
}

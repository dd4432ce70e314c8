//! Spans and events of a program: what the layer records of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod async_calls;
mod async_tracks;
mod asyncs;
mod companions;
mod corners;
mod events;
mod fields;
mod formatting;
mod instrument;
mod limits;
mod names_and_kinds;
mod nesting;
mod other_layers;
mod reach;
mod scopes;
mod send_sync;
mod shape;
mod sharing;
mod threads;

/// So many spans deep a thread has frames for them (`src/recorder/frames.rs`); deeper ones are kept otherwise.
const FRAMES: usize = 254;

#[test]
fn there_are_as_many_frames_as_the_tests_suppose() {
    let source = include_str!("../../src/recorder/frames.rs");
    assert!(source.contains(&format!("const FRAMES: usize = {};", FRAMES + 2)));
}

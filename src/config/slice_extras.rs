//! What slices are to have beside their times.

use tracing_subscriber::filter::Targets;

/// How stacks are, and which counters of the CPU there are.
#[derive(Clone, Debug)]
pub(crate) struct SliceExtrasConfig {
    /// The most frames of a stack.
    pub(crate) stack_frames: usize,
    /// Whose spans have stacks; all, if it says nothing.
    pub(crate) stack_filter: Option<Targets>,
    /// What is counted, by name.
    pub(crate) performance_events: Vec<String>,
}

impl Default for SliceExtrasConfig {
    fn default() -> SliceExtrasConfig {
        SliceExtrasConfig { stack_frames: 32, stack_filter: None, performance_events: Vec::new() }
    }
}

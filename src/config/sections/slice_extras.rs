//! Settings of stacks and counters of slices.

use std::sync::Arc;
use tracing_subscriber::filter::Targets;

/// The stacks and CPU counters of slices.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceExtrasConfig {
    /// The most frames of a stack.
    pub(crate) stack_frames: usize,
    /// The spans with stacks; all if unset.
    pub(crate) stack_filter: Option<Arc<Targets>>,
    /// The names of the counted events.
    pub(crate) performance_events: Vec<String>,
}

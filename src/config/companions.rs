//! What slices are to have beside their times.

use super::keys::Key;
use super::value::Value;
use tracing_subscriber::filter::Targets;

/// How stacks are, and which counters of the CPU there are.
#[derive(Clone, Debug)]
pub(crate) struct Companions {
    /// The most frames of a stack.
    pub(crate) stack_frames: usize,
    /// Whose spans have stacks; all, if it says nothing.
    pub(crate) stack_filter: Option<Targets>,
    /// What is counted, by name.
    pub(crate) performance_events: Vec<String>,
}

impl Companions {
    /// Sets what a key stands for; `false` if it is none of these.
    pub(super) fn set(&mut self, key: Key, value: &Value) -> bool {
        match (key, value) {
            (Key::StackFrames, Value::Int(frames)) => self.stack_frames = usize::try_from(*frames).unwrap_or(0),
            (Key::StackFilter, Value::Filter(targets)) => self.stack_filter = Some((**targets).clone()),
            (Key::PerformanceEvents, Value::List(names)) => self.performance_events.clone_from(names),
            _ => return false,
        }
        true
    }
}

impl Default for Companions {
    fn default() -> Companions {
        Companions { stack_frames: 32, stack_filter: None, performance_events: Vec::new() }
    }
}

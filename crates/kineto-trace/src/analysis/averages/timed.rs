//! Device rows measured by events around operations, and the part of each that belongs to its operation alone.

use crate::activity::{ActivityType, ArgValue};
use crate::analysis::events::{Event, Events};
use crate::analysis::relations::{Attribution, Forest, Nesting};
use crate::hash::HashMap;

/// Finds the node of a forest that device work counts for.
#[derive(Debug)]
pub(super) struct WorkNodes<'t> {
    pub(super) attribution: &'t Attribution<'t>,
    pub(super) nesting: &'t Nesting,
    pub(super) forest: &'t Forest,
}

impl<'t> WorkNodes<'t> {
    /// Returns the node of the work's operation; if that is not in the forest, of the closest enclosing operation that is.
    pub(super) fn op_node(&self, work: Event<'_>) -> Option<usize> {
        let around = |op: &Event<'t>| self.nesting.parent(*op);
        let mut ops = std::iter::successors(self.attribution.op(work), around).filter(Event::is_op);
        ops.find_map(|op| self.forest.node_of(op.index()))
    }
}

/// Time of nested operations inside timed rows, which would otherwise count twice.
#[derive(Debug, Default)]
pub(super) struct TimedWork {
    /// By operation: the time of timed rows of operations inside it.
    within_ns: HashMap<usize, u64>,
}

impl TimedWork {
    pub(super) fn new(events: &Events, nodes: &WorkNodes<'_>) -> TimedWork {
        let forest = nodes.forest;
        let mut all_ns: HashMap<usize, u64> = HashMap::default();
        for event in events.iter().filter(is_timed) {
            if let Some(node) = nodes.op_node(event) {
                *all_ns.entry(node).or_default() += event.duration_ns();
            }
        }
        let mut within_ns: HashMap<usize, u64> = HashMap::default();
        for (node, ns) in &all_ns {
            let mut around = std::iter::successors(forest.parent(*node), |node| forest.parent(*node));
            if let Some(timed) = around.find(|node| all_ns.contains_key(node)) {
                *within_ns.entry(timed).or_default() += ns;
            }
        }
        TimedWork { within_ns }
    }

    /// Returns the duration of an operation's device work, without the part counted for operations inside.
    pub(super) fn own_ns(&mut self, event: &Event<'_>, node: Option<usize>) -> u64 {
        let ns = event.duration_ns();
        match node.and_then(|node| self.within_ns.get_mut(&node)).filter(|_| is_timed(event)) {
            Some(within) => {
                let others = ns.min(*within);
                *within -= others;
                ns - others
            }
            None => ns,
        }
    }
}

/// Returns whether a device row lasts from one event around an operation to another, as
/// `tracing_kineto::integration::EventTimers` measures it.
pub(crate) fn is_timed(event: &Event<'_>) -> bool {
    event.kind() == Some(ActivityType::GpuUserAnnotation)
        && matches!(event.exact_arg("timing_source"), Some(ArgValue::Str("events")))
}

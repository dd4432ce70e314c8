//! The outline of one step: what ran inside what, and in which order.

use super::profile::Profiler;
use crate::analysis::events::{Event, Events};
use crate::analysis::relations::{Attribution, Forest};
use crate::analysis::summary::{Devices, WorkClass};
use crate::hash::HashMap;
use crate::sorting::sort_few_by_key;
use crate::time::Timestamp;
use std::ops::Range;

/// The nodes of a step of median length, or of the trace if it has no steps. Node 0 is the step itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Outline {
    pub(super) nodes: Vec<OutlineNode>,
}

/// An event of the step, or several of one class inside the same node.
#[derive(Clone, Debug, Default)]
pub(super) struct OutlineNode {
    /// The class; `None` for the step itself.
    pub(super) class: Option<u32>,
    /// The nodes inside, in order.
    pub(super) children: Vec<u32>,
    pub(super) count: u64,
    /// The duration of device work, or the self time.
    pub(super) ns: u64,
    /// The blocks of the grid times the threads of a block; 0 if unknown.
    pub(super) threads: u64,
}

/// An event to place into the outline.
struct Placed<'e> {
    /// The host thread, then the time: of the launch for device work.
    order: (usize, Timestamp),
    event: Event<'e>,
    /// The event around it.
    parent: Option<usize>,
    ns: u64,
}

impl Outline {
    /// The most nodes. If a step has more events, those of one class inside one node share a node.
    pub(super) const MAX_NODES: usize = 20_000;

    pub(super) fn new(
        profiler: &Profiler,
        events: &Events,
        forest: &Forest,
        devices: &Devices<'_>,
        attribution: &Attribution<'_>,
    ) -> Outline {
        let window = median_window(&profiler.windows).unwrap_or(events.slice_range());
        let mut threads: HashMap<usize, usize> = HashMap::default();
        let mut thread_rank = |event: &Event<'_>| {
            let next = threads.len();
            *threads.entry(event.track_index()).or_insert(next)
        };
        let own = forest.self_ns();
        let mut placed = Vec::new();
        for node in forest.unmerged_nodes() {
            let event = forest.node_event(events, node).filter(|event| window.contains(&event.start()));
            let Some(event) = event.filter(|event| profiler.class_of(event.index()).is_some()) else { continue };
            let parent = forest.parent(node).and_then(|parent| forest.node_event(events, parent));
            let ns = own.get(node).map_or(0, |ns| u64::try_from(*ns).unwrap_or(0));
            let order = (thread_rank(&event), event.start());
            placed.push(Placed { order, event, parent: parent.map(|parent| parent.index()), ns });
        }
        for work in devices.work.iter().filter(|work| work.class != WorkClass::Wait) {
            let at = work.launch.map_or(work.start(), |launch| launch.start());
            if window.contains(&at) {
                let thread = work.launch.as_ref().map_or(usize::MAX, &mut thread_rank);
                let parent = attribution.op(work.event).and_then(|op| forest.node_of(op.index()));
                let parent = parent.and_then(|node| forest.node_event(events, node)).map(|op| op.index());
                placed.push(Placed { order: (thread, at), event: work.event, parent, ns: work.duration_ns() });
            }
        }
        sort_few_by_key(&mut placed, |placed| placed.order);
        Outline::from_placed(profiler, &placed)
    }

    /// Arranges events. Large steps have few nodes: only classes with a share of the time have one, and what is inside others hangs below what is
    /// around them.
    fn from_placed(profiler: &Profiler, placed: &[Placed<'_>]) -> Outline {
        let folds = placed.len() > Outline::MAX_NODES;
        let all: u64 = profiler.classes.iter().fold(0, |sum, class| sum.saturating_add(class.ns));
        let least = if folds { all / Outline::MAX_NODES as u64 } else { 0 };
        let mut outline = Outline { nodes: vec![OutlineNode::default()] };
        let mut of_event: HashMap<usize, u32> = HashMap::default();
        let mut folded: HashMap<(u32, u32), u32> = HashMap::default();
        for placed in placed {
            let Some(class) = profiler.class_of(placed.event.index()) else { continue };
            let parent = placed.parent.and_then(|parent| of_event.get(&parent)).copied().unwrap_or(0);
            let known = folded.get(&(parent, class)).copied().filter(|_| folds);
            let is_small = profiler.classes.get(class as usize).is_none_or(|of| of.ns < least);
            if known.is_none() && (is_small || outline.nodes.len() > Outline::MAX_NODES) {
                of_event.insert(placed.event.index(), parent);
                continue;
            }
            let number = known.unwrap_or_else(|| outline.add_node(class, parent, thread_count(placed.event)));
            folded.insert((parent, class), number);
            if let Some(node) = outline.nodes.get_mut(number as usize) {
                (node.count, node.ns) = (node.count + 1, node.ns.saturating_add(placed.ns));
            }
            of_event.insert(placed.event.index(), number);
        }
        outline
    }

    /// Adds a node, and returns its number.
    fn add_node(&mut self, class: u32, parent: u32, threads: u64) -> u32 {
        let number = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(OutlineNode { class: Some(class), threads, ..Default::default() });
        self.nodes.get_mut(parent as usize).into_iter().for_each(|parent| parent.children.push(number));
        number
    }
}

fn median_window(windows: &[Range<Timestamp>]) -> Option<Range<Timestamp>> {
    let mut order: Vec<_> =
        windows.iter().map(|window| (window.end.since(window.start), window.start, window)).collect();
    sort_few_by_key(&mut order, |(ns, start, _)| (*ns, *start));
    order.get(order.len() / 2).map(|(.., window)| (*window).clone())
}

/// Returns the number of threads of a kernel; 0 if unknown.
fn thread_count(event: Event<'_>) -> u64 {
    let product = |sizes: Option<[u32; 3]>| {
        sizes.map_or(0, |sizes| sizes.into_iter().fold(1u64, |all, size| all.saturating_mul(u64::from(size))))
    };
    let metadata = event.metadata();
    product(metadata.grid()).saturating_mul(product(metadata.block()))
}

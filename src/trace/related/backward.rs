//! Joins backward operations to forward operations, by torch's rule.

use crate::time::Timestamp;
use kineto_base::fallible::{List, Map};
use kineto_base::sorting::sort_in_place_by_key;
use kineto_model::activity::{
    Activity, ActivityType, ArgValue, Args, Body, Flow, FlowEnd, FlowKind, Lane, RecordScope, Track,
};
use std::cmp::Reverse;

/// The autograd engine's name of the operation around each backward one.
pub(super) const EVALUATE: &str = "autograd::engine::evaluate_function: ";

pub(super) const SEQUENCE: &str = "Sequence number";
pub(in crate::trace) const FORWARD_THREAD: &str = "Fwd thread id";
/// The scope's number, and the key of its name.
pub(in crate::trace) const SCOPE: &str = "Record function scope";
pub(in crate::trace) const SCOPE_NAME: &str = "record_scope";

/// Collects the operations of a trace that have a sequence number.
#[derive(Debug, Default)]
pub(super) struct ForwardOperations {
    found: List<Operation>,
    /// The previous operation, if the next one may share its node.
    pub(super) enclosing: Option<Operation>,
    additions: List<Addition>,
    /// The highest id of an existing arrow.
    highest: u64,
}

/// An operation with a sequence number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// Its index among the rows of the walk.
    row: u64,
    process: i64,
    thread: i64,
    start: Timestamp,
    end: Timestamp,
    node: Option<Node>,
}

/// An operation's place in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) sequence: i64,
    /// The thread of the forward operation; 0 if this is one.
    pub(super) forward_thread: i64,
}

/// The additions to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) struct Addition {
    pub(super) row: u64,
    pub(super) flow: Option<Flow>,
    /// The sequence number that it inherits from the operation directly around or inside it.
    pub(super) node: Option<Node>,
}

/// The arguments of an operation that matter for arrows.
#[derive(Debug, Default)]
struct GraphArgs {
    sequence: Option<i64>,
    forward_thread: Option<i64>,
    is_backward: bool,
    /// The thread, if it is not on its own row.
    thread: Option<i64>,
}

impl ForwardOperations {
    /// Adds a row; those of a thread arrive in order of their start.
    pub(super) fn add_row(&mut self, row: u64, activity: &Activity<'_>) {
        if let Some(Flow { kind: FlowKind::ForwardBackward, id, .. }) = activity.flow {
            self.highest = self.highest.max(id);
        }
        let (Track { process: Lane::Id(process), thread: Lane::Id(thread) }, Body::Slice { start, end }) =
            (activity.track, activity.body)
        else {
            return;
        };
        if !is_operation(activity.kind) {
            return;
        }
        let said = GraphArgs::from_args(activity.args);
        let mut this =
            Operation { row, process, thread: said.thread.unwrap_or(thread), start, end, node: said.graph_node() };
        let is_around =
            |around: &Operation| (around.process, around.thread) == (process, this.thread) && this.start <= around.end;
        let around = self.enclosing.take().filter(is_around);
        if let Some(mut around) = around.filter(|_| said.is_backward) {
            match (this.node, around.node) {
                (Some(node), None) => {
                    around.node = this.node;
                    self.found.push(around);
                    self.additions.push(Addition { row: around.row, flow: None, node: Some(node) });
                }
                (None, Some(node)) => {
                    this.node = around.node;
                    self.additions.push(Addition { row, flow: None, node: Some(node) });
                }
                _ => {}
            }
        }
        // An operation that already has an arrow gets no second one.
        if this.node.is_some() && activity.flow.is_none() {
            self.found.push(this);
        }
        self.enclosing = (activity.name.starts_with(EVALUATE) && !said.is_backward).then_some(this);
    }

    /// Joins them, and returns the additions to rows, in the order of the rows.
    ///
    /// Visits operations by their end. Of the forward operations of a thread and number, the last to begin counts; a backward
    /// operation consumes it, so it has one arrow. Of operations that end at once, the inner one comes first.
    pub(super) fn join_operations(mut self, with_arrows: bool) -> List<Addition> {
        if !with_arrows {
            self.found.clear();
        }
        sort_in_place_by_key(&mut self.found, |one| (one.end, Reverse(one.row)));
        // By process, thread and number: the start and the row.
        let mut forward: Map<(i64, i64, i64), (Timestamp, u64)> = Map::default();
        let mut additions = self.additions;
        let mut id = self.highest;
        for one in &self.found {
            let Some(node) = one.node else { continue };
            if node.forward_thread > 0 {
                let key = (one.process, node.forward_thread, node.sequence);
                let Some((_, from)) = forward.remove(&key) else { continue };
                id += 1;
                let flow = |end| Some(Flow { kind: FlowKind::ForwardBackward, id, end });
                additions.push(Addition { row: from, flow: flow(FlowEnd::Start), node: None });
                additions.push(Addition { row: one.row, flow: flow(FlowEnd::Finish), node: None });
            } else {
                let key = (one.process, one.thread, node.sequence);
                let latest = forward.get_or_insert_with(key, || (one.start, one.row));
                if one.start >= latest.0 {
                    *latest = (one.start, one.row);
                }
            }
        }
        sort_in_place_by_key(&mut additions, |addition| addition.row);
        additions.dedup_by(|next, kept| {
            let is_same = next.row == kept.row;
            if is_same {
                (kept.flow, kept.node) = (kept.flow.or(next.flow), kept.node.or(next.node));
            }
            is_same
        });
        additions
    }
}

impl GraphArgs {
    fn from_args(args: &dyn Args) -> GraphArgs {
        let mut graph_args = GraphArgs::default();
        args.visit(&mut |key, value| match key {
            SEQUENCE => graph_args.sequence = as_integer(value).filter(|number| *number >= 0),
            FORWARD_THREAD => graph_args.forward_thread = as_integer(value),
            "thread id" => graph_args.thread = as_integer(value),
            _ => graph_args.is_backward |= is_backward(key, value),
        });
        graph_args
    }

    fn graph_node(&self) -> Option<Node> {
        let forward_thread = self.forward_thread.unwrap_or(0);
        self.sequence.map(|sequence| Node { sequence, forward_thread })
    }
}

/// Returns whether an argument marks its operation as a backward one, by its scope.
pub(super) fn is_backward(key: &str, value: ArgValue<'_>) -> bool {
    let scope = RecordScope::BackwardFunction;
    match (key, value) {
        (SCOPE, value) => as_integer(value) == Some(scope.number().into()),
        (SCOPE_NAME, ArgValue::Str(name)) => name.eq_ignore_ascii_case(scope.as_str()),
        _ => false,
    }
}

/// Returns whether an argument marks its operation as a backward one, by its scope or by its forward thread.
pub(in crate::trace) fn is_of_backward(key: &str, value: ArgValue<'_>) -> bool {
    is_backward(key, value) || key == FORWARD_THREAD && as_integer(value).is_some_and(|thread| thread > 0)
}

/// Returns whether torch calls it an operation.
pub(super) fn is_operation(kind: ActivityType) -> bool {
    matches!(kind, ActivityType::CpuOp | ActivityType::UserAnnotation | ActivityType::CollectiveComm)
}

pub(super) fn as_integer(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::I64(value) => Some(value),
        ArgValue::U64(value) => i64::try_from(value).ok(),
        _ => None,
    }
}

//! Arrows between events.

use crate::activity::{Accelerator, ActivityType, DeviceType, Flow, FlowEnd, FlowKind};
use crate::analysis::events::{EventRow, Events};
use crate::hash::HashMap;
use crate::write::perfetto::decode_flow_id;

/// The ends of arrows in a file, by the index of their event before events are sorted.
#[derive(Debug, Default)]
pub(super) struct ReadFlows {
    /// Ends that are not yet decoded.
    ends: Vec<RawFlowEnd>,
    /// Launches, and waits of work for other work, each with the id of a render stage.
    launches: Vec<(u32, u64)>,
    waits: Vec<(u32, u64)>,
    /// The events of render stages by their id.
    stages: HashMap<u64, u32>,
}

/// One end of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawFlowEnd {
    pub(super) row: u32,
    pub(super) id: u64,
    /// Whether the flow ends here; otherwise it begins, or goes through.
    pub(super) is_last: bool,
}

/// The first id of arrows between device work, which keeps them apart from those of launches, as in PyTorch's JSON.
const FIRST_WAIT: u64 = 1 << 40;

impl ReadFlows {
    pub(super) fn push_end(&mut self, end: RawFlowEnd) {
        self.ends.push(end);
    }

    pub(super) fn push_launch(&mut self, row: u32, stage: u64) {
        self.launches.push((row, stage));
    }

    pub(super) fn push_wait(&mut self, row: u32, stage: u64) {
        self.waits.push((row, stage));
    }

    pub(super) fn add_stage(&mut self, stage: u64, row: u32) {
        self.stages.insert(stage, row);
    }

    /// Decodes the ends that were read so far, which a file with this seed contains.
    pub(super) fn decode_ends(&mut self, seed: u64, events: &mut Events) {
        let flows = &mut events.flows;
        self.ends.retain(|end| {
            let Some((kind, id)) = decode_flow_id(end.id, seed) else { return true };
            let flow = Flow { kind, id, end: if end.is_last { FlowEnd::Finish } else { FlowEnd::Start } };
            // An arrow with several ends is an arrow to each of them in the file.
            if flows.last() != Some(&(end.row, flow)) {
                flows.push((end.row, flow));
            }
            false
        });
    }

    /// Adds all remaining arrows to `events`, whose events are not yet sorted.
    pub(super) fn finish(mut self, events: &mut Events) {
        let mut add = |from: u32, to: u32, id: u64| {
            let flow = |end| Flow { kind: FlowKind::AsyncCpuToGpu, id, end };
            events.flows.push((from, flow(FlowEnd::Start)));
            events.flows.push((to, flow(FlowEnd::Finish)));
        };
        for (row, stage) in &self.launches {
            if let Some(work) = self.stages.get(stage) {
                add(*row, *work, *stage);
            }
        }
        for (id, (row, stage)) in (FIRST_WAIT..).zip(&self.waits) {
            if let Some(work) = self.stages.get(stage) {
                add(*work, *row, id);
            }
        }
        let row = |end: &RawFlowEnd| events.rows.get(end.row as usize);
        self.ends.sort_by_key(|end| (end.id, row(end).map(|row| row.start), end.is_last));
        let mut found = Vec::new();
        for (number, ends) in (1..).zip(self.ends.chunk_by(|a, b| a.id == b.id)) {
            let [first, rest @ ..] = ends else { continue };
            let kind = flow_kind(row(first), rest.last().and_then(row));
            let flow = |end| Flow { kind, id: number, end };
            found.push((first.row, flow(if first.is_last { FlowEnd::Finish } else { FlowEnd::Start })));
            found.extend(rest.iter().map(|end| (end.row, flow(FlowEnd::Finish))));
        }
        events.flows.extend(found);
    }
}

/// Returns the kind of an arrow between two events, which Perfetto does not store.
fn flow_kind(from: Option<&EventRow>, to: Option<&EventRow>) -> FlowKind {
    let is_on_device = |row: &EventRow| row.kind.is_some_and(|kind| kind.device(Accelerator::Cuda) != DeviceType::Cpu);
    let is_operation = |row: Option<&EventRow>| row.is_some_and(|row| row.kind == Some(ActivityType::CpuOp));
    match to {
        Some(to) if is_on_device(to) => FlowKind::AsyncCpuToGpu,
        to if is_operation(from) && is_operation(to) => FlowKind::ForwardBackward,
        _ => FlowKind::FollowsFrom,
    }
}

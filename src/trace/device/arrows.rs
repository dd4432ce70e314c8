//! Arrows whose ends Perfetto's writer has to know before it writes them.

use super::LinkedRecords;
use crate::link::RecordSource as _;
use kineto_base::fallible::List;
use kineto_model::activity::{Flow, FlowEnd, FlowKind};

impl LinkedRecords<'_> {
    /// Returns the arrows that point to several pieces of work, such as the nodes of a graph, with their numbers of ends.
    pub(in crate::trace) fn arrows_with_several_ends(self) -> List<(Flow, u64)> {
        let mut several = List::new();
        for (collection, linked) in self.pairs() {
            let records = linked.collection_records(collection);
            let mut launched: List<u64> = List::new();
            for work in linked.links.streams.lanes().flat_map(|(_, work)| work).map(|at| records.work_at(*at)) {
                if let Some(launch) = linked.links.launch_of(&work) {
                    launched.push(linked.arrow_id(&records.call_at(launch)));
                }
            }
            launched.sort_unstable();
            for same in launched.chunk_by(|one, next| one == next).filter(|same| same.len() > 1) {
                let id = same.first().copied().unwrap_or_default();
                several.push((Flow { kind: FlowKind::AsyncCpuToGpu, id, end: FlowEnd::Start }, same.len() as u64));
            }
        }
        several
    }
}

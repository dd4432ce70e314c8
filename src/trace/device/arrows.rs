//! Arrows whose ends Perfetto's writer has to know before it writes them.

use super::{LinkedCollection, LinkedRecords};
use crate::link::RecordSource as _;
use kineto_base::fallible::List;
use kineto_devices::Collection;
use kineto_model::activity::{Flow, FlowEnd, FlowKind};

impl<'t> LinkedRecords<'t> {
    /// Returns the arrows that point to several pieces of work, such as the nodes of a graph, with their numbers of ends.
    pub(in crate::trace) fn arrows_with_several_ends(self) -> impl Iterator<Item = (Flow, u64)> + 't {
        self.pairs().flat_map(|(collection, linked)| linked.arrows_with_several_ends(collection))
    }
}

impl LinkedCollection {
    fn arrows_with_several_ends(&self, collection: &Collection) -> impl Iterator<Item = (Flow, u64)> + use<> {
        let records = self.collection_records(collection);
        let mut launched: List<u64> = List::new();
        for work in self.links.work_by_stream().flat_map(|(_, _, work)| work).map(|at| records.work_at(*at)) {
            if let Some(launch) = self.links.launch_of(&work) {
                launched.push(self.arrow_id(&records.call_at(launch)));
            }
        }
        launched.sort_unstable();
        let mut several = List::new();
        for same in launched.chunk_by(|one, next| one == next).filter(|same| same.len() > 1) {
            let id = same.first().copied().unwrap_or_default();
            let flow = Flow { kind: FlowKind::AsyncCpuToGpu, id, end: FlowEnd::Start };
            several.push((flow, same.len() as u64));
        }
        several.into_iter()
    }
}

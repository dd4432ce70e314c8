//! The enters that are not drawn, by name.

use super::{Index, Omissible};
use crate::trace::device::{HostCalls, LinkedRecords};
use crate::trace::recorded::Recorded;
use kineto_base::fallible::List;
use kineto_base::sorted::SortedMap;
use kineto_base::sorting::sort_in_place_by_key;
use kineto_model::write::json_object;
use serde_json::Value;

/// The enters that are not drawn: futures are dropped in them, within a microsecond and without a record or a call.
#[derive(Debug, Default)]
pub(crate) struct OmittedEnters(List<Omissible>);

impl OmittedEnters {
    /// Finds the enters in which no call was made either.
    pub(in crate::trace) fn new(index: &Index, devices: LinkedRecords<'_>, error_ns: u64) -> OmittedEnters {
        let mut omitted = index.omissible.clone();
        sort_in_place_by_key(&mut omitted, |enter| (enter.thread, enter.slice));
        let mut calls: Option<(i64, HostCalls<'_>)> = None;
        omitted.retain(|enter| {
            if calls.as_ref().is_none_or(|(thread, _)| *thread != enter.thread) {
                calls = Some((enter.thread, HostCalls::for_thread(enter.thread, devices, error_ns)));
            }
            calls.as_ref().is_none_or(|(_, calls)| !calls.begin_in(enter.start, enter.end))
        });
        sort_in_place_by_key(&mut omitted, |enter| enter.slice);
        OmittedEnters(omitted)
    }

    #[inline]
    pub(in crate::trace) fn contains(&self, slice: u64) -> bool {
        !self.0.is_empty() && self.0.binary_search_by_key(&slice, |enter| enter.slice).is_ok()
    }

    pub(in crate::trace) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the header's entry: the number of enters and their nanoseconds, in total and by the name of the callsite.
    pub(in crate::trace) fn to_json(&self, recorded: &Recorded) -> Option<Value> {
        let mut by_name: SortedMap<&str, (u64, u64)> = SortedMap::new();
        let mut total = (0, 0);
        for enter in &self.0 {
            let name = recorded.sites.get(enter.site as usize).map_or("", |site| &site.name);
            let ns = enter.end.since(enter.start);
            for figures in [&mut total, by_name.get_or_insert_with(name, Default::default)] {
                figures.0 += 1;
                figures.1 += ns;
            }
        }
        let mut names = Vec::new();
        for (name, (count, ns)) in by_name.iter() {
            names.push((*name, Value::Array(vec![(*count).into(), (*ns).into()])));
        }
        let (count, ns) = total;
        let members = vec![("count", count.into()), ("ns", ns.into()), ("by_name", json_object(names))];
        (count > 0).then(|| json_object(members))
    }
}

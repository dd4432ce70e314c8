//! The process groups of a trace's collective operations.

use super::backward::as_integer;
use crate::distributed::{DistributedInfo, ProcessGroup};
use kineto_model::activity::{Activity, ArgValue};

/// Each group once, with its first description.
#[derive(Debug, Default)]
pub(in crate::trace) struct Groups {
    groups: Vec<ProcessGroup>,
    /// This process's rank in the group of all processes.
    rank: Option<u32>,
}

/// torch's name of the group of all processes.
const ALL: &str = "default_pg";

impl Groups {
    /// Adds the group that a row names, if it does.
    pub(super) fn add_row(&mut self, activity: &Activity<'_>) {
        let (mut group, mut ranks, mut rank, mut size) = (ProcessGroup::new("", []), None, None, None);
        let (mut start, mut stride) = (None, None);
        let number = |value: ArgValue<'_>| as_integer(value).and_then(|value| u32::try_from(value).ok());
        activity.args.visit(&mut |key, value| match (key, value) {
            ("Process Group Name", ArgValue::Str(name)) => name.clone_into(&mut group.name),
            ("Process Group Description", ArgValue::Str(text)) => text.clone_into(&mut group.description),
            ("backend_config", ArgValue::Str(text)) => text.clone_into(&mut group.backend),
            ("Process Group Ranks", ArgValue::Str(text)) => ranks = parse_list(text),
            ("Group size", value) => size = number(value),
            ("Rank", value) => rank = number(value),
            ("Global rank start", value) => start = number(value),
            ("Global rank stride", value) => stride = number(value),
            _ => {}
        });
        if group.name.is_empty() || self.groups.iter().any(|known| known.name == group.name) {
            return;
        }
        // A long list is truncated, but may be evenly spaced.
        group.ranks = ranks.or_else(|| evenly_spaced_ranks(start?, stride?, size?)).unwrap_or_default();
        group.size = size.unwrap_or_else(|| u32::try_from(group.ranks.len()).unwrap_or(u32::MAX));
        if group.description == ALL && self.rank.is_none() {
            self.rank = rank;
        }
        self.groups.push(group);
    }

    /// Adds the groups to the known facts about the job. Without such facts, the result depends on a group of all processes.
    pub(in crate::trace) fn add_to(&self, known: Option<&DistributedInfo>) -> Option<DistributedInfo> {
        let all = self.groups.iter().find(|group| group.description == ALL);
        let of_all = || Some(DistributedInfo::new(self.rank?, all?.size));
        let mut info = known.cloned().or_else(of_all)?;
        info.backend = info.backend.or_else(|| Some(all?.backend.rsplit(':').next()?.to_owned()));
        info.backend = info.backend.filter(|backend| !backend.is_empty());
        for group in &self.groups {
            if !info.process_groups.iter().any(|known| known.name == group.name) {
                info.process_groups.push(group.clone());
            }
        }
        Some(info)
    }
}

/// Returns `size` evenly spaced ranks; `None` if no job has such ranks.
fn evenly_spaced_ranks(start: u32, stride: u32, size: u32) -> Option<Vec<u32>> {
    /// More processes than any job has.
    const MOST: u32 = 1 << 20;
    let rank = |number: u32| start.checked_add(stride.checked_mul(number)?);
    if size <= MOST { (0..size).map(rank).collect() } else { None }
}

/// Returns the elements of a list, unless it was truncated.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let elements = text.strip_prefix('[')?.strip_suffix(']')?;
    elements.split(',').map(|element| element.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_list_or_evenly_spaced() {
        assert_eq!(parse_list("[0, 8, 9]"), Some(vec![0, 8, 9]));
        assert!(["[0, ..., 9]", "0, 1", "[]", "[-1]"].iter().all(|text| parse_list(text).is_none()));
        assert_eq!(evenly_spaced_ranks(1, 4, 3), Some(vec![1, 5, 9]));
        for (start, stride, size) in [(u32::MAX, 1, 2), (0, u32::MAX, 3), (0, 1, u32::MAX)] {
            assert_eq!(evenly_spaced_ranks(start, stride, size), None);
        }
    }
}

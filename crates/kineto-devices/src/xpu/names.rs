//! Caches the names of PTI's functions, and of kinds of copies and fills.

use crate::{Batch, Name};
use kineto_base::sorted::SortedMap;

/// Returns PTI's names for its numbers.
pub(super) trait PtiNames: Send {
    /// Returns the name of a function of that group.
    fn function_name(&self, group: u32, function: u32) -> Option<String>;
    /// Returns the name of a kind of memory.
    fn memory_name(&self, kind: u32) -> Option<String>;
    /// Returns the name of a kind of copy.
    fn copy_name(&self, kind: u32) -> Option<String>;
}

/// A function's name and effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) name: Name,
    /// Its name implies that it puts work on a device; allocating memory does not count.
    pub(super) launches: bool,
    /// Its name implies that the work is a kernel.
    pub(super) runs_kernel: bool,
}

/// The names seen in a recording.
pub(super) struct CallNames {
    pti: Box<dyn PtiNames>,
    functions: SortedMap<(u32, u32), Function>,
    copies: SortedMap<[u32; 3], Name>,
    fills: SortedMap<(u64, u32), Name>,
}

/// The most names of a kind. More are corrupt, except for the values of fills, which are arbitrary.
const MOST: usize = 4096;

impl std::fmt::Debug for CallNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallNames").field("functions", &self.functions.len()).finish_non_exhaustive()
    }
}

impl CallNames {
    pub(super) fn new(pti: Box<dyn PtiNames>) -> CallNames {
        CallNames { pti, functions: SortedMap::new(), copies: SortedMap::new(), fills: SortedMap::new() }
    }

    pub(super) fn function(&mut self, group: u32, function: u32, batch: &mut Batch<'_>) -> Function {
        if let Some(known) = self.functions.get(&(group, function)) {
            return *known;
        }
        let text = self.pti.function_name(group, function).filter(|text| !text.is_empty());
        let text = text.as_deref().unwrap_or("INVALID");
        let launches = text.contains("Enqueue");
        let found = Function { name: batch.name(text), launches, runs_kernel: launches && text.contains("Launch") };
        if self.functions.len() < MOST {
            self.functions.insert((group, function), found);
        }
        found
    }

    pub(super) fn copy_name(&mut self, kinds: [u32; 3], batch: &mut Batch<'_>) -> Name {
        if let Some(known) = self.copies.get(&kinds) {
            return *known;
        }
        let [what, source, target] = kinds;
        let what = self.pti.copy_name(what).unwrap_or_else(|| "INVALID".to_owned());
        let name = batch.name(&format!("Memcpy {what} ({} -> {})", self.memory_name(source), self.memory_name(target)));
        if self.copies.len() < MOST {
            self.copies.insert(kinds, name);
        }
        name
    }

    pub(super) fn fill_name(&mut self, value: u64, kind: u32, batch: &mut Batch<'_>) -> Name {
        if let Some(known) = self.fills.get(&(value, kind)) {
            return *known;
        }
        let name = batch.name(&format!("Memset ({value} -> {})", self.memory_name(kind)));
        if self.fills.len() < MOST {
            self.fills.insert((value, kind), name);
        }
        name
    }

    fn memory_name(&self, kind: u32) -> String {
        self.pti.memory_name(kind).unwrap_or_else(|| "INVALID".to_owned())
    }
}

/// The names that libpti_view returns, for tests without it.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct FixedNames;

#[cfg(test)]
impl PtiNames for FixedNames {
    fn function_name(&self, group: u32, function: u32) -> Option<String> {
        let name = match (group, function) {
            (3, 21) => "urEnqueueKernelLaunch",
            (3, 22) => "urEnqueueUSMMemcpy",
            (1, 55) => "zeCommandListAppendLaunchKernel",
            (1, 32) => "zeCommandQueueSynchronize",
            _ => return None,
        };
        Some(name.to_owned())
    }

    fn memory_name(&self, kind: u32) -> Option<String> {
        ["Host (User Allocated)", "Host (Driver Allocated)", "Device", "Shared"]
            .get(kind as usize)
            .map(|&it| it.to_owned())
    }

    fn copy_name(&self, kind: u32) -> Option<String> {
        [(2, "M2D"), (8, "D2M"), (10, "D2D")].iter().find(|(known, _)| *known == kind).map(|(_, it)| (*it).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;

    #[test]
    fn each_name_is_queried_once() {
        let sink = trial::unbounded_sink();
        let mut names = CallNames::new(Box::new(FixedNames));
        let found = sink.record(|batch| {
            let launch = names.function(3, 21, batch);
            let wait = names.function(1, 32, batch);
            assert!(launch.launches && launch.runs_kernel && !wait.launches && !wait.runs_kernel);
            let others = [
                names.function(9, 9, batch).name,
                names.copy_name([2, 0, 2], batch),
                names.copy_name([99, 99, 3], batch),
            ];
            assert_eq!(names.copy_name([2, 0, 2], batch), others[1]);
            let fills = [names.fill_name(7, 2, batch), names.fill_name(u64::MAX, 99, batch)];
            [&[launch.name, wait.name][..], &others, &fills].concat()
        });
        let records = sink.collect_records(false);
        let texts: Vec<_> = found.iter().map(|name| records.names.text(*name)).collect();
        assert_eq!(
            texts,
            [
                "urEnqueueKernelLaunch",
                "zeCommandQueueSynchronize",
                "INVALID",
                "Memcpy M2D (Host (User Allocated) -> Device)",
                "Memcpy INVALID (INVALID -> Shared)",
                "Memset (7 -> Device)",
                "Memset (18446744073709551615 -> INVALID)",
            ]
        );
    }
}

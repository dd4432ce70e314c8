//! Tracks launches that have no kernel record yet.

use std::collections::HashSet;

/// Launches without a kernel's record, and kernels without a launch's: either may arrive first.
#[derive(Debug, Default)]
pub(super) struct OwedKernels {
    launched: HashSet<u32>,
    worked: HashSet<u32>,
}

/// The most that are tracked.
const MOST: usize = 1 << 20;

impl OwedKernels {
    pub(super) fn launched(&mut self, correlation: u32) {
        if !self.worked.remove(&correlation) {
            add(&mut self.launched, correlation);
        }
    }

    pub(super) fn worked(&mut self, correlation: u32) {
        if !self.launched.remove(&correlation) {
            add(&mut self.worked, correlation);
        }
    }

    /// Drops all launches so far: their records may not arrive.
    pub(super) fn clear(&mut self) {
        self.launched.clear();
    }

    /// Returns how many launches have no kernel yet.
    pub(super) fn count(&self) -> usize {
        self.launched.len()
    }
}

fn add(set: &mut HashSet<u32>, correlation: u32) {
    if set.len() >= MOST {
        set.clear();
    }
    set.insert(correlation);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_and_kernel_arrive_in_either_order() {
        let mut owed = OwedKernels::default();
        owed.launched(1);
        owed.worked(2);
        owed.launched(2);
        assert_eq!(owed.count(), 1);
        owed.worked(1);
        owed.worked(1);
        assert_eq!(owed.count(), 0);
        owed.launched(3);
        owed.clear();
        assert_eq!(owed.count(), 0);
    }
}

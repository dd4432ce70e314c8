//! Which launches have not come to their end yet.

use std::collections::HashSet;

/// The launches of kernels without a kernel's record, and the kernels without a launch's: either may come first.
#[derive(Debug, Default)]
pub(super) struct Owed {
    launched: HashSet<u32>,
    worked: HashSet<u32>,
}

/// More are not remembered.
const MOST: usize = 1 << 20;

impl Owed {
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

    /// Of what was launched so far nothing more may come.
    pub(super) fn forget(&mut self) {
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
    fn a_launch_is_owed_its_kernel_whichever_comes_first() {
        let mut owed = Owed::default();
        owed.launched(1);
        owed.worked(2);
        owed.launched(2);
        assert_eq!(owed.count(), 1);
        owed.worked(1);
        owed.worked(1);
        assert_eq!(owed.count(), 0);
        owed.launched(3);
        owed.forget();
        assert_eq!(owed.count(), 0);
    }
}

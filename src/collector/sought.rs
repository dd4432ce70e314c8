//! A vendor's libraries, looked for until they are found.

use super::library::{Attempt, Places};
use super::unavailable::Unavailable;
use crate::os::fork;
use std::sync::OnceLock;

/// What is found in these places, and from then on is there for good.
#[derive(Debug)]
pub(super) struct Sought<T> {
    places: Places,
    found: OnceLock<T>,
    attempts: fork::Own<Vec<Attempt>>,
}

impl<T> Sought<T> {
    /// Does nothing yet.
    pub(super) fn new(places: Places) -> Sought<T> {
        Sought { places, found: OnceLock::new(), attempts: fork::Own::default() }
    }

    /// Returns what `find` finds, which is asked each time anew until it finds it.
    pub(super) fn find(
        &self,
        find: impl FnOnce(&Places, &mut Vec<Attempt>) -> Result<T, Unavailable>,
    ) -> Result<&T, Unavailable> {
        // One thread looks at a time, but not within the cell: a fork meanwhile would leave that half filled for ever.
        let mut attempts = self.attempts.lock();
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        attempts.clear();
        let found = find(&self.places, &mut attempts)?;
        Ok(self.found.get_or_init(|| found))
    }

    /// Returns what was found, if it was.
    pub(super) fn get(&self) -> Option<&T> {
        self.found.get()
    }

    /// Returns what was looked for the last time, and what came of it.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        self.attempts.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::Why;

    #[test]
    fn it_is_looked_for_until_it_is_found() {
        let sought = Sought::new(Places::default());
        let missing = |_: &Places, attempts: &mut Vec<Attempt>| {
            attempts.push(Attempt::new("it", "not there"));
            Err(Unavailable::new(Why::LibraryNotFound, "there is none", ""))
        };
        for _ in 0..2 {
            assert!(sought.find(missing).is_err() && sought.get().is_none());
            assert_eq!(sought.attempts(), [Attempt::new("it", "not there")], "those of the last time alone");
        }
        assert_eq!(sought.find(|_, _| Ok(7)), Ok(&7));
        assert_eq!(sought.find(missing), Ok(&7), "it is not looked for again");
        assert_eq!((sought.get(), sought.attempts()), (Some(&7), vec![]));
    }
}

//! A vendor's libraries, searched for until they are found.

use super::super::Options;
use super::super::unavailable::Unavailable;
use super::Attempt;
use kineto_base::os::fork;
use std::fmt;
use std::sync::OnceLock;

/// Libraries that are opened at their first use, and then stay open until the process ends.
pub(crate) struct LazyLibrary<T> {
    options: Options,
    found: OnceLock<T>,
    attempts: fork::Own<Vec<Attempt>>,
}

impl<T> fmt::Debug for LazyLibrary<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyLibrary").field("is_found", &self.found.get().is_some()).finish_non_exhaustive()
    }
}

impl<T> LazyLibrary<T> {
    /// Stores the options; opens nothing yet.
    pub(crate) fn new(options: Options) -> LazyLibrary<T> {
        LazyLibrary { options, found: OnceLock::new(), attempts: fork::Own::default() }
    }

    /// Returns the libraries; calls `find` each time until it succeeds.
    ///
    /// # Errors
    /// Those of `find`.
    pub(crate) fn get_or_find(
        &self,
        find: impl FnOnce(&Options, &mut Vec<Attempt>) -> Result<T, Unavailable>,
    ) -> Result<&T, Unavailable> {
        // The lock is not the cell's own: a fork during the initialization of a `OnceLock` would block the child for ever.
        let mut attempts = self.attempts.lock();
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        attempts.clear();
        let found = find(&self.options, &mut attempts)?;
        Ok(self.found.get_or_init(|| found))
    }

    /// Returns the libraries if they have been found.
    pub(crate) fn get(&self) -> Option<&T> {
        self.found.get()
    }

    /// Returns what the last search tried, with the outcomes.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.attempts.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Why;

    #[test]
    fn find_is_called_until_it_succeeds() {
        let lazy = LazyLibrary::new(Options::default());
        let missing = |_: &Options, attempts: &mut Vec<Attempt>| {
            attempts.push(Attempt::new("it", "not there"));
            Err(Unavailable::new(Why::LibraryNotFound, "there is none", ""))
        };
        for _ in 0..2 {
            assert!(lazy.get_or_find(missing).is_err() && lazy.get().is_none());
            assert_eq!(lazy.attempts(), [Attempt::new("it", "not there")], "only the last search");
        }
        assert_eq!(lazy.get_or_find(|_, _| Ok(7)), Ok(&7));
        assert_eq!(lazy.get_or_find(missing), Ok(&7), "no second search");
        assert_eq!((lazy.get(), lazy.attempts()), (Some(&7), vec![]));
    }
}

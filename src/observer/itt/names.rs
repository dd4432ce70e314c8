//! Task names, limited in number because ITT never frees a string.

use super::client::StringHandle;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// The handles of names; those beyond the limit share one.
#[derive(Debug, Default)]
pub(super) struct StringHandles(RwLock<HashMap<Box<str>, StringHandle>>);

/// The most distinct names.
const LIMIT: usize = 16_384;
/// The name for all further ones.
const OTHERS: &str = "(other names)";

impl StringHandles {
    /// Returns the handle of a name.
    pub(super) fn handle_for(&self, name: &str) -> StringHandle {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let name = match known.get(name) {
            Some(handle) => return *handle,
            None if known.len() >= LIMIT => OTHERS,
            None => name,
        };
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *known.entry(name.into()).or_insert_with(|| StringHandle::new(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_share_a_handle() {
        let names = StringHandles::default();
        (0..LIMIT + 100).for_each(|n| {
            names.handle_for(&n.to_string());
        });
        assert_eq!(names.0.read().unwrap().len(), LIMIT + 1);
    }
}

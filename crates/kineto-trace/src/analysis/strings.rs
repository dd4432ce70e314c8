//! Interned strings, by id.

use crate::hash::HashMap;
use std::sync::Arc;

/// The id of a string in [`Strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StringId(u32);

impl StringId {
    /// Returns the id as an index.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Interned strings by id, and ids by string.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    numbers: HashMap<Arc<str>, StringId>,
    texts: Vec<Arc<str>>,
}

impl Strings {
    /// Returns the id of `text`, and interns it if it is new.
    pub(crate) fn intern(&mut self, text: &str) -> StringId {
        if let Some(index) = self.numbers.get(text) {
            return *index;
        }
        let index = StringId(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.numbers.insert(text, index);
        index
    }

    /// Returns the id of `text` if it is interned.
    pub(crate) fn find(&self, text: &str) -> Option<StringId> {
        self.numbers.get(text).copied()
    }

    /// Returns the string with this id; empty if the id belongs to another table.
    pub(crate) fn get(&self, text: StringId) -> &str {
        self.texts.get(text.0 as usize).map_or("", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_interned_once() {
        let mut strings = Strings::default();
        let (kernel, copy) = (strings.intern("kernel"), strings.intern("copy"));
        assert_eq!(strings.intern("kernel"), kernel);
        assert_eq!((strings.get(kernel), strings.get(copy)), ("kernel", "copy"));
        assert_eq!((strings.find("copy"), strings.find("none")), (Some(copy), None));
    }
}

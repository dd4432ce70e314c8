//! Interns the names of a recording's records.

use std::collections::HashMap;
use std::sync::Arc;

/// A name that a [`Batch`](super::super::Batch) interned: of a kernel, of a call, or any text of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub u32);

/// All names of a recording's records.
#[derive(Clone, Debug, Default)]
pub struct NameTable {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl NameTable {
    /// Returns the name's number, if it is interned.
    pub fn find(&self, text: &str) -> Option<Name> {
        self.numbers.get(text).map(|number| Name(*number))
    }

    /// Interns a new name.
    pub fn add(&mut self, text: &str) -> Name {
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        Name(number)
    }

    /// Returns all texts, by number.
    pub(super) fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }

    /// Returns the text of a name; empty for a name of another recording.
    pub fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// Returns the approximate memory of all names, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.texts.iter().map(|text| NameTable::name_bytes(text)).sum()
    }

    /// Returns the approximate memory of a name, in bytes.
    pub fn name_bytes(text: &str) -> u64 {
        text.len() as u64 + 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_interned_once() {
        let mut names = NameTable::default();
        let name = names.add("kernel");
        assert_eq!(names.find("kernel"), Some(name));
        assert_eq!((names.text(name), names.text(Name(7)), names.find("other")), ("kernel", "", None));
    }
}

//! Interned strings, by id.

use crate::hash::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// The id of a string in [`Strings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StringId(u32);

impl StringId {
    /// Returns the id as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Interned strings by id, and ids by string.
#[derive(Clone, Debug)]
pub(crate) struct Strings {
    ids: HashTable<StringId>,
    hasher: RandomState,
    /// All strings, one behind the other.
    text: String,
    /// The end of each string in `text`.
    ends: Vec<usize>,
}

/// Declares strings that each table contains from its beginning, so that their ids are constants.
macro_rules! known {
    ($($name:ident $number:literal $text:literal)+) => {
        impl StringId {
            $(pub(crate) const $name: StringId = StringId($number);)+
        }

        /// All known strings with their ids.
        const KNOWN: &[(StringId, &str)] = &[$((StringId($number), $text)),+];
    };
}

known! {
    EMPTY 0 ""
    EXTERNAL 1 "External id"
    OLD_EXTERNAL 2 "external id"
    SPAN 3 "span id"
    PARENT 4 "parent id"
    CORRELATION 5 "correlation"
    DEVICE 6 "device"
    STREAM 7 "stream"
    DEVICE_ID 8 "Device Id"
    DEVICE_TYPE 9 "Device Type"
    THREAD 10 "thread id"
    HIDDEN 11 "hidden"
    FINISHED 12 "finished"
    NAME 13 "name"
    LABELS 14 "labels"
    BYTES 15 "bytes"
    COLLECTIVE 16 "Collective name"
    TRACE 17 "Trace"
    ASYNC 18 "async"
}

impl Default for Strings {
    fn default() -> Strings {
        let (ids, hasher) = (HashTable::new(), RandomState::default());
        let mut strings = Strings { ids, hasher, text: String::new(), ends: Vec::new() };
        for (id, text) in KNOWN {
            let interned = strings.intern(text);
            debug_assert_eq!(interned, *id, "{text}");
        }
        strings
    }
}

impl Strings {
    /// Returns the id of `text`, and interns it if it is new.
    pub(crate) fn intern(&mut self, text: &str) -> StringId {
        let hash = self.hasher.hash_one(text.as_bytes());
        if let Some(id) = self.find_hashed(hash, text.as_bytes()) {
            return id;
        }
        let id = StringId(u32::try_from(self.ends.len()).unwrap_or(u32::MAX));
        self.text.push_str(text);
        self.ends.push(self.text.len());
        let (text, ends, hasher) = (&self.text, &self.ends, &self.hasher);
        self.ids.insert_unique(hash, id, |id| hasher.hash_one(text_bytes(text, ends, *id)));
        id
    }

    /// Interns all strings of another table; returns their ids here, by their ids there.
    pub(super) fn intern_all(&mut self, other: &Strings) -> Vec<StringId> {
        let ids = (0..).map(StringId).take(other.ends.len());
        ids.map(|id| self.intern(other.get(id))).collect()
    }

    /// Returns the id of a string if it is interned; other bytes than UTF-8 never are.
    pub(crate) fn find(&self, text: &[u8]) -> Option<StringId> {
        self.find_hashed(self.hasher.hash_one(text), text)
    }

    fn find_hashed(&self, hash: u64, text: &[u8]) -> Option<StringId> {
        self.ids.find(hash, |id| text_bytes(&self.text, &self.ends, *id) == text).copied()
    }

    /// Returns the string with this id; empty if the id belongs to another table.
    pub(crate) fn get(&self, id: StringId) -> &str {
        let (start, end) = text_range(&self.ends, id);
        self.text.get(start..end).unwrap_or_default()
    }
}

fn text_range(ends: &[usize], id: StringId) -> (usize, usize) {
    let end = |index: usize| ends.get(index).copied().unwrap_or(0);
    (id.index().checked_sub(1).map_or(0, end), end(id.index()))
}

fn text_bytes<'t>(text: &'t str, ends: &[usize], id: StringId) -> &'t [u8] {
    let (start, end) = text_range(ends, id);
    text.as_bytes().get(start..end).unwrap_or_default()
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
        assert_eq!((strings.find(b"copy"), strings.find(b"none")), (Some(copy), None));
        for number in 0..1000 {
            strings.intern(&number.to_string());
        }
        assert_eq!(strings.find(b"777").map(|id| strings.get(id)), Some("777"));
    }

    #[test]
    fn known_strings_have_their_ids() {
        let strings = Strings::default();
        for (id, text) in KNOWN {
            assert_eq!((strings.get(*id), strings.find(text.as_bytes())), (*text, Some(*id)));
        }
    }
}

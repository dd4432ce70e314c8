//! Texts, each kept once.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a text among [`Strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Text(u32);

impl Text {
    /// Its place in a list of all.
    pub(super) fn number(self) -> usize {
        self.0 as usize
    }
}

/// Texts by number, and numbers by text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    numbers: HashMap<Arc<str>, Text>,
    texts: Vec<Arc<str>>,
}

impl Strings {
    /// Returns the number of `text`, which is kept from now on.
    pub(crate) fn intern(&mut self, text: &str) -> Text {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = Text(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    /// Returns the number of `text`, if it is kept.
    pub(crate) fn find(&self, text: &str) -> Option<Text> {
        self.numbers.get(text).copied()
    }

    /// Returns the text of that number; empty for a number of other strings.
    pub(crate) fn get(&self, text: Text) -> &str {
        self.texts.get(text.0 as usize).map_or("", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once() {
        let mut strings = Strings::default();
        let (kernel, copy) = (strings.intern("kernel"), strings.intern("copy"));
        assert_eq!(strings.intern("kernel"), kernel);
        assert_eq!((strings.get(kernel), strings.get(copy)), ("kernel", "copy"));
        assert_eq!((strings.find("copy"), strings.find("none")), (Some(copy), None));
    }
}

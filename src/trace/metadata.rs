//! Metadata of a trace, from users and the environment.

use crate::diag::diag;
use crate::encoding::encoded_as;
use crate::error::{Error, ErrorKind};
use crate::write::chrome::{INCOMPLETE, is_reserved};
use kineto_model::write::parse_json;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keys with JSON texts, in the order in which they were first added; without the file's reserved keys.
#[derive(Debug, Default)]
pub(crate) struct TraceMetadata(Mutex<Vec<(String, String)>>);

encoded_as! {
    TraceMetadata as Vec<(String, String)>: |metadata| metadata.entries(), |entries| Some(TraceMetadata(Mutex::new(entries)));
}

impl TraceMetadata {
    fn lock_entries(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets `key` to a text.
    pub(crate) fn add_text(&self, key: &str, text: &str) {
        self.set_json(key, serde_json::Value::from(text).to_string());
    }

    /// Sets `key` to a number.
    pub(crate) fn add_count(&self, key: &str, count: u64) {
        self.set_json(key, count.to_string());
    }

    /// Sets `key` to a JSON value.
    pub(crate) fn add_json(&self, key: &str, json: &str) -> Result<(), Error> {
        let value = parse_json(json).map_err(|e| {
            let advice = "pass valid JSON, or use add_metadata for a text";
            Error::new(ErrorKind::Json, format!("metadata \"{key}\" is not JSON: {e}; {advice}"))
        })?;
        self.set_json(key, value.to_string());
        Ok(())
    }

    /// Marks the trace as incomplete, for that reason, as the writer of a file does that it must close early.
    pub(crate) fn mark_incomplete(&self, why: &str) {
        self.lock_entries().push((INCOMPLETE.to_owned(), serde_json::Value::from(why).to_string()));
    }

    fn set_json(&self, key: &str, json: String) {
        if is_reserved(key) {
            diag!(
                Warning,
                "metadata",
                "{key:?} is a key of the file's own, so this metadata is not written; rename it"
            );
            return;
        }
        let mut entries = self.lock_entries();
        match entries.iter_mut().find(|(known, _)| known == key) {
            Some((_, value)) => *value = json,
            None => entries.push((key.to_owned(), json)),
        }
    }

    /// Returns all entries.
    pub(crate) fn entries(&self) -> Vec<(String, String)> {
        self.lock_entries().clone()
    }

    /// Copies all entries of another instance.
    pub(crate) fn set_all(&self, other: &TraceMetadata) {
        other.entries().into_iter().for_each(|(key, json)| self.set_json(&key, json));
    }

    /// Returns an independent copy.
    pub(crate) fn copy(&self) -> TraceMetadata {
        TraceMetadata(Mutex::new(self.entries()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_the_last_value_wins() {
        let metadata = TraceMetadata::default();
        metadata.add_text("note", "a \"b\" \\ \n \u{0}");
        metadata.add_json("list", " [1, {\"a\": null}] ").unwrap();
        metadata.add_text("note", "c");
        let error = metadata.add_json("bad", "{\"a\": nan}").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Json);
        assert_eq!(metadata.entries(), [("note".into(), "\"c\"".into()), ("list".into(), "[1,{\"a\":null}]".into())]);
    }
}

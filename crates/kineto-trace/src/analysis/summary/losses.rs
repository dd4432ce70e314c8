//! What the writer of a trace lost, as its header says.

use crate::Loss;
use crate::analysis::events::Events;
use crate::analysis::json_reader::{Json, JsonValue};

/// The header's key of this crate's own entries.
const OWN_ENTRIES: &str = "tracing_kineto";

/// Returns the causes by which records are missing, with their counts; those that only mark records are left out. `None`
/// if the header has no list of losses.
pub(in crate::analysis) fn recorded_losses(events: &Events) -> Option<Vec<(String, u64)>> {
    let (_, entries) = events.metadata().find(|(key, _)| *key == OWN_ENTRIES)?;
    let (mut has_list, mut losses) = (false, Vec::new());
    // The header was valid JSON when it was read; a member of another kind is no loss of ours.
    let _ = Json::new(entries.as_bytes(), 0).read_object(|key, json| {
        if !key.is_word("losses") || !json.is_object() {
            return json.skip_value();
        }
        has_list = true;
        json.read_object(|cause, json| {
            let (cause, _) = cause.decode_text();
            let is_missing = Loss::ALL.iter().find(|loss| loss.as_str() == cause).is_none_or(|loss| loss.is_loss());
            if let (JsonValue::Number(count), true) = (json.read_value()?, is_missing) {
                let count = count.as_integer().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
                losses.extend((count > 0).then(|| (cause.into_owned(), count)));
            }
            Ok(())
        })
    });
    has_list.then_some(losses)
}

//! Names of a program's fields among the arguments of its rows.
//!
//! Readers trust argument names. HTA takes every row with a `stream` for device work, joins rows by `correlation`, and
//! rejects text where it expects an integer. TensorBoard reads `external id` before `External id`. So a field that
//! shares the name of an argument but is not one is written as `name (field)`.

use super::catalogue::{Entry, HTA_ARGUMENTS, Owner, lookup_field};

/// The suffix of such a field's name.
pub const SUFFIX: &str = " (field)";

/// Arguments that rows of spans have without any field.
const ROW_ARGUMENTS: [&str; 13] = [
    "span id",
    "parent id",
    "request id",
    "clipped",
    "target",
    "location",
    "level",
    "thread id",
    "polls",
    "enters",
    "reentered",
    "busy us",
    "wall us",
];

/// Arguments that no row of a span has, but that readers trust on any row.
const READER_ARGUMENTS: [&str; 5] = ["stream", "correlation", "context", "external id", "Input dims"];

/// Returns the argument that a field of this name may become, if its value has the right type.
pub fn argument_for_field(field: &str) -> Option<&'static Entry> {
    let entry = lookup_field(field).or_else(|| HTA_ARGUMENTS.iter().find(|entry| entry.key == field))?;
    (entry.owner != Owner::Writer && !READER_ARGUMENTS.contains(&entry.key)).then_some(entry)
}

/// Returns the name under which a field that is not an argument is written.
pub fn name_in_file(field: &str) -> String {
    let is_trusted = |entry: &Entry| entry.key == field && entry.owner.is_trusted();
    let is_argument = lookup_field(field).or(argument_for_field(field)).is_some_and(is_trusted);
    if is_argument || ROW_ARGUMENTS.contains(&field) || READER_ARGUMENTS.contains(&field) {
        format!("{field}{SUFFIX}")
    } else {
        field.to_owned()
    }
}

/// Returns the original name of a renamed field; `None` if the name was not changed, or if the row itself has an
/// argument of the original name.
pub fn original_name(shown: &str) -> Option<&str> {
    let field = shown.strip_suffix(SUFFIX)?;
    (READER_ARGUMENTS.contains(&field) || argument_for_field(field).is_some()).then_some(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_argument_names_get_a_suffix() {
        for (field, expected) in [
            ("stream", "stream (field)"),
            ("correlation", "correlation (field)"),
            ("device", "device (field)"),
            ("External id", "External id (field)"),
            ("external id", "external id (field)"),
            ("Sequence number", "Sequence number (field)"),
            ("batchId", "batchId (field)"),
            ("target", "target (field)"),
            ("seq", "seq"),
            ("dims", "dims"),
            ("kind", "kind"),
            ("src", "src"),
            ("name", "name"),
            ("stream (field)", "stream (field)"),
        ] {
            assert_eq!(name_in_file(field), expected);
        }
    }

    #[test]
    fn original_names_are_recovered_unless_taken() {
        for field in ["stream", "correlation", "context", "device", "external id", "Sequence number", "batchId"] {
            assert_eq!(original_name(&name_in_file(field)), Some(field));
        }
        for field in ["External id", "span id", "target", "finished", "mine"] {
            assert_eq!(original_name(&name_in_file(field)), None, "{field}");
        }
    }
}

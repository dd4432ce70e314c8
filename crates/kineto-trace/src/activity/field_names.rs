//! The names that a program's fields have among the arguments of its rows.
//!
//! Readers trust the names of arguments. HTA takes every row with a `stream` for work of a device, joins rows by
//! `correlation`, and refuses a text where it expects an integer; TensorBoard reads `external id` before `External id`. So
//! a field that is called like an argument and is none is shown as `name (field)`.

use super::catalogue::{Entry, HTA_ARGUMENTS, Owner, lookup};

/// What the name of such a field ends in.
pub const SUFFIX: &str = " (field)";

/// Arguments that a row of a span has without any field.
const OF_ROWS: [&str; 11] = [
    "span id",
    "parent id",
    "request id",
    "clipped",
    "target",
    "location",
    "level",
    "thread id",
    "polls",
    "busy us",
    "wall us",
];

/// Arguments that no row of a span has, and that readers believe whatever the row.
const OF_READERS: [&str; 5] = ["stream", "correlation", "context", "external id", "Input dims"];

/// Returns the argument that a field of that name may be, if its value is of that argument's kind.
pub fn argument(field: &str) -> Option<&'static Entry> {
    let entry = lookup(field).or_else(|| HTA_ARGUMENTS.iter().find(|entry| entry.key == field))?;
    (entry.owner != Owner::Writer && !OF_READERS.contains(&entry.key)).then_some(entry)
}

/// Returns the name of a field that is no argument.
pub fn shown(field: &str) -> String {
    let is_trusted = |entry: &Entry| entry.key == field && entry.owner.is_trusted();
    let is_argument = lookup(field).or(argument(field)).is_some_and(is_trusted);
    if is_argument || OF_ROWS.contains(&field) || OF_READERS.contains(&field) {
        format!("{field}{SUFFIX}")
    } else {
        field.to_owned()
    }
}

/// Returns the own name of a field that is shown under another one; `None` of a name that is none such, or that stands
/// next to an argument of the row itself.
pub fn original(shown: &str) -> Option<&str> {
    let field = shown.strip_suffix(SUFFIX)?;
    (OF_READERS.contains(&field) || argument(field).is_some()).then_some(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_arguments_are_changed() {
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
            assert_eq!(shown(field), expected);
        }
    }

    #[test]
    fn names_come_back_unless_a_row_has_such_an_argument() {
        for field in ["stream", "correlation", "context", "device", "external id", "Sequence number", "batchId"] {
            assert_eq!(original(&shown(field)), Some(field));
        }
        for field in ["External id", "span id", "target", "finished", "mine"] {
            assert_eq!(original(&shown(field)), None, "{field}");
        }
    }
}

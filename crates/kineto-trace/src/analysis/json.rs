//! Writes JSON objects with long lists, item by item: a list of values in memory takes many times the size of its text.

use serde_json::Value;
use std::io::{self, Write};

/// A member that is a list.
pub(super) type ListMember<'l> = (&'static str, &'l mut dyn Iterator<Item = Value>);

/// Writes an object with the members of `head` and lists.
pub(super) fn write_object(out: &mut dyn Write, head: &Value, lists: &mut [ListMember<'_>]) -> io::Result<()> {
    let text = head.to_string();
    let members = text.strip_suffix('}').unwrap_or("{");
    out.write_all(members.as_bytes())?;
    let mut separator = if members.len() > 1 { "," } else { "" };
    for (name, items) in lists {
        write!(out, "{separator}\"{name}\":[")?;
        separator = "";
        for item in items {
            write!(out, "{separator}{item}")?;
            separator = ",";
        }
        out.write_all(b"]")?;
        separator = ",";
    }
    out.write_all(b"}")?;
    out.flush()
}

/// Returns what `write` writes.
pub(super) fn written_text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = write(&mut text);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn object_has_members_of_its_head_and_lists() {
        for head in [json!({}), json!({ "a": 1 })] {
            let lists: &mut [ListMember<'_>] =
                &mut [("b", &mut [json!(2), json!({})].into_iter()), ("c", &mut std::iter::empty())];
            let text = written_text(|out| write_object(out, &head, lists));
            let mut expected = json!({ "b": [2, {}], "c": [] });
            expected.as_object_mut().unwrap().extend(head.as_object().unwrap().clone());
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        }
    }
}

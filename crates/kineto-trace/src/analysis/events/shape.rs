//! The shapes of an operation's inputs.

use crate::analysis::json_reader::{Json, JsonValue};

/// The shape or strides of one input of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A tensor; empty for a scalar, and for inputs that are not tensors.
    Tensor(Vec<i64>),
    /// A list of tensors. torch writes lists of more than 30 as an empty list, which is a [`Tensor`](Shape::Tensor)
    /// here.
    List(Vec<Shape>),
}

impl Shape {
    /// Parses the shapes of all inputs; `None` if the text is not a list of shapes.
    pub(super) fn parse_all(json: &str) -> Option<Vec<Shape>> {
        parse_list(json, |value| match value {
            JsonValue::Nested(text) => Shape::parse_one(text),
            _ => None,
        })
    }

    fn parse_one(text: &[u8]) -> Option<Shape> {
        let text = str::from_utf8(text).ok()?;
        match parse_integers(text) {
            Some(sizes) => Some(Shape::Tensor(sizes)),
            None => Shape::parse_all(text).map(Shape::List),
        }
    }
}

/// Parses a list of integers; `None` if the text is anything else.
pub(super) fn parse_integers(json: &str) -> Option<Vec<i64>> {
    parse_list(json, |value| match value {
        JsonValue::Number(number) => number.as_str().parse().ok(),
        _ => None,
    })
}

/// Parses a list of strings; `None` if the text is anything else.
pub(super) fn parse_strings(json: &str) -> Option<Vec<String>> {
    parse_list(json, |value| match value {
        JsonValue::Text(text) => Some(text.decode_text().0.into_owned()),
        _ => None,
    })
}

/// Parses a list; `None` if the text is anything else, or `parse` takes one of its elements for something else.
fn parse_list<T>(json: &str, parse: impl Fn(JsonValue<'_>) -> Option<T>) -> Option<Vec<T>> {
    let (mut list, mut whole) = (Vec::new(), true);
    let read = Json::new(json.as_bytes(), 0).read_array(|json| {
        let element = parse(json.read_value()?);
        whole &= element.is_some();
        list.extend(element);
        Ok(())
    });
    (read.is_ok() && whole).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Shape::{List, Tensor};

    #[test]
    fn lists_of_tensors_keep_their_structure() {
        let shapes = Shape::parse_all("[[2, 3], [], [[4], [5, 6]], [[[1]]]]").unwrap();
        let list = List(vec![Tensor(vec![4]), Tensor(vec![5, 6])]);
        assert_eq!(shapes, [Tensor(vec![2, 3]), Tensor(vec![]), list, List(vec![List(vec![Tensor(vec![1])])])]);
        assert_eq!(Shape::parse_all("[]"), Some(vec![]));
        for bad in ["[1]", "[[1.5]]", "[[1, [2]]]", "{}", "", "[[\"a\"]]"] {
            assert_eq!(Shape::parse_all(bad), None, "{bad}");
        }
        assert_eq!(parse_strings("[\"a\", \"\\u00e9\"]"), Some(vec!["a".to_owned(), "é".to_owned()]));
        assert_eq!((parse_strings("[1]"), parse_integers("[1, null]")), (None, None));
    }
}

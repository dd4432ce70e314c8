//! Settings that are specific to some collectors, by name.

use kineto_base::sorted::SortedMap;
use std::fmt;
use std::path::PathBuf;

/// Settings by the names of their keys and environment variables, such as `ROCTRACER_MAX_EVENTS` or `CUDA_HOME`.
///
/// A collector reads those that it knows, and uses its default for names without a value.
///
/// ```
/// use tracing_kineto::integration::Options;
///
/// let mut options = Options::default();
/// options.set("CUDA_GRAPH_TRACE", true);
/// assert!(options.flag("CUDA_GRAPH_TRACE") && !options.flag("TEARDOWN_CUPTI"));
/// assert_eq!(options.number("ROCTRACER_MAX_EVENTS"), None);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Options(SortedMap<&'static str, OptionValue>);

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionValue {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text or a path.
    Text(String),
    /// Names, or numbers as text.
    List(Vec<String>),
}

impl Options {
    /// Sets a value; replaces an earlier one of that name.
    pub fn set(&mut self, name: &'static str, value: impl Into<OptionValue>) {
        self.0.insert(name, value.into());
    }

    /// Returns a value.
    pub fn get(&self, name: &str) -> Option<&OptionValue> {
        self.0.get(name)
    }

    /// Returns whether a flag is set to true.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(OptionValue::Bool(true)))
    }

    /// Returns a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        if let Some(OptionValue::Int(number)) = self.get(name) { Some(*number) } else { None }
    }

    /// Returns a text that is not empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(OptionValue::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Returns the path of a file or folder.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// Returns the paths of several names, in that order and without repetitions.
    pub fn paths(&self, names: &[&str]) -> Vec<PathBuf> {
        let mut paths: Vec<_> = names.iter().filter_map(|name| self.path(name)).collect();
        paths.dedup();
        paths
    }

    /// Returns a list; empty if it is not set.
    pub fn list(&self, name: &str) -> &[String] {
        if let Some(OptionValue::List(list)) = self.get(name) { list } else { &[] }
    }
}

impl From<bool> for OptionValue {
    fn from(on: bool) -> Self {
        OptionValue::Bool(on)
    }
}

impl From<i64> for OptionValue {
    fn from(number: i64) -> Self {
        OptionValue::Int(number)
    }
}

impl From<&str> for OptionValue {
    fn from(text: &str) -> Self {
        OptionValue::Text(text.to_owned())
    }
}

impl From<PathBuf> for OptionValue {
    fn from(path: PathBuf) -> Self {
        OptionValue::Text(path.to_string_lossy().into_owned())
    }
}

impl From<Vec<String>> for OptionValue {
    fn from(list: Vec<String>) -> Self {
        OptionValue::List(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_type() {
        let mut options = Options::default();
        options.set("FLAG", true);
        options.set("NUMBER", 7);
        options.set("CUDA_HOME", "/cuda");
        options.set("CUDA_PATH", "/cuda");
        options.set("EMPTY", "");
        options.set("LIST", vec!["one".to_owned()]);
        assert!(options.flag("FLAG") && !options.flag("NUMBER") && !options.flag("OTHER"));
        assert_eq!((options.number("NUMBER"), options.number("FLAG")), (Some(7), None));
        assert_eq!((options.text("CUDA_HOME"), options.text("EMPTY")), (Some("/cuda"), None));
        assert_eq!(options.paths(&["CUDA_HOME", "CUDA_PATH", "OTHER"]), [PathBuf::from("/cuda")]);
        assert_eq!((options.list("LIST"), options.list("OTHER")), (&["one".to_owned()][..], &[][..]));
    }
}

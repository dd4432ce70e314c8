//! Formats text in sections and aligned lines, wrapped to the width of terminals.

use kineto_base::text::escaped;
use kineto_model::activity::ActivityTypes;

/// The text so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Page(String);

/// The longest line, except for longer words.
const WIDTH: usize = 80;
/// The column of values.
const COLUMN: usize = 22;

impl Page {
    /// Starts a section.
    pub(super) fn start_section(&mut self, title: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(title);
        self.0.push('\n');
    }

    /// Adds a labelled text, wrapped to as many lines as it needs.
    pub(super) fn add_line(&mut self, label: &str, text: &str) {
        let mut line = format!("  {label:<width$}", width = COLUMN - 3);
        let mut is_empty = true;
        for word in text.split_whitespace() {
            if !is_empty && line.len() + 1 + word.len() > WIDTH {
                self.push_line(&line);
                line = " ".repeat(COLUMN - 1);
            }
            line.push(' ');
            line.push_str(word);
            is_empty = false;
        }
        self.push_line(&line);
    }

    /// Adds a list of activity types, if there are any.
    pub(super) fn add_types(&mut self, label: &str, types: ActivityTypes) {
        let names: Vec<_> = types.iter().map(|kind| kind.as_str()).collect();
        if !names.is_empty() {
            self.add_line(label, &names.join(", "));
        }
    }

    fn push_line(&mut self, line: &str) {
        self.0.push_str(&escaped(line.trim_end()));
        self.0.push('\n');
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_under_their_beginning() {
        let mut page = Page::default();
        page.start_section("One");
        page.add_line("label", &"word ".repeat(20));
        page.add_line("path", &"x".repeat(120));
        page.start_section("Two");
        page.add_line("", "");
        page.add_types("none", ActivityTypes::EMPTY);
        let words = ["word"; 11].join(" ");
        let path = "x".repeat(120);
        let indent = " ".repeat(COLUMN);
        let line = |label: &str, text: &str| format!("  {label:<20}{text}\n");
        let expected = format!(
            "One\n{}{indent}word word word word word word word word word\n{}\nTwo\n\n",
            line("label", &words),
            line("path", &path),
        );
        assert_eq!(page.text(), expected);
    }
}

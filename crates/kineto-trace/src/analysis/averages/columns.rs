//! The columns of a printed table: cells are truncated and aligned.

use super::Average;
use crate::text::{char_width, printable};
use std::fmt;
use std::sync::Arc;

/// One column.
#[derive(Clone)]
pub(super) struct Column<'a> {
    pub(super) title: String,
    pub(super) width: usize,
    /// The column of the highest rank is dropped first, a column of rank 0 never.
    pub(super) drop_priority: u8,
    cell: Arc<dyn Fn(&Average) -> String + 'a>,
    truncation: Truncation,
    /// [`Truncation::End`] truncates texts of `most` - 3 or more characters, as torch does, even if they would fit.
    end_limit: usize,
    is_left: bool,
    /// torch counts characters, not columns of the terminal.
    pub(super) char_width: fn(char) -> usize,
}

/// How to truncate a text that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truncation {
    /// Never: numbers.
    Never,
    /// At the end, marked by "...".
    End,
    /// At the beginning, marked by "..."; the cell may have several lines.
    Start,
    /// At the end, without a mark.
    EndUnmarked,
}

impl<'a> Column<'a> {
    pub(super) fn new(
        title: impl Into<String>,
        width: usize,
        drop_priority: u8,
        cell: impl Fn(&Average) -> String + 'a,
    ) -> Column<'a> {
        let cell = Arc::new(cell);
        Column {
            title: title.into(),
            width,
            drop_priority,
            cell,
            truncation: Truncation::Never,
            end_limit: usize::MAX,
            is_left: false,
            char_width,
        }
    }

    pub(super) fn with_truncation(mut self, side: Truncation, most: usize) -> Self {
        (self.truncation, self.end_limit) = (side, most);
        self
    }

    pub(super) fn left_aligned(self) -> Self {
        Column { is_left: true, ..self }
    }

    /// Narrows the column by `by` characters, down to `least`.
    pub(super) fn narrow_by(&mut self, least: usize, by: usize) {
        self.width = self.width.saturating_sub(by).max(least.min(self.width));
        self.end_limit = self.end_limit.min(self.width);
    }

    /// Returns whether cells are texts, which may be truncated.
    pub(super) fn is_text(&self) -> bool {
        self.truncation != Truncation::Never
    }

    /// Returns whether a cell may have several lines, so that rows need a separator.
    pub(super) fn is_multi_line(&self) -> bool {
        self.truncation == Truncation::Start
    }

    pub(super) fn format_heading(&self) -> String {
        let title = if self.is_text() && self.width_of(&self.title) > self.width {
            self.start_of(&self.title, self.width)
        } else {
            &self.title
        };
        self.align_text(title)
    }

    /// Returns the lines of a cell: one, unless the column's cells may have several.
    pub(super) fn cell_lines(&self, row: &Average) -> Vec<String> {
        let text = (self.cell)(row);
        if self.is_multi_line() { text.lines().map(str::to_owned).collect() } else { vec![text] }
    }

    /// Returns a line of a cell, as wide as the column.
    pub(super) fn format_line(&self, text: &str) -> String {
        self.align_text(&self.truncate_text(&printable(text)))
    }

    fn width_of(&self, text: &str) -> usize {
        text.chars().map(self.char_width).sum()
    }

    /// Returns the start of a text that takes at most `width` columns.
    fn start_of<'t>(&self, text: &'t str, width: usize) -> &'t str {
        let mut used = 0;
        let end = text.char_indices().find(|(_, c)| {
            used += (self.char_width)(*c);
            used > width
        });
        end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
    }

    fn align_text(&self, text: &str) -> String {
        let space = " ".repeat(self.width.saturating_sub(self.width_of(text)));
        if self.is_left { format!("{text}{space}  ") } else { format!("{space}{text}  ") }
    }

    fn truncate_text(&self, text: &str) -> String {
        let length = self.width_of(text);
        match self.truncation {
            Truncation::End if length >= self.end_limit.saturating_sub(3) => {
                format!("{}...", self.start_of(text, self.end_limit.saturating_sub(3)))
            }
            Truncation::Start if length > self.width => {
                let mut over = length + 3 - self.width;
                let is_over = |c: &char| {
                    let is_over = over > 0;
                    over = over.saturating_sub((self.char_width)(*c));
                    is_over
                };
                format!("...{}", text.chars().skip_while(is_over).collect::<String>())
            }
            Truncation::EndUnmarked => self.start_of(text, self.width).to_owned(),
            _ => text.to_owned(),
        }
    }
}

impl fmt::Debug for Column<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column").field("title", &self.title).field("width", &self.width).finish_non_exhaustive()
    }
}

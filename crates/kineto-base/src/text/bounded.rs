//! Texts with a length limit.

use super::floor_char_boundary;
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A text that stops growing at a limit, so that formatting a huge value costs no more than a small one.
#[derive(Debug)]
pub struct Bounded {
    /// The text so far.
    pub text: String,
    bytes_max: usize,
    /// Whether it reached the limit.
    pub cut: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let bytes_left = self.bytes_max - self.text.len();
        if more.len() <= bytes_left {
            self.text.push_str(more);
            return Ok(());
        }
        self.text.push_str(more.get(..floor_char_boundary(more, bytes_left)).unwrap_or_default());
        self.cut = true;
        Err(fmt::Error)
    }
}

impl Bounded {
    /// Formats a value, up to `bytes_max`.
    pub fn from_debug(value: &dyn fmt::Debug, bytes_max: usize) -> Bounded {
        let mut text = Bounded { text: String::new(), bytes_max, cut: false };
        // An error comes from the limit or from the value; the text before it is kept. A panic must not reach the program,
        // which did not request the text.
        if catch_unwind(AssertUnwindSafe(|| write!(text, "{value:?}"))).is_err() {
            let _ = text.write_str("(Debug panicked)");
        }
        text
    }
}

//! Texts that are cut at a limit, and counts of things.

pub(crate) use kineto_trace::text::{boundary, counted};
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A text that stops growing at a limit, so that a value of gigabytes costs no more than one of kilobytes.
pub(crate) struct Bounded {
    pub(crate) text: String,
    bytes_max: usize,
    pub(crate) cut: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let bytes_left = self.bytes_max - self.text.len();
        if more.len() <= bytes_left {
            self.text.push_str(more);
            return Ok(());
        }
        self.text.push_str(more.get(..boundary(more, bytes_left)).unwrap_or_default());
        self.cut = true;
        Err(fmt::Error)
    }
}

impl Bounded {
    /// Renders a value, up to `bytes_max`.
    pub(crate) fn debug(value: &dyn fmt::Debug, bytes_max: usize) -> Bounded {
        let mut text = Bounded { text: String::new(), bytes_max, cut: false };
        // An error is either ours, at the limit, or the value's own: what was written until then is kept. A panic is not
        // the program's: without this crate nobody would have asked for the text.
        if catch_unwind(AssertUnwindSafe(|| write!(text, "{value:?}"))).is_err() {
            let _ = text.write_str("(Debug panicked)");
        }
        text
    }
}

//! A line of text for stderr, formatted without allocating.

use crate::text::floor_char_boundary;
use std::fmt::{self, Write};

/// A line of at most [`Line::LIMIT`] bytes, including its newline.
///
/// It lies on the stack, because an allocator may send the message.
pub(super) struct Line {
    bytes: [u8; Self::LIMIT],
    len: usize,
    cut: bool,
}

impl Line {
    const LIMIT: usize = 4096;
    /// The end of a truncated line.
    const CUT: &'static str = " [cut]\n";

    /// Formats `text` and truncates it at a character boundary; keeps newlines in it.
    pub(super) fn new(text: fmt::Arguments<'_>) -> Self {
        let mut line = Line { bytes: [0; Self::LIMIT], len: 0, cut: false };
        // An error can only come from the value's `Display`; the text before it is kept.
        let _ = line.write_fmt(text);
        let end = if line.cut { Self::CUT } else { "\n" };
        line.append(end.as_bytes());
        line
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn append(&mut self, text: &[u8]) {
        let end = self.len + text.len();
        if let Some(space) = self.bytes.get_mut(self.len..end) {
            space.copy_from_slice(text);
            self.len = end;
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.cut {
            return Ok(());
        }
        let space = Self::LIMIT - Self::CUT.len() - self.len;
        let fitting = floor_char_boundary(text, space);
        self.cut = fitting < text.len();
        self.append(text.get(..fitting).unwrap_or_default().as_bytes());
        Ok(())
    }
}

/// Returns the calling thread's id: the kernel's on Linux, else Rust's.
pub(super) fn thread_number() -> u64 {
    let kernel = || {
        let link = std::fs::read_link("/proc/thread-self").ok()?;
        link.file_name()?.to_str()?.parse().ok()
    };
    let rust = || {
        let id = format!("{:?}", std::thread::current().id());
        id.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
    };
    if cfg!(target_os = "linux") { kernel().or_else(rust) } else { rust() }.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_line_is_complete() {
        assert_eq!(Line::new(format_args!("a {} c", 'b')).as_bytes(), b"a b c\n");
    }

    #[test]
    fn long_line_is_cut_between_characters() {
        let text = "é".repeat(Line::LIMIT);
        for lead in ["", "x"] {
            let line = Line::new(format_args!("{lead}{text}{lead}"));
            let line = std::str::from_utf8(line.as_bytes()).unwrap();
            assert!(line.len() > Line::LIMIT - 3 && line.len() <= Line::LIMIT, "{}", line.len());
            assert!(line.ends_with("é [cut]\n"));
        }
    }

    #[test]
    fn threads_have_distinct_numbers() {
        let other = std::thread::Builder::new().spawn(thread_number).unwrap().join().unwrap();
        assert_ne!(other, thread_number());
        assert_ne!(other, 0);
    }
}

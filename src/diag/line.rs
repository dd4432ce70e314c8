//! One line of text for stderr, made without allocating.

use crate::text::boundary;
use std::fmt::{self, Write};

/// A line of at most [`Line::LIMIT`] bytes, with its newline.
///
/// It lies on the stack: an allocator may be what sends the message.
pub(super) struct Line {
    bytes: [u8; Self::LIMIT],
    len: usize,
    cut: bool,
}

impl Line {
    const LIMIT: usize = 4096;
    /// Closes a line that was too long.
    const CUT: &'static str = " [cut]\n";

    /// Formats `text` and cuts it to the limit, on a character boundary; newlines in it stay.
    pub(super) fn new(text: fmt::Arguments<'_>) -> Self {
        let mut line = Line { bytes: [0; Self::LIMIT], len: 0, cut: false };
        // The only error is that of a `Display` inside: what came before it is worth showing.
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
        let fitting = boundary(text, space);
        self.cut = fitting < text.len();
        self.append(text.get(..fitting).unwrap_or_default().as_bytes());
        Ok(())
    }
}

/// Seconds since the Unix epoch, shown as `YYYY-MM-DD HH:MM:SS` in UTC.
///
/// libkineto shows local time; the time zone is not to be had without foreign code that reads the environment.
pub(super) struct UtcTime(pub(super) u64);

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0 / 86_400);
        let second = self.0 % 86_400;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

/// The year, month and day that lie so many days after 1970-01-01 (Gregorian).
///
/// Counts in years that begin in March, so that the leap day is the last of its year, and in eras of 400 years.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970_FROM_MARCH_0000: u64 = 719_468;
    const DAYS_OF_ERA: u64 = 146_097;
    let days = days + DAYS_TO_1970_FROM_MARCH_0000;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on have 153 days, and so have the next five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (400 * era + year + u64::from(month <= 2), month, day)
}

/// The calling thread's number: the kernel's on Linux, else the one Rust gives.
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
    fn a_line_that_fits_is_whole() {
        assert_eq!(Line::new(format_args!("a {} c", 'b')).as_bytes(), b"a b c\n");
    }

    #[test]
    fn a_long_line_is_cut_between_characters_and_says_so() {
        let text = "é".repeat(Line::LIMIT);
        for lead in ["", "x"] {
            let line = Line::new(format_args!("{lead}{text}{lead}"));
            let line = std::str::from_utf8(line.as_bytes()).unwrap();
            assert!(line.len() > Line::LIMIT - 3 && line.len() <= Line::LIMIT, "{}", line.len());
            assert!(line.ends_with("é [cut]\n"));
        }
    }

    #[test]
    fn days_become_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_164_800, "2024-02-29 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (1_735_689_600, "2025-01-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(UtcTime(seconds).to_string(), text);
        }
        // Every day of 800 years follows the one before.
        let mut last = civil_from_days(0);
        for days in 1..292_194 {
            let next = civil_from_days(days);
            let (year, month, day) = last;
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let of_month = [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                _ if day == of_month[usize::try_from(month).unwrap() - 1] => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
            assert_eq!(next, expected);
            last = next;
        }
    }

    #[test]
    fn threads_have_different_numbers() {
        let other = std::thread::Builder::new().spawn(thread_number).unwrap().join().unwrap();
        assert_ne!(other, thread_number());
        assert_ne!(other, 0);
    }
}

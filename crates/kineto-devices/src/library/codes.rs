//! Result codes of vendors' libraries as tables: their names, their meaning for a recording, and advice.

use crate::{Unavailable, Why};
use std::fmt;

/// A result code: its number, the vendor's name without the prefix, the category, and advice; "" if there is none.
pub(crate) type CodeRow = (i64, &'static str, Why, &'static str);

/// The result codes of a library. Newer libraries may return unknown ones.
#[derive(Debug)]
pub(crate) struct ResultCodes {
    /// The library's name in messages about unknown codes.
    pub(crate) library: &'static str,
    /// The vendor's prefix of all names.
    pub(crate) prefix: &'static str,
    pub(crate) rows: &'static [CodeRow],
}

impl ResultCodes {
    fn row(&self, code: i64) -> CodeRow {
        self.rows.iter().find(|row| row.0 == code).copied().unwrap_or((code, "", Why::Failed, ""))
    }

    /// Returns the advice as the end of a sentence.
    pub(crate) fn advice_suffix(&self, code: i64) -> String {
        let (.., advice) = self.row(code);
        if advice.is_empty() { String::new() } else { format!("; {advice}") }
    }

    /// Makes the reason why nothing is recorded from its message.
    pub(crate) fn to_unavailable(&self, code: i64, message: String) -> Unavailable {
        let (_, _, why, advice) = self.row(code);
        Unavailable::new(why, message, advice)
    }

    /// Writes a code's name and number.
    pub(crate) fn write_code(&self, code: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row(code).1 {
            "" => write!(f, "{} error {code}", self.library),
            name => write!(f, "{}{name} ({code})", self.prefix),
        }
    }
}

//! The severity of a message, in libkineto's six levels.

use std::fmt;

/// The severity of a message of this crate; names and numbers are libkineto's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Severity {
    /// Details for developers of this crate.
    Verbose = 0,
    /// Progress.
    Info = 1,
    /// Something is missing or was not understood; the program continues without it.
    Warning = 2,
    /// A recording has reached its next stage.
    Stage = 3,
    /// A requested operation failed.
    Error = 4,
    /// Marks for probes.
    Usdt = 5,
}

impl Severity {
    /// All severities, the lowest first.
    pub const ALL: &'static [Severity] =
        &[Severity::Verbose, Severity::Info, Severity::Warning, Severity::Stage, Severity::Error, Severity::Usdt];

    /// Returns the name, as it starts a line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Verbose => "VERBOSE",
            Severity::Info => "INFO",
            Severity::Warning => "WARNING",
            Severity::Stage => "STAGE",
            Severity::Error => "ERROR",
            Severity::Usdt => "USDT",
        }
    }

    /// Returns the severity of that name (in any case; "warn" too) or number, as in `KINETO_LOG_LEVEL`.
    ///
    /// libkineto takes any other text for 0; here it is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let named = Self::ALL.iter().copied().find(|severity| severity.as_str().eq_ignore_ascii_case(text));
        let numbered = || Self::ALL.iter().copied().find(|severity| text.parse() == Ok(severity.number()));
        named.or_else(|| text.eq_ignore_ascii_case("warn").then_some(Severity::Warning)).or_else(numbered)
    }

    /// Returns libkineto's number for it.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_case_and_numbers_are_parsed() {
        let texts = ["verbose", "Info", "WARNING", "sTaGe", " error ", "usdt"];
        for (number, text) in texts.into_iter().enumerate() {
            let severity = Severity::parse(text).unwrap();
            assert_eq!(usize::from(severity.number()), number);
            assert_eq!(Severity::parse(&number.to_string()), Some(severity));
        }
        assert_eq!(Severity::parse("warn"), Some(Severity::Warning));
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["", "6", "-1", "2.0", "loud", "warnings", "0x1", "999"] {
            assert_eq!(Severity::parse(text), None, "{text}");
        }
    }
}

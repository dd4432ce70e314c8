//! The result of a check, as text and as JSON.

use super::Rule;
use super::nearest::printable;
use super::quantity::Quantity;
use crate::text::truncate_name;
use crate::time::Timestamp;
use kineto_model::named_values;
use serde_json::{Value, json};
use std::fmt;

/// Which rules a trace meets; made by [`Rules::check`](super::Rules::check). The text has a line for each rule, and more for those that fail.
#[derive(Clone, PartialEq)]
pub struct CheckReport {
    pub(super) outcomes: Vec<RuleOutcome>,
}

impl fmt::Debug for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckReport")
            .field("rules", &self.outcomes.len())
            .field("failures", &self.failures().count())
            .finish_non_exhaustive()
    }
}

/// Whether a trace meets a rule, and where it does not.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RuleOutcome {
    /// The rule.
    pub rule: Rule,
    /// Whether the trace meets it.
    pub status: RuleStatus,
    /// The value, of several spans the worst; `None` if nothing was measured.
    pub found: Option<Quantity>,
    /// The number of values: of spans if each was measured, else 1.
    pub measured: usize,
    /// The number of values that break a limit.
    pub broken: usize,
    /// Why the rule is not measured, or more about the value.
    pub message: Option<String>,
    /// Where the rule fails, the worst place first; at most three.
    pub places: Vec<RulePlace>,
}

named_values! {
    /// Whether a trace meets a rule.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RuleStatus {
        /// The trace meets the rule.
        Holds => "holds",
        /// A value breaks a limit.
        Fails => "fails",
        /// The rule matches nothing in the trace, so it could not fail. This is a failure.
        Unmatched => "unmatched",
        /// The rule matches nothing, and is optional.
        Skipped => "skipped",
        /// The rule's parts do not fit together. This is a failure.
        Invalid => "invalid",
    }

    /// Returns the name in JSON: "holds", "fails", "unmatched", "skipped" or "invalid".
    pub const fn as_str;
}

impl RuleStatus {
    /// Returns whether it is a failure.
    pub const fn is_failure(self) -> bool {
        !matches!(self, RuleStatus::Holds | RuleStatus::Skipped)
    }
}

/// A place at which a trace breaks a rule.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RulePlace {
    /// The name of the event; "no device work" for a gap, "nothing recorded" for a piece of a path without an event.
    pub name: String,
    /// The start.
    pub start: Timestamp,
    /// The time from the start of the trace to `start`, in nanoseconds.
    pub offset_ns: u64,
    /// The duration in nanoseconds.
    pub duration_ns: u64,
    /// The process and the name of the thread, or the device and the name of the stream; empty without an event.
    pub track: String,
    /// The value, if each span has one.
    pub value: Option<Quantity>,
}

impl CheckReport {
    /// Returns whether the trace meets all rules. Without rules it does not, as nothing was checked.
    pub fn holds(&self) -> bool {
        !self.outcomes.is_empty() && self.failures().next().is_none()
    }

    /// Returns the outcomes in the order of the rules.
    pub fn outcomes(&self) -> &[RuleOutcome] {
        &self.outcomes
    }

    /// Returns the outcomes of rules that the trace does not meet.
    pub fn failures(&self) -> impl Iterator<Item = &RuleOutcome> {
        self.outcomes.iter().filter(|outcome| outcome.status.is_failure())
    }

    /// Returns the report as a JSON object of the schema `kineto-check/1`; times are microseconds.
    pub fn to_json(&self) -> String {
        let rules: Vec<_> = self.outcomes.iter().map(outcome_json).collect();
        json!({ "schema": "kineto-check/1", "unit": "us", "holds": self.holds(), "rules": rules }).to_string()
    }
}

fn outcome_json(outcome: &RuleOutcome) -> Value {
    let rule = &outcome.rule;
    let number = |quantity: Option<Quantity>| quantity.map(|quantity| quantity.to_json().1);
    let place = |place: &RulePlace| {
        json!({
            "name": place.name,
            "start": Quantity::Nanoseconds(place.offset_ns).to_json().1,
            "dur": Quantity::Nanoseconds(place.duration_ns).to_json().1,
            "track": place.track,
            "value": number(place.value),
        })
    };
    json!({
        "rule": rule.to_string(),
        "name": rule.name(),
        "figure": rule.figure.to_string(),
        "unit": rule.figure.zero().to_json().0,
        "status": outcome.status.as_str(),
        "found": number(outcome.found),
        "min": number(rule.min),
        "max": number(rule.max),
        "measured": outcome.measured,
        "broken": outcome.broken,
        "message": outcome.message,
        "places": outcome.places.iter().map(place).collect::<Vec<_>>(),
    })
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcomes.iter().try_for_each(|outcome| writeln!(f, "{outcome}"))
    }
}

/// Formats a line, and one more for each place; without a line feed at the end.
impl fmt::Display for RuleOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.status {
            RuleStatus::Holds => "ok",
            RuleStatus::Skipped => "skipped",
            _ => "FAILED",
        };
        write!(f, "{word:<7} ")?;
        if let Some(name) = self.rule.name() {
            write!(f, "{}: ", printable(name))?;
        }
        write!(f, "{}", self.rule)?;
        self.found.iter().try_for_each(|found| write!(f, "; found {found}"))?;
        if self.broken > 0 && self.measured > 1 {
            write!(f, ", in {} of {} values", self.broken, self.measured)?;
        }
        self.message.iter().try_for_each(|message| write!(f, "; {message}"))?;
        for place in &self.places {
            write!(f, "\n        {place}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Names of kernels may have hundreds of characters.
        const NAME_CHARS: usize = 80;

        let time = Quantity::Nanoseconds;
        let name = truncate_name(&self.name, NAME_CHARS);
        self.value.iter().try_for_each(|value| write!(f, "{value}  "))?;
        write!(f, "`{name}` at {}", time(self.offset_ns))?;
        if !self.track.is_empty() {
            write!(f, " on {}", self.track)?;
        }
        write!(f, ", {}", time(self.duration_ns))
    }
}

//! Rules that a trace must meet, for tests and continuous integration.

mod context;
mod evaluate;
mod figure;
mod measure;
mod nearest;
mod pattern;
mod quantity;
mod report;
mod scope;
#[cfg(test)]
mod tests;

pub use figure::{Figure, Statistic};
pub use pattern::NamePattern;
pub use quantity::Quantity;
pub use report::{CheckReport, RuleOutcome, RulePlace, RuleStatus};

use super::events::Events;
use super::summary::PathKind;
use crate::{Error, ErrorKind};
use figure::FigureScopes;
use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

/// The pattern of steps, `ProfilerStep#n`.
const STEPS: &str = "ProfilerStep#*";

/// Rules that a trace must meet.
///
/// A rule that matches nothing fails, since it would hold for any trace: a span that was renamed, or calls that were not recorded.
/// [`Rule::optional`] allows that. The exception is a rule that forbids a name ([`Rule::of`] with a maximum of 0): it holds if the trace
/// has spans, calls or device work, whichever it is about, and nothing has that name. So it cannot find a misspelt one.
///
/// ```
/// use kineto_trace::analysis::{Events, check::Rules};
///
/// let trace = br#"{"traceEvents": [
///     {"ph": "X", "cat": "cpu_op", "name": "decode", "pid": 1, "tid": 1, "ts": 0, "dur": 9},
///     {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 1, "tid": 1, "ts": 4, "dur": 3,
///      "args": {"correlation": 1}}
/// ]}"#;
/// let events = Events::from_reader(trace.as_slice())?;
/// let report = Rules::new().no_synchronization_in("decode").check(&events);
/// assert!(!report.holds());
/// assert_eq!(report.outcomes()[0].places[0].name, "cudaStreamSynchronize");
/// println!("{report}");
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

/// A rule: the limits of one figure of a trace, of all spans of a name, or of each of them.
///
/// ```
/// use kineto_trace::analysis::check::{Figure, Quantity, Rule};
///
/// let rule = Rule::new(Figure::Copies).of("Memcpy DtoH*").each("decode").at_most(Quantity::Count(1));
/// assert_eq!(rule.to_string(), "copies of `Memcpy DtoH*` each `decode`, at most 1");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    figure: Figure,
    name: Option<String>,
    pattern: Option<NamePattern>,
    scope: RuleScope,
    min: Option<Quantity>,
    max: Option<Quantity>,
    optional: bool,
}

/// The part of a trace that a rule measures.
#[derive(Clone, Debug, PartialEq)]
enum RuleScope {
    Trace,
    /// All spans of a name together.
    Within(NamePattern),
    /// Each span of a name.
    Each(NamePattern),
}

impl Rule {
    /// Returns a rule on a figure of the whole trace; it needs a limit.
    pub fn new(figure: Figure) -> Rule {
        Rule { figure, name: None, pattern: None, scope: RuleScope::Trace, min: None, max: None, optional: false }
    }

    /// Counts or measures only what has this name.
    #[must_use]
    pub fn of(self, name: impl Into<NamePattern>) -> Rule {
        Rule { pattern: Some(name.into()), ..self }
    }

    /// Measures all spans of this name together.
    ///
    /// Calls, work and spans count if they lie in such a span, in its descendants by the spans' own parents, or were launched there. Of steps
    /// (`ProfilerStep#…`) everything counts that begins or was launched meanwhile, on any thread of their process. Times of devices are those
    /// during the span, whatever launched the work.
    #[must_use]
    pub fn within(self, span: impl Into<NamePattern>) -> Rule {
        Rule { scope: RuleScope::Within(span.into()), ..self }
    }

    /// Measures each span of this name; each must meet the limits. What counts is as in [`within`](Rule::within).
    #[must_use]
    pub fn each(self, span: impl Into<NamePattern>) -> Rule {
        Rule { scope: RuleScope::Each(span.into()), ..self }
    }

    /// Sets the maximum, inclusive.
    #[must_use]
    pub fn at_most(self, max: impl Into<Quantity>) -> Rule {
        Rule { max: Some(max.into()), ..self }
    }

    /// Sets the minimum, inclusive.
    #[must_use]
    pub fn at_least(self, min: impl Into<Quantity>) -> Rule {
        Rule { min: Some(min.into()), ..self }
    }

    /// Skips the rule if it matches nothing, instead of failing.
    #[must_use]
    pub fn optional(self) -> Rule {
        Rule { optional: true, ..self }
    }

    /// Names the rule in reports.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Rule {
        Rule { name: Some(name.into()), ..self }
    }

    /// Returns its name in reports, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Checks that its parts fit together. [`Rules::check`] reports a rule that does not as failed.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if it has no limit, a limit of another unit than its figure, a scope or a pattern that its figure does not
    /// have, or lacks a pattern that its figure needs. [`faulty_key`](Rule::faulty_key) names the part.
    pub fn validate(&self) -> Result<(), Error> {
        match self.fault() {
            Some(fault) => Err(Error::new(ErrorKind::Config, fault.message)),
            None => Ok(()),
        }
    }

    /// Returns the part that does not fit, by its key in a file of rules: "max", "min", "of", "in" or "each". `None` if all fit, or one is
    /// missing.
    pub fn faulty_key(&self) -> Option<&'static str> {
        self.fault()?.key
    }

    /// Returns the pattern of what it measures; without one, of everything.
    fn pattern_or_all(&self) -> NamePattern {
        self.pattern.clone().unwrap_or_else(|| NamePattern::from("*"))
    }

    /// Returns whether it forbids what it counts; then matching nothing is what it wants.
    fn forbids(&self) -> bool {
        self.min.is_none_or(Quantity::is_zero) && self.max.is_some_and(Quantity::is_zero)
    }

    /// Returns why a limit of a share of a whole cannot be met or broken.
    fn share_fault(&self) -> Option<RuleFault> {
        let whole = Quantity::Percent(100.0);
        // The spread may exceed the median.
        if !self.figure.zero().has_unit_of(whole) || self.figure == Figure::Duration(Statistic::Spread) {
            return None;
        }
        let order = |limit: Option<Quantity>| limit.and_then(|limit| limit.compare(whole));
        let can_fail = self.min.is_some_and(|min| !min.is_zero());
        match (order(self.min), order(self.max)) {
            (Some(Ordering::Greater), _) => {
                Some(RuleFault::at("min", "`min` is more than 100 %, so the rule cannot hold; lower it"))
            }
            (_, Some(Ordering::Equal | Ordering::Greater)) if !can_fail => {
                Some(RuleFault::at("max", "`max` is 100 % or more, so the rule cannot fail; lower it"))
            }
            _ => None,
        }
    }

    fn fault(&self) -> Option<RuleFault> {
        self.limit_fault()
            .or_else(|| self.share_fault())
            .or_else(|| self.pattern_fault())
            .or_else(|| self.scope_fault())
    }

    /// Returns why a limit has no meaning for the figure, or none is set.
    fn limit_fault(&self) -> Option<RuleFault> {
        let (figure, zero) = (self.figure, self.figure.zero());
        let limits =
            || [("min", self.min), ("max", self.max)].into_iter().filter_map(|(key, limit)| Some((key, limit?)));
        if let Some((key, _)) = limits().find(|(_, limit)| !limit.has_unit_of(zero)) {
            let message = format!("wrong unit for a limit of `{figure}`; expected {}", zero.unit_text());
            return Some(RuleFault::at(key, message));
        }
        if let Some((key, _)) = limits().find(|(_, limit)| limit.compare(zero).is_none_or(Ordering::is_lt)) {
            return Some(RuleFault::at(key, "a limit is negative or not a number; set one of at least 0"));
        }
        match (self.min, self.max) {
            (None, None) => Some(RuleFault::missing("the rule has no limit; set `max`, `min` or both")),
            (Some(min), None) if min.is_zero() => {
                Some(RuleFault::at("min", "`min` is 0, so the rule cannot fail; raise it"))
            }
            (Some(min), Some(max)) if min.compare(max).is_none_or(Ordering::is_gt) => {
                Some(RuleFault::at("min", "`min` is greater than `max`, so the rule cannot hold; swap them"))
            }
            _ => None,
        }
    }

    fn pattern_fault(&self) -> Option<RuleFault> {
        let figure = self.figure;
        match (figure.pattern_needed(), &self.pattern) {
            (Some(true), None) => Some(RuleFault::missing(format!("`{figure}` needs a name; set `of`"))),
            (None, Some(_)) => {
                let has_calls = matches!(figure, Figure::Launches | Figure::Synchronizations);
                let other = if has_calls { ", or use `calls`" } else { "" };
                Some(RuleFault::at("of", format!("`{figure}` is the same for all names; remove `of`{other}")))
            }
            _ => None,
        }
    }

    fn scope_fault(&self) -> Option<RuleFault> {
        let figure = self.figure;
        let key = if matches!(self.scope, RuleScope::Each(_)) { "each" } else { "in" };
        let message = match (figure.scopes(), &self.scope) {
            (_, RuleScope::Trace)
            | (FigureScopes::Any, _)
            | (FigureScopes::NotEach, RuleScope::Within(_))
            | (FigureScopes::NotWithin, RuleScope::Each(_)) => return None,
            (FigureScopes::NotEach, _) => format!("`{figure}` has one value for all spans; use `in` instead of `each`"),
            (FigureScopes::NotWithin, _) => {
                format!("`{figure}` has a value for each span; use `each` instead of `in`")
            }
            (FigureScopes::TraceOnly, _) => format!("`{figure}` has one value for a trace; remove `in` and `each`"),
        };
        Some(RuleFault::at(key, message))
    }
}

/// Why the parts of a rule do not fit together.
struct RuleFault {
    /// The part that does not fit; `None` if one is missing.
    key: Option<&'static str>,
    message: String,
}

impl RuleFault {
    fn at(key: &'static str, message: impl Into<String>) -> RuleFault {
        RuleFault { key: Some(key), message: message.into() }
    }

    fn missing(message: impl Into<String>) -> RuleFault {
        RuleFault { key: None, message: message.into() }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |pattern: &NamePattern| nearest::printable(pattern.as_str());
        write!(f, "{}", self.figure)?;
        self.pattern.iter().try_for_each(|pattern| write!(f, " of `{}`", text(pattern)))?;
        match &self.scope {
            RuleScope::Trace => {}
            RuleScope::Within(span) => write!(f, " in `{}`", text(span))?,
            RuleScope::Each(span) => write!(f, " each `{}`", text(span))?,
        }
        self.min.iter().try_for_each(|min| write!(f, ", at least {min}"))?;
        self.max.iter().try_for_each(|max| write!(f, ", at most {max}"))
    }
}

impl Rules {
    /// Returns no rules.
    pub fn new() -> Rules {
        Rules::default()
    }

    /// Adds a rule.
    #[must_use]
    pub fn with(mut self, rule: Rule) -> Rules {
        self.rules.push(rule);
        self
    }

    /// Adds a rule: no call waits for a device in a span of this name.
    #[must_use]
    pub fn no_synchronization_in(self, span: impl Into<NamePattern>) -> Rules {
        self.with(Rule::new(Figure::Synchronizations).within(span).at_most(Quantity::Count(0)))
    }

    /// Adds a rule: no copy of this name, such as "Memcpy DtoH*", is launched in a span of this name.
    #[must_use]
    pub fn no_copies_in(self, copies: impl Into<NamePattern>, span: impl Into<NamePattern>) -> Rules {
        self.with(Rule::new(Figure::Copies).of(copies).within(span).at_most(Quantity::Count(0)))
    }

    /// Adds a rule: each step launches at most this often.
    #[must_use]
    pub fn max_launches_per_step(self, max: u64) -> Rules {
        self.max_launches_in(STEPS, max)
    }

    /// Adds a rule: each span of this name launches at most this often.
    #[must_use]
    pub fn max_launches_in(self, span: impl Into<NamePattern>, max: u64) -> Rules {
        self.with(Rule::new(Figure::Launches).each(span).at_most(max))
    }

    /// Adds a rule: a statistic of the durations of spans of this name is at most this.
    ///
    /// For [`Statistic::Spread`], which is a share, use [`Rule::at_most`].
    #[must_use]
    pub fn max_duration(self, span: impl Into<NamePattern>, statistic: Statistic, max: Duration) -> Rules {
        self.with(Rule::new(Figure::Duration(statistic)).of(span).at_most(max))
    }

    /// Adds a rule: a statistic of the durations of steps is at most this.
    #[must_use]
    pub fn max_step_duration(self, statistic: Statistic, max: Duration) -> Rules {
        self.max_duration(STEPS, statistic, max)
    }

    /// Adds a rule: from the first to the last device work, devices are busy for at least this share.
    #[must_use]
    pub fn min_busy_percent(self, min: f64) -> Rules {
        self.with(Rule::new(Figure::Busy).at_least(Quantity::Percent(min)))
    }

    /// Adds a rule: the writer of the trace lost no record.
    #[must_use]
    pub fn no_losses(self) -> Rules {
        self.with(Rule::new(Figure::Losses).at_most(Quantity::Count(0)))
    }

    /// Adds a rule: the reader left nothing out and repaired nothing.
    #[must_use]
    pub fn no_notes(self) -> Rules {
        self.with(Rule::new(Figure::Notes).at_most(Quantity::Count(0)))
    }

    /// Adds a rule: a span of this name occurs.
    #[must_use]
    pub fn has_span(self, span: impl Into<NamePattern>) -> Rules {
        self.with(Rule::new(Figure::Spans).of(span).at_least(Quantity::Count(1)))
    }

    /// Adds a rule: no span of this name occurs.
    #[must_use]
    pub fn no_span(self, span: impl Into<NamePattern>) -> Rules {
        self.with(Rule::new(Figure::Spans).of(span).at_most(Quantity::Count(0)))
    }

    /// Adds a rule: no kernel of this name runs.
    #[must_use]
    pub fn no_kernel(self, kernel: impl Into<NamePattern>) -> Rules {
        self.with(Rule::new(Figure::Kernels).of(kernel).at_most(Quantity::Count(0)))
    }

    /// Adds a rule: every kernel, copy and fill has a known launch.
    #[must_use]
    pub fn all_work_linked(self) -> Rules {
        self.with(Rule::new(Figure::UnlinkedWork).at_most(Quantity::Count(0)))
    }

    /// Adds a rule: an allocator held at most this many bytes on each device.
    #[must_use]
    pub fn max_device_memory(self, bytes: u64) -> Rules {
        self.with(Rule::new(Figure::DeviceMemoryPeak).at_most(Quantity::Bytes(bytes)))
    }

    /// Adds a rule: a kind takes at most this share of the trace's critical path.
    #[must_use]
    pub fn max_path_percent(self, kind: PathKind, max: f64) -> Rules {
        self.with(Rule::new(Figure::PathKind(kind)).at_most(Quantity::Percent(max)))
    }

    /// Returns the rules in the order of their addition.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Checks a trace.
    pub fn check(&self, events: &Events) -> CheckReport {
        let context = context::CheckContext::new(events);
        CheckReport { outcomes: self.rules.iter().map(|rule| evaluate::evaluate_rule(rule, &context)).collect() }
    }
}

impl Extend<Rule> for Rules {
    fn extend<I: IntoIterator<Item = Rule>>(&mut self, rules: I) {
        self.rules.extend(rules);
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Rules {
        Rules { rules: rules.into_iter().collect() }
    }
}

//! Assertions that did not hold in a recording.

use super::Trace;
use super::index::Index;
use super::recorded::Window;
use crate::encoding::encoded;
use crate::error::{Error, ErrorKind};
use crate::text::count_with_noun;
use crate::text::floor_char_boundary;
use kineto_model::write::json_object;
use serde_json::Value;
use std::fmt;
use std::sync::atomic::Ordering;

/// An assertion that did not hold during a recording: an error of this crate, of a collector, or of a front end, which
/// [logs](crate::torch::Libkineto::log_invariant_violation) it.
///
/// [`TraceStats::violations`](crate::TraceStats::violations) contains it, and the list `invariant_violations` in the header
/// of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvariantViolation {
    /// The assertion.
    pub assertion: String,
    /// The actual condition.
    pub error: String,
    /// The trace id of the recording, as in the header: torch's `profile_id`.
    pub trace_id: String,
    /// The group of recordings, such as those of all ranks; empty for none.
    pub group_id: String,
    /// The number of occurrences.
    pub count: u64,
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({}x)", self.assertion, self.error, self.count)
    }
}

/// The distinct violations of a recording; their number and lengths are limited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations(Vec<InvariantViolation>);

encoded! {
    InvariantViolation { assertion, error, trace_id, group_id, count }
    Violations { 0 }
}

impl Violations {
    const MAX: usize = 100;
    const TEXT_MAX: usize = 1024;

    /// Adds a violation, and returns whether it is new; beyond the limit, the last one counts all others.
    pub(crate) fn add_violation(&mut self, assertion: &str, error: &str, ids: [&str; 2]) -> bool {
        let [assertion, error, trace_id, group_id] =
            [assertion, error, ids[0], ids[1]].map(|text| &text[..floor_char_boundary(text, Violations::TEXT_MAX)]);
        let is_same = |known: &InvariantViolation| {
            [&*known.assertion, &known.error, &known.trace_id, &known.group_id]
                == [assertion, error, trace_id, group_id]
        };
        let is_full = self.0.len() >= Violations::MAX;
        let known = match self.0.iter().position(is_same) {
            Some(at) => self.0.get_mut(at),
            None => self.0.last_mut().filter(|_| is_full),
        };
        if let Some(known) = known {
            known.count += 1;
            return false;
        }
        let [assertion, error, trace_id, group_id] = [assertion, error, trace_id, group_id].map(str::to_owned);
        self.0.push(InvariantViolation { assertion, error, trace_id, group_id, count: 1 });
        true
    }

    pub(super) fn to_json(of: &[InvariantViolation]) -> String {
        let mut violations = Vec::new();
        for violation in of {
            violations.push(json_object(vec![
                ("assertion", violation.assertion.as_str().into()),
                ("error", violation.error.as_str().into()),
                ("trace_id", violation.trace_id.as_str().into()),
                ("group_id", violation.group_id.as_str().into()),
                ("count", violation.count.into()),
            ]));
        }
        Value::Array(violations).to_string()
    }
}

impl Trace {
    /// Returns the logged violations, and those visible in the records.
    pub(super) fn violations(&self) -> &[InvariantViolation] {
        let inner = &*self.inner;
        &inner
            .found
            .violations
            .get_or_init(|| {
                let mut all = inner.info.violations.clone();
                let mut add =
                    |assertion: &str, error: &str| all.add_violation(assertion, error, [&inner.info.trace_id, ""]);
                let Index { damaged, strange, .. } = self.index();
                if *damaged > 0 {
                    add(
                        "committed chunks are readable",
                        &format!("partly unreadable: {}", count_with_noun(*damaged, "chunk")),
                    );
                }
                if *strange > 0 {
                    add("records belong to known threads and callsites", &format!("{strange} do not, and are omitted"));
                }
                if !are_in_order(&inner.recorded.windows) {
                    add("the windows between pauses are in order", "the processor's counter went backwards");
                }
                self.devices().report_violations(|assertion, error| _ = add(assertion, error));
                all
            })
            .0
    }

    /// Returns an error with the trace, once, if the builder was set to strict and an assertion did not hold.
    pub(crate) fn check_violations(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        if !inner.info.is_strict || inner.found.is_violation_reported.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some((first, more)) = self.violations().split_first() else { return Ok(()) };
        if inner.found.is_violation_reported.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let more = if more.is_empty() { String::new() } else { format!(", and {} more", more.len()) };
        let why = format!("an invariant did not hold: {first}{more}; take the trace from the error and save it");
        Err(Error::new(ErrorKind::InvariantViolated, why).keeping(self.clone()))
    }
}

impl Error {
    /// Returns the trace that the error is about, of [`ErrorKind::InvariantViolated`].
    pub fn trace(&self) -> Option<&Trace> {
        self.kept()
    }
}

/// Returns whether windows end before the next ones begin. A suspend may reset the processor's counter.
fn are_in_order(windows: &[Window]) -> bool {
    windows.is_sorted_by(|one, next| one.end <= next.start) && windows.iter().all(|window| window.start <= window.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Ticks;

    #[test]
    fn reset_of_the_counter_is_a_violation() {
        let windows = |times: &[(u64, u64)]| {
            let window = |(start, end): &(u64, u64)| Window::new(1, Ticks(*start), Ticks(*end));
            times.iter().map(window).collect::<Vec<_>>()
        };
        let in_order = [&[(10, 20), (20, 30)][..], &[(10, 20), (5, 30)], &[(10, 5)]];
        assert_eq!(in_order.map(|times| are_in_order(&windows(times))), [true, false, false]);
    }

    #[test]
    fn violations_are_counted_and_limited() {
        let mut all = Violations::default();
        let long = "ä".repeat(Violations::TEXT_MAX);
        let new = [(); 3].map(|()| all.add_violation("a", &long, ["t", "g"]));
        assert_eq!(new, [true, false, false]);
        assert_eq!((all.0.len(), all.0[0].count, all.0[0].error.len()), (1, 3, Violations::TEXT_MAX));
        assert_eq!((0..200).filter(|n| all.add_violation("b", &n.to_string(), ["t", ""])).count(), Violations::MAX - 1);
        assert_eq!((all.0.len(), all.0.last().unwrap().count), (Violations::MAX, 102));
        let json: Value = serde_json::from_str(&Violations::to_json(&all.0[..2])).unwrap();
        assert_eq!(
            json[1],
            serde_json::json!({"assertion": "b", "error": "0", "trace_id": "t", "group_id": "", "count": 1})
        );
    }
}

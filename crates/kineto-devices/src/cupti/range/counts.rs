//! Counts of the annotations that have no row of their own, by cause.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why an annotation has no row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowlessCause {
    Overlapped,
    Captured,
    Cut,
    Paused,
    NoContext,
    /// It submitted no work.
    Idle,
    Nested,
}

/// What is done with the annotations of each cause.
const OUTCOMES: [(RowlessCause, &str); 7] = [
    (RowlessCause::Overlapped, "not measured: another thread used the context meanwhile"),
    (RowlessCause::Captured, "not measured: a stream was being captured"),
    (RowlessCause::Cut, "not measured: the recording, the context or the annotation around it ended"),
    (RowlessCause::Paused, "not measured: the recording paused, or had not begun"),
    (RowlessCause::NoContext, "not measured: the context of a launch was not known"),
    (RowlessCause::Idle, "not measured: no work was submitted"),
    (RowlessCause::Nested, "measured as part of the outer one"),
];

/// How many annotations each cause has, in the order of [`OUTCOMES`].
#[derive(Debug, Default)]
pub(super) struct RowlessCounts([AtomicU64; OUTCOMES.len()]);

impl RowlessCounts {
    /// Counts an annotation.
    pub(super) fn add(&self, cause: RowlessCause) {
        let counts = OUTCOMES.iter().zip(&self.0);
        counts
            .filter(|((known, _), _)| *known == cause)
            .for_each(|(_, count)| _ = count.fetch_add(1, Ordering::Relaxed));
    }

    /// Returns a note for each cause that occurred.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        OUTCOMES.iter().zip(&self.0).filter_map(|((cause, outcome), count)| {
            let kind = if *cause == RowlessCause::Nested { "nested " } else { "" };
            match count.load(Ordering::Relaxed) {
                0 => None,
                1 => Some(format!("1 {kind}annotation was {outcome}")),
                count => Some(format!("{count} {kind}annotations were {outcome}")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_note() {
        let counts = RowlessCounts::default();
        assert_eq!(counts.notes().count(), 0);
        OUTCOMES.iter().for_each(|(cause, _)| counts.add(*cause));
        counts.add(RowlessCause::Nested);
        let notes: Vec<_> = counts.notes().collect();
        assert_eq!(notes.len(), OUTCOMES.len());
        assert_eq!(notes[5], "1 annotation was not measured: no work was submitted");
        assert_eq!(notes[6], "2 nested annotations were measured as part of the outer one");
    }
}

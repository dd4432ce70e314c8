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

/// How many annotations each cause has.
#[derive(Debug, Default)]
pub(super) struct RowlessCounts([AtomicU64; 7]);

impl RowlessCause {
    const ALL: [RowlessCause; 7] = [
        RowlessCause::Overlapped,
        RowlessCause::Captured,
        RowlessCause::Cut,
        RowlessCause::Paused,
        RowlessCause::NoContext,
        RowlessCause::Idle,
        RowlessCause::Nested,
    ];

    /// Returns what was done with such annotations.
    fn outcome(self) -> &'static str {
        match self {
            RowlessCause::Overlapped => "not measured: another thread used the context meanwhile",
            RowlessCause::Captured => "not measured: a stream was being captured",
            RowlessCause::Cut => "not measured: the recording, the context or the annotation around it ended",
            RowlessCause::Paused => "not measured: the recording paused, or had not begun",
            RowlessCause::NoContext => "not measured: the context of a launch was not known",
            RowlessCause::Idle => "not measured: no work was submitted",
            RowlessCause::Nested => "measured as part of the outer one",
        }
    }
}

impl RowlessCounts {
    /// Counts an annotation.
    pub(super) fn add(&self, cause: RowlessCause) {
        if let Some(count) = self.0.get(cause as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a note for each cause that occurred.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        RowlessCause::ALL.iter().zip(&self.0).filter_map(|(cause, count)| {
            let kind = if *cause == RowlessCause::Nested { "nested " } else { "" };
            match count.load(Ordering::Relaxed) {
                0 => None,
                1 => Some(format!("1 {kind}annotation was {}", cause.outcome())),
                count => Some(format!("{count} {kind}annotations were {}", cause.outcome())),
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
        RowlessCause::ALL.iter().for_each(|cause| counts.add(*cause));
        counts.add(RowlessCause::Nested);
        let notes: Vec<_> = counts.notes().collect();
        assert_eq!(notes.len(), RowlessCause::ALL.len());
        assert_eq!(notes[5], "1 annotation was not measured: no work was submitted");
        assert_eq!(notes[6], "2 nested annotations were measured as part of the outer one");
    }
}

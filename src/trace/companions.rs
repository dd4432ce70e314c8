//! What was recorded beside the times of slices, as their arguments.

use super::backward::{FORWARD_THREAD, SCOPE, SCOPE_NAME, is_of_backward};
use super::walk::Walk;
use crate::buffer::{Record, Tag};
use kineto_trace::activity::{ArgValue, Args};
use kineto_trace::keys::Keys;

/// The key of the share of a slice's time for which was counted.
const SHARE: &str = "counted";

/// What stands beside the slice at hand.
#[derive(Debug, Default)]
pub(super) struct Companions {
    /// The record behind those that were met; if it is a slice, they are its companions.
    next: u64,
    addresses: Vec<u64>,
    at_enter: Vec<u64>,
    at_exit: Vec<u64>,
    /// Empty for none.
    call_stack: String,
    counts: Vec<(&'static str, u64)>,
    /// For which share of the slice's time that was counted, if not for all of it.
    share: Option<f64>,
}

impl Companions {
    /// Takes note of a record that may be one.
    pub(super) fn meet(&mut self, record: &Record<'_>) {
        if record.head.tag == Tag::Counts && record.words[0] != 0 {
            return;
        }
        if self.next != record.id() {
            self.addresses.clear();
            self.at_enter.clear();
        }
        self.next = record.id() + record.head.slots() as u64;
        let words = if record.head.tag == Tag::Stack { &mut self.addresses } else { &mut self.at_enter };
        words.clear();
        words.extend(record.payload());
    }

    /// Returns what stands beside a slice, if something does; `fields` are what the program says of it.
    pub(super) fn of(
        &mut self,
        slice: &Record<'_>,
        walk: &Walk<'_>,
        keys: &Keys,
        finished: bool,
        fields: impl FnOnce(&mut dyn FnMut(&str, ArgValue<'_>)),
    ) -> Option<&dyn Args> {
        if self.next != slice.id() {
            return None;
        }
        self.call_stack.clear();
        if !self.addresses.is_empty() && has_place(keys, fields) {
            walk.symbols.show(&self.addresses, &mut self.call_stack);
        }
        self.counts.clear();
        self.share = None;
        let at_exit = walk.index.counts.of(slice.id()).next().and_then(|id| walk.recorded.record(id));
        if let Some(at_exit) = at_exit.filter(|_| finished && !self.at_enter.is_empty()) {
            self.at_exit.clear();
            self.at_exit.extend(at_exit.payload());
            let (share, counts) = taken(&self.at_enter, &self.at_exit);
            self.share = share.filter(|_| !keys.has(SHARE));
            let names = walk.counters.iter().filter(|report| report.state.is_ok()).map(|report| report.name);
            // A key that is the program's own is left to it.
            self.counts.extend(names.zip(counts).filter(|(name, _)| !keys.has(name)));
        }
        Some(self)
    }
}

/// What was counted between two readings; also for which share of the time, if not for all of it, to which counts are scaled
/// then. What was not counted at all has no counts.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count that is scaled stays one")]
fn taken<'r>(enter: &'r [u64], exit: &'r [u64]) -> (Option<f64>, impl Iterator<Item = u64> + 'r) {
    let mut taken = enter.iter().zip(exit).map(|(enter, exit)| exit.saturating_sub(*enter));
    let (wanted, counting) = (taken.next().unwrap_or(0), taken.next().unwrap_or(0));
    let share = (counting < wanted).then_some(counting as f64 / wanted as f64);
    let scaled = move |count: u64| share.map_or(count, |share| (count as f64 / share).round() as u64);
    (share, taken.filter(move |_| share != Some(0.0)).map(scaled))
}

/// Whether a recorded stack is shown: the program says none itself, and it is no backward operation.
fn has_place(keys: &Keys, fields: impl FnOnce(&mut dyn FnMut(&str, ArgValue<'_>))) -> bool {
    const STACK: &str = "Call stack";
    let is_said = [STACK, FORWARD_THREAD, SCOPE, SCOPE_NAME].iter().any(|key| keys.has(key));
    let mut has_place = true;
    if is_said {
        fields(&mut |key, value| has_place &= key != STACK && !is_of_backward(key, value));
    }
    has_place
}

impl Args for Companions {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if !self.call_stack.is_empty() {
            each("Call stack", ArgValue::Str(&self.call_stack));
        }
        self.counts.iter().for_each(|(name, count)| each(name, ArgValue::U64(*count)));
        if let Some(share) = self.share {
            each(SHARE, ArgValue::F64(share));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_scaled_to_the_time_for_which_they_were_wanted() {
        let taken = |enter: &[u64], exit: &[u64]| {
            let (share, counts) = super::taken(enter, exit);
            (share, counts.collect::<Vec<_>>())
        };
        assert_eq!(taken(&[100, 50, 7, 0], &[300, 250, 10, 4]), (None, vec![3, 4]));
        assert_eq!(taken(&[100, 50, 7, 0], &[300, 100, 10, 4]), (Some(0.25), vec![12, 16]));
        assert_eq!(taken(&[100, 50, 7, 0], &[300, 50, 7, 0]), (Some(0.0), vec![]), "it was never their turn");
        assert_eq!(taken(&[5, 5, 9], &[5, 5, 8]), (None, vec![0]), "of so short a slice there is no time");
        assert_eq!(taken(&[], &[]), (None, vec![]));
    }
}

//! Call stacks and CPU counters of slices, as their arguments.

use crate::buffer::{CommittedRecord, Tag};
use crate::trace::related::backward::{FORWARD_THREAD, SCOPE, SCOPE_NAME, is_of_backward};
use crate::trace::walk::Walk;
use kineto_model::activity::{ArgValue, Args};
use kineto_model::keys::Keys;

/// The key of the share of a slice's time during which events were counted.
const SHARE: &str = "counted";

/// The call stack and counts of the current slice.
#[derive(Debug, Default)]
pub(super) struct ExtraArgs<'t> {
    /// The id of the record after those that were added; if it is a slice, they belong to it.
    next: u64,
    addresses: Vec<u64>,
    at_enter: Vec<u64>,
    at_exit: Vec<u64>,
    /// Empty for none.
    call_stack: String,
    counts: Vec<(&'t str, u64)>,
    /// The share of the slice's time during which events were counted, if not all of it.
    share: Option<f64>,
}

/// Visits the fields of a slice.
type FieldVisit<'v> = dyn Fn(&mut dyn FnMut(&str, ArgValue<'_>)) + 'v;

impl<'t> ExtraArgs<'t> {
    /// Adds a record that may belong to the next slice.
    pub(super) fn add_record(&mut self, record: &CommittedRecord<'_>) {
        if record.head.tag == Tag::Counts && record.words[0] != 0 {
            return;
        }
        if self.next != record.id() {
            self.addresses.clear();
            self.at_enter.clear();
        }
        self.next = record.id() + record.head.slot_count() as u64;
        let words = if record.head.tag == Tag::Stack { &mut self.addresses } else { &mut self.at_enter };
        words.clear();
        words.extend(record.payload_words());
    }

    /// Returns the extra arguments of a slice, if it has any; `fields` visits the program's own.
    pub(super) fn args_of_slice(
        &mut self,
        slice: &CommittedRecord<'_>,
        walk: &Walk<'t>,
        keys: &Keys,
        finished: bool,
        fields: &FieldVisit<'_>,
    ) -> Option<&dyn Args> {
        if self.next != slice.id() {
            return None;
        }
        self.call_stack.clear();
        if !self.addresses.is_empty() && has_place(keys, fields) {
            walk.info.symbols.write_stack(&self.addresses, &mut self.call_stack);
        }
        self.counts.clear();
        self.share = None;
        let at_exit = walk.index.counts.paired_with(slice.id()).next().and_then(|id| walk.recorded.find_record(id));
        if let Some(at_exit) = at_exit.filter(|_| finished && !self.at_enter.is_empty()) {
            self.at_exit.clear();
            self.at_exit.extend(at_exit.payload_words());
            let (share, counts) = scaled_counts(&self.at_enter, &self.at_exit);
            self.share = share.filter(|_| !keys.has_key(SHARE));
            let counted = walk.info.counters.iter().filter(|report| report.state.is_ok());
            for (report, count) in counted.zip(counts) {
                // The program's own argument of that key wins.
                if !keys.has_key(&report.name) {
                    self.counts.push((&report.name, count));
                }
            }
        }
        Some(self)
    }
}

/// Returns the differences of two readings. The first value is the share of the time during which events were counted, if not
/// all of it, since the kernel multiplexes counters; counts are scaled up by it, and at a share of 0 there are none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scaled count is still a whole number")]
fn scaled_counts<'r>(enter: &'r [u64], exit: &'r [u64]) -> (Option<f64>, impl Iterator<Item = u64> + 'r) {
    let mut taken = enter.iter().zip(exit).map(|(enter, exit)| exit.saturating_sub(*enter));
    let (wanted, counting) = (taken.next().unwrap_or(0), taken.next().unwrap_or(0));
    let share = (counting < wanted).then_some(counting as f64 / wanted as f64);
    let scaled = move |count: u64| share.map_or(count, |share| (count as f64 / share).round() as u64);
    (share, taken.filter(move |_| share != Some(0.0)).map(scaled))
}

/// Returns whether a recorded stack is shown: the program has set none itself, and this is not a backward operation.
fn has_place(keys: &Keys, fields: &FieldVisit<'_>) -> bool {
    const STACK: &str = "Call stack";
    let may_conflict = [STACK, FORWARD_THREAD, SCOPE, SCOPE_NAME].iter().any(|key| keys.has_key(key));
    let mut has_place = true;
    if may_conflict {
        fields(&mut |key, value| has_place &= key != STACK && !is_of_backward(key, value));
    }
    has_place
}

impl Args for ExtraArgs<'_> {
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
    fn counts_are_scaled_to_the_whole_slice() {
        let taken = |enter: &[u64], exit: &[u64]| {
            let (share, counts) = super::scaled_counts(enter, exit);
            (share, counts.collect::<Vec<_>>())
        };
        assert_eq!(taken(&[100, 50, 7, 0], &[300, 250, 10, 4]), (None, vec![3, 4]));
        assert_eq!(taken(&[100, 50, 7, 0], &[300, 100, 10, 4]), (Some(0.25), vec![12, 16]));
        assert_eq!(taken(&[100, 50, 7, 0], &[300, 50, 7, 0]), (Some(0.0), vec![]), "never counted");
        assert_eq!(taken(&[5, 5, 9], &[5, 5, 8]), (None, vec![0]), "the slice was too short to measure");
        assert_eq!(taken(&[], &[]), (None, vec![]));
    }
}

//! What was recorded beside the times of slices, as their arguments.

use super::keys::Keys;
use super::walk::Walk;
use crate::activity::{ArgValue, Args, RecordScope};
use crate::buffer::{Record, Tag};

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
            self.count(walk, keys);
        }
        Some(self)
    }

    /// What was counted between enter and exit; a key that is the program's own is left to it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count that is scaled stays one")]
    fn count(&mut self, walk: &Walk<'_>, keys: &Keys) {
        let mut taken = self.at_enter.iter().zip(&self.at_exit).map(|(enter, exit)| exit.saturating_sub(*enter));
        let (Some(wanted), Some(counting)) = (taken.next(), taken.next()) else { return };
        let scale = wanted as f64 / counting as f64;
        self.share = (counting < wanted).then_some(1.0 / scale);
        if counting == 0 && wanted > 0 {
            return;
        }
        let names = walk.counters.iter().filter(|report| report.state.is_ok()).map(|report| report.name);
        let scaled = |count: u64| if counting < wanted { (count as f64 * scale).round() as u64 } else { count };
        let counts = names.zip(taken).filter(|(name, _)| !keys.has(name));
        self.counts.extend(counts.map(|(name, count)| (name, scaled(count))));
    }
}

/// Whether a recorded stack is shown: the program says none itself, and it is no backward operation.
fn has_place(keys: &Keys, fields: impl FnOnce(&mut dyn FnMut(&str, ArgValue<'_>))) -> bool {
    const STACK: &str = "Call stack";
    const SCOPES: [&str; 2] = ["Record function scope", "record_scope"];
    if !keys.has(STACK) && !SCOPES.iter().any(|key| keys.has(key)) {
        return true;
    }
    let backward = RecordScope::BackwardFunction;
    let mut has_place = true;
    fields(&mut |key, value| {
        let is_backward = match value {
            ArgValue::I64(number) => number == i64::from(backward.number()),
            ArgValue::U64(number) => number == u64::from(backward.number()),
            ArgValue::Str(name) => name.parse() == Ok(backward),
            _ => false,
        };
        has_place &= key != STACK && !(SCOPES.contains(&key) && is_backward);
    });
    has_place
}

impl Args for Companions {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if !self.call_stack.is_empty() {
            each("Call stack", ArgValue::Str(&self.call_stack));
        }
        self.counts.iter().for_each(|(name, count)| each(name, ArgValue::U64(*count)));
        if let Some(share) = self.share {
            each("counted", ArgValue::F64(share));
        }
    }
}

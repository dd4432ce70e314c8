//! Which slices a thread has told the collectors that it is in.

use super::home::Busy;
use super::lane::NO_EPOCH;
use crate::correlation::CorrelationSink;
use std::cell::Cell;

/// What the thread has pushed and not popped. A slice that another thread ends stays there until the owner's next careful
/// hook, such as that of the next span that it makes: what is launched meanwhile says it is that slice's, and the link, which
/// knows when it ended, does not believe it. While something else is recorded, or nothing, it stays as it is, and the
/// next recording that wants to know puts it right.
pub(crate) struct Mirror {
    /// Whom to tell; nobody in most recordings.
    street: Cell<Option<&'static dyn CorrelationSink>>,
    /// Who was told of the slices below.
    told: Cell<Option<&'static dyn CorrelationSink>>,
    slices: [Cell<Told>; DEPTH],
    length: Cell<usize>,
}

/// A slice that was pushed, and who took it.
#[derive(Clone, Copy)]
struct Told {
    slice: u64,
    annotates: bool,
    takers: u64,
}

/// A lane that no hook finds, until this is dropped.
struct Hidden<'l> {
    epochs: [&'l Cell<u64>; 2],
    are: [u64; 2],
    _busy: Option<Busy>,
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        self.epochs.into_iter().zip(self.are).for_each(|(epoch, is)| epoch.set(is));
    }
}

/// Slices deeper than that are not told: what is launched there is linked by time.
const DEPTH: usize = 64;

impl Mirror {
    pub(crate) const fn new() -> Mirror {
        let slices = [const { Cell::new(Told { slice: 0, annotates: false, takers: 0 }) }; DEPTH];
        Mirror { street: Cell::new(None), told: Cell::new(None), slices, length: Cell::new(0) }
    }

    /// A recording begins for the thread, which is in no slice of it.
    pub(crate) fn open(&self, street: Option<&'static dyn CorrelationSink>) {
        self.street.set(street);
        if street.is_some() {
            // Those that were told may be another layer's.
            while let Some(told) = self.last() {
                self.forget(told);
            }
            self.told.set(street);
        }
    }

    /// Calls `tell` if there is anybody to tell, and hides the lane of those epochs meanwhile: spans that collectors open
    /// then would come into the middle of a hook, and be told to the collectors again.
    #[inline]
    pub(super) fn apart(&self, epochs: [&Cell<u64>; 2], tell: impl FnOnce(&Mirror)) {
        if self.street.get().is_some() {
            let are = epochs.map(|epoch| epoch.replace(NO_EPOCH));
            let _hidden = Hidden { epochs, are, _busy: Busy::begin() };
            tell(self);
        }
    }

    /// The thread enters a slice, which is that of an annotation or of an operation.
    #[inline]
    pub(crate) fn push(&self, slice: u64, annotates: bool) {
        if let Some(street) = self.street.get() {
            self.tell(street, slice, annotates);
        }
    }

    /// The thread leaves a slice, the one that it entered last.
    #[inline]
    pub(crate) fn pop(&self, slice: u64) {
        // One that nobody took is not there.
        if self.street.get().is_some()
            && let Some(told) = self.last().filter(|told| told.slice == slice)
        {
            self.forget(told);
        }
    }

    /// The thread is in these slices, the outermost first, each with whether it is an annotation's; 0 is none.
    pub(crate) fn follow(&self, slices: impl Iterator<Item = (u64, bool)>) {
        let Some(street) = self.street.get() else { return };
        let mut slices = slices.filter(|(slice, _)| *slice != 0).peekable();
        let mut same = 0;
        while let Some(told) = self.slices.get(same)
            && same < self.length.get()
            && slices.next_if(|(slice, _)| *slice == told.get().slice).is_some()
        {
            same += 1;
        }
        while let Some(told) = self.last().filter(|_| self.length.get() > same) {
            self.forget(told);
        }
        slices.for_each(|(slice, annotates)| self.tell(street, slice, annotates));
    }

    fn last(&self) -> Option<Told> {
        self.slices.get(self.length.get().wrapping_sub(1)).map(Cell::get)
    }

    /// Takes away the last one.
    fn forget(&self, last: Told) {
        self.length.set(self.length.get().saturating_sub(1));
        if let Some(street) = self.told.get() {
            street.pop(last.annotates, last.takers);
        }
    }

    fn tell(&self, street: &dyn CorrelationSink, slice: u64, annotates: bool) {
        let length = self.length.get();
        let Some(place) = self.slices.get(length).filter(|_| slice != 0) else { return };
        let takers = street.push(slice, annotates);
        if takers != 0 {
            place.set(Told { slice, annotates, takers });
            self.length.set(length + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Stack {
        slices: Mutex<Vec<u64>>,
        refuses: u64,
    }

    impl CorrelationSink for Stack {
        fn push(&self, slice: u64, annotates: bool) -> u64 {
            assert_eq!(annotates, slice % 2 == 1);
            let taken = slice != self.refuses;
            self.slices.lock().unwrap().extend(taken.then_some(slice));
            if taken { 5 } else { 0 }
        }
        fn pop(&self, annotates: bool, takers: u64) {
            assert_eq!(takers, 5);
            let slice = self.slices.lock().unwrap().pop().expect("there is something to pop");
            assert_eq!(annotates, slice % 2 == 1, "it is popped as what it was pushed");
        }
    }

    fn stack(refuses: u64) -> &'static Stack {
        Box::leak(Box::new(Stack { refuses, ..Stack::default() }))
    }

    /// Odd ones are those of annotations.
    fn push(mirror: &Mirror, slice: u64) {
        mirror.push(slice, slice % 2 == 1);
    }

    fn told(stack: &Stack) -> Vec<u64> {
        stack.slices.lock().unwrap().clone()
    }

    #[test]
    fn what_is_pushed_is_popped_and_nobody_is_told_without_a_street() {
        let (mirror, stack) = (Mirror::new(), stack(0));
        push(&mirror, 1);
        mirror.open(Some(stack));
        [2, 3].into_iter().for_each(|slice| push(&mirror, slice));
        mirror.pop(3);
        assert_eq!(told(stack), [2]);
        mirror.open(None);
        mirror.pop(2);
        assert_eq!(told(stack), [2], "a recording without collectors leaves it as it is");
        mirror.open(Some(stack));
        assert!(told(stack).is_empty());
    }

    #[test]
    fn one_that_was_refused_or_lost_is_not_popped() {
        let (mirror, stack) = (Mirror::new(), stack(7));
        mirror.open(Some(stack));
        [1, 7, 0].into_iter().for_each(|slice| push(&mirror, slice));
        [0, 7].into_iter().for_each(|slice| mirror.pop(slice));
        assert_eq!(told(stack), [1]);
    }

    #[test]
    fn it_follows_a_stack_that_changed_in_the_middle() {
        let (mirror, stack) = (Mirror::new(), stack(0));
        mirror.open(Some(stack));
        for slices in [&[1, 2, 3][..], &[1, 3], &[1, 3, 0, 4], &[], &[5]] {
            mirror.follow(slices.iter().map(|slice| (*slice, slice % 2 == 1)));
            let expected: Vec<_> = slices.iter().copied().filter(|slice| *slice != 0).collect();
            assert_eq!(told(stack), expected);
        }
    }

    #[test]
    fn another_layers_collectors_are_not_told_of_ends_whose_beginnings_they_have_not_seen() {
        let (mirror, one, other) = (Mirror::new(), stack(0), stack(0));
        mirror.open(Some(one));
        [1, 2].into_iter().for_each(|slice| push(&mirror, slice));
        mirror.open(Some(other));
        push(&mirror, 3);
        assert_eq!((told(one), told(other)), (vec![], vec![3]));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let (mirror, stack) = (Mirror::new(), stack(0));
        mirror.open(Some(stack));
        (1..=100).for_each(|slice| push(&mirror, slice));
        assert_eq!(told(stack).len(), DEPTH);
        (1..=100).rev().for_each(|slice| mirror.pop(slice));
        assert!(told(stack).is_empty());
    }
}

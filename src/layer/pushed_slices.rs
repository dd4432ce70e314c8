//! The slices that a thread has pushed to collectors.

use crate::correlation::CorrelationSink;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The slices that the thread has pushed and not popped.
///
/// A slice that another thread ends stays here until the owner's next slow path. Launches meanwhile carry that slice's id;
/// the link ignores it, because it knows when the slice ended.
pub(crate) struct PushedSlices {
    /// Whether slices are pushed in this recording.
    is_open: Cell<bool>,
    /// The receiver of the slices below. It stays valid until the thread has popped them, even if the recording has ended.
    /// [`close`](PushedSlices::close) drops it.
    sink: ManuallyDrop<RefCell<Option<Arc<dyn CorrelationSink>>>>,
    slices: [Cell<PushedSlice>; DEPTH],
    length: Cell<usize>,
}

/// A slice that was pushed, with a bit for each collector that accepted it.
#[derive(Clone, Copy)]
struct PushedSlice {
    slice: u64,
    annotates: bool,
    takers: u64,
}

/// Deeper slices are not pushed; launches inside them are linked by time.
const DEPTH: usize = 64;

/// Passes slices to a function, outermost first, each with whether it is an annotation.
pub(crate) type SliceVisit<'v> = dyn Fn(&mut dyn FnMut(u64, bool)) + 'v;

impl PushedSlices {
    pub(crate) const fn new() -> PushedSlices {
        let slices = [const { Cell::new(PushedSlice { slice: 0, annotates: false, takers: 0 }) }; DEPTH];
        PushedSlices {
            is_open: Cell::new(false),
            sink: ManuallyDrop::new(RefCell::new(None)),
            slices,
            length: Cell::new(0),
        }
    }

    /// Begins a recording, in which the thread has no open slice yet. The slices of an earlier one are popped.
    pub(crate) fn open(&self, sink: Option<Arc<dyn CorrelationSink>>) {
        while let Some(pushed) = self.last_pushed() {
            self.pop_last(pushed);
        }
        self.is_open.set(sink.is_some());
        self.set_sink(sink);
    }

    /// Drops the receiver, without calling it: the thread may be ending.
    pub(crate) fn close(&self) {
        self.is_open.set(false);
        self.length.set(0);
        self.set_sink(None);
    }

    /// Leaves the receiver to the parent, in a forked child, which must free nothing.
    pub(crate) fn abandon(&self) {
        if let Ok(mut sink) = self.sink.try_borrow_mut() {
            let _ = ManuallyDrop::new(sink.take());
        }
        self.close();
    }

    fn set_sink(&self, sink: Option<Arc<dyn CorrelationSink>>) {
        let before = self.sink.try_borrow_mut().map(|mut held| std::mem::replace(&mut *held, sink));
        // Outside the borrow: this may be the last reference to a recording.
        drop(before);
    }

    /// Returns whether slices are pushed in this recording.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Pops the slice that the thread entered last.
    #[inline]
    pub(crate) fn pop(&self, slice: u64) {
        // A slice that no collector took was not kept.
        if let Some(pushed) = self.last_pushed().filter(|pushed| pushed.slice == slice) {
            self.pop_last(pushed);
        }
    }

    /// Pushes and pops until the pushed slices equal those that `visit` passes on.
    ///
    /// Slice 0 is skipped.
    pub(crate) fn sync_with(&self, visit: &SliceVisit<'_>) {
        let (mut same, mut differs) = (0, false);
        visit(&mut |slice, annotates| {
            if slice == 0 {
                return;
            }
            let pushed = self.slices.get(same).filter(|_| same < self.length.get());
            if !differs && pushed.is_some_and(|pushed| pushed.get().slice == slice) {
                same += 1;
                return;
            }
            if !differs {
                self.pop_above(same);
            }
            differs = true;
            self.push(slice, annotates);
        });
        if !differs {
            self.pop_above(same);
        }
    }

    /// Pops all but the outermost slices.
    fn pop_above(&self, length: usize) {
        while let Some(pushed) = self.last_pushed().filter(|_| self.length.get() > length) {
            self.pop_last(pushed);
        }
    }

    fn last_pushed(&self) -> Option<PushedSlice> {
        self.slices.get(self.length.get().wrapping_sub(1)).map(Cell::get)
    }

    /// Pops the last slice.
    fn pop_last(&self, last: PushedSlice) {
        self.length.set(self.length.get().saturating_sub(1));
        if let Some(sink) = &*self.sink.borrow() {
            sink.pop_slice(last.annotates, last.takers);
        }
    }

    /// Pushes a slice that the thread enters.
    pub(crate) fn push(&self, slice: u64, annotates: bool) {
        let length = self.length.get();
        let Some(place) = self.slices.get(length).filter(|_| slice != 0) else { return };
        let takers = self.sink.borrow().as_ref().map_or(0, |sink| sink.push_slice(slice, annotates));
        if takers != 0 {
            place.set(PushedSlice { slice, annotates, takers });
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
        fn push_slice(&self, slice: u64, annotates: bool) -> u64 {
            assert_eq!(annotates, slice % 2 == 1);
            let taken = slice != self.refuses;
            self.slices.lock().unwrap().extend(taken.then_some(slice));
            if taken { 5 } else { 0 }
        }
        fn pop_slice(&self, annotates: bool, takers: u64) {
            assert_eq!(takers, 5);
            let slice = self.slices.lock().unwrap().pop().expect("a slice was pushed");
            assert_eq!(annotates, slice % 2 == 1, "push and pop agree on the kind");
        }
    }

    fn stack(refuses: u64) -> Arc<Stack> {
        Arc::new(Stack { refuses, ..Stack::default() })
    }

    /// Odd ids belong to annotations.
    fn push(slices: &PushedSlices, slice: u64) {
        slices.push(slice, slice % 2 == 1);
    }

    fn slices_of(stack: &Stack) -> Vec<u64> {
        stack.slices.lock().unwrap().clone()
    }

    #[test]
    fn pushes_and_pops_only_with_a_sink() {
        let (pushed_slices, stack) = (PushedSlices::new(), stack(0));
        push(&pushed_slices, 1);
        pushed_slices.open(Some(stack.clone()));
        [2, 3].into_iter().for_each(|slice| push(&pushed_slices, slice));
        pushed_slices.pop(3);
        assert_eq!(slices_of(&stack), [2]);
        pushed_slices.open(None);
        pushed_slices.pop(2);
        assert!(slices_of(&stack).is_empty(), "the next recording begins without slices");
        push(&pushed_slices, 4);
        assert!(slices_of(&stack).is_empty());
    }

    #[test]
    fn refused_slices_are_not_popped() {
        let (pushed_slices, stack) = (PushedSlices::new(), stack(7));
        pushed_slices.open(Some(stack.clone()));
        [1, 7, 0].into_iter().for_each(|slice| push(&pushed_slices, slice));
        [0, 7].into_iter().for_each(|slice| pushed_slices.pop(slice));
        assert_eq!(slices_of(&stack), [1]);
    }

    #[test]
    fn follows_stack_that_changed_in_the_middle() {
        let (pushed_slices, stack) = (PushedSlices::new(), stack(0));
        pushed_slices.open(Some(stack.clone()));
        for slices in [&[1, 2, 3][..], &[1, 3], &[1, 3, 0, 4], &[], &[5]] {
            pushed_slices.sync_with(&|each| slices.iter().for_each(|slice| each(*slice, slice % 2 == 1)));
            let expected: Vec<_> = slices.iter().copied().filter(|slice| *slice != 0).collect();
            assert_eq!(slices_of(&stack), expected);
        }
    }

    #[test]
    fn new_sink_receives_no_pops_of_the_old_one() {
        let (pushed_slices, one, other) = (PushedSlices::new(), stack(0), stack(0));
        pushed_slices.open(Some(one.clone()));
        [1, 2].into_iter().for_each(|slice| push(&pushed_slices, slice));
        pushed_slices.open(Some(other.clone()));
        push(&pushed_slices, 3);
        assert_eq!((slices_of(&one), slices_of(&other)), (vec![], vec![3]));
    }

    #[test]
    fn receiver_is_dropped_when_the_lane_closes() {
        let (pushed_slices, stack) = (PushedSlices::new(), stack(0));
        pushed_slices.open(Some(stack.clone()));
        push(&pushed_slices, 1);
        pushed_slices.close();
        assert_eq!((Arc::strong_count(&stack), slices_of(&stack)), (1, vec![1]), "it is not called any more");
        pushed_slices.pop(1);
    }

    #[test]
    fn pushes_are_limited_to_depth() {
        let (pushed_slices, stack) = (PushedSlices::new(), stack(0));
        pushed_slices.open(Some(stack.clone()));
        (1..=100).for_each(|slice| push(&pushed_slices, slice));
        assert_eq!(slices_of(&stack).len(), DEPTH);
        (1..=100).rev().for_each(|slice| pushed_slices.pop(slice));
        assert!(slices_of(&stack).is_empty());
    }
}

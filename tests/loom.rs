//! What threads do with a chunk and with each other's frames, in every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --test loom`. The sources are compiled into this test once more, on
//! loom's atomics; for everything else, the library included, they stay on the standard library's.
#![cfg(loom)]
#![allow(dead_code, unused_imports, unreachable_pub, reason = "the models use a part of these files")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

#[path = "../src/buffer"]
mod buffer {
    mod chunk;
    mod record;

    pub(crate) use chunk::{Chunk, SLOTS, Slots};
    pub(crate) use record::{Head, Record, Tag, flag};
}
#[path = "../src/recorder/frames.rs"]
mod frames;

use buffer::{Chunk, SLOTS};
use frames::{Frames, SpanState, state};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// A chunk in service.
fn chunk() -> Chunk {
    let chunk = Chunk::new().unwrap();
    chunk.open(FIRST_ID, 1);
    chunk
}

const FIRST_ID: u64 = 2 * SLOTS as u64;

fn write(chunk: &Chunk, at: usize, word: u64) {
    chunk.slots().write(at, [word, word, 0, word]);
    chunk.slots().commit(chunk.first_id() + at as u64 + 1);
}

/// Every committed slot is whole; its end may be there or not.
fn check(chunk: &Chunk, words: &[u64]) -> usize {
    let committed = chunk.committed();
    for at in 1..committed {
        let [a, b, end, d] = chunk.read(at);
        let word = words[at - 1];
        assert_eq!((a, b, d), (word, word, word), "slot {at} of {committed}");
        assert!(end == 0 || end == 100 + word);
    }
    committed
}

#[test]
fn a_committed_record_is_seen_whole_and_its_end_is_old_or_new() {
    loom::model(|| {
        let chunk = chunk();
        let writer = chunk.clone();
        let thread = thread::spawn(move || {
            write(&writer, 1, 5);
            writer.slots().end(1, 105);
            write(&writer, 2, 6);
        });
        if check(&chunk, &[5, 6]) > 2 {
            assert_eq!(chunk.read(1)[2], 105, "an end stored before a commit is seen after it");
        }
        thread.join().unwrap();
        assert_eq!(check(&chunk, &[5, 6]), 3);
    });
}

#[test]
fn a_chunk_that_is_handed_over_goes_on_where_it_was_left() {
    loom::model(|| {
        let session = chunk();
        let left = Arc::new(Mutex::new(None));
        let (chunk, shelf) = (session.clone(), left.clone());
        let ending = thread::spawn(move || {
            write(&chunk, 1, 5);
            *shelf.lock().unwrap() = Some(chunk);
        });
        let new = thread::spawn(move || {
            let chunk = left.lock().unwrap().take();
            if let Some(chunk) = chunk {
                let next = chunk.slots().next_id();
                assert_eq!(next, FIRST_ID + 2, "the new thread sees what the old one has filled");
                write(&chunk, 2, 6);
            }
        });
        check(&session, &[5, 6]);
        ending.join().unwrap();
        new.join().unwrap();
        check(&session, &[5, 6]);
    });
}

#[test]
fn a_late_end_and_a_late_record_leave_what_was_taken_as_it_is() {
    loom::model(|| {
        let chunk = chunk();
        write(&chunk, 1, 5);
        let writer = chunk.clone();
        // The session has been closed, and this thread has not noticed.
        let late = thread::spawn(move || {
            writer.slots().end(1, 105);
            write(&writer, 2, 6);
        });
        let taken = chunk.committed();
        assert_eq!(chunk.read(1)[1], 5);
        assert!(taken == 2 || taken == 3);
        late.join().unwrap();
        assert_eq!((chunk.read(1)[2], chunk.committed()), (105, 3));
    });
}

#[test]
fn a_chunk_is_used_again_only_when_nobody_reads_it_any_more() {
    loom::model(|| {
        let chunk = chunk();
        write(&chunk, 1, 5);
        let trace = chunk.clone();
        let reader = thread::spawn(move || {
            assert_eq!((trace.first_id(), trace.committed(), trace.read(1)[0]), (FIRST_ID, 2, 5));
        });
        if chunk.is_unique() {
            chunk.open(5 * FIRST_ID, 2);
            write(&chunk, 1, 6);
        }
        reader.join().unwrap();
        assert!(chunk.is_unique());
    });
}

fn made(key: u64) -> SpanState {
    SpanState { span: key * 10, meta: state::new(3), parent: key * 100 }
}

#[test]
fn what_is_lent_is_one_span_and_not_a_mixture() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).set(5, made(5), 50);
        let owner = frames.clone();
        let thread = thread::spawn(move || {
            // Not `clear`: loom does not know that a plain store comes after what a reader has put there before.
            owner.frame(2).take();
            owner.frame(2).fill(6, made(6));
        });
        for key in [5, 6] {
            if let Some(state) = frames.lend(key) {
                assert_eq!((state.span, state.parent), (key * 10, key * 100));
            }
        }
        thread.join().unwrap();
        assert_eq!(frames.lend(6), Some(made(6)));
    });
}

#[test]
fn a_span_in_a_frame_that_was_never_used_is_seen_whole_or_not_at_all() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        let owner = frames.clone();
        let thread = thread::spawn(move || {
            owner.frame(2).fill(5, made(5));
            owner.set_top(2);
            owner.frame(3).fill(6, made(6));
        });
        for key in [6, 5] {
            assert!(frames.lend(key).is_none_or(|state| state == made(key)));
        }
        thread.join().unwrap();
    });
}

#[test]
fn an_owner_that_sees_a_span_close_sees_that_it_was_lent() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).set(5, made(5), 50);
        // How many hold the span, as the registry counts it.
        let holders = Arc::new(AtomicU64::new(2));
        let (lender, held) = (frames.clone(), holders.clone());
        let borrower = thread::spawn(move || {
            let lent = lender.lend(5).is_some();
            held.fetch_sub(1, Ordering::Release);
            lent
        });
        let is_last = holders.fetch_sub(1, Ordering::AcqRel) == 1;
        let is_found = frames.known(5).is_some();
        let lent = borrower.join().unwrap();
        if is_last {
            assert!(lent && !is_found, "the span closes here, and its borrower has let go of it");
        }
    });
}

#[test]
fn a_span_is_defined_before_others_are_told_that_it_is() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).set(5, SpanState { span: 0, ..made(5) }, 0);
        let owner = frames.clone();
        let thread = thread::spawn(move || {
            owner.frame(2).set_span(50);
            owner.frame(2).set_meta(state::defined(owner.frame(2).meta()));
        });
        let lent = frames.lend(5).unwrap();
        assert!(lent.meta & state::UNDEFINED != 0 || lent.span == 50);
        thread.join().unwrap();
    });
}

#[test]
fn a_span_that_is_moved_while_it_is_lent_stays_lent() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(3).set(5, made(5), 50);
        let borrower = frames.clone();
        let thread = thread::spawn(move || borrower.lend(5));
        frames.frame(3).move_to(frames.frame(2));
        let lent = thread.join().unwrap();
        assert!(lent.is_none_or(|state| state == made(5)));
        assert_eq!(lent.is_none(), frames.known(5).is_some());
        assert!(frames.frame(2).holds(5) && frames.frame(3).key() == 0);
    });
}

#[test]
fn a_slice_is_ended_by_its_thread_or_by_another_and_not_by_both() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).set(5, made(5), 50);
        frames.set_top(2);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let frames = frames.clone();
                thread::spawn(move || frames.exit_from_other_thread(5))
            })
            .collect();
        let ended: Vec<_> = others.into_iter().filter_map(|other| other.join().unwrap()).collect();
        assert_eq!(ended, [(50, made(5))]);
    });
}

#[test]
fn a_slice_that_is_ended_from_elsewhere_is_not_the_next_in_its_frame() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).set(5, made(5), 50);
        frames.set_top(2);
        let owner = frames.clone();
        let thread = thread::spawn(move || {
            // As a thread does that finds its innermost slice taken away, and enters another span.
            if owner.frame(2).key() == 0 {
                owner.set_top(1);
                owner.frame(2).set(6, made(6), 60);
                owner.set_top(2);
            }
        });
        assert_eq!(frames.exit_from_other_thread(5), Some((50, made(5))));
        thread.join().unwrap();
    });
}

#[test]
fn a_thread_that_sees_that_others_have_exited_its_slices_sees_which() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).set(5, made(5), 50);
        frames.set_top(2);
        let other = frames.clone();
        let thread = thread::spawn(move || other.exit_from_other_thread(5));
        if frames.exits() == 1 {
            assert_eq!(frames.frame(2).key(), 0);
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_span_that_is_asked_for_by_its_owner_and_by_another_is_not_defined_by_both() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).set(5, SpanState { span: 0, ..made(5) }, 0);
        let other = frames.clone();
        let borrower = thread::spawn(move || other.lend(5).unwrap());
        // As `Lane::span` does.
        let frame = frames.frame(2);
        if frame.key() == 5 {
            frame.set_span(50);
            frame.set_meta(frame.meta() & !state::UNDEFINED);
        }
        loom::sync::atomic::fence(Ordering::SeqCst);
        let is_defined_here = frames.known(5).is_some();
        let lent = borrower.join().unwrap();
        assert!(!is_defined_here || lent.meta & state::UNDEFINED == 0);
    });
}

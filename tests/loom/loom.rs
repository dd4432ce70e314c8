//! Models of threads that share chunks and frames, in every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --package test-loom --test loom`. This test compiles the sources again with loom's atomics;
//! the library itself keeps std's.
#![cfg(loom)]
#![allow(dead_code, unused_imports, unreachable_pub, reason = "the models use a part of these files")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

#[path = "../../src/buffer"]
mod buffer {
    mod budget;
    mod chunk;
    mod record;

    pub(crate) use chunk::{Chunk, SLOTS, Slots};
    pub(crate) use record::{CommittedRecord, Head, Tag, flag};
}
#[path = "../../src/recorder/frames.rs"]
mod frames;

use buffer::{Chunk, SLOTS};
use frames::{Frames, SpanState, state};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// Returns a chunk in service.
fn chunk() -> Chunk {
    let chunk = Chunk::new().unwrap();
    chunk.open(FIRST_ID, 1);
    chunk
}

const FIRST_ID: u64 = 2 * SLOTS as u64;

fn write(chunk: &Chunk, at: usize, word: u64) {
    chunk.slots().write_slot(at, [word, word, 0, word]);
    chunk.slots().commit_below(chunk.first_id() + at as u64 + 1);
}

/// Checks that every committed slot is complete, with or without its end.
fn check(chunk: &Chunk, words: &[u64]) -> usize {
    let committed = chunk.committed_len();
    for at in 1..committed {
        let [a, b, end, d] = chunk.read_slot(at);
        let word = words[at - 1];
        assert_eq!((a, b, d), (word, word, word), "slot {at} of {committed}");
        assert!(end == 0 || end == 100 + word);
    }
    committed
}

#[test]
fn committed_record_is_complete_with_old_or_new_end() {
    loom::model(|| {
        let chunk = chunk();
        let writer = chunk.clone();
        let thread = thread::spawn(move || {
            write(&writer, 1, 5);
            writer.slots().store_end(1, 105);
            write(&writer, 2, 6);
        });
        if check(&chunk, &[5, 6]) > 2 {
            assert_eq!(chunk.read_slot(1)[2], 105, "an end stored before a commit is seen after it");
        }
        thread.join().unwrap();
        assert_eq!(check(&chunk, &[5, 6]), 3);
    });
}

#[test]
fn chunk_continues_at_its_position_after_a_handover() {
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
                assert_eq!(next, FIRST_ID + 2, "the new thread sees the old one's slots");
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
fn late_end_and_record_do_not_change_drained_slots() {
    loom::model(|| {
        let chunk = chunk();
        write(&chunk, 1, 5);
        let writer = chunk.clone();
        // The session is closed, but this thread has not noticed.
        let late = thread::spawn(move || {
            writer.slots().store_end(1, 105);
            write(&writer, 2, 6);
        });
        let taken = chunk.committed_len();
        assert_eq!(chunk.read_slot(1)[1], 5);
        assert!(taken == 2 || taken == 3);
        late.join().unwrap();
        assert_eq!((chunk.read_slot(1)[2], chunk.committed_len()), (105, 3));
    });
}

#[test]
fn chunk_is_reused_only_after_its_last_reader() {
    loom::model(|| {
        let chunk = chunk();
        write(&chunk, 1, 5);
        let trace = chunk.clone();
        let reader = thread::spawn(move || {
            assert_eq!((trace.first_id(), trace.committed_len(), trace.read_slot(1)[0]), (FIRST_ID, 2, 5));
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
fn lent_span_is_never_a_mixture_of_two() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).put_span(5, made(5), 50);
        let owner = frames.clone();
        let thread = thread::spawn(move || {
            // Not `clear`: loom does not order a plain store after a reader's earlier store.
            owner.frame(2).take_key();
            owner.frame(2).fill(6, made(6));
        });
        for key in [5, 6] {
            if let Some(state) = frames.lend_span(key) {
                assert_eq!((state.span, state.parent), (key * 10, key * 100));
            }
        }
        thread.join().unwrap();
        assert_eq!(frames.lend_span(6), Some(made(6)));
    });
}

#[test]
fn span_in_a_fresh_frame_is_seen_whole_or_not_at_all() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        let owner = frames.clone();
        let thread = thread::spawn(move || {
            owner.frame(2).fill(5, made(5));
            owner.set_top(2);
            owner.frame(3).fill(6, made(6));
        });
        for key in [6, 5] {
            assert!(frames.lend_span(key).is_none_or(|state| state == made(key)));
        }
        thread.join().unwrap();
    });
}

#[test]
fn owner_that_sees_a_close_sees_that_the_span_was_lent() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).put_span(5, made(5), 50);
        // The registry's reference count of the span.
        let holders = Arc::new(AtomicU64::new(2));
        let (lender, held) = (frames.clone(), holders.clone());
        let borrower = thread::spawn(move || {
            let lent = lender.lend_span(5).is_some();
            held.fetch_sub(1, Ordering::Release);
            lent
        });
        let is_last = holders.fetch_sub(1, Ordering::AcqRel) == 1;
        let is_found = frames.known_state(5).is_some();
        let lent = borrower.join().unwrap();
        if is_last {
            assert!(lent && !is_found, "the span closes here, after its borrower released it");
        }
    });
}

#[test]
fn span_is_defined_before_others_see_it_as_defined() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).put_span(5, SpanState { span: 0, ..made(5) }, 0);
        let owner = frames.clone();
        let thread = thread::spawn(move || {
            owner.frame(2).set_span(50);
            owner.frame(2).set_meta(state::after_first_slice(owner.frame(2).meta()));
        });
        let lent = frames.lend_span(5).unwrap();
        assert!(lent.meta & state::UNDEFINED != 0 || lent.span == 50);
        thread.join().unwrap();
    });
}

#[test]
fn span_moved_while_lent_stays_lent() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(3).put_span(5, made(5), 50);
        let borrower = frames.clone();
        let thread = thread::spawn(move || borrower.lend_span(5));
        frames.frame(3).move_to(frames.frame(2), frames.frame(1));
        let lent = thread.join().unwrap();
        assert!(lent.is_none_or(|state| state == made(5)));
        assert_eq!(lent.is_none(), frames.known_state(5).is_some());
        assert!(frames.frame(2).holds_span(5) && frames.frame(3).key() == 0);
    });
}

#[test]
fn slice_is_ended_by_exactly_one_thread() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).put_span(5, made(5), 50);
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
fn slice_ended_elsewhere_is_not_the_next_in_its_frame() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).put_span(5, made(5), 50);
        frames.set_top(2);
        let owner = frames.clone();
        let thread = thread::spawn(move || {
            // Imitates a thread whose innermost slice was taken away and that enters another span.
            if owner.frame(2).key() == 0 {
                owner.set_top(1);
                owner.frame(2).put_span(6, made(6), 60);
                owner.set_top(2);
            }
        });
        assert_eq!(frames.exit_from_other_thread(5), Some((50, made(5))));
        thread.join().unwrap();
    });
}

#[test]
fn thread_that_sees_remote_exits_sees_which_slices() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).put_span(5, made(5), 50);
        frames.set_top(2);
        let other = frames.clone();
        let thread = thread::spawn(move || other.exit_from_other_thread(5));
        if frames.foreign_exits() == 1 {
            assert_eq!(frames.frame(2).key(), 0);
        }
        thread.join().unwrap();
    });
}

#[test]
fn span_resolved_by_two_threads_is_defined_once() {
    loom::model(|| {
        let frames = Arc::new(Frames::new());
        frames.frame(2).put_span(5, SpanState { span: 0, ..made(5) }, 0);
        let other = frames.clone();
        let borrower = thread::spawn(move || other.lend_span(5).unwrap());
        // Imitates `Lane::span_id`.
        let frame = frames.frame(2);
        if frame.key() == 5 {
            frame.set_span(50);
            frame.set_meta(frame.meta() & !state::UNDEFINED);
        }
        loom::sync::atomic::fence(Ordering::SeqCst);
        let is_defined_here = frames.known_state(5).is_some();
        let lent = borrower.join().unwrap();
        assert!(!is_defined_here || lent.meta & state::UNDEFINED == 0);
    });
}

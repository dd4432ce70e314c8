//! The newest records replace the oldest at the buffer limit; what they refer to stays.
#![allow(clippy::cast_possible_truncation, reason = "a test")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use support::wait::sleep;
use support::{File, Slice, layer, record_with, spawn, virtual_time};
use tracing::span::EnteredSpan;
use tracing::{Level, Span, info_span};
use tracing_kineto::{KinetoLayerBuilder, Loss, Overflow, Trace};
use tracing_subscriber::prelude::*;

const MIB: u64 = 1 << 20;

fn newest(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    builder.overflow(Overflow::KeepNewest).buffer_limit_bytes(MIB)
}

/// Fills the buffers several times.
fn fill() {
    (0..100_000).for_each(|_| info_span!("filler").in_scope(|| ()));
}

#[track_caller]
fn assert_counted(trace: &Trace, made: u64) {
    assert_counted_within(trace, made, MIB);
}

#[track_caller]
fn assert_counted_within(trace: &Trace, made: u64, limit: u64) {
    let stats = trace.stats();
    assert_eq!(stats.slices + stats.omitted_enters + stats.events + stats.before_window, made, "{stats}");
    assert!(stats.bytes <= limit, "{stats}");
    assert!(stats.losses.iter().all(|(loss, _)| *loss == Loss::Unfinished || *loss == Loss::FieldsNotSeen), "{stats}");
}

// Shows the key OVERFLOW.
#[test]
fn newest_spans_are_kept_and_the_others_counted() {
    const MADE: u64 = 300_000;
    let file = record_with(newest, || (0..MADE).for_each(|i| info_span!("work", i).in_scope(|| ())));
    let kept: Vec<_> = file.all("work").iter().map(|slice| slice.args["i"].as_u64().unwrap()).collect();
    assert!(kept.len() > 8_000, "{}", kept.len());
    assert_eq!(kept, (MADE - kept.len() as u64..MADE).collect::<Vec<_>>(), "a single stretch, to the end");
    assert_counted(&file.trace, MADE);
    let about = &file.json["tracing_kineto"];
    assert_eq!(about["before_window"], MADE - kept.len() as u64);
}

#[test]
fn spans_of_many_threads_are_counted_exactly() {
    const THREADS: u64 = 8;
    const MADE: u64 = 40_000;
    let together = Barrier::new(THREADS as usize);
    let file = record_with(newest, || {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                spawn(scope, "worker", || {
                    together.wait();
                    (0..MADE).for_each(|_| info_span!("work").in_scope(|| ()));
                });
            }
        });
    });
    assert_counted(&file.trace, THREADS * MADE);
    assert!(file.trace.stats().slices > 5_000, "{}", file.trace.stats());
}

#[test]
fn open_span_keeps_its_name_fields_parent_and_children() {
    let file = record_with(newest, || {
        let _outer = info_span!("outer", kind = "root").entered();
        let inner = info_span!("inner", size = 7, state = tracing::field::Empty).entered();
        inner.record("state", "begun");
        fill();
        inner.record("state", "late");
        fill();
        info_span!("last").in_scope(|| ());
    });
    let (outer, inner) = (file.slice("outer").args, file.slice("inner").args);
    assert_eq!((&outer["kind"], &outer["clipped"]), (&"root".into(), &true.into()));
    assert_eq!((&inner["size"], &inner["state"], &inner["clipped"]), (&7.into(), &"late".into(), &true.into()));
    assert!(inner["finished"].is_null(), "it ended after its chunk was reused");
    let parent = |name| file.slice(name).args["parent id"].clone();
    assert_eq!((parent("last"), parent("inner")), (inner["span id"].clone(), outer["span id"].clone()));
    assert_counted(&file.trace, 200_003);
}

#[test]
fn span_that_is_entered_again_keeps_its_fields() {
    let file = record_with(newest, || {
        let (layer, idle) = (info_span!("layer", number = 3), info_span!("idle", number = 4));
        layer.in_scope(|| ());
        fill();
        [&layer, &idle].into_iter().for_each(|span| span.in_scope(|| ()));
    });
    assert_eq!((&file.slice("layer").args["number"], &file.slice("idle").args["number"]), (&3.into(), &4.into()));
    assert_counted(&file.trace, 100_003);
}

#[test]
fn closed_span_keeps_its_fields_while_its_slices_are_kept() {
    let file = record_with(newest, || {
        let polled = info_span!("polled", number = 5);
        let is_filled = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // This thread's first chunk is its last.
            let slow = spawn(scope, "slow", || {
                let wait = || {
                    while !is_filled.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                };
                info_span!("slow").in_scope(wait);
                polled.in_scope(|| ());
            });
            fill();
            is_filled.store(true, Ordering::Release);
            slow.join().unwrap();
        });
        drop(polled);
        (0..5_000).for_each(|_| info_span!("filler").in_scope(|| ()));
    });
    assert_eq!(file.slice("polled").args["number"], 5);
    assert_counted(&file.trace, 105_002);
}

#[test]
fn memory_of_old_spans_is_reused() {
    let file = record_with(newest, || {
        let other = info_span!("other");
        for i in 0..100_000 {
            let span = info_span!("request", i);
            [&span, &other, &span].into_iter().for_each(|span| span.in_scope(|| ()));
        }
    });
    let stats = file.trace.stats();
    assert_eq!(stats.slices + stats.omitted_enters + stats.before_window, 300_000, "{stats}");
    assert!(
        file.all("request").iter().all(|slice| slice.args["i"].is_u64()),
        "each slice has its span's fields: {stats}"
    );
}

#[test]
fn snapshots_are_complete_during_a_recording() {
    let (layer, guard) = layer(newest);
    let profiler = guard.profiler();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _root = info_span!("root", id = 9).entered();
        let mut made = 1;
        for _ in 0..5 {
            fill();
            made += 100_000;
            let trace = profiler.snapshot().unwrap();
            let stats = trace.stats();
            assert_eq!(stats.slices + stats.before_window, made, "{stats}");
            let file = File::of(trace);
            assert_eq!((&file.slice("root").args["id"], file.all("filler").len() > 5_000), (&9.into(), true));
        }
        assert_eq!(Span::current().metadata().unwrap().name(), "root");
    });
    assert_counted(&guard.finish().unwrap(), 500_001);
}

/// A span, and the number that its fields contain.
type Numbered = (Span, u64);

/// What the threads of a random program share.
#[derive(Default)]
struct Shared {
    next: AtomicU64,
    spans: Mutex<Vec<Numbered>>,
    /// The last value of `late`, by the span's number; `None` for a span that several threads may enter: threads that meet
    /// it at the same time may give it two ids.
    late: Mutex<HashMap<u64, Option<u64>>>,
}

/// Creates, enters and closes spans at random, also those of other threads; returns how many slices and events it made.
fn run_randomly(seed: u64, shared: &Shared) -> u64 {
    let mut random = seed;
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % bound as u64) as usize
    };
    let (mut made, mut kept, mut open) = (0, Vec::<Numbered>::new(), Vec::<(EnteredSpan, u64)>::new());
    for _ in 0..60_000 {
        let (span, number) = match below(8) {
            0 if !kept.is_empty() => kept[below(kept.len())].clone(),
            1 => {
                open.pop();
                continue;
            }
            2 => match shared.spans.lock().unwrap().last() {
                Some(numbered) => numbered.clone(),
                None => continue,
            },
            _ => {
                let number = shared.next.fetch_add(1, Ordering::Relaxed) + 1;
                // The registry does not take a span for the current one that is entered inside itself.
                let is_inside_itself = |at: usize| open[..at].iter().any(|(_, around)| *around == open[at].1);
                let made_in = (0..open.len()).rfind(|at| !is_inside_itself(*at)).map_or(0, |at| open[at].1);
                (info_span!("work", number, made_in, late = tracing::field::Empty), number)
            }
        };
        match below(8) {
            0 => {
                if let Some(late) = shared.late.lock().unwrap().entry(number).or_insert(Some(0)) {
                    *late = made;
                    span.record("late", made);
                }
            }
            1 => {
                kept.push((span.clone(), number));
                if kept.len() > 20 {
                    kept.swap_remove(below(20));
                }
            }
            2 if shared.late.lock().unwrap().entry(number).or_default().is_none() => {
                let mut spans = shared.spans.lock().unwrap();
                spans.push((span.clone(), number));
                if spans.len() > 30 {
                    spans.remove(below(30));
                }
            }
            _ => {}
        }
        made += 2;
        let entered = span.entered();
        tracing::info!("event");
        if open.len() < 12 && below(3) == 0 {
            open.push((entered, number));
        }
    }
    while open.pop().is_some() {}
    made
}

#[test]
fn random_spans_keep_their_fields_and_parents() {
    for seed in 1..4 {
        let (shared, made) = (Shared::default(), AtomicU64::new(0));
        let file = record_with(
            |builder| newest(builder).buffer_limit_bytes(4 * MIB).events(Level::INFO),
            || {
                std::thread::scope(|scope| {
                    let (shared, made) = (&shared, &made);
                    for thread in 0..4 {
                        let work = move || made.fetch_add(run_randomly(seed * 10 + thread, shared), Ordering::Relaxed);
                        spawn(scope, "random", work);
                    }
                });
            },
        );
        let slices = file.all("work");
        let number = |slice: &Slice| slice.args["number"].as_u64();
        let numbers: HashMap<_, _> =
            slices.iter().map(|slice| (slice.args["span id"].as_u64(), number(slice))).collect();
        let late = shared.late.lock().unwrap();
        for slice in &slices {
            let (number, made_in) = (number(slice), slice.args["made_in"].as_u64());
            if number.is_none() && file.trace.stats().lost(Loss::FieldsNotSeen) > 0 {
                // A thread did not find the span while another one stored it.
                continue;
            }
            assert!(number.is_some() && made_in.is_some(), "{slice:?} {}", file.trace.stats());
            let parent = slice.args["parent id"].as_u64();
            assert_eq!(parent.is_some(), made_in != Some(0), "{slice:?}");
            if let Some(found) = numbers.get(&parent) {
                assert_eq!(*found, made_in, "{slice:?}");
            }
            match late.get(&number.unwrap()) {
                Some(None) => {}
                of_one_thread => assert_eq!(slice.args["late"].as_u64(), of_one_thread.copied().flatten(), "{slice:?}"),
            }
        }
        assert!(slices.len() > 3_000, "{}", file.trace.stats());
        assert!(file.trace.stats().lost(Loss::FieldsNotSeen) <= 10, "{}", file.trace.stats());
        assert_counted_within(&file.trace, made.into_inner(), 4 * MIB);
    }
}

// Shows the key KEEP.
#[virtual_time]
fn trace_reaches_back_as_far_as_set() {
    const KEPT: Duration = Duration::from_millis(150);
    const MS: Duration = Duration::from_millis(1);
    let file = record_with(
        |builder| newest(builder).keep(KEPT),
        || {
            info_span!("early").in_scope(|| ());
            sleep(2 * MS);
            info_span!("late").in_scope(|| ());
            sleep(KEPT - MS);
        },
    );
    assert_eq!((file.all("early").len(), file.all("late").len()), (0, 1), "{}", file.trace.stats());
    assert_eq!(file.trace.stats().duration.as_millis(), KEPT.as_millis(), "{}", file.trace.stats());
    assert_counted(&file.trace, 2);
}

#[test]
fn held_trace_costs_no_open_span_and_recording_recovers() {
    let (layer, guard) = layer(newest);
    let profiler = guard.profiler();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _root = info_span!("root", id = 9).entered();
        fill();
        let held = profiler.snapshot().unwrap();
        let _inner = info_span!("inner", id = 8).entered();
        fill();
        drop(held);
        fill();
        let file = File::of(profiler.snapshot().unwrap());
        assert_eq!((&file.slice("root").args["id"], &file.slice("inner").args["id"]), (&9.into(), &8.into()));
        assert!(file.all("filler").len() > 8_000, "{}", file.trace.stats());
    });
}

//! A tracing allocator: every allocation, also inside a hook, makes a span and an event.

use crate::allocator::{ON, TRACED, trace};
use support::{child, name_of};
use tracing::info_span;
use tracing_kineto::{KinetoLayer, Loss};
use tracing_subscriber::prelude::*;

const SPANS: u64 = 5_000;

/// Makes spans that use all parts of the layer: lane, callsites, chunks, span table, blocks.
fn work(other: &tracing::Span, text: &str) {
    for i in 0..SPANS {
        let span = info_span!("made", i, debug = ?[i; 3], late = tracing::field::Empty);
        let _inside = span.enter();
        span.record("late", "a value");
        if i % 1000 == 0 {
            drop(info_span!("large", text).entered());
            drop(other.enter());
        }
    }
}

#[test]
fn allocator_may_trace() {
    child::run(&mut child::command(name_of(child_whose_allocator_traces)));
}

#[test]
#[ignore = "run by another test"]
fn child_whose_allocator_traces() {
    const THREADS: u64 = 3;
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let (text, ready) = ("x".repeat(70_000), std::sync::Barrier::new(usize::try_from(THREADS).unwrap() + 1));
    let other = info_span!("other");
    let traced: u64 = std::thread::scope(|scope| {
        let traced = || {
            // `tracing` has registered the thread and the callsite; the layer has not.
            trace(0);
            ON.set(true);
            trace(1);
            ON.set(false);
            ready.wait();
            ready.wait();
            TRACED.set(0);
            ON.set(true);
            work(&other, &text);
            ON.set(false);
            TRACED.get()
        };
        let threads: Vec<_> =
            (0..THREADS).map(|_| std::thread::Builder::new().spawn_scoped(scope, traced).unwrap()).collect();
        ready.wait();
        guard.profiler().start().unwrap();
        ready.wait();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let trace = guard.finish().unwrap();
    let (mut made, mut allocs, mut wrong) = (0, 0, 0);
    trace.for_each(|activity| match activity.name {
        "made" => made += 1,
        "alloc" => allocs += 1,
        "large" | "other" => {}
        _ => wrong += 1,
    });
    let stats = trace.stats();
    assert!(traced > THREADS * SPANS, "the test allocates: {traced}");
    assert_eq!((made + stats.lost(Loss::SlicesOverLimit), wrong), (THREADS * SPANS, 0), "{stats}");
    // Missing events are counted: hooks called from inside a hook.
    assert!(allocs > 0 && allocs + stats.lost(Loss::Reentered) >= traced, "{allocs} of {traced}, {stats}");
}

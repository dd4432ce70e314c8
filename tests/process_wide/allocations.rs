//! Allocations of the span path: none in steady state.

use crate::allocator::COUNT;
use std::cell::Cell;
use tracing::info_span;
use tracing_kineto::KinetoLayer;
use tracing_subscriber::prelude::*;

const SPANS: u64 = 10_000;

/// Returns the number of allocations of repeated `work` on this thread.
fn allocations(work: &dyn Fn(u64)) -> u64 {
    // Warms up the thread's lane, the registry's pages and the value buffers.
    (0..SPANS).for_each(work);
    let before = COUNT.with(Cell::get);
    (0..SPANS).for_each(work);
    COUNT.with(Cell::get) - before
}

fn recorded(work: &dyn Fn(u64)) -> u64 {
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    let _alone = crate::lock_subscriber();
    let count = tracing::subscriber::with_default(subscriber, || allocations(work));
    assert!(guard.finish().unwrap().stats().slices >= SPANS);
    count
}

/// Allocations allowed: a chunk that is not ready in time, and a few queue handles. Far below one per hundred spans.
const FEW: u64 = SPANS / 100;

#[test]
fn spans_without_fields_do_not_allocate() {
    let count = recorded(&|_| info_span!("bare").in_scope(|| ()));
    assert!(count <= FEW, "{count}");
}

#[test]
fn spans_with_numbers_and_texts_do_not_allocate() {
    let text = "x".repeat(200);
    let count = recorded(&|i| {
        info_span!("full", i, f = 1.5, yes = true, text = text.as_str(), wide = u128::MAX).in_scope(|| ());
    });
    assert!(count <= FEW, "{count}");
}

#[test]
fn entering_the_same_span_again_does_not_allocate() {
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    let _alone = crate::lock_subscriber();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = info_span!("again", n = 1);
        let count = allocations(&|_| span.in_scope(|| ()));
        assert!(count <= FEW, "{count}");
    });
    drop(guard.finish().unwrap());
}

#[test]
fn late_values_and_counters_do_not_allocate() {
    let count = recorded(&|i| {
        let span = info_span!("late", n = tracing::field::Empty);
        span.in_scope(|| ());
        span.record("n", i);
        tracing_kineto::counter!("depth", i);
    });
    assert!(count <= FEW, "{count}");
}

#[test]
fn paused_recording_does_not_allocate() {
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build().unwrap();
    let _alone = crate::lock_subscriber();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let count = allocations(&|i| info_span!("bare", i).in_scope(|| ()));
        assert!(count <= FEW, "{count}");
    });
    drop(guard);
}

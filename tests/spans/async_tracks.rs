//! Which spans get an async track, and where it ends.
#![allow(clippy::disallowed_methods, reason = "scoped threads need no names here")]

use serde_json::Value;
use std::future::{self, Future};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use tracing::{Instrument, info_span};
use tracing_kineto::{AsyncSpans, KinetoLayer};
use tracing_subscriber::layer::SubscriberExt;

/// Records what `work` does; returns the "b" and "e" rows.
fn tracks(async_spans: AsyncSpans, work: impl FnOnce()) -> Vec<Value> {
    let (layer, guard) = KinetoLayer::builder().no_output().async_spans(async_spans).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    let mut file = Vec::new();
    guard.finish().unwrap().write_chrome(&mut file).unwrap();
    let mut file: Value = serde_json::from_slice(&file).unwrap();
    let Value::Array(mut rows) = file["traceEvents"].take() else { panic!("no events") };
    rows.retain(|row| row["ph"] == "b" || row["ph"] == "e");
    rows
}

fn names(tracks: &[Value]) -> Vec<&str> {
    tracks.iter().filter(|row| row["ph"] == "b").map(|row| row["name"].as_str().unwrap()).collect()
}

/// Polls a future to its end: it waits twice.
fn poll(name: &'static str, keep: &mut Vec<tracing::Span>, kept: bool) {
    let span = info_span!("request", name);
    keep.extend(kept.then(|| span.clone()));
    let mut waits = 2;
    let work = future::poll_fn(|_| {
        waits -= 1;
        if waits >= 0 { Poll::Pending } else { Poll::Ready(()) }
    });
    let mut work = pin!(work.instrument(span));
    while work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
}

/// Enters spans as a model does its layers: made first, entered again and again on several threads, dropped last.
fn run_layers() {
    let layers = [info_span!("attention"), info_span!("linear"), info_span!("softmax")];
    let forward = || {
        let _attention = layers[0].enter();
        layers[1].in_scope(|| ());
        layers[2].in_scope(|| ());
    };
    forward();
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let pass = || tracing::dispatcher::with_default(&dispatch, forward);
    thread::scope(|scope| scope.spawn(pass).join().unwrap());
    info_span!("evaluate").in_scope(forward);
}

#[test]
fn what_is_polled_gets_a_track_and_what_is_made_once_gets_none() {
    let mut keep = Vec::new();
    let rows = tracks(AsyncSpans::Auto, || {
        poll("a", &mut keep, false);
        run_layers();
    });
    assert_eq!(names(&rows), ["request"]);
    assert_eq!(rows[0]["args"]["polls"], 3, "not the enter to drop it in");
}

#[test]
fn a_request_that_another_holds_on_to_gets_its_track_too() {
    let mut keep = Vec::new();
    let rows = tracks(AsyncSpans::Auto, || {
        poll("a", &mut keep, true);
        poll("b", &mut keep, false);
        info_span!("audit").in_scope(|| keep.clear());
    });
    assert_eq!(names(&rows), ["request", "request"]);
    assert!(rows.iter().all(|row| row["args"]["finished"].is_null()), "{rows:#?}");
}

#[test]
fn one_way_or_the_other_all_can_be_had_or_none() {
    let both = tracks(AsyncSpans::Both, run_layers);
    assert_eq!(names(&both), ["attention", "linear", "softmax"]);
    assert_eq!(tracks(AsyncSpans::PerPoll, || poll("a", &mut Vec::new(), false)), [Value::Null; 0]);
}

#[test]
fn a_track_ends_where_a_thread_closes_the_span_that_was_never_in_it() {
    let rows = tracks(AsyncSpans::Both, || {
        let span = info_span!("request");
        // The last one as if it were dropped then.
        (0..3).for_each(|_| span.in_scope(|| ()));
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let close = move || tracing::dispatcher::with_default(&dispatch, || drop(span));
        thread::scope(|scope| scope.spawn(close).join().unwrap());
    });
    assert_eq!(names(&rows), ["request"]);
    assert!(rows[0]["args"]["finished"].is_null(), "{rows:#?}");
}

#[test]
fn a_track_ends_also_if_another_thread_has_looked_for_another_span_meanwhile() {
    let rows = tracks(AsyncSpans::Both, || {
        let outer = info_span!("outer").entered();
        let span = info_span!("request");
        // The last one as if it were dropped then.
        (0..3).for_each(|_| span.in_scope(|| ()));
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let look = || tracing::dispatcher::with_default(&dispatch, || drop(info_span!(parent: &*outer, "child")));
        thread::scope(|scope| scope.spawn(look).join().unwrap());
        drop(span);
    });
    assert_eq!(names(&rows), ["request"]);
    assert!(rows[0]["args"]["finished"].is_null(), "{rows:#?}");
}

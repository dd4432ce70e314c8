//! Which spans get an async track, and where the track ends.
#![allow(clippy::disallowed_methods, reason = "scoped threads need no names here")]

use serde_json::Value;
use std::future::{self, Future};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use tracing::{Instrument, info_span};
use tracing_kineto::{ArgValue, AsyncSpans, Format, KinetoLayer};
use tracing_subscriber::layer::SubscriberExt;

/// Records `work`; returns the "b" and "e" rows.
fn tracks(async_spans: AsyncSpans, work: impl FnOnce()) -> Vec<Value> {
    let (layer, guard) = KinetoLayer::builder().no_output().async_spans(async_spans).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    let mut file = Vec::new();
    guard.finish().unwrap().write(&mut file, Format::Json).unwrap();
    let mut file: Value = serde_json::from_slice(&file).unwrap();
    let Value::Array(mut rows) = file["traceEvents"].take() else { panic!("no events") };
    rows.retain(|row| row["ph"] == "b" || row["ph"] == "e");
    rows
}

fn names(tracks: &[Value]) -> Vec<&str> {
    tracks.iter().filter(|row| row["ph"] == "b").map(|row| row["name"].as_str().unwrap()).collect()
}

/// Polls a future that waits twice to completion.
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

/// Enters spans like a model's layers: made first, entered repeatedly on several threads, dropped last.
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
fn auto_mode_draws_tracks_of_futures_alone() {
    let mut keep = Vec::new();
    let rows = tracks(AsyncSpans::Auto, || {
        poll("a", &mut keep, false);
        run_layers();
    });
    assert_eq!(names(&rows), ["request"]);
    assert_eq!(rows[0]["args"]["enters"], 4, "the enter for the drop counts too");
    assert!(rows.iter().all(|row| row["pid"] == "Async spans"), "tracks are apart from the threads");
}

#[test]
fn request_has_a_track_when_another_request_keeps_its_span() {
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
fn both_mode_draws_all_tracks_and_per_poll_draws_none() {
    let both = tracks(AsyncSpans::Both, run_layers);
    assert_eq!(names(&both), ["attention", "linear", "softmax"]);
    assert_eq!(tracks(AsyncSpans::PerPoll, || poll("a", &mut Vec::new(), false)), [Value::Null; 0]);
}

#[test]
fn track_ends_when_a_thread_never_inside_closes_the_span() {
    let rows = tracks(AsyncSpans::Both, || {
        let span = info_span!("request");
        // The last enter imitates the drop of a future.
        (0..3).for_each(|_| span.in_scope(|| ()));
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let close = move || tracing::dispatcher::with_default(&dispatch, || drop(span));
        thread::scope(|scope| scope.spawn(close).join().unwrap());
    });
    assert_eq!(names(&rows), ["request"]);
    assert!(rows[0]["args"]["finished"].is_null(), "{rows:#?}");
}

#[test]
fn track_ends_when_another_thread_resolved_its_parent() {
    let rows = tracks(AsyncSpans::Both, || {
        let outer = info_span!("outer").entered();
        let span = info_span!("request");
        // The last enter imitates the drop of a future.
        (0..3).for_each(|_| span.in_scope(|| ()));
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let resolve_parent =
            || tracing::dispatcher::with_default(&dispatch, || drop(info_span!(parent: &*outer, "child")));
        thread::scope(|scope| scope.spawn(resolve_parent).join().unwrap());
        drop(span);
    });
    assert_eq!(names(&rows), ["request"]);
    assert!(rows[0]["args"]["finished"].is_null(), "{rows:#?}");
}

/// Returns `Pending` `waits` times inside a span that is named.
async fn step(name: &'static str, waits: usize) {
    let mut left = waits;
    let wait = future::poll_fn(move |_| {
        left = left.saturating_sub(1);
        if left > 0 { Poll::Pending } else { Poll::Ready(()) }
    });
    wait.instrument(info_span!("step", name)).await;
}

/// Polls futures concurrently until all are done.
async fn join(mut futures: Vec<Pin<Box<dyn Future<Output = ()>>>>) {
    future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Runs two steps in sequence, then three at once, the middle one within the first.
async fn request() {
    step("first", 2).await;
    step("second", 3).await;
    join(vec![Box::pin(step("long", 9)), Box::pin(step("short", 3)), Box::pin(step("longest", 12))]).await;
    info_span!("answer").in_scope(|| info_span!("write").in_scope(|| ()));
}

#[test]
fn request_shares_its_track_with_nested_spans() {
    let rows = tracks(AsyncSpans::Auto, || {
        let mut requests: Vec<_> = (0..2).map(|_| Box::pin(request().instrument(info_span!("request")))).collect();
        while !requests.is_empty() {
            requests.retain_mut(|request| request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    });
    let begins = || rows.iter().filter(|row| row["ph"] == "b");
    let requests: Vec<_> = begins().filter(|row| row["name"] == "request").collect();
    assert_eq!((requests.len(), begins().count()), (2, 12));
    for request in requests {
        let id = &request["args"]["span id"];
        assert_eq!(&request["args"]["request id"], id);
        let steps: Vec<_> = begins().filter(|row| row["name"] == "step" && row["args"]["request id"] == *id).collect();
        let shares = |row: &&Value| (row["args"]["name"].as_str().unwrap().to_owned(), row["id2"] == request["id2"]);
        let shares: Vec<_> = steps.iter().map(shares).collect();
        let expected = [("first", true), ("second", true), ("long", true), ("short", false), ("longest", false)];
        assert_eq!(shares, expected.map(|(name, shares)| (name.to_owned(), shares)));
        assert_ne!(steps[3]["id2"], steps[4]["id2"]);
    }
}

#[test]
fn request_rows_carry_its_id() {
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let mut future = pin!(request().instrument(info_span!("request")));
        while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        info_span!("after").in_scope(|| ());
    });
    let events = guard.finish().unwrap().events();
    let request = events.iter().find(|event| event.name() == "request").and_then(|event| event.span());
    assert!(request.is_some());
    for event in events.iter() {
        let shown = event.arg("request id").map(|id| match id {
            ArgValue::I64(id) => id.cast_unsigned(),
            other => panic!("{other:?}"),
        });
        assert_eq!(shown, request.filter(|_| event.name() != "after"), "{event:?}");
    }
    assert!(["step", "answer", "write"].iter().all(|name| events.iter().any(|event| event.name() == *name)));
}

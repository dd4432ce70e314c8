//! Slices, tracks and call counts of async calls, and of model layers whose spans are made once.
#![allow(clippy::mem_forget, reason = "tests need spans that are open at the end")]

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use support::{File, on_thread, record, record_with};
use tracing::{Instrument, Span, info_span};
use tracing_kineto::analysis::{Average, GroupBy};

/// Polls a future to completion on this thread.
fn run(future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
}

/// Returns `Pending` `times` times.
async fn wait(times: usize) {
    let mut left = times;
    let wait = |_: &mut Context<'_>| match left.checked_sub(1) {
        None => Poll::Ready(()),
        Some(fewer) => {
            left = fewer;
            Poll::Pending
        }
    };
    std::future::poll_fn(wait).await;
}

#[tracing::instrument]
async fn never_waits() {}

#[tracing::instrument]
async fn waits_once() {
    wait(1).await;
}

#[tracing::instrument]
async fn outer() {
    waits_once().await;
}

/// A layer of a model, which drops its span last, as candle's do.
struct Layer {
    inside: Vec<Layer>,
    span: Span,
}

impl Layer {
    fn new(name: &'static str, inside: Vec<Layer>) -> Layer {
        let span = match name {
            "model" => info_span!("model"),
            "attention" => info_span!("attention"),
            _ => info_span!("linear"),
        };
        Layer { inside, span }
    }

    fn forward(&self) {
        let _entered = self.span.enter();
        self.inside.iter().for_each(Layer::forward);
    }
}

fn model() -> Layer {
    let linear = || Layer::new("linear", Vec::new());
    Layer::new("model", vec![Layer::new("attention", vec![linear()]), linear()])
}

fn tracks(file: &File) -> Vec<(&str, u64)> {
    let of = |row: &serde_json::Value| row["args"]["enters"].as_u64().unwrap();
    file.rows("b").into_iter().map(|row| (row["name"].as_str().unwrap(), of(row))).collect()
}

/// Returns the name, calls and enters of each row of the averages.
fn averages(file: &File) -> Vec<(String, u64, u64)> {
    let averages = file.trace.events().averages().compute();
    let mut rows: Vec<_> =
        averages.ops().iter().map(|row| (row.name().to_owned(), row.count(), row.enters())).collect();
    rows.sort();
    rows
}

fn row(name: &str, calls: u64, enters: u64) -> (String, u64, u64) {
    (name.to_owned(), calls, enters)
}

#[test]
fn async_call_has_no_track_when_it_never_waits() {
    let file = record(|| (0..10).for_each(|_| run(never_waits())));
    assert_eq!((tracks(&file), averages(&file)), (vec![], vec![row("never_waits", 10, 20)]));
    let stats = file.trace.stats();
    assert_eq!((stats.slices, stats.omitted_enters), (file.all("never_waits").len() as u64, 20 - stats.slices));
    assert!(stats.slices >= 10);
}

#[test]
fn sync_span_has_a_slice_for_each_enter_with_work() {
    let work = |micros| {
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_micros(micros) {}
    };
    let file = record(|| {
        for _ in 0..20 {
            let span = info_span!("work");
            span.in_scope(|| work(50));
            span.in_scope(|| work(30));
        }
    });
    let slices = file.all("work");
    assert_eq!((slices.len(), file.trace.stats().omitted_enters), (40, 0));
    assert!(slices.iter().map(|slice| slice.end - slice.start).sum::<u64>() >= 20 * 80_000);
}

#[test]
fn async_call_counts_once_when_it_waits() {
    let file = record(|| (0..10).for_each(|_| run(waits_once())));
    assert_eq!((tracks(&file), averages(&file)), (vec![("waits_once", 3); 10], vec![row("waits_once", 10, 30)]));
    let omitted = &file.json["tracing_kineto"]["omitted_enters"];
    assert_eq!(omitted["by_name"]["waits_once"], serde_json::json!([omitted["count"], omitted["ns"]]));
    assert_eq!(file.all("waits_once").len() as u64 + omitted["count"].as_u64().unwrap(), 30);
}

#[test]
fn model_layer_counts_each_enter_next_to_futures() {
    let file = record(|| {
        let model = model();
        (0..10).for_each(|_| {
            model.forward();
            run(waits_once());
        });
        model.forward();
    });
    assert_eq!(tracks(&file), vec![("waits_once", 3); 10]);
    let expected = [row("attention", 11, 11), row("linear", 22, 22), row("model", 11, 11), row("waits_once", 10, 30)];
    assert_eq!(averages(&file), expected);
}

#[test]
fn future_drop_has_a_slice_when_it_records_a_span() {
    struct Traces;
    impl Drop for Traces {
        fn drop(&mut self) {
            info_span!("cleanup").in_scope(|| ());
        }
    }
    let file = record(|| {
        let traces = Traces;
        let future = async move {
            let _traces = traces;
            wait(100).await;
        };
        let mut future = Box::pin(future.instrument(info_span!("cancelled")));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    });
    assert_eq!(file.tree(&[]), "main\n  cancelled\n  cancelled\n    cleanup\n");
}

/// Runs a future whose span stays open until `close` drops the value that `keep` made inside it.
fn closes_late<K>(polls: usize, keep: impl FnOnce() -> K, close: impl FnOnce(K)) {
    let mut kept = None;
    run(async {
        kept = Some(keep());
        wait(polls - 1).await;
    }
    .instrument(info_span!("request")));
    info_span!("next").in_scope(|| ());
    close(kept.unwrap());
}

#[test]
fn future_has_a_track_when_a_child_closes_it_late() {
    let elsewhere = |child: Span| on_thread("closer", move || drop(child));
    let file = record(|| {
        closes_late(3, || info_span!("child"), |child| info_span!("cleanup").in_scope(|| drop(child)));
        closes_late(2, || info_span!("child"), elsewhere);
        closes_late(2, Span::current, drop);
        closes_late(1, || info_span!("child"), drop);
    });
    assert_eq!(tracks(&file), [("request", 4), ("request", 3), ("request", 3)]);
    assert_eq!(averages(&file)[2], row("request", 4, 12));
    // Nothing closes the span directly after the drop, so its enter is drawn.
    assert_eq!(file.all("request").len(), 12);
}

#[test]
fn future_has_a_track_when_its_child_starts_after_it() {
    let file = record(|| {
        let mut child = None;
        run(async {
            wait(1).await;
            child = Some(info_span!("child"));
        }
        .instrument(info_span!("request")));
        child.unwrap().in_scope(|| ());
    });
    assert_eq!(tracks(&file), [("request", 3)]);
    assert!(averages(&file).contains(&row("request", 1, 3)));
}

#[test]
fn future_has_a_track_when_another_thread_drops_it() {
    let file = record(|| {
        let mut child = None;
        let work = async {
            child = Some(info_span!("child"));
            wait(100).await;
        };
        let mut future = Box::pin(work.instrument(info_span!("request")));
        let mut poll = || assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        poll();
        info_span!("next").in_scope(|| ());
        poll();
        on_thread("canceller", || drop(future));
        drop(child);
    });
    assert_eq!(tracks(&file).len(), 1);
}

#[test]
fn model_has_no_track_when_it_is_dropped_late() {
    let file = record(|| {
        let model = model();
        (0..3).for_each(|_| info_span!("step").in_scope(|| model.forward()));
        info_span!("report").in_scope(|| drop(model));
    });
    let expected = [row("attention", 3, 3), row("linear", 6, 6), row("model", 3, 3)];
    assert_eq!((tracks(&file), averages(&file)[..3].to_vec()), (vec![], expected.to_vec()));
}

#[test]
fn layers_have_no_track_when_they_follow_each_other() {
    let file = record(|| {
        let layers = [info_span!("attention"), info_span!("linear")];
        (0..3).for_each(|_| layers.iter().for_each(|layer| layer.in_scope(|| ())));
        info_span!("report").in_scope(|| drop(layers));
    });
    let expected = [row("attention", 3, 3), row("linear", 3, 3), row("report", 1, 1)];
    assert_eq!((tracks(&file), averages(&file)), (vec![], expected.to_vec()));
}

#[test]
fn slice_with_an_event_is_shown_wherever_its_chunk_ends() {
    const SPANS: u64 = 20_000;
    let enter = |span: &Span| span.in_scope(|| tracing::info!("event"));
    let work = || {
        for number in 0..SPANS {
            let span = info_span!("twice");
            [&span, &span].into_iter().for_each(enter);
            // So that chunks end between any two records.
            (0..number % 3).for_each(|_| info_span!("other").in_scope(|| ()));
        }
    };
    let file = record_with(|builder| builder.events(tracing::Level::INFO), work);
    assert_eq!(file.all("twice").len() as u64, 2 * SPANS);
}

#[test]
fn cancelled_nested_futures_count_once() {
    let file = record(|| {
        run(waits_once());
        run(outer());
        let mut future = Box::pin(outer());
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        info_span!("next").in_scope(|| ());
        drop(future);
    });
    assert_eq!(averages(&file), [row("next", 1, 1), row("outer", 2, 5), row("waits_once", 3, 8)]);
}

/// Polls a future once.
fn poll(future: &mut Pin<Box<dyn Future<Output = ()> + Send>>) {
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tracing::instrument]
async fn job() {
    wait(3).await;
}

/// Waits for jobs in an endless loop.
#[tracing::instrument]
async fn worker_loop() {
    loop {
        job().await;
        wait(1).await;
    }
}

#[tracing::instrument]
async fn idle_loop() {
    wait(usize::MAX).await;
}

#[test]
fn endless_futures_count_once_when_threads_share_them() {
    let file = record(|| {
        let mut loops: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> =
            vec![Box::pin(idle_loop()), Box::pin(idle_loop())];
        for _ in 0..5 {
            loops.iter_mut().for_each(poll);
            on_thread("other", || loops.iter_mut().take(1).for_each(poll));
        }
        std::mem::forget(loops);
    });
    assert_eq!(averages(&file), [row("idle_loop", 2, 15)]);
    assert_eq!(tracks(&file), [("idle_loop", 10), ("idle_loop", 5)]);
}

#[test]
fn endless_future_counts_once_when_it_keeps_children() {
    let file = record(|| {
        let mut worker: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(worker_loop());
        (0..2).for_each(|_| poll(&mut worker));
        std::mem::forget(worker);
    });
    assert_eq!(averages(&file), [row("job", 1, 2), row("worker_loop", 1, 2)]);
}

#[test]
fn model_layer_counts_each_enter_when_never_dropped() {
    let file = record(|| {
        let (model, shared, recursive) = (model(), info_span!("shared"), info_span!("recursive"));
        (0..3).for_each(|_| model.forward());
        on_thread("user", || model.forward());
        // Two threads are inside it at once.
        let on_main = shared.enter();
        on_thread("user", || drop(shared.enter()));
        drop(on_main);
        recursive.in_scope(|| recursive.in_scope(|| ()));
        on_thread("user", || drop(recursive.enter()));
        info_span!("step").in_scope(|| model.forward());
        std::mem::forget((model, shared, recursive));
    });
    let mut expected = vec![row("attention", 5, 5), row("linear", 10, 10), row("model", 5, 5)];
    expected.extend([row("recursive", 2, 3), row("shared", 2, 2), row("step", 1, 1)]);
    assert_eq!((tracks(&file), averages(&file)), (vec![], expected));
}

#[test]
fn future_counts_on_the_thread_of_its_first_poll() {
    let file = record(|| {
        let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(job());
        on_thread("second", || info_span!("before").in_scope(|| ()));
        on_thread("first", || poll(&mut future));
        on_thread("second", || poll(&mut future));
        run(future);
    });
    let averages = file.trace.events().averages().by(GroupBy::Thread).compute();
    let jobs = || averages.ops().iter().filter(|row| row.name() == "job");
    let of = |thread: &str| jobs().find(|row| row.keys()[0].starts_with(thread)).unwrap();
    assert_eq!(["first", "second"].map(|thread| (of(thread).count(), of(thread).enters())), [(1, 5), (0, 0)]);
    assert!(of("second").cpu_ns() > 0 && of("first").max_ns() == jobs().map(Average::cpu_ns).sum::<u64>());
    assert_eq!((jobs().map(Average::count).sum::<u64>(), jobs().map(Average::enters).sum::<u64>()), (1, 5));
    let table = averages.table().to_string();
    let idle = table.lines().find(|line| line.contains("job") && line.contains(" second ")).unwrap();
    assert_eq!(idle.split_whitespace().skip(5).take(2).collect::<Vec<_>>(), ["0.000us", "0"]);
}

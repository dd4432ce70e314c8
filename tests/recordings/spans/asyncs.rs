//! Futures: a slice for each poll, a track for the whole life, arrows for `follows_from`.

use serde_json::Value;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use support::wait::sleep;
use support::{File, nanos, on_thread, record, record_with, spawn, virtual_time};
use tracing::{Instrument, Span, info_span};
use tracing_kineto::{AsyncSpans, Loss};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Quiet;
impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

/// Polls once on this thread.
fn poll(task: &mut Task) -> bool {
    let waker = Waker::from(Arc::new(Quiet));
    task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
}

/// Polls until the task is done, going round `threads` threads.
fn poll_on_threads(task: &mut Task, threads: usize) {
    for turn in 0.. {
        if on_thread(&format!("worker {}", turn % threads), || poll(task)) {
            break;
        }
    }
}

/// Returns `Pending` `pending` times and makes a span in each poll.
async fn steps(pending: usize) {
    let mut left = pending;
    std::future::poll_fn(|_| {
        info_span!("step").in_scope(|| ());
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

fn task(span: Span, pending: usize) -> Task {
    Box::pin(steps(pending).instrument(span))
}

/// Returns the begin and the end of each track, in the order of the file.
fn tracks(file: &File) -> Vec<(Value, Value)> {
    let (begins, ends) = (file.rows("b"), file.rows("e"));
    assert_eq!(begins.len(), ends.len());
    let end_of = |begin: &Value| ends.iter().find(|end| end["id2"] == begin["id2"]).copied().unwrap().clone();
    begins.into_iter().map(|begin| (begin.clone(), end_of(begin))).collect()
}

#[test]
fn each_poll_has_a_slice_on_its_thread() {
    let file = record(|| poll_on_threads(&mut task(info_span!("task", n = 1), 2), 2));
    // tracing enters the span once more when the future is dropped, here on the main thread.
    let polls = file.all("task");
    let rows: Vec<_> = polls.iter().take(3).map(|slice| slice.row.as_str()).collect();
    assert_eq!(rows, ["worker 0", "worker 1", "worker 0"]);
    assert!(polls.iter().all(|slice| slice.span() == polls[0].span() && slice.fields() == r#"{"n":1}"#));
    assert!(file.all("step").iter().all(|step| step.parent() == polls[0].span()));
}

// Shows the key ASYNC_SPANS.
#[test]
fn async_modes_select_polls_and_tracks() {
    for (mode, polls, has_track) in [
        (AsyncSpans::PerPoll, true, false),
        (AsyncSpans::Track, false, true),
        (AsyncSpans::Both, true, true),
        (AsyncSpans::Auto, true, true),
    ] {
        let file = record_with(
            |builder| builder.async_spans(mode),
            || {
                poll_on_threads(&mut task(info_span!("task"), 3), 3);
                info_span!("sync").in_scope(|| info_span!("inside").in_scope(|| ()));
            },
        );
        assert_eq!(!file.all("task").is_empty(), polls, "{mode:?}");
        let names: Vec<_> = tracks(&file).iter().map(|(begin, _)| begin["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names, if has_track { vec!["task"] } else { vec![] }, "{mode:?}");
        assert_eq!((file.all("sync").len(), file.all("inside").len(), file.all("step").len()), (1, 1, 4), "{mode:?}");
    }
}

#[test]
fn track_lasts_from_first_poll_to_drop_and_has_busy_time() {
    let file = record(|| {
        let mut task = task(info_span!("task", n = 1), 2);
        poll_on_threads(&mut task, 2);
        drop(task);
        info_span!("after").in_scope(|| ());
    });
    let polls = file.all("task");
    let [(begin, end)] = &tracks(&file)[..] else { unreachable!() };
    assert_eq!(
        (begin["cat"].as_str(), end["cat"].as_str(), &end["name"]),
        (Some("async"), Some("async"), &begin["name"])
    );
    assert_eq!(nanos(&begin["ts"]), polls[0].start);
    let closed = nanos(&end["ts"]);
    assert!(polls.last().unwrap().end <= closed && closed <= file.slice("after").start);
    let args = &begin["args"];
    let omitted = file.trace.stats().omitted_enters;
    assert_eq!(args["enters"].as_u64(), Some(polls.len() as u64 + omitted));
    let close_to =
        |key: &str, ns: u64| (args[key].to_string().parse::<f64>().unwrap() - ns as f64 / 1000.0).abs() < 0.1;
    let omitted_ns = file.json["tracing_kineto"]["omitted_enters"]["ns"].as_u64().unwrap_or(0);
    let busy: u64 = polls.iter().map(|poll| poll.end - poll.start).sum::<u64>() + omitted_ns;
    assert!(close_to("busy us", busy) && close_to("wall us", closed - polls[0].start), "{args} {busy}");
    assert_eq!((args["n"].as_u64(), args.get("finished")), (Some(1), None));
    assert_eq!(args["span id"].as_u64(), Some(polls[0].span()));
}

#[test]
fn track_ends_with_its_future_when_the_span_closes_late() {
    let file = record(|| {
        let span = info_span!("task");
        let mut task = task(span.clone(), 2);
        while !poll(&mut task) {}
        drop(task);
        info_span!("after").in_scope(|| drop(span));
    });
    let [(begin, end)] = &tracks(&file)[..] else { unreachable!() };
    let (polls, end) = (file.all("task"), nanos(&end["ts"]));
    assert!(polls.last().unwrap().end <= end && end <= file.slice("after").start);
    assert!(begin["args"].get("finished").is_none(), "{begin}");
}

#[test]
fn cancelled_future_ends_its_track_when_dropped() {
    for elsewhere in [false, true] {
        let file = record(|| {
            let mut task = task(info_span!("task"), 100);
            (0..3).for_each(|_| assert!(!poll(&mut task)));
            info_span!("timeout").in_scope(|| ());
            if elsewhere {
                on_thread("canceller", || drop(task))
            } else {
                drop(task)
            }
            info_span!("after").in_scope(|| ());
        });
        let tracks = tracks(&file);
        assert_eq!(tracks.len(), 1, "dropped elsewhere: {elsewhere}");
        let (begin, end) = &tracks[0];
        let end = nanos(&end["ts"]);
        assert!(file.slice("timeout").end <= end && end <= file.slice("after").start);
        assert!(begin["args"].get("finished").is_none());
    }
}

#[test]
fn track_is_finished_when_another_thread_closes_the_span() {
    // Does without tracing's `Instrumented`, which enters the span once more for its drop.
    let file = record_with(
        |builder| builder.async_spans(AsyncSpans::Both),
        || {
            let span = info_span!("task");
            (0..3).for_each(|_| span.in_scope(|| ()));
            on_thread("closer", || drop(span));
            info_span!("after").in_scope(|| ());
        },
    );
    let (begin, end) = &tracks(&file)[0];
    assert!(begin["args"].get("finished").is_none(), "{begin}");
    assert!(nanos(&end["ts"]) <= file.slice("after").start);
}

#[test]
fn track_is_finished_when_another_thread_enters_a_sibling() {
    let file = record(|| {
        let outer = info_span!("outer");
        let entered = outer.enter();
        let task = info_span!("task");
        on_thread("thief", || outer.in_scope(|| ()));
        // The last enter imitates the drop of a future.
        (0..3).for_each(|_| task.in_scope(|| ()));
        drop(task);
        drop(entered);
    });
    let tracks = tracks(&file);
    let task = tracks.iter().find(|(begin, _)| begin["name"] == "task");
    assert!(task.is_some_and(|(begin, _)| begin["args"].get("finished").is_none()), "{tracks:?}");
}

#[test]
fn open_track_is_marked_unfinished_at_the_stop() {
    let mut kept = None;
    let file = record_with(
        |builder| builder.async_spans(AsyncSpans::Both),
        || {
            let mut task = task(info_span!("task"), 100);
            (0..2).for_each(|_| assert!(!poll(&mut task)));
            kept = Some(task);
        },
    );
    let (begin, _) = &tracks(&file)[0];
    assert_eq!((begin["args"]["finished"].as_bool(), begin["args"]["enters"].as_u64()), (Some(false), Some(2)));
    drop(kept);
}

#[test]
fn concurrent_futures_have_separate_tracks() {
    const TASKS: usize = 5;
    let file = record(|| {
        let request = info_span!("request").entered();
        let mut tasks: Vec<Task> = (0..TASKS).map(|n| task(info_span!("task", n), 2)).collect();
        for _ in 0..3 {
            for task in &mut tasks {
                poll(task);
            }
        }
        drop(tasks);
        drop(request);
    });
    let tracks = tracks(&file);
    let tracks: Vec<_> = tracks.iter().filter(|(begin, _)| begin["name"] == "task").collect();
    assert_eq!(tracks.len(), TASKS);
    let ids: HashSet<_> = tracks.iter().map(|(begin, _)| begin["id2"]["local"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), TASKS, "each future has its own id, not the common root's");
    assert!(ids.iter().all(|id| id.starts_with("0x")));
    let numbers: Vec<_> = tracks.iter().map(|(begin, _)| begin["args"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    let request = file.slice("request").span();
    assert!(tracks.iter().all(|(begin, _)| begin["args"]["parent id"].as_u64() == Some(request)));
}

#[test]
fn track_is_absent_for_one_poll_and_for_model_layers() {
    let layers = std::cell::RefCell::new(None);
    let file = record(|| {
        let mut once = task(info_span!("once"), 0);
        assert!(poll(&mut once));
        let model = [info_span!("layer"), info_span!("layer")];
        for _ in 0..4 {
            model.iter().for_each(|layer| layer.in_scope(|| info_span!("inner").in_scope(|| ())));
        }
        layers.replace(Some(model));
    });
    assert!(tracks(&file).is_empty());
    assert_eq!(file.all("layer").len(), 8);
}

#[test]
fn tasks_lose_nothing_when_many_threads_poll_them() {
    const TASKS: usize = 20;
    const THREADS: usize = 4;
    const PENDING: usize = 10;
    let file = record(|| {
        let queue = std::sync::Mutex::new((0..TASKS).map(|n| task(info_span!("task", n), PENDING)).collect::<Vec<_>>());
        std::thread::scope(|scope| {
            for i in 0..THREADS {
                let queue = &queue;
                spawn(scope, &format!("worker {i}"), move || {
                    loop {
                        let Some(mut task) = ({ queue.lock().unwrap().pop() }) else { break };
                        if !poll(&mut task) {
                            queue.lock().unwrap().insert(0, task);
                        }
                    }
                });
            }
        });
        // A worker may have left while another held the last task.
        queue.into_inner().unwrap().iter_mut().for_each(|task| while !poll(task) {});
    });
    assert_eq!(file.all("step").len(), TASKS * (PENDING + 1));
    let polls = file.all("task");
    for n in 0..TASKS as u64 {
        let own: Vec<_> = polls.iter().filter(|poll| poll.args["n"].as_u64() == Some(n)).collect();
        assert!(own.len() > PENDING && own.iter().all(|poll| poll.span() == own[0].span()), "task {n}");
    }
    assert_eq!(tracks(&file).iter().filter(|(begin, _)| begin["name"] == "task").count(), TASKS);
    assert_eq!((file.lost(Loss::Unfinished), file.lost(Loss::Overlapping), file.lost(Loss::Reentered)), (0, 0, 0));
}

#[test]
fn follows_from_links_the_two_slices() {
    let file = record(|| {
        let cause = info_span!("cause");
        cause.in_scope(|| ());
        let effect = info_span!("effect");
        effect.follows_from(&cause);
        on_thread("worker", || effect.in_scope(|| ()));
    });
    let (starts, ends) = (file.rows("s"), file.rows("f"));
    let ([start], [end]) = (&starts[..], &ends[..]) else { unreachable!("{starts:?} {ends:?}") };
    assert_eq!((&start["id"], start["cat"].as_str()), (&end["id"], Some("follows_from")));
    let (cause, effect) = (file.slice("cause"), file.slice("effect"));
    assert_eq!((start["tid"].as_u64(), nanos(&start["ts"])), (Some(cause.tid), cause.start));
    assert_eq!(
        (end["tid"].as_u64(), nanos(&end["ts"]), end["bp"].as_str()),
        (Some(effect.tid), effect.start, Some("e"))
    );
    assert_eq!(file.lost(Loss::FollowsUnlinked), 0);
}

/// Imitates the drop of a future, which enters its span for some nanoseconds.
#[virtual_time]
fn arrow_prefers_visible_slices_at_both_ends() {
    let sleep = || sleep(std::time::Duration::from_millis(2));
    let file = record(|| {
        let (cause, effect) = (info_span!("cause"), info_span!("effect"));
        effect.follows_from(&cause);
        cause.in_scope(sleep);
        cause.in_scope(|| ());
        effect.in_scope(|| ());
        effect.in_scope(sleep);
        drop((effect, cause));
    });
    let seen = |name| file.all(name).into_iter().filter(|slice| slice.end - slice.start >= 1000).collect::<Vec<_>>();
    let (causes, effects) = (seen("cause"), seen("effect"));
    assert_eq!(nanos(&file.rows("s")[0]["ts"]), causes.last().unwrap().start);
    assert_eq!(nanos(&file.rows("f")[0]["ts"]), effects[0].start);
}

#[test]
fn follows_from_is_counted_when_it_cannot_be_linked() {
    let file = record(|| {
        let never = info_span!("never entered");
        let effect = info_span!("effect");
        effect.follows_from(&never);
        effect.in_scope(|| ());
        let (first, second) = (info_span!("first"), info_span!("second"));
        first.follows_from(&second);
        first.in_scope(|| ());
        second.in_scope(|| ());
    });
    assert!(file.rows("s").is_empty() && file.rows("f").is_empty());
    assert_eq!(file.lost(Loss::FollowsUnlinked), 2);
}

#[test]
fn links_of_one_span_have_distinct_ids() {
    let file = record(|| {
        let causes = [info_span!("a"), info_span!("b")];
        causes.iter().for_each(|cause| cause.in_scope(|| ()));
        for _ in 0..2 {
            let effect = info_span!("effect");
            for cause in &causes {
                effect.follows_from(cause);
            }
            effect.in_scope(|| ());
        }
    });
    let numbers = |ph| file.rows(ph).iter().map(|row| row["id"].to_string()).collect::<HashSet<_>>();
    assert_eq!((numbers("s").len(), numbers("s")), (4, numbers("f")));
}

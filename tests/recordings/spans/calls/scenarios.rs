//! Programs whose spans are entered on both sides of a cut, and what they must show.
#![allow(clippy::mem_forget, reason = "some spans stay open at the end")]

use super::Expected;
use super::model::Model;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use support::{on_thread, spawn};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use tracing::{Instrument, Span, debug, info_span};

/// A program, and what the spans of some names must show.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) run: fn(&dyn Fn()),
    pub(super) expected: &'static [Expected],
    /// The layer's filter.
    pub(super) filter: Option<&'static str>,
}

const fn scenario(name: &'static str, run: fn(&dyn Fn()), expected: &'static [Expected]) -> Scenario {
    Scenario { name, run, expected, filter: None }
}

const NO_STEP: &[Expected] =
    &[Expected::each("model", 1, 2, 3), Expected::each("attention", 1, 2, 3), Expected::each("linear", 3, 2, 3)];
const SYSTEMS: &[Expected] = &[Expected::each("system", 4, 2, 3)];
const TASKS: &[Expected] = &[Expected::closing("task", 3, 2, 3)];

pub(super) const ALL: &[Scenario] = &[
    scenario("model_layers", |cut| run_model(cut, false), NO_STEP),
    scenario("model_layers_in_steps", |cut| run_model(cut, true), NO_STEP),
    scenario("system_spans", run_systems, SYSTEMS),
    scenario("span_shared_by_threads", share_span, &[Expected::each("shared", 1, 8, 8)]),
    scenario("requests_entered_by_hand", serve_by_hand, &[Expected::direct("request", 3, 3, 2)]),
    scenario(
        "requests_after_a_spawn_in_another_span",
        serve_after_spawns,
        &[Expected::direct("request", 2, 2, 1), Expected::closing("background", 2, 1, 1)],
    ),
    scenario("spawned_futures", spawn_futures, TASKS),
    scenario(
        "joined_futures_in_a_loop",
        join_in_loop,
        &[
            Expected::closing("left", 1, 4, 0),
            Expected::closing("left", 1, 1, 3),
            Expected::closing("left", 1, 0, 4),
            Expected::closing("right", 1, 3, 0),
            Expected::closing("right", 1, 1, 2),
            Expected::closing("right", 1, 0, 3),
        ],
    ),
    scenario(
        "selected_futures_in_a_loop",
        select_in_loop,
        &[
            Expected::closing("ticker", 1, 2, 3),
            Expected::closing("cancelled", 2, 3, 0),
            Expected::closing("cancelled", 2, 0, 3),
        ],
    ),
    scenario(
        "tasks_of_a_local_set",
        run_local_set,
        &[Expected::closing("spawner", 1, 2, 3), Expected::closing("child", 2, 1, 3)],
    ),
    scenario(
        "block_on_in_a_guard",
        block_on_in_guard,
        &[
            Expected::direct("waiting", 1, 2, 3),
            Expected::direct("called", 1, 4, 0),
            Expected::direct("called", 1, 0, 4),
        ],
    ),
    scenario(
        "nested_instrumented_futures",
        nest_futures,
        &[Expected::closing("outer", 1, 2, 3), Expected::closing("inner", 1, 2, 3)],
    ),
    scenario(
        "future_instrumented_twice",
        instrument_twice,
        &[Expected::direct("called", 1, 4, 6), Expected::closing("spawned", 1, 4, 6).nested(2)],
    ),
    scenario(
        "cancelled_futures",
        cancel_futures,
        &[Expected::closing("here", 1, 2, 2), Expected::closing("elsewhere", 1, 2, 2)],
    ),
    scenario("future_moved_between_threads", move_future, &[Expected::closing("moved", 1, 3, 4)]),
    scenario("called_future_moved_between_threads", move_called_future, &[Expected::direct("moved", 1, 3, 4)]),
    scenario(
        "child_outlives_its_called_parent",
        outlive_called_parent,
        &[Expected::direct("parent", 1, 2, 2), Expected::closing("child", 1, 1, 3)],
    ),
    scenario(
        "child_outlives_its_spawned_parent",
        outlive_spawned_parent,
        &[Expected::closing("parent", 1, 2, 2), Expected::closing("child", 1, 1, 3)],
    ),
    // No hook tells when the parent's future was dropped.
    scenario(
        "held_span_outlives_its_spawned_parent_is_undecidable",
        hold_span_of_spawned_parent,
        &[Expected::each("parent", 1, 2, 2), Expected::closing("child", 1, 1, 3)],
    ),
    scenario("called_future_open_at_the_end", leave_called_future, &[Expected::direct("endless", 1, 2, 3).open()]),
    // Until it closes, it may be a layer of a model.
    scenario(
        "spawned_future_open_at_the_end_is_undecidable",
        leave_spawned_future,
        &[Expected::each("endless", 1, 2, 3).open()],
    ),
    // The hooks are those of a future that is called, and of a layer that is.
    scenario("span_reused_at_once_is_undecidable", |cut| reuse(cut, false), &[Expected::direct("reused", 1, 2, 3)]),
    scenario("span_reused_later", |cut| reuse(cut, true), &[Expected::each("reused", 1, 2, 3)]),
    // The hooks are those of a spawned future whose last enter drops it.
    scenario("span_dropped_after_its_exit_is_undecidable", drop_after_exit, &[Expected::closing("reused", 1, 2, 3)]),
    scenario("span_made_after_an_unused_one", make_after_unused, &[Expected::direct("reused", 1, 2, 3)]),
    scenario(
        "futures_with_a_subscriber",
        with_subscriber,
        &[Expected::closing("with_current", 1, 2, 3), Expected::closing("with_none", 1, 2, 3)],
    ),
    scenario(
        "futures_that_follow_others",
        follow,
        &[Expected::closing("cause", 1, 3, 0), Expected::closing("effect", 1, 1, 3)],
    ),
    scenario(
        "calls_set_by_a_field",
        override_calls,
        &[
            Expected::direct("layer", 2, 2, 3),
            Expected::each("future", 1, 2, 3),
            Expected::each("called", 1, 2, 3),
            Expected::each("other", 1, 2, 3),
        ],
    ),
    scenario("span_inside_itself", recurse, &[Expected::each("recursive", 1, 6, 9).nested(3)]),
    scenario(
        "exits_in_another_order",
        exit_in_another_order,
        &[Expected::each("first", 1, 4, 6), Expected::each("second", 1, 2, 3)],
    ),
];

/// Scenarios of which the layer records one target alone.
pub(super) const FILTERED: &[Scenario] = &[
    filtered("model", |cut| run_model(cut, false), &[Expected::each("model", 1, 2, 3)]),
    filtered("model", |cut| run_model(cut, true), &[Expected::each("model", 1, 2, 3)]),
    filtered("attention", |cut| run_model(cut, false), &[Expected::each("attention", 1, 2, 3)]),
    filtered("attention", |cut| run_model(cut, true), &[Expected::each("attention", 1, 2, 3)]),
    filtered("linear", |cut| run_model(cut, false), &[Expected::each("linear", 3, 2, 3)]),
    filtered("linear", |cut| run_model(cut, true), &[Expected::each("linear", 3, 2, 3)]),
    filtered("system", run_systems, SYSTEMS),
    filtered("task", spawn_futures, TASKS),
    filtered("task", spawn_futures_with_children, TASKS),
    filtered("inner", nest_futures, &[Expected::closing("inner", 1, 2, 3)]),
    filtered("outer", nest_futures, &[Expected::closing("outer", 1, 2, 3)]),
    filtered("reused", |cut| reuse(cut, true), &[Expected::each("reused", 1, 2, 3)]),
];

const fn filtered(target: &'static str, run: fn(&dyn Fn()), expected: &'static [Expected]) -> Scenario {
    Scenario { name: target, run, expected, filter: Some(target) }
}

/// What is done in each enter.
pub(super) fn work() {
    debug!("work");
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Quiet;
impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

/// Polls a future once; returns whether it is done.
fn poll(task: &mut Task) -> bool {
    task.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Quiet)))).is_ready()
}

/// Polls a future once, and drops it when it is done.
fn poll_or_drop(task: &mut Option<Task>) {
    if task.as_mut().is_some_and(poll) {
        *task = None;
    }
}

/// Returns `Pending` that often.
async fn wait(times: usize) {
    let mut left = times;
    std::future::poll_fn(|_| {
        work();
        match left.checked_sub(1) {
            None => Poll::Ready(()),
            Some(fewer) => {
                left = fewer;
                Poll::Pending
            }
        }
    })
    .await;
}

fn task(span: Span, pending: usize) -> Task {
    Box::pin(wait(pending).instrument(span))
}

/// Polls a future twice, cuts, and polls it to its end.
fn run_across(cut: &dyn Fn(), task: &mut Option<Task>) {
    (0..2).for_each(|_| poll_or_drop(task));
    cut();
    while task.is_some() {
        poll_or_drop(task);
    }
}

/// Something between two others.
fn something_else() {
    info_span!(target: "else", "else").in_scope(work);
}

fn run_model(cut: &dyn Fn(), has_steps: bool) {
    let model = Model::load();
    let forward = || match has_steps {
        true => info_span!(target: "step", "step").in_scope(|| model.forward()),
        false => model.forward(),
    };
    (0..2).for_each(|_| forward());
    cut();
    (0..3).for_each(|_| forward());
}

// Systems as bevy runs them: spans without a parent, made in a row, entered for each run by changing threads.

fn run_systems(cut: &dyn Fn()) {
    let app = info_span!(target: "app", "app").entered();
    let system = |nth: u64| info_span!(target: "system", parent: None, "system", nth);
    let systems: Vec<_> = (0..4).map(system).collect();
    let run = |nth: usize| {
        let _schedule = info_span!(target: "app", "schedule").entered();
        for (at, system) in systems.iter().enumerate().rev() {
            match (at + nth) % 4 {
                0 => system.in_scope(work),
                thread => on_thread(&format!("compute {thread}"), || system.in_scope(work)),
            }
        }
    };
    (0..2).for_each(run);
    cut();
    // In the last one, this thread runs the first system, and drops it first.
    [2, 3, 4].into_iter().for_each(run);
    drop(systems);
    drop(app);
}

/// Four threads are inside a span at once, each by its own clone, which it drops.
fn share_span(cut: &dyn Fn()) {
    let inside_at_once = |clones: Vec<Span>| {
        let together = Barrier::new(clones.len());
        std::thread::scope(|scope| {
            for (nth, span) in clones.into_iter().enumerate() {
                let together = &together;
                spawn(scope, &format!("worker {nth}"), move || {
                    (0..2).for_each(|_| {
                        let _entered = span.enter();
                        together.wait();
                        work();
                        together.wait();
                    });
                });
            }
        });
    };
    let span = info_span!("shared");
    inside_at_once(vec![span.clone(); 4]);
    cut();
    let last = vec![span; 4];
    inside_at_once(last);
}

/// A request as a tower service traces it: its span is entered where it is made, for each poll, and for each body poll.
struct Request {
    span: Span,
}

impl Request {
    fn begin() -> Request {
        let span = info_span!("request", method = "GET");
        span.in_scope(work);
        Request { span }
    }

    fn poll(&self) {
        let _entered = self.span.enter();
        something_else();
        work();
    }
}

fn serve_by_hand(cut: &dyn Fn()) {
    let serve = || {
        something_else();
        let request = Request::begin();
        request.poll();
        request
    };
    let requests = [serve(), serve(), serve()];
    requests.iter().for_each(Request::poll);
    cut();
    requests.iter().for_each(Request::poll);
    on_thread("writer", || requests.iter().for_each(Request::poll));
    something_else();
    drop(requests);
}

/// One thread polls a task that spawns another, and then one that serves a request.
fn serve_after_spawns(cut: &dyn Fn()) {
    let (mut requests, mut spawned) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        info_span!("spawner").in_scope(|| spawned.push(task(info_span!("background"), 0)));
        info_span!("connection").in_scope(|| requests.push(Request::begin()));
    }
    requests.iter().for_each(Request::poll);
    // The first poll is before the cut, the drop after it.
    on_thread("worker", || spawned.iter_mut().for_each(|task| assert!(poll(task))));
    cut();
    requests.iter().for_each(Request::poll);
    something_else();
    drop(requests);
    on_thread("worker", || drop(spawned));
}

fn spawn_futures(cut: &dyn Fn()) {
    let tasks = (0..3).map(|nth: u64| Some(task(info_span!(target: "task", "task", nth), 3)));
    let mut tasks: Vec<_> = tasks.collect();
    let mut run = |thread: &str| on_thread(thread, || tasks.iter_mut().for_each(poll_or_drop));
    run("worker 0");
    run("worker 1");
    cut();
    run("worker 0");
    run("worker 1");
}

/// The futures' drops enter and close spans of another target.
fn spawn_futures_with_children(cut: &dyn Fn()) {
    struct Traces(Span);
    impl Drop for Traces {
        fn drop(&mut self) {
            self.0.in_scope(something_else);
        }
    }
    let future = || {
        let traces = Traces(info_span!(target: "else", "held"));
        async move {
            let _traces = traces;
            wait(10).await;
        }
    };
    let tasks = (0..3).map(|_| future().instrument(info_span!(target: "task", "task")));
    let mut tasks: Vec<Task> = tasks.map(|task| Box::pin(task) as Task).collect();
    let mut run = || tasks.iter_mut().for_each(|task| assert!(!poll(task)));
    (0..2).for_each(|_| run());
    cut();
    (0..2).for_each(|_| run());
    tasks.into_iter().for_each(drop);
}

fn join_in_loop(cut: &dyn Fn()) {
    for iteration in 0..3 {
        let mut both = [Some(task(info_span!("left"), 2)), Some(task(info_span!("right"), 1))];
        both.iter_mut().for_each(poll_or_drop);
        if iteration == 1 {
            cut();
        }
        while both.iter().any(Option::is_some) {
            both.iter_mut().for_each(poll_or_drop);
        }
    }
}

fn select_in_loop(cut: &dyn Fn()) {
    something_else();
    let (mut ticker, _other) = (Some(task(info_span!("ticker"), 3)), info_span!("other"));
    let mut select = |polls: usize| {
        let mut cancelled = [(); 2].map(|()| Some(task(info_span!("cancelled"), 100)));
        (0..2).for_each(|_| cancelled.iter_mut().for_each(poll_or_drop));
        (0..polls).for_each(|_| poll_or_drop(&mut ticker));
    };
    select(2);
    cut();
    select(2);
}

/// Tasks of one thread, which spawn others.
fn run_local_set(cut: &dyn Fn()) {
    let queue = Arc::new(std::sync::Mutex::new(VecDeque::<Task>::new()));
    let spawner = {
        let (queue, mut polls) = (queue.clone(), 0);
        std::future::poll_fn(move |_| {
            work();
            polls += 1;
            if polls == 2 {
                let children = [task(info_span!("child"), 2), task(info_span!("child"), 2)];
                queue.lock().unwrap().extend(children);
            }
            if polls == 4 { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    something_else();
    let (spawner, _other) = (Box::pin(spawner.instrument(info_span!("spawner"))), info_span!("other"));
    queue.lock().unwrap().push_back(spawner);
    let turn = || {
        let Some(mut next) = ({ queue.lock().unwrap().pop_front() }) else { return false };
        if !poll(&mut next) {
            queue.lock().unwrap().push_back(next);
        }
        true
    };
    // The spawner twice, and both children once.
    (0..4).for_each(|_| assert!(turn()));
    cut();
    while turn() {}
}

#[tracing::instrument]
async fn called(pending: usize) {
    wait(pending).await;
}

fn block_on_in_guard(cut: &dyn Fn()) {
    let _guard = info_span!("main").entered();
    let body = async {
        called(2).await;
        something_else();
        wait(3).instrument(info_span!("waiting")).await;
        called(2).await;
    };
    let mut body: Task = Box::pin(body);
    // The third poll is the last of the first call, and the first of what waits.
    (0..4).for_each(|_| assert!(!poll(&mut body)));
    cut();
    while !poll(&mut body) {}
}

fn nest_futures(cut: &dyn Fn()) {
    let inner = wait(3).instrument(info_span!(target: "inner", "inner"));
    let mut both: Option<Task> = Some(Box::pin(inner.instrument(info_span!(target: "outer", "outer"))));
    run_across(cut, &mut both);
}

fn instrument_twice(cut: &dyn Fn()) {
    let twice = |span: Span| -> Option<Task> { Some(Box::pin(wait(3).instrument(span.clone()).instrument(span))) };
    something_else();
    let mut called = twice(info_span!("called"));
    (0..2).for_each(|_| poll_or_drop(&mut called));
    let (mut spawned, _other) = (twice(info_span!("spawned")), info_span!("other"));
    (0..2).for_each(|_| poll_or_drop(&mut spawned));
    cut();
    while called.is_some() || spawned.is_some() {
        poll_or_drop(&mut called);
        poll_or_drop(&mut spawned);
    }
}

fn cancel_futures(cut: &dyn Fn()) {
    let mut both = [task(info_span!("here"), 100), task(info_span!("elsewhere"), 100)];
    (0..2).for_each(|_| both.iter_mut().for_each(|task| assert!(!poll(task))));
    cut();
    both.iter_mut().for_each(|task| assert!(!poll(task)));
    let [here, elsewhere] = both;
    drop(here);
    on_thread("canceller", || drop(elsewhere));
}

fn move_future(cut: &dyn Fn()) {
    let (mut task, _other) = (Some(task(info_span!("moved"), 5)), info_span!("other"));
    for turn in 0..7 {
        if turn == 3 {
            cut();
        }
        on_thread(&format!("worker {}", turn % 3), || poll_or_drop(&mut task));
    }
}

fn move_called_future(cut: &dyn Fn()) {
    something_else();
    let mut task = Some(task(info_span!("moved"), 5));
    poll_or_drop(&mut task);
    for turn in 1..6 {
        if turn == 3 {
            cut();
        }
        on_thread(&format!("worker {}", turn % 3), || poll_or_drop(&mut task));
    }
}

/// Polls a future that often, and ends it before its child.
fn outlive(cut: &dyn Fn(), span: Span, polls: usize) {
    let (_other, child) = (info_span!(parent: None, "other"), info_span!(parent: &span, "child"));
    let (mut parent, mut child) = (Some(task(span, polls)), Some(task(child, 2)));
    (0..polls).for_each(|_| poll_or_drop(&mut parent));
    on_thread("worker", || poll_or_drop(&mut child));
    cut();
    poll_or_drop(&mut parent);
    assert!(parent.is_none());
    something_else();
    on_thread("worker", || (0..2).for_each(|_| poll_or_drop(&mut child)));
    assert!(child.is_none());
    something_else();
}

fn outlive_called_parent(cut: &dyn Fn()) {
    something_else();
    let span = info_span!("parent");
    span.in_scope(work);
    outlive(cut, span, 1);
}

fn outlive_spawned_parent(cut: &dyn Fn()) {
    let (span, _other) = (info_span!("parent"), info_span!("other"));
    outlive(cut, span, 2);
}

fn hold_span_of_spawned_parent(cut: &dyn Fn()) {
    let (span, _other) = (info_span!("parent"), info_span!("other"));
    let held = info_span!(parent: &span, "held");
    outlive(cut, span, 2);
    drop(held);
}

fn leave_called_future(cut: &dyn Fn()) {
    something_else();
    let mut task = task(info_span!("endless"), 100);
    (0..2).for_each(|_| assert!(!poll(&mut task)));
    cut();
    (0..3).for_each(|_| assert!(!poll(&mut task)));
    std::mem::forget(task);
}

fn leave_spawned_future(cut: &dyn Fn()) {
    let (mut task, _other) = (task(info_span!("endless"), 100), info_span!("other"));
    (0..2).for_each(|_| assert!(!poll(&mut task)));
    cut();
    (0..3).for_each(|_| assert!(!poll(&mut task)));
    std::mem::forget(task);
}

fn reuse(cut: &dyn Fn(), is_later: bool) {
    something_else();
    let span = info_span!(target: "reused", "reused");
    if is_later {
        something_else();
    }
    (0..2).for_each(|_| span.in_scope(work));
    cut();
    (0..3).for_each(|_| span.in_scope(work));
    something_else();
}

fn drop_after_exit(cut: &dyn Fn()) {
    let (span, _other) = (info_span!("reused"), info_span!("other"));
    (0..2).for_each(|_| span.in_scope(work));
    cut();
    (0..3).for_each(|_| span.in_scope(work));
    drop(span);
}

/// A span that is closed without an enter does not matter, also if another thread has looked at it.
fn make_after_unused(cut: &dyn Fn()) {
    something_else();
    let unused = info_span!("unused");
    on_thread("other", || debug!(parent: &unused, "event"));
    drop(unused);
    let span = info_span!("reused");
    (0..2).for_each(|_| span.in_scope(work));
    cut();
    (0..3).for_each(|_| span.in_scope(work));
    something_else();
}

fn with_subscriber(cut: &dyn Fn()) {
    let current = wait(3).instrument(info_span!("with_current")).with_current_subscriber();
    let none = wait(3).instrument(info_span!("with_none")).with_subscriber(NoSubscriber::default());
    let mut both: [Option<Task>; 2] = [Some(Box::pin(current)), Some(Box::pin(none))];
    // A thread without a subscriber polls them.
    let turn = |both: &mut [Option<Task>; 2]| {
        std::thread::scope(|scope| {
            let run = || both.iter_mut().for_each(poll_or_drop);
            std::thread::Builder::new().spawn_scoped(scope, run).unwrap().join().unwrap();
        });
    };
    (0..2).for_each(|_| turn(&mut both));
    cut();
    (0..2).for_each(|_| turn(&mut both));
}

fn follow(cut: &dyn Fn()) {
    let (cause, effect) = (info_span!("cause"), info_span!("effect"));
    effect.follows_from(&cause);
    let (mut cause, mut effect) = (Some(task(cause, 1)), Some(task(effect, 2)));
    (0..2).for_each(|_| poll_or_drop(&mut cause));
    poll_or_drop(&mut effect);
    cut();
    (0..2).for_each(|_| poll_or_drop(&mut effect));
}

fn override_calls(cut: &dyn Fn()) {
    something_else();
    let layers = [(); 2].map(|()| info_span!("layer", kineto.call = "span"));
    let future = task(info_span!("future", kineto.call = "enter"), 3);
    // Another value decides nothing.
    let other = info_span!("other", kineto.call = "both");
    something_else();
    let called = info_span!("called", kineto.call = "enter");
    let mut called = Some(task(called, 3));
    let mut future = Some(future);
    (0..2).for_each(|_| poll_or_drop(&mut called));
    let enter = || layers.iter().chain([&other]).for_each(|span| span.in_scope(work));
    (0..2).for_each(|_| enter());
    (0..2).for_each(|_| poll_or_drop(&mut future));
    cut();
    (0..3).for_each(|_| enter());
    while future.is_some() {
        poll_or_drop(&mut future);
        poll_or_drop(&mut called);
    }
    something_else();
}

fn recurse(cut: &dyn Fn()) {
    fn deeper(span: &Span, levels: usize) {
        if levels > 0 {
            let _entered = span.enter();
            work();
            something_else();
            deeper(span, levels - 1);
        }
    }
    let (span, _other) = (info_span!("recursive"), info_span!("other"));
    (0..2).for_each(|_| deeper(&span, 3));
    cut();
    (0..3).for_each(|_| deeper(&span, 3));
    something_else();
}

/// A span is exited and entered again while the one that was entered later is open.
fn exit_in_another_order(cut: &dyn Fn()) {
    let (first, second) = (info_span!("first"), info_span!("second"));
    let run = || {
        let outer = first.enter();
        let inner = second.enter();
        work();
        drop(outer);
        first.in_scope(work);
        drop(inner);
    };
    (0..2).for_each(|_| run());
    cut();
    (0..3).for_each(|_| run());
    something_else();
}

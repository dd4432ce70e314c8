//! Random programs with an own log: each enter is a slice, omitted, or counted, and calls do not depend on load.
#![allow(clippy::cast_possible_truncation, reason = "a test")]

use super::calls::{all_figures, segments, under_load};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use support::{layer, spawn};
use tracing::span::EnteredSpan;
use tracing::{Instrument, Span, debug, info_span};
use tracing_kineto::{KinetoLayerBuilder, Loss, Overflow, Spill, Trace};
use tracing_subscriber::prelude::*;

const THREADS: usize = 3;
const SEEDS: u64 = 200;
/// The most spans and futures that a thread keeps, and that all threads share.
const OWN_MAX: usize = 12;
const SHARED_MAX: usize = 16;
const OPEN_MAX: usize = 6;
/// Some hundred fill the buffers.
const TEXT: &str = match str::from_utf8(&[b'x'; 4000]) {
    Ok(text) => text,
    Err(_) => "",
};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What threads pass on.
enum Item {
    Span(Span),
    /// A future, and how many spans a poll and the drop enter.
    Future(Task, u64),
}

/// A thread of a random program.
struct Program<'s> {
    random: u64,
    shared: &'s Mutex<Vec<Item>>,
    own: Vec<Item>,
    open: Vec<EnteredSpan>,
    /// The log: how many enters it made.
    enters: u64,
}

/// Returns `Pending` that often.
async fn wait(times: usize) {
    let mut left = times;
    std::future::poll_fn(|_| match left.checked_sub(1) {
        None => Poll::Ready(()),
        Some(fewer) => {
            left = fewer;
            Poll::Pending
        }
    })
    .await;
}

impl<'s> Program<'s> {
    fn new(seed: u64, shared: &'s Mutex<Vec<Item>>) -> Program<'s> {
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Program { random, shared, own: Vec::new(), open: Vec::new(), enters: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound as u64) as usize
    }

    fn new_span(&mut self) -> Span {
        match self.below(6) {
            0 | 1 => info_span!("plain"),
            2 => info_span!("text", TEXT),
            3 => info_span!("numbered", number = self.enters),
            4 => info_span!(parent: None, "root"),
            _ => match self.own_span() {
                Some(parent) => info_span!(parent: parent, "child"),
                None => info_span!("called", kineto.call = "span"),
            },
        }
    }

    /// Returns one of the thread's spans.
    fn own_span(&mut self) -> Option<Span> {
        let at = self.below(self.own.len().max(1));
        self.own.iter().cycle().skip(at).take(self.own.len()).find_map(|item| match item {
            Item::Span(span) => Some(span.clone()),
            Item::Future(..) => None,
        })
    }

    fn take_own(&mut self) -> Option<Item> {
        let at = self.below(self.own.len().max(1));
        (at < self.own.len()).then(|| self.own.swap_remove(at))
    }

    fn discard(&mut self, item: Item) {
        if let Item::Future(_, spans) = &item {
            self.enters += spans;
        }
        drop(item);
    }

    fn keep(&mut self, item: Item) {
        self.own.push(item);
        if self.own.len() > OWN_MAX
            && let Some(item) = self.take_own()
        {
            self.discard(item);
        }
    }

    fn share(&mut self, item: Item) {
        let at = self.below(SHARED_MAX);
        let mut shared = self.shared.lock().unwrap();
        shared.push(item);
        let surplus = (shared.len() > SHARED_MAX).then(|| shared.swap_remove(at));
        drop(shared);
        surplus.into_iter().for_each(|item| self.discard(item));
    }

    fn new_future(&mut self) -> Item {
        let waits = self.below(4);
        let span = match self.below(3) {
            0 => self.own_span(),
            _ => None,
        };
        let span = span.unwrap_or_else(|| self.new_span());
        match self.below(4) {
            0 => Item::Future(Box::pin(wait(waits).instrument(span.clone()).instrument(span)), 2),
            1 => {
                let outer = self.new_span();
                Item::Future(Box::pin(wait(waits).instrument(span).instrument(outer)), 2)
            }
            _ => Item::Future(Box::pin(wait(waits).instrument(span)), 1),
        }
    }

    fn run_item(&mut self, item: Item, depth: usize) {
        match item {
            Item::Span(span) => {
                self.enters += 1;
                let entered = span.entered();
                if depth < 3 {
                    (0..self.below(3)).for_each(|_| self.step(depth + 1));
                }
                match self.below(3) {
                    // The drop exits it.
                    0 => drop(entered),
                    _ => self.keep(Item::Span(entered.exit())),
                }
            }
            Item::Future(mut task, spans) => {
                self.enters += spans;
                let is_done = task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
                match if is_done { 0 } else { self.below(3) } {
                    0 => self.discard(Item::Future(task, spans)),
                    1 => self.share(Item::Future(task, spans)),
                    _ => self.keep(Item::Future(task, spans)),
                }
            }
        }
    }

    fn step(&mut self, depth: usize) {
        match self.below(12) {
            0 | 1 => {
                let span = self.new_span();
                self.keep(Item::Span(span));
            }
            2 => {
                let future = self.new_future();
                self.keep(future);
            }
            3 if self.open.len() < OPEN_MAX => {
                let span = self.own_span().unwrap_or_else(|| info_span!("plain"));
                self.enters += 1;
                self.open.push(span.entered());
            }
            // Mostly the innermost one.
            3 | 4 => match (self.below(4), self.open.len()) {
                (0, 1..) => {
                    let at = self.below(self.open.len());
                    drop(self.open.remove(at));
                }
                _ => drop(self.open.pop()),
            },
            5 => {
                let item = self.take_own();
                item.into_iter().for_each(|item| self.share(item));
            }
            6 => {
                let span = self.own_span();
                span.into_iter().for_each(|span| self.share(Item::Span(span)));
            }
            7 | 8 => {
                let item = self.shared.lock().unwrap().pop();
                item.into_iter().for_each(|item| self.run_item(item, depth));
            }
            9 | 10 => {
                let item = self.take_own();
                item.into_iter().for_each(|item| self.run_item(item, depth));
            }
            _ => debug!("event"),
        }
    }

    /// Ends the program; returns how many enters it made.
    fn finish(mut self) -> u64 {
        while self.open.pop().is_some() {}
        while let Some(item) = self.take_own() {
            self.discard(item);
        }
        self.enters
    }
}

/// Returns the number of enters of the spans that were left.
fn drop_shared(shared: Mutex<Vec<Item>>) -> u64 {
    let mut rest = Program::new(1, &shared);
    let items = std::mem::take(&mut *shared.lock().unwrap());
    items.into_iter().for_each(|item| rest.discard(item));
    rest.finish()
}

/// Runs all threads freely; returns how many enters they made.
fn run_freely(seed: u64, steps: usize) -> u64 {
    let (shared, enters) = (Mutex::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (shared, enters) = (&shared, &enters);
            spawn(scope, "random", move || {
                let mut program = Program::new(seed * 10 + thread, shared);
                (0..steps).for_each(|_| program.step(0));
                enters.fetch_add(program.finish(), Ordering::Relaxed);
            });
        }
    });
    enters.into_inner() + drop_shared(shared)
}

fn record<T>(
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce() -> T,
) -> (Option<Trace>, T) {
    let (layer, guard) = layer(configure);
    let result = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    (guard.finish().ok(), result)
}

/// Returns the enters that began in the time of a trace: slices, omitted ones, and those that are counted as missing.
fn enters_of(trace: &Trace) -> u64 {
    let stats = trace.stats();
    let counted = [Loss::SlicesOverLimit, Loss::NotSpilled].map(|loss| stats.lost(loss));
    // They began in an earlier part.
    let clipped = trace.events().iter().filter(|event| event.arg("clipped").is_some()).count() as u64;
    stats.slices + stats.omitted_enters + counted.iter().sum::<u64>() - clipped
}

#[test]
fn each_enter_is_a_slice_or_counted_when_buffers_overflow() {
    const LIMIT: u64 = 1 << 20;
    let (mut over, mut before, mut omitted) = (0, 0, 0);
    for seed in 0..SEEDS {
        // Some exceed the limit several times.
        let steps = if seed % 40 == 0 { 4000 } else { 150 };
        for overflow in Overflow::ALL.iter().copied() {
            let folder = tempfile::tempdir().unwrap();
            let limited = |builder: KinetoLayerBuilder| {
                let builder = builder.overflow(overflow).buffer_limit_bytes(LIMIT);
                if overflow == Overflow::Spill { builder.spill(Spill::new().folder(folder.path())) } else { builder }
            };
            let (trace, made) = record(limited, || run_freely(seed, steps));
            let trace = trace.unwrap();
            let stats = trace.stats();
            let found = match overflow {
                Overflow::Spill => {
                    let files = segments(folder.path());
                    let parts = files.into_iter().map(|file| Trace::read_segment(file).unwrap().trace);
                    enters_of(&trace) + parts.map(|part| enters_of(&part)).sum::<u64>()
                }
                // A clipped slice is not counted as one from before the window.
                _ => stats.slices + stats.omitted_enters + stats.before_window + stats.lost(Loss::SlicesOverLimit),
            };
            assert_eq!(found, made, "seed {seed}, {overflow:?}, {stats}");
            over += stats.lost(Loss::SlicesOverLimit);
            before += stats.before_window;
            omitted += stats.omitted_enters;
        }
    }
    assert!(over > 0 && before > 0 && omitted > 0, "{over} over the limit, {before} replaced, {omitted} omitted");
}

/// Runs the threads one step at a time, in an order that the seed decides.
fn run_scripted(seed: u64, steps: usize) {
    let shared = Mutex::default();
    let script: Vec<u64> = {
        let mut order = Program::new(seed + 1_000_000, &shared);
        (0..steps).map(|_| order.below(THREADS) as u64).collect()
    };
    let (next, changed) = (Mutex::new(0), Condvar::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (shared, script, next, changed) = (&shared, &script, &next, &changed);
            spawn(scope, "scripted", move || {
                let mut program = Program::new(seed * 10 + thread, shared);
                let mut at = next.lock().unwrap();
                loop {
                    let is_turn = |at: &mut usize| script.get(*at).is_none_or(|turn| *turn == thread);
                    at = changed.wait_while(at, |at| !is_turn(at)).unwrap();
                    if *at >= script.len() {
                        // The threads end one after another, too.
                        at = changed.wait_while(at, |at| *at != script.len() + thread as usize).unwrap();
                        program.finish();
                        *at += 1;
                        changed.notify_all();
                        break;
                    }
                    program.step(0);
                    *at += 1;
                    changed.notify_all();
                }
            });
        }
    });
    drop_shared(shared);
}

#[test]
fn calls_are_equal_under_load_when_wake_ups_are_scripted() {
    let run = |seed, steps| {
        let (trace, ()) = record(|builder| builder, || run_scripted(seed, steps));
        all_figures(&trace.unwrap())
    };
    let (seeds, steps) = (0..40, 300);
    let quiet: Vec<_> = seeds.clone().map(|seed| run(seed, steps)).collect();
    let loaded: Vec<_> = under_load(|| seeds.map(|seed| run(seed, steps)).collect());
    for (seed, (quiet, loaded)) in quiet.iter().zip(&loaded).enumerate() {
        assert_eq!(quiet, loaded, "seed {seed}");
    }
    assert!(quiet.iter().any(|figures| figures.values().any(|[.., tracks]| *tracks > 0)));
}

//! Layers that format a span's fields while they hold the lock of its extensions, and fields whose `Debug` traces.
//!
//! A hang is a failure here, so each scenario runs in a child process with a watchdog. The subscriber is the process's:
//! `tracing` passes over what a `Debug` does under one that is a thread's.
#![expect(clippy::disallowed_methods, reason = "another layer holds the lock of a span's extensions")]

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{File, Slice, child, layer, name_of};
use tracing::field::Empty;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Span, Subscriber, info, info_span};
use tracing_kineto::{Fields, KinetoLayerBuilder, Loss, ObservedSpan, Profiler, SpanObserver};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt;

/// A value whose `Debug` uses spans as a program can.
struct TracingDebug;

/// The span that `TracingDebug` uses, which may be the one that is being formatted.
static SUBJECT: Mutex<Option<Span>> = Mutex::new(None);
/// A [`Formatter`] holds the lock of a span's extensions.
static FORMATTING: AtomicBool = AtomicBool::new(false);

impl fmt::Debug for TracingDebug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = info_span!("inside", n = 1, late = Empty);
        let waiting = info_span!("waiting");
        inside.in_scope(|| info_span!("deeper").in_scope(|| info!("event")));
        inside.record("late", 2);
        waiting.follows_from(&inside);
        let subject = SUBJECT.try_lock().ok().and_then(|subject| subject.clone());
        if let Some(subject) = subject {
            use_span(&subject);
            elsewhere(|| use_span(&subject));
        }
        f.write_str("loud")
    }
}

/// Calls every hook but close on that span.
fn use_span(span: &Span) {
    span.in_scope(|| info_span!("nested").in_scope(|| ()));
    let child = info_span!(parent: span, "child", n = 1);
    child.follows_from(span);
    span.follows_from(&child);
    span.record("late", 3);
    info!(parent: span, "event");
    drop(span.clone());
}

/// Formats a [`TracingDebug`] in each of its hooks, as `fmt` does in some: under the lock of the span's extensions.
struct Formatter;

impl Formatter {
    fn format<S: Subscriber + for<'a> LookupSpan<'a>>(id: Option<&Id>, ctx: &Context<'_, S>) {
        let Some(span) = id.and_then(|id| ctx.span(id)) else { return };
        if FORMATTING.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut extensions = span.extensions_mut();
        let text = format!("{:?}", TracingDebug);
        extensions.replace(text);
        drop(extensions);
        FORMATTING.store(false, Ordering::Relaxed);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Formatter {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        Formatter::format(Some(id), &ctx);
    }
    fn on_record(&self, id: &Id, _: &Record<'_>, ctx: Context<'_, S>) {
        Formatter::format(Some(id), &ctx);
    }
    fn on_follows_from(&self, id: &Id, _: &Id, ctx: Context<'_, S>) {
        Formatter::format(Some(id), &ctx);
    }
    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        Formatter::format(ctx.event_span(event).map(|span| span.id()).as_ref(), &ctx);
    }
    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        Formatter::format(Some(id), &ctx);
    }
    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        Formatter::format(Some(id), &ctx);
    }
    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        Formatter::format(Some(&id), &ctx);
    }
}

/// An observer that ignores every call.
#[derive(Debug)]
struct NoopObserver;

impl SpanObserver for NoopObserver {
    fn name(&self) -> &'static str {
        "listens"
    }
    fn enter(&self, _: &ObservedSpan) {}
    fn exit(&self, _: &ObservedSpan) {}
}

fn on(span: &Span) {
    *SUBJECT.lock().unwrap() = Some(span.clone());
}

/// Calls every hook of the layers, also on spans that another span has evicted.
fn work(start: impl FnOnce()) {
    let old = info_span!("old", l = ?TracingDebug, late = Empty);
    on(&old);
    info_span!("idle", l = ?TracingDebug).in_scope(|| info!(l = ?TracingDebug));
    start();
    let outer = info_span!("outer", l = ?TracingDebug, late = Empty);
    on(&outer);
    let other = info_span!("other", l = ?TracingDebug);
    outer.in_scope(|| info!(l = ?TracingDebug));
    for span in [&old, &outer, &other] {
        on(span);
        span.record("late", tracing::field::debug(TracingDebug));
        span.in_scope(|| {
            info!(l = ?TracingDebug);
            drop(info_span!("within", l = ?TracingDebug).entered());
        });
        elsewhere(|| span.in_scope(|| info_span!("there", l = ?TracingDebug).in_scope(|| ())));
    }
    outer.follows_from(&other);
    *SUBJECT.lock().unwrap() = None;
    drop((old, outer));
    elsewhere(|| drop(other));
}

type Boxed = Box<dyn Layer<Registry> + Send + Sync>;
type Configure = fn(KinetoLayerBuilder) -> KinetoLayerBuilder;

/// Runs `work` on a new thread and joins it.
fn elsewhere(work: impl FnOnce() + Send) {
    let thread = std::thread::Builder::new().name("worker".to_owned());
    std::thread::scope(|scope| thread.spawn_scoped(scope, work).unwrap().join().unwrap());
}

/// Records `work` with another layer in the stack; aborts the process on a hang.
fn record_with_layer(other: Boxed, ours_first: bool, configure: Configure, work: impl Fn(&Profiler)) -> File {
    let bark = || {
        // Without optimisation the scenarios take seconds of processor time, and machines are shared.
        std::thread::sleep(Duration::from_secs(600));
        let _ = io::stderr().write_all(b"the scenario hangs");
        std::process::abort();
    };
    std::thread::Builder::new().name("watchdog".to_owned()).spawn(bark).unwrap();
    let (ours, guard) = layer(configure);
    let mut layers = vec![Box::new(ours) as Boxed, other];
    if !ours_first {
        layers.reverse();
    }
    tracing_subscriber::registry().with(layers).init();
    work(&guard.profiler());
    File::of(guard.finish().unwrap())
}

/// Runs a test of this module in a child process.
fn run(test: impl FnOnce()) {
    child::run(&mut child::command(name_of(test)));
}

fn check_with_fmt(ours_first: bool) {
    let fmt = tracing_subscriber::fmt::layer().with_writer(io::sink).boxed();
    let work = |_: &Profiler| {
        let outer = info_span!("outer", l = ?TracingDebug, late = Empty);
        outer.record("late", tracing::field::debug(TracingDebug));
        outer.in_scope(|| info!(l = ?TracingDebug));
    };
    let file = record_with_layer(fmt, ours_first, |builder| builder, work);
    // Both layers format the span's values, and fmt the event's.
    assert_eq!((file.all("outer").len(), file.all("inside").len()), (1, 5));
}

fn check_with_formatter(ours_first: bool, configure: Configure) {
    let start = |profiler: &Profiler| drop(profiler.start());
    let work = |profiler: &Profiler| work(|| start(profiler));
    let file = record_with_layer(Formatter.boxed(), ours_first, configure, work);
    // A span has one id, however often and on whichever thread it is entered.
    let spans = |name| file.all(name).iter().map(Slice::span).collect::<HashSet<_>>().len();
    assert_eq!(["old", "outer", "other"].map(spans), [1; 3]);
    assert_eq!(file.trace.stats().lost(Loss::Reentered), 0);
}

const STARTED: Configure = |builder| builder;
const IDLE: Configure = |builder| builder.record_from_start(false).fields(Fields::new().while_idle(true));
const OBSERVED: Configure = |builder| builder.observer(NoopObserver);

#[test]
fn fmt_does_not_deadlock_when_a_field_traces() {
    run(child_before_fmt);
    run(child_after_fmt);
}

#[test]
fn hooks_do_not_deadlock_when_extensions_are_locked() {
    run(child_before_formatter);
    run(child_after_formatter);
}

#[test]
fn idle_fields_do_not_deadlock_on_locked_extensions() {
    run(child_idle_before_formatter);
    run(child_idle_after_formatter);
}

#[test]
fn observers_do_not_deadlock_on_locked_extensions() {
    run(child_observed_before_formatter);
    run(child_observed_after_formatter);
}

/// Declares tests for child processes: each name with its body.
macro_rules! children {
    ($($name:ident: $run:expr;)*) => {$(
        #[test]
        #[ignore = "run by another test"]
        fn $name() {
            $run;
        }
    )*};
}

children! {
    child_before_fmt: check_with_fmt(true);
    child_after_fmt: check_with_fmt(false);
    child_before_formatter: check_with_formatter(true, STARTED);
    child_after_formatter: check_with_formatter(false, STARTED);
    child_idle_before_formatter: check_with_formatter(true, IDLE);
    child_idle_after_formatter: check_with_formatter(false, IDLE);
    child_observed_before_formatter: check_with_formatter(true, OBSERVED);
    child_observed_after_formatter: check_with_formatter(false, OBSERVED);
}

//! Span observers: called as spans happen, in addition to the recording or instead of it.

use std::fmt;
use std::sync::{Arc, Mutex};
use support::{File, layer};
use tracing::{error_span, info, info_span, subscriber};
use tracing_kineto::activity::{ArgValue, Args};
use tracing_kineto::integration::{Unavailable, Why};
use tracing_kineto::{Mode, ObservedSpan, SpanObserver, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// Keeps a line for each call.
#[derive(Clone, Debug, Default)]
struct SpanLog {
    lines: Arc<Mutex<Vec<String>>>,
    refuses: bool,
    panics_at: &'static str,
}

impl SpanLog {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    fn push(&self, line: String) {
        // An observer does not observe the spans that it makes.
        info_span!("of the observer").in_scope(|| self.lines.lock().unwrap().push(line));
    }
}

impl SpanObserver for SpanLog {
    fn name(&self) -> &'static str {
        "notes"
    }
    fn start(&self) -> Result<(), Unavailable> {
        if self.refuses { Err(Unavailable::new(Why::Busy, "no paper", "buy some")) } else { Ok(()) }
    }
    fn enter(&self, span: &ObservedSpan) {
        assert!(span.name() != self.panics_at, "on purpose");
        let mut fields = String::new();
        span.visit(&mut |key, value| fields += &format!(" {key}={}", text_of(value)));
        self.push(format!("> {} {}{fields}", span.kind(), span.name()));
    }
    fn exit(&self, span: &ObservedSpan) {
        self.push(format!("< {}", span.name()));
    }
    fn event(&self, event: &ObservedSpan) {
        self.push(format!("! {}", text_of(event.field("message").unwrap())));
    }
}

fn text_of(value: ArgValue<'_>) -> String {
    match value {
        ArgValue::Str(text) => text.to_owned(),
        value => format!("{value:?}"),
    }
}

fn spans() {
    let _step = annotate!("step {}", 3).entered();
    let load = info_span!("load", bytes = 7, late = tracing::field::Empty);
    load.in_scope(|| info!("half way"));
    load.record("late", true);
    load.in_scope(|| ());
}

const EXPECTED: [&str; 7] = [
    "> user_annotation step 3",
    "> cpu_op load bytes=7",
    "! half way",
    "< load",
    "> cpu_op load bytes=7 late=true",
    "< load",
    "< step 3",
];

#[test]
fn observers_are_called_in_addition_to_the_recording() {
    let notes = SpanLog::default();
    let draw_all = tracing_kineto::AsyncSpans::PerPoll;
    let (layer, guard) =
        layer(|builder| builder.observer(notes.clone()).events(tracing_core::Level::INFO).async_spans(draw_all));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        spans();
        let file = File::of(guard.profiler().stop().unwrap());
        assert_eq!(notes.take(), EXPECTED);
        // The observer's own spans are recorded like any other's.
        let slices = file.slices().iter().filter(|slice| slice.name != "of the observer").count();
        assert_eq!((slices, file.json["tracing_kineto"]["observers"]["notes"].as_str()), (3, Some("told")));
        spans();
        assert!(notes.take().is_empty(), "nothing is recorded");
    });
}

// Shows the key MODE.
#[test]
fn empty_trace_has_a_reason_when_the_mode_excludes_kineto() {
    let notes = SpanLog::default();
    let configure = |builder: tracing_kineto::KinetoLayerBuilder| {
        builder.observer(notes.clone()).mode(Mode::PrivateUse1).events(tracing_core::Level::INFO)
    };
    let (layer, guard) = layer(configure);
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..2 {
            spans();
            let trace = guard.profiler().stop().unwrap();
            assert_eq!(notes.take(), EXPECTED);
            assert!(trace.why_empty().unwrap().contains("excludes kineto"), "{:?}", trace.why_empty());
            assert_eq!((trace.stats().slices, trace.stats().bytes), (0, 0));
            guard.profiler().start().unwrap();
        }
    });
}

#[test]
fn disabled_mode_calls_no_observer() {
    let notes = SpanLog::default();
    let (layer, guard) = layer(|builder| builder.observer(notes.clone()).mode(Mode::Disabled));
    subscriber::with_default(tracing_subscriber::registry().with(layer), spans);
    assert!(notes.take().is_empty() && guard.finish().unwrap().stats().slices == 0);
}

#[test]
fn observers_see_stack_order_when_exits_cross() {
    let notes = SpanLog::default();
    let (layer, _guard) = layer(|builder| builder.observer(notes.clone()).mode(Mode::PrivateUse1));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let (outer, inner) = (info_span!("outer").entered(), info_span!("inner").entered());
        drop(outer);
        drop(inner);
    });
    assert_eq!(notes.take(), ["> cpu_op outer", "> cpu_op inner", "< inner", "< outer", "> cpu_op inner", "< inner"]);
}

#[test]
fn span_open_at_a_stop_is_exited_at_the_next_hook() {
    let notes = SpanLog::default();
    let (layer, guard) = layer(|builder| builder.observer(notes.clone()).mode(Mode::PrivateUse1));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let open = info_span!("open").entered();
        guard.profiler().stop().unwrap();
        drop(open);
        assert_eq!(notes.take(), ["> cpu_op open"]);
        guard.profiler().start().unwrap();
        info_span!("next").in_scope(|| ());
    });
    assert_eq!(notes.take(), ["< open", "> cpu_op next", "< next"]);
}

#[test]
fn span_open_at_a_pause_is_exited_at_the_next_hook() {
    for mode in [Mode::PrivateUse1, Mode::Kineto] {
        let notes = SpanLog::default();
        let (layer, guard) = layer(|builder| builder.observer(notes.clone()).mode(mode));
        subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let open = info_span!("open").entered();
            guard.profiler().pause().unwrap();
            drop(open);
            info_span!("in the pause").in_scope(|| ());
            guard.profiler().resume().unwrap();
            info_span!("next").in_scope(|| ());
        });
        assert_eq!(notes.take(), ["> cpu_op open", "< open", "> cpu_op next", "< next"]);
    }
}

/// Panics in the call named by `at`, and keeps the name of each call.
#[derive(Debug)]
struct PanickingObserver {
    at: &'static str,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl PanickingObserver {
    fn call(&self, what: &'static str) {
        self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(what);
        assert!(what != self.at, "on purpose");
    }
}

impl SpanObserver for PanickingObserver {
    fn name(&self) -> &'static str {
        "panics"
    }
    fn start(&self) -> Result<(), Unavailable> {
        self.call("start");
        Ok(())
    }
    fn stop(&self) {
        self.call("stop");
    }
    fn enter(&self, _: &ObservedSpan) {
        self.call("enter");
    }
    fn exit(&self, _: &ObservedSpan) {
        self.call("exit");
    }
}

#[test]
fn observer_is_not_called_again_after_a_panic() {
    for (at, expected) in [
        ("start", &["start"][..]),
        ("enter", &["start", "enter"]),
        ("exit", &["start", "enter", "exit"]),
        ("stop", &["start", "enter", "exit", "stop"]),
    ] {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let sink: tracing_kineto::LogSink = Arc::new(|_| ());
        let (layer, guard) = layer(|builder| {
            builder.observer(PanickingObserver { at, calls: calls.clone() }).record_from_start(false).log_sink(sink)
        });
        subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..2 {
                guard.profiler().start().unwrap();
                info_span!("work").in_scope(|| ());
                let trace = guard.profiler().stop().unwrap();
                assert_eq!(trace.stats().slices, 1, "{at}");
                assert!(trace.stats().observers[0].to_string().contains("panicked"), "{at}");
            }
        });
        assert_eq!(*calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner), expected, "{at}");
    }
}

#[test]
fn failing_observers_do_not_affect_others() {
    let (refuses, panics, well) = (
        SpanLog { refuses: true, ..SpanLog::default() },
        SpanLog { panics_at: "bad", ..SpanLog::default() },
        SpanLog::default(),
    );
    let sink: tracing_kineto::LogSink = Arc::new(|_| ());
    let (layer, guard) = layer(|builder| {
        let builder = builder.observer(refuses.clone()).observer(panics.clone()).observer(well.clone());
        builder.log_sink(sink)
    });
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        error_span!("good").in_scope(|| info_span!("bad").in_scope(|| ()));
    });
    let trace = guard.finish().unwrap();
    assert_eq!(well.take(), ["> cpu_op good", "> cpu_op bad", "< bad", "< good"]);
    assert_eq!(panics.take(), ["> cpu_op good"]);
    assert!(refuses.take().is_empty());
    let reports: Vec<_> = trace.stats().observers.iter().map(ToString::to_string).collect();
    assert_eq!(reports[0], "notes: no paper; buy some");
}

#[test]
fn observers_see_spans_made_before_the_start() {
    struct PanickingDebug;
    impl fmt::Debug for PanickingDebug {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("on purpose")
        }
    }
    let notes = SpanLog::default();
    let (layer, guard) =
        layer(|builder| builder.observer(notes.clone()).mode(Mode::PrivateUse1).record_from_start(false));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let old = info_span!("old", field = ?PanickingDebug);
        guard.profiler().start().unwrap();
        old.in_scope(|| ());
        // A panic in a `Debug` does not reach the program.
        info_span!("new", field = ?PanickingDebug).in_scope(|| ());
    });
    assert_eq!(notes.take(), ["> cpu_op old", "< old", "> cpu_op new field=(Debug panicked)", "< new"]);
}

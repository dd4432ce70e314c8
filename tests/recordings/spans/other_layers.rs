//! The layer in stacks with other layers and filters.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use support::{File, layer, on_thread};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Subscriber, debug_span, error, info, info_span};
use tracing_kineto::{Fields, KinetoGuard, KinetoLayer};
use tracing_subscriber::filter::{EnvFilter, FilterFn, Targets};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Registry, registry, reload};

/// Collects the output of the fmt layer.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let log = self.clone();
        tracing_subscriber::fmt::layer()
            .with_writer(move || log.clone())
            .with_ansi(false)
            .with_span_events(FmtSpan::CLOSE)
            .without_time()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn finish(guard: KinetoGuard) -> File {
    File::of(guard.finish().unwrap())
}

/// Spans and an event of several levels and targets.
fn work() {
    let _app = info_span!(target: "app", "app", n = 1).entered();
    debug_span!(target: "app::detail", "detail").in_scope(|| {
        info_span!(target: "lib", "lib").in_scope(|| info!(target: "app", "said"));
    });
}

const ALL: &str = "main\n  app\n    detail\n      lib\n";

#[test]
fn fmt_and_our_layer_see_everything_in_either_order() {
    for ours_first in [true, false] {
        let (log, (ours, guard)) = (Log::default(), layer(|b| b));
        if ours_first {
            tracing::subscriber::with_default(registry().with(ours).with(log.layer()), work)
        } else {
            tracing::subscriber::with_default(registry().with(log.layer()).with(ours), work)
        }
        assert_eq!(finish(guard).tree(&[]), ALL);
        let text = log.text();
        assert!(text.contains("app{n=1}:detail:lib: app: said"), "{text}");
        assert_eq!(text.matches(": close").count(), 3, "{text}");
    }
}

#[test]
fn global_env_filter_hides_spans_from_all_layers() {
    let (ours, guard) = layer(|b| b);
    let filter = EnvFilter::new("info,lib=off");
    tracing::subscriber::with_default(registry().with(filter).with(ours), work);
    let file = finish(guard);
    assert_eq!((file.tree(&[]).as_str(), file.parents().as_str()), ("main\n  app\n", "app<"));
}

#[test]
fn empty_trace_names_the_global_filter_that_hid_all() {
    let (ours, guard) = layer(|b| b);
    tracing::subscriber::with_default(registry().with(LevelFilter::OFF).with(ours), work);
    assert!(finish(guard).trace.why_empty().unwrap().contains("filter in front of all layers"));
}

#[test]
fn filter_on_another_layer_hides_nothing_from_ours() {
    let (log, (ours, guard)) = (Log::default(), layer(|b| b));
    let subscriber = registry().with(log.layer().with_filter(EnvFilter::new("off,lib=info"))).with(ours);
    tracing::subscriber::with_default(subscriber, work);
    assert_eq!(finish(guard).tree(&[]), ALL);
    let text = log.text();
    assert!(text.contains("lib: close") && !text.contains("detail"), "{text}");
}

#[test]
fn filter_on_our_layer_hides_nothing_from_others() {
    let (log, (ours, guard)) = (Log::default(), layer(|b| b));
    let filter = Targets::new().with_target("app", Level::INFO).with_target("lib", Level::INFO);
    tracing::subscriber::with_default(registry().with(ours.with_filter(filter)).with(log.layer()), || {
        work();
        // Our layer never saw this parent, which is both an argument and the current span.
        let hidden = debug_span!(target: "app::detail", "hidden");
        info_span!(target: "app", parent: &hidden, "child").in_scope(|| ());
        let effect = info_span!(target: "app", "effect");
        effect.follows_from(&hidden);
        on_thread("worker", || hidden.in_scope(|| effect.in_scope(|| error!(target: "app", parent: &hidden, "x"))));
    });
    let file = finish(guard);
    let seen = "main\n  app\n    lib\n  child\nworker\n  effect\n";
    assert_eq!(file.tree(&[]), seen);
    assert_eq!(file.parents(), "app< lib<app child< effect<");
    assert!(file.rows("s").is_empty(), "no arrow to a span that is hidden");
    assert_eq!(log.text().matches(": close").count(), 6, "{}", log.text());
}

#[test]
fn builder_filter_applies_to_this_layer_alone() {
    let (log, (ours, guard)) = (Log::default(), layer(|b| b.filter(Targets::new().with_target("lib", Level::INFO))));
    tracing::subscriber::with_default(registry().with(ours).with(log.layer()), work);
    let file = finish(guard);
    assert_eq!((file.tree(&[]).as_str(), file.parents().as_str()), ("main\n  lib\n", "lib<"));
    assert_eq!(log.text().matches(": close").count(), 3);
}

#[test]
fn dynamic_filter_may_change_while_spans_are_open() {
    let (ours, guard) = layer(|b| b);
    let (filter, handle) = reload::Layer::new(LevelFilter::INFO);
    tracing::subscriber::with_default(registry().with(ours.with_filter(filter)), || {
        let open = info_span!("open").entered();
        let made = info_span!("made");
        handle.reload(LevelFilter::OFF).unwrap();
        info_span!("hidden").in_scope(|| ());
        made.in_scope(|| ());
        drop(open);
        handle.reload(LevelFilter::INFO).unwrap();
        made.in_scope(|| info_span!("seen").in_scope(|| ()));
    });
    let file = finish(guard);
    assert_eq!(file.tree(&["finished"]), "main\n  open\n    made\n  made\n    seen\n");
    assert!(file.parents().ends_with("made<open seen<made"), "{}", file.parents());
}

#[test]
fn global_filter_may_be_reloaded_while_spans_are_open() {
    let (ours, guard) = layer(|b| b);
    let (filter, handle) = reload::Layer::new(EnvFilter::new("info"));
    tracing::subscriber::with_default(registry().with(filter).with(ours), || {
        let open = info_span!("open").entered();
        handle.reload(EnvFilter::new("off")).unwrap();
        info_span!("hidden").in_scope(|| ());
        drop(open);
        handle.reload(EnvFilter::new("info")).unwrap();
        info_span!("seen").in_scope(|| ());
    });
    assert_eq!(finish(guard).tree(&["finished"]), "main\n  open\n  seen\n");
}

#[test]
fn our_layer_itself_may_be_reloaded() {
    let ((first, first_guard), (second, second_guard)) = (layer(|b| b), layer(|b| b));
    let (slot, handle) = reload::Layer::new(Some(first));
    tracing::subscriber::with_default(registry().with(slot), || {
        let open = info_span!("open").entered();
        info_span!("one").in_scope(|| ());
        handle.reload(Some(second)).unwrap();
        info_span!("two").in_scope(|| ());
        drop(open);
        handle.reload(None).unwrap();
        info_span!("unrecorded").in_scope(|| ());
    });
    assert_eq!(finish(first_guard).tree(&["finished"]), "main\n  open finished=false\n    one\n");
    assert_eq!(finish(second_guard).tree(&["clipped"]), "main\n  open clipped=true\n    two\n");
}

#[test]
fn absent_layer_changes_nothing_for_others() {
    let seen = |ours: Option<KinetoLayer>| {
        let log = Log::default();
        tracing::subscriber::with_default(registry().with(log.layer()).with(ours), || {
            work();
            assert!(tracing::enabled!(Level::TRACE));
            assert_eq!(LevelFilter::current(), LevelFilter::TRACE);
        });
        log.text().replace(|c: char| c.is_ascii_digit() || "µm.".contains(c), "")
    };
    let (ours, _guard) = layer(|b| b);
    let strip =
        |text: String| text.lines().map(|line| line.split(" close").next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(strip(seen(None)), strip(seen(Some(ours))));
    assert_eq!(strip(seen(None)).len(), 4);
}

// Shows the key RECORD_FROM_START.
#[test]
fn idle_layer_hides_nothing_from_others() {
    let (log, (ours, _guard)) = (Log::default(), layer(|b| b.record_from_start(false)));
    tracing::subscriber::with_default(registry().with(ours).with(log.layer()), work);
    assert_eq!(log.text().lines().count(), 4, "{}", log.text());
}

#[test]
fn two_of_our_layers_have_a_trace_each() {
    let ((all, all_guard), (lib, lib_guard)) = (
        layer(|b| b),
        layer(|b| b.filter(Targets::new().with_target("lib", Level::INFO)).fields(Fields::new().limit_bytes(2))),
    );
    let second = lib_guard.profiler();
    tracing::subscriber::with_default(registry().with(all).with(lib), || {
        work();
        on_thread("worker", || info_span!(target: "lib", "long", text = "abc").in_scope(|| ()));
        let first = File::of(second.stop().unwrap());
        assert_eq!(first.tree(&["text"]), "main\n  lib\nworker\n  long text=\"ab...\"\n");
        second.start().unwrap();
        info_span!(target: "lib", "later").in_scope(|| ());
    });
    assert_eq!(finish(lib_guard).tree(&[]), "main\n  later\n");
    let all = finish(all_guard);
    assert_eq!(all.tree(&["text"]), format!("{ALL}  later\nworker\n  long text=\"abc\"\n"));
    assert_eq!(all.parents(), "app< detail<app lib<detail long< later<");
}

#[test]
fn layers_beyond_the_slots_have_a_trace_each() {
    let layers: Vec<_> = (0..10).map(|_| layer(|b| b)).collect();
    let (layers, guards): (Vec<_>, Vec<_>) = layers.into_iter().unzip();
    tracing::subscriber::with_default(registry().with(layers), || {
        let moved = info_span!("moved", n = 1);
        moved.in_scope(|| on_thread("worker", || moved.in_scope(|| info_span!("inside").in_scope(|| ()))));
        moved.in_scope(|| info_span!("again").in_scope(|| ()));
    });
    for guard in guards {
        let file = finish(guard);
        assert_eq!(file.tree(&["n"]), "main\n  moved n=1\n  moved n=1\n    again\nworker\n  moved n=1\n    inside\n");
        let spans: std::collections::HashSet<_> = file.all("moved").iter().map(|slice| slice.span()).collect();
        assert_eq!(spans.len(), 1);
    }
}

#[test]
fn same_layer_value_fits_any_stack() {
    type Boxed<S> = Box<dyn Layer<S> + Send + Sync>;
    let (ours, guard) = layer(|b| b);
    let boxed: Boxed<Registry> = Box::new(ours);
    tracing::subscriber::with_default(registry().with(boxed), work);
    assert_eq!(finish(guard).tree(&[]), ALL);

    let ((ours, guard), log) = (layer(|b| b), Log::default());
    let over = FilterFn::new(|metadata| metadata.target() != "lib");
    let list: Vec<Boxed<Registry>> = vec![Box::new(log.layer()), Box::new(ours.with_filter(over))];
    tracing::subscriber::with_default(registry().with(list), work);
    assert_eq!(finish(guard).tree(&[]), "main\n  app\n    detail\n");

    let ((ours, guard), log) = (layer(|b| b), Log::default());
    let subscriber = registry().with(log.layer().and_then(ours)).with(LevelFilter::INFO);
    tracing::subscriber::with_default(subscriber, work);
    assert_eq!(finish(guard).tree(&[]), "main\n  app\n    lib\n");

    let (ours, guard) = layer(|b| b);
    let subscriber = tracing_subscriber::fmt().with_writer(io::sink).finish().with(ours);
    tracing::subscriber::with_default(subscriber, work);
    assert_eq!(finish(guard).tree(&[]), "main\n  app\n    lib\n", "fmt's own level is INFO");
}

#[test]
fn one_layer_may_serve_two_subscribers_in_turn() {
    // In turn: a layer is moved into its subscriber, so only sharing like `Arc`'s could use it twice at once.
    let (ours, guard) = layer(|b| b);
    let dispatch = tracing::Dispatch::new(registry().with(ours));
    for _ in 0..2 {
        tracing::dispatcher::with_default(&dispatch, work);
        tracing::subscriber::with_default(registry(), work);
    }
    assert_eq!(finish(guard).all("app").len(), 2);
}

// Mistakes of tracing-chrome.

#[test]
fn successive_layers_do_not_share_traces() {
    for name in ["first", "second", "third"] {
        let (ours, guard) = layer(|b| b);
        tracing::subscriber::with_default(registry().with(ours), || {
            let span = if name == "first" { info_span!("first") } else { info_span!("other") };
            span.in_scope(|| ());
        });
        assert_eq!(finish(guard).slices().len(), 1, "{name}");
    }
}

#[test]
fn process_and_thread_ids_are_the_kernels() {
    let (ours, guard) = layer(|b| b);
    let mut there = 0;
    let kernel_tid = || {
        let path = std::fs::read_link("/proc/thread-self").unwrap();
        path.file_name().unwrap().to_str().unwrap().parse::<u64>().unwrap()
    };
    tracing::subscriber::with_default(registry().with(ours), || {
        info_span!("here").in_scope(|| ());
        there = on_thread("worker", || {
            info_span!("there").in_scope(|| ());
            kernel_tid()
        });
    });
    let file = finish(guard);
    assert_eq!((file.slice("here").tid, file.slice("there").tid), (kernel_tid(), there));
    assert!(file.rows("X").iter().all(|row| row["pid"].as_u64() == Some(std::process::id().into())));
}

#[test]
fn events_have_no_keys_unknown_to_viewers() {
    let (ours, guard) = layer(|b| b.with_location(true).events(LevelFilter::TRACE));
    tracing::subscriber::with_default(registry().with(ours), work);
    let known = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "s", "id", "id2", "bp"];
    for event in finish(guard).events() {
        let keys = event.as_object().unwrap().keys();
        assert!(keys.into_iter().all(|key| known.contains(&key.as_str())), "{event}");
        assert!(event.get("args").is_none_or(serde_json::Value::is_object), "{event}");
    }
}

#[test]
fn filtered_span_stays_hidden_when_other_threads_enter_it() {
    let (ours, guard) = layer(|b| b.filter(Targets::new().with_target("app", Level::INFO)));
    tracing::subscriber::with_default(registry().with(ours), || {
        let hidden = info_span!(target: "lib", "hidden");
        on_thread("worker", || {
            (0..5).for_each(|_| hidden.in_scope(|| info_span!(target: "app", "seen").in_scope(|| ())));
        });
    });
    assert_eq!(finish(guard).parents(), "seen< seen< seen< seen< seen<");
}

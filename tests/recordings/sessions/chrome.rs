//! The API of tracing-chrome.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::on_thread;
use tracing::{info, info_span, warn};
use tracing_kineto::ArgValue;
use tracing_kineto::analysis::{Event, Events};
use tracing_kineto::chrome::{ChromeLayerBuilder, EventOrSpan, FlushGuard, TraceStyle};
use tracing_subscriber::Registry;
use tracing_subscriber::fmt::FormattedFields;
use tracing_subscriber::fmt::format::DefaultFields;
use tracing_subscriber::prelude::*;

type Builder = ChromeLayerBuilder<Registry>;

/// What a writer has received.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn events(&self) -> Events {
        Events::from_reader(self.0.lock().unwrap().as_slice()).unwrap()
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records `work` with the builder's layer, and returns the guard.
fn with_layer(builder: Builder, work: impl FnOnce(&FlushGuard)) -> FlushGuard {
    let (layer, guard) = builder.build();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard));
    guard
}

fn record(builder: Builder, work: impl FnOnce()) -> Events {
    let written = Written::default();
    drop(with_layer(builder.writer(written.clone()), |_| work()));
    written.events()
}

fn names(events: &Events) -> Vec<&str> {
    events.iter().filter(Event::is_slice).map(|event| event.name()).collect()
}

fn instants(events: &Events) -> Vec<&str> {
    events.iter().filter(|event| event.category() == "cpu_instant_event").map(|event| event.name()).collect()
}

/// Returns an argument of the only event with that name.
fn arg(events: &Events, name: &str, key: &str) -> Option<String> {
    let found: Vec<_> = events.iter().filter(|event| event.name() == name).collect();
    assert_eq!(found.len(), 1, "{name}");
    found[0].arg(key).map(|value| match value {
        ArgValue::Str(text) => text.to_owned(),
        value => format!("{value:?}"),
    })
}

fn read(path: &Path) -> Events {
    Events::read(path).unwrap()
}

#[test]
fn defaults_are_those_of_tracing_chrome() {
    let events = record(Builder::new(), || {
        let span = info_span!("span", n = 7).entered();
        warn!(n = 8, "not shown");
        drop(span);
    });
    assert_eq!(names(&events), ["span"]);
    assert_eq!(arg(&events, "span", "n"), None, "no arguments");
    assert!(arg(&events, "span", "location").is_some(), "locations");
    assert_eq!(arg(&events, "span", "target").as_deref(), Some("recordings::sessions::chrome"));
    let [instant] = instants(&events)[..] else { panic!("events of all levels") };
    assert!(instant.starts_with("event tests/recordings/sessions/chrome.rs:"), "{instant}");
}

#[test]
fn arguments_and_locations_follow_the_settings() {
    let events = record(Builder::new().include_args(true).include_locations(false), || {
        let span = info_span!("span", n = 7, later = tracing::field::Empty).entered();
        span.record("later", "text");
        info!(n = 8, "message");
    });
    assert_eq!(arg(&events, "span", "n").as_deref(), Some("7"));
    assert_eq!(arg(&events, "span", "later").as_deref(), Some("text"));
    assert_eq!(arg(&events, "span", "location"), None);
    assert_eq!((instants(&events), arg(&events, "message", "n").as_deref()), (vec!["message"], Some("8")));
}

#[test]
fn functions_name_and_classify_spans_and_events() {
    let builder = Builder::new()
        .name_fn(Box::new(|what| match what {
            EventOrSpan::Event(event) => format!("event of {}", event.metadata().level()),
            EventOrSpan::Span(span) => format!("span {}", span.name()),
        }))
        .category_fn(Box::new(|what| match what {
            EventOrSpan::Event(_) => "events".into(),
            EventOrSpan::Span(_) => "spans".into(),
        }));
    let events = record(builder, || {
        let outer = info_span!("outer", n = 1).entered();
        info!("message");
        info_span!("inner").in_scope(|| ());
        drop(outer);
        on_thread("elsewhere", || info_span!("elsewhere").in_scope(|| ()));
    });
    let mut found = names(&events);
    found.sort_unstable();
    assert_eq!(found, ["span elsewhere", "span inner", "span outer"]);
    assert_eq!(instants(&events), ["event of INFO"]);
    assert_eq!(arg(&events, "span inner", "category").as_deref(), Some("spans"));
    assert_eq!(arg(&events, "event of INFO", "category").as_deref(), Some("events"));
}

/// What bevy does: the text is that of the fmt layer, which is added to the registry after this one and stores it later.
#[test]
#[expect(clippy::disallowed_methods, reason = "as bevy's function does; no layer here holds the lock")]
fn name_function_reads_what_other_layers_store() {
    let (written, log) = (Written::default(), Written::default());
    let builder = Builder::new().writer(written.clone()).name_fn(Box::new(|what| match what {
        EventOrSpan::Event(event) => event.metadata().name().into(),
        EventOrSpan::Span(span) => match span.extensions().get::<FormattedFields<DefaultFields>>() {
            Some(fields) => format!("{}: {}", span.metadata().name(), fields.fields.as_str()),
            None => span.metadata().name().into(),
        },
    }));
    let (layer, guard) = builder.build();
    let fmt = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || log.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer).with(fmt), || {
        info_span!("system", name = "physics").in_scope(|| ());
        info_span!("plain").in_scope(|| ());
        let again = info_span!("again", n = tracing::field::Empty);
        again.in_scope(|| ());
        again.record("n", 1);
        again.in_scope(|| ());
    });
    drop(guard);
    let events = written.events();
    assert_eq!(names(&events), ["system: name=\"physics\"", "plain: ", "again: n=1", "again: n=1"]);
}

#[test]
fn names_survive_a_new_trace() {
    let (first, second) = (Written::default(), Written::default());
    let builder = Builder::new().writer(first.clone()).name_fn(Box::new(|what| match what {
        EventOrSpan::Event(_) => "event".into(),
        EventOrSpan::Span(_) => "named".into(),
    }));
    drop(with_layer(builder, |guard| {
        let span = info_span!("span");
        (0..3).for_each(|_| span.in_scope(|| ()));
        guard.start_new(Some(Box::new(second.clone())));
        assert_eq!(names(&first.events()), ["named"; 3], "it is written before `start_new` returns");
        span.in_scope(|| ());
        assert!(second.is_empty());
    }));
    assert_eq!(names(&second.events()), ["named"]);
}

#[test]
fn async_style_adds_tracks() {
    for (style, slices, tracks) in [(TraceStyle::Threaded, 3..=3, 0), (TraceStyle::Async, 2..=3, 1)] {
        let written = Written::default();
        drop(with_layer(Builder::new().trace_style(style).writer(written.clone()), |_| {
            // The last enter is not drawn if it is short, as that which drops a future.
            let span = info_span!("future");
            (0..3).for_each(|_| span.in_scope(|| ()));
        }));
        let events = written.events();
        let names = names(&events);
        assert!(slices.contains(&names.len()) && names.iter().all(|name| *name == "future"), "{style:?}: {names:?}");
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches(r#""ph":"b""#).count(), tracks, "{style:?}: {text}");
    }
}

#[test]
fn files_are_flushed_and_replaced_by_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.json");
    let written = Written::default();
    drop(with_layer(Builder::new().file(&path), |guard| {
        info_span!("first").in_scope(|| ());
        guard.flush();
        assert_eq!(names(&read(&path)), ["first"]);
        info_span!("second").in_scope(|| ());
        guard.start_new(Some(Box::new(written.clone())));
        assert_eq!(names(&read(&path)), ["first", "second"]);
        info_span!("third").in_scope(|| ());
        guard.flush();
        assert!(written.is_empty(), "a writer receives its trace once");
    }));
    assert_eq!((names(&read(&path)), names(&written.events())), (vec!["first", "second"], vec!["third"]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn span_open_across_two_traces_is_in_both() {
    let (first, second) = (Written::default(), Written::default());
    let builder = Builder::new().include_args(true).writer(first.clone()).name_fn(Box::new(|_| "named".into()));
    drop(with_layer(builder.category_fn(Box::new(|_| "category".into())), |guard| {
        let open = info_span!("open", number = 7, late = tracing::field::Empty).entered();
        open.record("late", "value");
        guard.start_new(Some(Box::new(second.clone())));
        drop(open);
    }));
    for events in [first.events(), second.events()] {
        assert_eq!(names(&events), ["named"]);
        assert_eq!(arg(&events, "named", "number").as_deref(), Some("7"));
        assert_eq!(arg(&events, "named", "late").as_deref(), Some("value"));
        assert_eq!(arg(&events, "named", "category").as_deref(), Some("category"));
    }
}

#[test]
fn writer_of_an_empty_trace_is_dropped_unused() {
    let (folder, unused) = (tempfile::tempdir().unwrap(), Written::default());
    let path = folder.path().join("app.json");
    drop(with_layer(Builder::new().file(&path), |guard| {
        info_span!("first").in_scope(|| ());
        guard.start_new(Some(Box::new(unused.clone())));
        let last = Written::default();
        guard.start_new(Some(Box::new(last.clone())));
        assert_eq!(Arc::strong_count(&unused.0), 1, "nothing was recorded for it");
        info_span!("last").in_scope(|| ());
        guard.start_new(Some(Box::new(unused.clone())));
        assert_eq!(names(&last.events()), ["last"]);
    }));
    assert_eq!((names(&read(&path)), Arc::strong_count(&unused.0)), (vec!["first"], 1));
    assert!(unused.is_empty());
}

#[test]
fn file_may_have_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.out");
    drop(with_layer(Builder::new().file(&path), |_| drop(tracing::info_span!("work").entered())));
    assert!(fs::read_to_string(path).unwrap().contains("\"work\""));
}

#[test]
fn file_that_cannot_be_created_is_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("app.json");
    let panic = std::panic::catch_unwind(|| drop(Builder::new().file(&path).build())).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("missing"), "{message}");
}

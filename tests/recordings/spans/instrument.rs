//! `#[instrument]`, and errors that spans and events report.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use support::{fields, record, record_with};
use tracing::{Span, error, info, info_span, instrument};
use tracing_kineto::AsyncSpans;

#[test]
fn error_event_marks_its_slice() {
    let file = record(|| {
        info_span!("quiet").in_scope(|| info!("fine"));
        info_span!("message").in_scope(|| error!("it broke: {}", 5));
        info_span!("field").in_scope(|| error!(code = 3, error = %"disk full", "it broke"));
        info_span!("own", error = "said by the span").in_scope(|| error!("said by the event"));
        info_span!("outer").in_scope(|| info_span!("inner").in_scope(|| error!("inner only")));
        let (parent, other) = (info_span!("parent"), info_span!("other"));
        parent.in_scope(|| other.in_scope(|| error!(parent: &parent, "the parent's")));
        error!("in no span");
    });
    for (name, expected) in [
        ("quiet", None),
        ("message", Some("it broke: 5")),
        ("field", Some("disk full")),
        ("own", Some("said by the span")),
        ("outer", None),
        ("inner", Some("inner only")),
        ("parent", Some("the parent's")),
        ("other", None),
    ] {
        assert_eq!(file.slice(name).args.get("error").and_then(|text| text.as_str()), expected, "{name}");
    }
    assert!(file.rows("i").is_empty(), "events are not enabled");
}

#[test]
fn error_marks_one_slice_of_its_span() {
    let file = record(|| {
        let span = info_span!("s");
        span.in_scope(|| ());
        span.in_scope(|| error!("second"));
        span.in_scope(|| info_span!("inside").in_scope(|| ()));
    });
    let marked: Vec<_> = file.all("s").iter().map(|slice| slice.args.get("error").is_some()).collect();
    assert_eq!(marked, [false, true, false]);
}

#[test]
fn events_of_the_log_bridge_are_recorded() {
    let file = record_with(
        |builder| builder.events(tracing::Level::INFO),
        || {
            // The event that tracing-log makes from a record.
            info_span!("s").in_scope(|| {
                info!(target: "log", { log.target = "hyper", log.module_path = "hyper::client", log.line = 3 }, "connected")
            });
            info_span!("failing").in_scope(|| error!(target: "log", { log.target = "hyper" }, "refused"));
        },
    );
    let row = file.rows("i")[0];
    assert_eq!((row["name"].as_str(), row["args"]["log.target"].as_str()), (Some("connected"), Some("hyper")));
    assert_eq!(file.slice("failing").args["error"], "refused");
}

#[instrument]
fn plain(a: i64, text: &str) -> i64 {
    a + i64::try_from(text.len()).unwrap()
}

#[instrument(skip_all, fields(size = list.len(), late))]
fn skips(list: &[u8]) {
    Span::current().record("late", list[0]);
}

#[instrument(err, ret, level = "debug", name = "renamed")]
fn fails(fail: bool) -> Result<u32, std::num::ParseIntError> {
    if fail { "x".parse() } else { "12".parse() }
}

#[instrument(ret, skip(unused))]
fn returns(unused: &str) -> &'static str {
    assert!(unused.is_empty());
    "value"
}

#[instrument(err, fields(n = 1))]
async fn fails_later(times: u32) -> Result<(), fmt::Error> {
    let mut left = times;
    std::future::poll_fn(|_| match left {
        0 => Poll::Ready(()),
        _ => {
            left -= 1;
            Poll::Pending
        }
    })
    .await;
    inner_step().await;
    Err(fmt::Error)
}

#[instrument]
async fn inner_step() {}

struct Quiet;
impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

/// Polls until the future is done.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Quiet));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
    }
}

#[test]
fn instrument_options_are_respected() {
    let file = record_with(
        |builder| builder.events(tracing::Level::INFO),
        || {
            assert_eq!(plain(2, "abc"), 5);
            skips(&[7, 8]);
            assert!(fails(true).is_err() && fails(false).is_ok());
            returns("");
        },
    );
    assert_eq!(file.tree(&[]), "main\n  plain\n  skips\n  renamed\n  renamed\n  returns\n");
    assert_eq!(file.fields("plain"), r#"{"a":2,"text":"abc"}"#);
    let skips = file.slice("skips").args;
    assert_eq!((skips["size"].as_u64(), skips["late"].as_u64(), skips.get("list")), (Some(2), Some(7), None));
    let [failed, fine] = &file.all("renamed")[..] else { panic!("two slices") };
    assert_eq!(
        (failed.args["error"].as_str(), failed.args["fail"].as_bool()),
        (Some("invalid digit found in string"), Some(true))
    );
    assert!(fine.args.get("error").is_none());
    assert_eq!(file.fields("returns"), "{}");
    let returned: Vec<_> =
        file.rows("i").iter().filter_map(|row| row["args"]["return"].as_str().map(str::to_owned)).collect();
    assert!(returned.contains(&"\"value\"".to_owned()), "{returned:?}");
}

#[test]
fn instrumented_future_has_a_slice_for_each_poll() {
    let work = || assert!(block_on(fails_later(2)).is_err());
    let file = record_with(|builder| builder.async_spans(AsyncSpans::PerPoll), work);
    // tracing enters an instrumented future once more, to drop it.
    let poll = "  fails_later n=1\n";
    let (inner, dropped) = ("    inner_step\n".repeat(2), poll);
    assert_eq!(file.tree(&["n"]), format!("main\n{poll}{poll}{poll}{inner}{dropped}"));
    let polls = file.all("fails_later");
    assert!(polls.iter().all(|slice| slice.span() == polls[0].span()));
    let errors: Vec<_> = polls.iter().filter_map(|slice| slice.args.get("error")).collect();
    assert_eq!(errors, ["an error occurred when formatting an argument"]);
    assert_eq!(file.all("inner_step")[0].parent(), polls[0].span());
    assert_eq!(fields(&polls[2].args), r#"{"times":2,"n":1,"error":"an error occurred when formatting an argument"}"#);
}

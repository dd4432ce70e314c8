//! Field values come out as they went in: typed, late ones too, bounded, under Kineto's names where it has one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use common::{fields, record, record_with};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tracing::field::Empty;
use tracing::{Span, error, info, info_span, instrument};
use tracing_kineto::{ActivityType, Loss, annotate};

/// Records one span and compares the args that come from its fields.
#[track_caller]
fn check(span: impl FnOnce() -> Span, expected: &str) {
    let file = record(|| span().in_scope(|| ()));
    assert_eq!(file.fields("s"), expected);
}

#[test]
fn values_keep_their_types() {
    check(|| info_span!("s", n = -5, big = i64::MIN), r#"{"n":-5,"big":-9223372036854775808}"#);
    check(|| info_span!("s", small = 7u8, max = i64::MAX as u64), r#"{"small":7,"max":9223372036854775807}"#);
    check(|| info_span!("s", above = u64::MAX), r#"{"above":"18446744073709551615"}"#);
    check(|| info_span!("s", a = 7i128, b = i128::MIN), r#"{"a":7,"b":"-170141183460469231731687303715884105728"}"#);
    check(|| info_span!("s", a = 7u128, b = u128::MAX), r#"{"a":7,"b":"340282366920938463463374607431768211455"}"#);
    check(|| info_span!("s", yes = true, no = false), r#"{"yes":true,"no":false}"#);
    check(|| info_span!("s", text = "a", shown = %"b", debug = ?"c"), r#"{"text":"a","shown":"b","debug":"\"c\""}"#);
    check(|| info_span!("s", list = ?[1, 2], none = ?None::<u8>), r#"{"list":"[1, 2]","none":"None"}"#);
    check(
        || info_span!("s", some = Some(3), none = None::<u32>, owned = String::from("x")),
        r#"{"some":3,"owned":"x"}"#,
    );
}

#[test]
fn floats_are_numbers_or_say_what_they_are() {
    check(|| info_span!("s", half = 0.5, negative = -2.25), r#"{"half":0.5,"negative":-2.25}"#);
    check(
        || info_span!("s", nan = f64::NAN, inf = f64::INFINITY, minus = f64::NEG_INFINITY),
        r#"{"nan":"nan","inf":"inf","minus":"-inf"}"#,
    );
    let file = record(|| info_span!("s", tenth = 0.1, huge = f64::MAX, tiny = f64::MIN_POSITIVE).in_scope(|| ()));
    let args = file.slice("s").args;
    let number = |key: &str| args[key].to_string().parse::<f64>().unwrap();
    assert_eq!((number("tenth"), number("huge"), number("tiny")), (0.1, f64::MAX, f64::MIN_POSITIVE));
}

#[test]
fn errors_are_shown_as_their_text() {
    let error = std::io::Error::other("no \"room\"");
    let error: &(dyn std::error::Error + 'static) = &error;
    check(|| info_span!("s", error), r#"{"error":"no \"room\""}"#);
}

#[test]
fn values_recorded_later_are_shown_and_the_last_one_counts() {
    check(
        || {
            let span = info_span!("s", early = 1, late = Empty, never = Empty);
            span.record("late", "first");
            span.record("late", "second");
            span.record("undeclared", 5);
            span
        },
        r#"{"late":"second","early":1}"#,
    );
    let file = record(|| {
        let span = info_span!("s", n = 1);
        let entered = span.enter();
        span.record("n", 2);
        drop(entered);
        span.record("n", 3.5);
    });
    assert_eq!(file.fields("s"), r#"{"n":3.5}"#, "also after the exit");
}

#[test]
fn values_recorded_later_from_another_thread_or_on_a_moved_span_are_shown() {
    let file = record(|| {
        let span = info_span!("s", n = Empty, m = Empty);
        common::on_thread("worker", || {
            span.record("n", 1);
            span.in_scope(|| ());
        });
        span.record("m", 2);
    });
    let args = file.slice("s").args;
    assert_eq!((args["n"].as_u64(), args["m"].as_u64()), (Some(1), Some(2)));
}

#[test]
fn values_recorded_on_a_span_with_two_slices_stand_on_both() {
    let file = record(|| {
        let span = info_span!("s", n = Empty);
        span.in_scope(|| ());
        span.record("n", 1);
        span.in_scope(|| ());
    });
    assert_eq!(file.all("s").iter().map(|slice| slice.fields()).collect::<Vec<_>>(), [r#"{"n":1}"#, r#"{"n":1}"#]);
}

#[test]
fn weird_names_come_through() {
    check(|| info_span!("s", r#type = "t", name = "n", otel.name = "o"), r#"{"type":"t","name":"n","otel.name":"o"}"#);
    check(|| info_span!("s", "weird key \"q\"\n" = 1), r#"{"weird key \"q\"\n":1}"#);
    check(|| info_span!("s", "ключ 🔑" = "値"), r#"{"ключ 🔑":"値"}"#);
    check(|| info_span!("s", ts = 1, dur = 2, ph = "B", args = "x"), r#"{"ts":1,"dur":2,"ph":"B","args":"x"}"#);
}

#[test]
fn a_field_cannot_take_the_place_of_what_the_slice_says_itself() {
    let file = record(|| {
        info_span!("s", "External id" = 1, "span id" = 2, "parent id" = 3, finished = 4, clipped = 5, target = 6)
            .in_scope(|| ());
    });
    let args = file.slice("s").args;
    assert_ne!((args["External id"].as_u64(), args["span id"].as_u64()), (Some(1), Some(2)));
    assert_eq!(args["target"], "fields");
    assert!(args.get("parent id").is_none() && args.get("finished").is_none() && args.get("clipped").is_none());
    for (key, value) in ["External id", "span id", "parent id", "finished", "clipped", "target"].iter().zip(1..) {
        assert_eq!(args[format!("{key} (field)")].as_u64(), Some(value), "{key}");
    }
}

#[test]
fn a_key_comes_once_whatever_the_fields_are_called() {
    let file = record(|| info_span!("s", dims = "[[1]]", "Input Dims" = "[[2]]", x = 1, x = 2).in_scope(|| ()));
    let mut text = Vec::new();
    file.trace.write_chrome(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let row = text.lines().find(|line| line.contains(r#""name":"s""#)).unwrap();
    for key in [r#""Input Dims":"#, r#""x":"#] {
        assert_eq!(row.matches(key).count(), 1, "{key} in {row}");
    }
    check(|| info_span!("s", "Input Dims" = "[[2]]", dims = "[[1]]"), r#"{"Input Dims":[[2]],"dims":"[[1]]"}"#);
    check(|| info_span!("s", dims = 1, "Input Dims" = 2), r#"{"dims":1,"Input Dims (2)":2}"#);
}

#[test]
fn hostile_texts_come_through() {
    for text in
        ["\0\u{1}\u{7f}\t\n\r", "</script>", "\u{2028}\u{2029}", "🦀漢字", "\\\"\\", "", "\u{fffd}", &"é".repeat(2048)]
    {
        let file = record(|| info_span!("s", text, kept = %text).in_scope(|| ()));
        let args = file.slice("s").args;
        assert_eq!((args["text"].as_str(), args["kept"].as_str()), (Some(text), Some(text)));
        assert_eq!(file.lost(Loss::FieldsCut), 0);
    }
}

#[test]
fn long_texts_are_cut_at_the_limit_and_counted() {
    let long = "é".repeat(50_000);
    let file =
        record(|| info_span!("s", text = long.as_str(), shown = %long, debug = ?long, short = "x").in_scope(|| ()));
    let args = file.slice("s").args;
    let length = |key: &str| args[key].as_str().unwrap().len();
    assert_eq!((length("text"), length("shown"), length("debug")), (4096, 4096, 4095), "whole characters");
    assert_eq!((args["short"].as_str(), file.lost(Loss::FieldsCut)), (Some("x"), 3));
}

#[test]
fn a_value_of_gigabytes_costs_no_more_than_its_limit() {
    /// Endless, until nobody listens.
    struct Endless;
    impl fmt::Debug for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                f.write_str("0123456789")?;
            }
        }
    }
    let file = record(|| info_span!("s", endless = ?Endless).in_scope(|| ()));
    assert_eq!(file.slice("s").args["endless"].as_str().unwrap().len(), 4096);
    assert_eq!(file.lost(Loss::FieldsCut), 1);
}

#[test]
fn a_limit_raised_beyond_a_chunk_keeps_texts_whole() {
    for size in [100, 60 * 1024, 65_535, 65_536, 200_000, 1_000_000] {
        let long: String = "0123456789".chars().cycle().take(size).collect();
        let file = record_with(
            |builder| builder.field_limit_bytes(1_000_000),
            || {
                let span = info_span!("s", n = 1, text = long.as_str(), late = Empty);
                span.record("late", long.as_str());
                span.in_scope(|| ());
                info_span!("next", n = 2).in_scope(|| ());
            },
        );
        let args = file.slice("s").args;
        assert!(args["text"] == long.as_str() && args["late"] == long.as_str(), "{size} bytes");
        assert_eq!(
            (args["n"].as_u64(), file.fields("next"), file.trace.stats().losses),
            (Some(1), r#"{"n":2}"#.into(), vec![])
        );
    }
}

#[test]
fn many_long_fields_of_one_span_are_all_kept() {
    let text = "x".repeat(4096);
    let t = text.as_str();
    let file = record(|| {
        info_span!(
            "s",
            a = t,
            b = t,
            c = t,
            d = t,
            e = t,
            f = t,
            g = t,
            h = t,
            i = t,
            j = t,
            k = t,
            l = t,
            m = t,
            n = t,
            o = t,
            p = t,
            q = t,
            r = t,
            s = t,
            t = t
        )
        .in_scope(|| ());
    });
    let args = file.slice("s").args;
    let kept = args.as_object().unwrap().values().filter(|value| **value == t).count();
    assert_eq!((kept, file.trace.stats().losses), (20, vec![]));
}

/// A value whose Debug form does something that it should not.
struct Does<F: Fn()>(F);

impl<F: Fn()> fmt::Debug for Does<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("before ")?;
        (self.0)();
        f.write_str("after")
    }
}

#[test]
fn a_debug_form_that_panics_does_not_reach_the_program() {
    let file = record(|| {
        let value = Does(|| std::panic::resume_unwind(Box::new("never asked for by the program")));
        let span = info_span!("s", before = 1, ?value, after = 2);
        span.in_scope(|| error!(?value));
        info_span!("next", n = 3).in_scope(|| ());
    });
    let args = file.slice("s").args;
    assert_eq!((args["before"].as_u64(), args["after"].as_u64()), (Some(1), Some(2)));
    assert_eq!(args["value"], "before (Debug panicked)");
    assert_eq!((file.fields("next").as_str(), file.tree(&[]).as_str()), (r#"{"n":3}"#, "main\n  s\n  next\n"));
}

#[test]
fn without_args_no_value_gets_out() {
    let file = record_with(
        |builder| builder.with_args(false).events(tracing::Level::INFO),
        || {
            let span = info_span!("s", secret = "hunter2", late = Empty);
            span.record("late", "hunter2");
            span.in_scope(|| error!(secret = "hunter2", "hunter2"));
            annotate!("step {}", 1; secret = "hunter2").in_scope(|| ());
        },
    );
    assert!(!file.json.to_string().contains("hunter2"));
    assert_eq!(file.fields("step 1"), "{}", "names are no args");
    assert!(file.slice("s").args.get("error").is_some(), "that there was an error, it says");
}

#[test]
fn denied_fields_do_not_get_out_wherever_they_are() {
    let file = record_with(
        |builder| builder.deny_fields(["password", "token"]).events(tracing::Level::INFO),
        || {
            let span = info_span!("s", user = "ann", password = "hunter2", token = Empty);
            span.record("token", "hunter2");
            span.in_scope(|| info!(password = "hunter2", user = "ann", "login"));
        },
    );
    assert!(!file.json["traceEvents"].to_string().contains("hunter2"));
    assert_eq!(file.fields("s"), r#"{"user":"ann"}"#);
}

#[test]
fn names_of_the_catalogue_become_kinetos_args() {
    check(|| info_span!("s", dims = ?[[2, 3]], seq = 7), r#"{"Input Dims":[[2,3]],"Sequence number":7}"#);
    check(
        || info_span!("s", dims = "[[2,3],[]]", types = r#"["float",""]"#),
        r#"{"Input Dims":[[2,3],[]],"Input type":["float",""]}"#,
    );
    check(|| info_span!("s", strides = ?vec![vec![3, 1], vec![]]), r#"{"Input Strides":[[3,1],[]]}"#);
    check(
        || info_span!("s", "Input Dims" = "[[1]]", "Sequence number" = 8u64),
        r#"{"Input Dims":[[1]],"Sequence number":8}"#,
    );
    check(
        || info_span!("s", fwd_thread = 2, call_stack = "a.py(1): f"),
        r#"{"Fwd thread id":2,"Call stack":"a.py(1): f"}"#,
    );
    // What is not of the kind that readers expect there keeps its own name.
    check(|| info_span!("s", dims = "2 by 3", seq = "first"), r#"{"dims":"2 by 3","seq":"first"}"#);
    check(|| info_span!("s", dims = 4, seq = 1.5), r#"{"dims":4,"seq":1.5}"#);
}

#[test]
fn kineto_name_takes_the_place_of_the_name() {
    let file = record(|| {
        info_span!("a", kineto.name = "given", n = 1).in_scope(|| ());
        info_span!("b", kineto.name = %format_args!("step {}", 2)).in_scope(|| ());
        let late = info_span!("c", kineto.name = Empty);
        late.record("kineto.name", "later");
        late.in_scope(|| ());
        info_span!("d", kineto.name = Empty).in_scope(|| ());
    });
    assert_eq!(file.tree(&["kineto.name"]), "main\n  given\n  step 2\n  later\n  d\n");
    assert_eq!(file.fields("given"), r#"{"n":1}"#);
}

#[test]
fn annotate_makes_user_annotations() {
    let file = record(|| {
        let step = 3;
        annotate!("ProfilerStep#{}", step).in_scope(|| annotate!("load"; batch = 3).in_scope(|| ()));
        annotate!("inline {step}").in_scope(|| ());
        annotate!("{{literal}}").in_scope(|| ());
        info_span!("op").in_scope(|| ());
    });
    assert_eq!(file.tree(&["batch"]), "main\n  ProfilerStep#3\n    load batch=3\n  inline 3\n  {literal}\n  op\n");
    let cats: Vec<_> = file.slices().iter().map(|slice| slice.cat.clone()).collect();
    assert_eq!(cats, ["user_annotation", "user_annotation", "user_annotation", "user_annotation", "cpu_op"]);
    assert!(!file.json["traceEvents"].to_string().contains("kineto.annotation"));
}

#[test]
fn kineto_kind_decides_the_class_of_its_callsite() {
    for (kind, cat) in [
        ("user_annotation", "user_annotation"),
        ("python_function", "python_function"),
        ("cpu_op", "cpu_op"),
        ("cuda_runtime", "cuda_runtime"),
        ("overhead", "overhead"),
    ] {
        let file = record_with(
            |builder| builder.activities(tracing_kineto::ActivityTypes::ALL),
            || (0..2).for_each(|_| info_span!("s", kineto.kind = kind).in_scope(|| ())),
        );
        let slices = file.all("s");
        assert_eq!(slices.len(), 2, "{kind}");
        assert!(slices.iter().all(|slice| slice.cat == cat && slice.args.get("kineto.kind").is_none()), "{slices:?}");
        assert_eq!(file.lost(Loss::KindsRefused), 0);
    }
}

#[test]
fn a_kind_that_no_host_span_can_be_is_refused_once_for_its_callsite() {
    for kind in ["kernel", "gpu_memcpy", "nonsense", ""] {
        let file = record(|| {
            (0..3).for_each(|_| info_span!("a", kineto.kind = kind).in_scope(|| ()));
            info_span!("b", kineto.kind = %kind).in_scope(|| ());
        });
        assert_eq!((file.all("a").len(), file.slice("b").cat.as_str()), (3, "cpu_op"));
        assert!(file.all("a").iter().all(|slice| slice.cat == "cpu_op"));
        assert_eq!(file.lost(Loss::KindsRefused), 2, "{kind}");
    }
}

#[test]
fn kinds_that_are_not_selected_are_left_out() {
    let file = record_with(
        |builder| builder.activities(ActivityType::UserAnnotation),
        || {
            let _op = info_span!("op").entered();
            annotate!("kept").in_scope(|| info_span!("inner op", n = 1).in_scope(|| annotate!("deep").in_scope(|| ())));
        },
    );
    assert_eq!(file.tree(&[]), "main\n  kept\n    deep\n");
    assert_eq!(file.lost(Loss::Overlapping), 0);
}

#[test]
fn the_classifier_and_targets_decide_where_the_span_does_not() {
    let file = record_with(
        |builder| {
            let classify = |metadata: &tracing::Metadata<'_>| match metadata.name() {
                "function" => Some(ActivityType::PythonFunction),
                "impossible" => Some(ActivityType::ConcurrentKernel),
                _ => None,
            };
            builder.classify(classify).annotate_target("app::steps").activities(tracing_kineto::ActivityTypes::ALL)
        },
        || {
            info_span!("function").in_scope(|| ());
            info_span!("impossible").in_scope(|| ());
            info_span!(target: "app::steps::inner", "step").in_scope(|| ());
            info_span!(target: "app", "op").in_scope(|| ());
        },
    );
    let cats: Vec<_> = file.slices().iter().map(|slice| slice.cat.clone()).collect();
    assert_eq!(cats, ["python_function", "cpu_op", "user_annotation", "cpu_op"]);
}

#[test]
fn targets_and_locations_are_shown_when_asked_for() {
    for (target, location) in [(true, false), (false, true)] {
        let file = record_with(
            |builder| builder.with_target(target).with_location(location),
            || info_span!(target: "some::target", "s").in_scope(|| ()),
        );
        let args = file.slice("s").args;
        assert_eq!(args.get("target").and_then(|text| text.as_str()), target.then_some("some::target"));
        assert_eq!(
            args.get("location").is_some_and(|at| at.as_str().unwrap().starts_with("tests/fields.rs:")),
            location
        );
    }
}

#[test]
fn an_error_event_marks_the_slice_it_happens_in() {
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
    assert!(file.rows("i").is_empty(), "events are not asked for");
}

#[test]
fn an_error_marks_the_one_slice_of_its_span_that_it_happened_in() {
    let file = record(|| {
        let span = info_span!("s");
        span.in_scope(|| ());
        span.in_scope(|| error!("second"));
        span.in_scope(|| ());
    });
    let marked: Vec<_> = file.all("s").iter().map(|slice| slice.args.get("error").is_some()).collect();
    assert_eq!(marked, [false, true, false]);
}

#[test]
fn events_of_the_log_bridge_are_there() {
    let file = record_with(
        |builder| builder.events(tracing::Level::INFO),
        || {
            // What tracing-log makes of a record.
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
fn instrumented_functions_are_recorded_as_they_say() {
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
fn instrumented_futures_have_a_slice_for_each_poll() {
    let file = record(|| assert!(block_on(fails_later(2)).is_err()));
    // tracing enters an instrumented future once more, to drop it.
    let tree = file.tree(&["n"]);
    assert!(
        tree.starts_with("main\n  fails_later n=1\n  fails_later n=1\n  fails_later n=1\n    inner_step\n"),
        "{tree}"
    );
    let polls = file.all("fails_later");
    assert!(polls.iter().all(|slice| slice.span() == polls[0].span()));
    let errors: Vec<_> = polls.iter().filter_map(|slice| slice.args.get("error")).collect();
    assert_eq!(errors, ["an error occurred when formatting an argument"]);
    assert_eq!(file.all("inner_step")[0].parent(), polls[0].span());
    assert_eq!(fields(&polls[2].args), r#"{"times":2,"n":1,"error":"an error occurred when formatting an argument"}"#);
}

//! Field values: types, late values, limits, and Kineto's names for known fields.

use std::fmt;
use support::{record, record_with};
use tracing::field::{Empty, Value};
use tracing::{Span, error, info, info_span};
use tracing_kineto::{Args, AsyncSpans, Fields, Format, KinetoLayerBuilder, Loss, annotate};

/// Records one span and compares the args of its fields.
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
fn floats_are_numbers_or_text_when_not_finite() {
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
fn last_recorded_value_is_shown() {
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
fn late_values_are_shown_when_threads_differ_or_span_moves() {
    let file = record(|| {
        let span = info_span!("s", n = Empty, m = Empty);
        support::on_thread("worker", || {
            span.record("n", 1);
            span.in_scope(|| ());
        });
        span.record("m", 2);
    });
    let args = file.slice("s").args;
    assert_eq!((args["n"].as_u64(), args["m"].as_u64()), (Some(1), Some(2)));
}

#[test]
fn late_values_are_on_both_slices_of_a_span() {
    let draw_all = |builder: KinetoLayerBuilder| builder.async_spans(AsyncSpans::PerPoll);
    let file = record_with(draw_all, || {
        let span = info_span!("s", n = Empty);
        span.in_scope(|| ());
        span.record("n", 1);
        span.in_scope(|| ());
    });
    assert_eq!(file.all("s").iter().map(|slice| slice.fields()).collect::<Vec<_>>(), [r#"{"n":1}"#, r#"{"n":1}"#]);
}

#[test]
fn values_may_come_from_another_callsite() {
    let file = record(|| {
        let others =
            [info_span!("a", more = Empty, n = Empty), info_span!("b", more = Empty)].map(|span| span.metadata());
        let span = info_span!("s", first = 1, n = 2);
        let _entered = span.enter();
        for (metadata, key, value) in [(others[0], "more", 3), (others[0], "n", 4), (others[1], "more", 5)] {
            let fields = metadata.unwrap().fields();
            span.record_all(&fields.value_set(&[(&fields.field(key).unwrap(), Some(&value as &dyn Value))]));
        }
        span.record("first", 6);
    });
    assert_eq!(file.fields("s"), r#"{"first":6,"more":5,"n":2}"#, "a key comes once, the span's own first");
}

#[test]
fn unusual_field_names_are_kept() {
    check(|| info_span!("s", r#type = "t", name = "n", otel.name = "o"), r#"{"type":"t","name":"n","otel.name":"o"}"#);
    check(|| info_span!("s", "weird key \"q\"\n" = 1), r#"{"weird key \"q\"\n":1}"#);
    check(|| info_span!("s", "ключ 🔑" = "値"), r#"{"ключ 🔑":"値"}"#);
    check(|| info_span!("s", ts = 1, dur = 2, ph = "B", args = "x"), r#"{"ts":1,"dur":2,"ph":"B","args":"x"}"#);
}

#[test]
fn field_cannot_replace_an_argument_of_the_layer() {
    let file = record(|| {
        info_span!("s", "External id" = 1, "span id" = 2, "parent id" = 3, finished = 4, clipped = 5, target = 6)
            .in_scope(|| ());
    });
    let args = file.slice("s").args;
    assert_ne!((args["External id"].as_u64(), args["span id"].as_u64()), (Some(1), Some(2)));
    assert_eq!(args["target"], "recordings::spans::fields");
    assert!(args.get("parent id").is_none() && args.get("finished").is_none() && args.get("clipped").is_none());
    for (key, value) in ["External id", "span id", "parent id", "finished", "clipped", "target"].iter().zip(1..) {
        assert_eq!(args[format!("{key} (field)")].as_u64(), Some(value), "{key}");
    }
}

/// Checks the keys of a span's fields in the file, and that reading it restores their names.
#[track_caller]
fn check_shown_and_read(span: impl FnOnce() -> Span, shown: &str, read: &[(&str, &str)]) {
    let file = record(|| span().in_scope(|| ()));
    assert_eq!(file.fields("s"), shown);
    let events = file.trace.events();
    let event = events.iter().find(|event| event.name() == "s").unwrap();
    let mut args = Vec::new();
    event.visit(&mut |key, value| args.push((key.to_owned(), format!("{value:?}"))));
    for (key, value) in read {
        assert_eq!(event.arg(key).map(|value| format!("{value:?}")).as_deref(), Some(*value), "{key}");
        assert!(args.contains(&((*key).to_owned(), (*value).to_owned())), "{key} in {args:?}");
    }
    assert_eq!((event.stream(), event.device_index(), event.correlation()), (None, None, None));
}

#[test]
fn fields_named_like_device_arguments_are_renamed() {
    check_shown_and_read(
        || info_span!("s", stream = 7, correlation = 9, "external id" = 5),
        r#"{"stream (field)":7,"correlation (field)":9,"external id (field)":5}"#,
        &[("stream", "7"), ("correlation", "9"), ("external id", "5")],
    );
    check_shown_and_read(
        || info_span!("s", correlation = "a1-b2", device = "cuda:0", bytes = "12 MB", context = "main"),
        r#"{"correlation (field)":"a1-b2","device (field)":"cuda:0","bytes (field)":"12 MB","context (field)":"main"}"#,
        &[("correlation", "\"a1-b2\""), ("device", "\"cuda:0\""), ("bytes", "\"12 MB\"")],
    );
    // Readers expect a number there.
    check(|| info_span!("s", device = 1, bytes = 512), r#"{"device":1,"bytes":512}"#);
    check(
        || info_span!("s", kind = 3, src = "a", priority = "high"),
        r#"{"kind":3,"src":"a","priority (field)":"high"}"#,
    );
}

#[test]
fn values_of_another_type_are_not_torchs_arguments() {
    check_shown_and_read(
        || info_span!("s", "Sequence number" = "first", "Collective name" = 3, batchSize = "many", kernel_hash = 7),
        r#"{"Sequence number (field)":"first","Collective name (field)":3,"batchSize (field)":"many","kernel_hash (field)":7}"#,
        &[("Sequence number", "\"first\""), ("Collective name", "3"), ("batchSize", "\"many\"")],
    );
    check(
        || info_span!("s", seq = u64::MAX, bytes = 1_u64 << 63),
        r#"{"seq":"18446744073709551615","bytes (field)":"9223372036854775808"}"#,
    );
    let mixed = || info_span!("s", seq = 4, "Sequence number" = "first");
    check_shown_and_read(
        mixed,
        r#"{"Sequence number":4,"Sequence number (field)":"first"}"#,
        &[("Sequence number", "4")],
    );
}

#[test]
fn series_of_counters_keep_the_names_of_fields() {
    let file = record(|| tracing_kineto::counter!("queue", stream = 1, bytes = 0.5, seq = 2));
    assert_eq!(file.rows("C")[0]["args"].to_string(), r#"{"stream":1,"bytes":0.5,"seq":2}"#);
}

#[test]
fn keys_are_unique_for_any_field_names() {
    let file = record(|| info_span!("s", dims = "[[1]]", "Input Dims" = "[[2]]", x = 1, x = 2).in_scope(|| ()));
    let mut text = Vec::new();
    file.trace.write(&mut text, Format::Json).unwrap();
    let text = String::from_utf8(text).unwrap();
    let row = text.lines().find(|line| line.contains(r#""name":"s""#)).unwrap();
    for key in [r#""Input Dims":"#, r#""x":"#] {
        assert_eq!(row.matches(key).count(), 1, "{key} in {row}");
    }
    check(|| info_span!("s", "Input Dims" = "[[2]]", dims = "[[1]]"), r#"{"Input Dims":[[2]],"dims":"[[1]]"}"#);
    check(|| info_span!("s", dims = 1, "Input Dims" = 2), r#"{"dims":1,"Input Dims (field)":2}"#);
}

#[test]
fn hostile_texts_are_kept() {
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
    assert_eq!((length("text"), length("shown"), length("debug")), (4099, 4099, 4098), "whole characters");
    assert!(["text", "shown", "debug"].iter().all(|key| args[key].as_str().unwrap().ends_with("é...")));
    assert_eq!((args["short"].as_str(), file.lost(Loss::FieldsCut)), (Some("x"), 3));
}

#[test]
fn huge_value_costs_no_more_than_its_limit() {
    /// Writes without end, until the formatter returns an error.
    struct Endless;
    impl fmt::Debug for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                f.write_str("0123456789")?;
            }
        }
    }
    let file = record(|| info_span!("s", endless = ?Endless).in_scope(|| ()));
    assert_eq!(file.slice("s").args["endless"].as_str().unwrap().len(), 4096 + "...".len());
    assert_eq!(file.lost(Loss::FieldsCut), 1);
}

// Shows the key FIELD_LIMIT_BYTES.
#[test]
fn texts_stay_whole_when_the_limit_exceeds_a_chunk() {
    for size in [100, 60 * 1024, 65_535, 65_536, 200_000, 1_000_000] {
        let long: String = "0123456789".chars().cycle().take(size).collect();
        let file = record_with(
            |builder| builder.fields(Fields::new().limit_bytes(1_000_000)),
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
fn span_keeps_many_long_fields() {
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

/// A value whose `Debug` runs a closure.
struct DebugHook<F: Fn()>(F);

impl<F: Fn()> fmt::Debug for DebugHook<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("before ")?;
        (self.0)();
        f.write_str("after")
    }
}

#[test]
fn panic_in_debug_does_not_reach_the_program() {
    let file = record(|| {
        let value = DebugHook(|| std::panic::resume_unwind(Box::new("raised by a Debug impl")));
        let span = info_span!("s", before = 1, ?value, after = 2);
        span.in_scope(|| error!(?value));
        info_span!("next", n = 3).in_scope(|| ());
    });
    let args = file.slice("s").args;
    assert_eq!((args["before"].as_u64(), args["after"].as_u64()), (Some(1), Some(2)));
    assert_eq!(args["value"], "before (Debug panicked)");
    assert_eq!((file.fields("next").as_str(), file.tree(&[]).as_str()), (r#"{"n":3}"#, "main\n  s\n  next\n"));
}

// Shows the key WITH_ARGS.
#[test]
fn values_are_not_written_without_args() {
    let file = record_with(
        |builder| builder.fields(Fields::new().record(false)).events(tracing::Level::INFO),
        || {
            let span = info_span!("s", secret = "hunter2", late = Empty);
            span.record("late", "hunter2");
            span.in_scope(|| error!(secret = "hunter2", "hunter2"));
            annotate!("step {}", 1; secret = "hunter2").in_scope(|| ());
        },
    );
    assert!(!file.json.to_string().contains("hunter2"));
    assert_eq!(file.fields("step 1"), "{}", "names are not args");
    assert!(file.slice("s").args.get("error").is_some(), "the error is marked without its text");
}

// Shows the key DENY_FIELDS.
#[test]
fn denied_fields_are_never_written() {
    let file = record_with(
        |builder| builder.fields(Fields::new().deny(["password", "token"])).events(tracing::Level::INFO),
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
fn known_field_names_become_kinetos_args() {
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
    // A value of a type that readers do not expect keeps its own name.
    check(|| info_span!("s", dims = "2 by 3", seq = "first"), r#"{"dims":"2 by 3","seq":"first"}"#);
    check(|| info_span!("s", dims = 4, seq = 1.5), r#"{"dims":4,"seq":1.5}"#);
}

#[test]
fn debug_handle_is_a_separate_number() {
    let trace = record(|| {
        info_span!("conv", debug_handle = -7).in_scope(|| ());
        info_span!("relu", debug_handle = "none").in_scope(|| ());
        info_span!("pool").in_scope(|| ());
    })
    .trace;
    let events = trace.events();
    let handle = |name: &str| events.iter().find(|event| event.name() == name).unwrap().debug_handle();
    assert_eq!(["conv", "relu", "pool"].map(handle), [Some(-7), None, None]);
}

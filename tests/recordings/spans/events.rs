//! Events: instants if enabled, counters always.

use support::{File, fields, nanos, on_thread, record, record_with};
use tracing::{Level, debug, error, event, info, info_span, trace, warn};
use tracing_kineto::{ActivityType, ActivityTypes, Fields, Loss, annotate, counter};
use tracing_subscriber::filter::LevelFilter;

fn names(file: &File) -> Vec<&str> {
    file.rows("i").iter().map(|row| row["name"].as_str().unwrap()).collect()
}

/// Returns the counters as "name{series}".
fn counters(file: &File) -> Vec<String> {
    file.rows("C").iter().map(|row| format!("{}{}", row["name"].as_str().unwrap(), row["args"])).collect()
}

// Shows the key EVENTS.
#[test]
fn events_up_to_the_level_are_instants() {
    let all = ["error", "warn", "info", "debug", "trace"];
    for (level, shown) in [
        (LevelFilter::OFF, 0),
        (LevelFilter::ERROR, 1),
        (LevelFilter::WARN, 2),
        (LevelFilter::INFO, 3),
        (LevelFilter::DEBUG, 4),
        (LevelFilter::TRACE, 5),
    ] {
        let file = record_with(
            |builder| builder.events(level),
            || {
                error!("error");
                warn!("warn");
                info!("info");
                debug!("debug");
                trace!("trace");
            },
        );
        assert_eq!(names(&file), all[..shown], "{level}");
        assert_eq!(file.trace.stats().events, shown as u64);
    }
}

#[test]
fn events_leave_no_row_by_default() {
    let file = record(|| info_span!("s").in_scope(|| warn!("unseen")));
    assert!(names(&file).is_empty());
}

#[test]
fn instant_lies_in_its_slice_and_names_its_span() {
    let file = record_with(
        |builder| builder.events(Level::INFO),
        || {
            info!(n = 1, "outside");
            info_span!("s").in_scope(|| info!(ok = true, text = "a \"b\"", "inside {}", 1));
        },
    );
    let [outside, inside] = &file.rows("i")[..] else { unreachable!() };
    let slice = file.slice("s");
    assert_eq!((inside["name"].as_str(), inside["cat"].as_str()), (Some("inside 1"), Some("cpu_instant_event")));
    assert_eq!((inside["s"].as_str(), inside["tid"].as_u64()), (Some("t"), Some(slice.tid)));
    assert!((slice.start..=slice.end).contains(&nanos(&inside["ts"])) && inside.get("dur").is_none());
    assert_eq!(inside["args"]["span id"].as_u64(), Some(slice.span()));
    assert_eq!(
        (inside["args"]["level"].as_str(), inside["args"]["target"].as_str()),
        (Some("INFO"), Some("recordings::spans::events"))
    );
    assert!(outside["args"].get("span id").is_none());
    let own = fields(&inside["args"]);
    assert!(own.contains(r#""ok":true"#) && own.contains(r#""text":"a \"b\"""#), "{own}");
}

#[test]
fn event_belongs_to_its_explicit_parent() {
    let file = record_with(
        |builder| builder.events(Level::INFO),
        || {
            let (parent, current) = (info_span!("parent"), info_span!("current").entered());
            parent.in_scope(|| ());
            info!(parent: &parent, "of parent");
            info!(parent: None, "of none");
            info!("of current");
            on_thread("worker", || info!(parent: &parent, "of parent too"));
            drop(current);
        },
    );
    let span_of = |name: &str| {
        let row = file.rows("i").into_iter().find(|row| row["name"] == name).unwrap().clone();
        row["args"]["span id"].as_u64()
    };
    let (parent, current) = (file.slice("parent").span(), file.slice("current").span());
    assert_eq!((span_of("of parent"), span_of("of parent too")), (Some(parent), Some(parent)));
    assert_eq!((span_of("of none"), span_of("of current")), (None, Some(current)));
}

#[test]
fn event_without_a_message_has_its_callsites_name() {
    let file = record_with(
        |builder| builder.events(Level::INFO),
        || {
            info!(n = 1);
            event!(name: "given", Level::INFO, n = 2);
            info!(kineto.name = "replaced", n = 3);
            info!("");
        },
    );
    let names = names(&file);
    assert!(names[0].starts_with("event tests/recordings/spans/events.rs:"), "{names:?}");
    assert_eq!(names[1..], ["given", "replaced", ""]);
}

#[test]
fn counters_are_recorded_without_any_option() {
    let file = record(|| {
        counter!("queue", depth = 3, bytes = 1.5e6);
        counter!(String::from("made"), n = u64::MAX);
        event!(target: "kineto::counter", Level::TRACE, kineto.name = "by target", on = true, off = false);
        event!(name: "its own", target: "kineto::counter", Level::TRACE, n = -1);
    });
    let expected = [
        r#"queue{"depth":3,"bytes":1500000}"#,
        r#"made{"n":1.8446744073709552e+19}"#,
        r#"by target{"on":1,"off":0}"#,
        r#"its own{"n":-1}"#,
    ];
    assert_eq!(counters(&file), expected);
    assert!(names(&file).is_empty());
}

#[test]
fn counter_values_are_recorded_without_args() {
    let file = record_with(|builder| builder.fields(Fields::new().record(false)), || counter!("queue", depth = 3));
    assert_eq!(counters(&file), [r#"queue{"depth":3}"#]);
}

#[test]
fn counter_value_is_counted_as_lost_when_not_finite() {
    let file = record(|| {
        counter!("some", nan = f64::NAN, fine = 1, inf = f64::INFINITY);
        counter!("none", nan = f64::NAN);
        counter!("text", word = "three", n = 2);
    });
    assert_eq!(counters(&file), [r#"some{"fine":1}"#, r#"text{"n":2}"#]);
    assert_eq!(file.lost(Loss::CounterValues), 4);
}

#[test]
fn counter_series_may_have_any_name() {
    let file = record(|| counter!("queue \"q\"", "span id" = 1, level = 2, "a \"b\"\n" = 3));
    let row = file.rows("C")[0];
    assert_eq!(row["name"], "queue \"q\"");
    let values: Vec<_> = row["args"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(values, [1, 2, 3]);
}

#[test]
fn events_are_absent_when_type_or_target_is_excluded() {
    let only_ops = record_with(
        |builder| builder.events(Level::INFO).activities(ActivityType::CpuOp),
        || info_span!("op").in_scope(|| info!("instant")),
    );
    assert_eq!((names(&only_ops).len(), only_ops.slices().len()), (0, 1));
    let only_instants = record_with(
        |builder| builder.events(Level::INFO).activities(ActivityTypes::from(ActivityType::CpuInstantEvent)),
        || annotate!("hidden").in_scope(|| info!("instant")),
    );
    assert_eq!((names(&only_instants), only_instants.slices().len()), (vec!["instant"], 0));
    let filtered = record_with(
        |builder| {
            builder
                .events(Level::INFO)
                .filter(tracing_subscriber::filter::Targets::new().with_target("kept", Level::INFO))
        },
        || {
            info!(target: "kept", "kept");
            info!(target: "other", "dropped");
            debug!(target: "kept", "too fine");
            counter!("dropped", n = 1);
        },
    );
    assert_eq!((names(&filtered), counters(&filtered).len()), (vec!["kept"], 0));
}

#[test]
fn events_of_many_threads_are_all_recorded() {
    let file = record_with(
        |builder| builder.events(Level::INFO),
        || {
            std::thread::scope(|scope| {
                for i in 0..8 {
                    support::spawn(scope, &format!("worker {i}"), || {
                        (0..1000).for_each(|n| {
                            info!(n, "instant");
                            counter!("counter", n);
                        });
                    });
                }
            });
        },
    );
    assert_eq!((names(&file).len(), counters(&file).len(), file.trace.stats().events), (8000, 8000, 16_000));
}

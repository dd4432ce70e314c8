//! A program's post-processing of events: in the file, and in the events that a trace returns.

use support::record_edited_with;
use tracing::{Level, info, info_span};
use tracing_kineto::torch::TorchOptions;
use tracing_kineto::{ArgValue, EventEdit, Format, counter};

#[test]
fn post_process_renames_changes_and_drops_events() {
    let edit = |event: &mut EventEdit<'_>| match event.activity().name {
        "old" => {
            event.rename("new \"name\"");
            event.set_arg("n", ArgValue::I64(2));
            event.set_arg("added", ArgValue::Ints(&[1, 2]));
            event.remove_arg("secret");
            event.set_arg("gone", ArgValue::Bool(true));
            event.remove_arg("gone");
        }
        "noise" | "point" => event.leave_out(),
        "queue" => event.set_arg("depth", ArgValue::F64(0.5)),
        _ => {}
    };
    let file = record_edited_with(
        |builder| builder.events(Level::INFO).post_process(edit),
        || {
            info_span!("old", n = 1, secret = "x", kept = true).in_scope(|| ());
            let first = info_span!("noise");
            first.in_scope(|| ());
            let second = info_span!("kept");
            second.follows_from(&first);
            second.in_scope(|| info!("point"));
            counter!("queue", depth = 3);
        },
    );
    assert_eq!(file.fields("new \"name\""), r#"{"n":2,"kept":true,"added":[1,2]}"#);
    let names: Vec<_> = file.slices().iter().map(|slice| slice.name.as_str()).collect();
    assert_eq!(names, ["new \"name\"", "kept"]);
    assert!(file.rows("i").is_empty() && file.rows("s").is_empty());
    assert_eq!(file.rows("C")[0]["args"].to_string(), r#"{"depth":0.5}"#);
    let mut seen = Vec::new();
    file.trace.for_each(|activity| seen.push(activity.name.to_owned()));
    assert_eq!(seen, ["new \"name\"", "kept", "queue"]);
    // The statistics count recorded events, dropped ones included.
    assert_eq!((file.trace.stats().slices, file.trace.events().len()), (3, 3));
}

#[test]
fn event_is_unchanged_when_post_process_panics() {
    let edit = |event: &mut EventEdit<'_>| {
        event.rename("half done");
        assert!(event.activity().name != "bad", "no");
    };
    let file = record_edited_with(
        |builder| builder.post_process(edit),
        || {
            info_span!("bad", n = 1).in_scope(|| ());
            info_span!("good").in_scope(|| ());
        },
    );
    assert_eq!(file.fields("bad"), r#"{"n":1}"#);
    assert_eq!(file.all("half done").len(), 1);
}

#[test]
fn post_process_stops_at_its_timeout_with_a_whole_file() {
    use std::time::Duration;
    use tracing_kineto::analysis::{Note, ReadOptions};
    use tracing_subscriber::layer::SubscriberExt;
    for (limit, all) in [(Duration::ZERO, false), (Duration::MAX, true)] {
        let (layer, guard) = support::layer(|b| b.torch(TorchOptions::new().post_processing_timeout(limit)));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (0..1000).for_each(|n| tracing::info_span!("op", n).in_scope(|| ()));
        });
        let trace = guard.finish().unwrap();
        let mut text = Vec::new();
        trace.write(&mut text, Format::Json).unwrap();
        assert_eq!(tracing_kineto::analysis::Events::from_reader(text.as_slice()).unwrap().len(), 1000);
        // The base time may follow the events.
        let behind = String::from_utf8(text.clone()).unwrap();
        let base = "\"baseTimeNanoseconds\":";
        let (before, after) = behind.split_once(base).unwrap();
        let (number, after) = after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap());
        let behind = format!("{before}\"nothing\":0{},{base}{number}}}", after.trim_end().strip_suffix('}').unwrap());
        let read = |text: &str| ReadOptions::new().time_limit(limit).from_reader(text.as_bytes()).unwrap();
        let text = String::from_utf8(text).unwrap();
        for events in [trace.events(), read(&text), read(&behind)] {
            let notes: Vec<_> = events.notes().collect();
            assert_eq!(events.len(), if all { 1000 } else { 0 });
            assert_eq!(notes, if all { vec![] } else { vec![(Note::TimeLimit, 1)] });
        }
        assert!(read(&behind).metadata().any(|(key, _)| key == "nothing"));
    }
}

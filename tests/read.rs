//! Traces of other programs read back: every file beside the package against the figures that are known of it.
#![cfg(feature = "gzip")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tracing_kineto::analysis::{Events, Note};
use tracing_kineto::{ErrorKind, Timestamp};

/// Where the traces lie, outside of the package: `KINETO_TRACES`, else beside it.
#[expect(clippy::disallowed_methods, reason = "traces lie outside of the package")]
fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces");
    std::env::var_os("KINETO_TRACES").map_or_else(beside, PathBuf::from)
}

/// Whether the traces are there; says so if not.
#[expect(clippy::print_stdout, reason = "says that nothing was compared")]
fn are_there() -> bool {
    let folder = folder();
    if !folder.is_dir() {
        println!("passed over: no traces in {}", folder.display());
    }
    folder.is_dir()
}

/// Every file of which the figures are known: its name, its events, the figures.
fn all() -> Vec<(String, Events, Value)> {
    if !are_there() {
        return Vec::new();
    }
    let files = std::fs::read_dir(folder().join("../analysis/expected")).unwrap();
    let read = |path: PathBuf| {
        let figures: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let trace = figures["trace"].as_str().unwrap().to_owned();
        let events = Events::read(folder().join("..").join(&trace)).unwrap();
        (trace, events, figures)
    };
    let all: Vec<_> = files.map(|entry| read(entry.unwrap().path())).collect();
    assert!(all.len() >= 12, "{} traces", all.len());
    all
}

/// Nanoseconds from microseconds with three decimals.
fn nanos(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

/// The text of a file.
fn text(path: &Path) -> String {
    std::io::read_to_string(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())).unwrap()
}

/// The base of a file's times, which the figures leave out.
fn base(trace: &str) -> u64 {
    let text = text(&folder().join("..").join(trace));
    let base = text.split_once("\"baseTimeNanoseconds\": ").map_or("0", |(_, behind)| behind);
    base.split_once(|c: char| !c.is_ascii_digit()).map_or(0, |(base, _)| base.parse().unwrap())
}

#[test]
fn every_trace_has_the_slices_times_and_categories_that_are_known_of_it() {
    for (trace, events, figures) in all() {
        let load = &figures["load"];
        let slices: Vec<_> = events.iter().filter(|event| event.is_slice()).collect();
        assert_eq!(slices.len() as u64, load["slices"].as_u64().unwrap(), "{trace}");
        let mut categories: BTreeMap<&str, u64> = BTreeMap::new();
        slices.iter().for_each(|event| *categories.entry(event.category()).or_default() += 1);
        assert_eq!(serde_json::to_value(&categories).unwrap(), load["cats"], "{trace}");
        let start = slices.iter().map(|event| event.start()).min().unwrap();
        let end = slices.iter().map(|event| event.end()).max().unwrap();
        assert_eq!(start.as_nanos(), base(&trace) + load["first_ts_ns"].as_u64().unwrap(), "{trace}");
        assert_eq!(end.since(start), nanos(&load["span"]), "{trace}");
        assert_eq!(
            slices.iter().filter(|event| event.is_device_work()).count() as u64,
            load["device_events"],
            "{trace}"
        );
        let noted = |note| events.notes().find(|(found, _)| *found == note).map_or(0, |(_, count)| count);
        assert_eq!(noted(Note::NegativeDuration), load["negative_durations"].as_u64().unwrap(), "{trace}");
        assert_eq!(noted(Note::WithoutTime), load["slices_without_time"].as_u64().unwrap(), "{trace}");
        let all: u64 = events.notes().map(|(_, count)| count).sum();
        assert_eq!(all, 0, "{trace}: {:?}", events.notes().collect::<Vec<_>>());
        assert!(events.iter().map(|event| event.start()).is_sorted());
        assert!(events.window().0 > Timestamp::default() && events.window().0 < events.window().1);
    }
}

#[test]
fn device_work_is_counted_to_the_operations_that_are_known() {
    for (trace, events, figures) in all() {
        let counts = events.attribution().counts();
        let mut ours = BTreeMap::from([
            ("same", counts.same),
            ("external_id_differs", counts.external_id_differs),
            ("external_id_only", counts.external_id_only),
            ("nesting_only", counts.nesting_only),
            ("none", counts.none),
            ("external_id_refused", counts.external_id_refused),
        ]);
        ours.retain(|_, count| *count > 0);
        assert_eq!(serde_json::to_value(&ours).unwrap(), figures["ops_total"]["attribution"], "{trace}");
        let work = events.iter().filter(|event| event.is_device_work());
        let attribution = events.attribution();
        let launched = work.filter(|event| attribution.launch(*event).is_some()).count() as u64;
        assert_eq!(launched, figures["launch"]["count"], "{trace}");
    }
}

#[test]
fn a_file_that_is_no_json_is_refused_at_the_right_byte() {
    if !are_there() {
        return;
    }
    let path = folder().join("invalid/torch215_metadata_quote.pt.trace.json.gz");
    let error = Events::read(&path).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Json, Some(path.as_path())));
    let place = text(&path).find("/\"world/").unwrap() + 2;
    assert!(error.to_string().contains(&format!("at byte {place}")), "{error}");
}

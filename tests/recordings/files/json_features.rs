//! Files with serde_json's `arbitrary_precision` and `preserve_order`, which other crates may enable.

use serde_json::{Number, Value};
use support::record;
use tracing::info_span;
use tracing_kineto::Format;

#[test]
fn both_features_are_enabled_in_these_tests() {
    let text = r#"{"z":1.10,"a":123456789012345678901234567890}"#;
    let value: Value = serde_json::from_str(text).unwrap();
    assert_eq!(value.to_string(), text, "arbitrary_precision and preserve_order keep the text");
}

#[test]
fn metadata_keeps_its_meaning() {
    let file = record(|| info_span!("s").in_scope(|| ()));
    let json = r#"{"z":[1,-2.5,1e3],"a":{"big":12345678901234567890123,"null":null}}"#;
    file.trace.add_metadata_json("json", json).unwrap();
    let mut text = Vec::new();
    file.trace.write(&mut text, Format::Json).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    let json = value.get("json").unwrap();
    assert_eq!(
        json.get("a").unwrap().get("big"),
        Some(&Value::Number("12345678901234567890123".parse::<Number>().unwrap()))
    );
    assert_eq!(json.get("z").unwrap().get(1).unwrap().as_f64(), Some(-2.5));
    assert!(!String::from_utf8(text).unwrap().contains("$serde_json"), "the feature's internal name for numbers");
}

#[test]
fn numbers_of_the_file_are_plain_numbers() {
    let file = record(|| {
        info_span!("s", n = 1, f = 0.25, e = 1e-7, list = 3).in_scope(|| {
            tracing_kineto::counter!("c", n = 1e300);
        });
    });
    let args = file.slice("s").args;
    assert_eq!((args["n"].as_u64(), args["f"].as_f64(), args["e"].as_f64()), (Some(1), Some(0.25), Some(1e-7)));
    assert_eq!(file.rows("C").first().unwrap()["args"]["n"].as_f64(), Some(1e300));
    assert_eq!(file.json["schemaVersion"].as_u64(), Some(1));
    assert!(file.json["baseTimeNanoseconds"].as_u64().is_some());
    assert!(file.json["tracing_kineto"]["clock"]["error_ns"].as_u64().is_some());
}

#[test]
fn shapes_in_the_known_field_are_recognised() {
    let file = record(|| {
        info_span!("s", dims = "[[2, 3], []]", seq = "12", types = r#"["float"]"#).in_scope(|| ());
        info_span!("t", dims = "[[2.0]]", seq = "12.5").in_scope(|| ());
    });
    assert_eq!(file.fields("s"), r#"{"Input Dims":[[2,3],[]],"Sequence number":12,"Input type":["float"]}"#);
    assert_eq!(file.fields("t"), r#"{"dims":"[[2.0]]","seq":"12.5"}"#);
}

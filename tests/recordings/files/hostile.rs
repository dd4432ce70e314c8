//! Hostile names, values and metadata: each is read back unchanged.
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tracing::{info_span, subscriber::with_default};
use tracing_kineto::{Fields, KinetoLayer, KinetoLayerBuilder, LogSink, Message, Trace};
use tracing_subscriber::prelude::*;

macro_rules! x16 {
    ($text:expr) => {
        concat!(
            $text, $text, $text, $text, $text, $text, $text, $text, $text, $text, $text, $text, $text, $text, $text,
            $text
        )
    };
}

/// Defines the hostile texts as a list, and as spans and fields of these names.
macro_rules! hostile {
    ($($text:expr),+ $(,)?) => {
        const TEXTS: &[&str] = &[$($text),+];

        fn spans_of_these_names() {
            $(info_span!($text).in_scope(|| ());)+
        }

        fn spans_with_these_fields() {
            $(info_span!("fields", { $text } = $text).in_scope(|| ());)+
        }

        fn counters_of_these_names() {
            $(tracing_kineto::counter!($text, depth = 1);)+
        }
    };
}

hostile![
    "\"",
    "\\",
    "\\\"",
    "'",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{1}\u{1f}\u{7f}\u{85}",
    "a\0b",
    "\u{2028}\u{2029}",
    "\u{feff}",
    "\u{fffd}\u{ffff}\u{10ffff}",
    "🦀👩‍👩‍👧‍👦",
    "漢字かな한글",
    "\u{202e}dlrow",
    "e\u{301}",
    "</script><!--",
    "%s%n{}{{",
    "${HOME}`id`",
    "\"},{\"ph\":\"X",
    "],\"traceEvents\":[",
    "NaN",
    "null",
    "\u{1b}[31m",
    "C:\\new\\table",
    "C:\\new\\",
    "\\\\",
    "\\\\\"",
    "thirty-two bytes, one block: abc\\",
    "thirty-two bytes, one block: ab\\",
    x16!(x16!(x16!(x16!("k")))),
    x16!(x16!(x16!("漢\"\\\n"))),
];

/// Checks that no string ends in a backslash, after which Perfetto takes the closing quote for an escaped one.
fn check_ends_of_strings(json: &str) {
    let (mut bytes, mut in_string, mut last) = (json.bytes().enumerate(), false, None);
    while let Some((at, byte)) = bytes.next() {
        if byte == b'"' {
            let names_in_file = || String::from_utf8_lossy(&json.as_bytes()[at.saturating_sub(80)..=at]).into_owned();
            assert!(!(in_string && last == Some(b'\\')), "a string ends in a backslash: {}", names_in_file());
            in_string = !in_string;
        }
        last = if byte == b'\\' { bytes.next().map(|(_, byte)| byte) } else { Some(byte) };
    }
}

/// Writes a trace to a file and reads it back with a strict parser.
fn read(trace: &Trace) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    trace.save(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    check_ends_of_strings(&text);
    // Each top-level key is at the start of a line, once.
    let mut keys: Vec<&str> = text.lines().filter(|line| line.starts_with('"')).collect();
    let written = keys.len();
    keys.sort_unstable();
    keys.dedup_by_key(|line| line.split("\":").next());
    assert_eq!(keys.len(), written);
    serde_json::from_str(&text).unwrap()
}

/// Records `work` and returns the trace.
fn record(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder, work: impl FnOnce()) -> Trace {
    let builder =
        KinetoLayer::builder().no_output().fields(Fields::new().limit_bytes(1 << 20)).buffer_limit_bytes(64 << 20);
    let (layer, guard) = configure(builder).build().unwrap();
    with_default(tracing_subscriber::registry().with(layer), work);
    let trace = guard.finish().unwrap();
    assert!(trace.stats().losses.is_empty(), "{}", trace.stats());
    trace
}

fn rows<'j>(json: &'j Value, ph: &str) -> Vec<&'j Value> {
    json["traceEvents"].as_array().unwrap().iter().filter(|row| row["ph"] == ph && row["cat"] != "Trace").collect()
}

/// Returns the names that such slices have in a file; see `shown_name`.
fn names_in_file(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.replace('\0', "\u{2400}")).collect()
}

fn texts(rows: &[&Value], text: impl Fn(&Value) -> Value) -> Vec<String> {
    rows.iter().map(|row| text(row).as_str().unwrap_or("no text").to_owned()).collect()
}

#[test]
fn names_of_spans_are_read_back() {
    let json = read(&record(|builder| builder, spans_of_these_names));
    assert_eq!(texts(&rows(&json, "X"), |row| row["name"].clone()), names_in_file(TEXTS));
}

#[test]
fn names_given_by_kineto_name_are_read_back() {
    let work = || {
        for text in TEXTS {
            info_span!("named", kineto.name = *text).in_scope(|| ());
            tracing_kineto::annotate!("{text}").in_scope(|| ());
        }
    };
    let json = read(&record(|builder| builder, work));
    let expected: Vec<&str> = TEXTS.iter().flat_map(|text| [*text, *text]).collect();
    assert_eq!(texts(&rows(&json, "X"), |row| row["name"].clone()), names_in_file(&expected));
}

#[test]
fn names_and_values_of_fields_are_read_back() {
    let json = read(&record(|builder| builder, spans_with_these_fields));
    let rows = rows(&json, "X");
    assert_eq!(rows.len(), TEXTS.len());
    for (row, text) in rows.iter().zip(TEXTS) {
        assert_eq!(row["args"][text], **text);
    }
}

#[test]
fn displayed_and_late_values_are_read_back() {
    let work = || {
        for text in TEXTS {
            let span = info_span!("late", shown = %text, late = tracing::field::Empty);
            span.record("late", *text);
            span.in_scope(|| ());
        }
    };
    let json = read(&record(|builder| builder, work));
    for name in ["shown", "late"] {
        assert_eq!(texts(&rows(&json, "X"), |row| row["args"][name].clone()), TEXTS, "{name}");
    }
}

#[test]
fn names_of_counters_and_event_messages_are_read_back() {
    let work = || {
        counters_of_these_names();
        TEXTS.iter().for_each(|text| tracing::info!(n = 1, "{text}"));
    };
    let json = read(&record(|builder| builder.events(tracing::level_filters::LevelFilter::INFO), work));
    assert_eq!(texts(&rows(&json, "C"), |row| row["name"].clone()), TEXTS);
    let instants: Vec<&Value> = rows(&json, "i").into_iter().filter(|row| row["args"]["n"] == 1).collect();
    let names_in_file = |row: &Value| row["args"].get("message").unwrap_or(&row["name"]).clone();
    assert_eq!(texts(&instants, names_in_file), TEXTS);
}

#[test]
fn names_of_threads_are_read_back() {
    // Neither the operating system nor Rust accepts a 0 in a thread's name.
    let names: Vec<&str> = TEXTS.iter().copied().filter(|text| !text.contains('\0')).collect();
    let work = || {
        for name in &names {
            let dispatch = tracing::dispatcher::get_default(tracing::Dispatch::clone);
            let in_thread = || tracing::dispatcher::with_default(&dispatch, || info_span!("x").in_scope(|| ()));
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name((*name).to_owned());
                thread.spawn_scoped(scope, in_thread).unwrap().join().unwrap();
            });
        }
    };
    let json = read(&record(|builder| builder, work));
    let names_in_file = texts(&rows(&json, "M"), |row| row["args"]["name"].clone());
    for name in names {
        assert!(names_in_file.iter().any(|names_in_file| names_in_file.contains(name)), "{name:?}");
    }
}

#[test]
fn metadata_is_read_back() {
    let trace = record(
        |builder| TEXTS.iter().fold(builder, |builder, text| builder.metadata(format!("built {text}"), *text)),
        || (),
    );
    for text in TEXTS {
        trace.add_metadata(text, text);
        let json = serde_json::json!({ *text: [text] }).to_string();
        trace.add_metadata_json(&format!("json {text}"), &json).unwrap();
    }
    let json = read(&trace);
    for text in TEXTS {
        assert_eq!(json[text], **text);
        assert_eq!(json[format!("built {text}")], **text);
        assert_eq!(json[format!("json {text}")][text][0], **text);
    }
}

#[test]
fn metadata_is_refused_when_it_is_not_json() {
    let trace = record(|builder| builder, || ());
    let before = trace.metadata();
    for bad in ["", "{", "[1,]", "NaN", "{} {}", "'a'", "\"\n\"", "\"\\ud800\"", "{\"a\":1}]", "\u{feff}1", "01"] {
        let error = trace.add_metadata_json("key", bad).unwrap_err();
        assert_eq!(error.kind(), tracing_kineto::ErrorKind::Json, "{bad:?}");
        assert!(KinetoLayer::builder().no_output().metadata_json("key", bad).build().is_err(), "{bad:?}");
    }
    assert_eq!(trace.metadata(), before);
}

#[test]
fn metadata_cannot_replace_keys_of_the_file_and_warns() {
    let reserved =
        ["schemaVersion", "deviceProperties", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents", "traceName"];
    let logged = Arc::new(Mutex::new(Vec::new()));
    let logged_by_sink = logged.clone();
    let sink: LogSink = Arc::new(move |message: &Message<'_>| {
        // Messages of other tests arrive here too.
        if message.topic == "metadata" {
            logged_by_sink.lock().unwrap().push(message.text.to_string());
        }
    });
    let trace = record(|builder| builder.log_sink(sink), || info_span!("kept").in_scope(|| ()));
    for key in reserved {
        trace.add_metadata(key, "[]");
    }
    trace.add_metadata_json("traceEvents", "[]").unwrap();
    let json = read(&trace);
    assert_eq!((rows(&json, "X").len(), json["schemaVersion"].as_u64()), (1, Some(1)));
    let logged = logged.lock().unwrap();
    for key in reserved {
        assert!(logged.iter().any(|text| text.contains(&format!("{key:?}"))), "{key}: {logged:?}");
    }
}

#[test]
fn metadata_may_override_process_keys_once_each() {
    let trace = record(|builder| builder, || info_span!("kept").in_scope(|| ()));
    for key in ["host_name", "trace_id", "distributedInfo"] {
        trace.add_metadata_json(key, "{\"rank\":7}").unwrap();
    }
    let json = read(&trace);
    for key in ["host_name", "trace_id", "distributedInfo"] {
        assert_eq!(json[key]["rank"], 7, "{key}");
    }
}

#[test]
fn names_of_hosts_and_files_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("kineto.conf");
    std::fs::write(&config, "HOST_NAME=h\"o\\st 漢 </script>\n").unwrap();
    let trace = record(|builder| builder.config_file(&config), || info_span!("kept").in_scope(|| ()));
    let path = folder.path().join("a\"b\\c\n漢.json");
    trace.save(&path).unwrap();
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(json["host_name"], "h\"o\\st 漢 </script>");
    assert_eq!(json["traceName"], path.to_str().unwrap());
}

/// Returns short texts of JSON's special characters, in all orders.
fn short_texts() -> Vec<String> {
    let characters = ["a", "\\", "\"", "\n", "/", "{", "}", "[", "]", ",", ":", "u", "\u{1}", "é"];
    let mut texts = vec![String::new()];
    let mut last = texts.clone();
    for _ in 0..3 {
        last = last.iter().flat_map(|text| characters.map(|character| format!("{text}{character}"))).collect();
        texts.extend_from_slice(&last);
    }
    texts
}

/// Defines spans with a field for each of these names, with values that readers do not expect.
macro_rules! spans_with_fields_named {
    ($($field:literal),+ $(,)?) => {
        fn spans_with_fields_of_readers() {
            $(
                info_span!("text", { $field } = "a1-b2").in_scope(|| ());
                info_span!("integer", { $field } = 7).in_scope(|| ());
                info_span!("wide", { $field } = u64::MAX).in_scope(|| ());
                info_span!("wider", { $field } = i128::MIN).in_scope(|| ());
                info_span!("float", { $field } = 0.5).in_scope(|| ());
                info_span!("flag", { $field } = true).in_scope(|| ());
                tracing::info!({ $field } = "a1-b2", "instant");
            )+
        }
    };
}

// Keys that HTA, TensorBoard, Perfetto and chrome://tracing read from `args`.
spans_with_fields_named![
    "stream",
    "correlation",
    "device",
    "context",
    "bytes",
    "queued",
    "cbid",
    "grid",
    "block",
    "registers per thread",
    "shared memory",
    "blocks per SM",
    "warps per SM",
    "est. achieved occupancy %",
    "memory bandwidth (GB/s)",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
    "External id",
    "external id",
    "Ev Idx",
    "Op count",
    "Record function id",
    "finished",
    "Input Dims",
    "Input dims",
    "Input type",
    "Input Strides",
    "Concrete Inputs",
    "Sequence number",
    "Fwd thread id",
    "Call stack",
    "kernel_backend",
    "kernel_hash",
    "batchId",
    "batchSize",
    "Collective name",
    "dtype",
    "In msg nelems",
    "Out msg nelems",
    "In msg size",
    "Out msg size",
    "In split size",
    "Out split size",
    "Group size",
    "Rank",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
    "Input Tensors start",
    "Output Tensors start",
    "Python id",
    "Python parent id",
    "Python module id",
    "Device Id",
    "Device Type",
    "Addr",
    "Bytes",
    "Total Allocated",
    "Total Reserved",
    "name",
    "labels",
    "sort_index",
    "snapshot",
    "step",
    "stack",
    "id",
    "src_file",
];

/// Leaves a trace in `target/hostile`, which `scripts/consumers.sh` gives to each reader.
#[test]
fn trace_of_all_texts_is_written_for_other_readers() {
    let folder = support::target().join("hostile");
    std::fs::create_dir_all(&folder).unwrap();
    let all = short_texts();
    let trace = record(
        |builder| builder.events(tracing::level_filters::LevelFilter::INFO).metadata("note\\", "a \"b\"\\"),
        || {
            let _step = tracing_kineto::annotate!("ProfilerStep#{}", 1).entered();
            spans_of_these_names();
            spans_with_these_fields();
            spans_with_fields_of_readers();
            counters_of_these_names();
            for name in ["ProfilerStep#x", "ProfilerStep#1 again", "ProfilerStep", "after ProfilerStep#1"] {
                info_span!("named", kineto.name = name).in_scope(|| ());
                tracing_kineto::annotate!("{name}").in_scope(|| ());
            }
            for text in &all {
                info_span!("named", kineto.name = text.as_str(), text = text.as_str()).in_scope(|| ());
                tracing::info!(text = text.as_str(), "{text}");
            }
            let types = serde_json::json!(["float\\", "\\\"", ""]).to_string();
            info_span!("aten::mm", types = types.as_str(), call_stack = "a.py(1): f\\").in_scope(|| ());
            for name in TEXTS.iter().filter(|text| !text.contains('\0')) {
                support::on_thread(name, || info_span!("x").in_scope(|| ()));
            }
        },
    );
    trace.add_metadata_json("json\\", r#"{"a\\": ["b\\", "\\\""]}"#).unwrap();
    let path = folder.join("app.1.pt.trace.json");
    trace.save(&path).unwrap();
    trace.save(folder.join("app.1.pftrace")).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    check_ends_of_strings(&text);
    let json: Value = serde_json::from_str(&text).unwrap();
    let named: Vec<&Value> = rows(&json, "X").into_iter().filter(|row| row["args"].get("text").is_some()).collect();
    assert_eq!(texts(&named, |row| row["args"]["text"].clone()), all);
    let mut graph = Vec::new();
    trace.write_execution_trace(&mut graph).unwrap();
    check_ends_of_strings(&String::from_utf8(graph).unwrap());
}

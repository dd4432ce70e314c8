//! Plugins: accelerators recorded by plugin libraries in C and Rust, and faults of plugins.
#![allow(unsafe_code, reason = "the tests call a simulated vendor's functions by name")]

use libloading::{Library, Symbol};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::plugins::compile;
use support::poll_until;
use support::{File, child, cuda, name_of, own_process, simulator};
use tempfile::TempDir;
use tracing::{info_span, subscriber};
use tracing_kineto::integration::CollectorReport;
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ActivityGroup, ActivityType, ActivityTypes, Devices, KinetoLayer, KinetoLayerBuilder, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// Opens a library that the host has already loaded.
fn loaded(library: &Path) -> Library {
    // SAFETY: the library is already loaded, so no initialisers run.
    unsafe { Library::new(library) }.unwrap()
}

/// Links the Rust example into a folder. The process has one instance with one list of records.
fn mtia(folder: &Path) -> PathBuf {
    simulator::assert_own_process();
    let link = folder.join("mtia.so");
    std::os::unix::fs::symlink(cuda::library("kineto_plugin_mtia"), &link).unwrap();
    link
}

/// Returns a builder that loads the plugins of a folder.
fn builder(folder: &Path) -> KinetoLayerBuilder {
    KinetoLayer::builder().devices(Devices::new().plugins(folder))
}

pub(super) fn all(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    builder.activities(ActivityTypes::ALL).no_output().flush_timeout(Duration::from_secs(20))
}

/// Records `work` with the plugins of a folder.
fn record(folder: &TempDir, work: impl FnOnce()) -> File {
    let (layer, guard) = all(builder(folder.path())).build().unwrap();
    subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    File::of(guard.finish().unwrap())
}

pub(super) fn rows<'f>(file: &'f File, ph: &str, cat: &str) -> Vec<&'f Value> {
    let rows = file.json["traceEvents"].as_array().unwrap().iter();
    rows.filter(|row| row["ph"] == ph && row["cat"] == cat).collect()
}

pub(super) fn headings(file: &File, pid: i64) -> BTreeMap<String, Value> {
    let rows = file.json["traceEvents"].as_array().unwrap().iter();
    let meta = rows.filter(|row| row["ph"] == "M" && row["pid"] == pid);
    let named = meta.map(|row| {
        let name = row["name"].as_str().unwrap();
        let of = if name.starts_with("thread") { format!("{name} {}", row["tid"]) } else { name.to_owned() };
        (of, row["args"].as_object().unwrap().values().next().unwrap().clone())
    });
    named.collect()
}

pub(super) fn report<'f>(file: &'f File, name: &str) -> &'f CollectorReport {
    let stats = file.trace.stats();
    let found = stats.collectors.iter().position(|report| report.name == name);
    let at = found.unwrap_or_else(|| panic!("no {name}: {stats}"));
    &Box::leak(Box::new(stats)).collectors[at]
}

/// Checks that all work has an arrow from its call, and the call's slice.
fn check_links(file: &File, calls: &str, work: &[&str]) {
    let calls = rows(file, "X", calls);
    let work: Vec<_> = work.iter().flat_map(|cat| rows(file, "X", cat)).collect();
    assert_eq!(calls.len(), work.len());
    let by_id: BTreeMap<_, _> = calls.iter().map(|row| (row["args"]["correlation"].as_u64().unwrap(), row)).collect();
    for row in &work {
        let call = by_id[&row["args"]["correlation"].as_u64().unwrap()];
        assert_eq!(call["args"]["External id"], row["args"]["External id"], "{call} {row}");
        assert!(row["args"]["External id"].as_u64().unwrap() > 0);
    }
    let ids = |ph: &str| rows(file, ph, "ac2g").iter().map(|row| row["id"].as_u64().unwrap()).collect::<BTreeSet<_>>();
    assert_eq!((ids("s").len(), ids("s")), (work.len(), ids("f")));
}

/// Uses an AIU inside a step.
fn use_aiu(library: &Library) {
    // SAFETY: the library's function of that name has this type.
    let launch: Symbol<'_, unsafe extern "C" fn(*const c_char, c_int)> = unsafe { library.get(c"aiuLaunch") }.unwrap();
    // SAFETY: the library's function of that name has this type.
    let copy: Symbol<'_, unsafe extern "C" fn(usize, c_int)> = unsafe { library.get(c"aiuCopy") }.unwrap();
    // SAFETY: the library's function of that name has this type.
    let wait: Symbol<'_, unsafe extern "C" fn()> = unsafe { library.get(c"aiuSynchronize") }.unwrap();
    let _step = annotate!("step").entered();
    // SAFETY: the function accepts any number.
    info_span!("upload").in_scope(|| unsafe { copy(1 << 20, 0) });
    for layer in 0..3 {
        let name = CString::new(format!("layer_{layer}")).unwrap();
        // SAFETY: the name is a C string.
        info_span!("forward").in_scope(|| unsafe { launch(name.as_ptr(), layer % 2) });
    }
    // SAFETY: the function only waits for the running queues.
    unsafe { wait() };
}

/// Uses an MTIA inside a step.
fn use_mtia(library: &Library) {
    // SAFETY: the library's function of that name has this type.
    let run: Symbol<'_, unsafe extern "C" fn(*const c_char, c_int)> =
        unsafe { library.get(c"mtiaRunFunction") }.unwrap();
    let _step = annotate!("inference").entered();
    for stream in [104, 108, 104] {
        // SAFETY: the name is a C string.
        info_span!("run").in_scope(|| unsafe { run(c"fused_fc".as_ptr(), stream) });
    }
    std::thread::sleep(Duration::from_millis(1));
}

/// Uses an LPU inside a span.
fn use_lpu(library: &Library) {
    // SAFETY: the library's function of that name has this type.
    let run: Symbol<'_, unsafe extern "C" fn()> = unsafe { library.get(c"lpuRun") }.unwrap();
    // SAFETY: the function takes no argument.
    info_span!("work").in_scope(|| unsafe { run() });
}

#[test]
fn plugin_in_c_is_a_collector() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile("examples/plugins/aiu.c", folder.path(), "aiu", &[]);
    let file = record(&folder, || use_aiu(&loaded(&library)));
    assert!(report(&file, "aiu").state.is_ok(), "{}", file.trace.stats());
    check_links(&file, "privateuse1_runtime", &["kernel", "gpu_memcpy"]);
    let [kernels, copies] = ["kernel", "gpu_memcpy"].map(|cat| rows(&file, "X", cat));
    let names: Vec<_> =
        kernels.iter().map(|row| (row["name"].as_str().unwrap(), row["tid"].as_i64().unwrap())).collect();
    assert_eq!(
        names.iter().collect::<BTreeSet<_>>(),
        [("layer_0", 0), ("layer_1", 1), ("layer_2", 0)].iter().collect()
    );
    assert_eq!((&copies[0]["name"], &copies[0]["args"]["bytes"]), (&json!("Memcpy HtoD"), &json!(1 << 20)));
    // On the row of the thread, inside its span.
    let calls = rows(&file, "X", "privateuse1_runtime");
    let upload = file.slices().iter().find(|slice| slice.name == "upload").unwrap();
    assert_eq!((&calls[0]["name"], &calls[0]["tid"]), (&json!("aiuCopy"), &json!(upload.tid)));
    assert_eq!(calls[0]["args"]["External id"], upload.args["External id"]);
    let annotations = rows(&file, "X", "gpu_user_annotation");
    assert_eq!(annotations.iter().filter(|row| row["name"] == "step").count(), 2, "one on each queue");
    let headings = headings(&file, 0);
    let keys = ["process_name", "process_labels", "process_sort_index", "thread_name 0", "thread_name 1"];
    let expected = [json!("AIU"), json!("AIU 0"), json!(6_000_000), json!("queue 0"), json!("queue 1")];
    assert_eq!(keys.map(|key| headings[key].clone()), expected);
    assert_eq!(file.trace.stats().losses, [], "{}", file.trace.stats());
}

#[test]
fn plugin_records_selected_types_alone() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile("examples/plugins/aiu.c", folder.path(), "aiu", &[]);
    let types = ActivityGroup::Cpu.types().with(ActivityType::GpuMemcpy);
    let (layer, guard) = all(builder(folder.path())).activities(types).build().unwrap();
    subscriber::with_default(tracing_subscriber::registry().with(layer), || use_aiu(&loaded(&library)));
    let file = File::of(guard.finish().unwrap());
    let found = ["kernel", "gpu_memcpy", "privateuse1_runtime"].map(|cat| rows(&file, "X", cat).len());
    assert_eq!(found[..2], [0, 1]);
    let types = ActivityGroup::Cpu.types();
    let (layer, guard) =
        all(builder(folder.path())).activities(types.difference(ActivityTypes::RUNTIME)).build().unwrap();
    subscriber::with_default(tracing_subscriber::registry().with(layer), || use_aiu(&loaded(&library)));
    assert!(guard.finish().unwrap().stats().collectors.iter().all(|report| report.name != "aiu"));
}

#[own_process]
fn work_is_linked_without_call_records() {
    let folder = tempfile::tempdir().unwrap();
    let aiu = compile("examples/plugins/aiu.c", folder.path(), "aiu", &[]);
    let mtia = mtia(folder.path());
    let work = [ActivityType::ExternalCorrelation, ActivityType::GpuMemcpy, ActivityType::MtiaCcpEvents];
    let types = ActivityGroup::Cpu.types().union(ActivityTypes::of(&work)).difference(ActivityTypes::RUNTIME);
    let (layer, guard) = all(builder(folder.path())).activities(types).build().unwrap();
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        use_aiu(&loaded(&aiu));
        use_mtia(&loaded(&mtia));
    });
    let file = File::of(guard.finish().unwrap());
    for (cat, span, count) in [("gpu_memcpy", "upload", 1), ("mtia_ccp_events", "run", 3)] {
        let ids = |args: &Value| args["External id"].as_u64().unwrap();
        let spans: BTreeSet<_> =
            file.slices().iter().filter(|slice| slice.name == span).map(|slice| ids(&slice.args)).collect();
        let found: BTreeSet<_> = rows(&file, "X", cat).iter().map(|row| ids(&row["args"])).collect();
        assert_eq!((found.len(), found), (count, spans), "{cat}");
    }
    for name in ["aiu", "mtia"] {
        assert_eq!(report(&file, name).notes, [""; 0], "the plugin delivers selected types alone");
    }
}

#[own_process]
fn plugin_in_rust_is_a_collector() {
    let folder = tempfile::tempdir().unwrap();
    let library = mtia(folder.path());
    let file = record(&folder, || use_mtia(&loaded(&library)));
    assert!(report(&file, "mtia").state.is_ok(), "{}", file.trace.stats());
    check_links(&file, "mtia_runtime", &["mtia_ccp_events"]);
    let work = rows(&file, "X", "mtia_ccp_events");
    let places: Vec<_> = work.iter().map(|row| (row["pid"].as_i64().unwrap(), row["tid"].as_i64().unwrap())).collect();
    assert_eq!(places.iter().collect::<BTreeSet<_>>(), [(17, 104), (17, 108)].iter().collect());
    let counters = rows(&file, "C", "mtia_counters");
    let values: BTreeSet<_> = counters.iter().map(|row| row["args"]["bytes"].as_u64().unwrap()).collect();
    assert_eq!(values, [4096, 8192, 12288].into());
    assert_eq!(rows(&file, "X", "mtia_insight")[0]["name"], "power: 75 W");
    let headings = headings(&file, 17);
    assert_eq!((&headings["process_name"], &headings["thread_name 1000"]), (&json!("MTIA"), &json!("insight")));
    assert_eq!(file.trace.stats().losses, [], "{}", file.trace.stats());
}

#[own_process]
fn two_plugins_record_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let aiu = compile("examples/plugins/aiu.c", folder.path(), "aiu", &[]);
    let mtia = mtia(folder.path());
    for _ in 0..2 {
        let file = record(&folder, || {
            use_aiu(&loaded(&aiu));
            use_mtia(&loaded(&mtia));
        });
        let found = ["privateuse1_runtime", "kernel", "gpu_memcpy", "mtia_runtime", "mtia_ccp_events"];
        assert_eq!(found.map(|cat| rows(&file, "X", cat).len()), [4, 3, 1, 3, 3]);
        // Their arrows are separate, though both count from 1.
        let starts: BTreeSet<_> = rows(&file, "s", "ac2g").iter().map(|row| row["id"].to_string()).collect();
        assert_eq!((starts.len(), rows(&file, "f", "ac2g").len()), (7, 7));
    }
}

#[test]
fn unknown_accelerator_needs_no_change_in_the_crate() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile("tests/devices/accelerators/lpu.c", folder.path(), "lpu", &[]);
    let file = record(&folder, || use_lpu(&loaded(&library)));
    let report = report(&file, "lpu_v2");
    let can = report.state.as_ref().unwrap();
    assert!(can.notes.iter().any(|note| note.ends_with(": 77")), "{can:?}");
    assert!(report.notes.iter().any(|note| note == "rejected: 1 events of unknown types"), "{report:?}");
    let of = |ph: &str, cat: &str, name: &str| {
        let rows: Vec<_> = rows(&file, ph, cat).into_iter().filter(|row| row["name"] == name).collect();
        assert_eq!(rows.len(), 1, "{cat} {name}");
        rows[0].clone()
    };
    let [runtime, driver] = [("privateuse1_runtime", "lpuEnqueue"), ("privateuse1_driver", "lpuSubmit")]
        .map(|(cat, name)| of("X", cat, name));
    assert_eq!((&runtime["tid"], &driver["tid"]), (&json!(4242), &json!(4243)));
    let kernel = of("X", "kernel", "attention");
    assert_eq!((&kernel["pid"], &kernel["tid"]), (&json!(3), &json!(1)));
    assert_eq!(kernel["args"], json!({"load %": 12.5, "cycles": 1234, "shape": [1, [2, 3], "x"]}));
    assert_eq!(of("i", "cpu_instant_event", "reset")["tid"], json!(4242));
    let counters = rows(&file, "C", "hardware_counters");
    let seen: Vec<_> = counters.iter().map(|row| (&row["name"], &row["pid"], &row["args"][""])).collect();
    let group = json!("GPU 3 Counters");
    assert_eq!(seen, [(&json!("load %"), &group, &json!(12.5)), (&json!("cycles"), &group, &json!(1234))]);
    assert_eq!(headings(&file, 3)["process_labels"], json!("LPU 3"));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a child process has another environment")]
fn hpu_operations_are_recorded() {
    if std::env::var_os("LPU_HPU").is_none() {
        child::run(child::command(name_of(hpu_operations_are_recorded)).env("LPU_HPU", "1"));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = compile("tests/devices/accelerators/lpu.c", folder.path(), "hpu", &[]);
    let (layer, guard) = all(builder(folder.path()))
        .activities(ActivityGroup::Hpu.types().union(ActivityGroup::Cpu.types()))
        .build()
        .unwrap();
    subscriber::with_default(tracing_subscriber::registry().with(layer), || use_lpu(&loaded(&library)));
    let trace = guard.finish().unwrap();
    let events = trace.events();
    let ops: Vec<_> = events.iter().filter(|event| event.kind() == Some(ActivityType::HpuOp)).collect();
    assert_eq!(ops.len(), 1);
    assert_eq!((ops[0].name(), ops[0].device_type()), ("gemm", Some(tracing_kineto::activity::DeviceType::Hpu)));
}

/// Faults of a plugin: the fault, the reason if it cannot record (else empty), and its notes.
const FAULTS: [(&str, &str, &[&str]); 24] = [
    ("REGISTER_FAILS", "KinetoPlugin_register failed with status 2", &[]),
    ("REGISTERS_NOTHING", "it registers no profiler", &[]),
    ("NULL_INTERFACE", "it registers null instead of a struct", &[]),
    ("SMALL_INTERFACE", "it registers structs smaller than in any version", &[]),
    ("NO_STOP", "its profiler lacks the function profilerStop", &[]),
    ("QUERY_FAILS", "profilerQuery failed with status 3", &[]),
    ("NO_NAME", "", &[]),
    ("LONG_NAME", "", &[]),
    ("CREATE_FAILS", "profilerCreate failed with status 4", &[]),
    ("NO_PROFILER", "profilerCreate made no profiler", &[]),
    ("START_FAILS", "profilerStart failed with status 5", &[]),
    ("STOP_FAILS", "", &["profilerStop failed with status 6"]),
    ("PROCESS_FAILS", "", &["profilerProcessEvents failed with status 7"]),
    ("DESTROY_FAILS", "", &["profilerDestroy failed with status 8"]),
    ("STOP_HANGS", "", &["the plugin hung during stop; records that it had not delivered are lost"]),
    ("PUSH_FAILS", "", &[]),
    ("NULLS", "", &["rejected: 4 null instead of a struct", "rejected: 3 null instead of a text"]),
    ("SMALL_STRUCTS", "", &["rejected: 4 structs smaller than in any version"]),
    (
        "BAD_EVENTS",
        "",
        &[
            "rejected: 1 events of types that are not selected",
            "rejected: 2 events of unknown types",
            "rejected: 2 events with invalid times",
        ],
    ),
    ("BAD_METADATA", "", &["rejected: 3 arguments whose value is not JSON (a string needs quotes)"]),
    ("NOTHING_BEFORE", "", &["rejected: 2 calls for a rejected event", "rejected: 1 null instead of a struct"]),
    ("KEEPS_BUILDER", "", &[]),
    (
        "BAD_FLOWS",
        "",
        &[
            "rejected: 1 arrows from forward to backward, which only spans define",
            "rejected: 2 arrows of unknown kind or without an id",
        ],
    ),
    (
        "BAD_DEVICES",
        "",
        &[
            "rejected: 904 devices or parts of them beyond the first 4096",
            "rejected: 1 devices with a number beyond 32 bits",
        ],
    ),
];

#[test]
fn plugin_faults_are_contained_and_reported() {
    let folders: Vec<_> = FAULTS.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    for ((fault, refused, notes), folder) in FAULTS.iter().zip(&folders) {
        compile("tests/devices/accelerators/faulty.c", folder.path(), "faulty", &[&format!("-DFAULT={fault}")]);
        let patience = Duration::from_millis(if *fault == "STOP_HANGS" { 200 } else { 20_000 });
        let (layer, guard) = all(builder(folder.path())).flush_timeout(patience).build().unwrap();
        subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let _step = annotate!("step").entered();
            info_span!("work").in_scope(|| std::thread::sleep(Duration::from_millis(1)));
        });
        let file = File::of(guard.finish().unwrap());
        assert!(file.slices().iter().any(|slice| slice.name == "work"), "{fault}: the host is recorded");
        let stats = file.trace.stats();
        let name = if *fault == "LONG_NAME" { "x".repeat(32) } else { "faulty".to_owned() };
        let report = stats.collectors.iter().find(|report| report.name == name);
        let report = report.unwrap_or_else(|| panic!("{fault}: {stats}"));
        match &report.state {
            Ok(_) => assert_eq!(*refused, "", "{fault}"),
            Err(reason) => assert!(!refused.is_empty() && reason.message().contains(refused), "{fault}: {reason}"),
        }
        let found: Vec<_> = report.notes.iter().map(String::as_str).collect();
        assert_eq!(&found[..], *notes, "{fault}");
        let whole = rows(&file, "X", "kernel").into_iter().filter(|row| row["name"] == "whole").count();
        let expected = usize::from(refused.is_empty() && *fault != "STOP_HANGS");
        assert_eq!(whole, expected, "{fault}: {stats}");
    }
}

#[test]
fn hung_plugin_does_not_block_the_program() {
    let hangs = |fault: &str, refused: &str| {
        let folder = tempfile::tempdir().unwrap();
        compile("tests/devices/accelerators/faulty.c", folder.path(), "faulty", &[&format!("-DFAULT={fault}")]);
        let file = record(&folder, || info_span!("work").in_scope(|| ()));
        assert!(file.slices().iter().any(|slice| slice.name == "work"), "{fault}: the host is recorded");
        let reason = report(&file, "faulty").state.as_ref().unwrap_err().to_string();
        assert!(reason.contains(refused), "{fault}: {reason}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| hangs("QUERY_HANGS", "no registration within 10 s"));
        scope.spawn(|| hangs("START_HANGS", "no start within 10 s"));
    });
}

#[test]
#[expect(clippy::print_stdout, reason = "prints why a part is skipped")]
fn header_compiles_as_c_and_cpp() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiles = |compiler: &str, standard: &str, language: &str, source: &str| {
        let mut command = Command::new(compiler);
        command.args([standard, "-x", language, "-Wall", "-Wextra", "-pedantic", "-Werror", "-D_GNU_SOURCE"]);
        match command.arg("-fsyntax-only").arg("-I").arg(root.join("include")).arg(root.join(source)).output() {
            Ok(output) => {
                assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
                true
            }
            Err(_) => false,
        }
    };
    for source in ["include/kineto_plugin.h", "examples/plugins/aiu.c"] {
        assert!(compiles("cc", "-std=c11", "c", source), "no C compiler");
    }
    if !compiles("c++", "-std=c++14", "c++", "include/kineto_plugin.h") {
        println!("skipped: no C++ compiler");
    }
}

#[test]
fn arguments_keep_their_json_types() {
    let folder = tempfile::tempdir().unwrap();
    compile("tests/devices/accelerators/faulty.c", folder.path(), "faulty", &["-DFAULT=BAD_METADATA"]);
    let file = record(&folder, || info_span!("work").in_scope(|| std::thread::sleep(Duration::from_millis(1))));
    let kernels = rows(&file, "X", "kernel");
    let args = json!({"twice": 2, "huge": 1.2345678901234568e29, "\u{fffd}\"\n": "\0 \" \u{fffd}("});
    assert_eq!(kernels[0]["args"].to_string(), args.to_string());
}

// Shows the key KINETO_PLUGIN_LIB_DIR_PATH.
#[test]
fn file_that_is_not_a_plugin_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.so"), "no library").unwrap();
    std::fs::write(folder.path().join("readme.txt"), "ignored").unwrap();
    std::os::unix::fs::symlink(cuda::library("sim_nvtx"), folder.path().join("other.so")).unwrap();
    let reasons = |builder: KinetoLayerBuilder| {
        let (_layer, guard) = all(builder).record_from_start(false).build().unwrap();
        let reports = guard.profiler().collectors();
        let reasons = reports
            .iter()
            .filter_map(|report| Some((report.name.to_owned(), report.state.as_ref().err()?.to_string())));
        reasons.collect::<BTreeMap<_, _>>()
    };
    let found = reasons(builder(folder.path()));
    assert!(found["text"].contains("invalid ELF header") || found["text"].contains("file too short"), "{found:?}");
    assert!(found["other"].contains("it lacks KinetoPlugin_register"), "{found:?}");
    assert!(!found.contains_key("readme"));
    let nowhere = reasons(builder(&folder.path().join("nowhere")));
    assert!(nowhere["plugins"].contains("cannot read the folder"), "{nowhere:?}");
    assert!(nowhere["plugins"].contains("KINETO_PLUGIN_LIB_DIR_PATH"), "{nowhere:?}");
}

#[test]
fn annotations_are_pushed_separately_when_supported() {
    for (defines, expected) in [(&["-DUSERS"][..], "[([])()()[()][][]]"), (&[], "((())()()(())()())")] {
        let folder = tempfile::tempdir().unwrap();
        let library = compile("tests/devices/accelerators/pushes.c", folder.path(), "pushes", defines);
        let mut letters = String::new();
        record(&folder, || {
            let library = loaded(&library);
            let step = annotate!("step").entered();
            info_span!("op").in_scope(|| annotate!("inner {}", 1).in_scope(|| ()));
            // The first value sets the kind of the callsite.
            let kind = || info_span!("by kind", kineto.kind = "cpu_op");
            kind().in_scope(|| ());
            kind().in_scope(|| ());
            let kind = info_span!("by kind", kineto.kind = "user_annotation");
            kind.in_scope(|| info_span!("op").in_scope(|| ()));
            let again = annotate!("again");
            again.in_scope(|| ());
            again.in_scope(|| ());
            drop(step);
            // SAFETY: the library's function of that name has this type.
            let what: Symbol<'_, extern "C" fn() -> *const c_char> = unsafe { library.get(c"pushedLetters") }.unwrap();
            // SAFETY: the function returns a C string that stays valid.
            letters = unsafe { std::ffi::CStr::from_ptr(what()) }.to_str().unwrap().to_owned();
        });
        assert_eq!(letters, expected, "{defines:?}");
    }
}

/// Calls a function of a test's plugin.
fn call_plugin(library: &Library, name: &str) -> c_int {
    // SAFETY: the library's functions of these names take no argument.
    let function: Symbol<'_, unsafe extern "C" fn() -> c_int> = unsafe { library.get(name.as_bytes()) }.unwrap();
    // SAFETY: the same.
    unsafe { function() }
}

#[test]
fn plugin_records_after_a_dropped_preparation() {
    let folder = tempfile::tempdir().unwrap();
    compile("tests/devices/accelerators/pushes.c", folder.path(), "pushes", &[]);
    let (_layer, guard) = all(builder(folder.path())).record_from_start(false).build().unwrap();
    let profiler = guard.profiler();
    for round in 0..10 {
        drop(Libkineto::of(&profiler).prepare().unwrap());
        profiler.start().unwrap();
        let stats = profiler.stop().unwrap().stats();
        let report = stats.collectors.iter().find(|report| report.name == "pushes").unwrap();
        assert!(report.state.is_ok() && report.notes.is_empty(), "{round}: {stats}");
    }
}

#[test]
fn plugin_is_used_again_after_a_slow_start() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile("tests/devices/accelerators/faulty.c", folder.path(), "faulty", &["-DFAULT=START_IS_SLOW"]);
    let (_layer, guard) = all(builder(folder.path())).record_from_start(false).build().unwrap();
    let (library, profiler) = (loaded(&library), guard.profiler());
    let can = || profiler.collectors().iter().any(|report| report.name == "faulty" && report.state.is_ok());
    profiler.start().unwrap();
    let stats = profiler.stop().unwrap().stats();
    assert!(stats.collectors.iter().any(|report| report.name == "faulty" && report.state.is_err()), "{stats}");
    assert!(!can(), "its start has not returned");
    call_plugin(&library, "allowStop");
    poll_until(can);
    assert_eq!(call_plugin(&library, "destroyedProfilers"), 1, "the profiler of no recording");
}

#[test]
fn plugin_is_used_again_after_a_slow_push() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile("tests/devices/accelerators/faulty.c", folder.path(), "faulty", &["-DFAULT=PUSH_IS_SLOW"]);
    let builder = all(builder(folder.path())).flush_timeout(Duration::from_millis(1));
    let (layer, guard) = builder.record_from_start(false).build().unwrap();
    let (library, profiler) = (loaded(&library), guard.profiler());
    let can = || profiler.collectors().iter().any(|report| report.name == "faulty" && report.state.is_ok());
    let registry = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    profiler.start().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| tracing::dispatcher::with_default(&registry, || info_span!("pushes").in_scope(|| ())));
        poll_until(|| call_plugin(&library, "begunPushes") > 0);
        let stats = profiler.stop().unwrap().stats();
        let report = stats.collectors.iter().find(|report| report.name == "faulty").unwrap();
        assert!(report.notes.iter().any(|note| note.contains("hung in a push")), "{stats}");
        assert!(!can() && call_plugin(&library, "destroyedProfilers") == 0, "a thread is in it");
        call_plugin(&library, "allowStop");
    });
    poll_until(can);
    assert_eq!(call_plugin(&library, "destroyedProfilers"), 1);
}

#[test]
fn plugin_is_used_again_after_a_slow_stop() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile("tests/devices/accelerators/faulty.c", folder.path(), "faulty", &["-DFAULT=STOP_IS_SLOW"]);
    let builder = builder(folder.path());
    let (_layer, guard) =
        all(builder).record_from_start(false).flush_timeout(Duration::from_millis(1)).build().unwrap();
    let library = loaded(&library);
    let profiler = guard.profiler();
    let can = || profiler.collectors().iter().any(|report| report.name == "faulty" && report.state.is_ok());
    for _ in 0..2 {
        profiler.start().unwrap();
        let stats = profiler.stop().unwrap().stats();
        let report = stats.collectors.iter().find(|report| report.name == "faulty").unwrap();
        assert!(report.state.is_ok() && report.notes.iter().any(|note| note.contains("hung during stop")), "{stats}");
        assert!(!can(), "its stop has not returned");
        call_plugin(&library, "allowStop");
        poll_until(can);
    }
}

//! Tests the doctor with each library, without a driver and with a foreign one, and each library without our checks.

use crate::child::{self, ChildResult};
use crate::report;
use crate::wheel::{self, Wheel};
use serde_json::Value;
use std::fs;
use std::path::Path;
use support::cuda;
use support::harness::Test;

pub(crate) const TESTS: &[Test] = &[("every_library_is_told_of_and_none_is_called", each_library)];

/// Returns the functions that `ffi.rs` resolves: required ones and optional ones.
fn functions() -> (Vec<String>, Vec<String>) {
    let source = support::root().join("crates/kineto-devices/src/cupti/ffi.rs");
    let source = fs::read_to_string(source).unwrap();
    let (_, list) = source.split_once("\nfunctions! {").unwrap();
    let (required, optional) = list.split_once("optional {").unwrap();
    let (optional, _) = optional.split_once("\n}").unwrap();
    let names = |text: &str| {
        let parts = text.split("c\"").skip(1).filter_map(|part| part.split_once('"'));
        parts.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    (names(required), names(optional))
}

/// Runs the doctor; returns the reason, whether it opened a libcupti, and its exit.
fn diagnose(library: &Path, env: &[(&str, &str)]) -> (String, bool, String) {
    let arguments = ["doctor", "--json", "--start", "--cupti", library.to_str().unwrap()];
    let ChildResult { lines, end } = child::run(env!("CARGO_BIN_EXE_kineto").as_ref(), &arguments, env);
    let found: Value = serde_json::from_str(&lines.concat()).unwrap_or_else(|e| panic!("{library:?}: {end}: {e}"));
    let cupti = &found["collectors"][0];
    let reason = found["error"].as_str().or(cupti["reason"]["message"].as_str()).unwrap_or("none").to_owned();
    let is_opening =
        |attempt: &Value| attempt["what"].as_str().unwrap().contains("libcupti") && attempt["outcome"] == "opened";
    (reason, cupti["attempts"].as_array().is_some_and(|attempts| attempts.iter().any(is_opening)), end)
}

/// Returns the simulated driver without the function that the simulated libcupti needs of it.
fn driver_without_export_table() -> Vec<u8> {
    const NAMES: [&[u8; 16]; 2] = [b"cuGetExportTable", b"cuGetNothingElse"];
    let mut bytes = fs::read(cuda::library("sim_cuda")).unwrap();
    let places: Vec<_> = bytes.windows(16).enumerate().filter(|(_, name)| name == NAMES[0]).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at..at + 16].copy_from_slice(NAMES[1]));
    bytes
}

fn each_library() {
    let (required, optional) = functions();
    assert!(required.len() >= 12 && optional.len() >= 5, "{required:?} {optional:?}");
    let stub = tempfile::tempdir().unwrap();
    fs::write(stub.path().join("libcuda.so.1"), driver_without_export_table()).unwrap();
    let path = ("LD_LIBRARY_PATH", stub.path().to_str().unwrap());
    let (stub, simulated) = ([path, ("SIM_CUDA", "driver=0")], [path, ("SIM_CUDA", "driver=13000")]);
    let mut rows = Vec::new();
    for wheel in wheel::all() {
        let Wheel { version, library, .. } = &wheel;
        let all: Vec<_> = required.iter().chain(&optional).map(String::as_str).collect();
        let arguments: Vec<_> = [library.to_str().unwrap()].into_iter().chain(all.iter().copied()).collect();
        let found = child::start("symbols", &arguments);
        assert_eq!(found.end, "exit 0", "{version}");
        let there = |name: &&String| found.lines.contains(name);
        assert!(required.iter().all(|name| there(&name)), "{version} has only {:?}", found.lines);
        let missing: Vec<_> = optional.iter().filter(|name| !there(name)).map(String::as_str).collect();
        let (reason, opened, end) = diagnose(library, &[]);
        let (by_stub, opened_by_stub, end_by_stub) = diagnose(library, &stub);
        if !wheel::has_driver() {
            assert_eq!(
                (reason.as_str(), end.as_str()),
                ("there is no CUDA driver (libcuda.so.1)", "exit 1"),
                "{version}"
            );
            assert!(!opened, "{version} was opened without a driver");
        }
        let expected = ("libcuda.so.1 is the toolkit's stub, not a driver", "exit 1");
        assert_eq!((by_stub.as_str(), end_by_stub.as_str()), expected, "{version}");
        assert!(!opened_by_stub, "{version} was opened for a stub");
        // A driver that answers but is not NVIDIA's: no library works with it, and none crashes the tool.
        let (by_simulated, _, end_by_simulated) = diagnose(library, &simulated);
        assert_eq!(end_by_simulated, "exit 1", "{version}: {by_simulated}");
        let refused = by_simulated.contains("cuGetExportTable");
        assert_eq!(refused, **version >= *"13.2", "{version}: {by_simulated}");
        let control = child::start("version", &[library.to_str().unwrap()]);
        if !wheel::has_driver() {
            // 13.2 recurses until its stack overflows; later ones do not answer.
            let dies = version == "13.2";
            assert_eq!(control.end.starts_with("signal"), dies, "{version}: {control:?}");
            assert_eq!(control.end.ends_with("stack overflow"), dies, "{version}: {control:?}");
            assert_eq!(
                control.lines.first().is_some_and(|line| line.starts_with("0 ")),
                **version < *"13.2",
                "{control:?}"
            );
        }
        let missing = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
        let name = library.file_name().unwrap().to_str().unwrap();
        rows.push(vec![
            version.clone(),
            name.to_owned(),
            format!("{} of {}", required.len(), required.len()),
            missing,
            format!("{reason}: {end}"),
            format!("{by_stub}: {end_by_stub}"),
            format!("{}: {end_by_simulated}", by_simulated.split(", as it would").next().unwrap()),
            [control.lines.join(" "), control.end].join(" ").trim().to_owned(),
        ]);
    }
    let columns = [
        "CUPTI",
        "library",
        "required functions",
        "optional ones it lacks",
        "`kineto doctor` without a driver",
        "with the stub for a driver",
        "with the simulated driver",
        "cuptiGetVersion without our gate: code, version, end",
    ];
    report::table("The doctor against NVIDIA's libraries", &columns, &rows);
}

//! Files that people met, through every command that reads traces.

use super::run;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A file, and what commands say about it.
struct Input {
    name: &'static str,
    /// The span in microseconds, the slices, and the time in which devices were busy.
    figures: (f64, u64, Option<f64>),
    /// What lines of `summary` contain, with single spaces.
    summary: &'static [&'static str],
    /// The problems in `validate`, other than the file's name.
    problems: &'static [&'static str],
    /// What `repair` prints behind the name of a file.
    repair: &'static str,
    /// A figure of `check`, its name, and the number found.
    count: (&'static str, &'static str, u64),
}

const OVERLONG: &str =
    "every viewer shows work that did not run meanwhile: slices outlast the recording, or device work most of";
const INVALID: &str = "TensorBoard and HTA reject the file: texts, words or commas of the file are not JSON (1)";
const INVALID_NOTE: &str = "note: invalid_json (1); other readers read it too; `kineto repair` fixes it";

const INPUTS: [Input; 12] = [
    Input {
        name: "merged_ranks",
        figures: (930.0, 6, Some(800.0)),
        summary: &[
            "note: repeated_id (1); launches are joined within each prefix of process ids",
            "43.0 % 400.000us kernel_rank1",
        ],
        problems: &[
            "TensorBoard shows no GPU utilization: device events have another `device` than their process id (2)",
        ],
        repair: "whole, 6 events",
        count: ("kernels", "kernel_rank1", 1),
    },
    Input {
        name: "kernel_ts_zero",
        figures: (100.0, 4, Some(50.0)),
        summary: &["note: without_time (1); left out", "100.000us 4 slices", "No problem was found."],
        problems: &["every viewer rounds them, so that slices that touch overlap: times are so far from"],
        repair: "whole, 4 events",
        count: ("kernels", "sgemm", 1),
    },
    Input {
        name: "kernel_236_years",
        figures: (7_447_680_000_000_061.0, 6, Some(7_447_680_000_000_030.0)),
        summary: &[
            "note: overlong_work (1); outlasts its stream or recording; counted as recorded",
            "1 `corrupt` is recorded to last 7447680000s",
        ],
        problems: &[OVERLONG],
        repair: "whole, 6 events",
        count: ("kernels", "ok", 2),
    },
    Input {
        name: "kernel_overruns_its_stream",
        figures: (1_602_010.0, 20, Some(1_601_800.0)),
        summary: &[
            "note: overlong_work (1); outlasts its stream or recording; counted as recorded",
            "1 `attention` is recorded to last 1.600s",
        ],
        problems: &[OVERLONG],
        repair: "whole, 20 events",
        count: ("kernels", "gemm", 9),
    },
    Input {
        name: "negative_ts",
        figures: (70_983.0, 2, None),
        summary: &["70.983ms 2 slices"],
        problems: &[],
        repair: "whole, 2 events",
        count: ("spans", "n", 2),
    },
    Input {
        name: "windows_path",
        figures: (13.0, 2, None),
        summary: &[INVALID_NOTE, "aten::mm"],
        problems: &[INVALID],
        repair: "2 events; rewrote 1 place that was not JSON",
        count: ("spans", "aten::mm", 1),
    },
    Input {
        name: "raw_control_character",
        figures: (3.0, 1, None),
        summary: &[INVALID_NOTE, "3.000us 1 slice"],
        problems: &[INVALID],
        repair: "1 event; rewrote 1 place that was not JSON",
        count: ("spans", "config*", 1),
    },
    Input {
        name: "bare_NA",
        figures: (0.0, 1, Some(0.0)),
        summary: &[INVALID_NOTE, "Memcpy HtoD"],
        problems: &[INVALID, "HTA lacks them in launch and queue figures"],
        repair: "1 event; rewrote 1 place that was not JSON",
        count: ("copies", "Memcpy HtoD", 1),
    },
    Input {
        name: "array_trailing_comma",
        figures: (5.0, 1, None),
        summary: &[INVALID_NOTE, "a 5.000us"],
        problems: &[INVALID],
        repair: "1 event; rewrote 1 place that was not JSON",
        count: ("spans", "a", 1),
    },
    Input {
        name: "array_without_end",
        figures: (5.0, 2, None),
        summary: &["note: open_list (1); the file may lack its end", "a 3.000us 5.000us", "b 2.000us 2.000us"],
        problems: &["TensorBoard and HTA reject the file: the list of events has no end (1)"],
        repair: "2 events; dropped 2 bytes at the end",
        count: ("spans", "b", 1),
    },
    Input {
        name: "be_end_names_a",
        figures: (11.0, 3, None),
        summary: &["note: misplaced_end (1); paired by name", "A 1.000us 10.000us"],
        problems: &[],
        repair: "whole, 3 events",
        count: ("spans", "B", 1),
    },
    Input {
        name: "jax_like",
        figures: (500.25, 3, Some(300.5)),
        summary: &["The device is busy 100 % of 300.500us", "Pjit(step)", "fusion_3"],
        problems: &[
            "HTA takes them for host events: device events have no integer argument `stream` (1)",
            "HTA lacks them in launch and queue figures",
        ],
        repair: "whole, 3 events",
        count: ("kernels", "fusion_3", 1),
    },
];

/// Returns a line with single spaces.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../kineto-trace/tests/data/inputs/{name}.json"))
}

/// Runs a command that succeeds without a word of error; returns its output.
#[track_caller]
fn succeed(arguments: &[&str]) -> String {
    succeed_without(arguments, "")
}

/// Runs a command that succeeds and reports only what it left out; returns its output.
#[track_caller]
fn succeed_without(arguments: &[&str], left_out: &str) -> String {
    let (out, errors, status) = run(arguments);
    let expected = if left_out.is_empty() { String::new() } else { format!("{}: left out {left_out}\n", arguments[1]) };
    assert_eq!((errors, status), (expected, Some(0)), "{arguments:?}: {out}");
    out
}

/// Checks the figures of a trace. How the last digit of a number of 16 is read depends on the features of `serde_json`.
#[track_caller]
fn assert_figures(path: &str, input: &Input) {
    let (span, slices, busy) = figures(path);
    let (expected, of_slices, of_busy) = input.figures;
    let is_close = |a: f64, b: f64| (a - b).abs() <= b.abs() * 1e-15;
    assert!(is_close(span, expected), "{}: {span} for {expected}", input.name);
    assert_eq!((slices, busy.is_some()), (of_slices, of_busy.is_some()), "{}", input.name);
    assert!(busy.zip(of_busy).is_none_or(|(busy, expected)| is_close(busy, expected)), "{}: {busy:?}", input.name);
}

/// Returns the figures of a trace in [`Input::figures`].
#[track_caller]
fn figures(path: &str) -> (f64, u64, Option<f64>) {
    let found: Value = serde_json::from_str(&succeed(&["summary", "--json", path])).unwrap();
    let load = &found["load"];
    (load["span"].as_f64().unwrap(), load["slices"].as_u64().unwrap(), found["temporal"]["busy"].as_f64())
}

#[test]
fn each_input_has_its_result_in_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for input in INPUTS {
        let (name, path) = (input.name, path_of(input.name));
        let path = path.to_str().unwrap();
        assert_figures(path, &input);
        let summary = succeed(&["summary", path]);
        for line in input.summary {
            assert!(summary.lines().any(|found| squeezed(found).contains(line)), "{name}: {line}\n{summary}");
        }
        for command in ["table", "path", "stacks"] {
            succeed(&[command, path]);
        }
        let (report, errors, status) = run(&["validate", path]);
        assert_eq!((errors.as_str(), status), ("", Some(1)), "{name}: its name is not TensorBoard's");
        let problems: Vec<_> =
            report.lines().filter(|line| line.starts_with("  ") && !line.starts_with("    ")).collect();
        assert_eq!(problems.len(), 1 + input.problems.len(), "{name}: {report}");
        for (found, expected) in problems.iter().zip(input.problems) {
            assert!(found.contains(expected), "{name}: {expected}\n{report}");
        }
        let left_out = if name == "kernel_ts_zero" { "1 event: without_time (1)" } else { "" };
        for format in ["json", "pftrace", "json.gz"] {
            let converted = at(&format!("{name}.{format}"));
            succeed_without(&["convert", path, "-o", &converted], left_out);
            assert_figures(&converted, &input);
        }
        for format in ["csv", "speedscope.json", "folded"] {
            succeed_without(&["convert", path, "-o", &at(&format!("{name}.{format}"))], left_out);
        }
        check_repair(&input, path, left_out, &at(&format!("{name}.repaired.json")));
        let (figure, of, count) = input.count;
        let rules = at("rules.toml");
        fs::write(&rules, format!("[[rule]]\nfigure = \"{figure}\"\nof = \"{of}\"\nmin = {count}\nmax = {count}\n"))
            .unwrap();
        succeed(&["check", &rules, path]);
        let page = at("page.html");
        succeed(&["report", path, "-o", &page]);
        assert!(fs::read_to_string(&page).unwrap().contains(&format!("{name}.json")), "{name}");
        let (out, errors, status) = run(&["diff", path, path]);
        assert!(errors.is_empty() && status == Some(0), "{name}: {out}{errors}");
    }
}

/// Repairs a file, and checks that the copy is JSON with the same figures.
fn check_repair(input: &Input, path: &str, left_out: &str, output: &str) {
    let out = succeed_without(&["repair", path, "-o", output], left_out);
    assert!(out.trim_end().ends_with(&format!(": {}", input.repair)), "{}: {out}", input.name);
    if input.repair.starts_with("whole") {
        assert!(!Path::new(output).exists());
        return;
    }
    serde_json::from_slice::<Value>(&fs::read(output).unwrap()).unwrap();
    assert_figures(output, input);
    let (report, _, _) = run(&["validate", output]);
    assert!(!report.contains("reject the file"), "{report}");
}

#[test]
fn every_input_of_the_folder_is_in_the_table() {
    let names = fs::read_dir(path_of("a").parent().unwrap()).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    let mut known = INPUTS.map(|input| input.name);
    known.sort_unstable();
    assert_eq!(names, known);
}

#[test]
fn faults_name_the_line_and_options_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.json");
    let path = path.to_str().unwrap();
    for (text, expected) in [
        (
            "{\"traceEvents\": [\n{\"ph\": \"X\", \"ts\": 1, \"dur\": 1},\n{\"ph\"",
            ": cut off at line 3, column 6 (byte ",
        ),
        (
            "{\"traceEvents\": [\n{\"ph\": \"X\" \"ts\": 1}]}",
            "expected a comma or the object's end at line 2, column 12 (byte ",
        ),
        (
            "{\"traceEvents\": [\n{\"ph\": \"X\", \"ts\": 01}]}",
            "expected a number without leading zeros at line 2, column 20 (byte ",
        ),
    ] {
        fs::write(path, text).unwrap();
        for command in
            [&["summary", path][..], &["validate", path], &["table", path], &["path", path], &["stacks", path]]
        {
            let (_, errors, status) = run(command);
            assert!(status == Some(1) && errors.contains(expected) && !errors.contains("::"), "{command:?}: {errors}");
            assert_eq!(
                errors.contains("--partial") && errors.contains("`kineto repair`"),
                expected.contains("cut off"),
                "{errors}"
            );
        }
    }
    fs::write(path, "{\"traceEvents\": [\n{\"ph\": \"X\", \"name\": \"a\", \"ts\": 1, \"dur\": 1},\n{\"ph\"").unwrap();
    let (out, errors, status) = run(&["validate", "--partial", path]);
    assert!(errors.is_empty() && status == Some(1) && out.contains("TensorBoard does not list"), "{out}{errors}");
}

#[test]
fn folder_is_no_trace_of_commands_that_read_one() {
    let (folder, _, _) = super::traces();
    let path = folder.path().to_str().unwrap();
    let output = folder.path().join("out.csv");
    for command in
        [&["table", path][..], &["path", path], &["stacks", path], &["convert", path, "-o", output.to_str().unwrap()]]
    {
        let (_, errors, status) = run(command);
        assert!(errors.ends_with(": it is a folder; name one of its traces, such as cut.json\n"), "{errors}");
        assert_eq!(status, Some(1));
    }
}

//! Tests of `kineto summary` on good and broken files: output and exit status.

use super::{TRACE, command, run, texts, traces};
use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;

#[test]
fn summary_starts_with_the_answer() {
    let (_folder, whole, _) = traces();
    let (out, errors, status) = run(&["summary", whole.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], whole.to_str().unwrap());
    assert_eq!(lines[1], "15.000us   3 slices   1 device   1 stream");
    assert!(lines[3].starts_with("The device is busy 100 % of 10.000us"), "{out}");
    assert!(out.contains("gemm") && out.contains("cudaLaunchKernel") && !out.contains('\u{1b}'), "{out}");
}

/// A file as tracing-chrome writes it, in its default style (B and E) and in its style `Async` (b and e).
fn tracing_chrome_files(folder: &std::path::Path) -> [String; 2] {
    [("B", "E"), ("b", "e")].map(|(begin, end)| {
        let row = |ph: &str, name: &str, ts: f64| {
            let rest = r#""cat":"app::server","pid":1,"tid":0,".file":"src/main.rs",".line":7,"id":1"#;
            format!(r#"{{"ph":"{ph}","name":"{name}","ts":{ts},{rest}}}"#)
        };
        let rows = [
            r#"{"ph":"M","pid":1,"name":"thread_name","tid":0,"args":{"name":"main"}}"#.to_owned(),
            row(begin, "request", 0.0),
            row(begin, "parse", 10.5),
            row(end, "parse", 30.5),
            row(end, "request", 90.0),
        ];
        let path = folder.join(format!("{begin}.json"));
        std::fs::write(&path, format!("[\n{}\n]", rows.join(",\n"))).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

#[test]
fn spans_of_tracing_chrome_are_operations() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\nfigure = \"duration.max\"\nof = \"parse\"\nmax = \"19 us\"\n").unwrap();
    let files = tracing_chrome_files(folder.path());
    for path in &files {
        let (out, errors, status) = run(&["summary", path]);
        assert_eq!((errors.as_str(), status), ("", Some(0)), "{out}");
        assert!(out.contains("90.000us   2 slices\n") && out.contains("Operations, by self time"), "{out}");
        let cells = |name: &str| {
            let line = out.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{out}"));
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cells("request"), ["request", "70.000us", "90.000us", "90.000us", "1"]);
        assert_eq!(cells("parse"), ["parse", "20.000us", "20.000us", "20.000us", "1"]);
        let (out, _, status) = run(&["check", rules.to_str().unwrap(), path]);
        assert!(status == Some(3) && out.contains("found 20 us; of 1 span"), "{out}");
        assert_eq!(run(&["stacks", path]).0, "request 70\nrequest;parse 20\n");
        let (out, _, _) = run(&["path", path]);
        assert!(out.contains("host 100.0 %"), "{out}");
        let page = folder.path().join("page.html");
        let (_, errors, status) = run(&["report", path, "-o", page.to_str().unwrap()]);
        assert_eq!((errors.as_str(), status), ("", Some(0)));
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(r#""name":"request""#), "no operation in the page");
    }
    let slow = std::fs::read_to_string(&files[0]).unwrap().replace("\"ts\":30.5", "\"ts\":70.5");
    let slow_path = folder.path().join("slow.json");
    std::fs::write(&slow_path, slow).unwrap();
    let (out, _, _) = run(&["diff", &files[0], slow_path.to_str().unwrap(), "--rows", "5"]);
    assert!(out.contains("parse"), "{out}");
}

#[test]
fn slices_in_no_table_are_counted() {
    let (folder, whole, _) = traces();
    let text = std::fs::read_to_string(whole).unwrap();
    let mixed = folder.path().join("mixed.json");
    let other = r#"[{"ph":"X","cat":"blink","name":"paint","pid":1,"tid":9,"ts":1,"dur":1},"#;
    std::fs::write(&mixed, text.replacen('[', other, 1)).unwrap();
    let (out, _, _) = run(&["summary", mixed.to_str().unwrap()]);
    let line = "not in the tables: 1 slice of unknown categories (blink); kineto convert makes operations of them";
    assert!(out.lines().collect::<Vec<_>>().join(" ").contains(line) && !out.contains("paint"), "{out}");
    let converted = folder.path().join("converted.json");
    run(&["convert", mixed.to_str().unwrap(), "-o", converted.to_str().unwrap()]);
    let (out, _, _) = run(&["summary", converted.to_str().unwrap()]);
    assert!(!out.contains("not in the tables") && out.contains("paint"), "{out}");
}

#[test]
fn json_is_one_line_for_each_trace() {
    let (_folder, whole, _) = traces();
    let path = whole.to_str().unwrap();
    let (out, _, status) = run(&["summary", "--json", path, path]);
    let figures: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((figures.len(), status), (2, Some(0)));
    assert_eq!((&figures[0]["temporal"]["busy"], &figures[1]["launch"]["mean_delay"]), (&10.0.into(), &3.0.into()));
}

#[test]
fn csv_has_a_line_for_each_figure() {
    let (_folder, whole, _) = traces();
    let path = whole.to_str().unwrap();
    let (out, errors, status) = run(&["summary", "--csv", path, path]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], "trace,section,name,figure,value");
    for line in
        ["temporal,,busy,10.0", "kernels,gemm,sum,10.0", "idle,0 7,streams.gaps.host_wait,0", "launch,,mean_delay,3.0"]
    {
        let line = format!("{path},{line}");
        assert_eq!(lines.iter().filter(|found| **found == line).count(), 2, "{line} in {out}");
    }
}

#[test]
fn traces_read_at_once_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..12).map(|number| folder.path().join(format!("{number}.json"))).collect();
    for (number, path) in paths.iter().enumerate() {
        // The first are the longest, so they are read last.
        let rows = r#"{"ph":"i","name":"a","ts":1},"#.repeat((12 - number) * 2000);
        std::fs::write(path, TRACE.replacen('[', &format!("[{rows}"), 1)).unwrap();
    }
    std::fs::write(&paths[3], "[").unwrap();
    let arguments: Vec<_> =
        ["summary", "--json"].into_iter().chain(paths.iter().map(|path| path.to_str().unwrap())).collect();
    let (out, errors, status) = run(&arguments);
    let events = out.lines().map(|line| {
        let figures: serde_json::Value = serde_json::from_str(line).unwrap();
        figures["load"]["trace_events"].as_u64().unwrap()
    });
    let expected = (0..12).filter(|number| *number != 3).map(|number| (12 - number) * 2000 + 3);
    assert!(events.eq(expected), "{out}");
    assert!(status == Some(1) && errors.contains("3.json: cut off at line 1, column 2 (byte 1)"), "{errors}");
}

#[test]
fn first_screen_and_sections_are_printed_alone() {
    let (_folder, whole, _) = traces();
    let path = whole.to_str().unwrap();
    let (whole, _, _) = run(&["summary", path]);
    let (brief, errors, status) = run(&["summary", "--brief", path]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert!(whole.starts_with(&brief) && brief.lines().count() <= 24 && whole.len() > brief.len(), "{brief}");
    assert!(brief.contains("The device is busy") && brief.contains("What to do next"), "{brief}");
    assert!(whole.lines().skip(1).all(|line| line.chars().count() <= 80), "{whole}");
    let (kernels, _, _) = run(&["summary", "--section", "kernels", path]);
    assert!(
        kernels.contains("gemm") && !kernels.contains("What to do next") && !kernels.contains("train"),
        "{kernels}"
    );
    let (_, errors, status) = run(&["summary", "--section", "gaps", path]);
    assert!(errors.contains("unknown section `gaps`; use one of findings, path") && status == Some(2), "{errors}");
}

#[test]
fn findings_are_printed_alone() {
    let (_folder, whole, _) = traces();
    let path = whole.to_str().unwrap();
    let (text, _, status) = run(&["summary", "--findings", path]);
    assert!(text.contains("What to do next") && !text.contains("Operations"), "{text}");
    let (out, _, json_status) = run(&["summary", "--findings", "--json", path]);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&found["schema"], &found["span"], &found["trace"]),
        (&"kineto-findings/1".into(), &15.0.into(), &path.into())
    );
    assert!(found["findings"].is_array() && out.len() <= 16 << 10, "{out}");
    assert_eq!((status, json_status), (Some(0), Some(0)));
}

#[test]
fn folder_of_ranks_ends_with_a_line_for_each() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, longer) in [(0, 10), (1, 30)] {
        let text = TRACE.replacen('{', &format!("{{\"distributedInfo\": {{\"rank\": {rank}}},"), 1);
        std::fs::write(
            folder.path().join(format!("rank{rank}.json")),
            text.replace("\"dur\":10", &format!("\"dur\":{longer}")),
        )
        .unwrap();
    }
    std::fs::write(folder.path().join("notes.txt"), "none").unwrap();
    let (out, errors, status) = run(&["summary", folder.path().to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let lines: Vec<_> = out.lines().rev().take(4).collect();
    assert!(lines[3] == "2 traces" && lines[1].ends_with("rank0.json"), "{out}");
    assert!(lines[0].trim_start().starts_with("1 ") && lines[0].ends_with("rank1.json  <- longest"), "{out}");
    let empty = tempfile::tempdir().unwrap();
    let (_, errors, status) = run(&["summary", empty.path().to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("the folder has no trace (*.json, *.pftrace,"), "{errors}");
    std::fs::create_dir(empty.path().join("rank0")).unwrap();
    std::fs::write(empty.path().join("rank0/a.json"), TRACE).unwrap();
    for command in ["summary", "table", "report", "validate"] {
        let (_, errors, status) = run(&[command, empty.path().to_str().unwrap()]);
        assert!(status == Some(1) && errors.contains("name a subfolder: these are not read"), "{errors}");
    }
}

#[test]
fn part_of_a_trace_is_selected() {
    let (_folder, whole, _) = traces();
    let path = whole.to_str().unwrap();
    let slices = |arguments: &[&str]| {
        let (out, errors, status) = run(&[&["summary", "--json", path], arguments].concat());
        let is_empty = out.contains("\"slices\":0,");
        assert_eq!((errors.contains("no slice matches the selection"), status), (is_empty, Some(i32::from(is_empty))));
        let figures: serde_json::Value = serde_json::from_str(&out).unwrap();
        figures["load"]["slices"].as_u64().unwrap()
    };
    assert_eq!(slices(&["--from", "0", "--to", "0.001"]), 3, "the kernel counts to its launch");
    assert_eq!((slices(&["--from", "0.001"]), slices(&["--name", "train"]), slices(&["--stream", "9"])), (0, 1, 2));
    let (_, errors, status) = run(&["summary", "--step", "3", path]);
    assert!(status == Some(1) && errors.contains("there is no step 3: the trace has no steps"), "{errors}");
}

#[test]
fn standard_input_is_read() {
    let mut child =
        command(&["summary", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(TRACE.as_bytes()).unwrap();
    let (out, errors, status) = texts(child.wait_with_output().unwrap());
    assert!(out.contains("gemm"), "{out}");
    assert_eq!((errors.as_str(), status), ("", Some(0)));
}

#[test]
fn broken_files_are_errors_and_others_are_summarized() {
    let (folder, whole, cut) = traces();
    let missing = folder.path().join("missing.json");
    let (out, errors, status) =
        run(&["summary", missing.to_str().unwrap(), cut.to_str().unwrap(), whole.to_str().unwrap()]);
    assert_eq!(status, Some(1));
    let errors: Vec<_> = errors.lines().collect();
    assert!(
        errors.len() == 2 && errors[0].contains("missing.json") && errors[1].contains("cut off at line"),
        "{errors:?}"
    );
    assert!(out.contains("gemm"), "{out}");
    let (out, errors, status) = run(&["summary", "--partial", cut.to_str().unwrap()]);
    assert!(out.contains("incomplete: cut_off") && out.contains("cudaLaunchKernel"), "{out}");
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert_eq!(run(&["summary"]).2, Some(2));
}

#[cfg(unix)]
#[test]
fn closed_pipe_ends_the_command_quietly() {
    let (_folder, whole, _) = traces();
    let mut child =
        command(&["summary", whole.to_str().unwrap()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (_, errors, status) = texts(child.wait_with_output().unwrap());
    assert_eq!((errors.as_str(), status), ("", Some(0)));
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_makes_the_command_fail() {
    let (_folder, whole, _) = traces();
    for arguments in [&["summary"][..], &["summary", "--json"], &["table"], &["path"], &["stacks"], &["validate"]] {
        let mut command = command(arguments);
        let full = File::create("/dev/full").unwrap();
        let (_, errors, status) = texts(command.arg(&whole).stdout(full).stderr(Stdio::piped()).output().unwrap());
        assert!(
            errors.starts_with("cannot write the output: No space left") && errors.lines().count() == 1,
            "{errors}"
        );
        assert_eq!(status, Some(1), "{arguments:?}");
    }
}

#[test]
fn section_without_rows_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    std::fs::write(&path, r#"[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":0,"dur":4}]"#).unwrap();
    let kernel = folder.path().join("kernel.json");
    std::fs::write(&kernel, r#"[{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":0,"dur":4}]"#).unwrap();
    for (section, line) in [
        ("findings", "  No problem was found."),
        ("path", "The trace has no device work, which the critical path needs."),
        ("steps", "The trace has no steps."),
        ("operations", "The trace has no operations."),
        ("kernels", "The trace has no kernels, copies or fills."),
        ("memory", "The trace has no memory records."),
        ("counters", "The trace has no counters."),
    ] {
        let trace = if section == "operations" { &kernel } else { &path };
        let (out, errors, status) = run(&["summary", "--section", section, trace.to_str().unwrap()]);
        assert_eq!((out.lines().last(), errors.as_str(), status), (Some(line), "", Some(0)), "{section}: {out}");
    }
}

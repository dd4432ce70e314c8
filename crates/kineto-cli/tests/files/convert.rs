//! Tests of `kineto convert`: each format, and errors.

use super::{run, traces};

#[test]
fn output_name_gives_the_format() {
    let (folder, whole, _) = traces();
    let convert = |name: &str| {
        let output = folder.path().join(name);
        let result = run(&["convert", whole.to_str().unwrap(), "-o", output.to_str().unwrap()]);
        assert_eq!(result, (String::new(), String::new(), Some(0)), "{name}");
        std::fs::read(output).unwrap()
    };
    assert!(convert("a.json").starts_with(b"{\"schemaVersion\":1"));
    assert!(convert("a.json.gz").starts_with(&[0x1f, 0x8b]) && convert("a.pftrace.gz").starts_with(&[0x1f, 0x8b]));
    assert!(convert("a.csv.gz").starts_with(&[0x1f, 0x8b]));
    let native = convert("a.pftrace");
    assert!(native.windows(4).any(|bytes| bytes == b"gemm") && !native.starts_with(b"{"));
    assert!(convert("a.speedscope.json").starts_with(b"{\"$schema\":\"https://www.speedscope.app"));
    let folded = String::from_utf8(convert("a.folded")).unwrap();
    assert!(folded.contains("train;cudaLaunchKernel 2"), "{folded}");
    let csv = String::from_utf8(convert("a.csv")).unwrap();
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines[0], "start_ns,duration_ns,category,name,process,thread,id,linked,arguments");
    assert_eq!(
        (lines.len(), lines[3]),
        (4, r#"5000,10000,kernel,gemm,0,7,,,"{""correlation"":1,""device"":0,""stream"":7}""#)
    );
}

#[test]
fn converted_trace_has_the_same_summary() {
    let (folder, whole, _) = traces();
    let figures = |path: &std::path::Path| {
        let (out, _, _) = run(&["summary", "--json", path.to_str().unwrap()]);
        let mut figures: serde_json::Value = serde_json::from_str(&out).unwrap();
        figures.as_object_mut().unwrap().remove("load");
        figures
    };
    for name in ["copy.json", "copy.pftrace", "copy.pftrace.gz", "a text.txt.pftrace"] {
        let copy = folder.path().join(name);
        assert_eq!(run(&["convert", whole.to_str().unwrap(), "-o", copy.to_str().unwrap()]).2, Some(0));
        assert_eq!(figures(&whole), figures(&copy), "{name}");
    }
}

#[test]
fn all_commands_read_perfettos_format() {
    let (folder, whole, _) = traces();
    let (native, renamed) = (folder.path().join("a.pftrace"), folder.path().join("a.json"));
    assert_eq!(run(&["convert", whole.to_str().unwrap(), "-o", native.to_str().unwrap()]).2, Some(0));
    // The content decides, not the name.
    std::fs::copy(&native, &renamed).unwrap();
    for command in [["table", "--rows=5"], ["stacks", "--name="]] {
        let of = |path: &std::path::Path| run(&[command[0], command[1], path.to_str().unwrap()]);
        assert_eq!((of(&whole), of(&whole)), (of(&native), of(&renamed)), "{command:?}");
    }
    let (out, _, status) = run(&["validate", native.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains("no problem in 3 events"), "{out}");
    let back = folder.path().join("back.csv");
    assert_eq!(run(&["convert", native.to_str().unwrap(), "-o", back.to_str().unwrap()]).2, Some(0));
    assert!(std::fs::read_to_string(back).unwrap().contains("5000,10000,kernel,gemm,0,7,,,"));
}

#[test]
fn unknown_extension_is_an_error_of_all_that_write_traces() {
    let (folder, whole, cut) = traces();
    let output = folder.path().join("out.txt");
    let [whole, cut, to] = [&whole, &cut, &output].map(|path| path.to_str().unwrap());
    for arguments in [
        &["convert", whole, "-o", to][..],
        &["repair", cut, "-o", to],
        &["repair", folder.path().to_str().unwrap(), "-o", to],
        &["record", "-o", to, "--", "/bin/true"],
    ] {
        let (out, errors, status) = run(arguments);
        assert_eq!((status, out.as_str(), output.exists()), (Some(1), "", false), "{arguments:?} {errors}");
        assert!(errors.contains("out.txt: unknown file extension; use .json"), "{arguments:?} {errors}");
    }
}

#[test]
fn conversion_that_fails_leaves_no_file() {
    let (folder, whole, cut) = traces();
    let output = folder.path().join("out.json");
    let (_, errors, status) = run(&["convert", cut.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("cut off at line") && !output.exists(), "{errors}");
    let (_, errors, status) =
        run(&["convert", whole.to_str().unwrap(), "-o", folder.path().join("a.zip").to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("use .json, .speedscope.json, .pftrace, .csv or .folded"), "{errors}");
    let (_, errors, status) = run(&["convert", whole.to_str().unwrap(), "-o", "/no/such/folder/a.csv"]);
    assert!(status == Some(1) && errors.contains("/no/such/folder/a.csv"), "{errors}");
}

/// A program that is started in the folder names unfinished traces, which are those of programs.
#[test]
#[cfg(target_os = "linux")]
fn killed_conversion_leaves_no_unfinished_trace() {
    let (folder, whole, _) = traces();
    let output = folder.path().join("out.json");
    let event = r#",{"ph":"X","cat":"cpu_op","name":"train","pid":1,"tid":1,"ts":9,"dur":4}"#;
    let trace = super::TRACE.replace("\n]}", &format!("{}]}}", event.repeat(1000)));
    std::fs::write(&whole, trace).unwrap();
    // A file beyond the limit ends the command by a signal.
    let script = "ulimit -c 0; ulimit -f 8; exec \"$0\" convert \"$1\" -o \"$2\"";
    let mut shell = std::process::Command::new("sh");
    let killed = shell.args(["-c", script, env!("CARGO_BIN_EXE_kineto")]).args([&whole, &output]).output().unwrap();
    assert!(std::os::unix::process::ExitStatusExt::signal(&killed.status).is_some(), "{killed:?}");
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter_map(|name| name.into_string().ok()).filter(|name| name.contains("out.")).collect();
    assert!(left.len() == 1 && left[0].ends_with(".part"), "{left:?}");
    assert!(!kineto_model::write::file::is_unfinished_name(&left[0]));
}

#[test]
fn converted_trace_reports_events_left_out() {
    let (folder, whole, _) = traces();
    let events =
        r#"{"ph":"X","name":"untimed","dur":1},{"ph":"O","name":"object","ts":1},{"ph":"E","ts":1,"pid":9,"tid":9}"#;
    std::fs::write(&whole, super::TRACE.replace("\n]}", &format!(",{events}]}}"))).unwrap();
    for name in ["out.json", "out.csv", "out.pftrace"] {
        let output = folder.path().join(name);
        let (out, errors, status) = run(&["convert", whole.to_str().unwrap(), "-o", output.to_str().unwrap()]);
        let causes = "other_phase (1), without_time (1), end_without_begin (1)";
        let expected = format!("{}: left out 3 events: {causes}\n", whole.display());
        assert_eq!((out.as_str(), errors, status), ("", expected, Some(0)));
    }
}

#[test]
fn standard_output_has_no_format() {
    let (folder, whole, cut) = traces();
    for arguments in [["convert", whole.to_str().unwrap()], ["repair", cut.to_str().unwrap()]] {
        let mut command = super::command(&[&arguments[..], &["-o", "-"]].concat());
        let (out, errors, status) = super::texts(command.current_dir(folder.path()).output().unwrap());
        let expected =
            "cannot write -: the name of the output gives the format, and the standard output has none; name a file\n";
        assert_eq!((out.as_str(), errors.as_str(), status), ("", expected, Some(1)), "{arguments:?}");
        assert!(!folder.path().join("-").exists());
    }
}

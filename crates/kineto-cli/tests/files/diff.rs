//! Tests of `kineto diff`: output, and exit statuses for CI.

use super::{run, traces};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Writes a trace of twenty steps with an operation of this many microseconds.
fn write_steps(path: &Path, us: u32) -> String {
    let mut events = String::new();
    for step in 0..20 {
        let at = step * 1000;
        for (category, name, start, length) in [
            ("user_annotation", format!("ProfilerStep#{step}"), at, 600 + us + step % 2),
            ("cpu_op", "load".to_owned(), at + 10, us + step % 2),
            ("cpu_op", "train".to_owned(), at + 500, 250 + step % 3),
        ] {
            let _ = write!(
                events,
                r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{length}}},"#
            );
        }
    }
    fs::write(path, format!("{{\"traceEvents\": [{}]}}", events.trim_end_matches(','))).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn slower_operation_sets_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let before = write_steps(&folder.path().join("before.json"), 200);
    let after = write_steps(&folder.path().join("after.json"), 240);
    let (out, errors, status) = run(&["diff", &before, &after]);
    assert_eq!((errors.as_str(), status), ("", Some(4)));
    assert!(out.starts_with("The step changed by +5.0 %, and no work of a device explains it.\n"), "{out}");
    // Four runs a side tell; they differ by a microsecond.
    let runs =
        |us: u32| [0, 1, 1, 2].map(|more| write_steps(&folder.path().join(format!("{us}_{more}.json")), us + more));
    let (a, b) = (runs(199), runs(239));
    let sides = [&a, &b].map(|side| side.each_ref().map(String::as_str));
    let (out, errors, status) = run(&[&["diff"], sides[0].as_slice(), &["--"], sides[1].as_slice()].concat());
    assert_eq!((errors.as_str(), status), ("", Some(3)), "{out}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = out.lines().map(words).collect();
    assert_eq!(lines[0], "A per step B per step change what");
    assert_eq!(lines[1], "slower 200.500us 240.500us +40.000us +20.0 % load", "{out}");
    assert!(
        lines[3].starts_with("Mean step: 800.500us -> 840.500us, +40.000us (+5.0 % without outliers): slower"),
        "{out}"
    );
    let (out, _, status) = run(&["diff", &after, &before]);
    assert!(out.contains("faster") && status == Some(0), "{out}");
    let (out, _, status) = run(&["diff", "--threshold", "25", &before, &after]);
    assert!(out.starts_with("No change above 25 %") && status == Some(0), "{out}");
    let (out, _, status) = run(&["diff", "--rows", "5", &before, &before]);
    assert!(out.contains("Operations, by self time") && status == Some(0), "{out}");
}

#[test]
fn slow_down_of_everything_has_its_own_status() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, factor: u32| {
        let mut events = Vec::new();
        for step in 0..20 {
            let mut add = |category: &str, name: &str, at: u32, us: u32| {
                let at = step * 2000 + at;
                events.push(format!(
                    r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{at},"dur":{us}}}"#
                ));
            };
            add("user_annotation", &format!("ProfilerStep#{step}"), 0, 10 * factor + step % 2);
            for op in 0..6 {
                add("cpu_op", &format!("op_{op}"), 2 + op * 3 * factor / 2, factor + (step + op) % 3);
            }
        }
        let path = folder.path().join(name);
        fs::write(&path, format!("{{\"traceEvents\": [{}]}}", events.join(","))).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (before, after) = (write("before.json", 100), write("after.json", 130));
    let (out, errors, status) = run(&["diff", &before, &after]);
    assert_eq!((errors.as_str(), status), ("", Some(4)), "{out}");
    assert!(out.starts_with("All changed alike: the step by +"), "{out}");
    assert!(out.lines().nth(1).is_some_and(|line| line.contains("everything is slower")), "{out}");
    let (out, _, status) = run(&["diff", "--json", &before, &after]);
    assert!(out.contains("\"is_slower_alike\":true") && status == Some(4), "{out}");
    assert_eq!(run(&["diff", &after, &before]).2, Some(0));
}

#[test]
fn sets_are_folders_or_lists() {
    let folder = tempfile::tempdir().unwrap();
    let mut lists: [Vec<String>; 2] = Default::default();
    for (side, (name, us)) in [("main", 200), ("branch", 260)].into_iter().enumerate() {
        fs::create_dir(folder.path().join(name)).unwrap();
        let file = |run: u32| folder.path().join(name).join(format!("{run}.json"));
        lists[side] = (0..4).map(|run| write_steps(&file(run), us + run)).collect();
    }
    let [main, branch] = ["main", "branch"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let (of_folders, _, status) = run(&["diff", "--json", &main, &branch]);
    let figures: serde_json::Value = serde_json::from_str(&of_folders).unwrap();
    assert_eq!(
        (&figures["schema"], &figures["a"]["traces"], &figures["b"]["steps"]),
        (&"kineto-diff/1".into(), &4.into(), &80.into())
    );
    assert_eq!((&figures["classes"][0]["name"], &figures["classes"][0]["verdict"]), (&"load".into(), &"slower".into()));
    assert_eq!(status, Some(3));
    let [main, branch] = lists.each_ref().map(|list| list.iter().map(String::as_str).collect::<Vec<_>>());
    let (of_lists, errors, status) = run(&[&["diff", "--json"], &main[..], &["--"], &branch[..]].concat());
    assert_eq!((of_lists, errors.as_str(), status), (of_folders, "", Some(3)));
}

#[test]
fn few_steps_leave_open_what_is_slower() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, us: u32| {
        let path = folder.path().join(name);
        let step = format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":1,"dur":{us}}}"#
        );
        fs::write(&path, format!("{{\"traceEvents\": [{step}]}}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (before, after) = (write("before.json", 1000), write("after.json", 1300));
    let (out, errors, status) = run(&["diff", &before, &after]);
    assert!(out.starts_with("The mean trace changed by +30.0 %: too few values to tell."), "{out}");
    assert_eq!((errors.as_str(), status), ("", Some(4)));
    assert_eq!(run(&["diff", &after, &before]).2, Some(0));
}

#[test]
fn unreadable_traces_and_wrong_arguments_have_statuses() {
    let (folder, whole, cut) = traces();
    let (whole, cut) = (whole.to_str().unwrap(), cut.to_str().unwrap());
    let missing = folder.path().join("missing.json");
    let (out, errors, status) = run(&["diff", missing.to_str().unwrap(), cut]);
    assert!(status == Some(1) && out.is_empty() && errors.lines().count() == 2, "{errors}");
    let (out, errors, status) = run(&["diff", "--partial", whole, cut]);
    assert!(out.contains("gone") && out.contains("gemm"), "{out}");
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    for arguments in
        [&["diff"][..], &["diff", whole], &["diff", whole, whole, whole], &["diff", "--threshold", "-1", whole, whole]]
    {
        let (out, errors, status) = run(arguments);
        assert!(status == Some(2) && out.is_empty() && !errors.is_empty(), "{arguments:?} {errors}");
    }
    assert!(run(&["diff", whole]).1.contains("write `--` between"));
    let (out, errors, status) = run(&["diff", "-", "-"]);
    assert!(status == Some(2) && out.is_empty() && errors.contains("name it once"), "{errors}");
    assert!(run(&["diff", "--help"]).0.contains("kineto diff main-*.json.gz -- branch-*.json.gz"));
}

//! Tests of `kineto check`: output and exit status.

use super::{command, run, texts, traces};
use std::fs;
use std::process::Stdio;

/// Writes rules next to the traces; returns their path.
fn rules(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("rules.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const HOLDS: &str = "[[rule]]\nfigure = 'launches'\neach = 'train'\nmax = 1\n";
const FAILS: &str = "\n[[rule]]\nname = 'train is fast'\nfigure = 'duration.max'\nof = 'train'\nmax = '3.5 us'\n";

#[test]
fn rules_decide_the_exit_status() {
    let (folder, whole, cut) = traces();
    let (trace, cut) = (whole.to_str().unwrap(), cut.to_str().unwrap());
    let path = rules(&folder, HOLDS);
    let (out, errors, status) = run(&["check", &path, trace]);
    assert_eq!(
        (out.as_str(), errors.as_str(), status),
        (&*format!("{trace}: 0 of 1 rule failed\nok      launches each `train`, at most 1; found 1\n"), "", Some(0))
    );
    let path = rules(&folder, &format!("{HOLDS}{FAILS}"));
    let (out, errors, status) = run(&["check", &path, trace, trace]);
    assert_eq!((out.matches(": 1 of 2 rules failed\n").count(), errors.as_str(), status), (2, "", Some(3)), "{out}");
    let failure = "FAILED  train is fast: duration.max of `train`, at most 3.5 us; found 4 us; of 1 span\n        `train` at 0 ns on 1/1, 4 us\n";
    assert!(out.ends_with(failure), "{out}");
    let (out, errors, status) = run(&["check", &path, cut, trace]);
    assert!(out.contains("1 of 2 rules failed") && errors.contains("cut off at line"), "{out}{errors}");
    assert_eq!(status, Some(1), "a trace that is not read outweighs a rule that fails");
}

#[test]
fn junit_goes_to_standard_output() {
    let (folder, whole, _) = traces();
    let path = rules(&folder, HOLDS);
    let mut command = command(&["check", &path, whole.to_str().unwrap(), "--junit", "-"]);
    let (out, errors, status) = texts(command.current_dir(folder.path()).output().unwrap());
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert!(
        out.starts_with("<?xml ") && out.ends_with("</testsuites>\n") && !out.contains("0 of 1 rule failed"),
        "{out}"
    );
    assert!(!folder.path().join("-").exists());
}

#[test]
fn broken_rules_are_errors_with_their_line() {
    let (folder, whole, _) = traces();
    let trace = whole.to_str().unwrap();
    for (text, message) in [
        (
            "[[rule]]\nfigure = 'launches'\nmax = '5 %'\n",
            "rules.toml:3: wrong unit for a limit of `launches`; expected a count",
        ),
        ("[[rule]]\nfigure = 'launches'\nmost = 5\n", "rules.toml:3: unknown key `most`"),
        ("[[rule]\n", "rules.toml:1: "),
        ("", "rules.toml:1: the file has no rule"),
    ] {
        let (out, errors, status) = run(&["check", &rules(&folder, text), trace]);
        assert!(out.is_empty() && errors.contains(message) && status == Some(1), "{errors}");
    }
    let path = rules(&folder, "");
    fs::write(&path, b"\xff").unwrap();
    let (_, errors, status) = run(&["check", &path, trace]);
    assert!(status == Some(1) && errors.contains("UTF-8"), "{errors}");
    let (_, errors, status) = run(&["check", "missing.toml", trace]);
    assert!(status == Some(1) && errors.starts_with("cannot read missing.toml"), "{errors}");
    assert_eq!((run(&["check"]).2, run(&["check", &path]).2, run(&["check", "--max"]).2), (Some(2), Some(2), Some(2)));
}

#[test]
fn json_is_one_object_for_each_trace() {
    let (folder, whole, _) = traces();
    let path = rules(&folder, &format!("{HOLDS}{FAILS}"));
    let (out, _, status) = run(&["check", "--json", &path, whole.to_str().unwrap()]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((out.lines().count(), status), (1, Some(3)));
    assert_eq!((&report["schema"], &report["trace"]), (&"kineto-check/1".into(), &whole.to_str().unwrap().into()));
    assert_eq!((&report["rules"][1]["found"], &report["rules"][1]["places"][0]["dur"]), (&4.0.into(), &4.0.into()));
}

#[test]
fn junit_has_a_case_for_each_rule() {
    let (folder, whole, cut) = traces();
    let skipped = "\n[[rule]]\nfigure = 'spans'\nof = 'a<b>'\nmin = 1\noptional = true\n";
    let path = rules(&folder, &format!("{HOLDS}{FAILS}{skipped}"));
    let xml = folder.path().join("report.xml");
    let arguments = ["check", &path, whole.to_str().unwrap(), cut.to_str().unwrap(), "--junit", xml.to_str().unwrap()];
    assert_eq!(run(&arguments).2, Some(1));
    let text = fs::read_to_string(&xml).unwrap();
    assert!(text.starts_with("<?xml version=\"1.0\""), "{text}");
    assert!(
        text.contains("<testsuites name=\"kineto check\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\">"),
        "{text}"
    );
    assert_eq!(text.matches(&format!("<testcase classname=\"{}\" ", whole.display())).count(), 3, "{text}");
    assert!(text.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{text}");
    assert!(text.contains("name=\"launches each `train`, at most 1\"/>"), "{text}");
    assert!(text.contains("name=\"train is fast\"><failure message=\"FAILED  train is fast: "), "{text}");
    assert!(text.contains("<skipped message=\"skipped spans of `a&lt;b&gt;`, at least 1; no span"), "{text}");
    assert!(text.contains("<error message=\"") && text.ends_with("</testsuites>\n"), "{text}");
    let folder_path = folder.path().to_str().unwrap();
    let (_, errors, status) = run(&["check", &path, whole.to_str().unwrap(), "--junit", folder_path]);
    assert!(status == Some(1) && errors.starts_with("cannot write "), "{errors}");
}

#[test]
fn part_of_a_trace_is_checked() {
    let (folder, whole, _) = traces();
    let path = rules(&folder, "[[rule]]\nfigure = 'launches'\nmax = 0\n");
    let (out, _, status) = run(&["check", &path, whole.to_str().unwrap(), "--from", "0.001"]);
    assert!(status == Some(3) && out.contains("the trace has no call of a runtime or driver"), "{out}");
    let (out, _, status) = run(&["check", "--figures"]);
    assert!(status == Some(0) && out.lines().any(|line| line == "duration.p99"), "{out}");
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_outweighs_rules() {
    let (folder, whole, _) = traces();
    let full = fs::File::create("/dev/full").unwrap();
    let path = rules(&folder, FAILS);
    let mut command = command(&["check", &path, whole.to_str().unwrap()]);
    let (_, errors, status) = texts(command.stdout(full).stderr(Stdio::piped()).output().unwrap());
    assert!(errors.starts_with("cannot write the output") && status == Some(1), "{errors}");
}

#[cfg(target_os = "linux")]
#[test]
fn rules_have_a_size_limit() {
    let (_folder, whole, _) = traces();
    let (_, errors, status) = run(&["check", "/dev/zero", whole.to_str().unwrap()]);
    let expected = "cannot read /dev/zero: it has more than 16 MiB; name a file of rules\n";
    assert_eq!((errors.as_str(), status), (expected, Some(1)));
}

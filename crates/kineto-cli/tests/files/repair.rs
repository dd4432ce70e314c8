//! `kineto repair`.

use super::{run, traces};
use std::fs;
use tracing_kineto::Timestamp;
use tracing_kineto::activity::{Activity, ActivityType, Body, Track};
use tracing_kineto::integration::CpuTraceBuilder;

#[test]
fn truncated_trace_is_repaired_in_a_copy() {
    let (folder, whole, cut) = traces();
    let (out, errors, status) = run(&["repair", cut.to_str().unwrap()]);
    let repaired = folder.path().join("repaired-cut.json");
    let expected = format!("{}: 1 event; dropped 3 bytes at the end\n", repaired.display());
    assert_eq!((out, errors.as_str(), status), (expected, "", Some(0)));
    let (out, _, status) = run(&["summary", repaired.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains("incomplete: closed_early (1); "), "{out}");
    let (out, _, status) = run(&["repair", whole.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains(": whole, 3 events"), "{out}");
    // What a killed process has left gets the name that its file should have had.
    let left = |name: &str| folder.path().join(format!("{name}.24619-1-0123456789abcdef.tmp"));
    let [left_cut, left_whole] = ["app.json.gz", "all.json"].map(left);
    fs::rename(&cut, &left_cut).unwrap();
    fs::rename(&whole, &left_whole).unwrap();
    let (out, _, status) = run(&["repair", left_cut.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains("repaired-app.json.gz: 1 event;"), "{out}");
    let (out, _, status) = run(&["repair", left_whole.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains(": whole, 3 events; rename it to all.json"), "{out}");
    let other = folder.path().join("program");
    fs::write(&other, b"\x7fELF\x02\x01").unwrap();
    let (_, errors, status) = run(&["repair", other.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("program is no trace: ") && !errors.contains("quotes"), "{errors}");
    let missing = folder.path().join("missing.json");
    let (_, errors, status) = run(&["repair", missing.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("missing.json"), "{errors}");
}

#[test]
fn segment_is_repaired_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("seg-000001.kseg"), folder.path().join("seg-000002.kseg"));
    let at = |us: u64| Timestamp::from_nanos(1_790_857_026_000_000_000 + us * 1000);
    let mut builder = CpuTraceBuilder::new(at(0), "program");
    for n in 0..300 {
        let body = Body::Slice { start: at(n * 10), end: at(n * 10 + 5) };
        builder.push(&Activity::new(ActivityType::CpuOp, "op", Track::new(0, 7), body)).unwrap();
    }
    let mut segment = Vec::new();
    builder.finish(at(9000)).write_segment(1, &mut segment).unwrap();
    fs::write(&whole, &segment).unwrap();
    fs::write(&cut, &segment[..segment.len() - 100]).unwrap();
    let (out, errors, status) = run(&["repair", whole.to_str().unwrap()]);
    let repaired = folder.path().join("repaired-seg-000001.pt.trace.json.gz");
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert_eq!(out, format!("{}: 300 events; the segment is whole\n", repaired.display()));
    // Of two pieces, the second is cut off with the end.
    let output = folder.path().join("out.json");
    let (out, _, status) = run(&["repair", cut.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains(": 256 events; the segment is incomplete: its end is missing"), "{out}");
    let (out, _, status) = run(&["summary", output.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains("incomplete"), "{out}");
    // A folder of both, whose process is gone.
    let (out, errors, status) = run(&["repair", folder.path().to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let [first, second] = [1, 2].map(|number| folder.path().join(format!("out.part{number:04}.json")));
    assert!(out.contains(&format!("1 of 2: {}: 300 events", first.display())), "{out}");
    assert!(out.contains(&format!("2 of 2: {}: 256 events", second.display())), "{out}");
    assert!(first.exists() && second.exists() && whole.exists());
    // The first became a trace before; the last has no number, as a live file.
    fs::remove_file(&whole).unwrap();
    fs::write(folder.path().join("seg-live.kseg"), &segment).unwrap();
    let (out, errors, status) = run(&["repair", folder.path().to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let third = folder.path().join("out.part0003.json");
    assert!(out.contains(&format!("1 of 2: {}: 256 events", second.display())), "{out}");
    assert!(out.contains(&format!("2 of 2: {}: 300 events", third.display())), "{out}");
    let empty = tempfile::tempdir().unwrap();
    let (_, errors, status) = run(&["repair", empty.path().to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("there are no segments"), "{errors}");
    fs::write(&cut, "no segment").unwrap();
    let (_, errors, status) = run(&["repair", cut.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("it is not a segment"), "{errors}");
}

#[cfg(unix)]
#[test]
fn pipe_is_not_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (_, errors, status) = run(&["repair", pipe.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("save it to a file first"), "{errors}");
}

#[test]
fn other_inputs_name_the_command_that_helps() {
    let (folder, whole, _) = traces();
    for name in ["a.pftrace", "a.pftrace.gz"] {
        let native = folder.path().join(name);
        let native = native.to_str().unwrap();
        assert_eq!(run(&["convert", whole.to_str().unwrap(), "-o", native]).2, Some(0));
        let (_, errors, status) = run(&["repair", native]);
        assert!(status == Some(1) && errors.contains("use `kineto convert --partial`"), "{name}: {errors}");
    }
    let (_, errors, status) = run(&["repair", "-"]);
    let expected = "cannot read -: a repair reads a trace twice; save it to a file first\n";
    assert_eq!((errors.as_str(), status), (expected, Some(1)));
}

#[test]
fn repaired_trace_reports_events_left_out() {
    let (folder, whole, cut) = traces();
    let untimed = |text: String| text.replace("\"ts\":5,", "");
    for path in [&whole, &cut] {
        fs::write(path, untimed(super::TRACE.to_owned())).unwrap();
    }
    fs::write(&cut, untimed(super::TRACE.replace("\n]}", ","))).unwrap();
    let repaired = folder.path().join("repaired-cut.json");
    for (path, read) in [(&whole, &whole), (&cut, &repaired)] {
        let (out, errors, status) = run(&["repair", path.to_str().unwrap()]);
        let expected = format!("{}: left out 1 event: without_time (1)\n", read.display());
        assert_eq!((errors, status), (expected, Some(0)), "{out}");
        assert!(out.contains("2 events"), "{out}");
    }
}

//! `kineto repair`.

use super::{run, traces};

#[test]
fn truncated_trace_is_repaired_in_a_copy() {
    let (folder, whole, cut) = traces();
    let (out, errors, status) = run(&["repair", cut.to_str().unwrap()]);
    let repaired = folder.path().join("repaired-cut.json");
    let expected = format!("{}: 1 events; 3 bytes behind them were dropped\n", repaired.display());
    assert_eq!((out, errors.as_str(), status), (expected, "", Some(0)));
    let (out, _, status) = run(&["summary", repaired.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains("incomplete"), "{out}");
    let (out, _, status) = run(&["repair", whole.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains(": whole, 3 events"), "{out}");
    let missing = folder.path().join("missing.json");
    let (_, errors, status) = run(&["repair", missing.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("missing.json"), "{errors}");
}

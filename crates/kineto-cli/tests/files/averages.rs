//! Tests of `kineto table` and `kineto stacks`.

use super::{run, traces};
use std::fs;

#[test]
fn table_prints_averages_as_torch_does() {
    let (_folder, whole, _) = traces();
    let path = whole.to_str().unwrap();
    let (out, errors, status) = run(&["table", path, "--sort-by", "self_cuda_time_total"]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert!(out.contains("cudaLaunchKernel") && out.contains("10.000us") && out.contains("Self CPU"), "{out}");
    let (torch, _, _) = run(&["table", path, "--torch"]);
    assert!(torch.contains("Name") && torch.matches("gemm").count() == 1, "{torch}");
    let (csv, _, _) = run(&["table", path, "--csv", "--by", "thread,device"]);
    assert!(csv.starts_with("section,name,Thread,Device,count,enters,self_cpu_ns,"), "{csv}");
    let (json, _, _) = run(&["table", path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["kernels"][0]["self_device_ns"], 10_000);
    let (_, errors, status) = run(&["table", path, "--sort-by", "time"]);
    assert!(status == Some(2) && errors.contains("sort by one of self_cpu_time_total"), "{errors}");
}

#[test]
fn stacks_are_printed_or_written() {
    let (folder, whole, cut) = traces();
    let path = whole.to_str().unwrap();
    let (out, errors, status) = run(&["stacks", path]);
    assert_eq!((out.as_str(), errors.as_str(), status), ("train 2\ntrain;cudaLaunchKernel 2\n", "", Some(0)));
    let file = folder.path().join("gpu.folded");
    let written = run(&["stacks", path, "--metric", "self_cuda_time_total", "-o", file.to_str().unwrap()]);
    assert_eq!(written, (String::new(), String::new(), Some(0)));
    assert_eq!(fs::read_to_string(file).unwrap(), "train 10\n");
    let (out, errors, status) = run(&["stacks", path, "--locations"]);
    assert_eq!((out.as_str(), status), ("train 2\ntrain;cudaLaunchKernel 2\n", Some(0)));
    assert!(errors.starts_with("stacks have no locations: ") && errors.contains("KINETO_WITH_LOCATION=1"), "{errors}");
    let text = fs::read_to_string(&whole).unwrap();
    let located = folder.path().join("located.json");
    fs::write(&located, text.replace(r#""dur":4"#, r#""dur":4,"args":{"location":"src/main.rs:7"}"#)).unwrap();
    let (out, errors, _) = run(&["stacks", located.to_str().unwrap(), "--locations"]);
    assert!(out.starts_with("train_(src/main.rs:7) 2\n") && errors.is_empty(), "{out}{errors}");
    let (_, errors, status) = run(&["stacks", cut.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("cut off at line"), "{errors}");
}

#[test]
fn stacks_are_written_to_the_standard_output() {
    let (folder, whole, _) = traces();
    let (expected, ..) = run(&["stacks", whole.to_str().unwrap()]);
    let mut command = super::command(&["stacks", whole.to_str().unwrap(), "-o", "-"]);
    let (out, errors, status) = super::texts(command.current_dir(folder.path()).output().unwrap());
    assert!(!folder.path().join("-").exists());
    assert_eq!((out, errors.as_str(), status), (expected, "", Some(0)));
}

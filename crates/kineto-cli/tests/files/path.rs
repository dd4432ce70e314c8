//! Tests of `kineto path`: output and exit status.

use super::{TRACE, run, traces};

#[test]
fn path_is_printed_in_order() {
    let (_folder, whole, _) = traces();
    let (out, errors, status) = run(&["path", whole.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], "Critical path of 15.000us, from 0.000us after the start of the trace:");
    assert_eq!(lines[1], "  host 13.3 %   device 66.7 %   waits 20.0 %");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{out}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(lines[3]), "0.000us 2.000us call 1/1 cudaLaunchKernel");
    assert_eq!(words(lines[4]), "2.000us 3.000us launch delay 0/7 gemm");
    assert_eq!((words(lines[5]), lines.len()), ("5.000us 10.000us compute 0/7 gemm".to_owned(), 6));
    let (out, _, _) = run(&["path", whole.to_str().unwrap(), "--rows", "1"]);
    assert!(out.ends_with("cudaLaunchKernel\n… 2 more pieces\n"), "{out}");
}

#[test]
fn pieces_add_up_in_csv_and_json() {
    let (folder, whole, _) = traces();
    let (out, errors, status) = run(&["path", "--csv", whole.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], "start_ns,end_ns,duration_ns,kind,name,category,process,thread");
    assert_eq!(lines[2], "2000,5000,3000,launch_delay,gemm,kernel,0,7");
    let (out, _, _) = run(&["path", "--json", whole.to_str().unwrap()]);
    let path: serde_json::Value = serde_json::from_str(&out).unwrap();
    let sum: f64 = path["pieces"].as_array().unwrap().iter().map(|piece| piece["dur"].as_f64().unwrap()).sum();
    assert_eq!((&path["schema"], &path["window"], sum), (&"kineto-path/1".into(), &15.0.into(), 15.0));
    let quoted = folder.path().join("quoted.json");
    std::fs::write(&quoted, TRACE.replace("\"gemm\"", r#""gemm<a, \"b\">""#)).unwrap();
    let (out, _, _) = run(&["path", "--csv", quoted.to_str().unwrap()]);
    assert!(out.contains(",compute,\"gemm<a, \"\"b\"\">\",kernel,0,7\r\n"), "{out}");
}

#[test]
fn path_of_a_step_ends_with_its_work() {
    let (folder, whole, _) = traces();
    let stepped = folder.path().join("stepped.json");
    let step =
        r#"{"ph":"X","cat":"user_annotation","name":"ProfilerStep#7","pid":1,"tid":1,"ts":0,"dur":3}, {"ph":"X""#;
    std::fs::write(&stepped, TRACE.replacen("{\"ph\":\"X\"", step, 1)).unwrap();
    let (out, errors, status) = run(&["path", "--step", "7", stepped.to_str().unwrap()]);
    assert!(out.starts_with("Critical path of 15.000us"), "{out}{errors}");
    assert_eq!(status, Some(0));
    let (_, errors, status) = run(&["path", "--step", "8", stepped.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("there is no step 8: the trace has steps 7 to 7"), "{errors}");
    let (_, errors, status) = run(&["path", "--step", "3", whole.to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains("the trace has no steps"), "{errors}");
}

#[test]
fn path_of_a_broken_file_is_an_error() {
    let (_folder, _, cut) = traces();
    let (out, errors, status) = run(&["path", cut.to_str().unwrap()]);
    assert!(status == Some(1) && out.is_empty() && errors.contains("cut off at line"), "{errors}");
    let (out, errors, status) = run(&["path", "--partial", cut.to_str().unwrap()]);
    assert!(status == Some(0) && out.contains("cudaLaunchKernel"), "{out}{errors}");
}

//! Tests of `kineto report`: the page's data, its size, and hostile traces.

use super::{TRACE, command, run, texts, traces};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Writes a page about a trace, which must succeed; returns it.
fn page(trace: &Path, arguments: &[&str]) -> String {
    let output = trace.with_extension("page.html");
    let paths = [trace.to_str().unwrap(), "-o", output.to_str().unwrap()];
    let (out, errors, status) = run(&[&["report"], paths.as_slice(), arguments].concat());
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert!(out.starts_with(&format!("{}: ", output.display())) && out.lines().count() == 1, "{out}");
    fs::read_to_string(&output).unwrap()
}

/// Returns the text of the page's data.
fn data_text(page: &str) -> &str {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    rest.split_once("</script>").unwrap().0
}

fn data(page: &str) -> Value {
    serde_json::from_str(data_text(page)).unwrap()
}

/// Returns how many slices of the first trace are listed, and how many are merged.
fn slice_counts(data: &Value) -> (u64, u64) {
    let rows = data["traces"][0]["timeline"]["rows"].as_array().unwrap();
    let listed = rows.iter().map(|row| row["start"].as_array().unwrap().len() as u64).sum();
    let cells = rows.iter().flat_map(|row| row["cells"].as_array().unwrap());
    (listed, cells.map(|cell| cell[1].as_u64().unwrap()).sum())
}

#[test]
fn page_has_the_figures_of_json() {
    let (_folder, whole, _) = traces();
    let page = page(&whole, &[]);
    let (json, _, _) = run(&["summary", "--json", whole.to_str().unwrap()]);
    assert!(data_text(&page).contains(&format!(r#""summary":{},"cut":false"#, json.trim_end())), "{page}");
    let data = data(&page);
    let trace = &data["traces"][0];
    let busy: u64 = ["compute", "comm", "memory"]
        .iter()
        .flat_map(|part| trace["rest"]["utilization"][0][part].as_array().unwrap())
        .map(|ns| ns.as_u64().unwrap())
        .sum();
    assert_eq!(busy, 10_000);
    assert_eq!((slice_counts(&data), &trace["rest"]["file"]), ((3, 0), &json!("whole.json")));
    // The kernel is the first slice of all rows; its launch follows on the host's.
    let rows = trace["timeline"]["rows"].as_array().unwrap();
    let launch = usize::try_from(rows[0]["launch"][0].as_i64().unwrap()).unwrap();
    let name = rows[1]["text"][launch - 1].as_u64().unwrap();
    assert_eq!(trace["timeline"]["names"][usize::try_from(name).unwrap()], "cudaLaunchKernel");
    assert_eq!(trace["args"]["0"]["correlation"], 1);
}

#[test]
fn page_allows_no_network_and_only_its_own_script() {
    let (_folder, whole, _) = traces();
    let page = page(&whole, &[]);
    let policy = page.split_once("Content-Security-Policy\" content=\"").unwrap().1.split_once('"').unwrap().0;
    let nonce = policy.split_once("script-src 'nonce-").unwrap().1.split_once('\'').unwrap().0;
    assert!(policy.starts_with("default-src 'none';") && nonce.len() == 32, "{policy}");
    assert_eq!(page.matches(&format!("<script nonce=\"{nonce}\">")).count(), 1);
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
}

#[test]
fn hostile_names_stay_data() {
    let folder = tempfile::tempdir().unwrap();
    // File names of Windows have no such signs.
    let trace = folder.path().join(if cfg!(unix) { "<img onerror=x>&\"'.json" } else { "a.json" });
    let names = [
        "</script><img src=x onerror=alert(1)>".to_owned(),
        "<!--<script>".to_owned(),
        "\u{2028}\u{2029}\u{202e}".to_owned(),
        "\0\u{1}".to_owned(),
        "n".repeat(1 << 20),
        "__proto__".to_owned(),
    ];
    let slices = names.iter().enumerate().map(|(at, name)| {
        json!({"ph": "X", "cat": name, "name": name, "pid": name, "tid": name, "ts": at, "dur": 1, "args": {name: name}})
    });
    let counters =
        names.iter().map(|name| json!({"ph": "C", "name": name, "pid": 1, "tid": 1, "ts": 1, "args": {name: 1}}));
    let events: Vec<_> = slices.chain(counters).collect();
    fs::write(&trace, json!({ "traceEvents": events, "<script>": "</script>" }).to_string()).unwrap();
    let page = page(&trace, &[]);
    assert_eq!((page.matches("</script").count(), page.matches("<img").count()), (2, 0));
    assert!(!page.contains("<!--") && !page.contains('\0') && !page.contains('\u{2028}'));
    assert!(page.len() < 500_000, "{} bytes", page.len());
    let data = data(&page);
    let texts: Vec<_> = data["traces"][0]["timeline"]["names"].as_array().unwrap().iter().collect();
    assert!(texts.contains(&&json!(names[0])) && texts.contains(&&json!(names[3])), "{texts:?}");
    assert_eq!((slice_counts(&data), data["traces"][0]["cut"].as_bool()), ((6, 0), Some(true)));
}

#[test]
fn page_of_a_large_trace_is_bounded_and_counts_all() {
    const SLICES: u64 = 300_000;

    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("large.json");
    let slice = |at: u64| {
        let (thread, name) = (at % 7, at % 5000);
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"gemm<{name}>","pid":0,"tid":{thread},"ts":{},"dur":{}}}"#,
            at + 1,
            at % 9
        )
    };
    fs::write(&trace, format!("[{}]", (0..SLICES).map(slice).collect::<Vec<_>>().join(","))).unwrap();
    let page = page(&trace, &[]);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let (listed, merged) = slice_counts(&data(&page));
    assert_eq!(listed + merged, SLICES);
    assert!(listed > 5000, "{listed} listed");
}

#[test]
fn traces_and_other_files_are_not_overwritten() {
    let (folder, whole, _) = traces();
    let path = whole.to_str().unwrap();
    let refused = |output: &Path, why: &str| {
        let before = fs::read(output).unwrap();
        let (_, errors, status) = run(&["report", path, "-o", output.to_str().unwrap()]);
        assert!(status == Some(1) && errors.contains(why) && errors.contains("--output"), "{errors}");
        assert_eq!(fs::read(output).unwrap(), before);
    };
    refused(&whole, "it is the trace");
    let notes = folder.path().join("notes.html");
    for text in ["my notes", "<!doctype html><p>the page of another program"] {
        fs::write(&notes, text).unwrap();
        refused(&notes, "the file exists and is not a page of kineto report");
    }
    // The default is the trace's name; a page is replaced by a newer one.
    for _ in 0..2 {
        let (_, errors, status) = run(&["report", path]);
        assert_eq!((errors.as_str(), status), ("", Some(0)));
    }
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(files.contains(&"whole.html".into()) && files.len() == 4, "{files:?}");
}

/// The longest name of a file is one that the file system allows.
#[test]
#[cfg(unix)]
fn link_stays_and_long_names_are_written() {
    let (folder, whole, _) = traces();
    let long = folder.path().join(format!("{}.html", "n".repeat(250)));
    let link = folder.path().join("link.html");
    fs::write(&long, "").unwrap();
    std::os::unix::fs::symlink(&long, &link).unwrap();
    let (_, errors, status) = run(&["report", whole.to_str().unwrap(), "-o", link.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && fs::metadata(&long).unwrap().len() > 10_000);
}

#[test]
fn slowest_step_is_listed_when_steps_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.json");
    let steps: Vec<_> = (0..6000)
        .map(|step| {
            let dur = if step == 5500 { 90 } else { 50 };
            json!({"ph": "X", "cat": "user_annotation", "name": format!("ProfilerStep#{step}"),
                "pid": 1, "tid": 1, "ts": step * 100, "dur": dur})
        })
        .collect();
    fs::write(&trace, Value::from(steps).to_string()).unwrap();
    let data = data(&page(&trace, &[]));
    let trace = &data["traces"][0];
    assert_eq!(trace["rest"]["steps"], json!({"count": 6000, "min": 50.0, "median": 50.0, "max": 90.0}));
    let (out, _, _) = run(&["summary", folder.path().join("steps.json").to_str().unwrap()]);
    assert!(out.contains("6000 steps of 50.000us"), "{out}");
    let listed = trace["summary"]["steps"].as_array().unwrap();
    assert!(listed.len() < 6000 && trace["cut"] == true);
    assert!(listed.iter().any(|step| step["n"] == 5500 && step["dur"].as_f64() == Some(90.0)), "{:?}", listed.last());
}

#[test]
fn page_is_bounded_when_counters_and_tracks_are_many() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("wide.json");
    let long = "<".repeat(280);
    let mut events = Vec::new();
    for index in 0..100 {
        let tid = 100 + index;
        events.push(
            json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": format!("{index}{long}")}}),
        );
        for at in 0..30 {
            let name = format!("op{index}<{at}{long}");
            events.push(
                json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": at * 300, "dur": 200}),
            );
        }
        for at in 0..200 {
            events.push(json!({"ph": "C", "name": format!("counter{index}{long}"), "pid": 1, "tid": 1,
                "ts": at * 2500, "args": {&long: f64::from(at) / 7e5}}));
            events.push(json!({"ph": "X", "cat": "kernel", "name": "k", "pid": index, "tid": 7, "ts": at * 3000,
                "dur": f64::from(at * 7 % 1000), "args": {"device": index, "stream": 7}}));
        }
    }
    fs::write(&trace, Value::from(events).to_string()).unwrap();
    let page = page(&trace, &[]);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let data = data(&page);
    let (listed, merged) = slice_counts(&data);
    assert_eq!((listed + merged, data["traces"][0]["cut"].as_bool()), (23_000, Some(true)));
    assert!(listed > 500 && data["traces"][0]["rest"]["counters"].as_array().unwrap().len() > 5, "{listed} listed");
}

#[test]
fn many_traces_are_listed_and_the_first_have_details() {
    let folder = tempfile::tempdir().unwrap();
    for index in 0..200 {
        fs::write(folder.path().join(format!("{index:03}.json")), TRACE).unwrap();
    }
    let output = folder.path().join("all.html");
    let (_, errors, status) = run(&["report", folder.path().to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let page = fs::read_to_string(&output).unwrap();
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let data = data(&page);
    let traces = data["traces"].as_array().unwrap();
    assert_eq!((traces.len(), traces.iter().filter(|trace| trace["brief"] == true).count()), (200, 170));
    assert_eq!(traces[199]["summary"]["temporal"]["busy"], traces[0]["summary"]["temporal"]["busy"]);
    let (first, path) = (folder.path().join("000.json"), folder.path().to_str().unwrap());
    let (_, errors, status) = run(&["report", "--diff", path, first.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let compared = self::data(&fs::read_to_string(&output).unwrap());
    let detailed = |side: &str| {
        let traces = compared["traces"].as_array().unwrap().iter();
        traces.filter(|trace| trace["rest"]["side"] == side && trace["brief"].is_null()).count()
    };
    assert_eq!((detailed("A"), detailed("B")), (15, 1));
    assert_eq!((&data["left_out"], &traces[199]["rest"]["file"]), (&json!(0), &json!("199.json")));
}

/// Writes traces whose figures are longer than their share of a page; returns their folder.
fn folder_of_long_traces(count: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let long = "n".repeat(200);
    for rank in 0..count {
        let mut events = vec![
            json!({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 900}),
        ];
        for at in 0..40 {
            let (op, kernel) = (format!("op{at}{long}"), format!("kernel{at}{long}"));
            events.extend([
                json!({"ph": "X", "cat": format!("cat{at}{long}"), "name": &op, "pid": 1, "tid": 1, "ts": at * 20, "dur": 9}),
                json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at * 20 + 1, "dur": 2,
                    "args": {"correlation": at + 1}}),
                json!({"ph": "X", "cat": "kernel", "name": &kernel, "pid": 0, "tid": 7, "ts": at * 20 + 5, "dur": 10 + rank,
                    "args": {"correlation": at + 1, "device": 0, "stream": 7}}),
                json!({"ph": "X", "cat": "gpu_memcpy", "name": format!("Memcpy {op}"), "pid": 0, "tid": 7, "ts": at * 20 + 15, "dur": 1,
                    "args": {"device": 0, "stream": 7, "bytes": 64}}),
            ]);
        }
        fs::write(folder.path().join(format!("rank{rank}.json")), Value::from(events).to_string()).unwrap();
    }
    folder
}

/// Returns the members that a cut value lacks; entries of lists and of maps by name may be missing.
fn missing_members(cut: &Value, whole: &Value, path: &str) -> Vec<String> {
    match (cut, whole) {
        (Value::Object(_), Value::Object(_))
            if ["cats", "losses", "memory_bw"].iter().any(|map| path.ends_with(map)) =>
        {
            Vec::new()
        }
        (Value::Object(cut), Value::Object(whole)) => {
            let member = |(key, value)| match cut.get(key) {
                Some(found) => missing_members(found, value, &format!("{path}.{key}")),
                None => vec![format!("{path}.{key}")],
            };
            whole.iter().flat_map(member).collect()
        }
        (Value::Array(cut), Value::Array(whole)) => {
            cut.iter().zip(whole).flat_map(|(cut, whole)| missing_members(cut, whole, &format!("{path}[]"))).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn cut_figures_keep_all_members() {
    const RANKS: usize = 60;

    let folder = folder_of_long_traces(RANKS);
    let output = folder.path().join("ranks.html");
    let path = folder.path().to_str().unwrap();
    let (_, errors, status) = run(&["report", path, "-o", output.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let page = fs::read_to_string(&output).unwrap();
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let data = data(&page);
    let (json, _, _) = run(&["summary", "--json", folder.path().join("rank0.json").to_str().unwrap()]);
    let whole: Value = serde_json::from_str(&json).unwrap();
    let traces = data["traces"].as_array().unwrap();
    assert_eq!(traces.len(), RANKS);
    for trace in traces {
        assert_eq!((&trace["cut"], trace["brief"].is_null()), (&json!(true), true));
        assert_eq!(missing_members(&trace["summary"], &whole, ""), [""; 0]);
    }
    // Of maps by name, the largest entries are kept.
    let categories = traces[0]["summary"]["load"]["cats"].as_object().unwrap();
    assert!(categories.len() < 43 && categories["kernel"] == 40 && categories["cuda_runtime"] == 40, "{categories:?}");
}

#[test]
fn several_traces_share_a_page() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        let text = TRACE.replacen('{', &format!("{{\"distributedInfo\": {{\"rank\": {rank}}},"), 1);
        fs::write(folder.path().join(format!("rank{rank}.json")), text).unwrap();
    }
    fs::write(folder.path().join("rank3.json"), "[").unwrap();
    let output = folder.path().join("ranks.html");
    let (out, errors, status) =
        run(&["report", folder.path().to_str().unwrap(), "-o", output.to_str().unwrap(), "--name", "gemm"]);
    assert!(status == Some(1) && errors.contains("rank3.json") && out.contains("ranks.html"), "{errors}");
    let data = data(&fs::read_to_string(&output).unwrap());
    let ranks: Vec<_> =
        data["traces"].as_array().unwrap().iter().map(|trace| &trace["summary"]["load"]["rank"]).collect();
    assert_eq!(ranks, [&json!(0), &json!(1), &json!(2)]);
    assert_eq!(data["unread"], json!({"names": ["rank3.json"], "more": 0}));
    assert_eq!((slice_counts(&data), &data["traces"][2]["rest"]["part"]), ((1, 0), &json!("names with \"gemm\"")));
}

#[test]
fn longest_trace_has_details_and_numbers_give_the_order() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..70 {
        let text = TRACE.replace("\"dur\":10", &format!("\"dur\":{}", if rank == 69 { 900 } else { 10 + rank % 7 }));
        fs::write(folder.path().join(format!("rank{rank}.json")), text).unwrap();
    }
    let output = folder.path().join("ranks.html");
    let (_, errors, status) = run(&["report", folder.path().to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let data = data(&fs::read_to_string(&output).unwrap());
    let traces = data["traces"].as_array().unwrap();
    let names: Vec<_> = traces.iter().map(|trace| trace["rest"]["file"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, (0..70).map(|rank| format!("rank{rank}.json")).collect::<Vec<_>>());
    let detailed: Vec<_> = (0..70).filter(|rank| traces[*rank]["brief"].is_null()).collect();
    assert_eq!(detailed, (0..30).chain([69]).collect::<Vec<_>>());
    assert_eq!(traces[69]["summary"]["load"]["span"], 905.0);
}

#[test]
fn page_names_traces_that_it_lacks() {
    let (folder, whole, _) = traces();
    let output = folder.path().join("page.html");
    let missing = folder.path().join("missing.json");
    let arguments = [whole.to_str().unwrap(), missing.to_str().unwrap(), "-o", output.to_str().unwrap()];
    let (_, errors, status) = run(&[&["report"], &arguments[..]].concat());
    assert!(status == Some(1) && errors.contains("missing.json"), "{errors}");
    let page = fs::read_to_string(&output).unwrap();
    assert_eq!(data(&page)["unread"], json!({"names": ["missing.json"], "more": 0}));
    assert!(page.contains("<title>whole.json · kineto report</title>"));
}

#[test]
fn selection_without_slices_is_a_failure() {
    let (folder, whole, _) = traces();
    for command in ["table", "stacks"] {
        for selection in [["--name", "nomatch"], ["--step", "9999"]] {
            let (out, errors, status) = run(&[&[command], &selection[..], &[whole.to_str().unwrap()]].concat());
            assert!(out.is_empty() && errors.lines().count() == 1 && status == Some(1), "{out}{errors}");
        }
    }
    let output = folder.path().join("page.html");
    for command in [vec!["report", "-o", output.to_str().unwrap()], vec!["summary"]] {
        let (_, errors, status) = run(&[&command[..], &["--name", "nomatch", whole.to_str().unwrap()]].concat());
        let warning = "whole.json: no slice matches the selection (names with \"nomatch\"); change it\n";
        assert!(status == Some(1) && errors.ends_with(warning) && errors.lines().count() == 1, "{errors}");
        fs::write(folder.path().join("empty.json"), "[]").unwrap();
        let (_, errors, status) = run(&[&command[..], &[folder.path().join("empty.json").to_str().unwrap()]].concat());
        assert!(status == Some(0) && errors.contains("empty.json: the trace has no slice; record"), "{errors}");
    }
}

#[test]
fn page_goes_to_standard_output() {
    let (folder, whole, _) = traces();
    let mut command = command(&["report", whole.to_str().unwrap(), "-o", "-"]);
    let (out, errors, status) = texts(command.current_dir(folder.path()).output().unwrap());
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert!(out.starts_with("<!doctype html>") && out.ends_with("</html>\n"), "{out:.100}");
    assert!(!folder.path().join("-").exists());
}

#[test]
fn timeline_colors_work_by_its_class() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("kinds.json");
    let slice = |category: &str, name: &str, at: u32, args: Value| json!({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": at, "dur": 5, "args": args});
    let slices = [
        slice("kernel", "gemm", 0, json!({})),
        slice("kernel", "ncclDevKernel_AllReduce", 10, json!({})),
        slice("kernel", "custom", 20, json!({"Collective name": "allreduce"})),
        slice("kernel", "custom", 30, json!({})),
        slice("gpu_memcpy", "Memcpy HtoD", 40, json!({})),
        slice("gpu_user_annotation", "step", 50, json!({})),
        json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "pid": 1, "tid": 1, "ts": 60, "dur": 1}),
        json!({"ph": "X", "cat": "user_annotation", "name": "step", "pid": 1, "tid": 1, "ts": 70, "dur": 1}),
        json!({"ph": "X", "cat": "cpu_op", "name": "train", "pid": 1, "tid": 1, "ts": 80, "dur": 1}),
    ];
    fs::write(&trace, json!(slices).to_string()).unwrap();
    let data = data(&page(&trace, &[]));
    let kinds = |row: usize| data["traces"][0]["timeline"]["rows"][row]["kind"].clone();
    assert_eq!((kinds(0), kinds(1)), (json!([0, 1, 1, 0, 2, 4]), json!([3, 4, 5])));
}

#[test]
fn comparison_has_the_figures_of_diff() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, ns: u32| {
        let step = |n: u32| {
            let (start, inner) = (n * 100, n * 100 + 5);
            format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{n}","pid":1,"tid":1,"ts":{start},"dur":90}},
                {{"ph":"X","cat":"cpu_op","name":"</script>","pid":1,"tid":1,"ts":{inner},"dur":{}}}"#,
                ns + n % 2
            )
        };
        let path = folder.path().join(name);
        fs::write(&path, format!("[{}]", (0..20).map(step).collect::<Vec<_>>().join(","))).unwrap();
        path
    };
    let (a, b) = (write("a.json", 40), write("b.json", 50));
    let output = folder.path().join("change.html");
    let [a, b, file] = [&a, &b, &output].map(|path| path.to_str().unwrap());
    let (_, errors, status) = run(&["report", "--diff", a, b, "-o", file]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let data = data(&fs::read_to_string(&output).unwrap());
    let (json, _, _) = run(&["diff", "--json", a, b]);
    assert_eq!(data["diff"]["figures"], serde_json::from_str::<Value>(&json).unwrap());
    assert_eq!(data["diff"]["sides"], json!(["a.json", "b.json"]));
    assert_eq!(data["diff"]["figures"]["is_slower_alike"], true);
    assert_eq!((&data["traces"][0]["rest"]["side"], &data["traces"][1]["rest"]["side"]), (&json!("A"), &json!("B")));
    let (_, errors, status) = run(&["report", "--diff", a]);
    assert!(status == Some(2) && errors.contains("two traces"), "{errors}");
}

//! Traces from users' reports, with the expected results.

use super::{Event, Events, Note, TrackId};

/// Reads a file of the folder of such traces.
fn read(name: &str) -> Events {
    Events::read(format!("{}/tests/data/inputs/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Formats all slices as "name@start+duration", in microseconds after the first.
fn shown(events: &Events) -> String {
    let first = events.slice_range().start;
    let show = |slice: Event<'_>| {
        format!("{}@{}+{}", slice.name(), slice.start().since(first) / 1000, slice.duration_ns() / 1000)
    };
    events.iter().filter(Event::is_slice).map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn merged_ranks_are_joined_within_their_prefix() {
    let events = read("merged_ranks");
    let summary = events.summary();
    let launches = &summary.launches;
    assert_eq!(
        (launches.count, launches.unlinked, launches.p50_delay_ns, launches.max_delay_ns),
        (2, 0, 15_000, 15_000)
    );
    for op in ["op_rank0", "op_rank1"] {
        let row = summary.averages.ops().iter().find(|row| row.name() == op).unwrap();
        assert_eq!(row.device_ns(), 400_000, "{op}");
    }
    assert_eq!(summary.notes, [(Note::RepeatedId, 1)]);
    assert!(summary.screen().to_string().contains("note: repeated_id (1); launches are joined within"));
    let tree = events.tree();
    for kernel in events.iter().filter(|event| event.is_device_work()) {
        let above: Vec<_> = tree.ancestors(kernel).map(|event| event.name()).collect();
        assert_eq!(above, ["cudaLaunchKernel".to_owned(), kernel.name().replace("kernel", "op")]);
    }
}

/// Returns the ranks of a file without prefixes of their process ids, and with further changes.
fn ranks_without_prefixes(changes: &[(&str, &str)]) -> Events {
    let text =
        include_str!("../../tests/data/inputs/merged_ranks.json").replace("\"[TP00] ", "\"").replace("\"[TP01] ", "\"");
    let text = ["1000", "1001", "0", "1"].iter().fold(text, |text, id| text.replace(&format!("\"{id}\""), id));
    let text = changes.iter().fold(text, |text, (from, to)| text.replace(from, to));
    Events::from_reader(text.as_bytes()).unwrap()
}

#[test]
fn repeated_launches_are_joined_by_time() {
    let one_process = [("\"pid\": 1001", "\"pid\": 1000")];
    let driver = r#"{"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 1000, "tid": 1, "ts": 511, "dur": 2, "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "kernel_rank1""#;
    let with_driver = [one_process[0], (r#"{"ph": "X", "cat": "kernel", "name": "kernel_rank1""#, driver)];
    for changes in [&[][..], &one_process, &with_driver] {
        let events = ranks_without_prefixes(changes);
        let (summary, tree) = (events.summary(), events.tree());
        for (op, kernel) in [("op_rank0", "kernel_rank0"), ("op_rank1", "kernel_rank1")] {
            let row = summary.averages.ops().iter().find(|row| row.name() == op).unwrap();
            assert_eq!(row.device_ns(), 400_000, "{op} {changes:?}");
            let kernel = events.iter().find(|event| event.name() == kernel).unwrap();
            assert_eq!(tree.ancestors(kernel).last().map(|event| event.name()), Some(op));
        }
        assert_eq!(summary.notes, [(Note::AmbiguousId, 1)], "{changes:?}");
        // Any of the launches may be the kernel's, so its delay is unknown.
        assert_eq!((summary.launches.count, summary.launches.unlinked, summary.queues.len()), (0, 2, 0));
        assert_eq!(summary.idle.unlinked_ns, summary.idle.total_ns());
    }
    let of_rank0 =
        |before: &str| (format!("{before}, \"correlation\": 1}}"), format!("{before}, \"correlation\": 2}}"));
    let [call, kernel] =
        ["\"ts\": 10, \"dur\": 5, \"args\": {\"External id\": 1", "\"device\": 0, \"stream\": 7"].map(of_rank0);
    let [call, kernel] = [&call, &kernel].map(|(from, to)| (from.as_str(), to.as_str()));
    let once = ranks_without_prefixes(&[with_driver[0], with_driver[1], call, kernel]).summary();
    assert_eq!((once.notes, once.launches.count), (Vec::new(), 2), "the driver's call is inside the runtime's");
}

#[test]
fn launch_of_another_process_gives_no_delay() {
    // Rank 1 made launch 2 before the recording. Its kernel is not that of launch 2 of rank 0, which is later.
    let more = r#"{"traceEvents":[
        {"ph": "X", "cat": "kernel", "name": "early", "pid": 1, "tid": 7, "ts": 20, "dur": 5, "args": {"correlation": 2}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1000, "tid": 1, "ts": 480, "dur": 5, "args": {"correlation": 2}},"#;
    let launches = ranks_without_prefixes(&[("{\"schemaVersion\":1,\"traceEvents\":[", more)]).summary().launches;
    assert_eq!((launches.count, launches.unlinked, launches.started_before_call), (0, 3, 0));
    assert!(launches.mean_latency_ns >= 0.0, "{launches:?}");
}

#[test]
fn ends_are_paired_by_name() {
    let events = read("be_end_names_a");
    assert_eq!(shown(&events), "A@0+10 B@1+9 Z@10+1");
    let notes: Vec<_> = events.notes().collect();
    assert_eq!(notes, [(Note::BeginWithoutEnd, 1), (Note::MisplacedEnd, 1)]);
    let row = |ph: &str, name: &str, ts: u32| format!(r#"{{"ph":"{ph}","name":"{name}","ts":{ts},"pid":1,"tid":1}}"#);
    let rows =
        [row("B", "a", 0), row("B", "b", 1), row("E", "c", 2), row("E", "", 3), row("E", "b", 4), row("E", "a", 5)];
    let events = Events::from_reader(format!("[{}]", rows.join(",")).as_bytes()).unwrap();
    assert_eq!(shown(&events), "a@0+5 b@1+2");
    assert_eq!(events.notes().collect::<Vec<_>>(), [(Note::EndWithoutBegin, 2)]);
}

#[test]
fn device_work_without_times_is_left_out() {
    let events = read("kernel_ts_zero");
    let summary = events.summary();
    assert_eq!((summary.span_ns, summary.slices, summary.device_events), (100_000, 4, 1));
    assert_eq!((summary.launches.count, summary.launches.mean_delay_ns), (1, 4_000.0));
    assert_eq!((summary.notes.as_slice(), summary.findings()), (&[(Note::WithoutTime, 1)][..], Vec::new()));
    assert!(summary.screen().to_string().contains("note: without_time (1); left out"));
    // Rows of other kinds without a time bring no years back.
    let text = include_str!("../../tests/data/inputs/kernel_ts_zero.json");
    for row in [
        r#"{"ph":"X","cat":"cpu_op","name":"op","pid":100,"tid":100,"ts":0,"dur":0}"#,
        r#"{"ph":"X","cat":"user_annotation","name":"a","pid":100,"tid":100,"ts":0,"dur":5}"#,
        r#"{"ph":"C","name":"c","pid":100,"tid":100,"ts":0,"args":{"v":1}}"#,
        r#"{"ph":"i","name":"i","pid":100,"tid":100,"ts":0}"#,
    ] {
        let more = format!("\"traceEvents\":[{row},");
        for text in [
            text.replace("\"traceEvents\":[", &more),
            text.replace("\"traceEvents\":[", &more).replace("\"ts\": 0,", "\"ts\": 1615207264505030,"),
        ] {
            let summary = Events::from_reader(text.as_bytes()).unwrap().summary();
            let untimed = text.matches("\"ts\": 0,").count() + 1;
            assert_eq!(
                (summary.span_ns, summary.notes.as_slice()),
                (100_000, &[(Note::WithoutTime, untimed as u64)][..]),
                "{row}"
            );
        }
    }
    // If other events begin at 0, so may work.
    let text = r#"[{"ph":"X","cat":"cpu_op","name":"op","ts":0,"dur":0},{"ph":"X","cat":"kernel","name":"k","ts":0,"dur":0},
        {"ph":"X","cat":"kernel","name":"k","ts":1,"dur":0}]"#;
    assert_eq!(Events::from_reader(text.as_bytes()).unwrap().len(), 3);
}

#[test]
fn overlong_work_is_a_note_a_finding_and_a_broken_rule() {
    for (name, title, first) in [
        (
            "kernel_236_years",
            "`corrupt` is recorded to last 7447680000s, and so outlasts 1 later launch of its stream.",
            "corrupt",
        ),
        (
            "kernel_overruns_its_stream",
            "`attention` is recorded to last 1.600s, and so outlasts 7 later launches of its stream.",
            "attention",
        ),
    ] {
        let events = read(name);
        let summary = events.summary();
        assert_eq!(summary.notes, [(Note::OverlongWork, 1)], "{name}");
        assert_eq!(summary.findings()[0].title, title);
        let rules: Vec<_> =
            events.broken_rules().into_iter().map(|rule| (rule.problem, rule.count, rule.first)).collect();
        let index = events.iter().position(|event| event.name() == first);
        let problem = "slices outlast the recording, or device work most of the other work of its stream";
        assert_eq!(rules, [(problem, 1, index)], "{name}");
    }
}

#[test]
fn end_long_after_the_last_start_is_overlong() {
    let row = |category: &str, thread: u32, ts: u64, us: u64| {
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{category} {us}","pid":{thread},"tid":{thread},"ts":{ts},"dur":{us}}}"#
        )
    };
    let overlong = |rows: &[String]| {
        let text = format!("[{}]", rows.join(","));
        let events = Events::from_reader(text.as_bytes()).unwrap();
        let summary = events.summary();
        let found = summary.overlong.as_ref().map_or((0, ""), |found| (found.count, found.name.as_str()));
        let rule =
            events.broken_rules().iter().find(|rule| rule.problem.contains("outlast")).map_or(0, |rule| rule.count);
        let notes = summary.notes.iter().find(|(note, _)| *note == Note::OverlongWork).map_or(0, |(_, count)| *count);
        let finding = summary.findings().iter().any(|finding| finding.title.ends_with("outlasts the recording."));
        assert_eq!((rule, notes, finding), (found.0, found.0, found.0 > 0));
        (found.0, found.1.to_owned())
    };
    const YEARS: u64 = 7_447_680_000_000_000;
    let step = row("user_annotation", 1, 0, 1_000);
    let [op, kernel] = [row("cpu_op", 1, 10, 20), row("kernel", 7, 40, 50)];
    let usual = [step, op, kernel];
    let with = |more: &[String]| overlong(&[&usual[..], more].concat());
    assert_eq!(with(&[row("kernel", 7, 100, YEARS)]), (1, format!("kernel {YEARS}")), "last of its stream");
    assert_eq!(with(&[row("kernel", 8, 20, YEARS)]), (1, format!("kernel {YEARS}")), "alone on its stream");
    assert_eq!(with(&[row("kernel", 8, 20, YEARS), row("gpu_memcpy", 9, 15, YEARS)]).0, 2);
    assert_eq!(with(&[row("cpu_op", 2, 20, YEARS)]), (1, format!("cpu_op {YEARS}")), "of the host");
    // A slice without an end does not last as long as a wrong one.
    let open = r#"{"ph":"B","cat":"cpu_op","name":"open","pid":3,"tid":3,"ts":5}"#.to_owned();
    assert_eq!(with(&[open, row("kernel", 8, 20, YEARS)]), (1, format!("kernel {YEARS}")));
    let minutes = 600_000_000;
    for rows in [
        vec![row("kernel", 7, 100, minutes)],
        vec![row("user_annotation", 2, 0, minutes)],
        vec![row("user_annotation", 2, 0, YEARS), row("kernel", 7, YEARS - 10, 5)],
    ] {
        assert_eq!(with(&rows).0, 0, "{rows:?}");
    }
}

#[test]
fn negative_times_keep_their_durations() {
    let events = read("negative_ts");
    assert_eq!((shown(&events).as_str(), events.notes().count()), ("n@0+8764 n@69617+1366", 0));
    let first = |events: &Events| {
        let summary: serde_json::Value = serde_json::from_str(&events.summary().to_json()).unwrap();
        summary["load"]["first_ts_ns"].clone()
    };
    assert_eq!(first(&events), -11_508_000);
    let text = include_str!("../../tests/data/inputs/negative_ts.json");
    for (base, notes) in [("-5000000", 0), ("-9000000000000000000", 0), ("1000", 1)] {
        let text = text.replacen('{', &format!("{{\"baseTimeNanoseconds\": {base},"), 1);
        let events = Events::from_reader(text.as_bytes()).unwrap();
        let durations: Vec<_> = events.iter().map(|event| event.duration_ns() / 1000).collect();
        let early = events.notes().collect::<Vec<_>>();
        assert_eq!((durations, early.len()), (vec![8_764, 1_366], notes), "{base}: {early:?}");
        assert!(notes > 0 || first(&events) == -11_508_000, "{base}");
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.json", "a.pftrace"] {
        let path = folder.path().join(name);
        events.save(&path).unwrap();
        assert_eq!(shown(&Events::read(&path).unwrap()), shown(&events), "{name}");
    }
}

#[test]
fn json_that_other_readers_accept_is_read_with_a_note() {
    let names = |events: &Events| events.iter().map(|event| event.name().to_owned()).collect::<Vec<_>>();
    for (name, expected, note) in [
        ("windows_path", &["aten::mm", r"lib\core\__init__.py(2): f"][..], Note::InvalidJson),
        ("raw_control_character", &["config.py(0): \u{1}"], Note::InvalidJson),
        ("bare_NA", &["Memcpy HtoD"], Note::InvalidJson),
        ("array_trailing_comma", &["a"], Note::InvalidJson),
        ("array_without_end", &["a", "b"], Note::OpenList),
    ] {
        let events = read(name);
        assert_eq!(
            (names(&events).as_slice(), events.notes().collect::<Vec<_>>()),
            (expected.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>().as_slice(), vec![(note, 1)]),
            "{name}"
        );
    }
    let copy = read("bare_NA");
    assert_eq!(
        copy.get(0).unwrap().arg("memory bandwidth (GB/s)").map(|value| format!("{value:?}")),
        Some("null".to_owned())
    );
}

#[test]
fn backslash_before_the_end_of_a_text_is_a_letter() {
    let event = |args: &str| format!(r#"{{"ph":"X","name":"a","ts":1,"dur":2,"args":{{{args}}}}}"#);
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["in.json", "out.json"].map(|name| folder.path().join(name));
    for (args, expected, repairs) in [
        (r#""cwd":"D:\""#, r#"{"cwd":"D:\\"}"#, 1),
        (r#""cwd":"D:\","n":1"#, r#"{"cwd":"D:\\","n":1}"#, 1),
        (r#""n":["E:\","F:\"]"#, r#"{"n":["E:\\","F:\\"]}"#, 2),
        (r#""n":["E:\", 5, null]"#, r#"{"n":["E:\\", 5, null]}"#, 1),
        (r#""n":"say \"a\", C:\core""#, r#"{"n":"say \"a\", C:\\core"}"#, 1),
        (r#""n":["say \"a\", C:\core", "\"b\"}"]"#, r#"{"n":["say \"a\", C:\\core", "\"b\"}"]}"#, 1),
    ] {
        let (own, other) = (event(args), event(""));
        for (text, count) in [
            (format!("{{\"traceEvents\": [{own}, {other}]}}"), 2),
            (format!("{{\"traceEvents\": [{other},\n{own}\n]\n}}\n"), 2),
            (format!("[{own}]"), 1),
        ] {
            std::fs::write(&input, &text).unwrap();
            let repair = super::repair(&input, &output).unwrap().unwrap();
            assert_eq!((repair.dropped_bytes, repair.rewritten), (0, repairs), "{text}");
            let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
            assert_eq!(value.get("tracing_kineto_incomplete"), None);
            for (path, notes) in [(&input, &[(Note::InvalidJson, repairs)][..]), (&output, &[])] {
                let events = Events::read(path).unwrap();
                assert_eq!((events.len(), events.notes().collect::<Vec<_>>().as_slice()), (count, notes), "{text}");
                let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
                let found = events.iter().map(|event| json(&event.metadata_json()));
                assert_eq!(found.filter(|found| *found == json(expected)).count(), 1, "{text}");
            }
        }
    }
    for header in [r#"{"cwd": "D:\", "traceEvents": [EVENT]}"#, r#"{"traceEvents": [EVENT], "cwd": "D:\"}"#] {
        std::fs::write(&input, header.replace("EVENT", &event(""))).unwrap();
        let repair = super::repair(&input, &output).unwrap().unwrap();
        assert_eq!((repair.dropped_bytes, repair.rewritten), (0, 1), "{header}");
        for path in [&input, &output] {
            let events = Events::read(path).unwrap();
            let found: Vec<_> = events.metadata().collect();
            assert_eq!((found, events.len()), (vec![("cwd", r#""D:\\""#)], 1), "{header}");
        }
    }
}

#[test]
fn device_rows_of_xla_are_work_once() {
    let events = read("jax_like");
    let summary = events.summary();
    let busy = summary.occupation.as_ref().map(|devices| devices.busy_ns);
    assert_eq!((summary.device_events, summary.devices, busy), (1, 1, Some(300_500)));
    let ops: Vec<_> = summary.averages.ops().iter().map(|row| row.name()).collect();
    assert_eq!((ops, summary.device_annotations.len()), (vec!["Pjit(step)"], 1));
    assert_eq!(summary.stream_idle[0].stream.stream, TrackId::Id(13));
    let text = include_str!("../../tests/data/inputs/jax_like.json");
    let count = |text: &str| {
        let events = Events::from_reader(text.as_bytes()).unwrap();
        let note = events.notes().find(|(note, _)| *note == Note::UnknownDevice).map(|(_, count)| count);
        (events.iter().filter(|event| event.is_device_work()).count(), note)
    };
    assert_eq!(
        count(&text.replace("/device:GPU:0", "Ascend Hardware").replace("Stream #13(Compute)", "Stream 13")),
        (1, None)
    );
    assert_eq!(count(&text.replace("Stream #13(Compute)", "Steps")), (1, None), "a TPU has no streams");
    assert_eq!(count(&text.replace("Stream #13(Compute)", "Steps").replace("XLA Ops", "Ops")), (0, Some(2)));
    assert_eq!(count(&text.replace("/device:GPU:0", "/device:CPU:0")), (0, None));
    let unknown = text.replace("Stream #13(Compute)", "Steps").replace("XLA Ops", "Ops");
    let screen = Events::from_reader(unknown.as_bytes()).unwrap().summary().screen().to_string();
    assert!(
        screen.contains("note: unknown_device (2); slices on rows of devices are not recognized as work"),
        "{screen}"
    );
    assert!(!summary.screen().to_string().contains("not in the tables"));
}

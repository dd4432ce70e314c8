//! Tests of figures, findings and text on small traces.

use super::findings::GainClaim;
use super::*;
use crate::analysis::events::TrackId;
use std::fmt::Write as _;

/// The events of a trace in JSON.
#[derive(Default)]
struct TraceText(String);

impl TraceText {
    /// Adds a slice; times are microseconds.
    fn add(mut self, category: &str, name: &str, row: (u32, u32), (start, end): (u32, u32), args: &str) -> TraceText {
        let (pid, tid) = row;
        let _ = write!(
            self.0,
            "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{start},\
             \"dur\":{},\"args\":{{{args}}}}},",
            end - start
        );
        self
    }

    /// Adds a call and the kernel that it launches.
    fn kernel(self, id: u32, name: &str, call: (u32, u32), work: (u32, u32)) -> TraceText {
        let correlation = format!("\"correlation\":{id}");
        let work_args = format!("{correlation},\"device\":0,\"stream\":7");
        self.add("cuda_runtime", "cudaLaunchKernel", (1, 1), call, &correlation).add(
            "kernel",
            name,
            (0, 7),
            work,
            &work_args,
        )
    }

    fn events(&self) -> Events {
        let text = format!("{{\"traceEvents\": [{}]}}", self.0.trim_end_matches(','));
        Events::from_reader(text.as_bytes()).unwrap()
    }

    fn summary(&self) -> Summary {
        self.events().summary()
    }

    fn titles(&self) -> Vec<String> {
        self.summary().findings().into_iter().map(|finding| finding.title).collect()
    }
}

#[test]
fn starved_device_is_found_with_its_gap() {
    let late = TraceText::default()
        .kernel(1, "a", (0, 10), (20, 120))
        .add("cpu_op", "load", (1, 1), (130, 500), "")
        .kernel(2, "b", (510, 515), (520, 600));
    let summary = late.summary();
    let findings = summary.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].title, "The GPU is idle for 69 % of the time, and waits for the CPU to launch work.");
    assert!(findings[0].evidence.contains("400.000us, follows `a` while the CPU is in `load`"), "{findings:?}");
    assert_eq!((findings[0].gain_ns, summary.gaps.len()), (400_000, 1));
    let early = TraceText::default().kernel(1, "a", (0, 5), (20, 120)).kernel(2, "b", (6, 9), (520, 600));
    assert!(early.titles().is_empty());
}

#[test]
fn memory_counters_and_losses_have_figures() {
    let memory = |bytes: i64, total: u64, device: i64, kind: u8| {
        format!(
            r#"{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":1,"args":
            {{"Bytes":{bytes},"Total Allocated":{total},"Device Type":{kind},"Device Id":{device}}}}},"#
        )
    };
    // Threads share a counter.
    let counter = |at: u32, value: &str| {
        format!(r#"{{"ph":"C","name":"queue","pid":1,"tid":{at},"ts":{at},"args":{{"depth":{value}}}}},"#)
    };
    let text = [
        r#"{"tracing_kineto": {"losses": {"slices_over_limit": 3, "clipped_slices": 4, "fields_over_limit": 0}}, "traceEvents": ["#,
        r#"{"ph":"M","name":"process_name","pid":1,"args":{"name":"app"}},"#,
        &memory(100, 100, 1, 1),
        &memory(50, 150, 1, 1),
        &memory(-100, 50, 1, 1),
        &memory(8, 8, -1, 0),
        &counter(1, "4"),
        &counter(2, "0.5"),
        &counter(3, "\"nan\""),
        &counter(4, "1.5"),
        r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]}"#,
    ];
    let summary = Events::from_reader(text.concat().as_bytes()).unwrap().summary();
    let figures = |row: &MemoryFigures| {
        (row.title(), row.peak_allocated, row.allocations, row.frees, row.allocated_bytes, row.growth)
    };
    let expected = [("CPU".to_owned(), Some(8), 1, 0, 8, 8), ("CUDA 1".to_owned(), Some(150), 2, 1, 150, 50)];
    assert_eq!(summary.memory.iter().map(figures).collect::<Vec<_>>(), expected);
    let [queue] = summary.counters.as_slice() else { panic!("{:?}", summary.counters) };
    assert_eq!((queue.track.as_str(), queue.name.as_str(), queue.series.as_str()), ("app", "queue", "depth"));
    assert_eq!((queue.count, queue.min, queue.max, queue.mean, queue.last), (3, 0.5, 4.0, 2.0, 1.5));
    assert_eq!(summary.losses, [("slices_over_limit".to_owned(), 3)]);
    let screen = summary.screen().to_string();
    assert!(screen.contains("incomplete: slices_over_limit (3)"), "{screen}");
    assert!(screen.contains("app · queue · depth") && screen.contains("CUDA 1"), "{screen}");
    let json: serde_json::Value = serde_json::from_str(&summary.to_json()).unwrap();
    assert_eq!((&json["memory"][1]["peak_allocated"], &json["counters"][0]["mean"]), (&150.into(), &2.0.into()));
    assert_eq!(json["load"]["losses"]["slices_over_limit"], 3);
}

#[test]
fn overlapping_gains_are_named() {
    let launches = (0..200).fold(TraceText::default(), |lines, i| {
        lines.kernel(i + 1, "tiny", (i * 20, i * 20 + 9), (i * 20 + 9, i * 20 + 14))
    });
    let findings = launches.summary().findings();
    let idle: Vec<_> =
        findings.iter().filter(|finding| finding.claim == GainClaim::Idle && finding.gain_ns > 0).collect();
    assert!(idle.len() >= 2, "{findings:?}");
    let overlap = "This gain overlaps with that of 1: do not add them up.";
    assert!(
        !idle[0].evidence.contains(overlap) && idle.iter().skip(1).all(|finding| finding.evidence.ends_with(overlap)),
        "{findings:?}"
    );
    let alone = TraceText::default().kernel(1, "a", (0, 10), (20, 120)).kernel(2, "b", (510, 515), (520, 600));
    assert!(alone.summary().findings().iter().all(|finding| !finding.evidence.contains("overlaps with that")));
}

#[test]
fn host_time_outside_of_operations_is_named() {
    let steps = |inner: u32| {
        (0..30).fold(TraceText::default(), |lines, i| {
            let at = i * 100;
            lines.add("cpu_op", "load", (1, 1), (at, at + inner), "").kernel(
                i + 1,
                "gemm",
                (at + 80, at + 82 + i),
                (at + 82 + i, at + 85 + i),
            )
        })
    };
    let found =
        |inner| steps(inner).summary().findings().into_iter().find(|it| it.title.contains("critical path")).unwrap();
    let outside = found(10);
    assert!(
        outside.title.contains("% of the critical path is host work: ")
            && outside.title.ends_with(" outside of operations."),
        "{outside:?}"
    );
    assert!(
        outside.evidence.contains("The longest stretches: 70.000us between `load` and `cudaLaunchKernel`; "),
        "{outside:?}"
    );
    let inside = found(75);
    assert!(!inside.title.contains("outside") && inside.evidence.starts_with("`load` takes "), "{inside:?}");
}

#[test]
fn first_screen_has_the_requests() {
    let poll = |lines: TraceText, (span, request, name, start, end)| {
        lines.add("cpu_op", name, (1, 1), (start, end), &format!("\"span id\":{span},\"request id\":{request}"))
    };
    let polls = [
        (1, 1, "get", 0, 10),
        (2, 1, "query", 10, 20),
        (3, 3, "get", 20, 25),
        (1, 1, "get", 30, 100),
        (3, 3, "get", 100, 420),
    ];
    let lines = polls.into_iter().fold(TraceText::default(), poll);
    let tracks = [1, 2, 3].map(|span| {
        format!(r#"{{"ph":"b","cat":"async","name":"get","id2":{{"local":"0x{span}"}},"pid":1,"tid":1,"ts":1,"args":{{"span id":{span}}}}}"#)
    });
    let text = format!("[{}{}]", lines.0, tracks.join(","));
    let summary = Events::from_reader(text.as_bytes()).unwrap().summary();
    let [get] = summary.requests.as_slice() else { panic!("{:?}", summary.requests) };
    assert_eq!((get.name.as_str(), get.count, get.p50_ns, get.max_ns), ("get", 2, 100_000, 400_000));
    let screen = summary.screen().brief(true).to_string();
    assert!(
        screen.contains("2 requests `get`: median 100.000us, 95 % within 400.000us, longest 400.000us"),
        "{screen}"
    );
}

#[test]
fn section_is_printed_alone() {
    let summary = TraceText::default().kernel(1, "a", (0, 10), (20, 120)).summary();
    let kernels = summary.screen().section("kernels".parse().unwrap()).to_string();
    assert!(kernels.contains("Kernels, copies and fills") && !kernels.contains("What to do next"), "{kernels}");
    assert!("gaps".parse::<ScreenSection>().unwrap_err().to_string().contains("kernels"));
    for section in ScreenSection::ALL.iter().copied() {
        assert_eq!(section.as_str().parse::<ScreenSection>().unwrap(), section);
    }
}

#[test]
fn reason_of_a_dump_is_the_first_line() {
    let text = r#"{"dump_reason": "slow request: GET /", "traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":0,"dur":9}]}"#;
    let summary = Events::from_reader(text.as_bytes()).unwrap().summary();
    assert_eq!(summary.dump_reason.as_deref(), Some("slow request: GET /"));
    let screen = summary.screen().to_string();
    assert_eq!(screen.lines().next(), Some("dumped because of: slow request: GET /"));
    assert!(!screen.contains("No problem was found") && screen.contains("Find out what led to the dump"), "{screen}");
    assert!(summary.to_json().contains(r#""dump_reason":"slow request: GET /""#));
}

#[test]
fn many_small_kernels_are_found() {
    let launches = |count: u32| {
        (0..count).fold(TraceText::default(), |lines, i| {
            lines.kernel(i + 1, "tiny", (i * 10, i * 10 + 9), (i * 10 + 9, i * 10 + 14))
        })
    };
    assert!(
        launches(200).titles()[0]
            .starts_with("200 of 200 kernels, copies and fills run for less time than their launch takes (mean: 9.")
    );
    assert!(launches(20).titles().iter().all(|title| !title.contains("run for less")));
}

#[test]
fn exposed_communication_is_found() {
    let train = |comm: (u32, u32)| {
        let args = "\"correlation\":2,\"device\":0,\"stream\":8";
        TraceText::default()
            .kernel(1, "gemm", (0, 1), (2, 1000))
            .add("cuda_runtime", "cudaLaunchKernel", (1, 1), (1, 2), "\"correlation\":2")
            .add("kernel", "ncclDevKernel_AllReduce", (0, 8), comm, args)
    };
    assert_eq!(
        train((900, 1500)).titles(),
        ["Communication runs without computation for 500.000us (83 % of its time)."]
    );
    assert!(train((300, 900)).titles().is_empty());
}

#[test]
fn pageable_copies_are_found() {
    let copy = |name: &str| {
        let args = "\"correlation\":1,\"device\":0,\"stream\":7,\"bytes\":4000";
        TraceText::default().add("gpu_memcpy", name, (0, 7), (0, 100), args).kernel(2, "gemm", (0, 1), (100, 200))
    };
    assert_eq!(
        copy("Memcpy HtoD (Pageable -> Device)").titles(),
        ["Copies with pageable memory take 100.000us (1 in all)."]
    );
    let pinned = copy("Memcpy HtoD (Pinned -> Device)").titles();
    assert!(pinned.iter().all(|title| !title.contains("pageable")), "{pinned:?}");
    let copies = copy("Memcpy HtoD (Pinned -> Device)").summary().copies;
    assert_eq!((copies[0].kind.as_str(), copies[0].bytes, copies[0].gb_per_s), ("Memcpy HtoD", 4000, Some(0.04)));
}

#[test]
fn repeated_synchronizations_are_found() {
    let reads = |count: u32, ns: u32| {
        (0..count).fold(TraceText::default(), |lines, i| {
            let at = i * 100;
            let name = "cudaStreamSynchronize";
            lines.kernel(i + 1, "gemm", (at, at + 5), (at + 5, at + 40)).add(
                "cuda_runtime",
                name,
                (1, 1),
                (at + 50, at + 50 + ns),
                "",
            )
        })
    };
    let found = reads(20, 30).summary().findings();
    let found = found.iter().find(|finding| finding.title == "The CPU waits for the GPU 20 times, 600.000us in all.");
    assert!(found.is_some_and(|found| found.evidence.starts_with("`cudaStreamSynchronize` is called 20 times. ")));
    for quiet in [reads(5, 30), reads(20, 1)] {
        assert!(quiet.titles().iter().all(|title| !title.starts_with("The CPU waits")), "{:?}", quiet.titles());
    }
}

#[test]
fn repeated_allocations_are_found() {
    let calls = |count: u32| {
        (0..count).fold(TraceText::default(), |lines, i| {
            lines.add(
                "cuda_runtime",
                if i % 2 == 0 { "cudaMalloc" } else { "cudaFree" },
                (1, 1),
                (i * 10, i * 10 + 4),
                "",
            )
        })
    };
    assert_eq!(calls(30).titles(), ["Allocating and freeing memory takes 120.000us (30 calls)."]);
    assert!(calls(10).titles().is_empty());
}

#[test]
fn copies_alone_in_the_only_stream_are_found() {
    let copies = |stream: u32| {
        let args = format!("\"device\":0,\"stream\":{stream}");
        TraceText::default().kernel(1, "gemm", (0, 1), (100, 1000)).add(
            "gpu_memcpy",
            "Memcpy HtoD (Pinned -> Device)",
            (0, stream),
            (0, 100),
            &args,
        )
    };
    assert_eq!(copies(7).titles(), ["Copies and fills run alone for 100.000us: no kernel runs meanwhile."]);
    assert!(copies(8).titles().is_empty());
}

#[test]
fn full_launch_queue_is_found() {
    let launches = |count: u32| {
        (0..count).fold(TraceText::default(), |lines, i| {
            lines.kernel(i + 1, "gemm", (i, i + 1), (5000 + i * 50, 5050 + i * 50))
        })
    };
    let is_full = |title: &String| title == "The launch queue is full: up to 1020 launches wait in a stream.";
    assert!(launches(1020).titles().iter().any(is_full));
    assert!(launches(900).titles().iter().all(|title| !title.contains("queue")));
}

#[test]
fn uneven_steps_are_found() {
    let steps = |last: u32| {
        let step = |lines: TraceText, (n, start, end)| {
            lines.add("user_annotation", &format!("ProfilerStep#{n}"), (1, 1), (start, end), "")
        };
        [(1, 0, 100), (2, 100, 200), (3, 200, 200 + last)].into_iter().fold(TraceText::default(), step)
    };
    assert_eq!(steps(300).titles(), ["Step 3 takes 300.000us; the median of 3 steps is 100.000us."]);
    assert!(steps(110).titles().is_empty());
}

#[test]
fn empty_trace_has_a_summary() {
    let summary = TraceText::default().summary();
    assert_eq!((summary.slices, summary.occupation.clone(), summary.span_ns), (0, None, 0));
    assert!(summary.screen().to_string().contains("There is no slice."));
    let json: serde_json::Value = serde_json::from_str(&summary.to_json()).unwrap();
    assert!(json["temporal"].is_null() && json["overlap_pct"].is_null());
}

#[test]
fn streams_of_two_devices_are_distinct() {
    let work = |lines: TraceText, (device, start, end)| {
        let args = format!("\"device\":{device},\"stream\":\"0x7\"");
        lines.add("kernel", "gemm", (device, 7), (start, end), &args)
    };
    let summary = [(0, 0, 10), (1, 5, 50), (0, 60, 70)].into_iter().fold(TraceText::default(), work).summary();
    let idle: Vec<_> = summary.stream_idle.iter().map(|row| (row.stream.clone(), row.idle.unlinked_ns)).collect();
    let stream = |device| StreamId { device: TrackId::Id(device), stream: TrackId::Id(7) };
    assert_eq!(idle, [(stream(0), 50_000), (stream(1), 0)]);
    assert_eq!(summary.occupation.unwrap().busy_ns, 60_000);
}

#[test]
fn lines_fit_the_width_and_hide_control_characters() {
    let name = format!("{}\\u001b[31m", "long_name_".repeat(30));
    let lines = TraceText::default()
        .kernel(1, &name, (0, 10), (20, 120))
        .add("cpu_op", &name, (1, 1), (130, 500), "")
        .kernel(2, &name, (510, 515), (520, 600));
    let summary = lines.summary();
    for width in [80, 100, 200] {
        let text = summary.screen().width(width).to_string();
        let brief = summary.screen().width(width).brief(true).to_string();
        assert!(
            text.starts_with(&brief) && brief.lines().count() <= 23 && brief.contains("What to do next"),
            "{brief}"
        );
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= width && !text.contains('\u{1b}'), "{longest} > {width}:\n{text}");
    }
    assert!(summary.screen().color(true).to_string().contains("\u{1b}[1mWhat to do next\u{1b}[0m"));
}

#[test]
fn median_is_the_same_in_summary_and_check() {
    use crate::analysis::check::{Figure, Quantity, Rule, Rules, Statistic};

    let steps = TraceText::default().add("user_annotation", "ProfilerStep#1", (1, 1), (0, 100), "").add(
        "user_annotation",
        "ProfilerStep#2",
        (1, 1),
        (100, 1000),
        "",
    );
    let summary = steps.summary();
    assert_eq!((summary.median_step_ns(), TraceText::default().summary().median_step_ns()), (Some(100_000), None));
    assert!(summary.screen().to_string().contains("2 steps of 100.000us"), "{}", summary.screen());
    let rule = Rule::new(Figure::Duration(Statistic::P50)).of("ProfilerStep#*").at_most(Quantity::Nanoseconds(0));
    let report = Rules::new().with(rule).check(&steps.events());
    assert_eq!(report.outcomes()[0].found, Some(Quantity::Nanoseconds(100_000)));
}

#[test]
fn all_reduces_of_other_libraries_are_communication() {
    for name in [
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, int)",
        "cross_device_reduce_2stage",
        "void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "multimem_one_shot_all_reduce_kernel",
        "one_shot_all_reduce_kernel",
        "two_shot_all_reduce_kernel_inplace",
    ] {
        let summary = TraceText::default().kernel(1, name, (0, 10), (20, 120)).summary();
        assert_eq!(summary.kernels[0].class, WorkClass::Communication, "{name}");
        assert_eq!(summary.collectives[0].kind, "AllReduce", "{name}");
    }
    let other = TraceText::default().kernel(1, "reduce_kernel", (0, 10), (20, 120)).events();
    let classes: Vec<_> = other.iter().map(|event| WorkClass::of(&event)).collect();
    assert_eq!(classes, [None, Some(WorkClass::Compute)]);
}

//! Tests of each figure: a rule that holds and one that fails, on one small trace; then hostile rules and traces.

use super::*;
use crate::analysis::summary::PathPlace;
use std::fmt::Write as _;

/// Two steps on thread 1 with two spans `decode` and one `prefill`, and a launch on thread 2. Times are microseconds.
const ROWS: &[&str] = &[
    "user_annotation ProfilerStep#1 1/1 0..100",
    "cpu_op decode 1/1 10..40",
    "cuda_runtime cudaLaunchKernel 1/1 12..14 correlation=1",
    "kernel gemm 0/7 20..30 correlation=1",
    "cuda_runtime cudaLaunchKernel 1/2 50..52 correlation=5",
    "kernel scale 0/8 60..70 correlation=5",
    "user_annotation ProfilerStep#2 1/1 100..300",
    "cpu_op decode 1/1 110..160",
    "cuda_runtime cudaLaunchKernel 1/1 112..114 correlation=2",
    "kernel gemm 0/7 120..150 correlation=2",
    "cuda_runtime cudaStreamSynchronize 1/1 130..155 correlation=8",
    "cuda_driver cuStreamSynchronize 1/1 131..154 correlation=9",
    "cpu_op prefill 1/1 200..280",
    "cuda_runtime cudaMemcpyAsync 1/1 205..207 correlation=3",
    "gpu_memcpy Memcpy_DtoH 0/7 210..240 correlation=3",
    "cuda_runtime cudaLaunchKernel 1/1 210..212 correlation=4",
    "kernel ncclDevKernel_AllReduce 0/8 225..260 correlation=4",
];

/// Returns a trace of rows: category, name, process/thread, start..end and numbers as arguments.
fn trace(rows: &[&str], header: &str) -> Events {
    let mut text = String::new();
    for row in rows {
        let mut words = row.split(' ');
        let mut word = || words.next().unwrap();
        let (category, name, track, times) = (word(), word(), word(), word());
        let (pid, tid) = track.split_once('/').unwrap();
        let (start, end) = times.split_once("..").unwrap();
        let dur = end.parse::<u64>().unwrap() - start.parse::<u64>().unwrap();
        let args: Vec<_> = words.map(|arg| arg.split_once('=').unwrap()).collect();
        let args: Vec<_> = args.iter().map(|(key, value)| format!("\"{}\":{value}", key.replace('_', " "))).collect();
        let _ = write!(
            text,
            "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{start},\
             \"dur\":{dur},\"args\":{{{}}}}},",
            args.join(",")
        );
    }
    let text = format!("{{{header}\"traceEvents\": [{}]}}", text.trim_end_matches(','));
    Events::from_reader(text.as_bytes()).unwrap()
}

fn sample() -> Events {
    trace(ROWS, "")
}

fn check(events: &Events, rule: Rule) -> RuleOutcome {
    Rules::new().with(rule).check(events).outcomes()[0].clone()
}

/// Checks that a rule holds at its limit and fails with the next limit below or above.
fn assert_limits(events: &Events, rule: &Rule, found: Quantity) {
    let (above, below) = match found {
        Quantity::Count(n) => (Quantity::Count(n + 1), n.checked_sub(1).map(Quantity::Count)),
        Quantity::Nanoseconds(n) => (Quantity::Nanoseconds(n + 1), n.checked_sub(1).map(Quantity::Nanoseconds)),
        Quantity::Bytes(n) => (Quantity::Bytes(n + 1), n.checked_sub(1).map(Quantity::Bytes)),
        Quantity::Percent(n) => (Quantity::Percent(n + 0.01), Some(Quantity::Percent((n - 0.01).max(0.0)))),
    };
    let outcome = |rule: Rule| {
        let outcome = check(events, rule);
        (outcome.status, outcome.found.map(|found| found.to_string()))
    };
    let found_text = Some(found.to_string());
    let wide = |quantity: Quantity| match quantity {
        Quantity::Percent(n) => Quantity::Percent(n + 1e-6),
        other => other,
    };
    assert_eq!(outcome(rule.clone().at_most(wide(found))), (RuleStatus::Holds, found_text.clone()), "{rule}");
    if let Some(below) = below.filter(|_| !found.is_zero()) {
        assert_eq!(outcome(rule.clone().at_most(below)), (RuleStatus::Fails, found_text), "{rule}");
    }
    assert_eq!(outcome(rule.clone().at_least(above)).0, RuleStatus::Fails, "{rule}");
}

#[test]
fn synchronizations_are_found_in_their_span() {
    let events = sample();
    let rule = |span| Rule::new(Figure::Synchronizations).within(span).at_most(Quantity::Count(0));
    let outcome = check(&events, rule("decode"));
    assert_eq!((outcome.status, outcome.found), (RuleStatus::Fails, Some(Quantity::Count(1))), "{outcome}");
    let [place] = outcome.places.as_slice() else { panic!("{outcome}") };
    assert_eq!((place.name.as_str(), place.offset_ns, place.duration_ns), ("cudaStreamSynchronize", 130_000, 25_000));
    assert_eq!(place.track, "1/1");
    assert_eq!(check(&events, rule("prefill")).status, RuleStatus::Holds);
    assert_limits(&events, &Rule::new(Figure::Synchronizations).each("decode"), Quantity::Count(1));
    let blocking = [
        "cuda_runtime cudaMemcpy 1/1 1..2",
        "cuda_runtime hipMemcpyDtoH 1/1 3..4",
        "xpu_runtime urQueueFinish 1/1 5..6",
    ];
    assert_limits(&trace(&blocking, ""), &Rule::new(Figure::Synchronizations), Quantity::Count(3));
    let others = [
        "cuda_runtime cudaMemcpyAsync 1/1 1..2",
        "cuda_runtime cudaGraphAddMemcpyNode 1/1 3..4",
        "cuda_runtime cudaStreamWaitEvent 1/1 5..6",
        "xpu_runtime urEnqueueUSMMemcpy 1/1 7..8",
        "xpu_runtime urEnqueueMemBufferCopy 1/1 9..10",
    ];
    assert_limits(&trace(&others, ""), &Rule::new(Figure::Synchronizations), Quantity::Count(0));
}

#[test]
fn launches_count_in_steps_on_any_thread() {
    let events = sample();
    let outcome = check(&events, Rule::new(Figure::Launches).each("ProfilerStep#*").at_most(Quantity::Count(2)));
    assert_eq!((outcome.found, outcome.broken, outcome.measured), (Some(Quantity::Count(3)), 1, 2), "{outcome}");
    assert_eq!(
        (outcome.places[0].name.as_str(), outcome.places[0].value),
        ("ProfilerStep#2", Some(Quantity::Count(3)))
    );
    assert_limits(&events, &Rule::new(Figure::Launches).each("ProfilerStep#*"), Quantity::Count(3));
    assert_limits(&events, &Rule::new(Figure::Launches), Quantity::Count(5));
    assert_limits(&events, &Rule::new(Figure::Launches).each("decode"), Quantity::Count(1));
    let unrecorded = [
        "cuda_runtime cudaGraphLaunch 1/1 1..9",
        "cuda_driver cuGraphLaunch 1/1 2..8",
        "cuda_runtime cudaLaunchHostFunc 1/1 10..11",
        "cuda_runtime cudaMemcpyAsync 1/1 12..13",
    ];
    assert_limits(&trace(&unrecorded, ""), &Rule::new(Figure::Launches), Quantity::Count(1));
}

#[test]
fn calls_kernels_and_copies_count_by_name() {
    let events = sample();
    assert_limits(&events, &Rule::new(Figure::Calls).of("cudaMemcpy*").within("prefill"), Quantity::Count(1));
    assert_limits(&events, &Rule::new(Figure::Kernels).of("gemm"), Quantity::Count(2));
    assert_limits(&events, &Rule::new(Figure::Kernels).of("gemm").each("ProfilerStep#2"), Quantity::Count(1));
    assert_limits(&events, &Rule::new(Figure::Kernels), Quantity::Count(4));
    assert_limits(&events, &Rule::new(Figure::Copies).of("Memcpy*").within("pre*"), Quantity::Count(1));
    let none = Rules::new()
        .no_copies_in("Memcpy*", "decode")
        .no_kernel("cub*")
        .with(Rule::new(Figure::Kernels).of("scale").within("decode").at_most(Quantity::Count(0)))
        .with(Rule::new(Figure::Fills).at_most(Quantity::Count(0)));
    let report = none.check(&events);
    assert!(report.holds(), "{report}");
    let fill = trace(&["gpu_memset Memset 0/7 1..2"], "");
    assert_limits(&fill, &Rule::new(Figure::Fills), Quantity::Count(1));
}

#[test]
fn kernel_share_is_of_the_time_of_kernels() {
    let events = sample();
    assert_limits(&events, &Rule::new(Figure::KernelShare).of("nccl*"), Quantity::Percent(35.0 / 85.0 * 100.0));
    let whole = Rule::new(Figure::KernelShare).of("nccl*").each("prefill").at_least(Quantity::Percent(100.0));
    assert_eq!(check(&events, whole).status, RuleStatus::Holds);
    assert_limits(
        &events,
        &Rule::new(Figure::KernelShare).of("gemm").within("ProfilerStep#1"),
        Quantity::Percent(50.0),
    );
}

#[test]
fn unlinked_work_is_counted() {
    let events = sample();
    assert!(Rules::new().all_work_linked().check(&events).holds());
    let rows = [ROWS, &["kernel lost 0/7 400..410 correlation=77"]].concat();
    let outcome = check(&trace(&rows, ""), Rule::new(Figure::UnlinkedWork).at_most(Quantity::Count(0)));
    assert_eq!((outcome.status, outcome.places[0].name.as_str()), (RuleStatus::Fails, "lost"));
    let scoped =
        check(&trace(&rows, ""), Rule::new(Figure::Kernels).of("lost").within("decode").at_most(Quantity::Count(0)));
    assert!(
        scoped.to_string().ends_with(
            "; 1 piece of work named `lost` ran, but without a known launch, so its span is unknown; record the launches, or \
             set `optional`"
        ),
        "{scoped}"
    );
    let partly = check(&trace(&rows, ""), Rule::new(Figure::Kernels).within("prefill").at_most(Quantity::Count(1)));
    assert!(
        partly.status == RuleStatus::Holds
            && partly.to_string().ends_with("1 piece of device work without a known launch, whose span may be unknown"),
        "{partly}"
    );
    let in_step = Rule::new(Figure::Kernels).of("lost").within("ProfilerStep#*");
    assert_limits(&trace(&rows, ""), &in_step, Quantity::Count(0));
}

#[test]
fn spans_must_or_must_not_occur() {
    let events = sample();
    assert_limits(&events, &Rule::new(Figure::Spans).of("decode"), Quantity::Count(2));
    assert_limits(&events, &Rule::new(Figure::Spans).of("*e*").each("ProfilerStep#2"), Quantity::Count(3));
    assert!(Rules::new().has_span("prefill").no_span("retry").check(&events).holds());
    let report = Rules::new().has_span("prefil").no_span("decode").check(&events);
    let texts: Vec<_> = report.failures().map(RuleOutcome::to_string).collect();
    assert_eq!(
        texts[0],
        "FAILED  spans of `prefil`, at least 1; no span named `prefil`; nearest: `prefill`, `decode`, `ProfilerStep#1`"
    );
    assert!(
        texts[1]
            .starts_with("FAILED  spans of `decode`, at most 0; found 2\n        `decode` at 110 us on 1/1, 50 us\n"),
        "{}",
        texts[1]
    );
}

#[test]
fn durations_have_statistics() {
    let events = sample();
    let us = |us: u64| Quantity::Nanoseconds(us * 1000);
    for (statistic, found) in [
        (Statistic::P50, us(30)),
        (Statistic::P90, us(50)),
        (Statistic::P95, us(50)),
        (Statistic::P99, us(50)),
        (Statistic::P999, us(50)),
        (Statistic::Max, us(50)),
        (Statistic::Min, us(30)),
        (Statistic::Mean, us(40)),
        (Statistic::Total, us(80)),
        (Statistic::Spread, Quantity::Percent(20.0 / 30.0 * 100.0)),
    ] {
        assert_limits(&events, &Rule::new(Figure::Duration(statistic)).of("decode"), found);
    }
    assert_limits(&events, &Rule::new(Figure::Duration(Statistic::Max)).of("decode").within("ProfilerStep#1"), us(30));
    let slow = check(&events, Rule::new(Figure::Duration(Statistic::P50)).of("decode").at_least(us(31)));
    assert_eq!((slow.places[0].duration_ns, slow.places.len()), (30_000, 2), "the shortest is first: {slow}");
    let report = Rules::new().max_step_duration(Statistic::P99, Duration::from_micros(199)).check(&events);
    assert!(
        report.to_string().contains("found 200 us; of 2 spans\n        `ProfilerStep#2` at 100 us on 1/1, 200 us\n"),
        "{report}"
    );
}

#[test]
fn device_times_are_measured_in_windows() {
    let events = sample();
    let us = |us: u64| Quantity::Nanoseconds(us * 1000);
    assert_limits(&events, &Rule::new(Figure::Busy), Quantity::Percent(100.0 / 240.0 * 100.0));
    assert_limits(&events, &Rule::new(Figure::Busy).within("decode"), Quantity::Percent(50.0));
    assert_limits(&events, &Rule::new(Figure::Busy).each("decode"), Quantity::Percent(60.0));
    let least = check(&events, Rule::new(Figure::Busy).each("decode").at_least(Quantity::Percent(50.0)));
    assert_eq!((least.found.unwrap().to_string().as_str(), least.places.len()), ("33.3333 %", 1));
    assert_limits(&events, &Rule::new(Figure::Idle), us(140));
    assert_limits(&events, &Rule::new(Figure::Idle).each("prefill"), us(30));
    assert_limits(&events, &Rule::new(Figure::LongestGap), us(60));
    let gap = check(&events, Rule::new(Figure::LongestGap).at_most(us(59)));
    assert_eq!(gap.places[0].name, "no device work");
    assert_eq!((gap.places[0].offset_ns, gap.places[0].duration_ns), (150_000, 60_000), "{gap}");
    assert_limits(&events, &Rule::new(Figure::LongestGap).each("ProfilerStep#2"), us(60));
    assert_limits(&events, &Rule::new(Figure::ExposedCommunication), Quantity::Percent(35.0 / 240.0 * 100.0));
    assert_limits(&events, &Rule::new(Figure::ExposedCommunication).within("prefill"), Quantity::Percent(43.75));
    assert_limits(&events, &Rule::new(Figure::ExposedCommunication).each("prefill"), Quantity::Percent(43.75));
    assert!(Rules::new().min_busy_percent(41.0).check(&events).holds());
}

#[test]
fn figures_of_devices_equal_those_of_the_summary() {
    let (events, summary) = (sample(), sample().summary());
    let devices = summary.occupation.unwrap();
    let found = |figure| check(&events, Rule::new(figure).at_least(Figure::zero(figure)).at_most(max_of(figure))).found;
    assert_eq!(found(Figure::Idle), Some(Quantity::Nanoseconds(devices.idle_ns())));
    assert_eq!(found(Figure::LongestGap), Some(Quantity::Nanoseconds(summary.gaps[0].ns)));
    let path = summary.critical_path.unwrap();
    for figure in PathKind::ALL
        .iter()
        .copied()
        .map(Figure::PathKind)
        .chain([PathPlace::Host, PathPlace::Device, PathPlace::Wait].map(Figure::PathPlace))
    {
        let ns = match figure {
            Figure::PathKind(kind) => path.kind_ns(kind),
            Figure::PathPlace(place) => path.place_ns(place),
            _ => 0,
        };
        let share = Quantity::Percent(ns as f64 * 100.0 / path.window_ns as f64);
        assert_limits(&events, &Rule::new(figure), share);
    }
    let step = events.critical_path(events.slice_range().start..events.slice_range().end);
    assert_eq!(step.figures(), path);
    let outcome = check(
        &events,
        Rule::new(Figure::PathPlace(PathPlace::Host)).each("ProfilerStep#*").at_most(Quantity::Percent(1.0)),
    );
    assert_eq!((outcome.broken, outcome.places.len()), (2, 2), "{outcome}");
}

fn max_of(figure: Figure) -> Quantity {
    match figure.zero() {
        Quantity::Percent(_) => Quantity::Percent(99.0),
        Quantity::Nanoseconds(_) => Quantity::Nanoseconds(u64::MAX),
        Quantity::Bytes(_) => Quantity::Bytes(u64::MAX),
        Quantity::Count(_) => Quantity::Count(u64::MAX),
    }
}

#[test]
fn memory_peaks_are_by_device() {
    let memory = |device: i64, total: u64| {
        format!(
            r#"{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":{total},"args":
            {{"Bytes":1,"Total Allocated":{total},"Device Type":{},"Device Id":{device}}}}}"#,
            u8::from(device >= 0)
        )
    };
    let text = [memory(0, 100), memory(0, 300), memory(1, 200), memory(-1, 50), memory(0, 20)].join(",");
    let events = Events::from_reader(format!("[{text}]").as_bytes()).unwrap();
    assert_limits(&events, &Rule::new(Figure::DeviceMemoryPeak), Quantity::Bytes(300));
    assert_limits(&events, &Rule::new(Figure::HostMemoryPeak), Quantity::Bytes(50));
    let report = Rules::new().max_device_memory(150).check(&events);
    assert!(report.to_string().contains("found 300 B, in 2 of 2 values\n        300 B  `[memory]` at "), "{report}");
    let none = check(&sample(), Rule::new(Figure::DeviceMemoryPeak).at_most(Quantity::Bytes(1)));
    assert_eq!(none.status, RuleStatus::Unmatched, "{none}");
}

#[test]
fn losses_and_notes_are_causes() {
    let lossy = trace(ROWS, r#""tracing_kineto": {"losses": {"slices_over_limit": 3, "clipped_slices": 4}},"#);
    assert_limits(&lossy, &Rule::new(Figure::Losses), Quantity::Count(3));
    let report = Rules::new().no_losses().check(&lossy);
    assert_eq!(report.to_string(), "FAILED  losses, at most 0; found 3; slices_over_limit (3)\n");
    assert!(
        Rules::new().with(Rule::new(Figure::Losses).of("device_*").at_most(Quantity::Count(0))).check(&lossy).holds()
    );
    let whole = trace(ROWS, r#""tracing_kineto": {"losses": {}},"#);
    assert!(Rules::new().no_losses().no_notes().check(&whole).holds());
    assert_eq!(check(&sample(), Rule::new(Figure::Losses).at_most(Quantity::Count(0))).status, RuleStatus::Unmatched);
    let text = r#"[{"ph":"X","name":"a","ts":1,"dur":-1,"pid":1,"tid":1},{"ph":"b","id":"1","cat":"async","name":"a","ts":1,"pid":1,"tid":1}]"#;
    let noted = Events::from_reader(text.as_bytes()).unwrap();
    assert_limits(&noted, &Rule::new(Figure::Notes), Quantity::Count(1));
    assert_limits(&noted, &Rule::new(Figure::Notes).of("*"), Quantity::Count(2));
}

#[test]
fn wrong_causes_match_nothing() {
    let newer = trace(ROWS, r#""tracing_kineto": {"losses": {"buffers_full": 7, "cause_of_2030": 1}},"#);
    let most = |figure, cause: &str| check(&newer, Rule::new(figure).of(cause).at_most(Quantity::Count(3)));
    for (figure, cause, nearest) in [
        (Figure::Losses, "bufer_full", "nearest: `buffers_full`"),
        (Figure::Notes, "async_trak", "nearest: `async_track`"),
    ] {
        let outcome = most(figure, cause);
        assert_eq!(outcome.status, RuleStatus::Unmatched, "{outcome}");
        assert!(outcome.message.as_ref().unwrap().contains(nearest), "{outcome}");
    }
    assert_eq!(most(Figure::Losses, "buffers_full").status, RuleStatus::Fails);
    assert_eq!(most(Figure::Losses, "cause_of_2030").status, RuleStatus::Holds);
    assert_eq!(most(Figure::Losses, "clipped_slices").status, RuleStatus::Unmatched, "a mark is not a loss");
}

#[test]
fn rule_that_matches_nothing_fails_unless_optional() {
    let (events, empty) = (sample(), trace(&[], ""));
    let host = trace(&["cpu_op decode 1/1 0..9"], "");
    let count = Quantity::Count;
    for (trace, rule, why) in [
        (
            &events,
            Rule::new(Figure::Synchronizations).within("decod").at_most(count(0)),
            "no span named `decod`; nearest: `decode`",
        ),
        (&events, Rule::new(Figure::Kernels).of("gem").at_most(count(9)), "no kernel named `gem`; nearest: `gemm`"),
        (
            &events,
            Rule::new(Figure::Copies).of("HtoD*").at_most(count(9)),
            "no copy named `HtoD*`; nearest: `Memcpy_DtoH`",
        ),
        (
            &events,
            Rule::new(Figure::Calls).of("cudaMalloc").at_most(count(9)),
            "no call named `cudaMalloc`; nearest: `cudaMemcpyAsync`",
        ),
        (&events, Rule::new(Figure::Duration(Statistic::P99)).of("x").at_most(Duration::ZERO), "no span named `x`"),
        (&host, Rule::new(Figure::Synchronizations).within("decode").at_most(count(0)), "the trace has no call"),
        (&host, Rule::new(Figure::Launches).each("decode").at_most(count(0)), "the trace has no call"),
        (&host, Rule::new(Figure::Kernels).of("gemm").at_most(count(0)), "the trace has no device work"),
        (&host, Rule::new(Figure::Busy).at_least(Quantity::Percent(1.0)), "the trace has no device work"),
        (&host, Rule::new(Figure::UnlinkedWork).at_most(count(0)), "the trace has no device work"),
        (&empty, Rule::new(Figure::Spans).of("retry").at_most(count(0)), "the trace has no span at all; record some"),
        (
            &empty,
            Rule::new(Figure::PathPlace(PathPlace::Wait)).at_most(Quantity::Percent(1.0)),
            "the scope takes no time",
        ),
    ] {
        let outcome = check(trace, rule.clone());
        assert_eq!(outcome.status, RuleStatus::Unmatched, "{outcome}");
        assert!(outcome.message.as_ref().unwrap().starts_with(why), "{outcome}");
        assert_eq!(check(trace, rule.optional()).status, RuleStatus::Skipped);
    }
    let single = trace(&["kernel gemm 0/7 1..9"], "");
    let exposed = check(&single, Rule::new(Figure::ExposedCommunication).at_most(Quantity::Percent(5.0)));
    assert!(exposed.message.unwrap().starts_with("the trace has no communication"));
}

#[test]
fn rules_that_do_not_fit_are_invalid() {
    let percent = Quantity::Percent;
    let duration = || Rule::new(Figure::Duration(Statistic::Max));
    for (rule, why) in [
        (Rule::new(Figure::Launches), "the rule has no limit"),
        (
            Rule::new(Figure::Launches).at_most(percent(5.0)),
            "wrong unit for a limit of `launches`; expected a count, such as 200",
        ),
        (duration().of("a").at_most(Quantity::Bytes(5)), "wrong unit"),
        (Rule::new(Figure::Launches).at_least(Quantity::Count(0)), "`min` is 0"),
        (
            Rule::new(Figure::Launches).at_least(Quantity::Count(3)).at_most(Quantity::Count(2)),
            "`min` is greater than `max`",
        ),
        (Rule::new(Figure::Busy).at_least(percent(f64::NAN)), "a limit is negative or not a number"),
        (Rule::new(Figure::Busy).at_most(percent(-1.0)), "a limit is negative or not a number"),
        (Rule::new(Figure::Busy).at_most(percent(100.0)), "`max` is 100 % or more"),
        (Rule::new(Figure::Busy).at_least(percent(0.0)).at_most(percent(100.0)), "`max` is 100 % or more"),
        (Rule::new(Figure::Busy).at_least(percent(150.0)), "`min` is more than 100 %"),
        (Rule::new(Figure::Busy).at_least(percent(120.0)).at_most(percent(150.0)), "`min` is more than 100 %"),
        (Rule::new(Figure::Spans).at_most(Quantity::Count(1)), "`spans` needs a name"),
        (Rule::new(Figure::Busy).of("a").at_least(percent(1.0)), "`busy` is the same for all names; remove `of`"),
        (
            Rule::new(Figure::Launches).of("a").at_most(Quantity::Count(1)),
            "`launches` is the same for all names; remove `of`, or use `calls`",
        ),
        (duration().of("a").each("b").at_most(Duration::ZERO), "`duration.max` has one value for all spans"),
        (Rule::new(Figure::Idle).within("b").at_most(Duration::ZERO), "`idle` has a value for each span"),
        (Rule::new(Figure::Losses).each("b").at_most(Quantity::Count(0)), "`losses` has one value for a trace"),
    ] {
        let outcome = check(&sample(), rule.clone().optional());
        assert_eq!(outcome.status, RuleStatus::Invalid, "{outcome}");
        assert!(outcome.message.as_ref().unwrap().starts_with(why), "{outcome}");
        assert_eq!(rule.validate().unwrap_err().to_string(), outcome.message.unwrap());
        let is_missing = why.contains("no limit") || why.contains("needs a name");
        assert_eq!(rule.faulty_key().is_none(), is_missing, "{why}");
    }
    assert!(duration().of("a").at_most(Duration::ZERO).validate().is_ok());
    let spread = Rule::new(Figure::Duration(Statistic::Spread)).of("a");
    assert!(spread.at_least(percent(120.0)).at_most(percent(150.0)).validate().is_ok());
    assert!(Rule::new(Figure::Busy).at_least(percent(100.0)).at_most(percent(100.0)).validate().is_ok());
    assert!(!Rules::new().check(&sample()).holds(), "nothing was checked");
}

#[test]
fn nested_and_async_spans_count_once() {
    let rows = [
        "cpu_op f 1/1 0..100",
        "cpu_op f 1/1 10..90",
        "cuda_runtime cudaLaunchKernel 1/1 20..21 correlation=1",
        "cuda_runtime cudaLaunchKernel 1/1 92..93 correlation=2",
    ];
    let nested = trace(&rows, "");
    assert_limits(&nested, &Rule::new(Figure::Launches).within("f"), Quantity::Count(2));
    let each = check(&nested, Rule::new(Figure::Launches).each("f").at_most(Quantity::Count(0)));
    assert_eq!((each.found, each.broken), (Some(Quantity::Count(2)), 2), "{each}");
    let text = r#"{"traceEvents": [
        {"ph":"b","cat":"async","id2":{"local":"0x5"},"name":"request","pid":1,"tid":1,"ts":0},
        {"ph":"e","cat":"async","id2":{"local":"0x5"},"name":"request","pid":1,"tid":1,"ts":50},
        {"ph":"X","cat":"cpu_op","name":"request","pid":1,"tid":1,"ts":0,"dur":10,"args":{"span id":5}},
        {"ph":"X","cat":"cpu_op","name":"request","pid":1,"tid":2,"ts":40,"dur":10,"args":{"span id":5}},
        {"ph":"X","cat":"cpu_op","name":"child","pid":1,"tid":3,"ts":60,"dur":10,"args":{"span id":6,"parent id":5}},
        {"ph":"X","cat":"cuda_runtime","name":"cudaDeviceSynchronize","pid":1,"tid":3,"ts":62,"dur":1,"args":{}}]}"#;
    let events = Events::from_reader(text.as_bytes()).unwrap();
    assert_limits(&events, &Rule::new(Figure::Duration(Statistic::Max)).of("request"), Quantity::Nanoseconds(50_000));
    assert_limits(&events, &Rule::new(Figure::Spans).of("request"), Quantity::Count(1));
    assert_limits(&events, &Rule::new(Figure::Synchronizations).each("request"), Quantity::Count(1));
}

#[test]
fn paths_of_many_spans_take_linear_time() {
    let spans = 10_000u64;
    let rows: Vec<String> = (0..spans)
        .flat_map(|number| {
            let at = number * 10;
            [
                format!("cpu_op f 1/1 {at}..{}", at + 8),
                format!("cuda_runtime cudaLaunchKernel 1/1 {}..{} correlation={}", at + 1, at + 2, number + 1),
                format!("kernel k 0/7 {}..{} correlation={}", at + 3, at + 7, number + 1),
            ]
        })
        .collect();
    let events = trace(&rows.iter().map(String::as_str).collect::<Vec<_>>(), "");
    let rule = Rule::new(Figure::PathPlace(PathPlace::Host)).each("f").at_most(Quantity::Percent(99.0));
    let outcome = check(&events, rule);
    assert_eq!(outcome.measured, 10_000, "{outcome}");
}

#[test]
fn steps_and_spans_count_in_their_process() {
    let rows = [
        "user_annotation ProfilerStep#1 1/1 0..100",
        "cuda_runtime cudaLaunchKernel 1/1 10..12 correlation=1",
        "kernel gemm 0/7 20..30 correlation=1",
        "user_annotation ProfilerStep#1 2/1 0..100",
        "cuda_runtime cudaLaunchKernel 2/1 40..42 correlation=2",
        "kernel gemm 0/7 50..60 correlation=2",
        "cuda_runtime cudaLaunchKernel 3/1 60..62 correlation=3",
        "user_annotation ProfilerStep#warm 1/2 0..100",
        "cuda_runtime cudaLaunchKernel 1/2 10..12 correlation=4",
    ];
    let events = trace(&rows, "");
    for (figure, count) in [(Figure::Launches, 2), (Figure::Kernels, 1)] {
        assert_limits(&events, &Rule::new(figure).each("ProfilerStep#*"), Quantity::Count(count));
        let all = check(&events, Rule::new(figure).each("ProfilerStep#*").at_most(Quantity::Count(9)));
        assert_eq!(all.measured, 3);
    }
    assert_limits(&events, &Rule::new(Figure::Launches).within("ProfilerStep#*"), Quantity::Count(3));
    assert_limits(&events, &Rule::new(Figure::Launches).each("ProfilerStep#warm"), Quantity::Count(1));
    let ends = |pid: u32, at: u32| {
        format!(
            r#"{{"ph":"b","cat":"async","id2":{{"local":"0x5"}},"name":"request","pid":{pid},"tid":1,"ts":{at}}},
            {{"ph":"e","cat":"async","id2":{{"local":"0x5"}},"name":"request","pid":{pid},"tid":1,"ts":{}}},
            {{"ph":"X","cat":"cpu_op","name":"request","pid":{pid},"tid":1,"ts":{at},"dur":10,"args":{{"span id":5}}}}"#,
            at + 10
        )
    };
    let text = format!("[{},{}]", ends(1, 0), ends(2, 500));
    let ranks = Events::from_reader(text.as_bytes()).unwrap();
    assert_limits(&ranks, &Rule::new(Figure::Spans).of("request"), Quantity::Count(2));
    assert_limits(&ranks, &Rule::new(Figure::Duration(Statistic::Max)).of("request"), Quantity::Nanoseconds(10_000));
}

#[test]
fn deep_nesting_takes_linear_time() {
    let depth = 10_000u64;
    let rows: Vec<String> = (0..depth)
        .flat_map(|level| {
            let (start, end) = (level * 2, 10 * depth - level * 2);
            [
                format!("cpu_op f 1/1 {start}..{end}"),
                format!("cuda_runtime cudaLaunchKernel 1/1 {}..{} correlation={}", start + 1, start + 2, level + 1),
                format!("kernel k 0/7 {}..{} correlation={}", start + 1, start + 2, level + 1),
            ]
        })
        .collect();
    let events = trace(&rows.iter().map(String::as_str).collect::<Vec<_>>(), "");
    for figure in [Figure::Launches, Figure::Kernels] {
        let outcome = check(&events, Rule::new(figure).each("f").at_most(Quantity::Count(depth - 1)));
        assert_eq!((outcome.found, outcome.broken), (Some(Quantity::Count(depth)), 1));
    }
    let busy = check(&events, Rule::new(Figure::Busy).each("f").at_least(Quantity::Percent(1.0)));
    assert_eq!(busy.measured, 10_000);
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let text = r#"[{"ph":"X","cat":"cpu_op","name":"\u001b[2J\n","pid":1,"tid":1,"ts":1,"dur":2}]"#;
    let events = Events::from_reader(text.as_bytes()).unwrap();
    let report = Rules::new().no_span("\u{1b}*").has_span("a\u{7}\n").check(&events);
    let rule = Rule::new(Figure::Losses).at_most(Quantity::Count(0)).named("\u{1b}]0;x\u{7}");
    let named = Rules::new().with(rule).check(&events);
    let text = format!("{report}{named}");
    assert!(text.chars().all(|c| !c.is_control() || c == '\n') && text.lines().count() == 4, "{text:?}");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["rules"][0]["places"][0]["name"], "\u{1b}[2J\n");
}

#[test]
fn json_has_values_in_microseconds() {
    let report = Rules::new()
        .max_duration("decode", Statistic::P99, Duration::from_micros(49))
        .with(Rule::new(Figure::Launches).each("decode").at_most(Quantity::Count(0)).named("no launch"))
        .check(&sample());
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(
        (&json["schema"], &json["unit"], &json["holds"]),
        (&"kineto-check/1".into(), &"us".into(), &false.into())
    );
    let first = &json["rules"][0];
    assert_eq!(
        (&first["rule"], &first["figure"]),
        (&"duration.p99 of `decode`, at most 49 us".into(), &"duration.p99".into())
    );
    assert_eq!((&first["found"], &first["max"], &first["unit"]), (&50.0.into(), &49.0.into(), &"us".into()));
    assert_eq!((&first["places"][0]["start"], &first["places"][0]["dur"]), (&110.0.into(), &50.0.into()));
    let second = &json["rules"][1];
    assert_eq!(
        (&second["name"], &second["status"], &second["broken"]),
        (&"no launch".into(), &"fails".into(), &2.into())
    );
}

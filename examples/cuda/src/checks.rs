//! Checks of the program's trace.

use crate::program::{BYTES, Done, GRAPH_KERNELS, GRAPH_LAUNCHES, PLAIN_KERNELS, STREAMS};
use crate::report::Report;
use crate::view::{Point, Row, View};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing_kineto::{Loss, Trace, TraceStats};

/// The trace, and the known facts about the run.
pub struct Checks<'t> {
    pub trace: &'t Trace,
    pub view: View,
    pub done: Done,
    pub gpus: usize,
    /// The times of the recording's start and stop, in nanoseconds since the epoch.
    pub window: (u64, u64),
}

/// The number of device activities of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub kernels: usize,
    pub of_graphs: usize,
    pub to_device: usize,
    pub to_cpu: usize,
    pub between_devices: usize,
    pub fills: usize,
}

pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the counts that the program must have produced.
pub fn expected(gpus: usize, done: Done) -> Counts {
    let lanes = gpus * STREAMS;
    let of_graphs = lanes * GRAPH_KERNELS * GRAPH_LAUNCHES;
    let runtime = usize::from(done.runtime.is_some());
    Counts {
        kernels: lanes * PLAIN_KERNELS + of_graphs,
        of_graphs,
        to_device: 2 * lanes + runtime,
        to_cpu: lanes,
        between_devices: done.peer_copies,
        fills: lanes + runtime,
    }
}

/// Returns the counts in the trace; kernels with other names do not belong to the program.
pub fn counted(view: &View) -> Counts {
    let copies = |direction: &str| view.of("gpu_memcpy").filter(|row| row.name.contains(direction)).count();
    let kernels = || view.of("kernel").filter(|row| row.name == "vecadd");
    Counts {
        kernels: kernels().count(),
        of_graphs: kernels().filter(|row| is_of_graph(row)).count(),
        to_device: copies("HtoD"),
        to_cpu: copies("DtoH"),
        between_devices: copies("PtoP"),
        fills: view.of("gpu_memset").count(),
    }
}

fn is_of_graph(kernel: &Row) -> bool {
    kernel.int("graph id").is_some_and(|id| id != 0) && kernel.int("graph node id").is_some_and(|id| id != 0)
}

impl Checks<'_> {
    /// Runs all checks.
    pub fn all(&self, report: &mut Report) {
        let stats = self.trace.stats();
        self.collector(report, &stats);
        self.amounts(report, &stats);
        self.shapes(report);
        self.bytes(report);
        self.launches(report);
        self.arrows(report);
        self.spans(report);
        self.annotations(report);
        self.times(report);
        self.streams(report);
        self.waits(report);
        self.runtime(report);
        self.losses(report, &stats);
        self.telemetry(report, &stats);
    }

    /// Checks that the GPUs' power, clocks and memory are possible.
    fn telemetry(&self, report: &mut Report, stats: &TraceStats) {
        const NAME: &str = "power, clocks and memory";
        let nvml = stats.collectors.iter().find(|collector| collector.name == "nvml");
        match nvml.map(|nvml| &nvml.state) {
            None => return report.check(NAME, false, "there is no collector"),
            Some(Err(reason)) => return report.pass_over(NAME, &reason.to_string()),
            Some(Ok(_)) => {}
        }
        let ranges = [("Power (W)", 0.1, 2_000.0), ("SM Clock (MHz)", 100.0, 4_000.0), ("Memory Used (MiB)", 1.0, 1e9)];
        let mut figures = Vec::new();
        let mut passed = true;
        for gpu in 0..self.gpus {
            for (name, least, most) in ranges {
                let group = format!("GPU {gpu} Counters");
                let samples = self.view.samples.iter().filter(|sample| sample.group == group && sample.metric == name);
                let values: Vec<_> = samples.map(|sample| sample.value).collect();
                passed &= !values.is_empty() && values.iter().all(|value| (least..=most).contains(value));
                let first = values.first().copied().unwrap_or(f64::NAN);
                figures.push(format!("{name} {first} ({} samples)", values.len()));
            }
        }
        report.check(NAME, passed, figures.join(", "));
    }

    fn collector(&self, report: &mut Report, stats: &TraceStats) {
        let cupti = stats.collectors.iter().find(|collector| collector.name == "cupti");
        let (passed, figures) = match cupti.map(|cupti| (cupti, &cupti.state)) {
            None => (false, "there is none".to_owned()),
            Some((_, Err(reason))) => (false, reason.to_string()),
            Some((cupti, Ok(can))) => {
                let proof = match can.proven {
                    Some(true) => "seen to arrive at the start",
                    Some(false) => "not seen to arrive at the start",
                    None => "not tried at the start",
                };
                let figures = format!("{} records, {proof}; clock error {} ns", cupti.records, cupti.clock_error_ns);
                (can.proven != Some(false) && cupti.records > 0, figures)
            }
        };
        report.check("CUPTI records", passed, figures);
    }

    fn amounts(&self, report: &mut Report, stats: &TraceStats) {
        let (expected, found) = (expected(self.gpus, self.done), counted(&self.view));
        let kernels = |counts: Counts| (counts.kernels, counts.of_graphs);
        let others = self.view.of("kernel").count() - found.kernels;
        let figures = format_args!(
            "{} named vecadd of {}, {} of them in graphs of {}, {others} others",
            found.kernels, expected.kernels, found.of_graphs, expected.of_graphs
        );
        report.check("kernels", kernels(found) == kernels(expected) && others == 0, figures);
        let rest = |counts: Counts| Counts { kernels: 0, of_graphs: 0, ..counts };
        let Counts { to_device, to_cpu, between_devices, fills, .. } = found;
        let figures = format_args!("{to_device} HtoD, {to_cpu} DtoH, {between_devices} PtoP, {fills} fills");
        report.check("copies and fills", rest(found) == rest(expected), figures);
        let rows = self.view.work().count() as u64;
        let figures = format_args!("{rows} in the file, {} by the statistics", stats.device_activities);
        report.check("device activities", rows > 0 && rows == stats.device_activities, figures);
        let properties = self.view.header.get("deviceProperties").and_then(|list| list.as_array());
        let names: Vec<_> = properties.into_iter().flatten().filter_map(|device| device["name"].as_str()).collect();
        report.check("devices are described", names.len() >= self.gpus, names.join(", "));
    }

    fn shapes(&self, report: &mut Report) {
        let is = |row: &&Row| row.ints("grid") == [1024, 1, 1] && row.ints("block") == [1024, 1, 1];
        let count = self.view.of("kernel").filter(is).count();
        let all = self.view.of("kernel").count();
        report.check(
            "grid and block",
            all > 0 && count == all,
            format_args!("{count} of {all} kernels are 1024x1x1 of 1024x1x1"),
        );
        let figure = |row: &Row, key: &str| row.args.get(key).is_some_and(|value| value.is_number());
        let keys = ["registers per thread", "est. achieved occupancy %", "blocks per SM", "warps per SM"];
        let count = self.view.of("kernel").filter(|row| keys.iter().all(|key| figure(row, key))).count();
        report.check(
            "occupancy",
            all > 0 && count == all,
            format_args!("{count} of {all} kernels have {}", keys.join(", ")),
        );
    }

    fn bytes(&self, report: &mut Report) {
        let small = self.done.runtime.map_or(0, |bytes| bytes as i64);
        let rows = self.view.work().filter(|row| row.category != "kernel");
        let bytes: Vec<_> = rows.map(|row| row.int("bytes").unwrap_or(-1)).collect();
        let (large, of_runtime) = (count(&bytes, BYTES as i64), if small == 0 { 0 } else { count(&bytes, small) });
        let wanted = if small == 0 { 0 } else { 2 };
        let figures = format_args!("{large} of 4 MiB, {of_runtime} of the runtime's 1 MiB, {} in all", bytes.len());
        let passed = large > 0 && large + of_runtime == bytes.len() && of_runtime == wanted;
        report.check("bytes", passed, figures);
    }

    /// Returns the host's calls by correlation id.
    fn calls(&self) -> BTreeMap<i64, Vec<&Row>> {
        let mut calls: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
        for call in self.view.calls() {
            calls.entry(call.int("correlation").unwrap_or(0)).or_default().push(call);
        }
        calls
    }

    fn launches(&self, report: &mut Report) {
        let calls = self.calls();
        let (mut without, mut early, mut delays) = (Vec::new(), Vec::new(), Vec::new());
        for work in self.view.work() {
            let launch = work.int("correlation").and_then(|id| calls.get(&id));
            match launch.and_then(|calls| calls.iter().map(|call| call.start).min()) {
                None => without.push(&*work.name),
                Some(start) if work.start < start => early.push(&*work.name),
                Some(start) => delays.push(work.start - start),
            }
        }
        delays.sort_unstable();
        let (all, found) = (self.view.work().count(), delays.len() + early.len());
        let figures = format!("{found} of {all} device activities {}", without.join(", "));
        report.check("each has its launch", all > 0 && without.is_empty(), figures);
        let median = delays.get(delays.len() / 2).copied().unwrap_or(0) as f64 / 1e3;
        let figures = format!("{} late or in time, median delay {median:.1} us {}", delays.len(), early.join(", "));
        report.check("launches start before their work", found > 0 && early.is_empty(), figures);
    }

    fn arrows(&self, report: &mut Report) {
        let arrows = &self.view.arrows;
        let starts: usize = arrows.values().map(|arrow| arrow.starts.len()).sum();
        let ends: usize = arrows.values().map(|arrow| arrow.ends.len()).sum();
        let one_start = arrows.values().all(|arrow| arrow.starts.len() == 1 && !arrow.ends.is_empty());
        let forward = arrows.values().all(|arrow| {
            let start = arrow.starts.first().map_or(u64::MAX, |start| start.at);
            arrow.ends.iter().all(|end| start <= end.at)
        });
        let ends_at: BTreeSet<_> = arrows.values().flat_map(|arrow| &arrow.ends).map(key).collect();
        let at = |row: &Row| key(&Point { process: row.process, thread: row.thread, at: row.start });
        let all = self.view.work().count();
        let reached = self.view.work().filter(|row| ends_at.contains(&at(row))).count();
        let starts_in_calls = arrows.values().flat_map(|arrow| &arrow.starts).all(|start| {
            let is_there = |call: &Row| (call.process, call.thread) == (start.process, start.thread);
            self.view.calls().any(|call| is_there(call) && call.start <= start.at && start.at <= call.end)
        });
        let figures = format_args!("{starts} starts, {ends} ends, {reached} of {all} activities are reached");
        let passed = one_start && forward && starts_in_calls && all > 0 && ends == all && reached == all;
        report.check("arrows", passed, figures);
    }

    /// Work belongs to the span around its launch, by the times of both.
    fn spans(&self, report: &mut Report) {
        let calls = self.calls();
        let (mut right, mut wrong) = (0, Vec::new());
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for kernel in self.view.of("kernel") {
            let id = kernel.int("External id");
            let launch = kernel.int("correlation").and_then(|id| calls.get(&id)).and_then(|calls| calls.first());
            let middle = |call: &Row| call.start + (call.end - call.start) / 2;
            let span = launch.and_then(|call| self.view.span_at(call.process, call.thread, middle(call)));
            let wanted = if is_of_graph(kernel) { "replay" } else { "add" };
            match (launch, span) {
                (Some(launch), Some(span))
                    if id.is_some()
                        && span.int("External id") == id
                        && launch.int("External id") == id
                        && span.name == wanted =>
                {
                    right += 1;
                    *names.entry(span.name.clone()).or_default() += 1;
                }
                _ => wrong.push(format!("{id:?} is not {:?}", span.map(|span| (&span.name, span.int("External id"))))),
            }
        }
        wrong.truncate(3);
        let names: Vec<_> = names.iter().map(|(name, count)| format!("{count} in {name}")).collect();
        let figures = format!("{right} kernels: {} {}", names.join(", "), wrong.join(", "));
        report.check("kernels belong to their spans", wrong.is_empty() && right > 0, figures);
    }

    fn annotations(&self, report: &mut Report) {
        let all: Vec<_> = self.view.of("gpu_user_annotation").collect();
        let steps = self.gpus * STREAMS;
        let mut around = 0;
        for step in 0..steps {
            let name = format!("ProfilerStep#{step}");
            let spans = all.iter().filter(|row| row.name == name && row.process == (step / STREAMS) as i64);
            around += usize::from(spans.count() == 1);
        }
        let replays = all.iter().filter(|row| row.name == "replay").count();
        let covered = |work: &&Row| {
            let is_its = |span: &&&Row| (span.process, span.thread) == (work.process, work.thread);
            all.iter().filter(is_its).any(|span| span.start <= work.start && work.end <= span.end)
        };
        let kernels = self.view.of("kernel").count();
        let inside = self.view.of("kernel").filter(covered).count();
        let figures =
            format_args!("{around} of {steps} steps, {replays} replays, around {inside} of {kernels} kernels");
        let passed = around == steps && replays == steps * GRAPH_LAUNCHES && inside == kernels && kernels > 0;
        report.check("annotations on the device", passed, figures);
    }

    fn times(&self, report: &mut Report) {
        let mut lengths: Vec<_> = self.view.work().map(|row| row.end - row.start).collect();
        lengths.sort_unstable();
        let [least, .., most] = lengths[..] else { return report.check("times", false, "no device activities") };
        report.check("ends come after starts", least > 0, format_args!("they last {least} to {most} ns"));
        const SLACK: u64 = 1_000_000;
        let (start, stop) = (self.window.0 - SLACK, self.window.1 + SLACK);
        let rows = || self.view.work().chain(self.view.calls());
        let outside = rows().filter(|row| row.start < start || row.end > stop).count();
        let figures = format_args!("{outside} of {} rows outside of {} ms", rows().count(), (stop - start) / 1_000_000);
        report.check("inside the recording", outside == 0, figures);
    }

    fn streams(&self, report: &mut Report) {
        let mut streams: BTreeMap<(i64, i64), Vec<(u64, u64)>> = BTreeMap::new();
        for row in self.view.work() {
            streams.entry(row.stream()).or_default().push((row.start, row.end));
        }
        let mut overlaps = 0;
        for work in streams.values_mut() {
            work.sort_unstable();
            overlaps += work.windows(2).filter(|pair| pair[1].0 < pair[0].1).count();
        }
        let figures = format_args!("{overlaps} overlaps on {} streams", streams.len());
        let wanted = self.gpus * STREAMS;
        report.check("no overlap on a stream", overlaps == 0 && streams.len() >= wanted, figures);
    }

    fn waits(&self, report: &mut Report) {
        let kind = |row: &&Row, kind: &str| row.name == kind;
        let count = |of: &str| self.view.of("cuda_sync").filter(|row| kind(row, of)).count();
        let (events, streams, waits) = (count("Event Sync"), count("Stream Sync"), count("Stream Wait Event"));
        let lanes = self.gpus * STREAMS;
        let figures = format_args!("{events} of an event, {streams} of a stream, {waits} of streams for events");
        report.check("waits", events >= lanes && streams >= lanes && waits >= lanes, figures);
        let calls = self.calls();
        let is_known = |row: &&Row| {
            let by = row.int("wait_on_cuda_event_record_corr_id").and_then(|id| calls.get(&id));
            let by_record = by.is_some_and(|calls| calls.iter().any(|call| call.name.contains("EventRecord")));
            by_record
                && row.int("wait_on_stream").is_some_and(|stream| stream >= 0 && Some(stream) != row.int("stream"))
        };
        let rows = self.view.of("cuda_sync").filter(|row| kind(row, "Stream Wait Event"));
        let known = rows.filter(is_known).count();
        report.check("what streams wait for", known >= lanes, format_args!("{known} of {waits} name stream and call"));
    }

    fn runtime(&self, report: &mut Report) {
        const NAME: &str = "calls of the runtime";
        if self.done.runtime.is_none() {
            return report.pass_over(NAME, "there is no libcudart that this program can load");
        }
        let calls: BTreeSet<_> = self.view.of("cuda_runtime").map(|row| &*row.name).collect();
        let wanted = ["cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamSynchronize"];
        let found = wanted.iter().filter(|name| calls.iter().any(|call| call.starts_with(**name))).count();
        report.check(NAME, found == wanted.len(), calls.into_iter().collect::<Vec<_>>().join(", "));
    }

    /// Nothing may be missing, except during a capture: a launch that is captured into a graph does not run yet.
    fn losses(&self, report: &mut Report, stats: &TraceStats) {
        let captured = (self.gpus * STREAMS * GRAPH_KERNELS) as u64;
        let allowed = |loss: Loss, count: u64| match loss {
            Loss::LaunchesWithoutWork => count <= captured,
            Loss::WorkBeforeLaunch => false,
            loss => !loss.is_loss(),
        };
        let bad = stats.losses.iter().filter(|(loss, count)| !allowed(*loss, *count)).count();
        let all: Vec<_> = stats.losses.iter().map(|(loss, count)| format!("{} {count}", loss.as_str())).collect();
        let figures = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        report.check("nothing lost", bad == 0, figures);
    }
}

fn count(all: &[i64], wanted: i64) -> usize {
    all.iter().filter(|value| **value == wanted).count()
}

fn key(point: &Point) -> (i64, i64, u64) {
    (point.process, point.thread, point.at)
}

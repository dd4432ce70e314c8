//! The largest problems in a summary, with evidence and the possible gain.

use super::path::find_dominated_path;
use super::{StepFigures, Summary};
use crate::analysis::averages::{Average, format_short_time};
use crate::analysis::percentile::percentile;
use crate::sorting::sort_few_by_key;
use crate::text::{count_with_noun, truncate_name};
use std::cmp::Reverse;

/// A problem that costs time and can be fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The problem, in one sentence.
    pub title: String,
    /// The names, counts and times that show it, and advice.
    pub evidence: String,
    /// The maximum gain of a fix, in nanoseconds of the trace.
    pub gain_ns: u64,
    pub(super) claim: GainClaim,
}

/// The time that a fix would gain. Gains of one claim overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GainClaim {
    /// Devices are idle.
    Idle,
    Communication,
    Copies,
    /// Kernels compute, or threads wait for each other.
    Other,
    /// Whole steps, with all that is in them.
    Steps,
}

impl GainClaim {
    fn overlaps(self, other: GainClaim) -> bool {
        self == other || self == GainClaim::Steps || other == GainClaim::Steps
    }
}

impl Summary {
    /// Returns at most five problems: wrong times first, then the others by possible gain in descending order.
    pub fn findings(&self) -> Vec<Finding> {
        const MAX_FINDINGS: usize = 5;

        let all = [
            find_starved_devices,
            find_short_work,
            find_synchronizations,
            find_exposed_communication,
            find_pageable_copies,
            find_lone_copies,
            find_allocations,
            find_uneven_steps,
            find_full_queue,
            find_dominated_path,
        ];
        let mut found: Vec<Finding> = all.iter().filter_map(|find| find(self)).collect();
        sort_few_by_key(&mut found, |finding| Reverse(finding.gain_ns));
        // The gains of the others rest on such times.
        found.splice(0..0, find_overlong_work(self));
        found.truncate(MAX_FINDINGS);
        name_shared_gains(&mut found);
        found
    }
}

/// Tells which gains are the same time as that of an earlier finding.
fn name_shared_gains(findings: &mut [Finding]) {
    let claims: Vec<_> = findings.iter().map(|finding| finding.claim).collect();
    for (number, finding) in findings.iter_mut().enumerate().filter(|(_, finding)| finding.gain_ns > 0) {
        let earlier = claims.iter().take(number).position(|claim| claim.overlaps(finding.claim));
        if let Some(earlier) = earlier {
            finding.evidence += &format!(" This gain overlaps with that of {}: do not add them up.", earlier + 1);
        }
    }
}

/// Returns a percentage; 0 if `whole` is 0.
pub(in crate::analysis) fn percent_of(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Returns a duration with the unit that fits it, such as "1.500ms".
pub fn format_ns(ns: u64) -> String {
    format_short_time(ns as f64)
}

/// Names in findings are cut to this many characters.
pub(super) const MAX_NAME_CHARS: usize = 40;

/// Slices last longer than they can.
fn find_overlong_work(summary: &Summary) -> Option<Finding> {
    let found = summary.overlong.as_ref()?;
    let (name, ns) = (truncate_name(&found.name, MAX_NAME_CHARS), format_ns(found.ns));
    let outlasted = match found.outlasted {
        0 => "the recording".to_owned(),
        count => format!("{} of its stream", count_with_noun(count, "later launch")),
    };
    Some(Finding {
        title: format!("`{name}` is recorded to last {ns}, and so outlasts {outlasted}."),
        evidence: format!(
            "The recorded end of {} is wrong. Times that contain it, such as busy and idle time, are wrong too: record again, \
             with another driver if it recurs.",
            count_with_noun(found.count, "slice")
        ),
        gain_ns: 0,
        claim: GainClaim::Other,
    })
}

/// The host launches too late: devices are idle, mostly before the next launch.
fn find_starved_devices(summary: &Summary) -> Option<Finding> {
    const MIN_IDLE_PERCENT: f64 = 20.0;
    const MIN_HOST_PERCENT: f64 = 50.0;
    let devices = summary.occupation.as_ref()?;
    let (idle, host) = (devices.idle_ns(), percent_of(summary.idle.before_launch_ns, summary.idle.total_ns()));
    if percent_of(idle, devices.window_ns) < MIN_IDLE_PERCENT || host < MIN_HOST_PERCENT {
        return None;
    }
    let share = percent_of(idle, devices.window_ns);
    let gap = summary.gaps.first().map(|gap| {
        let host = gap
            .host
            .as_ref()
            .map(|host| format!(" while the CPU is in `{}`", truncate_name(&host.name, MAX_NAME_CHARS)));
        let host = host.unwrap_or_default();
        format!(
            " The longest gap, {}, follows `{}`{host}.",
            format_ns(gap.ns),
            truncate_name(&gap.before, MAX_NAME_CHARS)
        )
    });
    Some(Finding {
        title: format!("The GPU is idle for {share:.0} % of the time, and waits for the CPU to launch work."),
        evidence: format!(
            "{host:.0} % of the idle time of streams passes before the next launch.{} Launch ahead: avoid \
             synchronisation and host work between launches.",
            gap.unwrap_or_default()
        ),
        gain_ns: idle,
        claim: GainClaim::Idle,
    })
}

/// Device work is shorter than its launches.
fn find_short_work(summary: &Summary) -> Option<Finding> {
    const MIN_COUNT: u64 = 100;
    const MIN_PERCENT: f64 = 25.0;

    let launches = &summary.launches;
    if launches.short_kernels < MIN_COUNT || percent_of(launches.short_kernels, launches.count) < MIN_PERCENT {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of durations")]
    let call_ns = launches.mean_call_ns as u64;
    Some(Finding {
        title: format!(
            "{} of {} kernels, copies and fills run for less time than their launch takes (mean: {}).",
            launches.short_kernels,
            launches.count,
            format_ns(call_ns)
        ),
        evidence: "Fuse operations, enlarge batches, or launch a graph.".to_owned(),
        gain_ns: (launches.short_kernels * call_ns).min(summary.occupation.as_ref().map_or(0, |found| found.idle_ns())),
        claim: GainClaim::Idle,
    })
}

/// Communication runs without concurrent computation.
fn find_exposed_communication(summary: &Summary) -> Option<Finding> {
    const MIN_PERCENT: f64 = 3.0;

    let devices = summary.occupation.as_ref()?;
    let exposed = devices.exposed_communication_ns;
    (percent_of(exposed, devices.window_ns) >= MIN_PERCENT).then(|| {
        let kind = summary
            .collectives
            .first()
            .map(|row| format!(" The largest collective is {}.", row.kind))
            .unwrap_or_default();
        Finding {
            title: format!(
                "Communication runs without computation for {} ({:.0} % of its time).",
                format_ns(exposed),
                percent_of(exposed, devices.communication_ns)
            ),
            evidence: format!(
                "Only {} overlaps with computation.{kind} Start communication earlier, or in smaller buckets.",
                format_ns(devices.overlapped_communication_ns)
            ),
            gain_ns: exposed,
            claim: GainClaim::Communication,
        }
    })
}

/// Copies use host memory that is not pinned.
fn find_pageable_copies(summary: &Summary) -> Option<Finding> {
    const MIN_PERCENT: f64 = 1.0;

    let pageable = summary.kernels.iter().filter(|row| row.name.contains("Pageable"));
    let (count, ns) = pageable.fold((0, 0), |sum, row| (sum.0 + row.durations.count, sum.1 + row.durations.sum_ns));
    let window = summary.occupation.as_ref()?.window_ns;
    (percent_of(ns, window) >= MIN_PERCENT).then(|| Finding {
        title: format!("Copies with pageable memory take {} ({count} in all).", format_ns(ns)),
        evidence: "Pin the buffers of the host: copies from pinned memory are faster, and kernels run meanwhile."
            .to_owned(),
        gain_ns: ns,
        claim: GainClaim::Copies,
    })
}

/// The calls of one kind on the host: number, time, and the row that takes the most time.
struct Calls<'s> {
    count: u64,
    ns: u64,
    main: &'s Average,
}

impl<'s> Calls<'s> {
    /// Sums the rows whose name `is_meant` accepts; `None` if there are none.
    fn from_matching(summary: &'s Summary, is_meant: impl Fn(&str) -> bool) -> Option<Calls<'s>> {
        let rows: Vec<_> = summary.averages.ops().iter().filter(|row| is_meant(row.name())).collect();
        let main = rows.iter().max_by_key(|row| row.cpu_ns())?;
        let (count, ns) = rows.iter().fold((0, 0), |sum, row| (sum.0 + row.count(), sum.1 + row.cpu_ns()));
        Some(Calls { count, ns, main })
    }

    /// Names the largest row, and how often it occurs in a step if there are steps.
    fn format_evidence(&self, summary: &Summary) -> String {
        let main = format!("`{}` is called {}", self.main.name(), count_with_noun(self.main.count(), "time"));
        match self.main.count().checked_div(summary.steps.len() as u64) {
            Some(per_step) => format!("{main}, {per_step} a step"),
            None => main,
        }
    }
}

/// The host often waits for the device.
fn find_synchronizations(summary: &Summary) -> Option<Finding> {
    const MIN_COUNT: u64 = 10;
    const MIN_PERCENT: f64 = 5.0;

    let calls =
        Calls::from_matching(summary, |name| name.ends_with("Synchronize") || name.ends_with("Synchronize_ptsz"))?;
    let devices = summary.occupation.as_ref()?;
    let is_repeated = calls.count >= MIN_COUNT && calls.count > summary.steps.len() as u64;
    (is_repeated && percent_of(calls.ns, summary.span_ns) >= MIN_PERCENT).then(|| Finding {
        title: format!("The CPU waits for the GPU {} times, {} in all.", calls.count, format_ns(calls.ns)),
        evidence: format!(
            "{}. Each read of a result on the host waits for all queued work: read less often, or after the next launches.",
            calls.format_evidence(summary)
        ),
        gain_ns: calls.ns.min(devices.idle_ns()),
        claim: GainClaim::Idle,
    })
}

/// The host allocates or frees device memory all the time.
fn find_allocations(summary: &Summary) -> Option<Finding> {
    const MIN_COUNT: u64 = 20;
    const MIN_PERCENT: f64 = 1.0;
    const NAMES: [&str; 10] = [
        "cudaMalloc",
        "cudaFree",
        "cudaHostAlloc",
        "cudaMallocHost",
        "cudaFreeHost",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "hipMalloc",
        "hipFree",
        "hipHostMalloc",
    ];

    let calls = Calls::from_matching(summary, |name| NAMES.contains(&name))?;
    (calls.count >= MIN_COUNT && percent_of(calls.ns, summary.span_ns) >= MIN_PERCENT).then(|| Finding {
        title: format!("Allocating and freeing memory takes {} ({} calls).", format_ns(calls.ns), calls.count),
        evidence: format!(
            "{}. A free waits for the device: keep buffers, or allocate from a pool.",
            calls.format_evidence(summary)
        ),
        gain_ns: calls.ns,
        claim: GainClaim::Idle,
    })
}

/// Copies run while no kernel does, because all work is in one stream.
fn find_lone_copies(summary: &Summary) -> Option<Finding> {
    const MIN_PERCENT: f64 = 5.0;

    let devices = summary.occupation.as_ref()?;
    let alone = devices.exclusive.memory_ns;
    let has_one_stream = summary.stream_idle.len() as u64 == summary.devices;
    let is_found = has_one_stream && devices.compute_ns > 0 && percent_of(alone, devices.window_ns) >= MIN_PERCENT;
    (is_found && find_pageable_copies(summary).is_none()).then(|| Finding {
        title: format!("Copies and fills run alone for {}: no kernel runs meanwhile.", format_ns(alone)),
        evidence:
            "All work of a device is in one stream. Copy in a second one, ahead of the kernels that need the data."
                .to_owned(),
        gain_ns: alone.min(devices.compute_ns),
        claim: GainClaim::Copies,
    })
}

/// The launch queue is full, so launches block.
fn find_full_queue(summary: &Summary) -> Option<Finding> {
    /// CUDA's queue of a stream holds 1,024 launches.
    const MIN_QUEUED: i64 = 1000;

    let queue = summary.queues.iter().filter(|queue| queue.max >= MIN_QUEUED).max_by_key(|queue| queue.max)?;
    Some(Finding {
        title: format!("The launch queue is full: up to {} launches wait in a stream.", queue.max),
        evidence: format!(
            "{} that take long wait until a kernel starts. Other work of that thread is late: launch \
             fewer and larger kernels, or graphs.",
            count_with_noun(summary.launches.slow_calls, "launch")
        ),
        gain_ns: 0,
        claim: GainClaim::Other,
    })
}

/// A step is much longer than the median step.
fn find_uneven_steps(summary: &Summary) -> Option<Finding> {
    const MIN_COUNT: usize = 3;
    const MIN_PERCENT_OVER: u64 = 50;

    let mut steps: Vec<&StepFigures> = summary.steps.iter().collect();
    if steps.len() < MIN_COUNT {
        return None;
    }
    sort_few_by_key(&mut steps, |step| step.ns_with_device());
    let median = percentile(&steps.iter().map(|step| step.ns_with_device()).collect::<Vec<_>>(), 500);
    let is_long = |step: &&&StepFigures| step.ns_with_device() > median + median * MIN_PERCENT_OVER / 100;
    let long: Vec<_> = steps.iter().rev().filter(is_long).collect();
    let longest = long.first()?;
    Some(Finding {
        title: format!(
            "Step {} takes {}; the median of {} steps is {}.",
            longest.number,
            format_ns(longest.ns_with_device()),
            steps.len(),
            format_ns(median)
        ),
        evidence: format!(
            "Steps more than {MIN_PERCENT_OVER} % over the median: {}. Compare their operations.",
            long.len()
        ),
        gain_ns: long.iter().map(|step| step.ns_with_device() - median).sum(),
        claim: GainClaim::Steps,
    })
}

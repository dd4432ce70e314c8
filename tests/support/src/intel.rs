//! Exclusive use of the simulated Intel machine, and access to its rows and report in a trace.

use crate::File;
use crate::gpu::{self, correlation, events, name};
use crate::simulator;
use crate::xpu::{self, Xpu};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use tracing_kineto::integration::{CollectorReport, Unavailable};
use tracing_kineto::{ActivityType, ActivityTypes, KinetoLayerBuilder};

/// All activity types of Intel GPUs, except metrics.
pub const TYPES: ActivityTypes = ActivityTypes::DEFAULT
    .with(ActivityType::XpuRuntime)
    .with(ActivityType::XpuDriver)
    .with(ActivityType::XpuSync)
    .with(ActivityType::CollectiveComm);

/// The simulated machine; the process has one, with one PTI.
pub struct Machine {
    xpu: Xpu,
}

/// Returns the machine with these options.
#[track_caller]
pub fn machine(settings: &str) -> Machine {
    simulator::assert_own_process();
    let machine = Machine { xpu: Xpu::with("") };
    xpu::configure(settings);
    xpu::reset();
    machine
}

impl Deref for Machine {
    type Target = Xpu;

    fn deref(&self) -> &Xpu {
        &self.xpu
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        xpu::configure("");
        xpu::reset();
        // Work that a fault held back must not reach the next test.
        xpu::flush();
    }
}

/// Enables all that these tests record.
pub fn all(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    builder.activities(TYPES).flush_timeout(gpu::PATIENCE)
}

/// Records `work` with all activity types of Intel GPUs.
pub fn record(work: impl FnOnce()) -> File {
    crate::record_with(all, work)
}

/// Returns the XPU collector's report.
#[track_caller]
pub fn report(file: &File) -> CollectorReport {
    file.collector_report("xpu")
}

/// Returns why PTI recorded nothing.
#[track_caller]
pub fn reason(file: &File) -> Unavailable {
    file.unavailable_reason("xpu")
}

/// Returns calls of the SYCL runtime.
pub fn runtime(file: &File) -> Vec<&Value> {
    events(file, "X", "xpu_runtime")
}

/// Returns calls of Level Zero.
pub fn driver(file: &File) -> Vec<&Value> {
    events(file, "X", "xpu_driver")
}

/// Returns the calls that submit kernels.
pub fn launches(file: &File) -> Vec<&Value> {
    runtime(file).into_iter().filter(|call| name(call) == "urEnqueueKernelLaunch").collect()
}

/// Counts of a program's device work in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub runtime: usize,
    pub driver: usize,
    pub kernels: usize,
    pub copies: usize,
    pub fills: usize,
    /// Work with the same slice as the call that submitted it.
    pub linked: usize,
    /// Starts and ends of arrows.
    pub starts: usize,
    pub ends: usize,
    /// Annotations on streams.
    pub annotations: usize,
    pub waits: usize,
    pub collectives: usize,
}

impl Counts {
    /// Counts; checks that each arrow leads from a runtime call to work, and none touches a driver call.
    #[track_caller]
    pub fn of(file: &File) -> Counts {
        let mut calls: HashMap<u64, Vec<&Value>> = HashMap::new();
        for call in runtime(file).into_iter().chain(driver(file)) {
            calls.entry(correlation(call)).or_default().push(call);
        }
        let belongs = |work: &&&Value| {
            let id = &work["args"]["External id"];
            let its = calls.get(&correlation(work));
            !id.is_null() && its.is_some_and(|calls| calls.iter().any(|call| call["args"]["External id"] == *id))
        };
        let work = gpu::work(file);
        let (starts, ends) = (events(file, "s", "ac2g"), events(file, "f", "ac2g"));
        let id = |arrow: &Value| arrow["id"].as_u64().unwrap();
        let ids: HashSet<_> = starts.iter().map(|start| id(start)).collect();
        assert_eq!(ids.len(), starts.len(), "each arrow begins once");
        assert_eq!(ids, ends.iter().map(|end| id(end)).collect(), "arrows have both ends");
        let lies = |arrow: &Value, row: &Value| {
            let (at, (start, end)) = (crate::nanos(&arrow["ts"]), gpu::interval(row));
            ["pid", "tid"].iter().all(|key| arrow[key] == row[key]) && start <= at && at <= end
        };
        for start in &starts {
            assert!(runtime(file).iter().any(|call| lies(start, call)), "an arrow does not begin on a call: {start}");
        }
        for end in &ends {
            assert!(work.iter().any(|work| lies(end, work)), "an arrow does not end on work: {end}");
        }
        Counts {
            runtime: runtime(file).len(),
            driver: driver(file).len(),
            kernels: gpu::kernels(file).len(),
            copies: events(file, "X", "gpu_memcpy").len(),
            fills: events(file, "X", "gpu_memset").len(),
            linked: work.iter().filter(belongs).count(),
            starts: starts.len(),
            ends: ends.len(),
            annotations: events(file, "X", "gpu_user_annotation").len(),
            waits: events(file, "X", "xpu_sync").len(),
            collectives: events(file, "X", "collective_comm").len(),
        }
    }
}

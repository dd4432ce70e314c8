//! Exclusive use of the simulated AMD machine, and access to its rows and report in a trace.

use crate::gpu::{self, name, tally, under, work};
use crate::rocm::{self, Hip};
use crate::simulator;
use crate::{File, layer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Mutex;
use tracing::{info_span, subscriber};
use tracing_kineto::integration::{CollectorReport, Unavailable};
use tracing_kineto::{ActivityTypes, KinetoLayerBuilder, Profiler, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// The profiler library in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmdProfiler {
    /// rocprofiler-sdk.
    Sdk,
    /// roctracer.
    Tracer,
}

/// The simulated machine; the process has one.
pub struct Machine {
    hip: Hip,
}

/// Returns the machine with these options. HIP starts after the collector has registered.
pub fn machine(way: AmdProfiler, settings: &str) -> Machine {
    static HAS_STARTED: Mutex<bool> = Mutex::new(false);
    simulator::assert_own_process();
    // Agents are queried once.
    let hip = load(way, "devices=2");
    let mut is_begun = HAS_STARTED.lock().unwrap();
    if !*is_begun {
        *is_begun = true;
        let file = record(|| ());
        report(&file).state.expect("the collector works");
        hip.init();
    }
    rocm::configure(settings);
    rocm::reset();
    Machine { hip }
}

/// Loads HIP and a profiler with these options.
pub fn load(way: AmdProfiler, settings: &str) -> Hip {
    match way {
        AmdProfiler::Sdk => Hip::with_sdk(settings),
        AmdProfiler::Tracer => Hip::with_tracer(settings),
    }
}

impl Deref for Machine {
    type Target = Hip;

    fn deref(&self) -> &Hip {
        &self.hip
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        rocm::configure("");
        rocm::reset();
        // Work that a fault held back must not reach the next test.
        self.hip.synchronize();
    }
}

/// Enables all that these tests record.
pub fn all(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    builder.activities(ActivityTypes::DEFAULT).flush_timeout(gpu::PATIENCE)
}

/// Records `work`.
pub fn record(work: impl FnOnce()) -> File {
    crate::record_with(all, work)
}

/// Returns the ROCm collector's report.
#[track_caller]
pub fn report(file: &File) -> CollectorReport {
    file.collector_report("rocm")
}

/// Returns why ROCm was not recorded.
#[track_caller]
pub fn reason(file: &File) -> Unavailable {
    file.unavailable_reason("rocm")
}

/// Launches a compiled-in kernel with a mangled C++ name, in a span of its plain name.
pub fn launch(hip: &Hip, name: &str, stream: rocm::Stream) {
    let kernel = hip.host_kernel(name);
    info_span!("launch").in_scope(|| hip.launch_host(kernel, 2, stream));
}

/// Runs `work` under a layer that starts no recording itself.
pub fn idle<R>(
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(&Profiler) -> R,
) -> R {
    let (layer, guard) = layer(|builder| configure(all(builder)).record_from_start(false));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard.profiler()))
}

pub fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

pub fn names<'f>(rows: impl IntoIterator<Item = &'f Value>) -> BTreeMap<String, usize> {
    tally(rows.into_iter().map(|row| name(row).to_owned()))
}

/// Runs the device work of a training step: copies, fills, kernels on two streams, and a graph.
pub fn step(hip: &Hip) {
    let streams = [hip.stream(), hip.stream()];
    let module = hip.module(&["_Z3addPfS_i_us300", "_Z3mulPf"]);
    let [add, mul] = ["_Z3addPfS_i_us300", "_Z3mulPf"].map(|name| hip.kernel(module, name));
    let gemm = hip.host_kernel("_ZN5blaze4gemmILi64EEEvPKfS2_Pf");
    let memory = [hip.allocate(4096), hip.allocate(4096)];
    let graph = hip.graph(streams[0], || {
        hip.launch(add, 1, streams[0]);
        hip.launch(mul, 1, streams[0]);
        hip.memset(memory[0], 1, streams[0]);
    });
    let mut back = [0; 4096];
    {
        let _annotation = annotate!("forward").entered();
        info_span!("copy_in").in_scope(|| hip.memcpy_htod(memory[0], &[5; 4096], streams[0]));
        info_span!("fill").in_scope(|| hip.memset(memory[1], 0, streams[1]));
        info_span!("gemm").in_scope(|| hip.launch_host(gemm, 64, streams[0]));
        info_span!("mul").in_scope(|| hip.launch_ext(mul, 32, streams[1]));
        hip.make_frequent_queries();
    }
    info_span!("graph").in_scope(|| hip.launch_graph(graph, streams[0]));
    let event = hip.event();
    hip.record(event, streams[0]);
    hip.wait(streams[1], event);
    info_span!("copy").in_scope(|| hip.memcpy_dtod(memory[1], memory[0], streams[1]));
    info_span!("copy_out").in_scope(|| hip.memcpy_dtoh(&mut back, memory[1], streams[1]));
    hip.synchronize();
    assert_eq!(back, [1; 4096], "the graph's fill");
    memory.iter().for_each(|memory| hip.free(*memory));
}

/// Returns work rows by name and owning span, with counts.
pub fn owners(file: &File) -> BTreeMap<String, usize> {
    tally(work(file).iter().map(|row| format!("{} < {}", name(row), under(file, row))))
}

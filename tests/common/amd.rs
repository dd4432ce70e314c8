//! A machine with simulated AMD GPUs to oneself, and what a trace says of it.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers")]

use crate::common::{self, File};
use crate::gpu;
use crate::rocm::{self, Hip};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::info_span;
use tracing_kineto::collector::{CollectorReport, Unavailable};
use tracing_kineto::{ActivityTypes, KinetoLayerBuilder, Loss};

/// Which of the two profilers there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// rocprofiler-sdk.
    Sdk,
    /// roctracer.
    Tracer,
}

/// The simulated machine. There is one in the process: tests take turns.
pub(crate) struct Machine {
    hip: Hip,
    _turn: MutexGuard<'static, ()>,
}

/// Waits for the machine, which has these options from now on. HIP begins after the collector has registered.
pub(crate) fn machine(way: Way, settings: &str) -> Machine {
    static TURN: Mutex<()> = Mutex::new(());
    static IS_BEGUN: Mutex<bool> = Mutex::new(false);
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let hip = load(way, "");
    let mut is_begun = IS_BEGUN.lock().unwrap();
    if !*is_begun {
        *is_begun = true;
        let file = record(|| ());
        report(&file).state.expect("the collector works");
        hip.init();
    }
    rocm::configure(settings);
    rocm::reset();
    Machine { hip, _turn: turn }
}

/// Loads HIP and a profiler with these options.
pub(crate) fn load(way: Way, settings: &str) -> Hip {
    match way {
        Way::Sdk => Hip::with_sdk(settings),
        Way::Tracer => Hip::with_tracer(settings),
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
    }
}

/// Adds what these tests record.
pub(crate) fn all(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    builder.activities(ActivityTypes::DEFAULT).flush_timeout(gpu::PATIENCE)
}

/// Records what `work` does.
pub(crate) fn record(work: impl FnOnce()) -> File {
    common::record_with(all, work)
}

/// What a trace says of AMD's devices.
#[track_caller]
pub(crate) fn report(file: &File) -> CollectorReport {
    let mut reports = file.trace.stats().collectors.into_iter();
    reports.find(|report| report.name == "rocm").expect("nobody was asked for AMD's devices")
}

/// Why nothing of them was recorded, which the header must tell too.
#[track_caller]
pub(crate) fn reason(file: &File) -> Unavailable {
    let reason = report(file).state.expect_err("a reason");
    assert_eq!(file.json["tracing_kineto"]["collectors"]["rocm"]["unavailable"], reason.to_string());
    reason
}

pub(crate) fn losses(file: &File) -> Vec<(Loss, usize)> {
    file.trace.stats().losses.iter().map(|(loss, count)| (*loss, usize::try_from(*count).unwrap())).collect()
}

/// Launches a kernel of the program's own, which a C++ compiler has named, in a span of its own name.
pub(crate) fn launch(hip: &Hip, name: &str, stream: rocm::Stream) {
    let kernel = hip.host_kernel(name);
    info_span!("launch").in_scope(|| hip.launch_host(kernel, 2, stream));
}

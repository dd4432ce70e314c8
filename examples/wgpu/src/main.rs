//! Runs compute passes with wgpu, profiles itself, and checks the trace: every pass is a row of the GPU at the time of its
//! own timestamps.
//!
//! ```sh
//! cd examples/wgpu && cargo run --release [FILE.pt.trace.json.gz] [--brackets | --host-clock] [--hta]
//! ```
//!
//! Any Vulkan driver works, Mesa's CPU driver too (Debian's `mesa-vulkan-drivers`).
//!
//! - Without a flag, `VK_EXT_calibrated_timestamps` aligns the GPU's clock with the host's if the driver has it.
//! - `--brackets` does not use that extension.
//! - `--host-clock` states that the GPU's clock is CLOCK_MONOTONIC, which is true for llvmpipe.
//! - `--hta` uses call and step names that HTA knows, for its queue lengths and critical path.
//!
//! The exit status is 0 if all checks pass, 1 if not, and 3 if there is no Vulkan device, or none with timestamps. Checks
//! cover order, nesting and counts, never durations.

mod checks;
mod program;

use checks::Checks;
use program::Program;
use std::error::Error;
use std::process::ExitCode;
use tracing_kineto::{KinetoLayer, annotate};
use tracing_kineto_wgpu::{Align, Gpu, Timestamps, wgpu};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use wgpu::{Adapter, DeviceDescriptor, Instance, InstanceDescriptor, PowerPreference, RequestAdapterOptions};

/// The exit status without a usable device.
const NOTHING_TO_RUN_ON: u8 = 3;
const STEPS: usize = 5;

fn main() -> ExitCode {
    match pollster::block_on(run()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("FAIL  {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, Box<dyn Error>> {
    let (mut path, mut align) = ("wgpu.pt.trace.json.gz".to_owned(), Align::Best);
    let (mut gpu, mut step) = (Gpu::new(0), "step ");
    for argument in std::env::args().skip(1) {
        match &*argument {
            "--brackets" => align = Align::Brackets,
            "--host-clock" => align = Align::HostClock,
            "--hta" => (gpu, step) = (gpu.as_cuda(), "ProfilerStep#"),
            flag if flag.starts_with("--") => return Err(format!("no such option: {flag}").into()),
            file => path = file.to_owned(),
        }
    }
    let Some(adapter) = adapter().await else {
        eprintln!(
            "there is no Vulkan device here; Mesa's for processors is in Debian's mesa-vulkan-drivers and libvulkan1"
        );
        return Ok(ExitCode::from(NOTHING_TO_RUN_ON));
    };
    let (layer, guard) = KinetoLayer::builder().no_output().collector(gpu.collector()).build()?;
    tracing_subscriber::registry().with(layer).init();

    let timestamps = gpu.open(&adapter, &DeviceDescriptor::default(), align).await?;
    if !timestamps.are_there() {
        eprintln!("{} has no timestamp queries", adapter.get_info().name);
        return Ok(ExitCode::from(NOTHING_TO_RUN_ON));
    }
    println!("{}: {} ns a tick", adapter.get_info().name, timestamps.queue().get_timestamp_period());
    let mut checks = Checks::new(adapter.get_info().name.starts_with("llvmpipe"));
    work(step, &gpu, &timestamps, &mut checks)?;

    let trace = guard.finish()?;
    trace.save(&path)?;
    println!("{}\n", trace.stats());
    checks.trace(&trace, &gpu.collector())?;
    println!("\nThe trace is in {path}; drag it onto https://ui.perfetto.dev.");
    Ok(if checks.end() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the first Vulkan adapter that can compute.
async fn adapter() -> Option<Adapter> {
    let backends = wgpu::Backends::VULKAN;
    let instance = Instance::new(InstanceDescriptor { backends, ..InstanceDescriptor::new_without_display_handle() });
    let options = RequestAdapterOptions { power_preference: PowerPreference::HighPerformance, ..Default::default() };
    instance.request_adapter(&options).await.ok()
}

/// Runs a few steps, each with an upload, three passes and a download; the recording stops before the last step has ended.
fn work(step: &str, gpu: &Gpu, timestamps: &Timestamps, checks: &mut Checks) -> Result<(), Box<dyn Error>> {
    let program = Program::new(timestamps);
    for number in 0..STEPS {
        let _step = annotate!("{}{}", step, number).entered();
        let encoder = tracing::info_span!("encode").in_scope(|| program.encode(timestamps));
        let before = gpu.collector().now();
        tracing::info_span!("submit").in_scope(|| timestamps.submit(encoder));
        if number + 1 < STEPS {
            tracing::info_span!("wait").in_scope(|| timestamps.device().poll(wgpu::PollType::wait_indefinitely()))?;
            checks.step(before, gpu.collector().now());
        } else {
            checks.step(before, u64::MAX);
        }
    }
    Ok(())
}

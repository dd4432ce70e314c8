//! Stops while the GPU works: each launch is a row or counted, and the next recording is whole.

use crate::checks::now;
use crate::program::{Gpu, Machine};
use crate::report::Report;
use crate::view::{Row, View};
use cudarc::driver::{DriverError, LaunchConfig, PushKernelArg};
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tracing::info_span;
use tracing_kineto::{KinetoLayer, Loss, Profiler, Trace};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

type Outcome = Result<(), Box<dyn Error>>;

/// Kernels that wait for each other at the stop, and the cycles of each: some 0.25 s at 2 GHz.
const QUEUED: u64 = 4;
const CYCLES: u64 = 500_000_000;
const THREADS: usize = 4;
const RECORDINGS: usize = 3;
const LENGTH: Duration = Duration::from_millis(300);

/// Stops recordings of a busy GPU with this `flush_timeout`; saves the first trace.
pub fn run(limit: Duration, path: &str, report: &mut Report) -> Outcome {
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).flush_timeout(limit).build()?;
    tracing_subscriber::registry().with(layer).init();
    let profiler = guard.profiler();
    let machine = Machine::open()?;
    let gpu = machine.gpus.first().ok_or("there is no GPU")?;
    gpu.lanes[0].stream.context().bind_to_thread()?;

    queued(&profiler, gpu, limit, path, report)?;
    at_full_speed(&profiler, gpu, report)
}

/// A stop while kernels are queued, and a recording after them.
fn queued(profiler: &Profiler, gpu: &Gpu, limit: Duration, path: &str, report: &mut Report) -> Outcome {
    let stream = &gpu.lanes[0].stream;
    let spin = |cycles: u64| -> Result<(), DriverError> {
        let mut launch = stream.launch_builder(&gpu.spin);
        launch.arg(&cycles);
        // SAFETY: the argument is the kernel's parameter.
        unsafe { launch.launch(LaunchConfig::for_num_elems(32)) }.map(drop)
    };
    profiler.start()?;
    let begun = Instant::now();
    (0..QUEUED).try_for_each(|nth| info_span!("queue", nth).in_scope(|| spin(CYCLES)))?;
    let launched = begun.elapsed();
    let trace = profiler.stop()?;
    let stopped = begun.elapsed() - launched;
    stream.synchronize()?;
    let worked = begun.elapsed();
    trace.save(path)?;
    say(&trace, report);
    report.figure("stop of a busy GPU", stopped.as_micros() as u64, "us");
    let times = format!("launched in {launched:.1?}, stopped in {stopped:.1?}, work of {worked:.1?}");
    // Work that ends within the limit is waited for.
    check_launches("queued kernels", &trace, QUEUED, worked < limit, &times, report)?;

    let start = now();
    profiler.start()?;
    spin(1)?;
    stream.synchronize()?;
    let trace = profiler.stop()?;
    say(&trace, report);
    let view = View::new(&trace)?;
    let older = view.of("kernel").filter(|row| row.start < start - 1_000_000).count();
    let figures = format!("{} kernel of 1, {older} from before", view.of("kernel").count());
    report.check("recording after them", view.of("kernel").count() == 1 && older == 0, figures);
    Ok(())
}

/// Recordings while threads launch without a pause.
fn at_full_speed(profiler: &Profiler, gpu: &Gpu, report: &mut Report) -> Outcome {
    let is_over = AtomicBool::new(false);
    let launch_all = || -> Result<(), DriverError> {
        let context = gpu.lanes[0].stream.context();
        context.bind_to_thread()?;
        let stream = context.new_stream()?;
        while !is_over.load(Ordering::Relaxed) {
            let mut launch = stream.launch_builder(&gpu.empty);
            // SAFETY: the kernel takes nothing.
            info_span!("launch").in_scope(|| unsafe { launch.launch(LaunchConfig::for_num_elems(1)) })?;
        }
        stream.synchronize()
    };
    thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(launch_all));
        let outcome = (0..RECORDINGS).try_for_each(|nth| -> Outcome {
            profiler.start()?;
            thread::sleep(LENGTH);
            let begun = Instant::now();
            let trace = profiler.stop()?;
            let times = format!("stopped in {:.1?}", begun.elapsed());
            say(&trace, report);
            check_launches(&format!("at full speed, recording {nth}"), &trace, 1, false, &times, report)
        });
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("no thread panics").expect("each launch succeeds"));
        outcome
    })
}

fn say(trace: &Trace, report: &Report) {
    report.say(format_args!("      {}", trace.stats()));
}

/// Checks that each launch, of which there are `least` or more, has a kernel or is counted; a kernel that has ended if `all_end`.
fn check_launches(name: &str, trace: &Trace, least: u64, all_end: bool, times: &str, report: &mut Report) -> Outcome {
    let (stats, view) = (trace.stats(), View::new(trace)?);
    let calls = view.calls().filter(|row| row.name.contains("LaunchKernel"));
    let calls: BTreeSet<_> = calls.filter_map(|row| row.int("correlation")).collect();
    let is_launched = |row: &&Row| row.int("correlation").is_some_and(|id| calls.contains(&id));
    let (launches, kernels) = (calls.len() as u64, view.of("kernel").filter(is_launched).count() as u64);
    let count = |wanted| stats.losses.iter().find(|(loss, _)| *loss == wanted).map_or(0, |(_, count)| *count);
    let (missing, unfinished) = (count(Loss::LaunchesWithoutWork), count(Loss::UnfinishedWork));
    let figures =
        format!("{kernels} kernels + {missing} counted of {launches} launches, {unfinished} unfinished; {times}");
    let is_right = launches >= least && kernels + missing == launches && !(all_end && missing + unfinished > 0);
    report.check(name, is_right, figures);
    Ok(())
}

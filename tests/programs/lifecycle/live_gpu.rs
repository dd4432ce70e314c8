//! What a live file holds of a killed process that launches kernels at full speed, on the simulated GPU.

use super::live::{COUNTS, live_files, number, runs, shm};
use super::play::{play_while, record_as};
use super::sys::{self, SharedCounts};
use super::{Scenario, Test};
use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::cuda::Cuda;
use support::poll_until;
use tracing_kineto::activity::ActivityType;
use tracing_kineto::{KinetoLayer, Loss, Trace};

const THREADS: usize = 2;

pub(crate) const SCENARIOS: &[Scenario] = &[("live_gpu", |folder| {
    let _ = Cuda::with("");
    let guard = record_as(KinetoLayer::builder());
    let counts = SharedCounts::open(&folder.join(COUNTS));
    for thread in 0..THREADS {
        let launch = move || {
            let cuda = Cuda::new();
            let (kernel, stream) = (cuda.only_kernel("busy_us5"), cuda.stream());
            for n in 1.. {
                tracing::info_span!("request", n).in_scope(|| cuda.launch(kernel, 1, stream));
                counts.get(thread).store(n, Ordering::SeqCst);
            }
        };
        std::thread::Builder::new().spawn(launch).unwrap();
    }
    loop {
        std::thread::park();
        std::hint::black_box(&guard);
    }
})];

pub(crate) const TESTS: &[Test] = &[("killed_process_keeps_kernels_with_launches", || {
    for run in 0..runs().div_ceil(10) {
        let shm = shm();
        let env = [
            ("KINETO_SHM_DIR", shm.path().to_str().unwrap()),
            ("KINETO_OVERFLOW", "keep_newest"),
            ("KINETO_BUFFER_LIMIT_MB", "48"),
        ];
        let played = play_while("live_gpu", &env, |process, folder| {
            // Until the newest records have replaced others a few times.
            const ENOUGH: u64 = 300_000;
            let launches = || {
                let counts = folder.join(COUNTS).exists().then(|| SharedCounts::open(&folder.join(COUNTS)));
                counts.map_or(0, |counts| (0..THREADS).map(|at| counts.get(at).load(Ordering::SeqCst)).sum::<u64>())
            };
            poll_until(|| launches() >= ENOUGH);
            std::thread::sleep(Duration::from_micros(run * 97_771 % 300_000));
            sys::kill(process.cast_signed(), libc::SIGKILL);
        });
        assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
        let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
        let segment = Trace::read_segment(file).unwrap();
        assert_eq!(segment.lost_frames, 0, "{segment}");
        let (mut launches, mut kernels, mut slices) = (HashMap::new(), Vec::new(), HashSet::new());
        segment.trace.for_each(|activity| {
            let correlation = || number(activity, "correlation").unwrap();
            match activity.kind {
                ActivityType::CudaDriver => drop(launches.insert(correlation(), activity.linked)),
                ActivityType::ConcurrentKernel => kernels.push((correlation(), activity.linked)),
                ActivityType::CpuOp if activity.name == "request" => drop(slices.insert(activity.id)),
                _ => {}
            }
        });
        let stats = segment.trace.stats();
        let last = launches.keys().copied().max().unwrap_or_default();
        let (mut linked, mut late) = (0, 0);
        for (correlation, span) in &kernels {
            match launches.get(correlation) {
                Some(launch) => {
                    assert!(span == launch && slices.contains(span), "{correlation} {span:?} {launch:?}: {stats}");
                    linked += 1;
                }
                None => late += u64::from(*correlation > last),
            }
        }
        assert!(linked > 10_000, "{stats}");
        // CUPTI had delivered some kernels before their launches, which were lost with the process; each thread may have been in a call
        // when those of the other one were delivered. Kernels that were launched before the trace begins lack nothing.
        assert!(stats.lost(Loss::WorkWithoutLaunch) <= late + THREADS as u64, "{late}: {stats}");
    }
})];

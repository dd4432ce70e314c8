//! The traced programs.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use support::poll_until;
use support::traced::{
    self, built, from_env, input, report, serve, until_command, with_reporter, work, work_until_command,
};
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{Capabilities, RecordSink, Recording, Selection, Unavailable};
use tracing_kineto::memory::{self, Device};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{
    ActivityType, ActivityTypes, KinetoGuard, KinetoLayer, Message, Profiler, RecordingFlags, Schedule,
    SessionObserver, Status, Timestamp,
};
use tracing_subscriber::prelude::*;

/// Runs the program of that name until its input ends.
pub(crate) fn play(name: &str) {
    match name {
        "hurries" => hurries(&from_env()),
        "builds" => serve(built(KinetoLayer::builder())),
        "has a broken sink" => {
            serve(built(
                KinetoLayer::builder()
                    .sink("broken", |_: &str| -> io::Result<Box<dyn Write + Send>> { panic!("this sink is broken") }),
            ));
        }
        "works at once" => works_at_once(from_env()),
        "keeps" => works_at_once(built(KinetoLayer::builder().no_output())),
        "scheduled" => {
            works_at_once(built(KinetoLayer::builder().schedule(Schedule::new(0, 0, 1).unwrap()).no_output()));
        }
        "fails" => report(&KinetoLayer::try_from_env().unwrap_err().to_string()),
        "steps" => steps(&from_env()),
        "exits" => exits(),
        "abstract" => super::traces::run_in_network_namespace(),
        "idle" => idle(),
        "forks" => forks(),
        "preforks" => preforks(),
        "collects" => collects(),
        "begins slowly" => begins_slowly(),
        "observed" => observed(),
        "soak" => super::soak::long(),
        "allocates" => allocates(&with_reporter()),
        other => match other.split_once(" in ") {
            Some(("watches", folder)) => serve(built(KinetoLayer::builder().trigger_folder(folder))),
            Some(("asks again", folder)) => asks_again(Path::new(folder)),
            _ => traced::play(other),
        },
    }
}

/// A server with a thousand spans in each iteration.
fn hurries(guard: &KinetoGuard) {
    let profiler = guard.profiler();
    profiler.step();
    report("counts its iterations");
    until_command(&input(), || {
        (0..1000).for_each(|_| drop(tracing::info_span!("fast").entered()));
        profiler.step();
    });
}

/// A server that requests its last records again while the end of the first request is being reported.
fn asks_again(folder: &Path) {
    let has_asked = AtomicBool::new(false);
    let request = folder.join(format!("{}.request", std::process::id()));
    let log = move |message: &Message<'_>| {
        report(&message.to_string());
        if message.to_string().contains("request ended: ") && !has_asked.swap(true, Ordering::Relaxed) {
            std::fs::write(&request, "PROFILE_LAST_MSECS=50").unwrap();
            let answer = || std::fs::read_to_string(request.with_extension("answer")).unwrap();
            let is_end = |answer: &str| answer.ends_with("done\n") || answer.ends_with("failed\n");
            poll_until(|| is_end(&answer()));
        }
    };
    serve(built(KinetoLayer::builder().log_sink(Arc::new(log))));
}

/// A server that works before it serves.
fn works_at_once(guard: KinetoGuard) {
    tracing::info_span!("first").in_scope(work);
    report("has worked");
    serve(guard);
}

/// A server that exits without dropping its guard.
#[expect(clippy::exit, reason = "the scenario exits inside the recording")]
fn exits() {
    let _guard = from_env();
    work();
    work_until_command(&input());
    std::process::exit(0);
}

/// A loop that counts its iterations and reports the first: an earlier request is traced by time.
fn steps(guard: &KinetoGuard) {
    let (profiler, input) = (guard.profiler(), input());
    profiler.step();
    report("counts its iterations");
    while input.try_recv() != Err(TryRecvError::Disconnected) {
        profiler.step();
        tracing::info_span!("iteration", n = Libkineto::of(&profiler).iteration()).in_scope(work);
    }
}

/// Makes a layer that is never traced; lists its threads at each line of input.
fn idle() {
    let input = input();
    let begun = Instant::now();
    let guard = from_env();
    let made = begun.elapsed();
    assert_eq!(guard.profiler().status(), Status::Idle);
    let mut names = String::new();
    while work_until_command(&input).is_some() {
        names = threads();
    }
    let asked = Instant::now();
    drop(guard);
    println!("made in {} us, dropped in {} us; threads: {names}", made.as_micros(), asked.elapsed().as_micros());
}

/// Returns the names of this process's threads, less those that end meanwhile.
fn threads() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let mut names: Vec<_> = tasks.filter_map(|task| Some(name(task.unwrap())?.trim().to_owned())).collect();
    names.sort();
    names.join(",")
}

/// A server that has forked a child, which has ended.
#[expect(unsafe_code, reason = "fork has no safe form")]
fn forks() {
    let guard = from_env();
    let input = input();
    poll_until(|| threads().contains("kineto-ondemand"));
    // SAFETY: the child only does what this crate supports in a forked child, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        work();
        drop(guard);
        // SAFETY: takes a number and does not return.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    report(&format!("the child has ended with {}", libc::WEXITSTATUS(status)));
    work_until_command(&input);
    drop(guard);
}

/// A server that forks two workers on command; they end with it.
#[expect(unsafe_code, clippy::exit, reason = "fork has no safe form, and a worker ends in the middle of it")]
fn preforks() {
    let guard = from_env();
    let input = input();
    work_until_command(&input);
    // SAFETY: getpid takes nothing.
    let server = unsafe { libc::getpid() };
    let workers = [(); 2].map(|()| {
        // SAFETY: the child only does what this crate supports in a forked child, and ends.
        let worker = unsafe { libc::fork() };
        if worker == 0 {
            guard.profiler().after_fork().unwrap();
            // SAFETY: getppid takes nothing.
            while unsafe { libc::getppid() } == server {
                work();
            }
            std::process::exit(0);
        }
        worker
    });
    report(&format!("workers {workers:?}"));
    work_until_command(&input);
    drop(guard);
}

/// A collector that reports its calls, and stops by itself once the flag is set.
#[derive(Clone, Debug)]
struct ReportingCollector(Arc<AtomicBool>);

impl Collector for ReportingCollector {
    fn name(&self) -> &'static str {
        "reporting"
    }
    fn types(&self) -> ActivityTypes {
        ActivityType::ConcurrentKernel.into()
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        report("collector: probed");
        Ok(Capabilities::default())
    }
    fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        report("collector: started");
        Ok((Capabilities::default(), Box::new(self.clone())))
    }
}

impl Recording for ReportingCollector {
    fn stopped(&self) -> Option<String> {
        self.0.load(Ordering::Relaxed).then(|| "its buffers are full".to_owned())
    }
    fn stop(&self, _: Timestamp, _: Instant) {
        report("collector: stopped");
    }
}

/// A server with a [`ReportingCollector`]; starts and stops its own recording on command.
fn collects() {
    let has_stopped = Arc::new(AtomicBool::new(false));
    memory::record(1, 64, 64, 64, Device::CPU);
    let (layer, guard) = KinetoLayer::builder().collector(ReportingCollector(has_stopped.clone())).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let (profiler, input) = (guard.profiler(), input());
    while let Some(line) = work_until_command(&input) {
        match line.as_str() {
            "start" => profiler.start().unwrap(),
            "stop" => drop(profiler.stop().unwrap()),
            line => has_stopped.store(line == "full", Ordering::Relaxed),
        }
        report(&format!("done: {line}"));
    }
    drop(guard);
}

/// A collector whose start waits for three steps of the program.
#[derive(Clone, Debug)]
struct SlowCollector(Arc<AtomicU64>);

impl Collector for SlowCollector {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn types(&self) -> ActivityTypes {
        ActivityType::ConcurrentKernel.into()
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }
    fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        let from = self.0.load(Ordering::Relaxed);
        poll_until(|| self.0.load(Ordering::Relaxed) >= from + 3);
        Ok((Capabilities::default(), Box::new(self.clone())))
    }
}

impl Recording for SlowCollector {
    fn stop(&self, _: Timestamp, _: Instant) {}
}

/// A loop with a [`SlowCollector`].
fn begins_slowly() {
    let steps = Arc::new(AtomicU64::new(0));
    let (layer, guard) = KinetoLayer::builder().collector(SlowCollector(steps.clone())).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let (profiler, input) = (guard.profiler(), input());
    while input.try_recv() != Err(TryRecvError::Disconnected) {
        profiler.step();
        steps.fetch_add(1, Ordering::Relaxed);
        work();
    }
}

/// Reports each callback, and counts iterations in it.
#[derive(Debug, Default)]
struct ReportingObserver(Arc<OnceLock<Profiler>>);

impl ReportingObserver {
    fn report_callback(&self, what: &str) {
        if let Some(profiler) = self.0.get() {
            (0..3).for_each(|_| assert!(Libkineto::of(profiler).count_iteration("observer") > 0));
        }
        report(&format!("observer: {what}"));
    }
}

impl SessionObserver for ReportingObserver {
    fn prepared(&self, flags: &RecordingFlags) {
        let flags = [
            (flags.record_shapes, " shapes"),
            (flags.profile_memory, " memory"),
            (flags.with_stack, " stack"),
            (flags.with_flops, " flops"),
            (flags.with_modules, " modules"),
        ];
        let names: String = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
        self.report_callback(&format!("prepared{names}"));
    }
    fn started(&self) {
        self.report_callback("started");
    }
    fn stopped(&self) {
        self.report_callback("stopped");
    }
    fn cancelled(&self, reason: &str) {
        self.report_callback(&format!("cancelled: {reason}"));
    }
    fn memory_profile_started(&self) {
        self.report_callback("memory profile started");
    }
    fn memory_profile_stopped(&self) {
        self.report_callback("memory profile stopped");
    }
    fn memory_profile_exported(&self, path: &Path) {
        self.report_callback(&format!("memory profile in {}", path.display()));
    }
}

/// A server with a [`ReportingObserver`] and a [`ReportingCollector`]; obeys commands.
#[expect(clippy::exit, reason = "the scenario exits inside the recording")]
fn observed() {
    let (observed, has_stopped) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
    memory::record(1, 64, 64, 64, Device::CPU);
    let builder = KinetoLayer::builder().no_output().collector(ReportingCollector(has_stopped.clone()));
    let (layer, guard) = builder.session_observer(ReportingObserver(observed.clone())).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let (profiler, input) = (guard.profiler(), input());
    observed.set(profiler.clone()).unwrap();
    let allocate = || {
        memory::record(1, 64, 64, 64, Device::CPU);
        work();
    };
    while let Some(line) = until_command(&input, allocate) {
        match line.as_str() {
            "start" => profiler.start().unwrap(),
            "stop" => drop(profiler.stop().unwrap()),
            "step" => (0..40).for_each(|_| {
                profiler.step();
                tracing::info_span!("iteration").in_scope(work);
            }),
            "exit" => std::process::exit(0),
            word => has_stopped.store(word == "full", Ordering::Relaxed),
        }
        report(&format!("done: {line}"));
    }
    drop(guard);
}

/// Reports allocations while it works.
fn allocates(guard: &KinetoGuard) {
    let input = input();
    let _: Profiler = guard.profiler();
    let mut total = 0;
    while input.try_recv() != Err(TryRecvError::Disconnected) {
        total += 64;
        memory::record(total, 64, total, total, Device::CPU);
        work();
    }
}

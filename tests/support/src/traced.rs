//! Programs that tests trace by requests: the test binary starts itself again with `--play <name>`.

use crate::wait::{is_virtual, since, sleep, steady};
use std::io::{BufRead, stdin};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;
use tracing_kineto::memory::{self, Device};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{KinetoGuard, KinetoLayer, KinetoLayerBuilder};
use tracing_subscriber::prelude::*;

/// Runs the program of that name until its input ends.
///
/// # Panics
///
/// Panics if no program has that name.
pub fn play(name: &str) {
    match name {
        "serve" => serve(from_env()),
        "commanded" => commanded(&with_reporter()),
        other => match other.strip_prefix("pretends ") {
            Some(user) => pretends(user.parse().ok()),
            None => panic!("no program {other:?}"),
        },
    }
}

/// Builds a layer and installs it.
pub fn built(builder: KinetoLayerBuilder) -> KinetoGuard {
    let (layer, guard) = builder.build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    guard
}

/// Builds a layer from the environment and installs it.
pub fn from_env() -> KinetoGuard {
    let (layer, guard) = KinetoLayer::from_env().unwrap();
    tracing_subscriber::registry().with(layer).init();
    guard
}

/// Records by the environment in a program with a reporting allocator, so that memory profiles are accepted.
pub fn with_reporter() -> KinetoGuard {
    memory::record(1, 64, 64, 64, Device::CPU);
    from_env()
}

/// Returns the lines of the input; the channel is disconnected at its end.
pub fn input() -> Receiver<String> {
    let (send, receive) = channel();
    let read = move || {
        stdin().lock().lines().map_while(Result::ok).for_each(|line| drop(send.send(line)));
        drop(send);
        // It never ends: a thread that ends has no name in a list of the threads, or hides later ones.
        loop {
            std::thread::park();
        }
    };
    std::thread::Builder::new().spawn(read).unwrap();
    receive
}

/// Records one span.
pub fn work() {
    // Each sleep is a step of a virtual clock.
    static LENGTH: LazyLock<Duration> =
        LazyLock::new(|| if is_virtual() { Duration::from_millis(10) } else { Duration::from_micros(200) });
    tracing::info_span!("work", n = 1u64).in_scope(|| sleep(*LENGTH));
}

/// Records spans until a line arrives, and returns it; `None` at the end of the input.
pub fn work_until_command(input: &Receiver<String>) -> Option<String> {
    until_command(input, work)
}

/// As [`work_until_command`] with other work.
pub fn until_command(input: &Receiver<String>, work: impl Fn()) -> Option<String> {
    loop {
        match input.try_recv() {
            Ok(line) => return Some(line),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => work(),
        }
    }
}

/// Records spans until the input ends.
pub fn serve(guard: KinetoGuard) {
    work_until_command(&input());
    let asked = steady();
    drop(guard);
    println!("dropped in {} us", since(asked).as_micros());
}

/// Starts and stops its own recordings on command.
fn commanded(guard: &KinetoGuard) {
    let (profiler, input) = (guard.profiler(), input());
    let mut trace = None;
    while let Some(line) = work_until_command(&input) {
        match line.as_str() {
            "start" => profiler.start().unwrap(),
            "stop" => trace = Some(profiler.stop().unwrap()),
            "start memory" => Libkineto::of(&profiler).start_memory_profile().unwrap(),
            "stop memory" => drop(Libkineto::of(&profiler).stop_memory_profile().unwrap()),
            "stop memory in vain" => report(&Libkineto::of(&profiler).stop_memory_profile().unwrap_err().to_string()),
            "nothing" => {}
            "work" => work(),
            "stop in vain" => report(&profiler.stop().unwrap_err().to_string()),
            other => panic!("no command {other}"),
        }
        report(&format!("done: {line}"));
    }
    if let Some(trace) = trace {
        println!("{} slices of its own", trace.stats().slices);
    }
}

/// Prints a line to stderr, which the test reads.
pub fn report(text: &str) {
    eprintln!("{text}");
}

/// Sets the effective user, and starts a thread with the name that marks a process as serving requests, without serving.
fn pretends(user: Option<u32>) {
    if let Some(user) = user {
        // SAFETY: `seteuid` takes a number.
        assert_eq!(unsafe { libc::seteuid(user) }, 0);
    }
    let (send, receive) = channel::<()>();
    let thread = std::thread::Builder::new().name("kineto-ondemand".into());
    thread
        .spawn(move || {
            println!("pretends");
            let _ = receive.recv();
        })
        .unwrap();
    let _ = input().into_iter().count();
    drop(send);
}

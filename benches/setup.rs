//! Measures creating and installing the subscriber in fresh processes, compared with a layer that does nothing.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark panics if it cannot run, and prints")]

use std::process::Command;
use std::time::Instant;

use tracing::{Subscriber, info_span};
use tracing_kineto::KinetoLayer;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt;

const ARMS: [&str; 3] = ["default methods", "kineto, recording", "kineto, idle"];
const PROCESSES: usize = 200;

struct DefaultMethods;

impl<S: Subscriber> Layer<S> for DefaultMethods {}

fn main() {
    let arm = std::env::args().nth(1).and_then(|arg| ARMS.into_iter().find(|arm| *arm == arg));
    match arm {
        Some(arm) => measure(arm),
        None => compare(),
    }
}

/// Prints the nanoseconds of the setup and of the process's first span.
fn measure(arm: &str) {
    // The first reading of the clock is slower than later ones.
    let _ = Instant::now().elapsed();
    let begin = Instant::now();
    let guard = if arm == "default methods" {
        registry().with(DefaultMethods).init();
        None
    } else {
        let builder = KinetoLayer::builder().no_output().record_from_start(arm == "kineto, recording");
        let (layer, guard) = builder.build().unwrap();
        registry().with(layer).init();
        Some(guard)
    };
    let set_up = begin.elapsed();
    let begin = Instant::now();
    info_span!("first").in_scope(|| ());
    println!("{} {}", set_up.as_nanos(), begin.elapsed().as_nanos());
    drop(guard.map(|guard| guard.finish()));
}

/// Runs all arms alternately, and prints the median of each.
fn compare() {
    let myself = std::env::current_exe().unwrap();
    let mut times = ARMS.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..PROCESSES {
        for (arm, (set_up, first)) in ARMS.iter().zip(&mut times) {
            let output = Command::new(&myself).arg(arm).output().unwrap().stdout;
            let line = String::from_utf8(output).unwrap();
            let (a, b) = line.trim_end().split_once(' ').unwrap();
            set_up.push(a.parse::<u32>().unwrap());
            first.push(b.parse::<u32>().unwrap());
        }
    }
    println!("median of {PROCESSES} processes, in microseconds");
    println!("{:<20} {:>8} {:>12}", "", "set-up", "first span");
    for (arm, (mut set_up, mut first)) in ARMS.iter().zip(times) {
        let median = |times: &mut Vec<u32>| f64::from(*times.select_nth_unstable(PROCESSES / 2).1) / 1000.0;
        println!("{arm:<20} {:>8.1} {:>12.1}", median(&mut set_up), median(&mut first));
    }
}

//! The simulated HIP as used by a program.
#![cfg(target_os = "linux")]

use std::sync::MutexGuard;
use support::rocm;
use support::rocm::{Hip, Stream};

/// Tests take turns: there is one machine in the process.
fn machine(settings: &str) -> (Hip, MutexGuard<'static, ()>) {
    let turn = support::simulator::turn();
    let hip = Hip::alone(settings);
    rocm::reset();
    (hip, turn)
}

#[test]
fn copies_move_bytes_and_waits_block() {
    let (hip, _turn) = machine("devices=2");
    hip.init();
    assert_eq!(hip.devices(), 2);
    let (stream, memory, other) = (hip.stream(), hip.allocate(1024), hip.allocate(1024));
    let mut back = [0; 1024];
    hip.memcpy_htod(memory, &[3; 512], stream);
    hip.memset(other, 7, stream);
    let (start, end) = (hip.event(), hip.event());
    hip.record(start, stream);
    hip.launch(hip.only_kernel("slow_us3000"), 16, stream);
    hip.record(end, stream);
    hip.memcpy_dtod(other, memory, stream);
    hip.memcpy_dtoh(&mut back[..512], other, stream);
    hip.synchronize_stream(stream);
    assert_eq!(back[..512], [3; 512]);
    assert!(hip.elapsed_ms(start, end) >= 3.0);
    let counts = ["launches", "kernels", "memcpys", "memsets", "synchronizes"].map(rocm::count);
    assert_eq!(counts, [1, 1, 3, 1, 1]);
    hip.free(memory);
    hip.free(other);
}

#[test]
fn graphs_launch_their_captured_work() {
    let (hip, _turn) = machine("");
    let (stream, module) = (hip.stream(), hip.module(&["one", "two"]));
    let (one, two) = (hip.kernel(module, "one"), hip.kernel(module, "two"));
    let graph = hip.graph(stream, || {
        hip.launch(one, 1, stream);
        hip.launch_ext(two, 2, stream);
    });
    assert_eq!(rocm::count("kernels"), 0);
    hip.launch_graph(graph, stream);
    hip.launch_graph(graph, stream);
    hip.synchronize();
    assert_eq!((rocm::count("launches"), rocm::count("kernels")), (4, 4));
}

#[test]
fn endless_kernels_end_on_command() {
    let (hip, _turn) = machine("no_finish=endless");
    let kernel = hip.host_kernel("endless");
    hip.launch_host(kernel, 1, Stream::NULL);
    let waiting = std::thread::spawn(move || hip.synchronize());
    while rocm::count("synchronizes") == 0 {
        std::thread::yield_now();
    }
    assert!(!waiting.is_finished());
    rocm::finish();
    waiting.join().unwrap();
}

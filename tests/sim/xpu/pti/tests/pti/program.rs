//! A program without a profiler: Level Zero without PTI.

use std::time::{Duration, Instant};
use support::own_process;
use support::xpu;
use support::xpu::{MemoryKind, WaitKind, Xpu};

#[own_process]
fn a_program_runs_without_pti() {
    support::simulator::assert_own_process();
    xpu::level_zero();
    xpu::configure("devices=2");
    let xpu = Xpu::new();
    xpu::reset();
    let (queue, other) = (xpu.queue(0), xpu.driver_queue(1));
    let begun = Instant::now();
    xpu.submit(queue, "first_us3000");
    xpu.submit(queue, "second_us3000");
    xpu.memcpy(other, MemoryKind::Pinned, MemoryKind::Device, 1 << 20);
    xpu.memcpy_peer(other, 0, 4096);
    xpu.memset(other, 7, 4096);
    xpu.barrier(other);
    xpu.wait(queue, WaitKind::Queue);
    assert!(begun.elapsed() >= Duration::from_millis(6), "it waits for both");
    xpu.wait(other, WaitKind::Device);
    xpu.collective("broadcast", 1, 10);
    let counts = ["kernels", "memcpys", "memsets", "barriers", "collectives", "synchronizes"].map(xpu::count);
    assert_eq!(counts, [2, 2, 1, 1, 1, 2]);
    xpu.destroy(queue);
    xpu.destroy(other);
}

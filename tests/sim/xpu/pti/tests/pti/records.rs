//! PTI's records and buffers, where no test of the collector holds them.

use support::own_process;
use support::pti_client::*;
use support::xpu;
use support::xpu::{MemoryKind, WaitKind};

#[own_process]
fn views_that_there_are_not_are_refused() {
    let session = session_of("pti=0.16", &[]);
    let enable = |kind| session.pti.call("ptiViewEnable", kind);
    assert_eq!([0, 2, 4, COMMS, 13, 900].map(enable), [3, 2, 3, 3, 3, 3]);
    assert_eq!(xpu::count("enabled_views"), 0);
    assert_eq!((enable(SYNC), xpu::count("enabled_views")), (0, 1));
}

#[own_process]
fn buffers_that_are_full_come_by_themselves() {
    let session = session_of("", &[KERNEL]);
    let kernels = |count: usize| {
        let queue = session.xpu.queue(0);
        (0..count).for_each(|_| session.xpu.submit(queue, "kernel_us20"));
        session.xpu.wait(queue, WaitKind::Queue);
    };
    session.pti.flush();
    session.pti.rows();
    set_buffer_size(5 * 184 + 100);
    kernels(20);
    assert_eq!(session.pti.of_kind(KERNEL).len(), 20);
    assert!(xpu::count("delivered_buffers") >= 4);
    // A client without memory loses what does not fit.
    set_buffer_size(0);
    kernels(3);
    assert_eq!((session.pti.of_kind(KERNEL).len(), xpu::count("dropped")), (0, 3));
}

#[own_process]
fn a_class_of_calls_leaves_the_others_out() {
    let session = session_of("", &[RUNTIME_API]);
    assert_eq!(session.pti.only_core_calls(), 0);
    let queue = session.xpu.queue(0);
    session.xpu.allocate();
    session.xpu.submit(queue, "kernel");
    session.xpu.wait(queue, WaitKind::List);
    let names: Vec<_> =
        session.pti.of_kind(RUNTIME_API).iter().map(|row| session.pti.name(3, row.u32(28)).unwrap()).collect();
    assert_eq!(names, ["urUSMDeviceAlloc", "urEnqueueKernelLaunch"]);
    // Enabled anew, all are recorded.
    session.pti.call("ptiViewDisable", RUNTIME_API);
    session.pti.call("ptiViewEnable", RUNTIME_API);
    session.xpu.wait(queue, WaitKind::List);
    assert_eq!(session.pti.of_kind(RUNTIME_API).len(), 1);
}

#[own_process]
fn a_barrier_is_a_synchronization() {
    let session = session("");
    let queue = session.xpu.queue(0);
    session.xpu.barrier(queue);
    session.xpu.wait(queue, WaitKind::Fence);
    assert_eq!(session.pti.of_kind(SYNC).iter().map(|row| row.u32(4)).collect::<Vec<_>>(), [1, 3]);
}

#[own_process]
fn records_are_as_long_as_in_their_version() {
    for (version, lengths) in
        [("0.12", [168, 136, 168, 136]), ("0.17", [168, 136, 168, 136]), ("1.0", [184, 152, 192, 152])]
    {
        let session = session_of(&format!("pti={version},devices=2"), &[KERNEL, MEMCPY, PEER, MEMSET]);
        let mut found = Vec::new();
        for kind in [KERNEL, MEMCPY, PEER, MEMSET] {
            let queue = session.xpu.queue(0);
            match kind {
                KERNEL => session.xpu.submit(queue, "kernel"),
                MEMCPY => session.xpu.memcpy(queue, MemoryKind::Device, MemoryKind::Pinned, 64),
                PEER => session.xpu.memcpy_peer(queue, 1, 64),
                _ => session.xpu.memset(queue, 0, 64),
            }
            session.xpu.wait(queue, WaitKind::Queue);
            found.push(session.pti.of_kind(kind)[0].clone());
        }
        // Each is alone in its buffer.
        assert_eq!(found.iter().map(Row::length).collect::<Vec<_>>(), lengths, "{version}");
    }
}

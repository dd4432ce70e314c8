//! Records of what a program does: each kind, in the layouts of the versions.

use support::pti_client::*;
use support::xpu;
use support::xpu::{MemoryKind, Queue, WaitKind};

/// Work of each kind on two queues of two devices.
fn program(session: &Session) -> [Queue; 2] {
    let xpu = session.xpu;
    let queues = [xpu.queue(0), xpu.queue(1)];
    xpu.submit_at(queues[0], "gemm_us200", "gemm.cpp", 7);
    xpu.memcpy(queues[0], MemoryKind::Pageable, MemoryKind::Device, 1 << 20);
    xpu.memset(queues[1], 0x5a, 4096);
    xpu.memcpy_peer(queues[0], 1, 1 << 16);
    xpu.wait(queues[0], WaitKind::Queue);
    xpu.wait(queues[1], WaitKind::Event);
    queues
}

fn one(rows: &[Row], kind: u32) -> &Row {
    let mut of_kind = rows.iter().filter(|row| row.kind == kind);
    let row = of_kind.next().unwrap_or_else(|| panic!("no record of kind {kind}"));
    assert!(of_kind.next().is_none(), "more records of kind {kind}");
    row
}

fn rows(session: &Session) -> Vec<Row> {
    assert_eq!(session.pti.flush(), 0);
    let (rows, ends) = session.pti.rows();
    assert!(ends.iter().all(|end| *end == 1), "{ends:?}");
    rows
}

#[test]
fn a_kernel_says_where_and_when_it_ran() {
    let session = session("devices=2");
    let before = session.pti.now();
    let queues = program(&session);
    let after = session.pti.now();
    let rows = rows(&session);
    let kernel = one(&rows, KERNEL);
    assert_eq!(
        (kernel.u64(8), kernel.text(24), kernel.text(32)),
        (queues[0].0, "gemm_us200".into(), "gemm.cpp".into())
    );
    assert_eq!((kernel.u64(40), kernel.bytes(64, 4)), (7, &b"0:3a"[..]));
    let times: Vec<u64> = [128, 136, 96, 120, 104, 112].map(|offset| kernel.u64(offset)).into();
    assert!(before <= times[0] && times.is_sorted() && *times.last().unwrap() <= after, "{before} {times:?} {after}");
    let duration = kernel.u64(112) - kernel.u64(104);
    assert_eq!(duration, 200_000);
    assert_eq!((kernel.u32(176), kernel.u32(180)), (0, 0), "the first engine");
    assert_ne!(kernel.u64(168), 0, "a handle of the device");
}

#[test]
fn copies_and_fills_say_what_they_moved() {
    let session = session("devices=2");
    program(&session);
    let rows = rows(&session);
    let copy = one(&rows, MEMCPY);
    assert_eq!([4, 8, 12].map(|offset| copy.u32(offset)), [2, 0, 2]);
    assert_eq!((copy.text(32), copy.u64(120)), ("zeCommandListAppendMemoryCopy(M2D)".into(), 1 << 20));
    assert_eq!(copy.u64(104) - copy.u64(96), (1 << 20) / 25);
    let peer = one(&rows, PEER);
    assert_eq!((peer.text(32), peer.u64(152)), ("zeCommandListAppendMemoryCopy(D2D - P2P)".into(), 1 << 16));
    assert_eq!((peer.bytes(72, 16), peer.u32(4)), (copy.bytes(56, 16), 10));
    let fill = one(&rows, MEMSET);
    assert_eq!((fill.u32(4), fill.u64(112), fill.u64(120)), (2, 4096, 0x5a));
    assert_eq!(fill.bytes(48, 16), peer.bytes(88, 16), "the second device");
    let ids = [one(&rows, KERNEL).u64(48), copy.u64(72), fill.u64(64), peer.u64(104)];
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    let queues = [one(&rows, KERNEL).u64(152), copy.u64(128), peer.u64(160), fill.u64(128)];
    assert!(queues[..3].iter().all(|queue| *queue == queues[0]) && queues[3] == queues[0] + 1, "{queues:?}");
}

#[test]
fn work_and_the_calls_that_gave_it_share_an_id() {
    let session = session("devices=2");
    program(&session);
    let rows = rows(&session);
    let calls = |kind: u32, name: &str| -> Vec<u32> {
        let of_kind = rows.iter().filter(|row| row.kind == kind);
        let named = of_kind.filter(|row| session.pti.name(row.u32(24), row.u32(28)).as_deref() == Some(name));
        named.map(|row| row.u32(40)).collect()
    };
    for (work, at, sycl, driver) in [
        (KERNEL, 56, "urEnqueueKernelLaunch", "zeCommandListAppendLaunchKernel"),
        (MEMSET, 72, "urEnqueueUSMFill", "zeCommandListAppendMemoryFill"),
    ] {
        let id = one(&rows, work).u32(at);
        assert_eq!((calls(RUNTIME_API, sycl), calls(DRIVER_API, driver)), (vec![id], vec![id]));
    }
    let copies = [one(&rows, MEMCPY).u32(80), one(&rows, PEER).u32(112)];
    assert_eq!(calls(RUNTIME_API, "urEnqueueUSMMemcpy"), copies);
    let waits: Vec<_> = rows.iter().filter(|row| row.kind == SYNC).collect();
    assert_eq!(waits.iter().map(|wait| wait.u32(4)).collect::<Vec<_>>(), [6, 4]);
    assert_eq!(calls(DRIVER_API, "zeCommandQueueSynchronize"), [waits[0].u32(52)]);
    assert_eq!(calls(DRIVER_API, "zeEventHostSynchronize"), [waits[1].u32(52)]);
    assert!(waits[1].u64(24) != 0 && waits[1].u32(56) == 1 && waits[0].u64(24) == 0);
}

#[test]
fn external_ids_precede_the_call_inside_them() {
    let session = session_of("", &[KERNEL, RUNTIME_API, EXTERNAL]);
    let queue = session.xpu.queue(0);
    let pti = session.pti;
    assert_eq!((pti.push(2, 10), pti.push(2, 11), pti.push(3, 20)), (0, 0, 0));
    session.xpu.submit(queue, "inside");
    assert_eq!((pti.pop(2), pti.pop(3), pti.pop(3).0), ((0, 11), (0, 20), 5));
    session.xpu.submit(queue, "outer");
    assert_eq!(pti.pop(2), (0, 10));
    session.xpu.submit(queue, "outside");
    session.xpu.wait(queue, WaitKind::Device);
    let rows = rows(&session);
    let kernels: Vec<_> = rows.iter().filter(|row| row.kind == KERNEL).map(|row| (row.text(24), row.u32(56))).collect();
    let ids = |kernel: &str| -> Vec<_> {
        let (_, correlation) = kernels.iter().find(|(name, _)| name == kernel).unwrap();
        let of = rows.iter().filter(|row| row.kind == EXTERNAL && row.u32(4) == *correlation);
        of.map(|row| (row.u32(16), row.u64(8))).collect()
    };
    assert_eq!((ids("inside"), ids("outer"), ids("outside")), (vec![(2, 11), (3, 20)], vec![(2, 10)], vec![]));
    assert_eq!(xpu::count("push_depth"), 0);
}

#[test]
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

#[test]
fn collectives_and_barriers_are_recorded() {
    for (version, communicator, name) in [("0.17", 40, 48), ("1.2", 48, 56)] {
        let session = session(&format!("pti={version}"));
        let queue = session.xpu.queue(0);
        session.xpu.collective("allreduce", 77, 100);
        session.xpu.barrier(queue);
        session.xpu.wait(queue, WaitKind::Fence);
        let rows = rows(&session);
        let collective = one(&rows, COMMS);
        assert_eq!((collective.u64(communicator), collective.text(name)), (77, "allreduce".to_owned()));
        assert!(collective.u64(16) - collective.u64(8) >= 100_000);
        assert_eq!(collective.u32(24), std::process::id());
        let syncs: Vec<_> = rows.iter().filter(|row| row.kind == SYNC).map(|row| row.u32(4)).collect();
        assert_eq!(syncs, [1, 3]);
        assert_eq!(one(&rows, OVERHEAD).u32(48), 5);
    }
}

#[test]
fn a_program_on_level_zero_alone_has_no_queue_of_sycls() {
    let session = session("");
    let queue = session.xpu.driver_queue(0);
    session.xpu.submit(queue, "alone");
    session.xpu.wait(queue, WaitKind::Queue);
    let rows = rows(&session);
    let kernel = one(&rows, KERNEL);
    assert_eq!((kernel.u64(152), kernel.u64(128), kernel.u32(160)), (u64::MAX - 1, 0, 0));
    assert!(rows.iter().all(|row| row.kind != RUNTIME_API));
}

#[test]
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

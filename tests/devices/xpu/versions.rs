//! Versions of PTI, whose record layouts differ: each records the same.

use std::collections::BTreeMap;
use support::gpu::{events, in_child, interval, name, under};
use support::intel::Counts;
use support::virtual_time;
use support::xpu::{MemoryKind, WaitKind, Xpu};
use support::{gpu, intel, name_of, xpu};
use tracing::info_span;
use tracing_kineto::integration::Why;

/// Supported versions (2.0 does not exist yet), and whether they record collectives.
const VERSIONS: [(&str, bool); 10] = [
    ("0.12", false),
    ("0.13", false),
    ("0.14", false),
    ("0.15", false),
    ("0.16", false),
    ("0.17", true),
    ("1.0", true),
    ("1.1", true),
    ("1.2", true),
    ("2.0", true),
];

#[test]
fn each_version_records_the_same() {
    for (version, collects) in VERSIONS {
        let collects = if collects { "1" } else { "0" };
        in_child(
            name_of(child_with_a_version),
            &[("SIM_XPU", &format!("devices=2,pti={version}")), ("COLLECTS", collects)],
        );
    }
}

#[test]
#[ignore = "run by another test"]
#[expect(clippy::disallowed_methods, reason = "the parent test passes the expectation")]
fn child_with_a_version() {
    let collects = std::env::var("COLLECTS").unwrap() == "1";
    xpu::pti();
    let xpu = Xpu::new();
    let queue = xpu.queue(0);
    let file = intel::record(|| {
        info_span!("gemm").in_scope(|| xpu.submit_at(queue, "gemm_us100", "gemm.cpp", 7));
        info_span!("copy").in_scope(|| xpu.memcpy(queue, MemoryKind::Pinned, MemoryKind::Device, 1 << 16));
        info_span!("peer").in_scope(|| xpu.memcpy_peer(queue, 1, 1 << 17));
        info_span!("fill").in_scope(|| xpu.memset(queue, 3, 512));
        xpu.collective("broadcast", 5, 10);
        xpu.wait(queue, WaitKind::Event);
    });
    let expected = Counts {
        runtime: 4,
        driver: 5,
        kernels: 1,
        copies: 2,
        fills: 1,
        linked: 4,
        starts: 4,
        ends: 4,
        annotations: 0,
        waits: 1,
        collectives: usize::from(collects),
    };
    assert_eq!(Counts::of(&file), expected, "{}", file.trace.stats());
    assert!(file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
    let rows: BTreeMap<_, _> = gpu::work(&file).into_iter().map(|row| (under(&file, row), row)).collect();
    let [kernel, copy, peer, fill] = ["gemm", "copy", "peer", "fill"].map(|span| rows[span]);
    assert_eq!((name(kernel), interval(kernel).1 - interval(kernel).0), ("gemm_us100", 100_000));
    assert_eq!(
        (&kernel["args"]["source_file_name"], &kernel["args"]["source_line_number"]),
        (&"gemm.cpp".into(), &7.into())
    );
    assert_eq!([copy, peer, fill].map(|row| row["args"]["bytes"].as_u64()), [Some(1 << 16), Some(1 << 17), Some(512)]);
    assert_eq!(["fromDevice", "toDevice"].map(|key| peer["args"][key].as_u64()), [Some(0), Some(1)]);
    assert_eq!((name(copy), name(fill)), ("Memcpy H2D (Host (Driver Allocated) -> Device)", "Memset (3 -> Device)"));
    let lanes: Vec<_> = [kernel, copy, peer, fill].map(|row| row["args"]["sycl queue"].as_u64()).into();
    assert!(lanes.iter().all(|lane| *lane == Some(0)), "{lanes:?}");
    if let Some(collective) = events(&file, "X", "collective_comm").first() {
        assert_eq!((name(collective), &collective["args"]["Communicator_id"]), ("xccl::broadcast", &5.into()));
    }
    let notes = intel::report(&file).notes;
    assert_eq!(notes.iter().any(|note| note.starts_with("collective_comm is not recorded")), !collects, "{notes:?}");
}

#[virtual_time]
fn versions_before_0_12_are_refused() {
    for version in ["0.10", "0.11"] {
        in_child(name_of(child_with_an_old_version), &[("SIM_XPU", &format!("pti={version}"))]);
    }
}

#[test]
#[ignore = "run by another test"]
fn child_with_an_old_version() {
    xpu::pti();
    let file = intel::record(|| info_span!("step").in_scope(|| ()));
    let reason = intel::reason(&file);
    assert_eq!((reason.why(), file.slices().len()), (Why::Incompatible, 1), "{reason}");
    assert!(reason.message().contains("0.12") && !reason.advice().is_empty(), "{reason}");
    assert_eq!(xpu::count("enables"), 0);
}

// Shows the key DISABLE_XPU.
#[virtual_time]
fn xpu_can_be_disabled() {
    in_child(name_of(child_without_intel), &[("KINETO_DISABLE_XPU", "1")]);
}

#[test]
#[ignore = "run by another test"]
fn child_without_intel() {
    let xpu = Xpu::with("");
    let queue = xpu.queue(0);
    let inits = xpu::count("inits");
    let file = intel::record(|| info_span!("step").in_scope(|| xpu.submit(queue, "unseen")));
    assert_eq!((file.slices().len(), Counts::of(&file)), (1, Counts::default()));
    assert_eq!(intel::reason(&file).why(), Why::Disabled);
    assert!(intel::reason(&file).message().contains("DISABLE_XPU"), "{}", intel::reason(&file));
    assert_eq!(["enables", "requested_buffers", "pushes"].map(xpu::count), [0; 3]);
    assert_eq!(xpu::count("inits"), inits, "Level Zero is not initialized");
}

#[virtual_time]
fn recording_may_start_before_the_first_call() {
    in_child(name_of(child_that_starts_early), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_starts_early() {
    xpu::pti();
    let file = intel::record(|| {
        let xpu = Xpu::new();
        let queue = xpu.queue(0);
        info_span!("first").in_scope(|| xpu.submit(queue, "first"));
        xpu.wait(queue, WaitKind::Queue);
    });
    let found = Counts::of(&file);
    assert_eq!((found.kernels, found.linked, found.starts), (1, 1, 1), "{}", file.trace.stats());
    assert_eq!(xpu::count("synchronizes"), 1);
}

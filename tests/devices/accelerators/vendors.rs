//! One program on any accelerator: each vendor alone, and several at once, in the same binary.
//!
//! HIP accepts a profiler once in a process, so each run is a child process: this test, started again. The traces stay in
//! `target/vendors` for inspection.
#![allow(unsafe_code, reason = "the tests call simulated vendors' functions by name")]

use libloading::{Library, Symbol};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::cuda::Cuda;
use support::rocm::Hip;
use support::xpu::Xpu;
use support::{File, child, cuda, name_of, plugins, xpu};
use tracing::{info_span, subscriber};
use tracing_kineto::{ActivityType, ActivityTypes, Devices, KinetoLayer, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// An accelerator: its collector's name, and the rows of each step.
struct Vendor {
    name: &'static str,
    collector: &'static str,
    /// The category of the calls that launch work.
    calls: &'static str,
    /// The number of rows of each category of work.
    work: &'static [(&'static str, usize)],
}

const VENDORS: [Vendor; 6] = [
    vendor("cuda", "cupti", "cuda_driver", &[("kernel", 3), ("gpu_memcpy", 2), ("gpu_memset", 1)]),
    vendor("rocm7", "rocm", "cuda_runtime", &[("kernel", 3), ("gpu_memcpy", 2), ("gpu_memset", 1)]),
    vendor("rocm6", "rocm", "cuda_runtime", &[("kernel", 3), ("gpu_memcpy", 2), ("gpu_memset", 1)]),
    vendor("xpu", "xpu", "xpu_runtime", &[("kernel", 3), ("gpu_memcpy", 2), ("gpu_memset", 1)]),
    vendor("mtia", "mtia", "mtia_runtime", &[("mtia_ccp_events", 3)]),
    vendor("privateuse1", "aiu", "privateuse1_runtime", &[("kernel", 3), ("gpu_memcpy", 1)]),
];

const fn vendor(
    name: &'static str,
    collector: &'static str,
    calls: &'static str,
    work: &'static [(&'static str, usize)],
) -> Vendor {
    Vendor { name, collector, calls, work }
}

/// The variable that names a child's vendors.
const VENDORS_VARIABLE: &str = "TEST_VENDORS";

#[test]
#[allow(clippy::disallowed_methods, reason = "a child process has another environment")]
fn each_vendor_alone_and_several_at_once() {
    if let Ok(names) = std::env::var(VENDORS_VARIABLE) {
        return run(&names);
    }
    let mut table =
        String::from("| accelerator | rows of work | linked | arrows | annotations |\n|---|---|---|---|---|\n");
    let alone = VENDORS.map(|vendor| vendor.name);
    for names in alone.into_iter().chain(["cuda+mtia", "cuda+xpu", "rocm7+cuda", "cuda+rocm7+xpu+mtia+privateuse1"]) {
        let mut own = child::command(name_of(each_vendor_alone_and_several_at_once));
        let output = own.env(VENDORS_VARIABLE, names).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{names}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let row = text.lines().find_map(|line| line.find("| ").map(|at| &line[at..]));
        writeln!(table, "{}", row.unwrap()).unwrap();
    }
    std::fs::write(folder().join("vendors.md"), &table).unwrap();
    print(&table);
}

/// Returns the folder of the traces.
fn folder() -> PathBuf {
    let folder = support::target().join("vendors");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[expect(clippy::print_stdout, reason = "prints a table with --nocapture")]
fn print(text: &str) {
    println!("{text}");
}

/// Records a program that uses those accelerators, and checks the trace.
fn run(names: &str) {
    let vendors: Vec<_> = VENDORS.iter().filter(|vendor| names.split('+').any(|name| name == vendor.name)).collect();
    let libraries = tempfile::tempdir().unwrap();
    // HTA computes the critical path of each step, and recognizes launches by the names of CUDA and HIP alone.
    let has_known_names = vendors.iter().all(|vendor| ["cuda", "rocm7", "rocm6"].contains(&vendor.name));
    let step = if has_known_names { "ProfilerStep#1" } else { "step" };
    // Libraries are loaded before the collectors search for them, as in a program linked to them.
    let programs: Vec<_> = vendors.iter().map(|vendor| program(vendor.name, libraries.path())).collect();
    let (layer, guard) = KinetoLayer::builder()
        .devices(Devices::new().plugins(libraries.path()))
        // PTI's overhead rows have arguments, which the schema of Kineto's CUDA traces does not allow.
        .activities(ActivityTypes::ALL.without(ActivityType::Overhead))
        .no_output()
        .flush_timeout(Duration::from_secs(30))
        .build()
        .unwrap();
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let uses: Vec<_> = programs.into_iter().map(|start| start()).collect();
        let _step = annotate!("{step}").entered();
        // Fields named like device arguments, by which HTA would take the span for a kernel or a launch.
        let forward =
            || info_span!("forward", stream = 7, correlation = 1, device = "gpu", bytes = "2 MB", context = "main");
        uses.into_iter().for_each(|work| forward().in_scope(work));
    });
    let file = File::of(guard.finish().unwrap());
    let stats = file.trace.stats();
    assert_eq!(stats.losses, [], "{stats}");
    for vendor in &vendors {
        let report = stats.collectors.iter().find(|report| report.name == vendor.collector).unwrap();
        assert!(report.state.is_ok(), "{report}");
        assert!(!rows(&file, "X", vendor.calls).is_empty(), "{}", vendor.calls);
    }
    let (work, linked) = check_work(&file, &vendors);
    let (starts, ends) = (arrows(&file, "s"), arrows(&file, "f"));
    assert_eq!(starts.iter().collect::<BTreeSet<_>>(), ends.iter().collect::<BTreeSet<_>>(), "each arrow has two ends");
    let annotations = rows(&file, "X", "gpu_user_annotation");
    assert!(annotations.iter().all(|row| row["name"] == step));
    // One for each stream of each device.
    let places = |cat: &str| -> BTreeSet<_> {
        rows(&file, "X", cat).iter().map(|row| (row["pid"].to_string(), row["tid"].to_string())).collect()
    };
    let worked: BTreeSet<_> = vendors.iter().flat_map(|vendor| vendor.work).flat_map(|(cat, _)| places(cat)).collect();
    assert_eq!(places("gpu_user_annotation"), worked);
    assert_eq!(worked.iter().map(|(device, _)| device).collect::<BTreeSet<_>>().len(), vendors.len());
    for end in ["pt.trace.json", "pftrace"] {
        file.trace.save(folder().join(format!("{names}.{end}"))).unwrap();
    }
    let (arrows, annotations) = (ends.len(), annotations.len());
    print(&format!("| {names} | {work} | {linked} | {arrows} | {annotations} |"));
}

/// Checks the devices' work; returns the number of work rows, and of linked ones.
fn check_work(file: &File, vendors: &[&Vendor]) -> (usize, usize) {
    let spans = rows(file, "X", "cpu_op");
    let spans: BTreeSet<_> = spans.iter().map(|row| row["args"]["External id"].to_string()).collect();
    let mut expected: BTreeMap<&str, usize> = BTreeMap::new();
    for (cat, count) in vendors.iter().flat_map(|vendor| vendor.work) {
        *expected.entry(cat).or_default() += count;
    }
    let mut counts = (0, 0);
    for (cat, expected) in expected {
        let work = rows(file, "X", cat);
        assert_eq!(work.len(), expected, "{cat}");
        let linked = work.iter().filter(|row| spans.contains(&row["args"]["External id"].to_string())).count();
        assert_eq!(linked, work.len(), "all work belongs to a span: {cat}");
        counts = (counts.0 + work.len(), counts.1 + linked);
    }
    counts
}

fn rows<'f>(file: &'f File, ph: &str, cat: &str) -> Vec<&'f Value> {
    file.events().filter(|row| row["ph"] == ph && row["cat"] == cat).collect()
}

fn arrows(file: &File, ph: &str) -> Vec<String> {
    rows(file, ph, "ac2g").iter().map(|row| row["id"].to_string()).collect()
}

/// The simulated device's name.
const AMD: &str = "name=Simulated AMD GPU";

/// A program's setup, which returns the body of a step.
type Start = Box<dyn FnOnce() -> Box<dyn FnOnce()>>;

/// Returns a program for a vendor, whose libraries are loaded or lie in a folder.
fn program(name: &str, folder: &Path) -> Start {
    match name {
        "cuda" => {
            cuda::cupti();
            Box::new(|| Box::new(use_cuda(Cuda::with(""))))
        }
        "rocm7" => with_hip(Hip::with_sdk(AMD)),
        "rocm6" => with_hip(Hip::with_tracer(AMD)),
        "xpu" => {
            let xpu = Xpu::with("");
            Box::new(move || Box::new(move || use_xpu(xpu)))
        }
        "mtia" => {
            let library = folder.join("mtia.so");
            std::os::unix::fs::symlink(cuda::library("kineto_plugin_mtia"), &library).unwrap();
            Box::new(move || Box::new(move || use_mtia(&loaded(&library))))
        }
        _ => {
            let library = plugins::compile("examples/plugins/aiu.c", folder, "aiu", &[]);
            Box::new(move || Box::new(move || use_aiu(&loaded(&library))))
        }
    }
}

fn use_cuda(cuda: Cuda) -> impl FnOnce() {
    let (stream, kernel, memory) = (cuda.stream(), cuda.only_kernel("add"), cuda.allocate(1 << 16));
    move || {
        cuda.memset(memory, 0, stream);
        cuda.memcpy_htod(memory, &[1; 1 << 16], stream);
        (0..3).for_each(|_| cuda.launch(kernel, 64, stream));
        cuda.memcpy_dtoh(&mut [0; 1 << 16], memory, stream);
        cuda.synchronize_stream(stream);
    }
}

fn with_hip(hip: Hip) -> Start {
    Box::new(move || {
        hip.init();
        let (stream, kernel, memory) = (hip.stream(), hip.only_kernel("_Z3addPf"), hip.allocate(1 << 16));
        Box::new(move || {
            hip.memset(memory, 0, stream);
            hip.memcpy_htod(memory, &[1; 1 << 16], stream);
            (0..3).for_each(|_| hip.launch(kernel, 64, stream));
            hip.memcpy_dtoh(&mut [0; 1 << 16], memory, stream);
            hip.synchronize_stream(stream);
        })
    })
}

fn use_xpu(xpu: Xpu) {
    let queue = xpu.queue(0);
    xpu.memset(queue, 0, 1 << 16);
    xpu.memcpy(queue, xpu::MemoryKind::Pageable, xpu::MemoryKind::Device, 1 << 16);
    (0..3).for_each(|_| xpu.submit(queue, "add"));
    xpu.memcpy(queue, xpu::MemoryKind::Device, xpu::MemoryKind::Pageable, 1 << 16);
    xpu.wait(queue, xpu::WaitKind::Queue);
}

/// Opens a library that the host has already loaded.
fn loaded(library: &Path) -> Library {
    // SAFETY: the library is already loaded, so no initialisers run.
    unsafe { Library::new(library) }.unwrap()
}

fn use_mtia(library: &Library) {
    // SAFETY: the library's function of that name has this type.
    let run: Symbol<'_, unsafe extern "C" fn(*const c_char, c_int)> =
        unsafe { library.get(c"mtiaRunFunction") }.unwrap();
    for stream in [104, 108, 104] {
        // SAFETY: the name is a C string.
        unsafe { run(c"fused_fc".as_ptr(), stream) };
    }
    std::thread::sleep(Duration::from_millis(1));
}

fn use_aiu(library: &Library) {
    // SAFETY: the library's function of that name has this type.
    let launch: Symbol<'_, unsafe extern "C" fn(*const c_char, c_int)> = unsafe { library.get(c"aiuLaunch") }.unwrap();
    // SAFETY: the library's function of that name has this type.
    let copy: Symbol<'_, unsafe extern "C" fn(usize, c_int)> = unsafe { library.get(c"aiuCopy") }.unwrap();
    // SAFETY: the library's function of that name has this type.
    let wait: Symbol<'_, unsafe extern "C" fn()> = unsafe { library.get(c"aiuSynchronize") }.unwrap();
    // SAFETY: the function accepts any number.
    unsafe { copy(1 << 20, 0) };
    for queue in [0, 1, 0] {
        // SAFETY: the name is a C string.
        unsafe { launch(c"matmul".as_ptr(), queue) };
    }
    // SAFETY: the function only waits for the running queues.
    unsafe { wait() };
}

//! NVIDIA's own profiler host: metrics and passes of a chip, and the values of an image that an H200 recorded.

use crate::child::{self, say};
use crate::report;
use crate::wheel;
use libloading::Library;
use std::ffi::CString;
use std::process::Command;
use support::harness::Test;

pub(crate) const TESTS: &[Test] = &[
    ("passes_of_metrics_are_counted_without_a_gpu", count_passes),
    ("passes_are_those_of_each_chip", count_passes_of_chips),
    ("recorded_image_has_the_values_of_the_gpu", evaluate_recorded_image),
];

/// Versions whose host works without a driver; later ones crash or return errors.
const WITHOUT_DRIVER: [&str; 4] = ["12.6", "12.9", "13.0", "13.1"];
const CHIP: &str = "GH100";
/// The chips whose passes are compared. 12.6 does not know the last two.
const CHIPS: [&str; 7] = ["TU102", "GA100", "GA102", "AD102", "GH100", "GB100", "GB202"];
const RANGES: u64 = 0;
const PM_SAMPLING: u64 = 1;
/// The sets of metrics whose passes are counted on each chip, with the profiler.
const SETS: [(u64, &[&str]); 4] = [
    (
        PM_SAMPLING,
        &[
            "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        ],
    ),
    (PM_SAMPLING, &["dram__bytes_read.sum", "dram__bytes_write.sum", "sm__inst_executed_pipe_tensor.sum"]),
    (
        RANGES,
        &[
            "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum",
            "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
            "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum",
            "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
            "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
            "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
            "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum",
            "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum",
            "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum",
        ],
    ),
    // Those of the runner for real GPUs.
    (RANGES, &["sm__inst_executed.sum", "sm__cycles_active.avg"]),
];

/// Calls a function with its parameters, words after their size and a null pointer; returns its code and all words.
fn call(library: &Library, name: &str, size: u64, fields: &[u64]) -> (u32, Vec<u64>) {
    let mut words: Vec<u64> = [size, 0].iter().chain(fields).copied().collect();
    // SAFETY: all these functions take a pointer to their parameters and return a code.
    let function = unsafe { library.get::<extern "C" fn(*mut u64) -> u32>(name.as_bytes()) }.unwrap();
    let code = function(words.as_mut_ptr());
    (code, words)
}

/// Returns a host object of a chip for a profiler; the code if the library does not know the chip.
fn new_host(library: &Library, profiler: u64, chip: &str) -> Result<u64, u32> {
    let chip = CString::new(chip).unwrap();
    let fields = [profiler, chip.as_ptr().addr() as u64, 0, 0];
    let (code, words) = call(library, "cuptiProfilerHostInitialize", 48, &fields);
    if code == 0 { Ok(words[5]) } else { Err(code) }
}

/// Texts, and their addresses.
struct Names(Vec<CString>, Vec<u64>);

fn names(names: &[&str]) -> Names {
    let texts: Vec<_> = names.iter().map(|name| CString::new(*name).unwrap()).collect();
    let addresses = texts.iter().map(|text| text.as_ptr().addr() as u64).collect();
    Names(texts, addresses)
}

/// Adds metrics; returns the code, and the configuration image.
fn configure(library: &Library, host: u64, metrics: &[&str]) -> Result<Vec<u8>, u32> {
    let names = names(metrics);
    let added = [host, names.1.as_ptr().addr() as u64, names.0.len() as u64];
    let done = |(code, words): (u32, Vec<u64>)| if code == 0 { Ok(words) } else { Err(code) };
    done(call(library, "cuptiProfilerHostConfigAddMetrics", 40, &added))?;
    let size = done(call(library, "cuptiProfilerHostGetConfigImageSize", 32, &[host, 0]))?[3];
    let mut image = vec![0_u8; usize::try_from(size).unwrap()];
    let place = [host, size, image.as_mut_ptr().expose_provenance() as u64];
    done(call(library, "cuptiProfilerHostGetConfigImage", 40, &place)).map(|_| image)
}

/// Prints how many metrics the chip has, the size of the configuration of these, and their passes.
pub(crate) fn print_passes(_metrics: &Library, library: &Library, metrics: &[&str]) {
    let host = new_host(library, PM_SAMPLING, CHIP).unwrap();
    let counts = [0, 1, 2].map(|kind| call(library, "cuptiProfilerHostGetBaseMetrics", 48, &[host, kind, 0, 0]).1[5]);
    say(&counts.iter().sum::<u64>().to_string());
    match configure(library, host, metrics) {
        Ok(image) => {
            let (code, passes) = read_passes(library, &image);
            say(&format!("{code} {} {passes}", image.len()));
        }
        Err(code) => say(&format!("refused {code}")),
    }
}

/// Returns the code, and the number of passes of a configuration.
fn read_passes(library: &Library, image: &[u8]) -> (u32, u64) {
    let fields = [image.len() as u64, image.as_ptr().addr() as u64, 0];
    let (code, words) = call(library, "cuptiProfilerHostGetNumOfPasses", 40, &fields);
    (code, words[4])
}

/// Prints the passes of each set of metrics, chip by chip: "unknown" without the chip, "refused" without a metric.
pub(crate) fn print_chips(_metrics: &Library, library: &Library, chips: &[&str]) {
    for chip in chips {
        let passes = |(profiler, metrics): (u64, &[&str])| {
            let Ok(host) = new_host(library, profiler, chip) else { return "unknown".to_owned() };
            match configure(library, host, metrics) {
                Ok(image) => match read_passes(library, &image) {
                    (0, passes) => passes.to_string(),
                    (code, _) => format!("failed {code}"),
                },
                Err(_) => "refused".to_owned(),
            }
        };
        say(&SETS.map(passes).join(" "));
    }
}

/// Prints the values of each complete sample of an image.
pub(crate) fn evaluate(_metrics: &Library, library: &Library, image: &[u8], metrics: &[&str]) {
    let (host, names) = (new_host(library, PM_SAMPLING, CHIP).unwrap(), names(metrics));
    let (place, size) = (image.as_ptr().expose_provenance() as u64, image.len() as u64);
    let (code, info) = call(library, "cuptiPmSamplingGetCounterDataInfo", 56, &[place, size, 0, 0, 0]);
    assert_eq!(code, 0);
    for sample in 0..info[6] {
        let mut values = vec![0.0_f64; metrics.len()];
        let count = metrics.len() as u64;
        let fields = [
            host,
            place,
            size,
            sample,
            names.1.as_ptr().addr() as u64,
            count,
            values.as_mut_ptr().expose_provenance() as u64,
        ];
        assert_eq!(call(library, "cuptiProfilerHostEvaluateToGpuValues", 72, &fields).0, 0);
        say(&values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
}

/// Runs a scenario with each library that works without a driver and has its metrics.
fn with_each(act: impl Fn(&str, &[&str])) {
    if wheel::has_driver() {
        return;
    }
    for wheel in wheel::all().iter().filter(|wheel| WITHOUT_DRIVER.contains(&&*wheel.version)) {
        let metrics = wheel.metrics.as_ref().expect("run scripts/wheels.sh again: libnvperf_host.so is missing");
        act(&wheel.version, &[wheel.library.to_str().unwrap(), metrics.to_str().unwrap()]);
    }
}

fn count_passes() {
    let rows = std::cell::RefCell::new(Vec::new());
    with_each(|version, libraries| {
        let passes = |metrics: &[&str]| {
            let found = child::start("passes", &[libraries, metrics].concat());
            assert_eq!(found.end, "exit 0", "{version}");
            found.lines
        };
        let usual = passes(&[
            "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        ]);
        assert!(usual[0].parse::<u64>().unwrap() > 1000, "{version} {usual:?}");
        assert!(usual[1].starts_with("0 ") && usual[1].ends_with(" 1"), "{version} {usual:?}");
        let two = passes(&["dram__bytes_read.sum", "dram__bytes_write.sum", "sm__inst_executed_pipe_tensor.sum"]);
        let is_known = version != "12.6";
        assert_eq!(two[1].starts_with("0 ") && two[1].ends_with(" 2"), is_known, "{version} {two:?}");
        for refused in ["sm__cycles_active", "sm__cycle_active.avg"] {
            assert_eq!(passes(&[refused])[1], "refused 1", "{version} {refused}");
        }
        rows.borrow_mut().push(vec![version.to_owned(), usual[0].clone(), usual[1].clone(), two[1].clone()]);
    });
    let columns = ["libcupti", "metrics of GH100", "two metrics: code, bytes, passes", "three: code, bytes, passes"];
    report::table("Metrics without a GPU", &columns, &rows.into_inner());
}

/// The passes of the sets on each chip that a version knows.
const PASSES: [[&str; 4]; 7] = [
    ["2", "2", "1", "1"],
    ["1", "2", "1", "1"],
    ["1", "1", "1", "1"],
    ["1", "1", "1", "1"],
    ["1", "2", "1", "1"],
    ["1", "1", "1", "1"],
    ["1", "refused", "1", "1"],
];

fn count_passes_of_chips() {
    let rows = std::cell::RefCell::new(Vec::new());
    with_each(|version, libraries| {
        let found = child::start("chips", &[libraries, &CHIPS].concat());
        assert_eq!(found.end, "exit 0", "{version}");
        let mut known = 0;
        for ((chip, line), expected) in CHIPS.iter().zip(&found.lines).zip(PASSES) {
            let passes: Vec<_> = line.split(' ').collect();
            if passes[0] != "unknown" {
                // Its sampling has no bytes of DRAM.
                let second = if version == "12.6" { "refused" } else { expected[1] };
                assert_eq!(passes, [expected[0], second, expected[2], expected[3]], "{version} {chip}");
                known += 1;
            }
            rows.borrow_mut().push([&[version, chip][..], &passes].concat().into_iter().map(str::to_owned).collect());
        }
        assert_eq!(known, if version == "12.6" { 5 } else { CHIPS.len() }, "{version}");
    });
    let columns =
        ["libcupti", "chip", "SMs and DRAM, sampled", "bytes and tensor, sampled", "FLOPs, ranges", "runner's"];
    report::table("Passes without a GPU", &columns, &rows.into_inner());
}

fn evaluate_recorded_image() {
    let recorded = support::root().join("tests/data/h200");
    let text = std::fs::read_to_string(recorded.join("pm.txt")).unwrap();
    let metrics = text.lines().find_map(|line| line.strip_prefix("metrics: ")).unwrap();
    let metrics: Vec<_> = metrics.split(' ').collect();
    // Index, start, end, then the values.
    let is_sample = |line: &&str| line.starts_with(|first: char| first.is_ascii_digit());
    let values = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        words[3..3 + metrics.len()].iter().map(|value| value.parse::<f64>().unwrap()).collect::<Vec<_>>()
    };
    let expected: Vec<_> = text.lines().filter(is_sample).map(values).collect();
    assert_eq!(expected.len(), 64);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("pm.img");
    let unpacked = Command::new("gzip").arg("-dc").arg(recorded.join("pm.img.gz")).output().unwrap();
    std::fs::write(&image, unpacked.stdout).unwrap();
    with_each(|version, libraries| {
        // Before the version that recorded it, a throughput has other parts.
        if version.starts_with("12.") {
            return;
        }
        let arguments = [libraries, &[image.to_str().unwrap()], &metrics].concat();
        let found = child::start("evaluate", &arguments);
        assert_eq!(found.end, "exit 0", "{version}");
        let parse = |line: &String| line.split(' ').map(|value| value.parse::<f64>().unwrap()).collect::<Vec<_>>();
        let values: Vec<_> = found.lines.iter().map(parse).collect();
        assert_eq!(values.len(), expected.len(), "{version}");
        for (found, expected) in values.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() <= expected.abs() * 1e-12, "{version}: {found} {expected}");
        }
    });
}

//! Verifies the simulator's buffers: NVIDIA's own walker finds the same records at the same offsets.

use crate::child;
use crate::report;
use crate::wheel::{self, Wheel};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use support::cuda::{self, Stream};
use support::cupti_client::{self, ALL, GRAPH_TRACE, MARKER, MARKER_DATA};
use support::harness::Test;

pub(crate) const TESTS: &[Test] = &[("nvidias_own_walker_finds_the_simulators_records_where_they_are", walk_buffers)];

/// Versions whose walker works without a driver.
const WITHOUT_DRIVER: [&str; 6] = ["11.8", "12.4", "12.6", "12.9", "13.0", "13.1"];

/// The record kinds of NVTX ranges.
const MARKERS: [u32; 2] = [MARKER, MARKER_DATA];

/// Kinds and offsets of records.
type Places = Vec<(u32, usize)>;

/// Records a small program with the simulated CUPTI of a version, in a child; returns the buffer and the offsets that
/// its own walker finds.
pub(crate) fn capture(version: &str) -> (Vec<u8>, Places) {
    let kinds: Vec<_> = ALL.into_iter().filter(|kind| *kind != GRAPH_TRACE).collect();
    let mut bytes = record(&format!("devices=2,nested_driver=1,cupti={version}"), &kinds);
    // A graph is one record or one per node, depending on the setting.
    bytes.extend(record(&format!("cupti={version}"), &[GRAPH_TRACE]));
    // Before 12.0, only one of these kinds can be enabled.
    for kind in MARKERS {
        let _session = cupti_client::session(&format!("cupti={version}"), &[kind]);
        child::make_a_range(&cuda::library("sim_ranges"), &cuda::library("sim_cupti"));
        cupti_client::flush(true);
        bytes.extend(cupti_client::buffers().into_iter().flat_map(|buffer| buffer.bytes));
    }
    cuda::configure(&format!("cupti={version}"));
    let mut at = 0;
    let place = |record: cupti_client::Record| {
        at += record.bytes.len();
        (record.kind(), at - record.bytes.len())
    };
    let places = cupti_client::walk(&bytes, 12).into_iter().map(place).collect();
    (bytes, places)
}

fn record(settings: &str, kinds: &[u32]) -> Vec<u8> {
    let session = cupti_client::session(settings, kinds);
    let cuda = &session.cuda;
    let (stream, other) = (cuda.stream(), cuda.stream());
    let kernel = cuda.only_kernel("vecadd");
    let memory = cuda.allocate(4096);
    let mut back = vec![0; 4096];
    for id in 1..20 {
        assert_eq!(cupti_client::push(3, id), 0);
        cuda.memcpy_htod(memory, &back, stream);
        cuda.memset(memory, 3, stream);
        cuda.launch(kernel, 16, stream);
        cuda.launch_by_runtime(kernel, 16, other);
        let event = cuda.event();
        cuda.record(event, stream);
        cuda.wait(other, event);
        cuda.memcpy_dtoh(&mut back, memory, stream);
        assert_eq!(cupti_client::pop(3), Ok(id));
        cuda.synchronize_stream(stream);
    }
    if settings.contains("devices=2") {
        let (here, there) = (cuda.context(0), cuda.context(1));
        cuda.set_current(there);
        let far = cuda.allocate(4096);
        cuda.set_current(here);
        cuda.memcpy_peer((far, there), (memory, here), Stream::NULL);
    }
    let graph = cuda.graph(stream, || {
        cuda.launch(kernel, 16, stream);
        cuda.launch(kernel, 16, stream);
    });
    cuda.launch_graph(graph, stream);
    cuda.synchronize();
    cupti_client::flush(true);
    cupti_client::buffers().into_iter().flat_map(|buffer| buffer.bytes).collect()
}

/// Returns kinds and offsets of the records that a library finds in a buffer, and its last result.
fn by_library(wheel: &Wheel, buffer: &Path) -> (Places, String) {
    let child = child::start("walk", &[wheel.library.to_str().unwrap(), buffer.to_str().unwrap()]);
    let last = child.lines.last().filter(|line| line.starts_with("end ")).cloned().unwrap_or(child.end);
    (places(&child.lines), last)
}

/// Parses lines of a kind and an offset.
fn places(lines: &[String]) -> Places {
    let numbers = |line: &String| {
        let (kind, at) = line.split_once(' ')?;
        Some((kind.parse().ok()?, at.parse().ok()?))
    };
    lines.iter().filter_map(numbers).collect()
}

fn walk_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let wheels = wheel::all();
    let mut buffers = BTreeMap::new();
    for wheel in &wheels {
        let path = folder.path().join(&wheel.version);
        let child = child::start("capture", &[&wheel.version, path.to_str().unwrap()]);
        assert_eq!(child.end, "exit 0", "{}", wheel.version);
        buffers.insert(wheel.version.clone(), (path, places(&child.lines)));
    }
    let mut rows = Vec::new();
    for wheel in &wheels {
        let version = wheel.version.as_str();
        let (buffer, expected) = &buffers[version];
        let bytes = std::fs::read(buffer).unwrap();
        let kinds: BTreeSet<_> = expected.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds.len(), ALL.len() + MARKERS.len(), "{version}: a record of each kind, not {kinds:?}");
        let (theirs, last) = by_library(wheel, buffer);
        let same = theirs == *expected;
        // Without a driver, the walk continues to the end of the buffer.
        if WITHOUT_DRIVER.contains(&version) || wheel::has_driver() {
            assert!(same && last == "end 12", "{version}: {} of {} records, {last}", theirs.len(), expected.len());
        } else {
            assert!(theirs.is_empty(), "{version}: {theirs:?}");
        }
        // A control: other versions' records must differ, or equality would prove nothing.
        let stranger = if version == "11.8" { "12.4" } else { "11.8" };
        let stranger = wheels.iter().find(|other| other.version == stranger).unwrap();
        let (misread, end) = by_library(stranger, buffer);
        assert_ne!(misread, *expected, "{version} by {}", stranger.version);
        rows.push(vec![
            version.to_owned(),
            bytes.len().to_string(),
            expected.len().to_string(),
            format!("{} ({last})", theirs.len()),
            if same { "yes".to_owned() } else { "its walker needs a driver".to_owned() },
            format!("{}: {} records, then {end}", stranger.version, misread.len()),
        ]);
    }
    let columns =
        ["CUPTI", "bytes", "records", "by NVIDIA's walker", "at the same places", "control: another version's"];
    report::table("NVIDIA's walker over the simulator's buffers", &columns, &rows);
}

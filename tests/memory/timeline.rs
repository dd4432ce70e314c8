//! The memory timeline, its exports, and memory profiles on demand.

use serde_json::{Value, json};
use std::fs;
use std::hint::black_box;
use support::harness::Test;
use tracing::info_span;
use tracing_kineto::memory::{self, Category, Device};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ErrorKind, MemoryAction, MemoryTimeline, TimelineFormat, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("rows_have_the_lifetime_of_each_block", rows_have_the_lifetime_of_each_block),
    ("exports_have_torchs_forms", exports_have_torchs_forms),
    ("export_form_follows_the_file_name", export_form_follows_the_file_name),
    ("page_shows_the_recorded_blocks", page_shows_the_recorded_blocks),
    ("timeline_sums_equal_the_allocators_totals", timeline_sums_equal_the_allocators_totals),
    ("sums_saturate_at_the_largest_number", sums_saturate_at_the_largest_number),
    ("device_without_records_has_an_empty_timeline", device_without_records_has_an_empty_timeline),
    ("memory_profile_is_taken_on_demand", memory_profile_is_taken_on_demand),
];

const GPU: Device = Device::cuda(0);

fn record(work: impl FnOnce()) -> Trace {
    support::record_with(|builder| builder.with_memory(true), work).trace
}

/// Records an allocator with 1000 bytes from before the recording, of which a block of 300 is freed in it.
fn record_blocks() -> Trace {
    record(|| {
        let report = |address, bytes, allocated| memory::record(address, bytes, allocated, 4096, GPU);
        let parameters = memory::scope(Category::Parameter);
        report(0x10, 100, 1100);
        drop(parameters);
        info_span!("backward", mem.category = "GRADIENT").in_scope(|| {
            report(0x20, 50, 1150);
            let _other_use = memory::scope(Category::Temporary);
            report(0x20, 0, 1150);
        });
        report(0x30, -300, 850);
        report(0x20, -50, 800);
        // A free that was not reported.
        report(0x10, 7, 807);
        memory::record_out_of_memory(1 << 50, 807, 4096, GPU);
    })
}

fn rows_have_the_lifetime_of_each_block() {
    use {Category::*, MemoryAction::*};
    let timeline = record_blocks().memory_timeline(GPU);
    let rows: Vec<_> = timeline
        .rows()
        .iter()
        .map(|row| (row.action, row.key, row.version, row.bytes, row.category, row.next_category))
        .collect();
    let expected = [
        (Preexisting, 3, 0, 300, Unknown, Unknown),
        (Preexisting, 5, 0, 700, Unknown, Unknown),
        (Create, 1, 0, 100, Parameter, Parameter),
        (Create, 2, 0, 50, Gradient, Gradient),
        (IncrementVersion, 2, 0, 50, Gradient, Temporary),
        (Destroy, 3, 0, 300, Unknown, Unknown),
        (Destroy, 2, 1, 50, Temporary, Temporary),
        (Destroy, 1, 0, 100, Parameter, Parameter),
        (Create, 4, 0, 7, Unknown, Unknown),
    ];
    assert_eq!(rows, expected);
    assert_eq!((timeline.device(), timeline.max_allocated(), timeline.max_reserved()), (GPU, 1150, 4096));
    let times: Vec<_> = timeline.rows().iter().map(|row| row.time).collect();
    assert!(times[..2].iter().all(Option::is_none) && times.is_sorted(), "{times:?}");
}

fn written(timeline: &MemoryTimeline, format: TimelineFormat) -> Value {
    let mut text = Vec::new();
    timeline.write(&mut text, format).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn exports_have_torchs_forms() {
    let timeline = record_blocks().memory_timeline(GPU);
    let raw = written(&timeline, TimelineFormat::Raw);
    let times: Vec<i64> = raw.as_array().unwrap().iter().map(|row| row[0].as_i64().unwrap()).collect();
    assert_eq!(times[..2], [-1, -1]);
    let changes: Vec<Value> = raw.as_array().unwrap().iter().map(|row| json!([row[1], row[2], row[3]])).collect();
    let expected = json!([
        [1, 300, 7],
        [1, 700, 7],
        [2, 100, 0],
        [2, 50, 5],
        [3, -50, 5],
        [3, 50, 3],
        [4, -300, 7],
        [4, -50, 3],
        [4, -100, 0],
        [2, 7, 7]
    ]);
    assert_eq!(Value::from(changes), expected);

    // The other form, computed from the same rows as in PyTorch.
    let (mut micros, mut sizes): (Vec<i64>, Vec<Vec<i64>>) = (Vec::new(), Vec::new());
    for row in raw.as_array().unwrap() {
        let [time, _, bytes, category] = [0, 1, 2, 3].map(|at| row[at].as_i64().unwrap());
        let time = if time == -1 { -1 } else { time / 1000 };
        if micros.last() != Some(&time) {
            micros.push(time);
            sizes.push(sizes.last().cloned().unwrap_or_else(|| vec![0; 9]));
        }
        sizes.last_mut().unwrap()[usize::try_from(category).unwrap() + 1] += bytes;
    }
    micros[0] = micros[1];
    assert_eq!(written(&timeline, TimelineFormat::Json), json!([micros, sizes]));
    assert_eq!(sizes.last().unwrap(), &[0, 0, 0, 0, 0, 0, 0, 0, 707]);
}

fn export_form_follows_the_file_name() {
    let folder = tempfile::tempdir().unwrap();
    let timeline = record_blocks().memory_timeline(GPU);
    let save = |name: &str| {
        let path = folder.path().join(name);
        timeline.save(&path).unwrap();
        fs::read(path).unwrap()
    };
    let (mut json, mut raw, mut html) = (Vec::new(), Vec::new(), Vec::new());
    timeline.write(&mut json, TimelineFormat::Json).unwrap();
    timeline.write(&mut raw, TimelineFormat::Raw).unwrap();
    timeline.write(&mut html, TimelineFormat::Html).unwrap();
    assert_eq!((save("a.json"), save("raw.json"), save("a.HTML")), (json.clone(), raw.clone(), html));
    #[cfg(feature = "gzip")]
    for (name, expected) in [("a.json.gz", json), ("a.raw.json.gz", raw)] {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*save(name)), &mut text).unwrap();
        assert_eq!(text, expected);
    }
    let failed = timeline.save(folder.path().join("none/a.json")).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
}

fn page(timeline: &MemoryTimeline) -> String {
    let mut page = Vec::new();
    timeline.write(&mut page, TimelineFormat::Html).unwrap();
    String::from_utf8(page).unwrap()
}

fn page_shows_the_recorded_blocks() {
    let page = page(&record_blocks().memory_timeline(GPU));
    for part in ["<title>GPU 0 memory</title>", "max allocated 1.12 KiB", "max reserved <b>4 KiB</b>", "9 rows"] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    let legend: Vec<_> = page.lines().filter(|line| line.starts_with("<li>")).collect();
    let areas = page.lines().filter(|line| line.starts_with("<path")).count();
    assert_eq!((legend.len(), areas), (4, 4), "{legend:?}");
    assert!(!page.contains("{{") && !page.contains("http"), "the page is self-contained");
}

fn timeline_sums_equal_the_allocators_totals() {
    let mut totals = Vec::new();
    let trace = record(|| {
        let mut total = 5000;
        for i in 0..2000u64 {
            let bytes = if i % 3 == 2 { -i64::try_from(10 + i - 1).unwrap() } else { i64::try_from(10 + i).unwrap() };
            total += bytes;
            let address = if i % 3 == 2 { i - 1 } else { i };
            memory::record(address, bytes, total.unsigned_abs(), 0, GPU);
            totals.push(total);
        }
    });
    let timeline = trace.memory_timeline(GPU);
    let mut sum = 0;
    let mut sums = Vec::new();
    for row in timeline.rows() {
        let bytes = i64::try_from(row.bytes).unwrap();
        sum += if row.action == MemoryAction::Destroy { -bytes } else { bytes };
        sums.extend(row.time.map(|_| sum));
    }
    assert_eq!(sums, totals);
    assert_eq!(timeline.max_allocated(), totals.iter().max().unwrap().unsigned_abs());
}

fn device_without_records_has_an_empty_timeline() {
    let trace = record_blocks();
    assert_eq!(trace.memory_devices(), [Device::CPU, GPU]);
    let timeline = trace.memory_timeline(Device::cuda(7));
    assert_eq!((timeline.rows().len(), timeline.max_allocated()), (0, 0));
    assert_eq!(written(&timeline, TimelineFormat::Json), json!([[], []]));
    assert_eq!(written(&timeline, TimelineFormat::Raw), json!([]));
    let page = page(&timeline);
    assert!(page.contains("No memory events were recorded.") && !page.contains("<svg"));
}

fn memory_profile_is_taken_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.raw.json");
    let (layer, guard) = support::layer(|builder| builder.record_from_start(false));
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    let kind = |refused: Result<(), tracing_kineto::Error>| refused.unwrap_err().kind();
    assert_eq!(kind(libkineto.export_memory_profile(&path)), ErrorKind::NotActive);
    assert_eq!(kind(libkineto.stop_memory_profile().map(drop)), ErrorKind::NotActive);
    for is_recording in [false, true] {
        if is_recording {
            profiler.start().unwrap();
        }
        libkineto.start_memory_profile().unwrap();
        assert_eq!(kind(libkineto.start_memory_profile()), ErrorKind::AlreadyActive);
        assert_eq!(kind(libkineto.export_memory_profile(&path)), ErrorKind::NotActive);
        drop(black_box(vec![0u8; 4321]));
        let trace = libkineto.stop_memory_profile().unwrap();
        assert!(!memory::is_enabled());
        let pieces = trace.memory_timeline(Device::CPU);
        assert_eq!(pieces.rows().iter().filter(|row| row.bytes == 4321).count(), 2);
        libkineto.export_memory_profile(&path).unwrap();
        // Times have such digits, too.
        let exported: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let bytes = exported.as_array().unwrap().iter().map(|row| row[2].as_i64().unwrap());
        assert_eq!(bytes.filter(|bytes| bytes.abs() == 4321).collect::<Vec<_>>(), [4321, -4321]);
    }
    assert_eq!(profiler.stop().unwrap().stats().memory_events, 0, "the recording itself has none");
    drop(layer);
}

fn sums_saturate_at_the_largest_number() {
    let trace = record(|| {
        for address in 1..4 {
            memory::record(address, i64::MAX, u64::MAX, u64::MAX, GPU);
            memory::record(address + 10, i64::MIN, 0, 0, GPU);
            memory::record(address, 0, 0, 0, GPU);
        }
    });
    let timeline = trace.memory_timeline(GPU);
    assert_eq!((timeline.rows().len(), timeline.max_allocated()), (12, u64::MAX));
    timeline.write(std::io::sink(), TimelineFormat::Json).unwrap();
    timeline.write(std::io::sink(), TimelineFormat::Raw).unwrap();
    timeline.write(std::io::sink(), TimelineFormat::Html).unwrap();
}

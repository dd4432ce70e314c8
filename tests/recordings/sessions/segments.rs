//! Segments: they keep everything, report damage, and harm no reader.

use crc32fast::Hasher;
use std::io;
use std::time::SystemTime;
use support::{layer, on_thread, own_process};
use tracing::{Level, error, info, info_span};
use tracing_kineto::activity::{Activity, Body, Track};
use tracing_kineto::integration::{CpuTraceBuilder, DeferredEvents};
use tracing_kineto::memory::{self, Device};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ActivityType, ArgValue, ErrorKind, Format, Segment, Timestamp, Trace, annotate, counter};
use tracing_subscriber::layer::SubscriberExt;

/// The bytes of a header, and the unit of parts.
const HEADER: usize = 128;
const UNIT: usize = 64;

fn now() -> Timestamp {
    Timestamp::from_nanos(u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap())
}

/// Records something of every kind.
fn recorded() -> Trace {
    let gpu = DeferredEvents::new("gpu");
    let (layer, guard) = layer(|b| b.collector(gpu.clone()).events(Level::INFO).with_memory(true));
    let profiler = guard.profiler();
    let spans = || {
        let _step = annotate!("ProfilerStep#{}", 1).entered();
        let outer = info_span!(
            "outer",
            text = "x".repeat(50),
            number = 7,
            share = 0.5,
            on = true,
            later = tracing::field::Empty
        );
        outer.in_scope(|| info!(n = 1, "event"));
        outer.record("later", 9);
        outer.in_scope(|| info_span!("inner", large = "y".repeat(80_000)).in_scope(|| error!("failed")));
        let next = info_span!("next");
        next.follows_from(&outer);
        next.in_scope(|| memory::record(4096, 64, 64, 128, Device::CPU));
        let submission = info_span!("launch").in_scope(|| gpu.submit(3));
        let now = now().as_nanos();
        gpu.resolve(submission, "kernel", now, now + 1000);
        counter!("queue", depth = 3);
    };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        spans();
        profiler.pause().unwrap();
        profiler.resume().unwrap();
        on_thread("worker", spans);
        let now = now();
        let mut builder = CpuTraceBuilder::new(now, "other");
        let body = Body::Slice { start: now, end: now };
        builder.push(&Activity::new(ActivityType::CpuOp, "pushed", Track::new(0, 7), body)).unwrap();
        Libkineto::of(&profiler).transfer(builder, now).unwrap();
    });
    guard.finish().unwrap()
}

fn written(trace: &Trace) -> Vec<u8> {
    let mut file = Vec::new();
    trace.write_segment(3, &mut file).unwrap();
    file
}

/// Reads a segment, and everything that its trace can show.
fn use_all(file: &[u8]) -> Result<Segment, ErrorKind> {
    let segment = Trace::read_segment_from(file, "memory").map_err(|error| error.kind())?;
    let (trace, mut json) = (&segment.trace, Vec::new());
    trace.write(&mut json, Format::Json).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok(), "{}", String::from_utf8_lossy(&json));
    trace.write(io::sink(), Format::Perfetto).unwrap();
    drop((trace.stats().to_string(), trace.tracks(), trace.why_empty(), trace.events().key_averages().table()));
    Ok(segment)
}

/// Returns where the parts of a file begin, and the lengths of their bodies.
fn parts(file: &[u8]) -> Vec<(usize, usize)> {
    let mut at = HEADER;
    std::iter::from_fn(|| {
        let length = u64::from_le_bytes(file.get(at + 40..at + 48)?.try_into().unwrap());
        let (from, length) = (at, usize::try_from(length).unwrap());
        at += UNIT + length.next_multiple_of(UNIT);
        Some((from, length))
    })
    .collect()
}

/// Corrects the checksum of a part.
fn seal(file: &mut [u8], (from, length): (usize, usize)) {
    let mut checksum = Hasher::new();
    checksum.update(&file[from..from + UNIT - 8]);
    checksum.update(&file[from + UNIT..from + UNIT + length]);
    file[from + UNIT - 8..from + UNIT - 4].copy_from_slice(&checksum.finalize().to_le_bytes());
}

/// Returns a part with that body and number.
fn part(holds: u64, body: &[u8], number: u64) -> Vec<u8> {
    let head = [holds, 0, 0, 0, 0, body.len() as u64, number, u64::from(u32::from_le_bytes(*b"KPRT")) << 32];
    let mut part: Vec<u8> = head.into_iter().flat_map(u64::to_le_bytes).chain(body.iter().copied()).collect();
    part.resize(part.len().next_multiple_of(UNIT), 0);
    seal(&mut part, (0, body.len()));
    part
}

/// Returns an entry of a journal.
fn entry(kind: u64, key: u64, value: &[u8]) -> Vec<u8> {
    let head = [(value.len() as u64) << 32 | kind, key, 0];
    let mut entry: Vec<u8> = head.into_iter().flat_map(u64::to_le_bytes).chain(value.iter().copied()).collect();
    entry.resize(entry.len().next_multiple_of(8), 0);
    entry
}

fn to_json(trace: &Trace) -> String {
    let mut json = Vec::new();
    trace.write(&mut json, Format::Json).unwrap();
    String::from_utf8(json).unwrap()
}

/// Numbers that look random, the same in each run.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 33).unwrap()
}

#[test]
fn segment_says_where_it_comes_from() {
    let trace = recorded();
    let segment = use_all(&written(&trace)).unwrap();
    assert!(segment.is_whole());
    assert_eq!((segment.to_string().as_str(), segment.number, segment.process_id), ("whole", 3, std::process::id()));
    assert_eq!(segment.start, trace.window().0);
    let other = use_all(&written(&trace)).unwrap();
    assert_eq!((segment.process_uuid, segment.boot_id), (other.process_uuid, other.boot_id));
    let before =
        |stats: tracing_kineto::TraceStats| (stats.slices, stats.events, stats.memory_events, stats.device_activities);
    assert_eq!(before(segment.trace.stats()), before(trace.stats()));
}

#[test]
fn segment_of_a_read_trace_is_the_same() {
    let first = written(&recorded());
    let second = written(&use_all(&first).unwrap().trace);
    let read = |file: &[u8]| to_json(&use_all(file).unwrap().trace);
    assert_eq!(read(&first), read(&second));
}

#[test]
fn what_a_later_version_adds_is_skipped_and_counted() {
    let file = written(&recorded());
    let parts = parts(&file);
    let (end, _) = parts[parts.len() - 1];
    let (first, length) = parts[0];
    // The facts about the trace have four bytes more, and two kinds of entries and one of parts are new.
    let mut journal = file[first + UNIT..first + UNIT + length].to_vec();
    let facts = usize::try_from(u32::from_le_bytes(journal[4..8].try_into().unwrap())).unwrap();
    let longer = entry(1, 0, &[&journal[24..24 + facts], &[1, 2, 3, 4]].concat());
    journal.splice(..24 + facts.next_multiple_of(8), longer);
    journal.extend([entry(900, 7, b"new"), entry(901, 7, b"")].concat());
    let number = |at: usize| 3 << 32 | at as u64;
    let mut later = file[..HEADER].to_vec();
    later.extend(part(2, &journal, number(0)));
    later.extend(&file[parts[1].0..end]);
    later.extend(part(77, b"a part of another kind", number(parts.len() - 1)));
    later.extend(part(4, b"", number(parts.len())));
    let (read, same) = (use_all(&later).unwrap(), use_all(&file).unwrap());
    assert_eq!((read.is_complete, read.lost_frames, read.lost_bytes), (true, 3, 0), "{read}");
    let without_note = |trace: &Trace| {
        let lines = to_json(trace);
        lines.lines().filter(|line| !line.contains("tracing_kineto_incomplete")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(without_note(&read.trace), without_note(&same.trace));
}

/// Files of version 3, as its first program wrote them. They stay readable: a service may be newer than the file of its dead predecessor.
#[test]
fn files_of_version_3_are_read() {
    for (name, is_complete) in [("segment-3.kseg.gz", true), ("live-3.klive.gz", false)] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
        let file = std::fs::File::open(format!("{path}{name}")).unwrap();
        let segment = Trace::read_segment_from(flate2::read::GzDecoder::new(file), name).unwrap();
        assert_eq!((segment.is_complete, segment.lost_frames, segment.lost_bytes), (is_complete, 0, 0), "{name}");
        let events = segment.trace.events();
        let named = |name: &str| events.iter().filter(|event| event.name() == name).count();
        assert_eq!((named("step"), named("inner"), named("an event")), (3, 3, 3), "{name}");
        let step = events.iter().find(|event| event.name() == "step").unwrap();
        assert!(matches!(step.arg("title"), Some(ArgValue::Str("a \"name\" with ä"))), "{name}");
    }
}

/// Writes those files: `cargo test --workspace --all-features --test recordings -- --ignored write_files_of_this_version`.
#[own_process]
#[ignore = "replaces the files above by those of this version"]
fn write_files_of_this_version() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (layer, guard) =
        layer(|b| b.no_output().events(Level::INFO).buffer_limit_bytes(1 << 20).shm_folder(folder.path()));
    let write = |name: &str, bytes: &[u8]| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
        let file = std::fs::File::create(format!("{path}{name}")).unwrap();
        let mut out = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        io::Write::write_all(&mut out, bytes).unwrap();
        out.finish().unwrap();
    };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0..3 {
            let _step = info_span!("step", step, title = "a \"name\" with ä", share = 0.5).entered();
            info_span!("inner").in_scope(|| info!(loss = -1, "an event"));
        }
    });
    let live = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap();
    write("live-3.klive.gz", &std::fs::read(live.path()).unwrap());
    write("segment-3.kseg.gz", &written(&guard.finish().unwrap()));
}

#[test]
fn other_files_are_typed_errors() {
    let file = written(&recorded());
    let mut version = file.clone();
    version[8] = 200;
    let mut damaged = file.clone();
    damaged[40] ^= 1;
    for (file, kind) in [
        (&b""[..], ErrorKind::NotATrace),
        (b"{\"traceEvents\": []}", ErrorKind::NotATrace),
        (&file[..HEADER], ErrorKind::NotATrace),
        (&damaged, ErrorKind::NotATrace),
        (&version, ErrorKind::Unsupported),
    ] {
        assert_eq!(use_all(file).unwrap_err(), kind);
    }
    assert_eq!(Trace::read_segment("/nonexistent").unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn truncated_file_is_read_as_far_as_it_goes() {
    let file = written(&recorded());
    let lengths = (0..file.len()).step_by(4999).chain(parts(&file).into_iter().map(|(from, _)| from));
    let mut read = 0;
    for length in lengths {
        if let Ok(segment) = use_all(&file[..length]) {
            assert!(!segment.is_complete && !segment.is_whole(), "{length}");
            assert!(segment.to_string().contains("its end is missing"), "{segment}");
            read += 1;
        }
    }
    assert!(read > 5, "{read}");
}

#[test]
fn flipped_bits_are_noticed() {
    let file = written(&recorded());
    let mut state = 1;
    for _ in 0..200 {
        let (at, bit) = (random(&mut state) % file.len(), random(&mut state) % 8);
        let mut damaged = file.clone();
        damaged[at] ^= 1 << bit;
        let is_padding = parts(&file)
            .iter()
            .any(|(from, length)| (from + UNIT + length..from + UNIT + length.next_multiple_of(UNIT)).contains(&at));
        match use_all(&damaged) {
            Ok(segment) => {
                // No part follows the last one, from whose number one could tell.
                let is_noticed = segment.lost_frames > 0 || !segment.is_complete;
                assert!(is_padding || segment.lost_bytes > 0 && is_noticed, "{at} {segment}");
            }
            Err(kind) => assert_eq!(kind, ErrorKind::NotATrace),
        }
    }
}

#[test]
fn damaged_file_says_so_in_its_header() {
    let mut file = written(&recorded());
    let records = parts(&file).into_iter().rfind(|(_, length)| *length > 0).unwrap();
    file[records.0 + UNIT] ^= 1;
    let segment = use_all(&file).unwrap();
    assert_eq!((segment.lost_frames, segment.is_complete), (1, true));
    let why = &segment.trace.metadata().into_iter().find(|(key, _)| key == "tracing_kineto_incomplete").unwrap().1;
    assert!(why.contains("1 part and"), "{why}");
}

#[test]
fn nonsense_with_valid_checksums_harms_nobody() {
    let file = written(&recorded());
    let parts = parts(&file);
    let (mut state, mut read) = (1, 0);
    for round in 0..300 {
        let mut hostile = file.clone();
        for _ in 0..=round % 3 {
            let part = parts[random(&mut state) % parts.len()];
            for _ in 0..=random(&mut state) % 4 {
                // Most parts are short, and the first bytes of long ones matter most.
                let at = random(&mut state) % part.1.clamp(1, 4000);
                let values = [0, 1, 0x7F, 0x80, 0xFF, random(&mut state).to_le_bytes()[0]];
                let (value, run) = (values[random(&mut state) % 6], [1, 1, 4, 8][random(&mut state) % 4]);
                let place = part.0 + UNIT..part.0 + UNIT + part.1;
                hostile[place].iter_mut().skip(at).take(run).for_each(|byte| *byte = value);
            }
            seal(&mut hostile, part);
        }
        match use_all(&hostile) {
            Ok(_) => read += 1,
            Err(kind) => assert_eq!(kind, ErrorKind::NotATrace),
        }
    }
    assert!(read > 200, "{read}");
}

//! Recordings whose oldest records are moved to disk.
#![cfg(feature = "gzip")]

use std::path::{Path, PathBuf};
use support::{poll_until, virtual_time};
use tracing::info_span;
use tracing_kineto::analysis::Events;
use tracing_kineto::{ErrorKind, KinetoLayer, KinetoLayerBuilder, Loss, Overflow, Profiler, Spill, Trace};
use tracing_subscriber::layer::SubscriberExt;

/// The memory of the recordings: segments are written when a quarter is complete.
const LIMIT: u64 = 4 << 20;
/// Slices of a quarter.
const QUARTER: usize = (LIMIT / 4 / 32) as usize;
/// Slices with a field that complete a quarter, and are far from filling the memory.
const WITH_FIELDS: usize = QUARTER / 2 + 4096;

/// Records `work` into `app.json.gz` of a folder.
fn record(
    folder: &Path,
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(&Profiler),
) {
    let builder = KinetoLayer::builder().output(folder.join("app.json.gz"));
    let builder = configure(builder.overflow(Overflow::Spill).buffer_limit_bytes(LIMIT));
    let (layer, guard) = builder.build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard.profiler()));
    drop(guard);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the complete segments in the only folder of segments.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let Some(segments) = names(folder).into_iter().find(|name| name.ends_with(".segments")) else { return Vec::new() };
    let folder = folder.join(segments);
    let complete = names(&folder).into_iter().filter(|name| name.ends_with(".kseg"));
    complete.map(|name| folder.join(name)).collect()
}

fn parts(folder: &Path) -> Vec<Events> {
    let count = names(folder).len();
    (1..=count).map(|number| Events::read(folder.join(format!("app.part{number:04}.json.gz"))).unwrap()).collect()
}

/// Records quarters of slices `n`, waiting for a segment after each.
fn work_quarters(folder: &Path, quarters: usize) {
    for quarter in 0..quarters {
        (0..WITH_FIELDS).for_each(|n| info_span!("work", n = quarter * 1_000_000 + n).in_scope(|| ()));
        poll_until(|| segments(folder).len() > quarter);
    }
}

/// Returns the number of slices that began in a trace's time; one that is open at the end of a part is also in the next.
fn slices_begun(trace: &Trace) -> u64 {
    let stats = trace.stats();
    let clipped = stats.losses.iter().find(|(loss, _)| *loss == Loss::Clipped);
    stats.slices - clipped.map_or(0, |(_, count)| *count)
}

fn loss(events: &Events, key: &str) -> u64 {
    let header = events.metadata().find(|(known, _)| *known == "tracing_kineto").unwrap().1;
    let header: serde_json::Value = serde_json::from_str(header).unwrap();
    header["losses"][key].as_u64().unwrap_or(0)
}

#[virtual_time]
fn parts_together_are_the_whole_recording() {
    let folder = tempfile::tempdir().unwrap();
    record(
        folder.path(),
        |builder| builder,
        |_| {
            let _root = info_span!("root", id = 7).entered();
            let request = info_span!("request", path = "/");
            request.in_scope(|| ());
            work_quarters(folder.path(), 3);
            request.in_scope(|| info_span!("last").in_scope(|| ()));
        },
    );
    let parts = parts(folder.path());
    assert!(parts.len() >= 4, "{:?}", names(folder.path()));
    let mut found = Vec::new();
    for (nth, part) in parts.iter().enumerate() {
        let root = part.iter().find(|event| event.name() == "root").unwrap();
        let arg =
            |event: &tracing_kineto::analysis::Event<'_>, key: &str| event.arg(key).map(|value| format!("{value:?}"));
        assert_eq!(arg(&root, "id").as_deref(), Some("7"), "part {nth}");
        assert_eq!(arg(&root, "clipped").as_deref(), (nth > 0).then_some("true"), "part {nth}");
        let clipped = part.iter().filter(|event| event.arg("clipped").is_some()).count();
        assert_eq!(loss(part, "clipped_slices"), clipped as u64, "part {nth}");
        let works = part.iter().filter(|event| event.name() == "work" && event.arg("clipped").is_none());
        found.extend(works.map(|event| arg(&event, "n").unwrap().parse::<usize>().unwrap()));
        assert_eq!(loss(part, "records_not_spilled"), 0);
    }
    let expected = (0..3).flat_map(|quarter| (0..WITH_FIELDS).map(move |n| quarter * 1_000_000 + n));
    assert!(found.iter().copied().eq(expected), "{} slices, in order", found.len());
    let last = parts.last().unwrap();
    let request = last.iter().rfind(|event| event.name() == "request").unwrap();
    assert_eq!(
        request.arg("path").map(|value| format!("{value:?}")).as_deref(),
        Some("\"/\""),
        "its first record is in part 1"
    );
}

#[test]
fn recording_that_fits_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), |builder| builder, |_| (0..1000).for_each(|_| info_span!("work").in_scope(|| ())));
    assert_eq!(names(folder.path()), ["app.json.gz"]);
    assert_eq!(
        Events::read(folder.path().join("app.json.gz")).unwrap().iter().filter(|it| it.name() == "work").count(),
        1000
    );
}

/// Each record is in a part or counted, however fast it was written.
#[test]
fn records_at_full_speed_are_written_or_counted() {
    const THREADS: usize = 4;
    const EACH: usize = 2 * QUARTER;
    let folder = tempfile::tempdir().unwrap();
    record(
        folder.path(),
        |builder| builder,
        |_| {
            let dispatch = &tracing::dispatcher::get_default(Clone::clone);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    let work = || (0..EACH).for_each(|_| info_span!("work").in_scope(|| ()));
                    let run = move || tracing::dispatcher::with_default(dispatch, work);
                    std::thread::Builder::new().spawn_scoped(scope, run).unwrap();
                }
            });
        },
    );
    let parts = parts(folder.path());
    let is_whole =
        |event: &tracing_kineto::analysis::Event<'_>| event.name() == "work" && event.arg("clipped").is_none();
    let found: usize = parts.iter().map(|part| part.iter().filter(is_whole).count()).sum();
    let lost = usize::try_from(parts.iter().map(|part| loss(part, "records_not_spilled")).sum::<u64>()).unwrap();
    assert_eq!(found + lost, THREADS * EACH, "{found} found in {} parts, {lost} lost", parts.len());
}

// Shows the key SPILL_DIR.
#[virtual_time]
fn disk_trouble_is_counted_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    record(
        folder.path(),
        |builder| builder.spill(Spill::new().folder(&gone)),
        |_| {
            // More than fits, while there is no folder.
            (0..6 * QUARTER).for_each(|_| info_span!("early").in_scope(|| ()));
            std::fs::create_dir(&gone).unwrap();
            // The next try is within a second or two.
            poll_until(|| !segments(&gone).is_empty());
            info_span!("late").in_scope(|| ());
        },
    );
    assert_eq!(names(&gone).len(), 0, "the segments were written as traces");
    std::fs::remove_dir(&gone).unwrap();
    let parts = parts(folder.path());
    let count = |name: &str| -> usize {
        parts
            .iter()
            .map(|part| part.iter().filter(|event| event.name() == name && event.arg("clipped").is_none()).count())
            .sum()
    };
    let lost = usize::try_from(parts.iter().map(|part| loss(part, "records_not_spilled")).sum::<u64>()).unwrap();
    assert_eq!((count("early") + lost, count("late")), (6 * QUARTER, 1), "{lost} lost");
    assert!(lost > 0, "the memory was too small for all");
}

/// What a snapshot holds is in the live file, also if it was evicted before it could be moved: it is not lost yet.
#[cfg(target_os = "linux")]
#[virtual_time]
fn live_file_counts_no_record_that_it_has_as_lost() {
    let (folder, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let no_folder = folder.path().join("none");
    let work = |slices: usize| (0..slices).for_each(|_| info_span!("work").in_scope(|| ()));
    record(
        folder.path(),
        |builder| builder.spill(Spill::new().folder(no_folder)).shm_folder(memory.path()),
        |profiler| {
            work(QUARTER);
            let held = profiler.snapshot().unwrap();
            work(6 * QUARTER);
            let file = std::fs::read_dir(memory.path()).unwrap().next().unwrap().unwrap().path();
            let file = std::fs::File::open(file).unwrap();
            let stats = Trace::read_segment_from(file, "live").unwrap().trace.stats();
            let lost = stats.lost(Loss::NotSpilled);
            assert_eq!(stats.slices + lost, 7 * QUARTER as u64, "{lost} lost, {} held", held.stats().slices);
            assert!(lost > 0, "the memory was too small for all");
        },
    );
}

#[virtual_time]
fn stopped_recording_leaves_its_segments() {
    let folder = tempfile::tempdir().unwrap();
    let mut rest = None;
    record(
        folder.path(),
        |builder| builder,
        |profiler| {
            work_quarters(folder.path(), 1);
            info_span!("rest").in_scope(|| ());
            rest = Some(profiler.stop().unwrap());
        },
    );
    let rest = rest.unwrap();
    let segments = segments(folder.path());
    let read: Vec<_> = segments.iter().map(|segment| Trace::read_segment(segment).unwrap()).collect();
    for (number, segment) in (1..).zip(&read) {
        assert!(segment.is_whole() && segment.number == number && segment.process_id == std::process::id());
    }
    let in_parts: Vec<_> = read.iter().map(|segment| &segment.trace).chain([&rest]).map(slices_begun).collect();
    assert_eq!(in_parts.iter().sum::<u64>(), WITH_FIELDS as u64 + 1, "{in_parts:?}");
    assert_eq!(rest.stats().before_window + rest.stats().slices, WITH_FIELDS as u64 + 1, "{:?}", rest.stats());
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&segments[0]), mode(segments[0].parent().unwrap())), (0o600, 0o700));
    }
}

/// What was written before is gone with its folder, and what follows is in another.
#[virtual_time]
fn removed_folder_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let spilled = folder.path().join("spilled");
    std::fs::create_dir(&spilled).unwrap();
    record(
        folder.path(),
        |builder| builder.spill(Spill::new().folder(&spilled)),
        |_| {
            work_quarters(&spilled, 1);
            let first = segments(&spilled).remove(0).parent().unwrap().to_owned();
            std::fs::remove_dir_all(&first).unwrap();
            (0..QUARTER + 4096).for_each(|_| info_span!("after").in_scope(|| ()));
            poll_until(|| !segments(&spilled).is_empty());
        },
    );
    let parts: Vec<_> = names(folder.path()).into_iter().filter(|name| name != "spilled").collect();
    let count = |name: &str| -> usize {
        let read = parts.iter().map(|part| Events::read(folder.path().join(part)).unwrap());
        read.map(|part| part.iter().filter(|row| row.name() == name && row.arg("clipped").is_none()).count()).sum()
    };
    assert_eq!(count("after"), QUARTER + 4096, "{parts:?}");
    assert_eq!((names(&spilled), parts.contains(&"app.part0001.json.gz".to_owned())), (vec![], false), "{parts:?}");
}

/// Without an output, everything is in the segments.
#[virtual_time]
fn rest_is_a_segment_where_there_is_no_output() {
    let folder = tempfile::tempdir().unwrap();
    record(
        folder.path(),
        |builder| builder.no_output().spill(Spill::new().folder(folder.path())),
        |_| work_quarters(folder.path(), 1),
    );
    let read = segments(folder.path()).into_iter().map(|segment| Trace::read_segment(segment).unwrap());
    assert_eq!(read.map(|segment| slices_begun(&segment.trace)).sum::<u64>(), WITH_FIELDS as u64);
}

#[virtual_time]
fn url_of_a_file_is_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("app.json.gz").display());
    record(folder.path(), |builder| builder.output(url), |_| work_quarters(folder.path(), 1));
    assert_eq!(names(folder.path()).first().map(String::as_str), Some("app.part0001.json.gz"));
    let begun = |part: &Events| part.iter().filter(|event| event.arg("clipped").is_none()).count();
    assert!(parts(folder.path()).iter().map(begun).sum::<usize>() >= WITH_FIELDS);
}

#[test]
fn spill_needs_a_folder() {
    let error = KinetoLayer::builder().no_output().overflow(Overflow::Spill).build().unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("SPILL_DIR"), "{error}");
}

//! Parts of recordings that end by time, size or step.
#![cfg(feature = "gzip")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::{poll_until, virtual_time};
use tracing::info_span;
use tracing_kineto::analysis::{Event, Events};
use tracing_kineto::torch::{Libkineto, TorchOptions};
use tracing_kineto::{
    ErrorKind, KinetoLayer, KinetoLayerBuilder, Overflow, Profiler, ProfilerAction, Schedule, Spill, Split, Trace,
};
use tracing_subscriber::layer::SubscriberExt;

/// Records `work` into `app.json.gz` of a folder.
fn record(
    folder: &Path,
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(&Profiler),
) {
    let builder = KinetoLayer::builder().output(folder.join("app.json.gz")).overflow(Overflow::Spill);
    let (layer, guard) = configure(builder).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard.profiler()));
    drop(guard);
}

fn steps(steps: u64, of: u64) -> impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder {
    move |builder| {
        builder.spill(Spill::new().split(Split::Steps(steps))).schedule(Schedule::new(0, 0, of).unwrap().repeat(1))
    }
}

fn parts(folder: &Path) -> Vec<Events> {
    let count = std::fs::read_dir(folder).unwrap().count();
    (1..=count).map(|number| Events::read(folder.join(format!("app.part{number:04}.json.gz"))).unwrap()).collect()
}

/// Returns whether an event begins in its part.
fn begins(event: &Event<'_>) -> bool {
    event.arg("clipped").is_none()
}

fn is_whole(event: &Event<'_>) -> bool {
    begins(event) && event.arg("finished").is_none()
}

fn number(event: &Event<'_>, key: &str) -> u64 {
    event.arg(key).map(|value| format!("{value:?}").parse().unwrap()).unwrap()
}

/// Returns the numbers of the steps in a part; all are whole.
fn steps_in(part: &Events) -> Vec<u64> {
    let step = |event: &Event<'_>| event.name().strip_prefix("ProfilerStep#").map(|step| step.parse().unwrap());
    let found = part.iter().filter(|event| step(event).is_some());
    found.inspect(|event| assert!(is_whole(event), "{}", event.name())).filter_map(|event| step(&event)).collect()
}

/// Returns the complete segments in the folders of segments, in their order.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let paths = |folder: &Path, end: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|found| found == end)).collect::<Vec<_>>()
    };
    let mut segments: Vec<_> = paths(folder, "segments").iter().flat_map(|folder| paths(folder, "kseg")).collect();
    segments.sort();
    segments
}

fn wait_for_segments(folder: &Path, count: usize) {
    poll_until(|| segments(folder).len() >= count);
}

// Shows the key SPLIT.
#[test]
fn parts_end_exactly_with_steps_while_threads_record() {
    const STEPS: u64 = 60;
    const EACH: u64 = 7;
    const OTHERS: usize = 2;
    let folder = tempfile::tempdir().unwrap();
    let (is_over, steps_begun) = (&AtomicBool::new(false), &AtomicU64::new(0));
    record(folder.path(), steps(EACH, STEPS), |profiler| {
        let dispatch = &tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            for thread in 0..OTHERS {
                let work = move || {
                    let mut numbers = 0_u64..;
                    for step in 0..STEPS {
                        while steps_begun.load(Ordering::Relaxed) <= step && !is_over.load(Ordering::Relaxed) {
                            std::thread::yield_now();
                        }
                        numbers.by_ref().take(20).for_each(|n| info_span!("other", thread, n).in_scope(|| ()));
                    }
                };
                let run = move || tracing::dispatcher::with_default(dispatch, work);
                std::thread::Builder::new().spawn_scoped(scope, run).unwrap();
            }
            for step in 0..STEPS {
                steps_begun.store(step + 1, Ordering::Relaxed);
                (0..50).for_each(|n| info_span!("work", step, n).in_scope(|| ()));
                profiler.step();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
    let parts = parts(folder.path());
    // The numbers that each of the threads has in the parts, in their order.
    let mut others = [const { Vec::new() }; OTHERS];
    let mut next = 0;
    for (nth, part) in parts.iter().enumerate() {
        let steps = steps_in(part);
        assert_eq!(steps, (next..next + steps.len() as u64).collect::<Vec<_>>(), "part {nth}");
        next += steps.len() as u64;
        assert!(next.is_multiple_of(EACH) || next == STEPS, "part {nth} ends with {next}");
        let mut work = BTreeMap::<u64, u64>::new();
        for event in part.iter().filter(|event| event.name() == "work") {
            assert!(is_whole(&event));
            *work.entry(number(&event, "step")).or_default() += 1;
        }
        assert_eq!(work, steps.iter().map(|step| (*step, 50)).collect(), "part {nth}");
        for event in part.iter().filter(|event| event.name() == "other" && begins(event)) {
            others[usize::try_from(number(&event, "thread")).unwrap()].push(number(&event, "n"));
        }
    }
    assert_eq!(next, STEPS, "in {} parts", parts.len());
    // What a thread records after the last step is in no trace.
    for mut numbers in others {
        numbers.sort_unstable();
        assert!(
            !numbers.is_empty() && (0..).zip(&numbers).all(|(n, found)| n == *found),
            "each in one part: {numbers:?}"
        );
    }
}

/// Each part has the steps that it should have, also those that were not taken when the recording ended.
#[test]
fn steps_at_the_end_have_their_parts() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), steps(3, 100), |profiler| {
        for step in 0..10 {
            info_span!("work", step).in_scope(|| ());
            profiler.step();
        }
        info_span!("work", step = 10).in_scope(|| ());
    });
    let parts = parts(folder.path());
    let found: Vec<_> = parts.iter().map(|part| part.iter().filter(|event| event.name() == "work").count()).collect();
    assert_eq!(found, [3, 3, 3, 2]);
    assert_eq!(steps_in(&parts[0]), [0, 1, 2]);
}

/// A part in whose time nothing begins or ends has no file, nor a number.
#[test]
fn parts_without_records_have_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let split = |builder: KinetoLayerBuilder| builder.spill(Spill::new().split(Split::Steps(1)));
    record(folder.path(), split, |profiler| {
        let request = info_span!("request").entered();
        info_span!("work").in_scope(|| ());
        (0..3).for_each(|_| drop(profiler.step()));
        drop(request);
        (0..3).for_each(|_| drop(profiler.step()));
        info_span!("work").in_scope(|| ());
        profiler.step();
    });
    let parts = parts(folder.path());
    let names = |part: &Events| part.iter().map(|event| event.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(parts.iter().map(names).collect::<Vec<_>>(), [vec!["request", "work"], vec!["request"], vec!["work"]]);
    assert!(parts[1].iter().all(|request| request.arg("finished").is_none()), "its end is in the second part");
}

/// Without a schedule, steps have no annotations, and what a segment holds is what `kineto repair` writes.
#[virtual_time]
fn segments_end_with_steps_too() {
    let folder = tempfile::tempdir().unwrap();
    let split = |builder: KinetoLayerBuilder| {
        builder.no_output().spill(Spill::new().folder(folder.path()).split(Split::Steps(2)))
    };
    record(folder.path(), split, |profiler| {
        for step in 0..6 {
            info_span!("work", step).in_scope(|| ());
            profiler.step();
        }
        wait_for_segments(folder.path(), 1);
    });
    let files = segments(folder.path());
    let slices = files.iter().map(|file| Trace::read_segment(file).unwrap().trace.stats().slices);
    assert_eq!(slices.collect::<Vec<_>>(), [2, 2, 2]);
}

/// Where the schedule's recording has no output, its parts stay as segments, and the program gets the last one.
#[test]
fn parts_of_schedules_stay_without_an_output() {
    let folder = tempfile::tempdir().unwrap();
    let work = |profiler: &Profiler| {
        for step in 0..4 {
            info_span!("work", step).in_scope(|| ());
            let trace = profiler.step().cycle.map(|cycle| cycle.trace);
            assert_eq!(trace.is_some(), step == 3);
            // A step and its work.
            trace.iter().for_each(|trace| assert_eq!(trace.stats().slices, 4));
        }
    };
    let configure =
        |builder: KinetoLayerBuilder| steps(2, 4)(builder.no_output().spill(Spill::new().folder(folder.path())));
    record(folder.path(), configure, work);
    let slices = |file: &PathBuf| Trace::read_segment(file).unwrap().trace.stats().slices;
    assert_eq!(segments(folder.path()).iter().map(slices).collect::<Vec<_>>(), [4]);
}

/// In strict mode, a violation prevents files, and a schedule without `RecordAndSave` makes none.
#[test]
fn parts_of_traces_that_are_not_saved_stay() {
    let without_save = |step| if step < 4 { ProfilerAction::Record } else { ProfilerAction::None };
    let schedules = [Schedule::new(0, 0, 4).unwrap().repeat(1), Schedule::custom(without_save)];
    for (violates, schedule) in [true, false].into_iter().zip(schedules) {
        let folder = tempfile::tempdir().unwrap();
        let configure = |builder: KinetoLayerBuilder| {
            builder
                .spill(Spill::new().split(Split::Steps(2)))
                .schedule(schedule)
                .torch(TorchOptions::new().strict(true))
        };
        record(folder.path(), configure, |profiler| {
            for step in 0..4 {
                info_span!("work", step).in_scope(|| ());
                if violates && step == 3 {
                    Libkineto::of(profiler).log_invariant_violation("a", "b", "c").unwrap();
                }
                let cycle = profiler.step().cycle;
                assert_eq!(cycle.is_some_and(|cycle| cycle.error.is_some()), step == 3);
            }
        });
        let slices = |file: &PathBuf| Trace::read_segment(file).unwrap().trace.stats().slices;
        assert_eq!(segments(folder.path()).iter().map(slices).collect::<Vec<_>>(), [4], "{violates}");
    }
}

/// The end of the program ends the schedule, and the last part is a segment too.
#[test]
fn last_part_of_a_schedule_stays_without_an_output() {
    let folder = tempfile::tempdir().unwrap();
    let configure =
        |builder: KinetoLayerBuilder| steps(2, 100)(builder.no_output().spill(Spill::new().folder(folder.path())));
    record(folder.path(), configure, |profiler| {
        for step in 0..3 {
            info_span!("work", step).in_scope(|| ());
            profiler.step();
        }
    });
    let slices = |file: &PathBuf| Trace::read_segment(file).unwrap().trace.stats().slices;
    assert_eq!(segments(folder.path()).iter().map(slices).collect::<Vec<_>>(), [4, 3]);
}

#[virtual_time]
fn parts_end_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let split = |builder: KinetoLayerBuilder| builder.spill(Spill::new().split(Split::Time(Duration::from_millis(20))));
    record(folder.path(), split, |_| {
        for n in 0..3 {
            info_span!("work", n).in_scope(|| ());
            wait_for_segments(folder.path(), n + 1);
        }
    });
    let parts = parts(folder.path());
    let found = |part: &Events| part.iter().filter(|event| event.name() == "work" && begins(event)).count();
    assert_eq!(parts.iter().map(found).collect::<Vec<_>>(), [1, 1, 1], "nothing is recorded between them");
}

#[virtual_time]
fn parts_end_by_size() {
    let folder = tempfile::tempdir().unwrap();
    let split = |builder: KinetoLayerBuilder| builder.spill(Spill::new().split(Split::Bytes(256 << 10)));
    record(folder.path(), split, |_| {
        for n in 0..3 {
            (0..16 << 10).for_each(|_| info_span!("work").in_scope(|| ()));
            wait_for_segments(folder.path(), n + 1);
        }
    });
    let found = |part: &Events| part.iter().filter(|event| event.name() == "work" && begins(event)).count();
    let parts = parts(folder.path());
    assert_eq!(parts.iter().map(found).sum::<usize>(), 3 * (16 << 10));
    assert!(parts.len() >= 3, "{}", parts.len());
}

#[test]
fn split_needs_spill_and_a_size() {
    let folder = tempfile::tempdir().unwrap();
    let build = |overflow, split| {
        let builder = KinetoLayer::builder().output(folder.path().join("app.json")).overflow(overflow);
        builder.spill(Spill::new().split(split)).build().map(drop).unwrap_err()
    };
    for (overflow, split, expected) in [
        (Overflow::Stop, Split::Steps(1), "SPLIT has no effect: only OVERFLOW=spill makes parts"),
        (Overflow::KeepNewest, Split::Bytes(1), "SPLIT has no effect"),
        (Overflow::Spill, Split::Time(Duration::ZERO), "`Spill::split(0s)`: expected a time such as 10min"),
        (Overflow::Spill, Split::Bytes(0), "`Spill::split(0MB)`"),
        (Overflow::Spill, Split::Steps(0), "`Spill::split(0steps)`"),
        (Overflow::Spill, Split::Bytes(1 << 30), "SPLIT=1024MB has no effect: a part ends at a quarter of the limit"),
    ] {
        let error = build(overflow, split);
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(expected), "{error}");
    }
}

//! Metrics next to what a program does meanwhile: it captures graphs, ends contexts and threads, and stops the recording.

use super::annotation_metrics::{self as annotations, check_note, check_released, planted, rows};
use super::range_metrics::{self as kernels, check_planted, ranges};
use std::mem::ManuallyDrop;
use std::thread;
use std::time::Duration;
use support::File;
use support::cuda::{self, Cuda, Stream};
use support::gpu::{PATIENCE, machine, report};
use support::own_process;
use support::virtual_time;
use tracing::dispatcher;
use tracing_kineto::{Loss, Metrics, annotate};

const CAPTURED: &str = "1 annotation was not measured: a stream was being captured";

/// Records the metrics of annotations.
fn annotated(work: impl FnOnce()) -> File {
    annotations::measured(|builder| builder, work)
}

/// Returns the blocks of each measured kernel.
fn blocks(file: &File) -> Vec<u64> {
    ranges(file).into_iter().map(|row| check_planted(row, 0)).collect()
}

/// Waits until more kernels were launched than before.
fn wait_for_launch(before: u64) {
    while cuda::count("launches") == before {
        thread::yield_now();
    }
}

#[virtual_time]
fn captures_belong_to_streams_whatever_is_current() {
    let machine = machine("devices=2");
    let (first, second) = (machine.context(0), machine.context(1));
    machine.set_current(first);
    let (kernel, stream) = (machine.only_kernel("work"), machine.stream());
    let file = annotated(|| {
        machine.set_current(second);
        machine.begin_capture(stream);
        machine.set_current(first);
        annotate!("during").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
        machine.set_current(second);
        machine.end_capture(stream).unwrap();
        machine.set_current(first);
        annotate!("after").in_scope(|| machine.launch(kernel, 2, Stream::NULL));
        machine.begin_capture(stream);
        machine.destroy_stream(stream);
        annotate!("destroyed").in_scope(|| machine.launch(kernel, 3, Stream::NULL));
    });
    assert_eq!(planted(&file, 0), [("after", 1, 2), ("destroyed", 1, 3)], "{:?}", report(&file));
    check_note(&file, CAPTURED);
}

#[virtual_time]
fn recapture_is_not_disturbed() {
    let machine = machine("cupti=13.4,driver=13040");
    let (kernel, stream) = (machine.only_kernel("work"), machine.stream());
    let file = annotated(|| {
        machine.begin_recapture(stream);
        annotate!("during").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
        machine.end_capture(stream).unwrap();
    });
    check_note(&file, CAPTURED);
}

#[virtual_time]
fn annotation_after_a_cut_one_has_its_own_values() {
    let machine = machine("");
    let (kernel, stream) = (machine.only_kernel("work"), machine.stream());
    let file = annotated(|| {
        let open = annotate!("open").entered();
        machine.launch(kernel, 2, Stream::NULL);
        machine.begin_capture(stream);
        drop(open);
        machine.end_capture(stream).unwrap();
        annotate!("next").in_scope(|| machine.launch(kernel, 5, Stream::NULL));
    });
    assert_eq!(planted(&file, 0), [("next", 1, 5)], "{:?}", report(&file));
    check_note(&file, CAPTURED);
}

/// The counters of a recording that ends in a capture are released before the next one.
#[virtual_time]
fn stop_in_a_capture_does_not_disturb_it() {
    let machine = machine("");
    let (kernel, stream) = (machine.only_kernel("work"), machine.stream());
    let stop_in_capture = |by_annotations: bool| {
        let work = || {
            annotate!("before").in_scope(|| machine.launch(kernel, 2, Stream::NULL));
            let open = by_annotations.then(|| annotate!("open").entered());
            machine.launch(kernel, 3, Stream::NULL);
            machine.begin_capture(stream);
            ManuallyDrop::new(open)
        };
        if by_annotations { annotated(|| _ = work()) } else { kernels::measured(|builder| builder, || _ = work()) }
    };
    for by_annotations in [true, false] {
        let file = stop_in_capture(by_annotations);
        machine.launch(kernel, 4, stream);
        machine.end_capture(stream).unwrap();
        if by_annotations {
            assert_eq!(planted(&file, 0), [("before", 1, 2)], "{:?}", report(&file));
            assert_eq!(file.lost(Loss::VendorDropped), 1);
        } else {
            assert_eq!(blocks(&file), [2, 3], "{:?}", report(&file));
        }
        let next = annotated(|| annotate!("next").in_scope(|| machine.launch(kernel, 5, Stream::NULL)));
        assert_eq!(planted(&next, 0), [("next", 1, 5)], "{:?}", report(&next));
    }
    check_released(4);
}

#[virtual_time]
fn kernels_of_a_capture_are_not_measured() {
    let machine = machine("");
    let (kernel, stream, other) = (machine.only_kernel("work"), machine.stream(), machine.stream());
    let file = kernels::measured(
        |builder| builder.metrics(Metrics::new().limit(3)),
        || {
            let graph = machine.graph(stream, || {
                (1..=3).for_each(|blocks| machine.launch(kernel, blocks, stream));
                machine.launch_by_runtime(kernel, 4, stream);
                machine.launch(kernel, 5, other);
            });
            machine.launch_graph(graph, stream);
            (0..2).for_each(|_| machine.launch_nothing(kernel));
            (6..=9).for_each(|blocks| machine.launch(kernel, blocks, stream));
        },
    );
    assert_eq!(blocks(&file), [6, 7, 8], "{:?}", report(&file));
    check_note(&file, "1 launch was not measured: a stream was being captured");
    check_note(&file, "1 launch was not measured: CUPTI_PROFILER_MAX_RANGES is 3");
    assert_eq!((file.lost(Loss::VendorDropped), file.lost(Loss::LaunchesWithoutWork)), (1, 0));
}

#[virtual_time]
fn ends_of_other_contexts_cut_no_annotation() {
    let machine = machine("devices=2");
    let kernel = machine.only_kernel("work");
    let file = annotated(|| {
        let open = annotate!("open").entered();
        machine.launch(kernel, 1, Stream::NULL);
        for device in [1, 0] {
            machine.context(device);
            machine.release_context(device);
        }
        let other = machine.new_context(0);
        machine.destroy_context(other);
        machine.set_current(machine.context(0));
        machine.launch(kernel, 2, Stream::NULL);
        drop(open);
        machine.context(0);
        machine.release_context(0);
        annotate!("next").in_scope(|| machine.launch(kernel, 4, Stream::NULL));
    });
    assert_eq!(planted(&file, 0), [("open", 2, 3), ("next", 1, 4)], "{:?}", report(&file));
    check_released(2);
}

#[virtual_time]
fn ends_of_other_contexts_cut_no_launch() {
    let machine = machine("devices=2,slow_launch=800");
    let kernel = machine.only_kernel("work");
    let file = kernels::measured(
        |builder| builder,
        || {
            let other = machine.new_context(1);
            machine.launch(machine.only_kernel("other"), 1, Stream::NULL);
            thread::scope(|scope| {
                let before = cuda::count("launches");
                scope.spawn(move || Cuda::new().launch(kernel, 7, Stream::NULL));
                wait_for_launch(before);
                machine.destroy_context(other);
                machine.set_current(machine.context(0));
                machine.launch(kernel, 8, Stream::NULL);
            });
        },
    );
    let of_first: Vec<_> =
        ranges(&file).into_iter().filter(|row| row["pid"] == 0).map(|row| check_planted(row, 0)).collect();
    assert_eq!((of_first, ranges(&file).len()), (vec![7, 8], 3), "{:?}", report(&file));
    check_released(2);
}

#[virtual_time]
fn thread_that_ends_in_an_annotation_frees_the_context() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let file = annotated(|| {
        let layers = dispatcher::get_default(Clone::clone);
        let leak = || {
            let _layers = dispatcher::set_default(&layers);
            let _leaked = ManuallyDrop::new(annotate!("leaked").entered());
            Cuda::new().launch(kernel, 1, Stream::NULL);
        };
        thread::scope(|scope| scope.spawn(leak).join().unwrap());
        (2..=3).for_each(|blocks| annotate!("later").in_scope(|| machine.launch(kernel, blocks, Stream::NULL)));
    });
    assert_eq!(planted(&file, 0), [("later", 1, 2), ("later", 1, 3)], "{:?}", report(&file));
    assert_eq!(file.lost(Loss::VendorDropped), 1);
    check_note(&file, "1 annotation was not measured: the recording, the context or the annotation around it ended");
}

#[own_process]
fn stop_waits_for_a_launch_that_is_measured() {
    for (flush, rows) in [(PATIENCE, &[1, 2][..]), (Duration::from_millis(200), &[1])] {
        let machine = machine("");
        let kernel = machine.only_kernel("work");
        let configure = |builder: tracing_kineto::KinetoLayerBuilder| builder.flush_timeout(flush);
        let file = thread::scope(|scope| {
            kernels::measured(configure, || {
                machine.launch(kernel, 1, Stream::NULL);
                cuda::configure("slow_launch=1500");
                let before = cuda::count("launches");
                scope.spawn(move || Cuda::new().launch(kernel, 2, Stream::NULL));
                wait_for_launch(before);
            })
        });
        assert_eq!(blocks(&file), rows, "{:?}", report(&file));
        assert_eq!(file.lost(Loss::VendorDropped), 2 - rows.len() as u64, "{:?}", report(&file));
        if rows.len() == 1 {
            check_note(
                &file,
                "a launch was still being measured at the end: its row is lost, and libcupti is in use until it returns",
            );
        }
        while cuda::count("profiler_deinits") == 0 {
            thread::yield_now();
        }
        check_released(1);
        cuda::configure("");
        // The lease of libcupti is released last.
        let again = (0..1000).find_map(|_| {
            let file = kernels::measured(|builder| builder, || machine.launch(kernel, 9, Stream::NULL));
            Some(file).filter(|file| !blocks(file).is_empty())
        });
        assert_eq!(blocks(&again.unwrap()), [9]);
    }
}

#[virtual_time]
fn functions_that_the_driver_lacks_need_no_note() {
    let notes = |settings| {
        let machine = machine(settings);
        let kernel = machine.only_kernel("work");
        let file = annotated(|| annotate!("step").in_scope(|| machine.launch(kernel, 1, Stream::NULL)));
        assert_eq!(rows(&file).len(), 1, "{settings} {:?}", report(&file));
        report(&file).notes.into_iter().filter(|note| note.contains("subscribe")).collect::<Vec<_>>()
    };
    assert_eq!(notes("cupti=13.4,driver=13000"), [""; 0]);
    let failed = &notes("cupti=13.4,driver=13040,callback_error=1:831")[..];
    let expected = "could not subscribe to calls, whose work may be missing or in another range: cuLaunchHostFunc_v2: ";
    assert!(matches!(failed, [note] if note.starts_with(expected)), "{failed:?}");
}

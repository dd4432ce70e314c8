//! Call stacks and processor counters of slices.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use serde_json::Value;
use support::{File, enter, exit, on_thread, record, record_with};
use tracing::info_span;
#[cfg(feature = "backtrace")]
use tracing_kineto::Stacks;
use tracing_kineto::{ErrorKind, KinetoLayer, KinetoLayerBuilder, Loss};
use tracing_subscriber::layer::SubscriberExt;

fn args(file: &File, name: &str) -> Value {
    file.slice(name).args
}

/// Software counters, present on every Linux that has perf events.
const SOFTWARE: [&str; 2] = ["task-clock", "page-faults"];

fn counting(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    builder.performance_events(SOFTWARE)
}

/// Returns true if this machine counts; otherwise the trace gives the reason, and the test checks no counts.
fn is_counted(file: &File) -> bool {
    let reports = file.trace.stats().counters;
    assert_eq!(reports.iter().map(|report| &*report.name).collect::<Vec<_>>(), SOFTWARE);
    assert!(reports.iter().all(|report| report.state.as_ref().err().is_none_or(|why| !why.message().is_empty())));
    reports.iter().all(|report| report.state.is_ok())
}

/// Uses processor time.
fn work(amount: u32) {
    (0..amount * 10_000).for_each(|n| assert!(std::hint::black_box(n) < u32::MAX));
}

/// Writes to pages that the kernel has not mapped yet, as the heap's may be: at most once in a process.
fn touch_new_pages() {
    static PAGES: [AtomicU8; 16 << 20] = [const { AtomicU8::new(0) }; 16 << 20];
    PAGES.iter().step_by(4096).for_each(|byte| byte.store(1, Relaxed));
}

fn count(file: &File, name: &str, counter: &str) -> u64 {
    args(file, name)[counter].as_u64().expect(counter)
}

#[test]
fn slices_have_no_stack_or_counters_by_default() {
    let file = record(|| info_span!("op").in_scope(|| ()));
    assert!(args(&file, "op").get("Call stack").is_none() && args(&file, "op").get("task-clock").is_none());
    assert!(file.trace.stats().counters.is_empty());
}

// Shows the key PERFORMANCE_EVENTS.
#[test]
fn slice_counts_include_nested_slices() {
    let file = record_with(counting, || {
        let outer = info_span!("outer").entered();
        info_span!("first").in_scope(|| {
            touch_new_pages();
            work(1000);
        });
        info_span!("second").in_scope(|| work(1));
        info_span!("third", n = 1, "page-faults" = "mine").in_scope(|| ());
        drop(outer);
    });
    if !is_counted(&file) {
        return;
    }
    let [faults, clock] = ["page-faults", "task-clock"].map(|counter| {
        let [outer, first, second] = ["outer", "first", "second"].map(|name| count(&file, name, counter));
        // The second may map no page.
        assert!(first > 0 && outer >= first + second, "{counter}: {outer} {first} {second}");
        [first, second]
    });
    assert!(clock[0] > 2 * clock[1], "{clock:?}");
    assert_eq!(args(&file, "third")["page-faults"], "mine", "the program's own field is kept");
    assert_eq!(file.trace.stats().lost(Loss::CountsScaled), 0);
    let events = file.trace.events();
    let event = events.iter().find(|event| event.name() == "first").unwrap();
    let counters: Vec<_> = event.performance_counters().collect();
    assert_eq!(counters, [("task-clock", clock[0]), ("page-faults", faults[0])]);
    assert_eq!(events.iter().find(|event| event.name() == "third").unwrap().performance_counters().count(), 1);
}

#[test]
fn each_thread_is_counted_separately_until_it_ends() {
    let descriptors = || {
        std::fs::read_dir("/proc/self/fd").map_or(0, |fds| {
            let is_counter = |fd: &std::fs::DirEntry| {
                std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().contains("perf_event"))
            };
            fds.flatten().filter(|fd| is_counter(fd)).count()
        })
    };
    let mut open = Vec::new();
    let file = record_with(counting, || {
        let outer = info_span!("outer").entered();
        for (name, amount) in [("a", 1000), ("b", 1)] {
            on_thread(name, || {
                info_span!("op").in_scope(|| work(amount));
                open.push(descriptors());
            });
        }
        drop(outer);
        open.push(descriptors());
    });
    if !is_counted(&file) {
        return;
    }
    let events = file.trace.events();
    let ops = events.iter().filter(|event| event.name() == "op");
    let clock: Vec<u64> = ops.map(|event| event.performance_counters().next().unwrap().1).collect();
    assert!(clock[0] > 2 * clock[1], "{clock:?}");
    assert!(2 * count(&file, "outer", "task-clock") < clock[0], "other threads' work is not counted");
    // Other tests of this process may be counting, but ended ones are not.
    assert!(open[0] >= 4 && open[2] >= 2, "{open:?}");
}

#[test]
fn slices_have_counts_when_guards_exit_out_of_order() {
    let file = record_with(counting, || {
        let (a, b, again) = (info_span!("a"), info_span!("b"), info_span!("again"));
        enter(&a);
        enter(&b);
        exit(&a);
        exit(&b);
        for _ in 0..3 {
            again.in_scope(|| info_span!("deep").in_scope(|| work(1)));
        }
        let elsewhere = info_span!("elsewhere");
        enter(&elsewhere);
        on_thread("other", || exit(&elsewhere));
        enter(&info_span!("unfinished"));
    });
    if !is_counted(&file) {
        return;
    }
    for name in ["a", "b", "again", "deep"] {
        let all = file.slices().iter().filter(|slice| slice.name == name);
        assert!(all.clone().count() > 0 && all.clone().all(|slice| slice.args["task-clock"].is_u64()), "{name}");
    }
    for name in ["elsewhere", "unfinished"] {
        assert!(args(&file, name).get("task-clock").is_none(), "{name}");
    }
}

#[test]
fn slice_counts_survive_chunk_boundaries() {
    let file = record_with(counting, || {
        for _ in 0..2000 {
            info_span!("op").in_scope(|| info_span!("inner", a = 1).in_scope(|| ()));
        }
    });
    if is_counted(&file) {
        assert!(file.slices().iter().all(|slice| slice.args["task-clock"].is_u64()));
    }
    assert_eq!(file.slices().len(), 4000);
    assert_eq!(file.trace.stats().losses, []);
}

#[test]
fn counters_work_after_a_pause_and_in_a_new_recording() {
    let (layer, guard) = support::layer(counting);
    let profiler = guard.profiler();
    let second = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("before").in_scope(|| work(1));
        profiler.pause().unwrap();
        profiler.resume().unwrap();
        info_span!("behind").in_scope(|| work(1));
        let first = File::of(profiler.stop().unwrap());
        profiler.start().unwrap();
        info_span!("again").in_scope(|| work(1));
        if is_counted(&first) {
            assert!(count(&first, "before", "task-clock") > 0 && count(&first, "behind", "task-clock") > 0);
        }
        File::of(profiler.stop().unwrap())
    });
    if is_counted(&second) {
        assert!(count(&second, "again", "task-clock") > 0);
    }
}

#[test]
fn builder_fails_when_a_counter_is_unknown() {
    let error = KinetoLayer::builder().no_output().performance_events(["cykles"]).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("cycles, instructions"), "{error}");
}

#[cfg(feature = "backtrace")]
mod stacks {
    use super::*;
    use tracing::Level;
    use tracing_kineto::analysis::StackMetric;
    use tracing_subscriber::filter::Targets;

    fn with_stacks(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
        builder.with_stack(true)
    }

    fn frames(file: &File, name: &str) -> Vec<String> {
        let args = args(file, name);
        let stack = args["Call stack"].as_str().unwrap_or_default();
        stack.split(';').filter(|frame| !frame.is_empty()).map(str::to_owned).collect()
    }

    #[inline(never)]
    fn inner() {
        info_span!("inner").in_scope(|| std::hint::black_box(()));
    }

    #[inline(always)]
    fn inlined() {
        info_span!("inlined").in_scope(|| std::hint::black_box(()));
    }

    #[inline(never)]
    fn outer() {
        let _outer = info_span!("outer").entered();
        inner();
        inlined();
    }

    // Shows the key PROFILE_WITH_STACK.
    #[test]
    fn slice_has_the_stack_of_its_enter() {
        let file = record_with(with_stacks, outer);
        let inner = frames(&file, "inner");
        assert!(inner[0].ends_with("inner"), "{inner:?}");
        assert!(inner[1].ends_with("outer"), "{inner:?}");
        assert!(frames(&file, "outer")[0].ends_with("outer"));
        assert!(inner.len() <= 33 && inner.iter().all(|frame| !frame.contains("src/layer/")), "{inner:?}");
        let events = file.trace.events();
        let event = events.iter().find(|event| event.name() == "inner").unwrap();
        assert!(event.stack().eq(inner.iter().map(String::as_str)), "the innermost first");
        let mut folded = Vec::new();
        events.stacks(StackMetric::SelfHost).write(&mut folded).unwrap();
    }

    // Shows the key STACK_FRAMES.
    #[test]
    fn stack_depth_is_limited_by_the_option() {
        fn deep(depth: u32) {
            if depth == 0 {
                info_span!("deep").in_scope(|| ());
            } else {
                deep(std::hint::black_box(depth - 1));
            }
        }
        let file = record_with(|builder| builder.with_stack(Stacks::new().frames(5)), || deep(60));
        let stack = frames(&file, "deep");
        assert!(stack.len() == 5 && stack.iter().all(|frame| frame.ends_with("deep")), "{stack:?}");
    }

    #[test]
    fn stack_is_the_programs_own_or_absent_for_backward() {
        let file = record_with(with_stacks, || {
            info_span!("said", call_stack = "a;b").in_scope(|| ());
            info_span!("unsaid", call_stack = tracing::field::Empty).in_scope(|| ());
            info_span!("backward", record_scope = 1).in_scope(|| ());
            info_span!("backward by name", record_scope = "BACKWARD_FUNCTION").in_scope(|| ());
            info_span!("backward by thread", fwd_thread = 7).in_scope(|| ());
            info_span!("forward", record_scope = 0, sequence_number = 7).in_scope(|| ());
        });
        assert_eq!(frames(&file, "said"), ["a", "b"]);
        assert!(!frames(&file, "unsaid").is_empty() && !frames(&file, "forward").is_empty());
        for name in ["backward", "backward by name", "backward by thread"] {
            assert_eq!(frames(&file, name), [""; 0], "{name}");
        }
    }

    // Shows the key STACK_FILTER.
    #[test]
    fn stack_filter_selects_spans() {
        let filter = Targets::new().with_target("wanted", Level::INFO);
        let file = record_with(
            |builder| counting(builder).with_stack(Stacks::new().filter(filter)),
            || {
                info_span!(target: "wanted", "with").in_scope(|| ());
                info_span!("without").in_scope(|| ());
                tracing::debug_span!(target: "wanted", "finer").in_scope(|| ());
            },
        );
        assert!(!frames(&file, "with").is_empty());
        assert!(frames(&file, "without").is_empty() && frames(&file, "finer").is_empty());
        if is_counted(&file) {
            assert!(file.slices().iter().all(|slice| slice.args["task-clock"].is_u64()), "both go together");
        }
    }

    #[test]
    fn each_enter_has_its_own_stack_in_any_order() {
        #[inline(never)]
        fn once(span: &tracing::Span) {
            enter(span);
        }
        let file = record_with(with_stacks, || {
            let (a, b) = (info_span!("a"), info_span!("b"));
            once(&a);
            enter(&b);
            exit(&a);
            on_thread("other", || once(&a));
            exit(&b);
        });
        let slices = file.slices();
        let stacks: Vec<_> = slices
            .iter()
            .filter(|slice| slice.name == "a")
            .map(|slice| slice.args["Call stack"].as_str().unwrap())
            .collect();
        assert_eq!(stacks.len(), 2);
        assert!(stacks.iter().all(|stack| stack.contains("once")) && stacks[0] != stacks[1]);
    }
}

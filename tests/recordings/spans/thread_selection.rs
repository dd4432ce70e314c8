//! Selection of the recorded threads.

use super::FRAMES;
use std::sync::{Arc, Mutex};
use support::{File, enter, exit, layer, on_thread, record_with};
use tracing::{error, info, info_span, subscriber};
use tracing_kineto::activity::CorrelationId;
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{Capabilities, RecordSink, Recording, Selection, Unavailable};
use tracing_kineto::memory::{self, Device};
use tracing_kineto::{
    ActivityType, ActivityTypes, ErrorKind, Fields, Loss, Mode, ObservedSpan, SpanObserver, ThreadFilter, Timestamp,
};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

fn span(name: &'static str) {
    match name {
        "a" => info_span!("a").in_scope(|| info!("in a")),
        "b" => info_span!("b", n = 1).in_scope(|| error!("in b")),
        _ => info_span!("c").in_scope(|| ()),
    }
}

#[test]
fn threads_are_chosen_by_name() {
    let file = record_with(
        |b| b.threads(ThreadFilter::named(["io-*", "net"])).events(tracing::Level::INFO),
        || {
            span("a");
            for name in ["io-1", "io", "net", "net2"] {
                on_thread(name, || ["a", "b", "c"].into_iter().for_each(span));
            }
        },
    );
    assert_eq!(file.tree(&[]), "io-1\n  a\n  b\n  c\nnet\n  a\n  b\n  c\n");
    let stats = file.trace.stats();
    assert_eq!((stats.events, stats.threads), (4, 2));
    assert!(stats.losses.is_empty(), "{stats}");
}

#[test]
fn current_filter_records_the_starting_thread_alone() {
    let (layer, guard) = layer(|b| b.threads(ThreadFilter::Current).record_from_start(false));
    let profiler = guard.profiler();
    subscriber::with_default(registry().with(layer), || {
        for starter in ["one", "two"] {
            on_thread(starter, || {
                profiler.start().unwrap();
                span("a");
                on_thread("other", || span("b"));
                profiler.pause().unwrap();
                span("b");
                profiler.resume().unwrap();
                on_thread("other", || span("b"));
                span("c");
            });
            span("b");
            assert_eq!(File::of(profiler.stop().unwrap()).tree(&[]), format!("{starter}\n  a\n  c\n"));
        }
    });
}

#[test]
fn threads_register_and_unregister_themselves() {
    let (layer, guard) = layer(|b| b.threads(ThreadFilter::Registered));
    let profiler = guard.profiler();
    subscriber::with_default(registry().with(layer), || {
        span("a");
        on_thread("worker", || {
            let (before, inside) = (info_span!("before").entered(), info_span!("inside", n = 1));
            enter(&inside);
            let recorded = profiler.enable_in_this_thread().unwrap();
            assert_eq!(profiler.enable_in_this_thread().unwrap_err().kind(), ErrorKind::AlreadyActive);
            span("a");
            exit(&inside);
            drop(before);
            span("b");
            drop(recorded);
            span("c");
            assert_eq!(profiler.disable_in_this_thread().unwrap_err().kind(), ErrorKind::NotActive);
            profiler.enable_in_this_thread().unwrap().keep();
            span("c");
        });
        on_thread("late", || {
            let recorded = profiler.enable_in_this_thread().unwrap();
            profiler.disable_in_this_thread().unwrap();
            drop(recorded);
            span("a");
        });
    });
    let file = File::of(profiler.stop().unwrap());
    assert_eq!(file.tree(&["clipped", "finished"]), "worker\n  a\n  b\n  c\n");
    assert_eq!(profiler.enable_in_this_thread().unwrap_err().kind(), ErrorKind::NotActive);
    assert_eq!(profiler.disable_in_this_thread().unwrap_err().kind(), ErrorKind::NotActive);
}

#[test]
fn registration_holds_for_one_recording() {
    let (layer, guard) = layer(|b| b);
    let profiler = guard.profiler();
    subscriber::with_default(registry().with(layer), || {
        assert_eq!(profiler.enable_in_this_thread().unwrap_err().kind(), ErrorKind::AlreadyActive);
        profiler.disable_in_this_thread().unwrap();
        let recorded = profiler.enable_in_this_thread().unwrap();
        profiler.disable_in_this_thread().unwrap();
        span("a");
        let empty = File::of(profiler.stop().unwrap());
        assert!(empty.trace.why_empty().unwrap().contains("no selected thread"));
        assert_eq!(empty.json["tracing_kineto"]["threads"], "some are left out");
        profiler.start().unwrap();
        // The guard belongs to the previous recording.
        drop(recorded);
        span("b");
    });
    assert_eq!(File::of(guard.finish().unwrap()).tree(&[]), "main\n  b\n");
}

#[test]
fn slices_end_when_their_thread_unregisters() {
    for depth in [3, FRAMES + 40] {
        let (layer, guard) = layer(|b| b);
        let profiler = guard.profiler();
        subscriber::with_default(registry().with(layer), || {
            let open: Vec<_> = (0..depth).map(|_| info_span!("open").entered()).collect();
            profiler.disable_in_this_thread().unwrap();
            span("a");
            on_thread("other", || span("c"));
            let recorded = profiler.enable_in_this_thread().unwrap();
            span("b");
            drop(open);
            span("b");
            recorded.keep();
        });
        let file = File::of(guard.finish().unwrap());
        let stats = file.trace.stats();
        assert_eq!((stats.slices, stats.lost(Loss::Unfinished), stats.lost(Loss::Clipped)), (depth as u64 + 3, 0, 0));
        let last = file.all("open").iter().map(|open| open.end).max().unwrap();
        assert!(last <= file.all("c")[0].start, "the slices end before the next one begins, on whichever thread");
        assert_eq!(file.trace.events().tree().roots().count(), 4);
    }
}

/// Recorded and excluded threads pass spans to each other, again and again under the same keys.
#[test]
fn spans_pass_between_recorded_and_excluded_threads() {
    const ROUNDS: usize = 10_000;
    let (layer, guard) = layer(|b| b.threads(ThreadFilter::named(["seen"])).buffer_limit_bytes(1 << 30));
    subscriber::with_default(registry().with(layer), || {
        let (to, from) = (std::sync::mpsc::sync_channel(1), std::sync::mpsc::sync_channel(1));
        std::thread::scope(|scope| {
            let (sent, back) = (to.1, from.0);
            support::spawn(scope, "seen", move || {
                for round in 0..ROUNDS {
                    let theirs: tracing::Span = sent.recv().unwrap();
                    theirs.in_scope(|| info_span!("inner").in_scope(|| ()));
                    let own = info_span!("own", round);
                    own.in_scope(|| ());
                    // Both close on the excluded thread, or here.
                    back.send((Some(own), (round % 2 == 0).then_some(theirs))).unwrap();
                }
            });
            let (to, from) = (to.0, from.1);
            for round in 0..ROUNDS {
                let theirs = if round % 3 == 0 { info_span!("other") } else { info_span!("theirs", round) };
                to.send(theirs).unwrap();
                let (own, theirs): (Option<tracing::Span>, Option<tracing::Span>) = from.recv().unwrap();
                drop((own, theirs));
                span("a");
            }
        });
    });
    let trace = guard.finish().unwrap();
    let mut counts = std::collections::BTreeMap::new();
    trace.for_each(|activity| *counts.entry(activity.name.to_owned()).or_insert(0) += 1);
    let thirds = ROUNDS.div_ceil(3);
    let expected = [("inner", ROUNDS), ("other", thirds), ("own", ROUNDS), ("theirs", ROUNDS - thirds)];
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected.map(|(name, count)| (name.to_owned(), count)));
}

#[test]
fn fields_of_excluded_threads_are_kept_on_demand() {
    for kept in [false, true] {
        let (layer, guard) = layer(|b| b.threads(ThreadFilter::named(["seen"])).fields(Fields::new().while_idle(kept)));
        subscriber::with_default(registry().with(layer), || {
            let made = info_span!("made", n = 7);
            on_thread("seen", || made.in_scope(|| ()));
        });
        let file = File::of(guard.finish().unwrap());
        assert_eq!(file.tree(&["n"]), if kept { "seen\n  made n=7\n" } else { "seen\n  made\n" });
        assert_eq!(file.trace.stats().lost(Loss::FieldsNotSeen), u64::from(!kept));
    }
}

/// Keeps the ids that the thread has pushed.
#[derive(Clone, Debug, Default)]
struct PushedIds(Arc<Mutex<Vec<u64>>>);

impl Collector for PushedIds {
    fn name(&self) -> &'static str {
        "pushed-ids"
    }
    fn types(&self) -> ActivityTypes {
        ActivityType::ConcurrentKernel.into()
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }
    fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        Ok((self.probe()?, Box::new(self.clone())))
    }
}

impl Recording for PushedIds {
    fn push(&self, id: CorrelationId) -> bool {
        self.0.lock().unwrap().push(id.0);
        true
    }
    fn pop(&self) {
        self.0.lock().unwrap().pop();
    }
    fn stop(&self, _: Timestamp, _: std::time::Instant) {}
}

#[test]
fn excluded_thread_pushes_no_correlation_ids() {
    let pushed = PushedIds::default();
    let (layer, guard) = layer(|b| b.collector(pushed.clone()));
    let (profiler, inside) = (guard.profiler(), || pushed.0.lock().unwrap().len());
    subscriber::with_default(registry().with(layer), || {
        let _open = [info_span!("open").entered(), info_span!("open").entered()];
        assert_eq!(inside(), 2);
        profiler.disable_in_this_thread().unwrap();
        assert_eq!(inside(), 0);
        info_span!("left out").in_scope(|| assert_eq!(inside(), 0));
        profiler.enable_in_this_thread().unwrap().keep();
        info_span!("seen").in_scope(|| assert_eq!(inside(), 1));
    });
    assert_eq!(guard.finish().unwrap().stats().slices, 3);
}

#[test]
fn allocations_of_excluded_threads_are_not_recorded() {
    let device = Device::cuda(0);
    let filters = [ThreadFilter::Current, ThreadFilter::Registered, ThreadFilter::named(["seen"])];
    for (filter, recorded) in filters.into_iter().zip([1, 1, 1]) {
        let is_registered = filter == ThreadFilter::Registered;
        let (layer, guard) = layer(|b| b.threads(filter).with_memory(true).buffer_limit_bytes(64 << 20));
        let profiler = guard.profiler();
        subscriber::with_default(registry().with(layer), || {
            let _here = is_registered.then(|| profiler.enable_in_this_thread().unwrap());
            memory::record(1, 8, 8, 8, device);
            on_thread("seen", || {
                // The layer does not know the thread's name yet.
                memory::record(2, 8, 8, 8, device);
                span("a");
                memory::record(3, 8, 8, 8, device);
            });
        });
        let stats = guard.finish().unwrap().stats();
        assert_eq!((stats.memory_events, stats.lost(Loss::MemoryMissed)), (recorded, 0), "{stats}");
    }
}

/// Keeps each enter and exit that it observes.
#[derive(Clone, Debug, Default)]
struct EnterLog(Arc<Mutex<Vec<String>>>);

impl SpanObserver for EnterLog {
    fn name(&self) -> &'static str {
        "enter-log"
    }
    fn enter(&self, span: &ObservedSpan) {
        self.0.lock().unwrap().push(span.name().to_owned());
    }
    fn exit(&self, _: &ObservedSpan) {
        self.0.lock().unwrap().push("<".to_owned());
    }
}

#[test]
fn observers_see_recorded_threads_alone() {
    for mode in [Mode::Kineto, Mode::PrivateUse1] {
        let log = EnterLog::default();
        let named = ThreadFilter::named(["seen"]);
        let (layer, guard) = layer(|b| b.mode(mode).observer(log.clone()).threads(named));
        subscriber::with_default(registry().with(layer), || {
            span("a");
            on_thread("seen", || span("b"));
        });
        drop(guard);
        assert_eq!(*log.0.lock().unwrap(), ["b", "<"], "{mode:?}");
    }
}

#[test]
fn observers_see_exits_when_a_thread_unregisters() {
    for mode in [Mode::Kineto, Mode::PrivateUse1] {
        let log = EnterLog::default();
        let (layer, guard) = layer(|b| b.mode(mode).observer(log.clone()));
        let profiler = guard.profiler();
        subscriber::with_default(registry().with(layer), || {
            let open = [info_span!("outer").entered(), info_span!("inner").entered()];
            profiler.disable_in_this_thread().unwrap();
            assert_eq!(*log.0.lock().unwrap(), ["outer", "inner", "<", "<"], "{mode:?}");
            span("a");
            profiler.enable_in_this_thread().unwrap().keep();
            drop(open);
            span("b");
        });
        assert_eq!(log.0.lock().unwrap()[4..], ["b", "<"], "{mode:?}");
    }
}

#[test]
fn two_layers_record_their_own_threads_at_once() {
    let (first, first_guard) = layer(|b| b.threads(ThreadFilter::named(["one", "both"])));
    let (second, second_guard) = layer(|b| b.threads(ThreadFilter::named(["two", "both"])));
    let (third, third_guard) = layer(|b| b);
    subscriber::with_default(registry().with(first).with(second), || {
        for name in ["one", "two", "both", "none"] {
            on_thread(name, || ["a", "b"].into_iter().for_each(span));
        }
        // A separate subscriber: the other layers do not see its spans.
        subscriber::with_default(registry().with(third), || on_thread("both", || span("c")));
        let profiler = second_guard.profiler();
        on_thread("both", || {
            span("a");
            profiler.disable_in_this_thread().unwrap();
            span("a");
        });
    });
    let tree = |guard: tracing_kineto::KinetoGuard| File::of(guard.finish().unwrap()).tree(&[]);
    assert_eq!(tree(first_guard), "both\n  a\n  b\n  a\n  a\none\n  a\n  b\n");
    assert_eq!(tree(second_guard), "both\n  a\n  b\n  a\ntwo\n  a\n  b\n");
    assert_eq!(tree(third_guard), "both\n  c\n");
}

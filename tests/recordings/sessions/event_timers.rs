//! Spans timed by pairs of device events, with a fake timer: names, links, times, bounds and failures.

use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use support::virtual_time;
use support::wait::sleep;
use support::{File, enter, exit, layer, nanos, on_thread, record_with};
use tracing::{info_span, subscriber};
use tracing_kineto::analysis::Average;
use tracing_kineto::integration::{Capabilities, DeviceTimer, EventTimers, NotTimed, Token, Unavailable, Why};
use tracing_kineto::{ActivityType, ActivityTypes, Devices, KinetoLayerBuilder, Mode, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// A device whose clock the test advances.
#[derive(Clone, Debug, Default)]
struct FakeTimer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    clock: u64,
    stream: u32,
    /// The time of each event, by its id.
    events: Vec<u64>,
    live: HashSet<u64>,
    fails: Option<NotTimed>,
    /// Events from this time on never pass.
    never_from: Option<u64>,
    /// Events at this time cannot be compared.
    broken_at: Option<u64>,
    refuses: Option<Unavailable>,
}

impl State {
    fn time(&self, token: Token) -> u64 {
        self.events[usize::try_from(token.id).unwrap()]
    }
}

impl FakeTimer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Advances the clock by `ns`.
    fn work(&self, ns: u64) {
        self.state().clock += ns;
    }
}

impl DeviceTimer for FakeTimer {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.state().refuses.clone().map_or_else(|| Ok(Capabilities::default()), Err)
    }
    fn record(&self) -> Result<Token, NotTimed> {
        let mut state = self.state();
        if let Some(cause) = state.fails {
            return Err(cause);
        }
        let (id, clock, stream) = (state.events.len() as u64, state.clock, state.stream);
        state.events.push(clock);
        state.live.insert(id);
        Ok(Token { id, device: 0, stream })
    }
    fn has_passed(&self, token: Token) -> bool {
        let state = self.state();
        state.never_from.is_none_or(|never| state.time(token) < never)
    }
    fn elapsed(&self, from: Token, to: Token) -> Option<Duration> {
        let state = self.state();
        let [from, to] = [from, to].map(|token| state.time(token));
        let broken = [from, to].iter().any(|at| state.broken_at == Some(*at));
        (!broken).then(|| to.checked_sub(from).map(Duration::from_nanos))?
    }
    fn release(&self, token: Token) {
        assert!(self.state().live.remove(&token.id), "released twice");
    }
}

/// Records in the mode for a program's own timers; checks that all events are released.
fn record(fake: &FakeTimer, work: impl FnOnce()) -> File {
    record_by(fake, |builder| builder, work)
}

fn record_by(
    fake: &FakeTimer,
    more: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(),
) -> File {
    let configure = |builder: KinetoLayerBuilder| {
        more(builder.mode(Mode::KinetoPrivateUse1Fallback).devices(Devices::new().timer(fake.clone())))
    };
    let file = record_with(configure, work);
    assert!(fake.state().live.is_empty(), "events are left");
    file
}

fn rows(file: &File) -> Vec<&Value> {
    file.events().filter(|event| event["ph"] == "X" && event["cat"] == "gpu_user_annotation").collect()
}

/// Returns names with durations in nanoseconds.
fn durations(file: &File) -> Vec<(&str, u64)> {
    rows(file).iter().map(|row| (row["name"].as_str().unwrap(), nanos(&row["dur"]))).collect()
}

fn notes(file: &File) -> Vec<String> {
    let reports = file.trace.stats().collectors;
    reports.into_iter().find(|report| report.name == "fake").unwrap().notes
}

#[virtual_time]
fn each_span_has_a_linked_and_nested_device_row() {
    let fake = FakeTimer::default();
    let file = record(&fake, || {
        let _step = annotate!("step {}", 1).entered();
        fake.work(10_000);
        info_span!("forward").in_scope(|| {
            fake.work(20_000);
            info_span!("matmul").in_scope(|| fake.work(300_000));
            fake.work(1_000);
        });
        fake.work(2_000);
        info_span!("backward").in_scope(|| fake.work(50_000));
        fake.work(1_000);
    });
    let expected = [("step 1", 384_000), ("forward", 321_000), ("matmul", 300_000), ("backward", 50_000)];
    assert_eq!(durations(&file), expected);
    let rows = rows(&file);
    for row in &rows {
        let slice = file.slices().iter().find(|slice| row["name"] == *slice.name).unwrap();
        let id = slice.args["External id"].clone();
        let args = json!({"External id": id, "device": 0, "stream": 0, "timing_source": "events",
            "start_source": "earliest_possible"});
        assert_eq!((&row["args"], &row["pid"], &row["tid"]), (&args, &json!(0), &json!(0)));
    }
    let at = |row: &Value| nanos(&row["ts"]);
    assert_eq!((at(rows[1]) - at(rows[0]), at(rows[2]) - at(rows[1])), (10_000, 20_000));
    assert_eq!(at(rows[3]) - at(rows[0]), 333_000, "gaps are the device's");
    let stats = file.trace.stats();
    assert!(stats.losses.is_empty() && notes(&file).is_empty(), "{stats}");
    assert_eq!((stats.device_activities, rows.len()), (4, 4), "the annotation has one row");
    let cupti = &file.json["tracing_kineto"]["collectors"]["cupti"]["unavailable"];
    assert_eq!(cupti, "the mode is kineto_privateuse1_fallback; use the mode kineto");
}

#[virtual_time]
fn device_row_never_begins_before_its_span() {
    let fake = FakeTimer::default();
    fake.work(7);
    let file = record(&fake, || {
        for _ in 0..5 {
            info_span!("s").in_scope(|| sleep(Duration::from_millis(1)));
            fake.work(10);
        }
    });
    let rows = rows(&file);
    assert_eq!(rows.len(), 5);
    // The device's clock stops while the host's runs, so the last event bounds the offset.
    let last = file.slices().last().unwrap();
    assert!(nanos(&rows[4]["ts"]) >= last.start, "{} {}", rows[4]["ts"], last.start);
}

#[virtual_time]
fn averages_split_device_time_by_operation() {
    let fake = FakeTimer::default();
    let file = record(&fake, || {
        for _ in 0..2 {
            info_span!("outer").in_scope(|| {
                fake.work(1_000);
                info_span!("inner").in_scope(|| fake.work(5_000));
                fake.work(100);
                info_span!("inner").in_scope(|| fake.work(3_000));
                fake.work(100);
            });
            fake.work(100);
        }
    });
    let averages = file.trace.key_averages();
    let rows = |rows: &[Average]| {
        let mut rows: Vec<_> =
            rows.iter().map(|row| (row.name().to_owned(), row.self_device_ns(), row.device_ns())).collect();
        rows.sort_unstable();
        rows
    };
    let expected = [("inner".to_owned(), 16_000, 16_000), ("outer".to_owned(), 2_400, 18_400)];
    assert_eq!(rows(averages.ops()), expected);
    assert_eq!(rows(averages.kernels()), expected);
    assert_eq!((averages.device_base_ns(), averages.unattributed_device_ns()), (18_400, 0));
}

#[virtual_time]
fn untimed_spans_are_counted_by_cause() {
    let fake = FakeTimer::default();
    let span = |fails| {
        fake.state().fails = fails;
        info_span!("untimed").in_scope(|| ());
        fake.state().fails = None;
    };
    let mut open = tracing::Span::none();
    let file = record(&fake, || {
        fake.state().stream = 1;
        info_span!("timed").in_scope(|| fake.work(10));
        span(Some(NotTimed::NoContext));
        span(Some(NotTimed::NoContext));
        span(Some(NotTimed::Error(700)));
        let half = info_span!("half").entered();
        fake.state().fails = Some(NotTimed::Capturing);
        drop(half);
        fake.state().fails = None;
        let moved = info_span!("moved").entered();
        fake.state().stream = 2;
        drop(moved);
        open = info_span!("open");
        enter(&open);
    });
    assert_eq!(durations(&file), [("timed", 10)]);
    let mut expected = vec![
        "2 spans not timed: no device was current on the thread",
        "1 span not timed: recording an event gave error 700",
        "1 span not timed: the stream was being captured",
        "1 span not timed: they were open when the recording ended",
        "1 span not timed: the time between their events is not available",
    ];
    expected.sort_unstable();
    let mut notes = notes(&file);
    notes.sort_unstable();
    assert_eq!(notes, expected);
}

// Shows the key FLUSH_TIMEOUT_MSECS.
#[virtual_time]
fn stop_waits_no_longer_than_its_timeout_for_the_device() {
    let fake = FakeTimer::default();
    fake.state().never_from = Some(1000);
    let file = record_by(
        &fake,
        |builder| builder.flush_timeout(Duration::from_millis(20)),
        || {
            info_span!("done").in_scope(|| fake.work(990));
            fake.work(5);
            info_span!("endless").in_scope(|| fake.work(5));
        },
    );
    assert_eq!(durations(&file), [("done", 990)]);
    let late = "the device had not reached their end by the deadline of the stop";
    assert_eq!(notes(&file), [format!("1 span not timed: {late}")]);
}

#[virtual_time]
fn incomparable_events_lose_their_own_spans_alone() {
    let fake = FakeTimer::default();
    fake.state().broken_at = Some(0);
    let file = record(&fake, || {
        info_span!("broken").in_scope(|| fake.work(5));
        info_span!("whole").in_scope(|| fake.work(6));
    });
    assert_eq!(durations(&file), [("whole", 6)]);
}

#[virtual_time]
fn event_pairs_are_bounded_in_each_recording() {
    let fake = FakeTimer::default();
    let timers = EventTimers::new(fake.clone()).most(3);
    let (layer, guard) = layer(|builder| builder.mode(Mode::KinetoPrivateUse1Fallback).collector(timers));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        for spans in [5, 2] {
            let open = info_span!("open");
            enter(&open);
            (1..spans).for_each(|_| info_span!("s").in_scope(|| fake.work(1)));
            let file = File::of(profiler.stop().unwrap());
            assert!(fake.state().live.is_empty());
            assert_eq!(rows(&file).len(), if spans == 5 { 2 } else { 1 });
            let full = "2 spans not timed: limit of event pairs reached";
            assert_eq!(notes(&file).contains(&full.to_owned()), spans == 5, "{:?}", notes(&file));
            let reason = &file.json["tracing_kineto"]["collectors"]["timers"]["unavailable"];
            assert_eq!(reason, "the program has no timer for this mode; use Devices::timer");
            profiler.start().unwrap();
            exit(&open);
        }
    });
}

#[virtual_time]
fn spans_around_a_pause_are_not_timed() {
    let fake = FakeTimer::default();
    let (layer, guard) =
        layer(|builder| builder.mode(Mode::KinetoPrivateUse1Fallback).devices(Devices::new().timer(fake.clone())));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        let around = info_span!("around").entered();
        info_span!("before").in_scope(|| fake.work(100));
        profiler.pause().unwrap();
        info_span!("paused").in_scope(|| fake.work(100));
        profiler.resume().unwrap();
        fake.work(100);
        info_span!("behind").in_scope(|| fake.work(100));
        fake.work(100);
        drop(around);
        let file = File::of(profiler.stop().unwrap());
        // After the pause, only the rest of an open span may be timed.
        let rows = durations(&file);
        assert!(rows.contains(&("before", 100)) && rows.contains(&("behind", 100)), "{rows:?}");
        assert!(rows.iter().all(|(name, ns)| *name != "paused" && (*name != "around" || *ns <= 300)), "{rows:?}");
        assert_eq!(notes(&file), ["1 span not timed: the recording paused inside them"]);
    });
}

#[virtual_time]
fn threads_may_share_a_stream() {
    let fake = FakeTimer::default();
    let file = record(&fake, || {
        let around = info_span!("main").entered();
        fake.work(10);
        on_thread("other", || {
            info_span!("other").in_scope(|| fake.work(50));
        });
        fake.work(10);
        drop(around);
    });
    assert_eq!(durations(&file), [("main", 70), ("other", 50)]);
}

#[virtual_time]
fn timer_reports_why_it_is_unavailable() {
    let reason = Unavailable::new(Why::NoDevice, "there is no fake", "make one");
    let fake = FakeTimer::default();
    fake.state().refuses = Some(reason.clone());
    let file = record(&fake, || info_span!("s").in_scope(|| ()));
    assert_eq!(file.json["tracing_kineto"]["collectors"]["fake"]["unavailable"], reason.to_string());
    assert_eq!((rows(&file).len(), file.slices().len()), (0, 1));
    let fake = FakeTimer::default();
    let types = ActivityTypes::from(ActivityType::CpuOp).with(ActivityType::GpuUserAnnotation);
    let file = record_by(&fake, |builder| builder.activities(types), || info_span!("s").in_scope(|| ()));
    let reason = &file.json["tracing_kineto"]["collectors"]["fake"]["unavailable"];
    assert_eq!(reason, "spans are timed only if external_correlation is selected; add it to the activity types");
    assert!(fake.state().events.is_empty());
}

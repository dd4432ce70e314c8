//! Which spans are one call and which are a call for each enter: equal for every event level, filter, depth and cut.
//!
//! Each scenario enters its spans before and after a cut. The cut is nothing, or a buffer limit that the records of the first
//! part exceed. The expected calls, enters and tracks follow from the numbers of enters on both sides.

mod model;
mod scenarios;

use scenarios::{ALL, FILTERED, Scenario};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::wait::{since, sleep, steady};
use support::{File, Slice, layer, virtual_time};
use tracing::{Level, info_span};
use tracing_kineto::{DumpTrigger, Dumps, Format, KinetoLayerBuilder, Overflow, Spill, Trace};
use tracing_subscriber::prelude::*;

/// The smallest limit at which the records of a scenario still fit several times.
const LIMIT: u64 = 1 << 20;
/// Fills a sixteenth of a chunk with one span.
const TEXT: &str = match str::from_utf8(&[b'x'; 4000]) {
    Ok(text) => text,
    Err(_) => "",
};
/// Spans that replace all records of a buffer four times.
const FILLERS: usize = 4 * (LIMIT / 4096) as usize;

/// What a scenario's spans of one name must show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    name: &'static str,
    spans: u64,
    /// The enters of each span on both sides of the cut.
    before: u64,
    after: u64,
    decided: Decided,
    is_closed: bool,
    /// How many enters belong to one call if each outermost enter is a call.
    nested: u64,
}

/// How the calls of a span are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    /// One call, from the first enter on.
    AtFirst,
    /// One call, known when the span closes.
    AtClose,
    /// Each outermost enter is a call.
    EachEnter,
}

impl Expected {
    const fn new(decided: Decided, name: &'static str, spans: u64, before: u64, after: u64) -> Expected {
        Expected { name, spans, before, after, decided, is_closed: true, nested: 1 }
    }

    /// Returns the expectation for spans that are one call because their first enter directly follows their creation.
    pub(super) const fn direct(name: &'static str, spans: u64, before: u64, after: u64) -> Expected {
        Expected::new(Decided::AtFirst, name, spans, before, after)
    }

    /// Returns the expectation for spans that are one call because their close directly follows an exit.
    pub(super) const fn closing(name: &'static str, spans: u64, before: u64, after: u64) -> Expected {
        Expected::new(Decided::AtClose, name, spans, before, after)
    }

    /// Returns the expectation for spans of which each enter is a call.
    pub(super) const fn each(name: &'static str, spans: u64, before: u64, after: u64) -> Expected {
        Expected::new(Decided::EachEnter, name, spans, before, after)
    }

    pub(super) const fn open(self) -> Expected {
        Expected { is_closed: false, ..self }
    }

    pub(super) const fn nested(self, nested: u64) -> Expected {
        Expected { nested, ..self }
    }

    /// Returns calls, enters and tracks in a trace with only these enters of each span.
    fn row(&self, enters: u64, is_closed: bool) -> [u64; 3] {
        let is_one_call = match self.decided {
            Decided::AtFirst => true,
            Decided::AtClose => is_closed,
            Decided::EachEnter => false,
        };
        let has_track = is_one_call && enters > if is_closed { 2 } else { 1 };
        let calls = if is_one_call { u64::from(enters > 0) } else { enters / self.nested };
        [calls, enters, u64::from(has_track)].map(|each| each * self.spans)
    }

    fn whole(&self) -> [u64; 3] {
        self.row(self.before + self.after, self.is_closed)
    }

    /// Returns the figures of the part before the cut, in which the span is open if it is entered later.
    fn first_part(&self) -> [u64; 3] {
        self.row(self.before, self.is_closed && self.after == 0)
    }

    fn last_part(&self) -> [u64; 3] {
        self.row(self.after, self.is_closed)
    }
}

/// Calls, enters and tracks by name.
pub(super) type Figures = BTreeMap<String, [u64; 3]>;

fn expected(scenario: &Scenario, of: impl Fn(&Expected) -> [u64; 3]) -> Figures {
    let mut figures = Figures::new();
    for row in scenario.expected {
        let sum = figures.entry(row.name.to_owned()).or_default();
        of(row).into_iter().zip(sum).for_each(|(more, sum)| *sum += more);
    }
    figures.retain(|_, figures| figures[1] > 0);
    figures
}

/// Returns the figures of a trace for the names that the scenario gives.
fn figures(scenario: &Scenario, trace: &Trace) -> Figures {
    let mut figures = all_figures(trace);
    figures.retain(|name, _| scenario.expected.iter().any(|row| row.name == name));
    figures
}

pub(super) fn all_figures(trace: &Trace) -> Figures {
    let mut figures = Figures::new();
    for row in trace.events().averages().compute().ops() {
        figures.insert(row.name().to_owned(), [row.count(), row.enters(), 0]);
    }
    let mut file = Vec::new();
    trace.write(&mut file, Format::Json).unwrap();
    // Only these rows are parsed, since the others may be long.
    let begins = str::from_utf8(&file).unwrap().lines().filter(|line| line.contains(r#""ph":"b""#));
    for begin in begins {
        let begin: serde_json::Value = serde_json::from_str(begin.trim().trim_end_matches(',')).unwrap();
        figures.entry(begin["name"].as_str().unwrap().to_owned()).or_default()[2] += 1;
    }
    figures
}

/// Records a scenario; `cut` gets the work to do between its two halves.
fn record(
    scenario: &Scenario,
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    cut: &dyn Fn(),
) -> Trace {
    let (layer, guard) = layer(|builder| match scenario.filter {
        Some(filter) => configure(builder.filter(filter.parse().unwrap())),
        None => configure(builder),
    });
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || (scenario.run)(cut));
    guard.finish().unwrap()
}

fn with_level(builder: KinetoLayerBuilder, level: Option<Level>) -> KinetoLayerBuilder {
    match level {
        Some(level) => builder.events(level),
        None => builder,
    }
}

/// Compares figures, and fails at the end with all differences.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare<T: std::fmt::Debug + PartialEq>(&mut self, of: &str, level: Option<Level>, found: &T, expected: &T) {
        if found != expected {
            self.0.push(format!("{of} {level:?}\n   found {found:?}\nexpected {expected:?}"));
        }
    }

    #[track_caller]
    fn check(self) {
        assert!(self.0.is_empty(), "\n{}", self.0.join("\n"));
    }
}

const LEVELS: [Option<Level>; 2] = [None, Some(Level::DEBUG)];

#[test]
fn calls_follow_from_the_life_of_each_span() {
    let mut differences = Differences::default();
    for scenario in ALL {
        for level in LEVELS {
            let trace = record(scenario, |builder| with_level(builder, level), &|| ());
            let found = figures(scenario, &File::of(trace).trace);
            differences.compare(scenario.name, level, &found, &expected(scenario, Expected::whole));
        }
    }
    differences.check();
}

#[test]
fn calls_are_equal_for_each_selected_target() {
    let mut differences = Differences::default();
    for (nth, scenario) in FILTERED.iter().enumerate() {
        for level in LEVELS {
            let trace = record(scenario, |builder| with_level(builder, level), &|| ());
            let found = figures(scenario, &trace);
            let of = format!("{nth}: {}", scenario.name);
            differences.compare(&of, level, &found, &expected(scenario, Expected::whole));
        }
    }
    differences.check();
}

/// The spans are deeper than a thread's frames, so that another path records them.
#[test]
fn calls_are_equal_below_many_spans() {
    let mut differences = Differences::default();
    for scenario in ALL {
        let (layer, guard) = layer(|builder| builder);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let around: Vec<_> = (0..super::FRAMES + 40).map(|_| info_span!("around").entered()).collect();
            (scenario.run)(&|| ());
            around.into_iter().rev().for_each(drop);
        });
        let found = figures(scenario, &guard.finish().unwrap());
        differences.compare(scenario.name, None, &found, &expected(scenario, Expected::whole));
    }
    differences.check();
}

/// Watched spans are in the span table from their creation on.
#[test]
fn calls_are_equal_when_spans_are_watched() {
    let mut differences = Differences::default();
    for scenario in ALL {
        let folder = tempfile::tempdir().unwrap();
        let slow = |name| DumpTrigger::slow_span(name, Duration::from_secs(3600));
        let watch = |builder: KinetoLayerBuilder| {
            let builder = builder.output(folder.path().join("app.json")).overflow(Overflow::Stop);
            let names = scenario.expected.iter().map(|row| row.name).chain(["else", "other", "unused"]);
            builder.dumps(Dumps::on(names.map(slow)))
        };
        let found = figures(scenario, &record(scenario, watch, &|| ()));
        differences.compare(scenario.name, None, &found, &expected(scenario, Expected::whole));
    }
    differences.check();
}

fn fill() {
    (0..FILLERS).for_each(|_| info_span!("filler", TEXT).in_scope(|| ()));
}

#[test]
fn calls_stay_decided_when_their_first_enters_are_replaced() {
    let mut differences = Differences::default();
    for scenario in ALL {
        for level in LEVELS {
            let newest = |builder: KinetoLayerBuilder| {
                with_level(builder.overflow(Overflow::KeepNewest).buffer_limit_bytes(LIMIT), level)
            };
            let trace = record(scenario, newest, &fill);
            assert!(trace.stats().before_window > 0, "{}", scenario.name);
            let found = figures(scenario, &trace);
            differences.compare(scenario.name, level, &found, &expected(scenario, Expected::last_part));
        }
    }
    differences.check();
}

pub(super) fn segments(folder: &Path) -> Vec<PathBuf> {
    let inner = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = inner.filter(|path| path.is_dir()).flat_map(|path| std::fs::read_dir(path).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let mut complete: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "kseg")).collect();
    complete.sort();
    complete
}

/// Records a scenario into two segments.
fn record_spilled(scenario: &Scenario, level: Option<Level>) -> Vec<Trace> {
    let folder = tempfile::tempdir().unwrap();
    let (layer, guard) = layer(|builder| {
        let builder = builder.overflow(Overflow::Spill).spill(Spill::new().folder(folder.path()));
        with_level(builder.buffer_limit_bytes(LIMIT), level)
    });
    let cut = || {
        let begun = steady();
        // A quarter of the limit. Then each full chunk makes the writer check whether a segment is due.
        let mut spans = FILLERS / 16;
        while segments(folder.path()).is_empty() {
            (0..spans).for_each(|_| info_span!("filler", TEXT).in_scope(|| ()));
            assert!(since(begun) < Duration::from_secs(60), "{}", scenario.name);
            sleep(Duration::from_millis(10));
            spans = 16;
        }
    };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || (scenario.run)(&cut));
    drop(guard);
    segments(folder.path()).into_iter().map(|path| Trace::read_segment(path).unwrap().trace).collect()
}

#[virtual_time]
fn calls_stay_decided_when_their_first_enters_are_spilled() {
    let mut differences = Differences::default();
    for scenario in ALL {
        for level in LEVELS {
            let parts = record_spilled(scenario, level);
            assert_eq!(parts.len(), 2, "{}", scenario.name);
            let parts: Vec<_> =
                parts.iter().map(|part| figures(scenario, part)).filter(|part| !part.is_empty()).collect();
            let expected = [Expected::first_part, Expected::last_part].map(|of| expected(scenario, of));
            let expected: Vec<_> = expected.into_iter().filter(|part| !part.is_empty()).collect();
            differences.compare(scenario.name, level, &parts, &expected);
        }
    }
    differences.check();
}

/// Runs `work` while two threads take all the time they get.
pub(super) fn under_load<T>(work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let busy = || {
                while !is_done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, busy).unwrap();
        }
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn shared_span_counts_each_enter_in_every_run() {
    let shared = scenario("span_shared_by_threads");
    let run = || figures(shared, &record(shared, |builder| builder, &|| ()));
    let mut runs: Vec<_> = (0..25).map(|_| run()).collect();
    runs.extend(under_load(|| (0..25).map(|_| run()).collect::<Vec<_>>()));
    assert!(runs.iter().all(|found| *found == expected(shared, Expected::whole)), "{runs:?}");
}

fn scenario(name: &str) -> &'static Scenario {
    ALL.iter().find(|scenario| scenario.name == name).unwrap()
}

/// Checks that all enters are slices or omitted, and that the slices that `is_inner` selects are inside those of `outer`.
fn check_inner_slices(scenario: &Scenario, outer: &str, is_inner: impl Fn(&Slice) -> bool) {
    for _ in 0..20 {
        let file = File::of(record(scenario, |builder| builder, &|| ()));
        let around = file.all(outer);
        let is_around = |inner: &Slice, outer: &Slice| {
            (outer.tid, outer.args["External id"] != inner.args["External id"]) == (inner.tid, true)
                && outer.start <= inner.start
                && inner.end <= outer.end
        };
        let inner: Vec<_> = file.slices().iter().filter(|slice| is_inner(slice)).collect();
        assert!(inner.len() >= 4, "{}", file.tree(&[]));
        let is_inside = |inner: &&Slice| around.iter().any(|outer| is_around(inner, outer));
        assert!(inner.iter().all(is_inside), "{}", file.tree(&[]));
        let stats = file.trace.stats();
        let others = file.slices().iter().filter(|slice| scenario.expected.iter().all(|row| row.name != slice.name));
        let enters: u64 = scenario.expected.iter().map(|row| row.whole()[1]).sum();
        assert_eq!(stats.slices + stats.omitted_enters, enters + others.count() as u64);
    }
}

#[test]
fn drop_of_a_nested_future_is_inside_of_its_parent() {
    check_inner_slices(scenario("nested_instrumented_futures"), "outer", |slice| slice.name == "inner");
    let is_inner = |slice: &Slice| slice.name == "spawned" && slice.args.get("reentered").is_some();
    check_inner_slices(scenario("future_instrumented_twice"), "spawned", is_inner);
}

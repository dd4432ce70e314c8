//! A program in WebAssembly that uses the layer, the profiler and what works without them; `run.mjs` starts it.
//!
//! Nothing in it is conditional on the platform, as in a program that also has native builds.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::panic;
use std::time::Duration;
use tracing::field::Empty;
use tracing::span::{Attributes, Id};
use tracing::{Level, Subscriber, info, info_span};
use tracing_kineto::activity::{Activity, ActivityType, ActivityTypes, Body, NO_ARGS, Track};
use tracing_kineto::analysis::{Events, ReadOptions};
use tracing_kineto::chrome::ChromeLayerBuilder;
use tracing_kineto::integration::{CpuTraceBuilder, DeferredEvents};
use tracing_kineto::memory::{self, Category, Device, Tracked};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{
    Doctor, ErrorKind, Fields, Format, KinetoLayer, Mode, Profiler, Schedule, StepState, Timestamp, Trace, annotate,
    counter, profile,
};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

#[global_allocator]
static ALLOCATOR: Tracked = Tracked::system();

thread_local! {
    /// What the page reads after a call: a result or the text of a panic.
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
    static SPANS: Cell<u32> = const { Cell::new(0) };
}

/// Counts the spans that reach another layer.
struct Counting;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Counting {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        SPANS.set(SPANS.get() + 1);
    }
}

/// Runs the program; returns the length of the text, which is what `start` says.
#[unsafe(no_mangle)]
pub extern "C" fn run() -> usize {
    panic::set_hook(Box::new(|panic| set_text(panic.to_string())));
    let text = program().expect("the program fails nowhere but where it expects to");
    set_text(text);
    text_length()
}

/// Returns how many spans the other layer has seen.
#[unsafe(no_mangle)]
pub extern "C" fn spans() -> u32 {
    SPANS.get()
}

/// Returns where the text is.
#[unsafe(no_mangle)]
pub extern "C" fn text() -> *const u8 {
    TEXT.with_borrow(|text| text.as_ptr())
}

/// Returns how many bytes the text has.
#[unsafe(no_mangle)]
pub extern "C" fn text_length() -> usize {
    TEXT.with_borrow(String::len)
}

fn set_text(text: String) {
    TEXT.set(text);
}

fn program() -> Result<String, Box<dyn Error>> {
    // Of a block, before anything is installed; the program can still install its own subscriber.
    assert_eq!(profile!("block", { 6 * 7 }), 42);
    let events = DeferredEvents::new("gpu");
    let (layer, guard) = KinetoLayer::builder()
        .output("app.pt.trace.json.gz")
        .config_file("libkineto.conf")
        .mode(Mode::Kineto)
        .schedule(Schedule::new(1, 1, 1)?)
        .collector(events.clone())
        .events(Level::INFO)
        .with_memory(true)
        .fields(Fields::new().while_idle(true))
        .build()?;
    let profiler = guard.profiler();
    let subscriber = tracing_subscriber::registry().with(profiler.record_while("work")).with(layer).with(Counting);
    tracing::subscriber::set_global_default(subscriber)?;
    for n in 0..10 {
        let _step = annotate!("ProfilerStep#{}", n).entered();
        work(n);
        assert!(matches!(profiler.step().state, StepState::Nothing { .. }));
    }
    let (submission, answer) = events.submit_as("submit", 0, || 42);
    events.resolve(submission, "kernel", 1, 2);
    assert_eq!((submission.is_recorded(), events.is_recording(), events.now(), answer), (false, false, 0, 42));
    let text = use_profiler(&profiler)?;
    use_allocator();
    use_own_records()?;
    use_chrome();
    assert!(KinetoLayer::from_env()?.0.is_none() && KinetoLayer::try_from_env()?.0.is_none());
    assert!(Trace::of(|| work(0)).is_err());
    assert_ne!(tracing_kineto::thread_id(), 0);
    let diagnosis = Doctor::new().with_start(true).collector(events).examine();
    assert!(!diagnosis.is_well() && diagnosis.to_json().contains("WebAssembly"), "{diagnosis}");
    tracing_kineto::flush_all();
    guard.flush().expect_err("nothing is recorded");
    drop(guard);
    profiler.start().expect_err("the guard is dropped");
    Ok(text)
}

/// Uses the API of tracing-chrome, with the default file.
fn use_chrome() {
    let (layer, guard) = ChromeLayerBuilder::new().include_args(true).build();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(0));
    guard.start_new(None);
    guard.flush();
}

/// Does what a step does: two spans, one of which is entered out of order, events and values.
fn work(n: u32) {
    let span = info_span!("work", n, late = Empty);
    let follows = info_span!("follows");
    follows.follows_from(&span);
    let entered = span.clone().entered();
    span.record("late", 1.5);
    let inner = follows.entered();
    info!(n, "an event");
    counter!("queue", depth = n);
    drop(entered);
    drop(inner);
}

/// Calls all that can be called of a profiler; returns what `start` says.
fn use_profiler(profiler: &Profiler) -> Result<String, Box<dyn Error>> {
    let error = profiler.start().expect_err("nothing can be recorded");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let libkineto = Libkineto::of(profiler);
    let slice = |at| profiler.record_slice("op", "backend", at, at, NO_ARGS);
    let others = [
        profiler.stop().map(drop),
        libkineto.prepare().map(drop),
        profiler.record().map(drop),
        profiler.pause(),
        profiler.resume(),
        libkineto.pause_activities(ActivityTypes::ALL),
        libkineto.resume_activities(ActivityTypes::ALL),
        profiler.enable_in_this_thread().map(drop),
        profiler.disable_in_this_thread(),
        profiler.snapshot().map(drop),
        profiler.flush(),
        profiler.schedule(None),
        libkineto.start_memory_profile(),
        libkineto.stop_memory_profile().map(drop),
        libkineto.export_memory_profile("memory.json"),
        libkineto.log_invariant_violation("a", "b", ""),
        libkineto.transfer(CpuTraceBuilder::new(Timestamp::default(), "own"), Timestamp::default()),
        slice(Timestamp::default()),
    ];
    for other in others {
        let other = other.expect_err("nothing can be recorded");
        assert_eq!(other.to_string(), error.to_string());
    }
    profiler.add_metadata("key", "value");
    profiler.add_metadata_json("key", "{}")?;
    libkineto.preset_metadata("key", "value");
    libkineto.preset_metadata_json("key", "{}")?;
    profiler.after_fork()?;
    assert!(!profiler.is_recording() && profiler.collectors().is_empty() && libkineto.traces().is_empty());
    assert!(libkineto.supported_activities().is_empty() && libkineto.trace_id().is_none());
    assert_eq!((libkineto.iteration(), libkineto.count_iteration("optimizer")), (0, 0));
    assert_eq!(profile!(profiler, "block", { 6 * 7 }), 42);
    Ok(error.to_string())
}

/// Reports memory as an allocator does.
fn use_allocator() {
    let _parameters = memory::scope(Category::Parameter);
    memory::record(0x1000, 64, 64, 128, Device::CPU);
    memory::record_out_of_memory(64, 64, 128, Device::CPU);
    assert!(!memory::is_enabled() && memory::usage().live_bytes > 0);
}

/// Makes a trace of the program's own records, writes it, and reads it back.
fn use_own_records() -> Result<(), Box<dyn Error>> {
    let at = Timestamp::from_nanos;
    let mut builder = CpuTraceBuilder::new(at(1_000), "own");
    for n in 0..3 {
        let body = Body::Slice { start: at(1_000 + n * 100), end: at(1_050 + n * 100) };
        builder.push(&Activity::new(ActivityType::CpuOp, "op", Track::new(0, 1), body))?;
    }
    let trace = builder.finish(at(2_000));
    let mut file = Vec::new();
    trace.write(&mut file, Format::Json)?;
    let events = ReadOptions::new().time_limit(Duration::from_secs(60)).from_reader(file.as_slice())?;
    let ops = |events: &Events| events.iter().filter(|event| event.name() == "op").count();
    assert_eq!((ops(&events), ops(&trace.events())), (3, 3));
    assert!(events.key_averages().table().to_string().contains("op"));
    trace.save("own.pt.trace.json").expect_err("there are no files");
    Ok(())
}

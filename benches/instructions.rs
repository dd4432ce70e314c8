//! Creates spans for an instruction counter; run by `scripts/instructions`, which evaluates the result.
//!
//! ```sh
//! instructions <base|ours|newest|idle|told|unseen|stacks:FRAMES> <empty|fields|again>
//! instructions <base|ours|counted> alloc
//! ```
//!
//! Subjects:
//!
//! - `base`: a registry with a layer that has only default methods, the baseline of any program that uses `tracing`.
//! - `ours`: a registry with [`KinetoLayer`], recording.
//! - `newest`: the same where new records replace old ones.
//! - `told`: the same as `ours` with a collector that takes each slice and ignores it.
//! - `idle`: not recording; with KINETO_USE_DAEMON, waiting for requests.
//! - `unseen`: recording, but not the thread that creates the spans.
//! - `stacks`: the same as `ours` with call stacks, if built with the feature `backtrace`.
//!
//! `alloc` allocates and frees: by the system's allocator (`base`), by [`Tracked`] while memory is recorded (`ours`), and by
//! [`Tracked`] otherwise (`counted`). Without arguments nothing happens, so that `cargo bench` and `cargo test --benches`
//! skip it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use tracing::subscriber::set_global_default;
use tracing::{Span, info_span};
use tracing_kineto::activity::CorrelationId;
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{Capabilities, RecordSink, Recording, Selection, Unavailable};
use tracing_kineto::memory::Tracked;
use tracing_kineto::{
    ActivityType, ActivityTypes, KinetoGuard, KinetoLayer, Overflow, Stacks, ThreadFilter, Timestamp,
};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

const BATCHES: u32 = 20;
const CHILDREN: u64 = 1000;

/// A layer with only default methods.
struct DefaultMethods;

impl<S: tracing::Subscriber> Layer<S> for DefaultMethods {}

/// A collector that takes each slice and records nothing.
#[derive(Clone, Debug)]
struct Told;

impl Collector for Told {
    fn name(&self) -> &'static str {
        "told"
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

impl Recording for Told {
    fn push(&self, id: CorrelationId) -> bool {
        black_box(id);
        true
    }
    fn stop(&self, _: Timestamp, _: std::time::Instant) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [subject, work] = arguments.as_slice() else { return Ok(()) };
    if work == "alloc" {
        return allocate(subject);
    }
    let guard = install(subject)?;
    let child = match work.as_str() {
        "empty" => empty,
        "fields" => fields,
        "again" => again,
        other => return Err(format!("no such work: {other}").into()),
    };
    batch(child);
    measured_spans(child);

    // The counted spans must have been recorded.
    if let Some(guard) = guard {
        let stats = guard.finish()?.stats();
        let slices = stats.slices + stats.before_window;
        let made = if subject == "unseen" { 0 } else { u64::from(BATCHES + 1) * (CHILDREN + 1) };
        if slices != made {
            return Err(format!("{made} spans were created, {slices} recorded").into());
        }
    }
    Ok(())
}

/// Allocates and frees under the subject's allocator.
fn allocate(subject: &str) -> Result<(), Box<dyn std::error::Error>> {
    static TRACKED: Tracked = Tracked::system();
    let builder = KinetoLayer::builder().no_output().with_memory(subject == "ours");
    let (layer, guard) = builder.build()?;
    let allocator: &dyn GlobalAlloc = if subject == "base" { &System } else { &TRACKED };
    allocate_and_free(allocator);
    measured_spans_of_memory(allocator);
    drop(layer);
    let records = guard.finish()?.stats().memory_events;
    let made = if subject == "ours" { 2 * u64::from(BATCHES + 1) * CHILDREN } else { 0 };
    if records == made { Ok(()) } else { Err(format!("{made} records were expected, {records} were recorded").into()) }
}

/// The measured allocations.
#[inline(never)]
fn measured_spans_of_memory(allocator: &dyn GlobalAlloc) {
    for _ in 0..BATCHES {
        allocate_and_free(allocator);
    }
}

#[allow(unsafe_code, reason = "an allocator has no safe form")]
fn allocate_and_free(allocator: &dyn GlobalAlloc) {
    let layout = Layout::new::<[u64; 8]>();
    for _ in 0..CHILDREN {
        // SAFETY: the layout is not empty.
        let pointer = black_box(unsafe { allocator.alloc(layout) });
        // SAFETY: it was allocated just now, with that layout.
        unsafe { allocator.dealloc(pointer, layout) };
    }
}

fn install(subject: &str) -> Result<Option<KinetoGuard>, Box<dyn std::error::Error>> {
    match subject {
        "base" => {
            set_global_default(Registry::default().with(DefaultMethods))?;
            Ok(None)
        }
        "ours" => {
            let (layer, guard) = KinetoLayer::builder().no_output().build()?;
            set_global_default(Registry::default().with(layer))?;
            Ok(Some(guard))
        }
        "newest" => {
            // A third of the spans fit.
            let builder = KinetoLayer::builder().no_output().overflow(Overflow::KeepNewest).buffer_limit_bytes(1 << 19);
            let (layer, guard) = builder.build()?;
            set_global_default(Registry::default().with(layer))?;
            Ok(Some(guard))
        }
        "idle" => {
            let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build()?;
            set_global_default(Registry::default().with(layer))?;
            // Lives as long as the process.
            static GUARD: std::sync::OnceLock<KinetoGuard> = std::sync::OnceLock::new();
            GUARD.get_or_init(|| guard);
            Ok(None)
        }
        "told" => {
            let (layer, guard) = KinetoLayer::builder().no_output().collector(Told).build()?;
            set_global_default(Registry::default().with(layer))?;
            Ok(Some(guard))
        }
        "unseen" => {
            let (layer, guard) = KinetoLayer::builder().no_output().threads(ThreadFilter::Registered).build()?;
            set_global_default(Registry::default().with(layer))?;
            Ok(Some(guard))
        }
        other => {
            let frames = other.strip_prefix("stacks:").ok_or_else(|| format!("no such subject: {other}"))?;
            let builder = KinetoLayer::builder().no_output().with_stack(Stacks::new().frames(frames.parse()?));
            let (layer, guard) = builder.build()?;
            set_global_default(Registry::default().with(layer))?;
            Ok(Some(guard))
        }
    }
}

/// The measured spans: callgrind collects while a function of this name runs.
#[inline(never)]
fn measured_spans(child: fn(u64)) {
    for _ in 0..BATCHES {
        batch(child);
    }
}

fn batch(child: fn(u64)) {
    let _root = info_span!("root").entered();
    (0..CHILDREN).for_each(|i| child(black_box(i)));
}

fn empty(i: u64) {
    let _span = info_span!("op").entered();
    black_box(i);
}

fn fields(i: u64) {
    let _span = info_span!("op", a = i, b = 3.5f64, c = "float32").entered();
    black_box(i);
}

/// Enters a span that is created once and entered repeatedly, like a layer of a model.
fn again(i: u64) {
    thread_local!(static MADE_ONCE: Span = info_span!("again", layer = 1u64));
    MADE_ONCE.with(|span| {
        let _entered = span.enter();
        black_box(i);
    });
}

//! A plugin in Rust, for a fictitious accelerator like Meta's: it runs functions on one of its streams, and counts the bytes
//! that its memory has moved.
//!
//! ```text
//! cargo build --release -p kineto-plugin-mtia
//! KINETO_PLUGIN_LIB_DIR_PATH=target/release KINETO_ACTIVITIES=cpu,mtia ./app
//! ```

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tracing_kineto::integration::plugin::{EventType, NotStarted, Plugin, PluginEvent, TraceBuilder};
use tracing_kineto::{ArgValue, Timestamp};

/// A call of the program, and its device work.
struct Run {
    function: String,
    call: (Timestamp, Timestamp),
    work: (Timestamp, Timestamp),
    thread: i32,
    stream: i32,
    span: u64,
}

/// The device's work; the device runs whether or not a recording does.
static RUNS: Mutex<Option<Vec<Run>>> = Mutex::new(None);

thread_local! {
    /// The spans that the thread is inside.
    static SPANS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The device's number.
const DEVICE: i32 = 17;
/// The duration of a function, in nanoseconds.
const TOOK: u64 = 10_000;
/// The bytes that a function moves.
const MOVES: u64 = 4096;

fn runs() -> MutexGuard<'static, Option<Vec<Run>>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// Runs a function on a stream; programs call this.
///
/// # Safety
/// `function` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtiaRunFunction(function: *const c_char, stream: c_int) {
    let called = now();
    // SAFETY: by the caller's contract it is a C string.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy().into_owned();
    let returned = now();
    let Some(runs) = &mut *runs() else { return };
    let free = runs.iter().rev().find(|run| run.stream == stream).map_or(returned, |run| run.work.1);
    let began = returned.max(free);
    // SAFETY: gettid takes no arguments.
    let thread = unsafe { libc::gettid() };
    runs.push(Run {
        function,
        call: (called, returned),
        work: (began, Timestamp::from_nanos(began.as_nanos() + TOOK)),
        thread,
        stream,
        span: SPANS.with_borrow(|spans| spans.last().copied().unwrap_or(0)),
    });
}

/// A recording of events of these types.
struct Mtia(Vec<EventType>);

impl Mtia {
    fn add(&self, out: &mut TraceBuilder<'_>, event: &PluginEvent<'_>, args: &[(&str, ArgValue<'_>)]) {
        if self.0.contains(&event.kind) {
            out.event(event, args);
        }
    }
}

impl Plugin for Mtia {
    const NAME: &'static str = "mtia";
    const TYPES: &'static [EventType] =
        &[EventType::MtiaRuntime, EventType::MtiaCcpEvents, EventType::MtiaInsight, EventType::MtiaCounters];

    fn start(types: &[EventType]) -> Result<Self, NotStarted> {
        *runs() = Some(Vec::new());
        Ok(Mtia(types.to_vec()))
    }

    fn push(&self, id: u64) {
        SPANS.with_borrow_mut(|spans| spans.push(id));
    }

    fn pop(&self) {
        SPANS.with_borrow_mut(|spans| spans.pop());
    }

    fn stop(&self) {}

    fn deliver(&self, out: &mut TraceBuilder<'_>) {
        out.device(DEVICE, "MTIA", "MTIA 17", 6_000_000);
        let runs = runs().take().unwrap_or_default();
        let mut moved = 0;
        for (run, correlation) in runs.iter().zip(1..) {
            let call = PluginEvent::new(EventType::MtiaRuntime, "runFunction");
            let (start, end) = run.call;
            let call = call.between(start, end).at(0, run.thread).correlated(correlation).within(run.span);
            self.add(out, &call, &[("cmd_name", ArgValue::Str(&run.function))]);

            let (start, end) = run.work;
            let work = PluginEvent::new(EventType::MtiaCcpEvents, &run.function);
            let work = work.between(start, end).at(DEVICE, run.stream).correlated(correlation).within(run.span);
            self.add(out, &work, &[("stream", ArgValue::I64(run.stream.into()))]);

            moved += MOVES;
            let counter = PluginEvent::new(EventType::MtiaCounters, "HBM").between(end, end).at(DEVICE, run.stream);
            self.add(out, &counter, &[("bytes", ArgValue::U64(moved))]);
        }
        if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
            let insight = PluginEvent::new(EventType::MtiaInsight, "power: 75 W").between(first.work.0, last.work.1);
            self.add(out, &insight.at(DEVICE, 1000), &[]);
            out.resource(DEVICE, 1000, "insight", 1000);
        }
    }
}

tracing_kineto::export_plugin!(Mtia);

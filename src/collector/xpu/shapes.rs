//! The layouts of PTI's records: libkineto's arguments, in its order.
//!
//! Times that PTI does not know are omitted; libkineto writes 0.

use super::records::{Kernel, Memcpy, Memset, Overhead, PeerMemcpy, Synchronization};
use crate::collector::{Name, RecordLayout, RecordView};
use crate::time::base_time;
use kineto_trace::activity::ArgValue;

/// The layouts of all records. They are variants of an enum, so that no two share an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum XpuShape {
    Kernel = 1,
    Copy = 2,
    PeerCopy = 3,
    Call = 4,
    Sync = 5,
    Communication = 6,
    Overhead = 7,
    Metrics = 8,
    Sample = 9,
}

/// A kernel: `[kernel id]`, the [common words of work](work_words), `[task begin]`, `[enqueue begin]`, `[node]`,
/// `[invocation]`, `[source line]`, `[whether there is a source file | its name]`.
pub(super) static KERNEL: XpuShape = XpuShape::Kernel;
/// A copy or a fill: `[operation id]`, the common words of work, `[bytes]`, `[whether there is a function | its
/// name]`.
pub(super) static COPY: XpuShape = XpuShape::Copy;
/// A copy between devices: like a copy, followed by `[from device | to device]`.
pub(super) static PEER_COPY: XpuShape = XpuShape::PeerCopy;
/// A call: no words.
pub(super) static CALL: XpuShape = XpuShape::Call;
/// A wait: `[context]`, `[queue]`, `[event]`, `[what | events]`, `[result]`.
pub(super) static SYNC: XpuShape = XpuShape::Sync;
/// A collective operation: `[communicator]`.
pub(super) static COMMUNICATION: XpuShape = XpuShape::Communication;
/// Overhead of PTI: `[1]`, `[duration]`, `[count]`.
pub(super) static OVERHEAD: XpuShape = XpuShape::Overhead;
/// The metrics of a kernel: `[kernel id]`, `[queue]`, then for each metric `[type | name with unit]`, `[value]`, and
/// finally `[u64::MAX]`.
pub(super) static METRICS: XpuShape = XpuShape::Metrics;
/// The same as counters: for each metric `[type | name]`, `[value]`, and finally `[u64::MAX]`.
pub(super) static SAMPLE: XpuShape = XpuShape::Sample;

/// The number of common words of work, after the first word.
const OF_WORK: usize = 5;
/// The flag of words that contain a name.
const NAMED: u64 = 1 << 32;

const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

fn named(name: Option<Name>) -> u64 {
    name.map_or(0, |name| NAMED | u64::from(name.0))
}

/// Returns how long before the start a time was, in a word that is 0 if the time is unknown.
fn before(start: u64, at: u64) -> u64 {
    if at == 0 { 0 } else { start.wrapping_sub(at) << 1 | 1 }
}

/// `[appended]`, `[submitted]`, `[context]`, `[sycl queue]`, `[l0 queue]`.
macro_rules! work_words {
    ($record:ident) => {{
        let start = $record.start();
        let (appended, submitted) = (before(start, $record.appended()), before(start, $record.submitted()));
        [appended, submitted, $record.context(), $record.sycl_queue(), $record.queue()]
    }};
}

pub(super) fn kernel_words(kernel: &Kernel<'_>, source: Option<Name>) -> [u64; 12] {
    let [appended, submitted, context, sycl_queue, queue] = work_words!(kernel);
    let start = kernel.start();
    let (task, enqueue) = (before(start, kernel.task_begin()), before(start, kernel.enqueue_begin()));
    let line = if source.is_some() { kernel.source_line() } else { 0 };
    [
        kernel.id(),
        appended,
        submitted,
        context,
        sycl_queue,
        queue,
        task,
        enqueue,
        kernel.node(),
        kernel.invocation().into(),
        line,
        named(source),
    ]
}

pub(super) fn copy_words(copy: &Memcpy<'_>, call: Option<Name>) -> [u64; 8] {
    let [appended, submitted, context, sycl_queue, queue] = work_words!(copy);
    [copy.id(), appended, submitted, context, sycl_queue, queue, copy.bytes(), named(call)]
}

pub(super) fn fill_words(fill: &Memset<'_>, call: Option<Name>) -> [u64; 8] {
    let [appended, submitted, context, sycl_queue, queue] = work_words!(fill);
    [fill.id(), appended, submitted, context, sycl_queue, queue, fill.bytes(), named(call)]
}

pub(super) fn peer_copy_words(copy: &PeerMemcpy<'_>, call: Option<Name>, from: i32, to: i32) -> [u64; 9] {
    let [appended, submitted, context, sycl_queue, queue] = work_words!(copy);
    let devices = pair(from.cast_unsigned(), to.cast_unsigned());
    [copy.id(), appended, submitted, context, sycl_queue, queue, copy.bytes(), named(call), devices]
}

pub(super) fn sync_words(sync: &Synchronization<'_>) -> [u64; 5] {
    [sync.context(), sync.queue(), sync.event(), pair(sync.what(), sync.events()), sync.result().into()]
}

pub(super) fn overhead_words(overhead: &Overhead<'_>) -> [u64; 3] {
    [1, overhead.duration(), overhead.count()]
}

type Each<'e> = &'e mut dyn FnMut(&str, ArgValue<'_>);

impl RecordLayout for XpuShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        match self {
            XpuShape::Kernel => kernel(record, each),
            XpuShape::Copy => copy(record, each),
            XpuShape::PeerCopy => {
                copy(record, each);
                each("fromDevice", ArgValue::I64(record.high(8).cast_signed().into()));
                each("toDevice", ArgValue::I64(record.low(8).cast_signed().into()));
            }
            XpuShape::Call => each("correlation", ArgValue::U64(record.correlation)),
            XpuShape::Sync => sync(record, each),
            XpuShape::Communication => each("Communicator_id", ArgValue::U64(record.word(0))),
            XpuShape::Overhead => overhead(record, each),
            XpuShape::Metrics => {
                each("kernel_id", ArgValue::U64(record.word(0)));
                // In libkineto's format of pointers.
                each("queue", ArgValue::Str(&format!("0x{:x}", record.word(1))));
                metrics(record, 2, each);
            }
            XpuShape::Sample => metrics(record, 0, each),
        }
    }
}

fn kernel(record: &RecordView<'_>, each: Each<'_>) {
    const AFTER: usize = 1 + OF_WORK;
    each("correlation", ArgValue::U64(record.correlation));
    time(record, 1, ["appended", "appended_rel_to_start"], each);
    time(record, 2, ["submitted", "submitted_rel_to_start"], each);
    time(record, AFTER, ["sycl_task_begin", "sycl_task_begin_rel_to_start"], each);
    time(record, AFTER + 1, ["sycl_enqk_begin", "sycl_enqk_begin_rel_to_start"], each);
    place(record, each);
    if record.high(AFTER + 5) != 0 {
        each("source_file_name", ArgValue::Str(record.text(AFTER + 5)));
        each("source_line_number", ArgValue::U64(record.word(AFTER + 4)));
    }
    each("kernel_id", ArgValue::U64(record.word(0)));
    each("sycl_node_id", ArgValue::U64(record.word(AFTER + 2)));
    each("sycl_invocation_id", ArgValue::U64(record.word(AFTER + 3)));
}

/// Writes the arguments of copies and fills.
#[expect(clippy::cast_precision_loss, reason = "a ratio, written with a few digits")]
fn copy(record: &RecordView<'_>, each: Each<'_>) {
    const AFTER: usize = 1 + OF_WORK;
    each("correlation", ArgValue::U64(record.correlation));
    if record.high(AFTER + 1) != 0 {
        each("l0 call", ArgValue::Str(record.text(AFTER + 1)));
    }
    time(record, 1, ["appended", "appended_rel_to_start"], each);
    time(record, 2, ["submitted", "submitted_rel_to_start"], each);
    place(record, each);
    // The key is misspelt in libkineto.
    each("memory opration id", ArgValue::U64(record.word(0)));
    let bytes = record.word(AFTER);
    each("bytes", ArgValue::U64(bytes));
    let duration = record.end.since(record.start);
    if duration > 0 {
        each("memory bandwidth (GB/s)", ArgValue::F64(bytes as f64 / duration as f64));
    }
}

/// Writes where work ran.
fn place(record: &RecordView<'_>, each: Each<'_>) {
    each("device", ArgValue::I64(record.device_id.into()));
    // HTA recognises device rows by `stream`, and expects a number for `context`; libkineto writes a string and no
    // stream.
    each("stream", ArgValue::I64(record.stream.into()));
    each("context", ArgValue::U64(record.word(3)));
    each("sycl queue", ArgValue::U64(record.word(4)));
    each("l0 queue", ArgValue::Str(&handle(record.word(5))));
}

fn handle(handle: u64) -> String {
    format!("0x{handle:016x}")
}

/// Writes a time and its distance from the start, in microseconds. The time is relative to the base of a file, like
/// the times of events.
fn time(record: &RecordView<'_>, at: usize, keys: [&str; 2], each: Each<'_>) {
    let word = record.word(at);
    if word & 1 == 0 {
        return;
    }
    let from_start = -i128::from(word.cast_signed() >> 1);
    let from_base = i128::from(record.start.since(base_time(record.start))) + from_start;
    for (key, ns) in keys.into_iter().zip([from_base, from_start]) {
        let sign = if ns < 0 { "-" } else { "" };
        let ns = ns.unsigned_abs();
        each(key, ArgValue::Str(&format!("{sign}{}.{:03}", ns / 1000, ns % 1000)));
    }
}

fn sync(record: &RecordView<'_>, each: Each<'_>) {
    const TYPES: [&str; 8] = [
        "UNKNOWN",
        "GPU_BARRIER_EXECUTION",
        "GPU_BARRIER_MEMORY",
        "HOST_FENCE",
        "HOST_EVENT",
        "HOST_COMMAND_LIST",
        "HOST_COMMAND_QUEUE",
        "HOST_DEVICE",
    ];
    each("correlation", ArgValue::U64(record.correlation));
    each("Type", ArgValue::Str(TYPES.get(record.high(3) as usize).unwrap_or(&TYPES[0])));
    each("Context_handle", ArgValue::Str(&handle(record.word(0))));
    each("Queue_handle", ArgValue::Str(&handle(record.word(1))));
    each("Event_handle", ArgValue::Str(&handle(record.word(2))));
    each("Number_wait_events", ArgValue::U64(record.low(3).into()));
    each("Return_code", ArgValue::I64(record.low(4).into()));
}

fn overhead(record: &RecordView<'_>, each: Each<'_>) {
    let (cost, observed) = (record.word(1), record.end.since(record.start));
    let occupancy = u128::from(cost) * 100 / u128::from(observed.max(1));
    each("overhead cost", ArgValue::U64(cost));
    each("overhead occupancy", ArgValue::Str(&format!("{}%", if observed == 0 { 0 } else { occupancy })));
    each("overhead count", ArgValue::U64(record.word(2)));
}

/// Writes the values of metrics by their types, starting at word `from`.
fn metrics(record: &RecordView<'_>, from: usize, each: Each<'_>) {
    for at in (from..usize::from(u8::MAX)).step_by(2) {
        if record.word(at) == u64::MAX {
            return;
        }
        let (name, value) = (record.text(at), record.word(at + 1));
        match record.high(at) {
            0 => each(name, ArgValue::U64(record.low(at + 1).into())),
            2 => each(name, ArgValue::F64(f32::from_bits(record.low(at + 1)).into())),
            3 => each(name, ArgValue::F64(f64::from_bits(value))),
            // Counters are numbers.
            4 if from == 0 => each(name, ArgValue::U64(u64::from(value & 0xFF != 0))),
            4 => each(name, ArgValue::Bool(value & 0xFF != 0)),
            6 => each(name, ArgValue::U64(value & 0xFF)),
            7 => each(name, ArgValue::U64(value & 0xFFFF)),
            // A text, whose characters are not kept.
            5 => {}
            _ => each(name, ArgValue::U64(value)),
        }
    }
}

//! The layouts of PTI's records: libkineto's arguments, in its order.
//!
//! Times that PTI does not know are omitted; libkineto writes 0.

use super::records::{Kernel, Memcpy, Memset, Overhead, PeerMemcpy, Synchronization};
use crate::records::packed::{PackedValue, packed, prepend_words};
use crate::registry::layouts;
use crate::{Name, RecordLayout, RecordView};
use kineto_base::time::base_time;
use kineto_model::activity::ArgValue;

layouts! {
    /// The layouts of PTI's records.
    XpuShape
    KERNEL = Kernel: 1, "xpu.kernel";
    /// A copy or a fill.
    COPY = Copy: 2, "xpu.copy";
    /// A copy between devices.
    PEER_COPY = PeerCopy: 3, "xpu.peer_copy";
    /// A call: no words.
    CALL = Call: 4, "xpu.call";
    /// A wait.
    SYNC = Sync: 5, "xpu.sync";
    /// A collective operation: `[communicator]`.
    COMMUNICATION = Communication: 6, "xpu.communication";
    /// Overhead of PTI.
    OVERHEAD = Overhead: 7, "xpu.overhead";
    /// The metrics of a kernel: `[kernel id]`, `[queue]`, then for each metric `[type | name with unit]`, `[value]`, and
    /// finally `[u64::MAX]`.
    METRICS = Metrics: 8, "xpu.metrics";
    /// The same as counters: for each metric `[type | name]`, `[value]`, and finally `[u64::MAX]`.
    SAMPLE = Sample: 9, "xpu.sample";
}

packed! {
    /// The first words of all work.
    PackedWork, 6 words {
        /// Of the kernel or the operation.
        id: u64 = 0,
        appended: TimeBefore = 1, submitted: TimeBefore = 2, context: u64 = 3, sycl_queue: u64 = 4, queue: u64 = 5,
    }
    /// The words of a kernel after those of all work.
    PackedKernel, 12 words {
        task_begin: TimeBefore = 6, enqueue_begin: TimeBefore = 7, node: u64 = 8, invocation: u32 = 9, line: u64 = 10,
        file: Option<Name> = 11,
    }
    /// The words of a copy or a fill after those of all work.
    PackedCopy, 8 words {
        bytes: u64 = 6, call: Option<Name> = 7,
    }
    /// The word of a copy between devices after those of a copy.
    PackedEnds, 9 words {
        to: i32 = 8, from: i32 = 8 >> 32,
    }
    PackedSync, 5 words {
        context: u64 = 0, queue: u64 = 1, event: u64 = 2, events: u32 = 3, what: u32 = 3 >> 32, result: u32 = 4,
    }
    PackedOverhead, 3 words {
        /// Marks the record, whose other words may be 0.
        is_present: bool = 0,
        duration: u64 = 1, count: u64 = 2,
    }
}

/// How many nanoseconds before the start of work a time was; `None` if the time is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeBefore(Option<i64>);

impl TimeBefore {
    fn new(start: u64, at: u64) -> TimeBefore {
        TimeBefore((at != 0).then(|| start.wrapping_sub(at).cast_signed()))
    }
}

impl PackedValue for TimeBefore {
    const BITS: u32 = 64;

    fn to_bits(self) -> u64 {
        self.0.map_or(0, |ns| ns.cast_unsigned() << 1 | 1)
    }

    fn from_bits(bits: u64) -> TimeBefore {
        TimeBefore((bits & 1 != 0).then(|| bits.cast_signed() >> 1))
    }
}

/// Packs the fields that all work has.
macro_rules! pack_work {
    ($record:ident) => {
        PackedWork {
            id: $record.id(),
            appended: TimeBefore::new($record.start(), $record.appended()),
            submitted: TimeBefore::new($record.start(), $record.submitted()),
            context: $record.context(),
            sycl_queue: $record.sycl_queue(),
            queue: $record.queue(),
        }
        .to_words()
    };
}

pub(super) fn kernel_words(kernel: &Kernel<'_>, file: Option<Name>) -> [u64; 12] {
    let packed = PackedKernel {
        task_begin: TimeBefore::new(kernel.start(), kernel.task_begin()),
        enqueue_begin: TimeBefore::new(kernel.start(), kernel.enqueue_begin()),
        node: kernel.node(),
        invocation: kernel.invocation(),
        line: if file.is_some() { kernel.source_line() } else { 0 },
        file,
    };
    prepend_words(pack_work!(kernel), packed.to_words())
}

pub(super) fn copy_words(copy: &Memcpy<'_>, call: Option<Name>) -> [u64; 8] {
    prepend_words(pack_work!(copy), PackedCopy { bytes: copy.bytes(), call }.to_words())
}

pub(super) fn fill_words(fill: &Memset<'_>, call: Option<Name>) -> [u64; 8] {
    prepend_words(pack_work!(fill), PackedCopy { bytes: fill.bytes(), call }.to_words())
}

pub(super) fn peer_copy_words(copy: &PeerMemcpy<'_>, call: Option<Name>, from: i32, to: i32) -> [u64; 9] {
    let packed = prepend_words(PackedCopy { bytes: copy.bytes(), call }.to_words(), PackedEnds { to, from }.to_words());
    prepend_words(pack_work!(copy), packed)
}

pub(super) fn sync_words(sync: &Synchronization<'_>) -> [u64; 5] {
    let (context, queue, event, events) = (sync.context(), sync.queue(), sync.event(), sync.events());
    PackedSync { context, queue, event, events, what: sync.what(), result: sync.result() }.to_words()
}

pub(super) fn overhead_words(overhead: &Overhead<'_>) -> [u64; 3] {
    PackedOverhead { is_present: true, duration: overhead.duration(), count: overhead.count() }.to_words()
}

type Each<'e> = &'e mut dyn FnMut(&str, ArgValue<'_>);

impl RecordLayout for XpuShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        match self {
            XpuShape::Kernel => write_kernel_args(record, each),
            XpuShape::Copy => write_copy_args(record, each),
            XpuShape::PeerCopy => {
                write_copy_args(record, each);
                let ends = PackedEnds::from_record(record);
                each("fromDevice", ArgValue::I64(ends.from.into()));
                each("toDevice", ArgValue::I64(ends.to.into()));
            }
            XpuShape::Call => each("correlation", ArgValue::U64(record.correlation)),
            XpuShape::Sync => write_sync_args(record, each),
            XpuShape::Communication => each("Communicator_id", ArgValue::U64(record.word(0))),
            XpuShape::Overhead => write_overhead_args(record, each),
            XpuShape::Metrics => {
                each("kernel_id", ArgValue::U64(record.word(0)));
                // In libkineto's format of pointers.
                each("queue", ArgValue::Str(&format!("0x{:x}", record.word(1))));
                write_metric_values(record, 2, each);
            }
            XpuShape::Sample => write_metric_values(record, 0, each),
        }
    }
}

fn write_kernel_args(record: &RecordView<'_>, each: Each<'_>) {
    let (work, kernel) = (PackedWork::from_record(record), PackedKernel::from_record(record));
    each("correlation", ArgValue::U64(record.correlation));
    write_time(record, work.appended, ["appended", "appended_rel_to_start"], each);
    write_time(record, work.submitted, ["submitted", "submitted_rel_to_start"], each);
    write_time(record, kernel.task_begin, ["sycl_task_begin", "sycl_task_begin_rel_to_start"], each);
    write_time(record, kernel.enqueue_begin, ["sycl_enqk_begin", "sycl_enqk_begin_rel_to_start"], each);
    write_work_args(record, &work, each);
    if let Some(file) = kernel.file {
        each("source_file_name", ArgValue::Str(record.names.text(file)));
        each("source_line_number", ArgValue::U64(kernel.line));
    }
    each("kernel_id", ArgValue::U64(work.id));
    each("sycl_node_id", ArgValue::U64(kernel.node));
    each("sycl_invocation_id", ArgValue::U64(kernel.invocation.into()));
}

/// Writes the arguments of copies and fills.
fn write_copy_args(record: &RecordView<'_>, each: Each<'_>) {
    let (work, copy) = (PackedWork::from_record(record), PackedCopy::from_record(record));
    each("correlation", ArgValue::U64(record.correlation));
    if let Some(call) = copy.call {
        each("l0 call", ArgValue::Str(record.names.text(call)));
    }
    write_time(record, work.appended, ["appended", "appended_rel_to_start"], each);
    write_time(record, work.submitted, ["submitted", "submitted_rel_to_start"], each);
    write_work_args(record, &work, each);
    // The key is misspelt in libkineto.
    each("memory opration id", ArgValue::U64(work.id));
    record.write_bytes(copy.bytes, each);
}

/// Writes where work ran.
fn write_work_args(record: &RecordView<'_>, work: &PackedWork, each: Each<'_>) {
    each("device", ArgValue::I64(record.device_id.into()));
    // HTA recognises device rows by `stream`, and expects a number for `context`; libkineto writes a string and no
    // stream.
    each("stream", ArgValue::I64(record.stream.into()));
    each("context", ArgValue::U64(work.context));
    each("sycl queue", ArgValue::U64(work.sycl_queue));
    each("l0 queue", ArgValue::Str(&format_handle(work.queue)));
}

fn format_handle(handle: u64) -> String {
    format!("0x{handle:016x}")
}

/// Writes a time and its distance from the start, in microseconds. The time is relative to the base of a file, like
/// the times of events.
fn write_time(record: &RecordView<'_>, TimeBefore(before): TimeBefore, keys: [&str; 2], each: Each<'_>) {
    let Some(before) = before else { return };
    let from_start = -i128::from(before);
    let from_base = i128::from(record.start.since(base_time(record.start))) + from_start;
    for (key, ns) in keys.into_iter().zip([from_base, from_start]) {
        let sign = if ns < 0 { "-" } else { "" };
        let ns = ns.unsigned_abs();
        each(key, ArgValue::Str(&format!("{sign}{}.{:03}", ns / 1000, ns % 1000)));
    }
}

fn write_sync_args(record: &RecordView<'_>, each: Each<'_>) {
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
    let sync = PackedSync::from_record(record);
    each("correlation", ArgValue::U64(record.correlation));
    each("Type", ArgValue::Str(TYPES.get(sync.what as usize).unwrap_or(&TYPES[0])));
    each("Context_handle", ArgValue::Str(&format_handle(sync.context)));
    each("Queue_handle", ArgValue::Str(&format_handle(sync.queue)));
    each("Event_handle", ArgValue::Str(&format_handle(sync.event)));
    each("Number_wait_events", ArgValue::U64(sync.events.into()));
    each("Return_code", ArgValue::I64(sync.result.into()));
}

fn write_overhead_args(record: &RecordView<'_>, each: Each<'_>) {
    let PackedOverhead { duration, count, .. } = PackedOverhead::from_record(record);
    let observed = record.end.since(record.start);
    let occupancy = u128::from(duration) * 100 / u128::from(observed.max(1));
    each("overhead cost", ArgValue::U64(duration));
    each("overhead occupancy", ArgValue::Str(&format!("{}%", if observed == 0 { 0 } else { occupancy })));
    each("overhead count", ArgValue::U64(count));
}

/// Writes the values of metrics by their types, starting at word `from`.
fn write_metric_values(record: &RecordView<'_>, from: usize, each: Each<'_>) {
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

//! The layouts of CUPTI's records: libkineto's arguments, in its order.

use super::markers::Details;
use super::records::{Api, GraphTrace, Kernel, Memcpy, Memcpy2, Memset};
use crate::collector::cuda::{BLOCKS_PER_MULTIPROCESSOR, RESERVED_SHARED_MEMORY};
use crate::collector::{DeviceDescription, Name, RecordLayout, RecordView};
use crate::occupancy::{self, Occupancy, SharedLimit};
use kineto_trace::activity::ArgValue;

/// The layouts of all records. They are variants of an enum, so that no two share an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CudaShape {
    Kernel = 1,
    Copy = 2,
    PeerCopy = 3,
    Call = 4,
    Sync = 5,
    Event = 6,
    Graph = 7,
    Marker = 8,
}

/// A kernel: `[gridX | blockX, registers]`, `[context | flags, channel type, priority]`, `[shared memory: static | dynamic]`,
/// `[channel | graph]`, `[graph node]`, `[gridY - 1 | gridZ - 1]`, `[blockY - 1 | blockZ - 1]`, `[queued]`.
///
/// Rare words come last; they are usually 0, and trailing zeros are not stored.
pub(super) static KERNEL: CudaShape = CudaShape::Kernel;
/// A copy or a fill: `[bytes]`, `[context | flags, channel type]`, `[channel | graph]`, `[graph node]`.
pub(super) static COPY: CudaShape = CudaShape::Copy;
/// A copy between devices: like a copy, followed by the device that performs it, `[from device | to device]`, `[from
/// context | to context]` and `[in device]`.
pub(super) static PEER_COPY: CudaShape = CudaShape::PeerCopy;
/// A call: `[number of the function]`.
pub(super) static CALL: CudaShape = CudaShape::Call;
/// A wait: `[context | what for]`, `[event]`.
pub(super) static SYNC: CudaShape = CudaShape::Sync;
/// An event: `[context | event]`.
pub(super) static EVENT: CudaShape = CudaShape::Event;
/// The launch of a graph as a whole: `[context | graph]`.
pub(super) static GRAPH: CudaShape = CudaShape::Graph;

/// An NVTX range or instant: `[category | domain]`, `[kind of payload, whether it has a colour | colour]`,
/// `[payload]`.
pub(super) static MARKER: CudaShape = CudaShape::Marker;

/// The flag of records with a priority, which exists since CUDA 13.1.
const HAS_PRIORITY: u64 = 1 << 30;

/// The flag of markers with a colour.
const HAS_COLOR: u32 = 1 << 31;

/// The names of waits, by number.
pub(super) const SYNC_NAMES: [&str; 5] =
    ["Unknown Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"];

const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

fn capped(value: u32) -> u64 {
    u64::from(value.min(0xFFFF))
}

/// Packs context, flags, channel type and priority into a word.
fn where_it_ran(context: u32, channel_type: u32, priority: Option<u32>) -> u64 {
    let flags = if priority.is_some() { HAS_PRIORITY } else { 0 };
    // CUDA's priorities are small numbers around 0.
    let priority = u64::from(priority.unwrap_or(0) & 0xFFFF);
    pair(context, 0) | flags | u64::from(channel_type.min(0xFF)) << 16 | priority
}

pub(super) fn kernel_words(kernel: &Kernel<'_>) -> [u64; 8] {
    let block = capped(kernel.block_x()) << 16 | u64::from(kernel.registers());
    [
        pair(kernel.grid_x(), 0) | block,
        where_it_ran(kernel.context(), kernel.channel_type(), kernel.priority()),
        pair(kernel.static_shared(), kernel.dynamic_shared()),
        pair(kernel.channel(), kernel.graph()),
        kernel.graph_node(),
        pair(kernel.grid_y().wrapping_sub(1), kernel.grid_z().wrapping_sub(1)),
        pair(kernel.block_y().wrapping_sub(1), kernel.block_z().wrapping_sub(1)),
        kernel.queued(),
    ]
}

pub(super) fn copy_words(copy: &Memcpy<'_>) -> [u64; 4] {
    let place = where_it_ran(copy.context(), copy.channel_type(), None);
    [copy.bytes(), place, pair(copy.channel(), copy.graph()), copy.graph_node()]
}

pub(super) fn fill_words(fill: &Memset<'_>) -> [u64; 4] {
    let place = where_it_ran(fill.context(), fill.channel_type(), None);
    [fill.bytes(), place, pair(fill.channel(), fill.graph()), fill.graph_node()]
}

pub(super) fn peer_copy_words(copy: &Memcpy2<'_>) -> [u64; 7] {
    [
        copy.bytes(),
        where_it_ran(copy.context(), copy.channel_type(), None),
        pair(copy.channel(), copy.graph()),
        copy.graph_node(),
        pair(copy.source_device(), copy.target_device()),
        pair(copy.source_context(), copy.target_context()),
        copy.device().into(),
    ]
}

pub(super) fn call_words(call: &Api<'_>) -> [u64; 1] {
    [call.function().into()]
}

pub(super) fn sync_words(context: u32, what: u32, event: u32) -> [u64; 2] {
    [pair(context, what), event.into()]
}

pub(super) fn event_words(context: u32, event: u32) -> [u64; 1] {
    [pair(context, event)]
}

pub(super) fn graph_words(graph: &GraphTrace<'_>) -> [u64; 1] {
    [pair(graph.context(), graph.graph())]
}

pub(super) fn marker_words(domain: Name, details: &Details) -> [u64; 3] {
    let (kind, payload) = details.payload;
    let has_color = if details.color.is_some() { HAS_COLOR } else { 0 };
    [pair(details.category, domain.0), pair(kind & !HAS_COLOR | has_color, details.color.unwrap_or(0)), payload]
}

type Each<'e> = &'e mut dyn FnMut(&str, ArgValue<'_>);

impl RecordLayout for CudaShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        match self {
            CudaShape::Kernel => kernel(record, each),
            CudaShape::Copy => copy(record, each),
            CudaShape::PeerCopy => peer_copy(record, each),
            CudaShape::Call => {
                each("cbid", ArgValue::U64(record.word(0)));
                each("correlation", ArgValue::U64(record.correlation));
            }
            CudaShape::Sync => sync(record, each),
            CudaShape::Event => {
                each("event_id", ArgValue::U64(record.low(0).into()));
                each("stream", stream(record.stream));
                correlated(record, record.high(0), each);
            }
            CudaShape::Graph => {
                device_and_context(record, record.high(0), each);
                each("stream", stream(record.stream));
                each("correlation", ArgValue::U64(record.correlation));
                each("graph id", ArgValue::U64(record.low(0).into()));
            }
            CudaShape::Marker => marker(record, each),
        }
    }
}

fn kernel(record: &RecordView<'_>, each: Each<'_>) {
    let registers = record.word(0) & 0xFFFF;
    let (static_shared, dynamic_shared) = (record.high(2), record.low(2));
    let plus_one = |value: u32| i64::from(value.wrapping_add(1));
    let grid = [record.high(0).into(), plus_one(record.high(5)), plus_one(record.low(5))];
    let block = [(record.word(0) >> 16 & 0xFFFF).cast_signed(), plus_one(record.high(6)), plus_one(record.low(6))];
    each("queued", ArgValue::U64(record.word(7)));
    device_and_context(record, record.high(1), each);
    each("stream", stream(record.stream));
    each("correlation", ArgValue::U64(record.correlation));
    each("registers per thread", ArgValue::U64(registers));
    let shared = i64::from(static_shared) + i64::from(dynamic_shared);
    each("shared memory", ArgValue::I64(shared));
    let asked = occupancy::KernelResources {
        threads_per_block: block.iter().fold(1, |product, side| u32::saturating_mul(product, counted(*side))),
        registers_per_thread: counted(registers.cast_signed()),
        shared: counted(shared),
    };
    let device = record.device.map(capacity);
    if let Some(device) = &device {
        let blocks = occupancy::blocks_per_sm(device, grid.map(counted));
        each("blocks per SM", ArgValue::F64(blocks.into()));
        each("warps per SM", ArgValue::F64(warps_per_sm(blocks, &asked, device).into()));
    }
    each("grid", ArgValue::Ints(&grid));
    each("block", ArgValue::Ints(&block));
    if let Some(device) = &device {
        occupied(device, &asked, grid.map(counted), each);
    }
    ran_in_graph(record, [1, 3, 4], each);
}

/// Returns the device properties that determine occupancy.
fn capacity(device: &DeviceDescription) -> occupancy::Device {
    let known = |key: &str| device.property(key).map(counted);
    let has = |key: &str| known(key).unwrap_or(0);
    let compute = (has("computeMajor"), has("computeMinor"));
    occupancy::Device {
        compute,
        multiprocessors: has("numSms"),
        warp_size: has("warpSize"),
        threads_per_block: has("maxThreadsPerBlock"),
        threads_per_multiprocessor: has("maxThreadsPerMultiprocessor"),
        blocks_per_multiprocessor: known(BLOCKS_PER_MULTIPROCESSOR)
            .unwrap_or_else(|| occupancy::blocks_per_multiprocessor(compute)),
        registers_per_block: has("regsPerBlock"),
        registers_per_multiprocessor: has("regsPerMultiprocessor"),
        shared_per_block: has("sharedMemPerBlock"),
        shared_per_block_optin: has("sharedMemPerBlockOptin"),
        shared_per_multiprocessor: has("sharedMemPerMultiprocessor"),
        shared_reserved_per_block: known(RESERVED_SHARED_MEMORY)
            .unwrap_or_else(|| occupancy::shared_reserved_per_block(compute)),
    }
}

fn counted(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(if value < 0 { 0 } else { u32::MAX })
}

#[expect(clippy::cast_precision_loss, reason = "a ratio, written with a few digits")]
fn warps_per_sm(blocks_per_sm: f32, kernel: &occupancy::KernelResources, device: &occupancy::Device) -> f32 {
    blocks_per_sm * kernel.threads_per_block as f32 / device.warp_size.max(1) as f32
}

/// Writes the occupancy of a kernel, and what limits it.
#[expect(clippy::cast_possible_truncation, reason = "a percentage")]
fn occupied(device: &occupancy::Device, kernel: &occupancy::KernelResources, grid: [u32; 3], each: Each<'_>) {
    // The kernel ran, so it had requested the shared memory that it used.
    let Some(found) = Occupancy::new(device, kernel, SharedLimit::OptIn) else { return };
    let percent = (found.achieved(device, kernel, grid) * 100.0).round();
    each("est. achieved occupancy %", ArgValue::I64(percent as i64));
    let limiting = found.limiting.to_string();
    let figures: [(&str, ArgValue<'_>); 9] = [
        ("activeBlocksPerMultiprocessor", ArgValue::I64(found.active_blocks.into())),
        ("limitingFactors", ArgValue::Str(&limiting)),
        ("blockLimitRegs", ArgValue::I64(found.limit_registers.into())),
        ("blockLimitSharedMem", ArgValue::I64(found.limit_shared.into())),
        ("blockLimitWarps", ArgValue::I64(found.limit_warps.into())),
        ("blockLimitBlocks", ArgValue::I64(found.limit_blocks.into())),
        ("blockLimitBarriers", ArgValue::I64(found.limit_barriers.into())),
        ("allocatedRegistersPerBlock", ArgValue::I64(found.registers_per_block.into())),
        ("allocatedSharedMemPerBlock", ArgValue::I64(found.shared_per_block.into())),
    ];
    each("occupancy", ArgValue::Dict(&figures));
}

fn copy(record: &RecordView<'_>, each: Each<'_>) {
    device_and_context(record, record.high(1), each);
    copied(record, each);
}

fn peer_copy(record: &RecordView<'_>, each: Each<'_>) {
    each("fromDevice", ArgValue::U64(record.high(4).into()));
    each("inDevice", ArgValue::U64(record.low(6).into()));
    each("toDevice", ArgValue::U64(record.low(4).into()));
    each("fromContext", ArgValue::U64(record.high(5).into()));
    each("inContext", ArgValue::U64(record.high(1).into()));
    each("toContext", ArgValue::U64(record.low(5).into()));
    copied(record, each);
}

/// Writes the arguments that all copies and fills share.
#[expect(clippy::cast_precision_loss, reason = "a ratio, written with a few digits")]
fn copied(record: &RecordView<'_>, each: Each<'_>) {
    each("stream", stream(record.stream));
    each("correlation", ArgValue::U64(record.correlation));
    let bytes = record.word(0);
    each("bytes", ArgValue::U64(bytes));
    let duration = record.end.as_nanos().saturating_sub(record.start.as_nanos());
    if duration > 0 {
        each("memory bandwidth (GB/s)", ArgValue::F64(bytes as f64 / duration as f64));
    }
    ran_in_graph(record, [1, 2, 3], each);
}

/// Writes graph, priority (in newer versions) and channel; the numbers are the indices of the words for flags, graph
/// and node.
fn ran_in_graph(record: &RecordView<'_>, [flags, graph, node]: [usize; 3], each: Each<'_>) {
    let word = record.word(flags);
    each("graph id", ArgValue::U64(record.low(graph).into()));
    each("graph node id", ArgValue::U64(record.word(node)));
    if word & HAS_PRIORITY != 0 {
        let [low, high, ..] = word.to_le_bytes();
        each("priority", ArgValue::I64(i16::from_le_bytes([low, high]).into()));
    }
    each("channel", ArgValue::U64(record.high(graph).into()));
    each("channel_type", ArgValue::I64((word >> 16 & 0xFF).cast_signed()));
}

fn sync(record: &RecordView<'_>, each: Each<'_>) {
    const EVENT_SYNC: usize = 1;
    const STREAM_WAIT_EVENT: usize = 2;
    let what = record.low(0) as usize;
    each("cuda_sync_kind", ArgValue::Str(SYNC_NAMES.get(what).unwrap_or(&SYNC_NAMES[0])));
    if matches!(what, EVENT_SYNC | STREAM_WAIT_EVENT) {
        let (on, by) = match record.wait {
            Some(wait) => (stream(wait.stream), ArgValue::U64(wait.correlation)),
            None => (ArgValue::I64(-1), ArgValue::I64(-1)),
        };
        each("wait_on_stream", on);
        each("wait_on_cuda_event_record_corr_id", by);
        each("wait_on_cuda_event_id", ArgValue::U64(record.word(1)));
    }
    each("stream", stream(record.stream));
    correlated(record, record.high(0), each);
}

/// Writes NVTX attributes under the field names that spans use. A missing payload cannot be told from a payload of 0.
fn marker(record: &RecordView<'_>, each: Each<'_>) {
    each("nvtx.domain", ArgValue::Str(record.text(0)));
    if record.high(0) != 0 {
        each("nvtx.category", ArgValue::U64(record.high(0).into()));
    }
    if record.high(1) & HAS_COLOR != 0 {
        each("nvtx.color", ArgValue::Str(&format!("#{:06x}", record.low(1) & 0xFF_FFFF)));
    }
    let payload = record.word(2);
    match record.high(1) & !HAS_COLOR {
        _ if payload == 0 => {}
        0 => each("nvtx.payload", ArgValue::F64(f64::from_bits(payload))),
        1 => each("nvtx.payload", ArgValue::U64(payload)),
        4 => each("nvtx.payload", ArgValue::I64(payload.cast_signed())),
        // An address, or a metric's value.
        _ => {}
    }
}

fn correlated(record: &RecordView<'_>, context: u32, each: Each<'_>) {
    each("correlation", ArgValue::U64(record.correlation));
    device_and_context(record, context, each);
}

fn device_and_context(record: &RecordView<'_>, context: u32, each: Each<'_>) {
    each("device", ArgValue::I64(record.device_id.into()));
    each("context", ArgValue::U64(context.into()));
}

/// Returns a stream's number, -1 for all streams.
fn stream(number: u32) -> ArgValue<'static> {
    ArgValue::I64(if number == u32::MAX { -1 } else { number.into() })
}

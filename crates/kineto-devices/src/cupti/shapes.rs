//! The layouts of CUPTI's records: libkineto's arguments, in its order.

use super::markers::Details;
use super::records::{Api, GraphTrace, Kernel, Memcpy, Memcpy2, Memset};
use crate::cuda::{BLOCKS_PER_MULTIPROCESSOR, RESERVED_SHARED_MEMORY};
use crate::occupancy::{self, Occupancy, SharedLimit};
use crate::records::packed::{MinusOne, PackedValue, packed, prepend_words};
use crate::registry::layouts;
use crate::{DeviceDescription, Name, RecordLayout, RecordView};
use kineto_model::activity::ArgValue;

layouts! {
    /// The layouts of CUPTI's records.
    CudaShape
    KERNEL = Kernel: 1, "cupti.kernel";
    /// A copy or a fill.
    COPY = Copy: 2, "cupti.copy";
    /// A copy between devices.
    PEER_COPY = PeerCopy: 3, "cupti.peer_copy";
    /// A call of the runtime or the driver.
    CALL = Call: 4, "cupti.call";
    /// A wait.
    SYNC = Sync: 5, "cupti.sync";
    /// An event that was recorded.
    EVENT = Event: 6, "cupti.event";
    /// The launch of a graph as a whole.
    GRAPH = Graph: 7, "cupti.graph";
    /// An NVTX range or instant.
    MARKER = Marker: 8, "cupti.marker";
}

packed! {
    PackedKernel, 8 words {
        registers: u16 = 0, block_x: u16 = 0 >> 16, grid_x: u32 = 0 >> 32,
        /// Exists since CUDA 13.1. CUDA's priorities are small numbers around 0.
        priority: Option<i16> = 1,
        channel_type: u8 = 1 >> 24, context: u32 = 1 >> 32, dynamic_shared: u32 = 2, static_shared: u32 = 2 >> 32,
        graph: u32 = 3, channel: u32 = 3 >> 32, graph_node: u64 = 4, grid_z: MinusOne = 5, grid_y: MinusOne = 5 >> 32,
        block_z: MinusOne = 6, block_y: MinusOne = 6 >> 32, queued: u64 = 7,
    }
    PackedCopy, 4 words {
        bytes: u64 = 0, channel_type: u8 = 1, context: u32 = 1 >> 32, graph: u32 = 2, channel: u32 = 2 >> 32,
        graph_node: u64 = 3,
    }
    /// The words of a copy between devices that follow those of a copy.
    PackedEnds, 7 words {
        target_device: u32 = 4, source_device: u32 = 4 >> 32, target_context: u32 = 5, source_context: u32 = 5 >> 32,
        /// The device that performs the copy.
        device: u32 = 6,
    }
    PackedSync, 2 words {
        what: u32 = 0, context: u32 = 0 >> 32, event: u32 = 1,
    }
    PackedEvent, 1 words {
        event: u32 = 0, context: u32 = 0 >> 32,
    }
    PackedGraph, 1 words {
        graph: u32 = 0, context: u32 = 0 >> 32,
    }
    PackedMarker, 3 words {
        domain: Name = 0, category: u32 = 0 >> 32, color: Option<u32> = 1, payload_kind: u16 = 1 >> 33, payload: u64 = 2,
    }
}

/// The names of waits, by number.
pub(super) const SYNC_NAMES: [&str; 5] =
    ["Unknown Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"];

fn clamp_to_u16(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn channel_type(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

pub(super) fn kernel_words(kernel: &Kernel<'_>) -> [u64; 8] {
    let packed = PackedKernel {
        registers: kernel.registers(),
        block_x: clamp_to_u16(kernel.block_x()),
        grid_x: kernel.grid_x(),
        priority: kernel.priority().map(|priority| i16::from_bits(priority.into())),
        channel_type: channel_type(kernel.channel_type()),
        context: kernel.context(),
        dynamic_shared: kernel.dynamic_shared(),
        static_shared: kernel.static_shared(),
        graph: kernel.graph(),
        channel: kernel.channel(),
        graph_node: kernel.graph_node(),
        grid_z: MinusOne(kernel.grid_z()),
        grid_y: MinusOne(kernel.grid_y()),
        block_z: MinusOne(kernel.block_z()),
        block_y: MinusOne(kernel.block_y()),
        queued: kernel.queued(),
    };
    packed.to_words()
}

/// Packs the fields that all copies and fills have.
macro_rules! pack_copy {
    ($copy:ident) => {
        PackedCopy {
            bytes: $copy.bytes(),
            channel_type: channel_type($copy.channel_type()),
            context: $copy.context(),
            graph: $copy.graph(),
            channel: $copy.channel(),
            graph_node: $copy.graph_node(),
        }
        .to_words()
    };
}

pub(super) fn copy_words(copy: &Memcpy<'_>) -> [u64; 4] {
    pack_copy!(copy)
}

pub(super) fn fill_words(fill: &Memset<'_>) -> [u64; 4] {
    pack_copy!(fill)
}

pub(super) fn peer_copy_words(copy: &Memcpy2<'_>) -> [u64; 7] {
    let ends = PackedEnds {
        target_device: copy.target_device(),
        source_device: copy.source_device(),
        target_context: copy.target_context(),
        source_context: copy.source_context(),
        device: copy.device(),
    };
    prepend_words(pack_copy!(copy), ends.to_words())
}

pub(super) fn call_words(call: &Api<'_>) -> [u64; 1] {
    [call.function().into()]
}

pub(super) fn sync_words(context: u32, what: u32, event: u32) -> [u64; 2] {
    PackedSync { what, context, event }.to_words()
}

pub(super) fn event_words(context: u32, event: u32) -> [u64; 1] {
    PackedEvent { event, context }.to_words()
}

pub(super) fn graph_words(graph: &GraphTrace<'_>) -> [u64; 1] {
    PackedGraph { graph: graph.graph(), context: graph.context() }.to_words()
}

pub(super) fn marker_words(domain: Name, details: &Details) -> [u64; 3] {
    let ((payload_kind, payload), category, color) = (details.payload, details.category, details.color);
    PackedMarker { domain, category, color, payload_kind: clamp_to_u16(payload_kind), payload }.to_words()
}

type EmitArg<'e> = &'e mut dyn FnMut(&str, ArgValue<'_>);

impl RecordLayout for CudaShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        match self {
            CudaShape::Kernel => write_kernel_args(record, each),
            CudaShape::Copy => write_copy_args(record, each),
            CudaShape::PeerCopy => write_peer_copy_args(record, each),
            CudaShape::Call => {
                each("cbid", ArgValue::U64(record.word(0)));
                each("correlation", ArgValue::U64(record.correlation));
            }
            CudaShape::Sync => write_sync_args(record, each),
            CudaShape::Event => {
                let event = PackedEvent::from_record(record);
                each("event_id", ArgValue::U64(event.event.into()));
                each("stream", stream_value(record.stream));
                write_correlation_args(record, event.context, each);
            }
            CudaShape::Graph => {
                let graph = PackedGraph::from_record(record);
                write_device_and_context(record, graph.context, each);
                each("stream", stream_value(record.stream));
                each("correlation", ArgValue::U64(record.correlation));
                each("graph id", ArgValue::U64(graph.graph.into()));
            }
            CudaShape::Marker => write_marker_args(record, each),
        }
    }
}

fn write_kernel_args(record: &RecordView<'_>, each: EmitArg<'_>) {
    let kernel = PackedKernel::from_record(record);
    let grid = [kernel.grid_x, kernel.grid_y.0, kernel.grid_z.0];
    let block = [kernel.block_x.into(), kernel.block_y.0, kernel.block_z.0];
    each("queued", ArgValue::U64(kernel.queued));
    write_device_and_context(record, kernel.context, each);
    each("stream", stream_value(record.stream));
    each("correlation", ArgValue::U64(record.correlation));
    each("registers per thread", ArgValue::U64(kernel.registers.into()));
    let shared = i64::from(kernel.static_shared) + i64::from(kernel.dynamic_shared);
    each("shared memory", ArgValue::I64(shared));
    let asked = occupancy::KernelResources {
        threads_per_block: block.into_iter().fold(1, u32::saturating_mul),
        registers_per_thread: kernel.registers.into(),
        shared: clamp_to_u32(shared),
    };
    let device = record.device.map(occupancy_device);
    if let Some(device) = &device {
        let blocks = occupancy::blocks_per_sm(device, grid);
        each("blocks per SM", ArgValue::F64(blocks.into()));
        each("warps per SM", ArgValue::F64(warps_per_sm(blocks, &asked, device).into()));
    }
    each("grid", ArgValue::Ints(&grid.map(i64::from)));
    each("block", ArgValue::Ints(&block.map(i64::from)));
    if let Some(device) = &device {
        write_occupancy(device, &asked, grid, each);
    }
    write_graph_args(kernel.graph, kernel.graph_node, kernel.priority, each);
    write_channel_args(kernel.channel, kernel.channel_type, each);
}

/// Returns the device properties that determine occupancy.
fn occupancy_device(device: &DeviceDescription) -> occupancy::Device {
    let known = |key: &str| device.property(key).map(clamp_to_u32);
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

fn clamp_to_u32(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(if value < 0 { 0 } else { u32::MAX })
}

#[expect(clippy::cast_precision_loss, reason = "a ratio, written with a few digits")]
fn warps_per_sm(blocks_per_sm: f32, kernel: &occupancy::KernelResources, device: &occupancy::Device) -> f32 {
    blocks_per_sm * kernel.threads_per_block as f32 / device.warp_size.max(1) as f32
}

/// Writes the occupancy of a kernel, and what limits it.
#[expect(clippy::cast_possible_truncation, reason = "a percentage")]
fn write_occupancy(device: &occupancy::Device, kernel: &occupancy::KernelResources, grid: [u32; 3], each: EmitArg<'_>) {
    // The kernel ran, so it had requested the shared memory that it used.
    let Some(found) = Occupancy::new(device, kernel, SharedLimit::OptIn) else { return };
    let percent = (found.achieved_occupancy(device, kernel, grid) * 100.0).round();
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

fn write_copy_args(record: &RecordView<'_>, each: EmitArg<'_>) {
    let copy = PackedCopy::from_record(record);
    write_device_and_context(record, copy.context, each);
    write_transfer_args(record, &copy, each);
}

fn write_peer_copy_args(record: &RecordView<'_>, each: EmitArg<'_>) {
    let (copy, ends) = (PackedCopy::from_record(record), PackedEnds::from_record(record));
    each("fromDevice", ArgValue::U64(ends.source_device.into()));
    each("inDevice", ArgValue::U64(ends.device.into()));
    each("toDevice", ArgValue::U64(ends.target_device.into()));
    each("fromContext", ArgValue::U64(ends.source_context.into()));
    each("inContext", ArgValue::U64(copy.context.into()));
    each("toContext", ArgValue::U64(ends.target_context.into()));
    write_transfer_args(record, &copy, each);
}

/// Writes the arguments that all copies and fills share.
fn write_transfer_args(record: &RecordView<'_>, copy: &PackedCopy, each: EmitArg<'_>) {
    each("stream", stream_value(record.stream));
    each("correlation", ArgValue::U64(record.correlation));
    record.write_bytes(copy.bytes, each);
    write_graph_args(copy.graph, copy.graph_node, None, each);
    write_channel_args(copy.channel, copy.channel_type, each);
}

fn write_graph_args(graph: u32, node: u64, priority: Option<i16>, each: EmitArg<'_>) {
    each("graph id", ArgValue::U64(graph.into()));
    each("graph node id", ArgValue::U64(node));
    if let Some(priority) = priority {
        each("priority", ArgValue::I64(priority.into()));
    }
}

fn write_channel_args(number: u32, channel_type: u8, each: EmitArg<'_>) {
    each("channel", ArgValue::U64(number.into()));
    each("channel_type", ArgValue::I64(channel_type.into()));
}

fn write_sync_args(record: &RecordView<'_>, each: EmitArg<'_>) {
    const EVENT_SYNC: usize = 1;
    const STREAM_WAIT_EVENT: usize = 2;
    let sync = PackedSync::from_record(record);
    let what = sync.what as usize;
    each("cuda_sync_kind", ArgValue::Str(SYNC_NAMES.get(what).unwrap_or(&SYNC_NAMES[0])));
    if matches!(what, EVENT_SYNC | STREAM_WAIT_EVENT) {
        let (on, by) = match record.wait {
            Some(wait) => (stream_value(wait.stream), ArgValue::U64(wait.correlation)),
            None => (ArgValue::I64(-1), ArgValue::I64(-1)),
        };
        each("wait_on_stream", on);
        each("wait_on_cuda_event_record_corr_id", by);
        each("wait_on_cuda_event_id", ArgValue::U64(sync.event.into()));
    }
    each("stream", stream_value(record.stream));
    write_correlation_args(record, sync.context, each);
}

/// Writes NVTX attributes under the field names that spans use. A missing payload cannot be told from a payload of 0.
fn write_marker_args(record: &RecordView<'_>, each: EmitArg<'_>) {
    let marker = PackedMarker::from_record(record);
    each("nvtx.domain", ArgValue::Str(record.names.text(marker.domain)));
    if marker.category != 0 {
        each("nvtx.category", ArgValue::U64(marker.category.into()));
    }
    if let Some(color) = marker.color {
        each("nvtx.color", ArgValue::Str(&format!("#{:06x}", color & 0xFF_FFFF)));
    }
    let payload = marker.payload;
    match marker.payload_kind {
        _ if payload == 0 => {}
        0 => each("nvtx.payload", ArgValue::F64(f64::from_bits(payload))),
        1 => each("nvtx.payload", ArgValue::U64(payload)),
        4 => each("nvtx.payload", ArgValue::I64(payload.cast_signed())),
        // An address, or a metric's value.
        _ => {}
    }
}

fn write_correlation_args(record: &RecordView<'_>, context: u32, each: EmitArg<'_>) {
    each("correlation", ArgValue::U64(record.correlation));
    write_device_and_context(record, context, each);
}

fn write_device_and_context(record: &RecordView<'_>, context: u32, each: EmitArg<'_>) {
    each("device", ArgValue::I64(record.device_id.into()));
    each("context", ArgValue::U64(context.into()));
}

/// Returns a stream's number, -1 for all streams.
fn stream_value(number: u32) -> ArgValue<'static> {
    ArgValue::I64(if number == u32::MAX { -1 } else { number.into() })
}

//! The layouts of HIP's records: libkineto's arguments, in its order. Unlike there, numbers are JSON numbers, and
//! addresses are hexadecimal strings.

use crate::records::packed::{packed, prepend_words};
use crate::registry::layouts;
use crate::{Name, RecordLayout, RecordView};
use kineto_model::activity::ArgValue;

layouts! {
    /// The layouts of HIP's records.
    RocmShape
    /// A call of another kind.
    CALL = Call: 1, "rocm.call";
    /// A [`LaunchCall`].
    LAUNCH_CALL = LaunchCall: 2, "rocm.launch_call";
    /// A [`CopyCall`].
    COPY_CALL = CopyCall: 3, "rocm.copy_call";
    /// A [`MemoryCall`].
    MEMORY_CALL = MemoryCall: 4, "rocm.memory_call";
    /// A [`Kernel`].
    KERNEL = Kernel: 5, "rocm.kernel";
    /// A [`struct@Copy`].
    COPY = Copy: 6, "rocm.copy";
}

packed! {
    /// A call that launches a kernel. Its row does not show the stream: some readers take any row with a stream for
    /// device work.
    LaunchCall, 5 words {
        /// The function's number.
        cid: u32 = 0,
        /// In bytes.
        shared: u32 = 0 >> 32,
        /// The kernel, if it is known.
        kernel: Option<Name> = 4,
    }
    /// A call that copies.
    CopyCall, 4 words {
        /// The function's number.
        cid: u32 = 0,
        /// HIP's number of the direction.
        kind: u32 = 0 >> 32,
        bytes: u64 = 1, src: u64 = 2, dst: u64 = 3,
    }
    /// A call that allocates, fills or frees memory.
    MemoryCall, 3 words {
        /// The function's number.
        cid: u32 = 0,
        /// Whether the call names the bytes.
        has_bytes: bool = 0 >> 32,
        ptr: u64 = 1, bytes: u64 = 2,
    }
    /// A kernel on a device.
    Kernel, 5 words {
        /// Its graph, 0 if none.
        graph: u32 = 0,
        /// The kind of work, such as "Dispatch Kernel".
        kind: Name = 0 >> 32,
        /// The hardware queue, 0 if not known.
        queue: u64 = 4,
    }
    /// A copy or a fill on a device.
    Copy, 3 words {
        /// Its graph, 0 if none.
        graph: u32 = 0,
        /// The kind of work, such as "HtoD".
        kind: Name = 0 >> 32,
        /// The hardware queue, 0 if not known.
        queue: u64 = 1,
        /// 0 if not known.
        bytes: u64 = 2,
    }
    /// The grid in blocks and the block in threads, of a kernel and of its launch; zeros if not known.
    Sizes, 4 words {
        grid_x: u32 = 1, grid_y: u32 = 1 >> 32, grid_z: u32 = 2, block_x: u32 = 2 >> 32, block_y: u32 = 3,
        block_z: u32 = 3 >> 32,
    }
}

impl Sizes {
    pub(super) fn new([grid_x, grid_y, grid_z]: [u32; 3], [block_x, block_y, block_z]: [u32; 3]) -> Sizes {
        Sizes { grid_x, grid_y, grid_z, block_x, block_y, block_z }
    }
}

impl MemoryCall {
    pub(super) fn new(cid: u32, ptr: u64, bytes: Option<u64>) -> MemoryCall {
        MemoryCall { cid, has_bytes: bytes.is_some(), ptr, bytes: bytes.unwrap_or(0) }
    }
}

pub(super) fn call_words(cid: u32) -> [u64; 1] {
    [cid.into()]
}

pub(super) fn launch_words(call: LaunchCall, sizes: Sizes) -> [u64; 5] {
    prepend_words(sizes.to_words(), call.to_words())
}

pub(super) fn kernel_words(kernel: Kernel, sizes: Sizes) -> [u64; 5] {
    prepend_words(sizes.to_words(), kernel.to_words())
}

type Each<'e> = &'e mut dyn FnMut(&str, ArgValue<'_>);

impl RecordLayout for RocmShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        match self {
            RocmShape::Call => write_call_args(record, each),
            RocmShape::LaunchCall => write_launch_call_args(record, each),
            RocmShape::CopyCall => write_copy_call_args(record, each),
            RocmShape::MemoryCall => write_memory_call_args(record, each),
            RocmShape::Kernel => write_kernel_args(record, each),
            RocmShape::Copy => write_copy_args(record, each),
        }
    }
}

fn write_call_args(record: &RecordView<'_>, each: Each<'_>) {
    each("cid", ArgValue::U64(record.low(0).into()));
    each("correlation", ArgValue::U64(record.correlation));
}

fn write_launch_call_args(record: &RecordView<'_>, each: Each<'_>) {
    let call = LaunchCall::from_record(record);
    if let Some(kernel) = call.kernel {
        each("kernel", ArgValue::Str(record.names.text(kernel)));
    }
    write_call_args(record, each);
    write_sizes(record, each);
    each("shared memory", ArgValue::U64(call.shared.into()));
}

fn write_copy_call_args(record: &RecordView<'_>, each: Each<'_>) {
    let copy = CopyCall::from_record(record);
    write_call_args(record, each);
    write_address("src", copy.src, each);
    write_address("dst", copy.dst, each);
    each("bytes", ArgValue::U64(copy.bytes));
    // A string, like the kind of device work: each key has a single type.
    each("kind", ArgValue::Str(&copy.kind.to_string()));
}

fn write_memory_call_args(record: &RecordView<'_>, each: Each<'_>) {
    let call = MemoryCall::from_record(record);
    if call.has_bytes {
        each("bytes", ArgValue::U64(call.bytes));
    }
    write_call_args(record, each);
    write_address("ptr", call.ptr, each);
}

fn write_kernel_args(record: &RecordView<'_>, each: Each<'_>) {
    let kernel = Kernel::from_record(record);
    write_work_args(record, kernel.queue, kernel.kind, each);
    write_sizes(record, each);
    write_graph_id(kernel.graph, each);
}

fn write_copy_args(record: &RecordView<'_>, each: Each<'_>) {
    let copy = Copy::from_record(record);
    write_work_args(record, copy.queue, copy.kind, each);
    if copy.bytes > 0 {
        record.write_bytes(copy.bytes, each);
    }
    write_graph_id(copy.graph, each);
}

/// Writes the arguments that all device work shares.
fn write_work_args(record: &RecordView<'_>, queue: u64, kind: Name, each: Each<'_>) {
    each("device", ArgValue::I64(record.device_id.into()));
    each("stream", ArgValue::I64(record.stream.into()));
    each("hsa_queue", ArgValue::U64(queue));
    each("correlation", ArgValue::U64(record.correlation));
    each("kind", ArgValue::Str(record.names.text(kind)));
}

fn write_graph_id(graph: u32, each: Each<'_>) {
    if graph != 0 {
        each("graph id", ArgValue::U64(graph.into()));
    }
}

/// Writes grid and block, if they are known.
fn write_sizes(record: &RecordView<'_>, each: Each<'_>) {
    let Sizes { grid_x, grid_y, grid_z, block_x, block_y, block_z } = Sizes::from_record(record);
    if [grid_x, grid_y, grid_z, block_x] != [0; 4] {
        each("grid", ArgValue::Ints(&[grid_x, grid_y, grid_z].map(i64::from)));
        each("block", ArgValue::Ints(&[block_x, block_y, block_z].map(i64::from)));
    }
}

fn write_address(key: &str, address: u64, each: Each<'_>) {
    each(key, ArgValue::Str(&format!("{address:#x}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::names::NameTable;
    use kineto_base::time::Timestamp;

    fn shown(shape: RocmShape, words: &[u64], names: &NameTable) -> String {
        let record = RecordView {
            words,
            names,
            start: Timestamp::from_nanos(1000),
            end: Timestamp::from_nanos(3000),
            correlation: 9,
            device_id: 2,
            device: None,
            stream: 1,
            wait: None,
        };
        let mut text = String::new();
        shape.visit(&record, &mut |key, value| text += &format!("{key}={value:?} "));
        text.trim_end().to_owned()
    }

    #[test]
    fn call_arguments_are_numbers() {
        let mut names = NameTable::default();
        let kernel = names.add("vecadd");
        let launch = LaunchCall { cid: 107, kernel: Some(kernel), shared: 64 };
        let words = |call| launch_words(call, Sizes::new([3, 2, 1], [128, 4, 5]));
        let sizes = "cid=107 correlation=9 grid=[3, 2, 1] block=[128, 4, 5] shared memory=64";
        assert_eq!(shown(LAUNCH_CALL, &words(launch), &names), format!("kernel=\"vecadd\" {sizes}"));
        let unnamed = LaunchCall { kernel: None, ..launch };
        assert_eq!(shown(LAUNCH_CALL, &words(unnamed), &names), sizes);
        let copy = CopyCall { cid: 134, src: 0x7f18, dst: 0x7f14, bytes: 9216, kind: 1 };
        let copied = "cid=134 correlation=9 src=\"0x7f18\" dst=\"0x7f14\" bytes=9216 kind=\"1\"";
        assert_eq!(shown(COPY_CALL, &copy.to_words(), &names), copied);
        let memory = MemoryCall { cid: 1, ptr: 0xA0, has_bytes: true, bytes: 0 };
        assert_eq!(shown(MEMORY_CALL, &memory.to_words(), &names), "bytes=0 cid=1 correlation=9 ptr=\"0xa0\"");
        let freed = MemoryCall { has_bytes: false, ..memory };
        assert_eq!(shown(MEMORY_CALL, &freed.to_words(), &names), "cid=1 correlation=9 ptr=\"0xa0\"");
        assert_eq!(shown(CALL, &call_words(48), &names), "cid=48 correlation=9");
    }

    #[test]
    fn work_shows_where_it_ran() {
        let mut names = NameTable::default();
        let (dispatch, to_device) = (names.add("Dispatch Kernel"), names.add("HtoD"));
        let place = "device=2 stream=1 hsa_queue=3 correlation=9";
        let kernel = Kernel { queue: 3, kind: dispatch, graph: 0 };
        let words = kernel_words(kernel, Sizes::new([7, 1, 1], [256, 2, 1]));
        let ran = format!("{place} kind=\"Dispatch Kernel\" grid=[7, 1, 1] block=[256, 2, 1]");
        assert_eq!(shown(KERNEL, &words, &names), ran);
        let node = Kernel { graph: 5, ..kernel };
        assert_eq!(shown(KERNEL, &node.to_words(), &names), format!("{place} kind=\"Dispatch Kernel\" graph id=5"));
        let copy = Copy { queue: 3, kind: to_device, bytes: 4000, graph: 0 };
        let copied = format!("{place} kind=\"HtoD\" bytes=4000 memory bandwidth (GB/s)=2.0");
        assert_eq!(shown(COPY, &copy.to_words(), &names), copied);
        assert_eq!(shown(COPY, &Copy { bytes: 0, ..copy }.to_words(), &names), format!("{place} kind=\"HtoD\""));
    }
}

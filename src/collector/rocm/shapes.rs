//! The layouts of HIP's records: libkineto's arguments, in its order. Unlike there, numbers are JSON numbers, and
//! addresses are hexadecimal strings.

use crate::collector::{Name, RecordLayout, RecordView};
use kineto_trace::activity::ArgValue;

/// The layouts of all records. They are variants of an enum, so that no two share an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RocmShape {
    Call = 1,
    LaunchCall = 2,
    CopyCall = 3,
    MemoryCall = 4,
    Kernel = 5,
    Copy = 6,
}

/// A call: `[function]`.
pub(super) static CALL: RocmShape = RocmShape::Call;
/// A call that launches a kernel: [`LaunchCall`].
pub(super) static LAUNCH_CALL: RocmShape = RocmShape::LaunchCall;
/// A call that copies: [`CopyCall`].
pub(super) static COPY_CALL: RocmShape = RocmShape::CopyCall;
/// A call that allocates, fills or frees memory: [`MemoryCall`].
pub(super) static MEMORY_CALL: RocmShape = RocmShape::MemoryCall;
/// A kernel: [`Kernel`].
pub(super) static KERNEL: RocmShape = RocmShape::Kernel;
/// A copy or a fill: [`struct@Copy`].
pub(super) static COPY: RocmShape = RocmShape::Copy;

/// A call that launches a kernel. Its row does not show the stream: some readers take any row with a stream for
/// device work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaunchCall {
    /// The function's number.
    pub(super) cid: u32,
    /// The kernel, if it is known.
    pub(super) kernel: Option<Name>,
    /// In blocks.
    pub(super) grid: [u32; 3],
    /// In threads.
    pub(super) block: [u32; 3],
    /// In bytes.
    pub(super) shared: u32,
}

/// A call that copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CopyCall {
    /// The function's number.
    pub(super) cid: u32,
    pub(super) src: u64,
    pub(super) dst: u64,
    pub(super) bytes: u64,
    /// HIP's number of the direction.
    pub(super) kind: u32,
}

/// A call that allocates, fills or frees memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryCall {
    /// The function's number.
    pub(super) cid: u32,
    pub(super) ptr: u64,
    /// The bytes, if the call names them.
    pub(super) bytes: Option<u64>,
}

/// A kernel on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// The hardware queue, 0 if not known.
    pub(super) queue: u64,
    /// The kind of work, such as "Dispatch Kernel".
    pub(super) kind: Name,
    /// In blocks; zeros if not known.
    pub(super) grid: [u32; 3],
    /// In threads; zeros if not known.
    pub(super) block: [u32; 3],
    /// Its graph, 0 if none.
    pub(super) graph: u32,
}

/// A copy or a fill on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// The hardware queue, 0 if not known.
    pub(super) queue: u64,
    /// The kind of work, such as "HtoD".
    pub(super) kind: Name,
    /// 0 if not known.
    pub(super) bytes: u64,
    /// Its graph, 0 if none.
    pub(super) graph: u32,
}

const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

pub(super) fn call_words(cid: u32) -> [u64; 1] {
    [cid.into()]
}

/// Packs grid and block into three words.
fn size_words([gx, gy, gz]: [u32; 3], [bx, by, bz]: [u32; 3]) -> [u64; 3] {
    [pair(gx, gy), pair(gz, bx), pair(by, bz)]
}

impl LaunchCall {
    /// `[kernel + 1 | function]`, grid and block, `[shared memory]`.
    pub(super) fn words(&self) -> [u64; 5] {
        let kernel = self.kernel.map_or(0, |name| name.0.saturating_add(1));
        let [a, b, c] = size_words(self.grid, self.block);
        [pair(kernel, self.cid), a, b, c, self.shared.into()]
    }
}

impl CopyCall {
    /// `[direction | function]`, `[bytes]`, `[src]`, `[dst]`.
    pub(super) fn words(&self) -> [u64; 4] {
        [pair(self.kind, self.cid), self.bytes, self.src, self.dst]
    }
}

impl MemoryCall {
    /// `[whether bytes are known | function]`, `[ptr]`, `[bytes]`.
    pub(super) fn words(&self) -> [u64; 3] {
        [pair(self.bytes.is_some().into(), self.cid), self.ptr, self.bytes.unwrap_or(0)]
    }
}

impl Kernel {
    /// `[kind | graph]`, `[queue]`, grid and block.
    pub(super) fn words(&self) -> [u64; 5] {
        let [a, b, c] = size_words(self.grid, self.block);
        [pair(self.kind.0, self.graph), self.queue, a, b, c]
    }
}

impl Copy {
    /// `[kind | graph]`, `[queue]`, `[bytes]`.
    pub(super) fn words(&self) -> [u64; 3] {
        [pair(self.kind.0, self.graph), self.queue, self.bytes]
    }
}

type Each<'e> = &'e mut dyn FnMut(&str, ArgValue<'_>);

impl RecordLayout for RocmShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        match self {
            RocmShape::Call => called(record, each),
            RocmShape::LaunchCall => launch_call(record, each),
            RocmShape::CopyCall => copy_call(record, each),
            RocmShape::MemoryCall => memory_call(record, each),
            RocmShape::Kernel => kernel(record, each),
            RocmShape::Copy => copy(record, each),
        }
    }
}

fn called(record: &RecordView<'_>, each: Each<'_>) {
    each("cid", ArgValue::U64(record.low(0).into()));
    each("correlation", ArgValue::U64(record.correlation));
}

fn launch_call(record: &RecordView<'_>, each: Each<'_>) {
    if let Some(kernel) = record.high(0).checked_sub(1) {
        each("kernel", ArgValue::Str(record.names.text(Name(kernel))));
    }
    called(record, each);
    if record.word(1) != 0 || record.word(2) != 0 {
        sizes(record, 1, each);
    }
    each("shared memory", ArgValue::U64(record.word(4)));
}

fn copy_call(record: &RecordView<'_>, each: Each<'_>) {
    called(record, each);
    address("src", record.word(2), each);
    address("dst", record.word(3), each);
    each("bytes", ArgValue::U64(record.word(1)));
    // A string, like the kind of device work: each key has a single type.
    each("kind", ArgValue::Str(&record.high(0).to_string()));
}

fn memory_call(record: &RecordView<'_>, each: Each<'_>) {
    if record.high(0) != 0 {
        each("bytes", ArgValue::U64(record.word(2)));
    }
    called(record, each);
    address("ptr", record.word(1), each);
}

fn kernel(record: &RecordView<'_>, each: Each<'_>) {
    placed(record, each);
    if record.word(3) != 0 || record.word(2) != 0 {
        sizes(record, 2, each);
    }
    in_graph(record, each);
}

#[expect(clippy::cast_precision_loss, reason = "a ratio, written with a few digits")]
fn copy(record: &RecordView<'_>, each: Each<'_>) {
    placed(record, each);
    let bytes = record.word(2);
    if bytes > 0 {
        each("bytes", ArgValue::U64(bytes));
        let duration = record.end.as_nanos().saturating_sub(record.start.as_nanos());
        if duration > 0 {
            each("memory bandwidth (GB/s)", ArgValue::F64(bytes as f64 / duration as f64));
        }
    }
    in_graph(record, each);
}

/// Writes the arguments that all device work shares.
fn placed(record: &RecordView<'_>, each: Each<'_>) {
    each("device", ArgValue::I64(record.device_id.into()));
    each("stream", ArgValue::I64(record.stream.into()));
    each("hsa_queue", ArgValue::U64(record.word(1)));
    each("correlation", ArgValue::U64(record.correlation));
    each("kind", ArgValue::Str(record.names.text(Name(record.high(0)))));
}

fn in_graph(record: &RecordView<'_>, each: Each<'_>) {
    if record.low(0) != 0 {
        each("graph id", ArgValue::U64(record.low(0).into()));
    }
}

/// Writes grid and block from three words, starting at `at`.
fn sizes(record: &RecordView<'_>, at: usize, each: Each<'_>) {
    each("grid", ArgValue::Ints(&[record.high(at), record.low(at), record.high(at + 1)].map(i64::from)));
    each("block", ArgValue::Ints(&[record.low(at + 1), record.high(at + 2), record.low(at + 2)].map(i64::from)));
}

fn address(key: &str, address: u64, each: Each<'_>) {
    each(key, ArgValue::Str(&format!("{address:#x}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::names::NameTable;
    use crate::time::Timestamp;

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
        let launch = LaunchCall { cid: 107, kernel: Some(kernel), grid: [3, 2, 1], block: [128, 4, 5], shared: 64 };
        let sizes = "cid=107 correlation=9 grid=[3, 2, 1] block=[128, 4, 5] shared memory=64";
        assert_eq!(shown(LAUNCH_CALL, &launch.words(), &names), format!("kernel=\"vecadd\" {sizes}"));
        let unnamed = LaunchCall { kernel: None, ..launch };
        assert_eq!(shown(LAUNCH_CALL, &unnamed.words(), &names), sizes);
        let copy = CopyCall { cid: 134, src: 0x7f18, dst: 0x7f14, bytes: 9216, kind: 1 };
        let copied = "cid=134 correlation=9 src=\"0x7f18\" dst=\"0x7f14\" bytes=9216 kind=\"1\"";
        assert_eq!(shown(COPY_CALL, &copy.words(), &names), copied);
        let memory = MemoryCall { cid: 1, ptr: 0xA0, bytes: Some(0) };
        assert_eq!(shown(MEMORY_CALL, &memory.words(), &names), "bytes=0 cid=1 correlation=9 ptr=\"0xa0\"");
        let freed = MemoryCall { bytes: None, ..memory };
        assert_eq!(shown(MEMORY_CALL, &freed.words(), &names), "cid=1 correlation=9 ptr=\"0xa0\"");
        assert_eq!(shown(CALL, &call_words(48), &names), "cid=48 correlation=9");
    }

    #[test]
    fn work_shows_where_it_ran() {
        let mut names = NameTable::default();
        let (dispatch, to_device) = (names.add("Dispatch Kernel"), names.add("HtoD"));
        let place = "device=2 stream=1 hsa_queue=3 correlation=9";
        let kernel = Kernel { queue: 3, kind: dispatch, grid: [7, 1, 1], block: [256, 2, 1], graph: 0 };
        let ran = format!("{place} kind=\"Dispatch Kernel\" grid=[7, 1, 1] block=[256, 2, 1]");
        assert_eq!(shown(KERNEL, &kernel.words(), &names), ran);
        let node = Kernel { grid: [0; 3], block: [0; 3], graph: 5, ..kernel };
        assert_eq!(shown(KERNEL, &node.words(), &names), format!("{place} kind=\"Dispatch Kernel\" graph id=5"));
        let copy = Copy { queue: 3, kind: to_device, bytes: 4000, graph: 0 };
        let copied = format!("{place} kind=\"HtoD\" bytes=4000 memory bandwidth (GB/s)=2.0");
        assert_eq!(shown(COPY, &copy.words(), &names), copied);
        assert_eq!(shown(COPY, &Copy { bytes: 0, ..copy }.words(), &names), format!("{place} kind=\"HtoD\""));
    }
}

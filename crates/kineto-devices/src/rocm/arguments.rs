//! The arguments of a call, and what they say about it. rocprofiler-sdk formats them as names and values, which are
//! parsed here; roctracer has them as bytes.

use super::hip::{CallEffect, Function};
use super::rows::{RowWords, pad_words, plain_row};
use super::shapes::{self, CopyCall, LaunchCall, MemoryCall, Sizes};
use super::streams;
use crate::Name;

/// The arguments of interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    /// HIP's stream, 0 for the default stream; `None` if the function has no such argument.
    pub(super) stream: Option<u64>,
    /// The kernel's host function or its handle, in roctracer's calls only.
    pub(super) kernel: u64,
    /// In blocks.
    pub(super) grid: [u32; 3],
    /// The grid in threads, which some functions take instead.
    pub(super) items: Option<[u32; 3]>,
    /// In threads.
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) src: u64,
    pub(super) dst: u64,
    pub(super) ptr: u64,
    pub(super) size: Option<u64>,
    pub(super) width: u64,
    pub(super) height: u64,
    /// HIP's number.
    pub(super) direction: Option<u32>,
    pub(super) graph: u64,
}

impl Arguments {
    /// Adds an argument.
    pub(super) fn add_argument(&mut self, name: &str, value: &str) {
        let word = || parse_number(value).unwrap_or(0);
        let side = || clamp_to_u32(word());
        match name {
            "stream" | "hStream" => self.stream = parse_number(value),
            "numBlocks" | "gridDim" => self.grid = parse_sides(value),
            "dimBlocks" | "blockDim" => self.block = parse_sides(value),
            "gridDimX" => self.grid[0] = side(),
            "gridDimY" => self.grid[1] = side(),
            "gridDimZ" => self.grid[2] = side(),
            "blockDimX" | "localWorkSizeX" => self.block[0] = side(),
            "blockDimY" | "localWorkSizeY" => self.block[1] = side(),
            "blockDimZ" | "localWorkSizeZ" => self.block[2] = side(),
            "globalWorkSizeX" => self.items.get_or_insert([1; 3])[0] = side(),
            "globalWorkSizeY" => self.items.get_or_insert([1; 3])[1] = side(),
            "globalWorkSizeZ" => self.items.get_or_insert([1; 3])[2] = side(),
            "sharedMemBytes" | "sharedMem" | "dynamicSmemBytes" => self.shared = side(),
            "src" | "srcDevice" | "srcHost" => self.src = word(),
            "dst" | "dstDevice" | "dstHost" | "dest" => self.dst = word(),
            "ptr" | "dev_ptr" | "devPtr" => self.ptr = word(),
            "size" | "sizeBytes" | "sizeInBytes" | "ByteCount" | "count" => self.size = parse_number(value),
            "width" => self.width = word(),
            "height" => self.height = word(),
            "kind" => self.direction = parse_direction(value),
            "graphExec" => self.graph = word(),
            _ => {}
        }
    }

    /// Returns the grid in blocks.
    pub(super) fn grid_in_blocks(&self) -> [u32; 3] {
        self.items.map_or(self.grid, |items| in_blocks(items, self.block))
    }

    /// Returns how many bytes the function copies, fills or allocates, if known.
    pub(super) fn byte_count(&self, function: &str) -> Option<u64> {
        let of_one = match CallEffect::from_name(function) {
            CallEffect::Fill if function.contains("D16") => 2,
            CallEffect::Fill if function.contains("D32") => 4,
            _ => 1,
        };
        let plane = self.width.checked_mul(self.height).filter(|bytes| *bytes > 0);
        self.size.map(|size| size.saturating_mul(of_one)).or(plane)
    }

    /// Returns HIP's number of the direction in which the function copies; if unknown, the number that infers it from
    /// the pointers.
    fn copy_direction(&self, function: &str) -> u32 {
        const DEFAULT: u32 = 4;
        let names = [("HtoD", 1), ("DtoH", 2), ("DtoD", 3), ("Peer", 3)];
        let by_name = names.iter().find(|(part, _)| function.contains(part)).map(|(_, number)| *number);
        self.direction.or(by_name).unwrap_or(DEFAULT)
    }

    /// Returns the stream of a thread's call. A copy without a stream argument uses the default stream; the stream of
    /// some launches is unknown.
    pub(super) fn stream_of(&self, function: &Function, thread: i64) -> Option<u64> {
        let is_of_thread = function.name.ends_with("_spt");
        let handle = match self.stream {
            None if !matches!(function.does, CallEffect::Copy | CallEffect::Fill) => return None,
            None | Some(0) if is_of_thread => streams::PER_THREAD,
            named => named.unwrap_or(0),
        };
        Some(streams::of_handle(handle, thread))
    }

    /// Returns the row of a call of a function with that number, and with that kernel if known.
    pub(super) fn row(&self, function: &Function, cid: u32, kernel: Option<Name>) -> RowWords {
        let bytes = self.byte_count(&function.name);
        let memory = |ptr| (&shapes::MEMORY_CALL, pad_words(MemoryCall::new(cid, ptr, bytes).to_words()));
        match function.does {
            CallEffect::Launch => {
                let launch = LaunchCall { cid, kernel, shared: self.shared };
                (&shapes::LAUNCH_CALL, shapes::launch_words(launch, Sizes::new(self.grid_in_blocks(), self.block)))
            }
            CallEffect::Copy => {
                let (bytes, kind) = (bytes.unwrap_or(0), self.copy_direction(&function.name));
                let copy = CopyCall { cid, src: self.src, dst: self.dst, bytes, kind };
                (&shapes::COPY_CALL, pad_words(copy.to_words()))
            }
            CallEffect::Fill => memory(self.dst),
            CallEffect::Allocate | CallEffect::Release => memory(self.ptr),
            CallEffect::LaunchGraph | CallEffect::Other => plain_row(cid),
        }
    }
}

/// Converts a size in threads into blocks, of which the last may be partial.
pub(super) fn in_blocks([x, y, z]: [u32; 3], [block_x, block_y, block_z]: [u32; 3]) -> [u32; 3] {
    [(x, block_x), (y, block_y), (z, block_z)].map(|(items, block)| items.div_ceil(block.max(1)))
}

fn clamp_to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Parses a number or an address; null pointers are 0.
fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if matches!(text, "(null)" | "(nil)" | "nullptr" | "NULL") => Some(0),
        None => text.parse().ok(),
    }
}

/// Parses three sides, such as `{z=1, y=1, x=128}` or `128,1,1`; missing sides are 1.
fn parse_sides(text: &str) -> [u32; 3] {
    let labelled = |label: &str| {
        let (_, rest) = text.split_once(label)?;
        parse_number(rest.split(|sign: char| !sign.is_ascii_alphanumeric()).next()?)
    };
    if text.contains('=') {
        return ["x=", "y=", "z="].map(|label| clamp_to_u32(labelled(label).unwrap_or(1)));
    }
    let mut numbers = text.split(|sign: char| !sign.is_ascii_digit()).filter_map(parse_number);
    [(); 3].map(|()| clamp_to_u32(numbers.next().unwrap_or(1)))
}

/// Parses a direction: HIP's number, or its name with or without the common prefix.
fn parse_direction(text: &str) -> Option<u32> {
    let names = ["HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice", "Default"];
    let by_name = || names.iter().position(|name| text.trim().ends_with(name)).and_then(|at| u32::try_from(at).ok());
    parse_number(text).map(clamp_to_u32).or_else(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[(&str, &str)]) -> Arguments {
        let mut all = Arguments::default();
        arguments.iter().for_each(|(name, value)| all.add_argument(name, value));
        all
    }

    #[test]
    fn launch_sizes_are_parsed_in_any_form() {
        let kernel = of(&[
            ("numBlocks", "{z=1, y=2, x=30}"),
            ("dimBlocks", "{z=1, y=4, x=128}"),
            ("sharedMemBytes", "64"),
            ("stream", "0x55d0"),
        ]);
        assert_eq!((kernel.grid_in_blocks(), kernel.block), ([30, 2, 1], [128, 4, 1]));
        assert_eq!((kernel.shared, kernel.stream), (64, Some(0x55d0)));
        assert_eq!(of(&[("numBlocks", "{x=3,y=2,z=1}")]).grid_in_blocks(), [3, 2, 1]);
        assert_eq!(of(&[("numBlocks", "3,2")]).grid_in_blocks(), [3, 2, 1]);
        let module = of(&[("gridDimX", "7"), ("gridDimY", "1"), ("gridDimZ", "1"), ("hStream", "(null)")]);
        assert_eq!((module.grid_in_blocks(), module.stream), ([7, 1, 1], Some(0)));
        assert_eq!(in_blocks([10, 1, 1], [4, 0, 1]), [3, 1, 1]);
        let items = of(&[("globalWorkSizeX", "1000"), ("localWorkSizeX", "256"), ("localWorkSizeY", "1")]);
        assert_eq!(items.grid_in_blocks(), [4, 1, 1], "threads are not blocks");
        assert_eq!(of(&[("function_address", "0x1")]), Arguments::default());
    }

    #[test]
    fn copy_arguments_are_parsed() {
        let copy = of(&[("dst", "0x7f14"), ("src", "0x7f18"), ("sizeBytes", "9216"), ("kind", "HostToDevice")]);
        assert_eq!((copy.dst, copy.src), (0x7f14, 0x7f18));
        assert_eq!((copy.byte_count("hipMemcpy"), copy.copy_direction("hipMemcpy")), (Some(9216), 1));
        assert_eq!(of(&[("kind", "hipMemcpyDeviceToHost")]).copy_direction("hipMemcpy"), 2);
        assert_eq!(of(&[("kind", "3")]).copy_direction("hipMemcpy"), 3);
        let by_name = ["hipMemcpyHtoD", "hipMemcpyDtoHAsync", "hipMemcpyPeerAsync", "hipMemcpy"];
        assert_eq!(by_name.map(|name| of(&[]).copy_direction(name)), [1, 2, 3, 4]);
        assert_eq!(of(&[("width", "10"), ("height", "3")]).byte_count("hipMemcpy2D"), Some(30));
        assert_eq!(of(&[]).byte_count("hipMemcpyParam2D"), None);
    }

    #[test]
    fn fill_and_allocation_sizes_are_parsed() {
        let fill = of(&[("dest", "0xA0"), ("value", "1"), ("count", "8")]);
        assert_eq!(
            (fill.dst, fill.byte_count("hipMemsetD32Async"), fill.byte_count("hipMemsetD8")),
            (0xA0, Some(32), Some(8))
        );
        let allocated = of(&[("ptr", "0xB0"), ("size", "100")]);
        assert_eq!((allocated.ptr, allocated.byte_count("hipMalloc")), (0xB0, Some(100)));
        assert_eq!(of(&[("ptr", "garbage"), ("size", "-1")]).byte_count("hipMalloc"), None);
    }
}

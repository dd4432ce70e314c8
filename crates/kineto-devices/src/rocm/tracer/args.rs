//! Reads the arguments of HIP's functions by offset from the data of a call.
//!
//! The data is the correlation id (8 bytes), the phase (4), and from byte 16 on a union of each function's arguments.
//! Later HIP versions only changed the bytes after the union: the arguments of these functions have the same offsets
//! from ROCm 4.5 to 7. Arguments of other versions are not read.

use super::runtime::version_number;
use crate::rocm::hip::Direction;

/// The arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Args {
    /// Launches a kernel.
    Launch(LaunchArguments),
    /// Launches a graph.
    Graph { graph: u64, stream: u64 },
    /// Begins or ends a stream capture.
    Capture { stream: u64 },
    /// Copies; `kind` is HIP's number of the direction.
    Copy { dst: u64, src: u64, bytes: u64, kind: u32, stream: Option<u64> },
    /// Fills memory.
    Fill { ptr: u64, bytes: u64, stream: Option<u64> },
    /// Allocates memory: where the address will be stored, and how much.
    Allocate { place: u64, bytes: u64 },
    /// Frees memory.
    Release { ptr: u64 },
}

impl Args {
    /// Returns HIP's handle of the stream, 0 for the default stream; `None` without a stream argument.
    pub(super) fn stream_handle(self) -> Option<u64> {
        match self {
            Args::Launch(launch) => Some(launch.stream),
            Args::Graph { stream, .. } | Args::Capture { stream } => Some(stream),
            Args::Copy { stream, .. } | Args::Fill { stream, .. } => Some(stream.unwrap_or(0)),
            Args::Allocate { .. } | Args::Release { .. } => None,
        }
    }
}

/// The arguments of a call that launches a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaunchArguments {
    pub(super) kernel: KernelArgument,
    /// In blocks.
    pub(super) grid: [u32; 3],
    /// In threads.
    pub(super) block: [u32; 3],
    /// In bytes.
    pub(super) shared: u32,
    pub(super) stream: u64,
}

/// How a call identifies its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelArgument {
    /// By the address of the kernel's host function.
    Pointer(u64),
    /// By the handle of a module's function.
    Handle(u64),
}

/// The offsets of a function's arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    /// Kernel by pointer, sizes as `dim3`.
    Launch,
    /// Kernel by handle, sizes as six numbers; whether the grid is in threads, as in OpenCL.
    ModuleLaunch {
        counts_threads: bool,
    },
    GraphLaunch,
    Capture,
    /// The direction is an argument, or known; the stream is the last argument, if there is one.
    Copy {
        has_stream: bool,
    },
    CopyDirected {
        direction: Direction,
        has_stream: bool,
    },
    CopyPeer {
        has_stream: bool,
    },
    /// The bytes of an element.
    Fill {
        width: u64,
        has_stream: bool,
    },
    Allocate,
    Release,
}

/// Returns whether the layouts of this HIP version are known.
pub(super) fn are_known_for(hip: i32) -> bool {
    (version_number(4, 4)..version_number(8, 0)).contains(&hip)
}

/// The longest data that a layout needs.
pub(super) const MOST: usize = 80;

impl Layout {
    /// Returns the layout of a function's arguments, if they are of interest and known.
    pub(super) fn for_function(function: &str) -> Option<Layout> {
        let (name, has_stream) = match function.strip_suffix("Async").or(function.strip_suffix("WithStream")) {
            Some(name) => (name, true),
            None => (function, false),
        };
        let directed = |direction| Layout::CopyDirected { direction, has_stream };
        Some(match name {
            "hipLaunchKernel" | "hipExtLaunchKernel" | "hipLaunchCooperativeKernel" => Layout::Launch,
            "hipModuleLaunchKernel" | "hipModuleLaunchCooperativeKernel" => {
                Layout::ModuleLaunch { counts_threads: false }
            }
            "hipExtModuleLaunchKernel" | "hipHccModuleLaunchKernel" => Layout::ModuleLaunch { counts_threads: true },
            "hipGraphLaunch" => Layout::GraphLaunch,
            "hipStreamBeginCapture" | "hipStreamBeginCaptureToGraph" | "hipStreamEndCapture" => Layout::Capture,
            "hipMemcpy" => Layout::Copy { has_stream },
            "hipMemcpyHtoD" => directed(Direction::HostToDevice),
            "hipMemcpyDtoH" => directed(Direction::DeviceToHost),
            "hipMemcpyDtoD" => directed(Direction::DeviceToDevice),
            "hipMemcpyPeer" => Layout::CopyPeer { has_stream },
            "hipMemset" | "hipMemsetD8" => Layout::Fill { width: 1, has_stream },
            "hipMemsetD16" => Layout::Fill { width: 2, has_stream },
            "hipMemsetD32" => Layout::Fill { width: 4, has_stream },
            "hipMalloc" | "hipMallocManaged" | "hipExtMallocWithFlags" => Layout::Allocate,
            "hipFree" => Layout::Release,
            _ => return None,
        })
    }

    /// Returns how many bytes of the data are needed, at most [`MOST`].
    pub(super) fn length(self) -> usize {
        match self {
            Layout::Launch => 80,
            Layout::ModuleLaunch { .. } | Layout::CopyPeer { has_stream: true } => 64,
            Layout::Copy { has_stream: true } | Layout::CopyPeer { has_stream: false } => 56,
            Layout::CopyDirected { has_stream: true, .. } | Layout::Fill { has_stream: true, .. } => 48,
            Layout::Copy { has_stream: false } => 44,
            Layout::CopyDirected { .. } | Layout::Fill { .. } | Layout::Allocate => 40,
            Layout::GraphLaunch => 32,
            Layout::Release | Layout::Capture => 24,
        }
    }

    /// Reads the arguments; returns `None` if `data` is shorter than [`length`](Layout::length).
    pub(super) fn read_args(self, data: &[u8]) -> Option<Args> {
        let data = CallBytes(data.get(..self.length())?);
        let stream = |has_stream: bool, at| if has_stream { data.u64_at(at) } else { None };
        Some(match self {
            Layout::Launch => Args::Launch(LaunchArguments {
                kernel: KernelArgument::Pointer(data.u64_at(16)?),
                grid: data.dim3_at(24)?,
                block: data.dim3_at(36)?,
                shared: data.u32_at(64)?,
                stream: data.u64_at(72)?,
            }),
            Layout::ModuleLaunch { counts_threads } => {
                let (grid, block) = (data.dim3_at(24)?, data.dim3_at(36)?);
                let kernel = KernelArgument::Handle(data.u64_at(16)?);
                let grid = if counts_threads { in_blocks(grid, block) } else { grid };
                Args::Launch(LaunchArguments {
                    kernel,
                    grid,
                    block,
                    shared: data.u32_at(48)?,
                    stream: data.u64_at(56)?,
                })
            }
            Layout::GraphLaunch => Args::Graph { graph: data.u64_at(16)?, stream: data.u64_at(24)? },
            Layout::Capture => Args::Capture { stream: data.u64_at(16)? },
            Layout::Copy { has_stream } => {
                let (dst, src, bytes, kind) = (data.u64_at(16)?, data.u64_at(24)?, data.u64_at(32)?, data.u32_at(40)?);
                Args::Copy { dst, src, bytes, kind, stream: stream(has_stream, 48) }
            }
            Layout::CopyDirected { direction, has_stream } => {
                let (dst, src, bytes) = (data.u64_at(16)?, data.u64_at(24)?, data.u64_at(32)?);
                Args::Copy { dst, src, bytes, kind: direction_number(direction), stream: stream(has_stream, 40) }
            }
            Layout::CopyPeer { has_stream } => {
                let (dst, src, bytes) = (data.u64_at(16)?, data.u64_at(32)?, data.u64_at(48)?);
                let kind = direction_number(Direction::DeviceToDevice);
                Args::Copy { dst, src, bytes, kind, stream: stream(has_stream, 56) }
            }
            Layout::Fill { width, has_stream } => {
                let (ptr, bytes) = (data.u64_at(16)?, data.u64_at(32)?.saturating_mul(width));
                Args::Fill { ptr, bytes, stream: stream(has_stream, 40) }
            }
            Layout::Allocate => Args::Allocate { place: data.u64_at(16)?, bytes: data.u64_at(32)? },
            Layout::Release => Args::Release { ptr: data.u64_at(16)? },
        })
    }
}

/// Returns HIP's number of a direction.
fn direction_number(direction: Direction) -> u32 {
    match direction {
        Direction::HostToHost => 0,
        Direction::HostToDevice => 1,
        Direction::DeviceToHost => 2,
        Direction::DeviceToDevice => 3,
        Direction::Unknown => 4,
    }
}

/// Converts a size in threads into blocks, of which the last may be partial.
fn in_blocks(threads: [u32; 3], block: [u32; 3]) -> [u32; 3] {
    std::array::from_fn(|at| match (threads.get(at), block.get(at)) {
        (Some(threads), Some(block)) => threads.div_ceil((*block).max(1)),
        _ => 0,
    })
}

/// The data of a call.
#[derive(Clone, Copy)]
struct CallBytes<'d>(&'d [u8]);

impl CallBytes<'_> {
    fn u64_at(self, at: usize) -> Option<u64> {
        self.0.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    fn u32_at(self, at: usize) -> Option<u32> {
        self.0.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    fn dim3_at(self, at: usize) -> Option<[u32; 3]> {
        Some([self.u32_at(at)?, self.u32_at(at + 4)?, self.u32_at(at + 8)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Makes data with words at these offsets.
    fn data(words: &[(usize, u64)]) -> [u8; MOST] {
        let mut data = [0xEE; MOST];
        words.iter().for_each(|(at, word)| data[*at..at + 8].copy_from_slice(&word.to_ne_bytes()));
        data
    }

    fn read(function: &str, words: &[(usize, u64)]) -> Args {
        Layout::for_function(function).unwrap().read_args(&data(words)).unwrap()
    }

    fn pair(low: u64, high: u64) -> u64 {
        high << 32 | low
    }

    #[test]
    fn launches_are_read() {
        let sizes = [(24, pair(3, 2)), (32, pair(1, 128)), (40, pair(4, 5))];
        let words = [&[(16, 0xF0)][..], &sizes, &[(64, 256), (72, 0xA0)]].concat();
        let launch = LaunchArguments {
            kernel: KernelArgument::Pointer(0xF0),
            grid: [3, 2, 1],
            block: [128, 4, 5],
            shared: 256,
            stream: 0xA0,
        };
        assert_eq!(read("hipLaunchKernel", &words), Args::Launch(launch));
        let words = [&[(16, 0xF0)][..], &sizes, &[(48, pair(64, 9)), (56, 0xB0)]].concat();
        let by_handle = LaunchArguments { kernel: KernelArgument::Handle(0xF0), shared: 64, stream: 0xB0, ..launch };
        assert_eq!(read("hipModuleLaunchKernel", &words), Args::Launch(by_handle));
        let words = [(16, 0xF0), (24, pair(114_944, 1)), (32, pair(1, 256)), (40, pair(1, 1)), (48, 0), (56, 0)];
        let Args::Launch(launch) = read("hipExtModuleLaunchKernel", &words) else { panic!() };
        assert_eq!((launch.grid, launch.block), ([449, 1, 1], [256, 1, 1]), "threads in blocks");
        assert_eq!(in_blocks([10, 1, 1], [4, 0, 1]), [3, 1, 1]);
        assert_eq!(read("hipStreamEndCapture", &[(16, 0xA0)]), Args::Capture { stream: 0xA0 });
        assert_eq!(read("hipGraphLaunch", &[(16, 1), (24, 2)]), Args::Graph { graph: 1, stream: 2 });
    }

    #[test]
    fn copies_and_fills_are_read() {
        let words = [(16, 0xD0), (24, 0x50), (32, 9216), (40, pair(1, 7)), (48, 0xA0)];
        let copy = |kind, stream| Args::Copy { dst: 0xD0, src: 0x50, bytes: 9216, kind, stream };
        assert_eq!(read("hipMemcpyAsync", &words), copy(1, Some(0xA0)));
        assert_eq!(read("hipMemcpyWithStream", &words), copy(1, Some(0xA0)));
        assert_eq!(read("hipMemcpy", &words), copy(1, None));
        assert_eq!(read("hipMemcpyDtoHAsync", &[&words[..3], &[(40, 0xA0)]].concat()), copy(2, Some(0xA0)));
        assert_eq!(read("hipMemcpyHtoD", &words), copy(1, None));
        let words = [(16, 0xD0), (24, 1), (32, 0x50), (40, 2), (48, 9216), (56, 0xA0)];
        assert_eq!(read("hipMemcpyPeerAsync", &words), copy(3, Some(0xA0)));
        let words = [(16, 0xD0), (24, 7), (32, 100), (40, 0xA0)];
        let fill = |bytes, stream| Args::Fill { ptr: 0xD0, bytes, stream };
        assert_eq!(read("hipMemset", &words), fill(100, None));
        assert_eq!(read("hipMemsetD32Async", &words), fill(400, Some(0xA0)));
    }

    #[test]
    fn memory_arguments_are_read() {
        let words = [(16, 0xD0), (24, 0), (32, 4096), (40, 0xA0)];
        assert_eq!(read("hipMallocAsync", &words), Args::Allocate { place: 0xD0, bytes: 4096 });
        assert_eq!(read("hipFreeAsync", &words), Args::Release { ptr: 0xD0 });
        for name in ["hipDeviceSynchronize", "hipMemcpy2DAsync", "hipLaunchByPtr", "Async", ""] {
            assert!(Layout::for_function(name).is_none(), "{name}");
        }
        assert!(are_known_for(50_221_153) && are_known_for(70_051_831));
        assert!(!are_known_for(40_221_131) && !are_known_for(80_000_000) && !are_known_for(0));
    }

    const NAMES: [&str; 19] = [
        "hipLaunchKernel",
        "hipExtLaunchKernel",
        "hipLaunchCooperativeKernel",
        "hipModuleLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipGraphLaunch",
        "hipMemcpy",
        "hipMemcpyAsync",
        "hipMemcpyDtoD",
        "hipMemcpyDtoDAsync",
        "hipMemcpyPeer",
        "hipMemcpyPeerAsync",
        "hipMemset",
        "hipMemsetD16Async",
        "hipMalloc",
        "hipMallocAsync",
        "hipMallocManaged",
        "hipFree",
        "hipFreeAsync",
    ];

    proptest! {
        #[test]
        fn each_layout_is_read_from_just_its_length(bytes in proptest::collection::vec(any::<u8>(), 0..2 * MOST)) {
            for layout in NAMES.map(|name| Layout::for_function(name).unwrap()) {
                prop_assert!(layout.length() <= MOST);
                prop_assert_eq!(layout.read_args(&bytes).is_some(), bytes.len() >= layout.length());
            }
        }
    }
}

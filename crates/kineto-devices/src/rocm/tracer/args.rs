//! Reads the arguments of HIP's functions by offset from the data of a call.
//!
//! The data is the correlation id (8 bytes), the phase (4), and from byte 16 on a union of each function's arguments.
//! Later HIP versions only changed the bytes after the union: the arguments of these functions have the same offsets
//! from ROCm 4.5 to 7. Arguments of other versions are not read.

use super::runtime::version_number;
use crate::rocm::arguments::Arguments;

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
    /// The direction is an argument; the stream is the last argument, if there is one.
    Copy {
        has_stream: bool,
    },
    /// The function's name says the direction.
    CopyDirected {
        has_stream: bool,
    },
    CopyPeer {
        has_stream: bool,
    },
    Fill {
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
        Some(match name {
            "hipLaunchKernel" | "hipExtLaunchKernel" | "hipLaunchCooperativeKernel" => Layout::Launch,
            "hipModuleLaunchKernel" | "hipModuleLaunchCooperativeKernel" => {
                Layout::ModuleLaunch { counts_threads: false }
            }
            "hipExtModuleLaunchKernel" | "hipHccModuleLaunchKernel" => Layout::ModuleLaunch { counts_threads: true },
            "hipGraphLaunch" => Layout::GraphLaunch,
            "hipStreamBeginCapture" | "hipStreamBeginCaptureToGraph" | "hipStreamEndCapture" => Layout::Capture,
            "hipMemcpy" => Layout::Copy { has_stream },
            "hipMemcpyHtoD" | "hipMemcpyDtoH" | "hipMemcpyDtoD" => Layout::CopyDirected { has_stream },
            "hipMemcpyPeer" => Layout::CopyPeer { has_stream },
            "hipMemset" | "hipMemsetD8" | "hipMemsetD16" | "hipMemsetD32" => Layout::Fill { has_stream },
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
            Layout::CopyDirected { has_stream: true } | Layout::Fill { has_stream: true } => 48,
            Layout::Copy { has_stream: false } => 44,
            Layout::CopyDirected { .. } | Layout::Fill { .. } | Layout::Allocate => 40,
            Layout::GraphLaunch => 32,
            Layout::Release | Layout::Capture => 24,
        }
    }

    /// Reads the arguments; returns `None` if `data` is shorter than [`length`](Layout::length). Of an allocation,
    /// `ptr` is the place where the address will be stored.
    pub(super) fn read_args(self, data: &[u8]) -> Option<Arguments> {
        let data = CallBytes(data.get(..self.length())?);
        let mut read = Arguments::default();
        match self {
            Layout::Launch => {
                (read.kernel, read.grid, read.block) = (data.u64_at(16)?, data.dim3_at(24)?, data.dim3_at(36)?);
                (read.shared, read.stream) = (data.u32_at(64)?, Some(data.u64_at(72)?));
            }
            Layout::ModuleLaunch { counts_threads } => {
                (read.kernel, read.grid, read.block) = (data.u64_at(16)?, data.dim3_at(24)?, data.dim3_at(36)?);
                (read.shared, read.stream) = (data.u32_at(48)?, Some(data.u64_at(56)?));
                read.items = counts_threads.then_some(read.grid);
            }
            Layout::GraphLaunch => (read.graph, read.stream) = (data.u64_at(16)?, Some(data.u64_at(24)?)),
            Layout::Capture => read.stream = Some(data.u64_at(16)?),
            Layout::Copy { .. } => {
                (read.dst, read.src, read.size) = (data.u64_at(16)?, data.u64_at(24)?, Some(data.u64_at(32)?));
                (read.direction, read.stream) = (Some(data.u32_at(40)?), data.u64_at(48));
            }
            Layout::CopyDirected { .. } => {
                (read.dst, read.src, read.size) = (data.u64_at(16)?, data.u64_at(24)?, Some(data.u64_at(32)?));
                read.stream = data.u64_at(40);
            }
            Layout::CopyPeer { .. } => {
                (read.dst, read.src, read.size) = (data.u64_at(16)?, data.u64_at(32)?, Some(data.u64_at(48)?));
                read.stream = data.u64_at(56);
            }
            Layout::Fill { .. } => {
                (read.dst, read.size, read.stream) = (data.u64_at(16)?, Some(data.u64_at(32)?), data.u64_at(40));
            }
            Layout::Allocate => (read.ptr, read.size) = (data.u64_at(16)?, Some(data.u64_at(32)?)),
            Layout::Release => read.ptr = data.u64_at(16)?,
        }
        Some(read)
    }
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

    fn read(function: &str, words: &[(usize, u64)]) -> Arguments {
        Layout::for_function(function).unwrap().read_args(&data(words)).unwrap()
    }

    fn pair(low: u64, high: u64) -> u64 {
        high << 32 | low
    }

    #[test]
    fn launches_are_read() {
        let sizes = [(24, pair(3, 2)), (32, pair(1, 128)), (40, pair(4, 5))];
        let words = [&[(16, 0xF0)][..], &sizes, &[(64, 256), (72, 0xA0)]].concat();
        let (grid, block, stream) = ([3, 2, 1], [128, 4, 5], Some(0xA0));
        let launch = Arguments { kernel: 0xF0, grid, block, shared: 256, stream, ..Arguments::default() };
        assert_eq!(read("hipLaunchKernel", &words), launch);
        let words = [&[(16, 0xF0)][..], &sizes, &[(48, pair(64, 9)), (56, 0xB0)]].concat();
        let by_handle = Arguments { shared: 64, stream: Some(0xB0), ..launch };
        assert_eq!(read("hipModuleLaunchKernel", &words), by_handle);
        let words = [(16, 0xF0), (24, pair(114_944, 1)), (32, pair(1, 256)), (40, pair(1, 1)), (48, 0), (56, 0)];
        let launch = read("hipExtModuleLaunchKernel", &words);
        assert_eq!((launch.grid_in_blocks(), launch.block), ([449, 1, 1], [256, 1, 1]), "threads in blocks");
        let capture = read("hipStreamEndCapture", &[(16, 0xA0)]);
        assert_eq!(capture, Arguments { stream, ..Arguments::default() });
        let graph = read("hipGraphLaunch", &[(16, 1), (24, 2)]);
        assert_eq!(graph, Arguments { graph: 1, stream: Some(2), ..Arguments::default() });
    }

    #[test]
    fn copies_and_fills_are_read() {
        let words = [(16, 0xD0), (24, 0x50), (32, 9216), (40, pair(1, 7)), (48, 0xA0)];
        let copy = |direction, stream| {
            let (dst, src, size) = (0xD0, 0x50, Some(9216));
            Arguments { dst, src, size, direction, stream, ..Arguments::default() }
        };
        assert_eq!(read("hipMemcpyAsync", &words), copy(Some(1), Some(0xA0)));
        assert_eq!(read("hipMemcpyWithStream", &words), copy(Some(1), Some(0xA0)));
        assert_eq!(read("hipMemcpy", &words), copy(Some(1), None));
        assert_eq!(read("hipMemcpyDtoHAsync", &[&words[..3], &[(40, 0xA0)]].concat()), copy(None, Some(0xA0)));
        assert_eq!(read("hipMemcpyHtoD", &words), copy(None, None));
        let words = [(16, 0xD0), (24, 1), (32, 0x50), (40, 2), (48, 9216), (56, 0xA0)];
        assert_eq!(read("hipMemcpyPeerAsync", &words), copy(None, Some(0xA0)));
        let words = [(16, 0xD0), (24, 7), (32, 100), (40, 0xA0)];
        let fill = |stream| Arguments { dst: 0xD0, size: Some(100), stream, ..Arguments::default() };
        assert_eq!(read("hipMemset", &words), fill(None));
        assert_eq!(read("hipMemsetD32Async", &words), fill(Some(0xA0)));
    }

    #[test]
    fn memory_arguments_are_read() {
        let words = [(16, 0xD0), (24, 0), (32, 4096), (40, 0xA0)];
        let memory = |size| Arguments { ptr: 0xD0, size, ..Arguments::default() };
        assert_eq!(read("hipMallocAsync", &words), memory(Some(4096)));
        assert_eq!(read("hipFreeAsync", &words), memory(None));
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

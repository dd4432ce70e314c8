//! Attributes of the simulated device, a GPU of compute capability 9.0.

use crate::error::{Error, Outcome};

/// Bytes of device memory.
pub(crate) const MEMORY: u64 = 80 << 30;
pub(crate) const THREADS_PER_BLOCK: u32 = 1024;
pub(crate) const SHARED_PER_BLOCK: u32 = 48 << 10;
pub(crate) const SHARED_PER_BLOCK_OPTIN: u32 = 227 << 10;
pub(crate) const RESERVED_SHARED_PER_BLOCK: u32 = 1 << 10;
const SHARED_PER_MULTIPROCESSOR: u32 = 228 << 10;

/// An attribute of a device, by CUDA's number.
pub(crate) fn attribute(device: i32, attribute: i32) -> Outcome<i32> {
    Ok(match attribute {
        1..=3 => THREADS_PER_BLOCK as i32,
        // The block's depth, and the grid.
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        8 => SHARED_PER_BLOCK as i32,
        // Constant memory, warp, pitch.
        9 => 65_536,
        10 => 32,
        11 => i32::MAX,
        // Registers per block and per multiprocessor.
        12 | 82 => 65_536,
        // Clocks of cores and memory in kHz, width of the memory bus in bits.
        13 => 1_980_000,
        36 => 2_619_000,
        37 => 5_120,
        14 => 512,
        16 => 132,
        // Switches that are off: timeout, integrated, compute mode, TCC, ECC, boards of several GPUs.
        17 | 18 | 20 | 32 | 35 | 84 => 0,
        // Switches that are on: overlap, mapping, concurrency, addressing, priorities, caches, managed memory, pools.
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 88 | 89 | 90 | 95 | 115 => 1,
        // PCI bus, device and domain.
        33 => 0x17 + device,
        34 | 50 => 0,
        // Cache of the second level.
        38 => 50 << 20,
        39 => 2_048,
        40 => 3,
        75 => crate::control::options().capability / 10,
        76 => crate::control::options().capability % 10,
        81 => SHARED_PER_MULTIPROCESSOR as i32,
        97 => SHARED_PER_BLOCK_OPTIN as i32,
        106 => 32,
        111 => RESERVED_SHARED_PER_BLOCK as i32,
        other if (1..=150).contains(&other) => 0,
        _ => return Err(Error::INVALID_VALUE),
    })
}

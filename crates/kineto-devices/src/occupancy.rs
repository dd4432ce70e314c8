//! Computes how many blocks of a CUDA kernel fit on a multiprocessor, which limits apply, and how much of it a launch
//! uses.
//!
//! The rules are those of NVIDIA's occupancy calculator with the default split of L1 and shared memory; libkineto
//! writes the same figures.

use std::fmt;

/// The value of a limit that does not apply.
pub(crate) const UNLIMITED: u32 = i32::MAX.cast_unsigned();

/// The allocation unit of a warp's registers.
const REGISTER_UNIT: u32 = 256;
/// The barriers of a kernel by default; records do not contain the number.
const BARRIERS: u32 = 1;

/// The properties of a device, from its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Device {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    pub(crate) multiprocessors: u32,
    pub(crate) warp_size: u32,
    pub(crate) threads_per_block: u32,
    pub(crate) threads_per_multiprocessor: u32,
    /// If the driver does not report it, [`blocks_per_multiprocessor`].
    pub(crate) blocks_per_multiprocessor: u32,
    pub registers_per_block: u32,
    pub(crate) registers_per_multiprocessor: u32,
    /// In bytes, like all shared memory here.
    pub shared_per_block: u32,
    /// For kernels that request more than `shared_per_block`.
    pub(crate) shared_per_block_optin: u32,
    pub(crate) shared_per_multiprocessor: u32,
    /// The driver's share for each block. If the driver does not report it, [`shared_reserved_per_block`].
    pub(crate) shared_reserved_per_block: u32,
}

/// The limit on a block's shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SharedLimit {
    /// `shared_per_block`, as libkineto assumes. A kernel that requested more then has no blocks, and its rows show 0
    /// %.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare with libkineto's figures"))]
    Default,
    /// `shared_per_block_optin`, the true limit: a kernel that ran had requested the memory that it used.
    OptIn,
}

/// The resources of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelResources {
    pub(crate) threads_per_block: u32,
    pub registers_per_thread: u32,
    /// Static and dynamic, in bytes.
    pub shared: u32,
}

/// The blocks of a kernel on a multiprocessor, by each limit; [`UNLIMITED`] for limits that do not apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Occupancy {
    /// The least of all limits.
    pub(crate) active_blocks: u32,
    pub(crate) limiting: Factors,
    pub(crate) limit_registers: u32,
    pub(crate) limit_shared: u32,
    pub(crate) limit_warps: u32,
    pub(crate) limit_blocks: u32,
    pub(crate) limit_barriers: u32,
    pub registers_per_block: u32,
    /// In bytes, including the driver's share.
    pub shared_per_block: u32,
}

impl Occupancy {
    /// Returns `None` for a block without threads, or a device with missing properties.
    pub(crate) fn new(device: &Device, kernel: &KernelResources, shared: SharedLimit) -> Option<Occupancy> {
        let lacks = [device.multiprocessors, device.threads_per_multiprocessor, kernel.threads_per_block].contains(&0);
        if lacks || device.warp_size == 0 {
            return None;
        }
        let warps = kernel.threads_per_block.div_ceil(device.warp_size);
        let limit_warps = if kernel.threads_per_block <= device.threads_per_block {
            (device.threads_per_multiprocessor / device.warp_size) / warps
        } else {
            0
        };
        let (limit_registers, registers_per_block) = register_limit(device, kernel.registers_per_thread, warps);
        let (limit_shared, shared_per_block) = shared_memory(device, kernel.shared, shared);
        let limit_blocks = device.blocks_per_multiprocessor;
        let limit_barriers = match device.compute.0 {
            ..9 => UNLIMITED,
            _ => limit_blocks.saturating_mul(2) / BARRIERS,
        };
        let limits = [limit_warps, limit_registers, limit_shared, limit_blocks, limit_barriers];
        let active_blocks = limits.into_iter().min()?;
        Some(Occupancy {
            active_blocks,
            limiting: Factors(limits.map(|limit| limit == active_blocks)),
            limit_registers,
            limit_shared,
            limit_warps,
            limit_blocks,
            limit_barriers,
            registers_per_block,
            shared_per_block,
        })
    }

    /// Returns the occupancy by the launch, from 0 to 1: its threads on a multiprocessor relative to the most
    /// possible.
    ///
    /// Waiting blocks do not count, nor do multiprocessors without blocks. Computed in single precision, as in
    /// libkineto.
    pub(crate) fn achieved_occupancy(&self, device: &Device, kernel: &KernelResources, grid: [u32; 3]) -> f32 {
        let blocks = blocks_per_sm(device, grid).min(self.active_blocks as f32);
        blocks * kernel.threads_per_block as f32 / device.threads_per_multiprocessor as f32
    }
}

/// Returns the blocks of a launch for each multiprocessor; infinite if the number of multiprocessors is unknown.
pub(crate) fn blocks_per_sm(device: &Device, grid: [u32; 3]) -> f32 {
    let blocks = grid.into_iter().map(u64::from).fold(1, u64::saturating_mul);
    blocks as f32 / device.multiprocessors as f32
}

/// Returns the names of the least limits, joined by `|`, or `none`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Factors([bool; 5]);

impl fmt::Display for Factors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.into_iter().zip(["WARPS", "REGS", "SMEM", "BLOCKS", "BARRIERS"]);
        let mut names = names.filter_map(|(limits, name)| limits.then_some(name));
        f.write_str(names.next().unwrap_or("none"))?;
        names.try_for_each(|name| write!(f, "|{name}"))
    }
}

/// Returns the limit by registers, and the registers of a block.
fn register_limit(device: &Device, per_thread: u32, warps: u32) -> (u32, u32) {
    // Each part of a multiprocessor has a scheduler with its own registers.
    let parts = if device.compute == (6, 0) { 2 } else { 4 };
    let per_thread_max = if device.compute.0 < 7 { 255 } else { 256 };
    let per_warp = round_up(per_thread.saturating_mul(device.warp_size), REGISTER_UNIT);
    let per_block = per_warp.saturating_mul(warps);
    // The hardware admits a block as if its warps filled whole rounds of four parts.
    let checked = per_warp.saturating_mul(round_up(warps, 4));
    if per_thread > per_thread_max || checked.max(per_block) > device.registers_per_block {
        return (0, per_block);
    }
    let warps_per_part = (device.registers_per_multiprocessor / parts).checked_div(per_warp);
    (warps_per_part.map_or(UNLIMITED, |each| each.saturating_mul(parts) / warps), per_block)
}

/// Returns the limit by shared memory, and the shared memory of a block.
fn shared_memory(device: &Device, bytes: u32, limit: SharedLimit) -> (u32, u32) {
    let unit = if device.compute.0 < 8 { 256 } else { 128 };
    let reserved = device.shared_reserved_per_block;
    let per_block = round_up(bytes.saturating_add(reserved), unit);
    let most = match limit {
        SharedLimit::Default => device.shared_per_block,
        SharedLimit::OptIn => device.shared_per_block.max(device.shared_per_block_optin),
    };
    if per_block > most.saturating_add(reserved) {
        return (0, per_block);
    }
    (device.shared_per_multiprocessor.checked_div(per_block).unwrap_or(UNLIMITED), per_block)
}

fn round_up(n: u32, unit: u32) -> u32 {
    n.checked_next_multiple_of(unit).unwrap_or(u32::MAX)
}

/// Returns the most blocks on a multiprocessor, by compute capability: the table of the CUDA C++ Programming Guide.
pub(crate) fn blocks_per_multiprocessor(compute: (u32, u32)) -> u32 {
    match compute {
        (..5, _) | (7, 5) | (8, 6 | 7) => 16,
        (8, 9) | (11 | 12, _) => 24,
        _ => 32,
    }
}

/// Returns the driver's share of a block's shared memory, by compute capability.
pub(crate) fn shared_reserved_per_block(compute: (u32, u32)) -> u32 {
    if compute.0 < 8 { 0 } else { 1024 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A100: Device = Device {
        compute: (8, 0),
        multiprocessors: 108,
        warp_size: 32,
        threads_per_block: 1024,
        threads_per_multiprocessor: 2048,
        blocks_per_multiprocessor: 32,
        registers_per_block: 65_536,
        registers_per_multiprocessor: 65_536,
        shared_per_block: 49_152,
        shared_per_block_optin: 166_912,
        shared_per_multiprocessor: 167_936,
        shared_reserved_per_block: 1024,
    };
    const H100: Device = Device {
        compute: (9, 0),
        multiprocessors: 132,
        shared_per_block_optin: 232_448,
        shared_per_multiprocessor: 233_472,
        ..A100
    };

    fn kernel(threads_per_block: u32, registers_per_thread: u32, shared: u32) -> KernelResources {
        KernelResources { threads_per_block, registers_per_thread, shared }
    }

    fn occupancy(device: &Device, kernel: &KernelResources) -> Occupancy {
        Occupancy::new(device, kernel, SharedLimit::Default).unwrap()
    }

    /// Active blocks and what limits them.
    fn active(device: &Device, kernel: &KernelResources) -> (u32, String) {
        let occupancy = occupancy(device, kernel);
        (occupancy.active_blocks, occupancy.limiting.to_string())
    }

    #[test]
    fn all_limits_that_are_equal_and_least_are_named() {
        assert_eq!(active(&A100, &kernel(1024, 16, 0)), (2, "WARPS".into()));
        assert_eq!(active(&A100, &kernel(256, 47, 0)), (5, "REGS".into()));
        assert_eq!(active(&A100, &kernel(128, 16, 32_768)), (4, "SMEM".into()));
        assert_eq!(active(&A100, &kernel(32, 16, 0)), (32, "BLOCKS".into()));
        assert_eq!(active(&A100, &kernel(64, 32, 0)), (32, "WARPS|REGS|BLOCKS".into()));
        assert_eq!(
            active(&Device { blocks_per_multiprocessor: 0, ..H100 }, &kernel(64, 32, 0)),
            (0, "BLOCKS|BARRIERS".into())
        );
        assert_eq!(Factors([false; 5]).to_string(), "none");
    }

    #[test]
    fn all_figures_of_a_kernel() {
        let expected = Occupancy {
            active_blocks: 7,
            limiting: Factors([false, true, false, false, false]),
            limit_registers: 7,
            limit_shared: 17,
            limit_warps: 16,
            limit_blocks: 32,
            limit_barriers: 64,
            registers_per_block: 9_216,
            shared_per_block: 13_568,
        };
        let found = occupancy(&H100, &kernel(128, 70, 12_500));
        assert_eq!(found, expected);
        assert_eq!(occupancy(&A100, &kernel(128, 70, 0)).limit_barriers, UNLIMITED, "counted from Hopper on");
    }

    #[test]
    fn registers_are_allocated_in_units() {
        // 33 registers of 32 threads are 1056, allocated as 1280.
        assert_eq!(occupancy(&A100, &kernel(32, 33, 0)).registers_per_block, 1_280);
        // 12 warps to each of 4 parts, 48 in all, in blocks of 5.
        assert_eq!(occupancy(&A100, &kernel(160, 40, 0)).limit_registers, 9);
        // 29 warps of 2048 are below 65536, but the check is for 32 warps.
        assert_eq!(occupancy(&A100, &kernel(29 * 32, 64, 0)).limit_registers, 1);
        assert_eq!(occupancy(&A100, &kernel(29 * 32, 65, 0)).limit_registers, 0);
        assert_eq!(occupancy(&A100, &kernel(32, 257, 0)).limit_registers, 0);
        assert_eq!(occupancy(&A100, &kernel(32, 0, 0)).limit_registers, UNLIMITED);
        let p100 = Device { compute: (6, 0), ..A100 };
        // Two parts of 32768 hold 25 warps of 1280 each, where four of 16384 would hold 12.
        assert_eq!(occupancy(&p100, &kernel(32, 33, 0)).limit_registers, 50);
    }

    #[test]
    fn shared_memory_includes_the_drivers_share_since_ampere() {
        assert_eq!(occupancy(&A100, &kernel(32, 16, 1)).shared_per_block, 1_152);
        let turing = Device { compute: (7, 5), shared_reserved_per_block: 0, ..A100 };
        assert_eq!(occupancy(&turing, &kernel(32, 16, 1)).shared_per_block, 256);
        assert_eq!(occupancy(&turing, &kernel(32, 16, 0)).limit_shared, UNLIMITED);
    }

    #[test]
    fn kernel_with_opt_in_shared_memory_fits() {
        let kernel = kernel(128, 252, 67_584);
        assert_eq!(occupancy(&A100, &kernel).active_blocks, 0);
        let asked = Occupancy::new(&A100, &kernel, SharedLimit::OptIn).unwrap();
        assert_eq!((asked.active_blocks, asked.limiting.to_string().as_str()), (2, "REGS|SMEM"));
        let too_much = KernelResources { shared: 166_913, ..kernel };
        assert_eq!(Occupancy::new(&A100, &too_much, SharedLimit::OptIn).unwrap().limit_shared, 0);
    }

    #[test]
    fn impossible_kernels_have_no_blocks_or_no_answer() {
        assert_eq!(active(&A100, &kernel(1025, 16, 0)), (0, "WARPS".into()));
        assert_eq!(Occupancy::new(&A100, &kernel(0, 16, 0), SharedLimit::Default), None);
        for device in [
            Device { multiprocessors: 0, ..A100 },
            Device { warp_size: 0, ..A100 },
            Device { threads_per_multiprocessor: 0, ..A100 },
        ] {
            assert_eq!(Occupancy::new(&device, &kernel(32, 16, 0), SharedLimit::Default), None);
        }
        let most = kernel(u32::MAX, u32::MAX, u32::MAX);
        assert_eq!(occupancy(&A100, &most).active_blocks, 0);
    }

    #[test]
    fn achieved_occupancy_is_bounded_by_grid_and_limits() {
        let kernel = kernel(256, 47, 0);
        let fits = occupancy(&A100, &kernel);
        assert_eq!(fits.achieved_occupancy(&A100, &kernel, [108, 1, 1]), 0.125, "a block each");
        assert_eq!(fits.achieved_occupancy(&A100, &kernel, [54, 1, 1]), 0.0625, "a block for every other one");
        assert_eq!(fits.achieved_occupancy(&A100, &kernel, [65_535, 65_535, 65_535]), 0.625);
        assert_eq!(blocks_per_sm(&Device { multiprocessors: 0, ..A100 }, [1, 1, 1]), f32::INFINITY);
    }

    #[test]
    fn limits_by_compute_capability() {
        let blocks =
            [(3, 5), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 3), (11, 0), (12, 1)];
        assert_eq!(blocks.map(blocks_per_multiprocessor), [16, 32, 32, 16, 32, 16, 16, 24, 32, 32, 24, 24]);
        assert_eq!([(7, 5), (8, 0), (12, 0)].map(shared_reserved_per_block), [0, 1024, 1024]);
    }

    /// Compares with the figures in libkineto's traces.
    mod traces {
        use super::super::*;
        use std::fs::File;
        use std::path::{Path, PathBuf};

        use flate2::read::GzDecoder;
        use serde_json::Value;

        #[expect(clippy::disallowed_methods, reason = "traces lie outside of the package")]
        fn folder() -> PathBuf {
            let default_folder = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
            std::env::var_os("KINETO_TRACES").map_or_else(default_folder, PathBuf::from)
        }

        fn number(value: &Value) -> Option<u32> {
            value.as_u64().and_then(|n| u32::try_from(n).ok())
        }

        fn device(properties: &Value) -> Option<Device> {
            let number = |name: &str| number(&properties[name]);
            let compute = (number("computeMajor")?, number("computeMinor")?);
            Some(Device {
                compute,
                multiprocessors: number("numSms")?,
                warp_size: number("warpSize")?,
                threads_per_block: number("maxThreadsPerBlock")?,
                threads_per_multiprocessor: number("maxThreadsPerMultiprocessor")?,
                blocks_per_multiprocessor: blocks_per_multiprocessor(compute),
                registers_per_block: number("regsPerBlock")?,
                registers_per_multiprocessor: number("regsPerMultiprocessor")?,
                shared_per_block: number("sharedMemPerBlock")?,
                shared_per_block_optin: number("sharedMemPerBlockOptin")?,
                shared_per_multiprocessor: number("sharedMemPerMultiprocessor")?,
                shared_reserved_per_block: shared_reserved_per_block(compute),
            })
        }

        /// libkineto's figures of a kernel (percent, and others where present), and this crate's.
        fn kernel(args: &Value, devices: &[(u32, Device)]) -> Option<(Vec<Value>, Vec<Value>)> {
            let (_, device) = devices.iter().find(|(id, _)| Some(*id) == number(&args["device"]))?;
            let triple = |name: &str| {
                let values: Vec<u32> = args[name].as_array()?.iter().filter_map(number).collect();
                <[u32; 3]>::try_from(values).ok()
            };
            let kernel = KernelResources {
                threads_per_block: triple("block")?.into_iter().product(),
                registers_per_thread: number(&args["registers per thread"])?,
                shared: number(&args["shared memory"])?,
            };
            let ours = Occupancy::new(device, &kernel, SharedLimit::Default)?;
            let percent = (f64::from(ours.achieved_occupancy(device, &kernel, triple("grid")?)) * 100.0).round();
            let figures = [
                ("activeBlocksPerMultiprocessor", ours.active_blocks.into()),
                ("limitingFactors", ours.limiting.to_string().into()),
                ("blockLimitRegs", ours.limit_registers.into()),
                ("blockLimitSharedMem", ours.limit_shared.into()),
                ("blockLimitWarps", ours.limit_warps.into()),
                ("blockLimitBlocks", ours.limit_blocks.into()),
                ("blockLimitBarriers", ours.limit_barriers.into()),
                ("allocatedRegistersPerBlock", ours.registers_per_block.into()),
                ("allocatedSharedMemPerBlock", ours.shared_per_block.into()),
            ];
            let figures =
                figures.into_iter().filter_map(|(name, ours)| Some((args["occupancy"].get(name)?.clone(), ours)));
            let theirs = args["est. achieved occupancy %"].as_f64()?;
            Some(std::iter::once((theirs.into(), percent.into())).chain(figures).unzip())
        }

        /// Returns the value of the first such key in the text.
        fn value(text: &str, key: &str) -> Value {
            let (_, value) = text.split_once(key).unwrap();
            let value = value.trim_start_matches(|c: char| c == ':' || c.is_whitespace());
            serde_json::Deserializer::from_str(value).into_iter().next().unwrap().unwrap()
        }

        /// Counts kernels that agree, and all. Parsing only these is faster than parsing the whole trace.
        fn compare(path: &Path) -> (usize, usize) {
            let trace = std::io::read_to_string(GzDecoder::new(File::open(path).unwrap())).unwrap();
            let devices = value(&trace, "\"deviceProperties\"");
            let devices = devices.as_array().unwrap().iter();
            let devices: Vec<_> = devices.filter_map(|p| Some((number(&p["id"])?, device(p)?))).collect();
            let agrees = |at: usize| {
                let args = trace[..at].rfind("\"args\"").unwrap();
                kernel(&value(&trace[args..], "\"args\""), &devices).is_some_and(|(theirs, ours)| theirs == ours)
            };
            let kernels: Vec<_> = trace.match_indices("\"est. achieved occupancy %\"").collect();
            (kernels.iter().filter(|(at, _)| agrees(*at)).count(), kernels.len())
        }

        /// These libkineto versions applied the default limit on shared memory: 0 % for kernels that requested more.
        #[test]
        #[expect(clippy::print_stdout, reason = "says what it compared, or that it did not")]
        fn real_traces_say_the_same() {
            let folder = folder().join("gpu");
            if !folder.is_dir() {
                println!("passed over: no traces in {}", folder.display());
                return;
            }
            for (name, kernels) in [
                ("alexnet_cuda_sync", 79),
                ("cuda_event_sync_multi_stream", 3),
                ("h100_bert_inference", 60),
                ("nccl_training_rank", 2700),
            ] {
                let (agreeing, all) = compare(&folder.join(format!("{name}.pt.trace.json.gz")));
                println!("{name}: {agreeing} of {all}");
                assert_eq!((agreeing, all), (kernels, kernels), "{name}");
            }
        }
    }
}

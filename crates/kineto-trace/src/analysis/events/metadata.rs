//! Typed access to the arguments of device work: torch's `EventMetadata`.

use super::event::Event;
use super::shape::parse_integers;
use super::values::{as_float, as_signed, as_text, as_unsigned};
use crate::activity::ArgValue;
use crate::analysis::json_reader::{Json, JsonValue};

/// Arguments of device work and of its collective operation: torch's `EventMetadata`.
///
/// Each is `None` if the collector did not report it.
#[derive(Clone, Copy, Debug)]
pub struct EventMetadata<'e>(Event<'e>);

/// The occupancy of a kernel: how many blocks fit on a multiprocessor, and what limits them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OccupancyMetadata {
    /// Number of blocks that fit.
    pub active_blocks_per_multiprocessor: Option<i64>,
    /// The limiting resources, such as "Registers".
    pub limiting_factors: Option<String>,
    /// Limit by registers.
    pub block_limit_registers: Option<i64>,
    /// Limit by shared memory.
    pub block_limit_shared_memory: Option<i64>,
    /// Limit by warps.
    pub block_limit_warps: Option<i64>,
    /// Limit by the number of blocks.
    pub block_limit_blocks: Option<i64>,
    /// Limit by barriers.
    pub block_limit_barriers: Option<i64>,
    /// Registers allocated to a block, rounded up.
    pub allocated_registers_per_block: Option<i64>,
    /// Bytes of shared memory allocated to a block, rounded up.
    pub allocated_shared_memory_per_block: Option<i64>,
}

impl<'e> Event<'e> {
    /// Returns typed access to the arguments of device work.
    pub fn metadata(&self) -> EventMetadata<'e> {
        EventMetadata(*self)
    }
}

macro_rules! accessors {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $read:ident($key:literal);)*) => {
        $($(#[$doc])* pub fn $name(&self) -> Option<$type> {
            self.0.arg($key).and_then($read)
        })*
    };
}

impl<'e> EventMetadata<'e> {
    accessors! {
        /// Returns the number of registers of each thread.
        registers_per_thread: u64 = as_unsigned("registers per thread");
        /// Returns the bytes of shared memory of each block.
        shared_memory: u64 = as_unsigned("shared memory");
        /// Returns the number of blocks for each multiprocessor of the device.
        blocks_per_sm: f64 = as_float("blocks per SM");
        /// Returns the number of warps for each multiprocessor of the device.
        warps_per_sm: f64 = as_float("warps per SM");
        /// Returns the share of the device's warp slots that the kernel can occupy, in percent.
        estimated_occupancy_percent: i64 = as_signed("est. achieved occupancy %");
        /// Returns when the kernel was queued, in nanoseconds of the device's clock; 0 if unknown.
        queued: u64 = as_unsigned("queued");
        /// Returns the priority of the kernel's stream.
        priority: i64 = as_signed("priority");
        /// Returns the context id.
        context: u64 = as_unsigned("context");
        /// Returns the stream id.
        stream: i64 = as_signed("stream");
        /// Returns the channel id of the device.
        channel: u64 = as_unsigned("channel");
        /// Returns the type of the channel.
        channel_type: i64 = as_signed("channel_type");
        /// Returns the id of the graph that it belongs to.
        graph_id: u64 = as_unsigned("graph id");
        /// Returns the id of the node in that graph.
        graph_node_id: u64 = as_unsigned("graph node id");
        /// Returns the queue of AMD's runtime.
        hsa_queue: u64 = as_unsigned("hsa_queue");
        /// Returns the number of bytes copied or filled.
        bytes: u64 = as_unsigned("bytes");
        /// Returns the bandwidth in 10^9 bytes a second.
        bandwidth_gb_s: f64 = as_float("memory bandwidth (GB/s)");
        /// Returns the callback id of the function of NVIDIA's runtime or driver.
        cbid: u64 = as_unsigned("cbid");
        /// Returns the kind of synchronization, such as "Stream Wait Event".
        sync_kind: &'e str = as_text("cuda_sync_kind");
        /// Returns the stream of the event that was waited for.
        wait_on_stream: i64 = as_signed("wait_on_stream");
        /// Returns the id of the event that was waited for.
        wait_on_event: u64 = as_unsigned("wait_on_cuda_event_id");
        /// Returns the collective operation, such as "allreduce".
        collective_name: &'e str = as_text("Collective name");
        /// Returns the element type of the collective.
        dtype: &'e str = as_text("dtype");
        /// Returns the number of input elements of the collective.
        in_msg_nelems: i64 = as_signed("In msg nelems");
        /// Returns the number of output elements of the collective.
        out_msg_nelems: i64 = as_signed("Out msg nelems");
        /// Returns how the input is split, as the text of a list.
        in_split_size: &'e str = as_text("In split size");
        /// Returns how the output is split, as the text of a list.
        out_split_size: &'e str = as_text("Out split size");
        /// Returns the first rank of the group.
        global_rank_start: i64 = as_signed("Global rank start");
        /// Returns the distance between the ranks of the group.
        global_rank_stride: i64 = as_signed("Global rank stride");
        /// Returns the number of ranks in the group.
        group_size: i64 = as_signed("Group size");
        /// Returns the group's name.
        process_group_name: &'e str = as_text("Process Group Name");
        /// Returns the group's description.
        process_group_description: &'e str = as_text("Process Group Description");
        /// Returns the group's ranks, as the text of a list.
        process_group_ranks: &'e str = as_text("Process Group Ranks");
        /// Returns this process's rank.
        rank: i64 = as_signed("Rank");
        /// Returns the rank that it receives from.
        src_rank: i64 = as_signed("Src Rank");
        /// Returns the rank that it sends to.
        dst_rank: i64 = as_signed("Dst Rank");
        /// Returns the index of the collective in its group.
        seq: i64 = as_signed("Seq");
        /// Returns the id that the collective has on all ranks.
        comms_id: u64 = as_unsigned("Comms Id");
    }

    /// Returns the size of the kernel's grid, in blocks.
    pub fn grid(&self) -> Option<[u32; 3]> {
        self.triple_arg("grid")
    }

    /// Returns the size of the kernel's blocks, in threads.
    pub fn block(&self) -> Option<[u32; 3]> {
        self.triple_arg("block")
    }

    /// Returns the correlation id of the record call of the event that was waited for; `None` if unknown.
    pub fn wait_on_record(&self) -> Option<u64> {
        self.0.exact_arg("wait_on_cuda_event_record_corr_id").and_then(as_unsigned)
    }

    /// Returns whether the collective was asynchronous.
    pub fn is_asynchronous(&self) -> Option<bool> {
        match self.0.exact_arg("Is asynchronized op")? {
            ArgValue::Bool(yes) => Some(yes),
            _ => None,
        }
    }

    /// Returns the occupancy of the kernel.
    pub fn occupancy(&self) -> Option<OccupancyMetadata> {
        let mut found = OccupancyMetadata::default();
        let mut json = Json::new(self.0.json_arg("occupancy")?.as_bytes(), 0);
        let read = json.read_object(|key, json| {
            let value = json.read_value()?;
            let number = match value {
                JsonValue::Number(number) => number.as_str().parse().ok(),
                _ => None,
            };
            match (key.decode_text().0.as_ref(), value) {
                ("limitingFactors", JsonValue::Text(text)) => {
                    found.limiting_factors = Some(text.decode_text().0.into_owned())
                }
                ("activeBlocksPerMultiprocessor", _) => found.active_blocks_per_multiprocessor = number,
                ("blockLimitRegs", _) => found.block_limit_registers = number,
                ("blockLimitSharedMem", _) => found.block_limit_shared_memory = number,
                ("blockLimitWarps", _) => found.block_limit_warps = number,
                ("blockLimitBlocks", _) => found.block_limit_blocks = number,
                ("blockLimitBarriers", _) => found.block_limit_barriers = number,
                ("allocatedRegistersPerBlock", _) => found.allocated_registers_per_block = number,
                ("allocatedSharedMemPerBlock", _) => found.allocated_shared_memory_per_block = number,
                _ => {}
            }
            Ok(())
        });
        read.is_ok().then_some(found)
    }

    fn triple_arg(&self, key: &str) -> Option<[u32; 3]> {
        let sizes: Option<Vec<u32>> =
            parse_integers(self.0.json_arg(key)?)?.into_iter().map(|n| n.try_into().ok()).collect();
        sizes?.try_into().ok()
    }
}

//! What a collector says of work on a device: torch's `EventMetadata`.

use super::event::Event;
use super::read::{Json, JsonValue};
use super::shape::integers;
use super::values::{float, signed, text, unsigned};
use crate::activity::ArgValue;

/// What a collector says of work on a device, and of the collective operation that it is part of: torch's
/// `EventMetadata`. What the collector does not say is `None`.
#[derive(Clone, Copy, Debug)]
pub struct EventMetadata<'e>(Event<'e>);

/// How many blocks of a kernel fit on a multiprocessor, and why not more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OccupancyMetadata {
    /// How many fit.
    pub active_blocks_per_multiprocessor: Option<i64>,
    /// What lets no more fit, such as "Registers".
    pub limiting_factors: Option<String>,
    /// How many would fit for the registers.
    pub block_limit_registers: Option<i64>,
    /// How many would fit for the shared memory.
    pub block_limit_shared_memory: Option<i64>,
    /// How many would fit for the warps.
    pub block_limit_warps: Option<i64>,
    /// How many would fit whatever they need.
    pub block_limit_blocks: Option<i64>,
    /// How many would fit for the barriers.
    pub block_limit_barriers: Option<i64>,
    /// Registers that a block takes, rounded up.
    pub allocated_registers_per_block: Option<i64>,
    /// Bytes of shared memory that a block takes, rounded up.
    pub allocated_shared_memory_per_block: Option<i64>,
}

impl<'e> Event<'e> {
    /// Returns what a collector says of it, typed.
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
        /// Returns how many registers each thread of the kernel has.
        registers_per_thread: u64 = unsigned("registers per thread");
        /// Returns how many bytes of shared memory each block of the kernel has.
        shared_memory: u64 = unsigned("shared memory");
        /// Returns the blocks of the kernel, for each multiprocessor of the device.
        blocks_per_sm: f64 = float("blocks per SM");
        /// Returns the warps of the kernel, for each multiprocessor of the device.
        warps_per_sm: f64 = float("warps per SM");
        /// Returns how much of the device's room for warps the kernel can use, in percent.
        estimated_occupancy_percent: i64 = signed("est. achieved occupancy %");
        /// Returns when the kernel was queued, in nanoseconds of the device's clock; 0 if it does not say.
        queued: u64 = unsigned("queued");
        /// Returns the priority of the kernel's stream.
        priority: i64 = signed("priority");
        /// Returns the context.
        context: u64 = unsigned("context");
        /// Returns the stream.
        stream: i64 = signed("stream");
        /// Returns the channel of the device.
        channel: u64 = unsigned("channel");
        /// Returns the type of that channel.
        channel_type: i64 = signed("channel_type");
        /// Returns the graph that it is part of.
        graph_id: u64 = unsigned("graph id");
        /// Returns the node of that graph.
        graph_node_id: u64 = unsigned("graph node id");
        /// Returns the queue of AMD's runtime.
        hsa_queue: u64 = unsigned("hsa_queue");
        /// Returns how many bytes were copied or filled.
        bytes: u64 = unsigned("bytes");
        /// Returns how fast that was, in 10^9 bytes a second.
        bandwidth_gb_s: f64 = float("memory bandwidth (GB/s)");
        /// Returns the number of the function that was called, of NVIDIA's runtime or driver.
        cbid: u64 = unsigned("cbid");
        /// Returns what was waited for, such as "Stream Wait Event".
        sync_kind: &'e str = text("cuda_sync_kind");
        /// Returns the stream whose event was waited for.
        wait_on_stream: i64 = signed("wait_on_stream");
        /// Returns the event that was waited for.
        wait_on_event: u64 = unsigned("wait_on_cuda_event_id");
        /// Returns the collective operation, such as "allreduce".
        collective_name: &'e str = text("Collective name");
        /// Returns the type of the collective's elements.
        dtype: &'e str = text("dtype");
        /// Returns how many elements go into the collective.
        in_msg_nelems: i64 = signed("In msg nelems");
        /// Returns how many elements come out of the collective.
        out_msg_nelems: i64 = signed("Out msg nelems");
        /// Returns how the input is split, as the text of a list.
        in_split_size: &'e str = text("In split size");
        /// Returns how the output is split, as the text of a list.
        out_split_size: &'e str = text("Out split size");
        /// Returns the first rank of the group.
        global_rank_start: i64 = signed("Global rank start");
        /// Returns how far the ranks of the group lie apart.
        global_rank_stride: i64 = signed("Global rank stride");
        /// Returns how many ranks the group has.
        group_size: i64 = signed("Group size");
        /// Returns the group's name.
        process_group_name: &'e str = text("Process Group Name");
        /// Returns what the group is for.
        process_group_description: &'e str = text("Process Group Description");
        /// Returns the group's ranks, as the text of a list.
        process_group_ranks: &'e str = text("Process Group Ranks");
        /// Returns this process's rank.
        rank: i64 = signed("Rank");
        /// Returns from which rank it receives.
        src_rank: i64 = signed("Src Rank");
        /// Returns to which rank it sends.
        dst_rank: i64 = signed("Dst Rank");
        /// Returns which of the group's collectives it is.
        seq: i64 = signed("Seq");
        /// Returns the number that the collective has on all ranks.
        comms_id: u64 = unsigned("Comms Id");
    }

    /// Returns the size of the kernel's grid, in blocks.
    pub fn grid(&self) -> Option<[u32; 3]> {
        self.triple("grid")
    }

    /// Returns the size of the kernel's blocks, in threads.
    pub fn block(&self) -> Option<[u32; 3]> {
        self.triple("block")
    }

    /// Returns the correlation id of the record of the event that was waited for; `None` if it is not known.
    pub fn wait_on_record(&self) -> Option<u64> {
        self.0.written("wait_on_cuda_event_record_corr_id").and_then(unsigned)
    }

    /// Returns whether the collective was called without waiting for it.
    pub fn is_asynchronous(&self) -> Option<bool> {
        match self.0.written("Is asynchronized op")? {
            ArgValue::Bool(yes) => Some(yes),
            _ => None,
        }
    }

    /// Returns how many blocks of the kernel fit on a multiprocessor, and why not more.
    pub fn occupancy(&self) -> Option<OccupancyMetadata> {
        let mut found = OccupancyMetadata::default();
        let mut json = Json::new(self.0.json("occupancy")?.as_bytes(), 0);
        let read = json.object(|key, json| {
            let value = json.value()?;
            let number = match value {
                JsonValue::Number(text) => text.parse().ok(),
                _ => None,
            };
            match (key.get().0.as_ref(), value) {
                ("limitingFactors", JsonValue::Text(text)) => found.limiting_factors = Some(text.get().0.into_owned()),
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

    fn triple(&self, key: &str) -> Option<[u32; 3]> {
        let sizes: Option<Vec<u32>> = integers(self.0.json(key)?)?.into_iter().map(|n| n.try_into().ok()).collect();
        sizes?.try_into().ok()
    }
}

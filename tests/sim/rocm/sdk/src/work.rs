//! Device work and its records.

use crate::layout::{self, Bytes, KERNEL_DISPATCH, MEMORY_COPY};
use crate::shared::courier::{self, Courier};
use crate::shared::tracer::{COPY, HOST, HOST_TO_HOST, NEVER, Tracer, Work};
use crate::{agents, buffer, calls, code, context, external};
use sim_core::ffi::slice;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering};

/// The functions that HIP calls.
pub(crate) static TRACER: Tracer = Tracer {
    enter: calls::enter,
    exit: calls::exit,
    queued,
    retimed,
    kernel_loaded: code::kernel_loaded,
    kernels_unloaded: code::kernels_unloaded,
    count: own_count,
};

static DISPATCHES: AtomicU64 = AtomicU64::new(0);

/// The operation of a dispatch that has ended.
const COMPLETE: u32 = 2;

/// Work that gets a record in a buffer when it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) work: Work,
    pub(crate) buffer: u64,
    pub(crate) external: u64,
    dispatch: u64,
}

/// The thread for them.
pub(crate) static COURIER: Courier<Pending> = Courier::new("sim-rocprofiler", buffer::deliver);

pub(crate) extern "C" fn retimed(id: u64, start: u64, end: u64, done_at: u64) {
    COURIER.retime(id, start, end, done_at);
}

impl courier::Pending for Pending {
    fn work(&self) -> &Work {
        &self.work
    }

    fn work_mut(&mut self) -> &mut Work {
        &mut self.work
    }

    fn write(&self) {
        buffer::add(self);
    }
}

extern "C" fn queued(work: *const Work, count: usize) {
    for work in slice(work, count) {
        if work.kind == COPY && work.direction == HOST_TO_HOST {
            // The processor does it.
            continue;
        }
        let dispatch = DISPATCHES.fetch_add(1, Ordering::Relaxed) + 1;
        for (context, buffer) in context::buffers(if work.kind == COPY { MEMORY_COPY } else { KERNEL_DISPATCH }) {
            let external = external::top(context, work.thread);
            COURIER.expect(Pending { work: *work, buffer, external, dispatch });
        }
    }
}

extern "C" fn own_count(what: *const c_char) -> u64 {
    // SAFETY: HIP hands in a C string.
    match unsafe { CStr::from_ptr(what) }.to_bytes() {
        b"push_depth" => external::depth(),
        _ => NEVER,
    }
}

impl Pending {
    /// The kind of its record, and the record.
    pub(crate) fn record(&self) -> (u32, Bytes) {
        if self.work.kind == COPY {
            (MEMORY_COPY, self.memory_copy())
        } else {
            (KERNEL_DISPATCH, self.kernel_dispatch())
        }
    }

    fn header(&self, size: usize, kind: u32, operation: u32) -> Bytes {
        Bytes::sized(size)
            .u32(8, kind)
            .u32(12, operation)
            .u64(16, self.work.correlation)
            .u64(24, self.external)
            .u64(32, self.work.thread)
            .u64(40, self.work.start)
            .u64(48, self.work.end)
    }

    /// `rocprofiler_buffer_tracing_kernel_dispatch_record_t`; the grid is in threads.
    fn kernel_dispatch(&self) -> Bytes {
        let Work { grid, block, device, queue, .. } = self.work;
        self.header(layout::kernel_dispatch(), KERNEL_DISPATCH, COMPLETE)
            .u64(56, 72)
            .u64(64, agents::gpu(device))
            .u64(72, 0x7f50_0000_0000 + (u64::from(device) << 8 | u64::from(queue)) * 0x1000)
            .u64(80, code::kernel_id(self.work.kernel))
            .u64(88, self.dispatch)
            .u32(96, self.work.private)
            .u32(100, self.work.group)
            .triple(104, block)
            .triple(116, std::array::from_fn(|index| grid[index] * block[index]))
    }

    /// `rocprofiler_buffer_tracing_memory_copy_record_t`
    fn memory_copy(&self) -> Bytes {
        let Work { direction, source_device, target_device, bytes, source, target, .. } = self.work;
        let agent = |device: i32| if device == HOST { agents::host() } else { agents::gpu(device as u32) };
        // The operations follow HIP's ways, from 1.
        self.header(layout::memory_copy(), MEMORY_COPY, direction + 1)
            .u64(56, agent(target_device))
            .u64(64, agent(source_device))
            .u64(72, bytes)
            .u64(80, target)
            .u64(88, source)
    }
}

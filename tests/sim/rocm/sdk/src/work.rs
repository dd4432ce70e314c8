//! Device work and its records.

use crate::layout::{self, Bytes, KERNEL_DISPATCH, MEMORY_COPY};
use crate::shared::courier::{self, Courier};
use crate::shared::tracer::{COPY, Event, HOST, HOST_TO_HOST, Report, Work};
use crate::{agents, buffer, calls, code, context};
use std::sync::atomic::{AtomicU64, Ordering};

/// Hears HIP.
pub(crate) fn hear(event: &mut Event<'_>) {
    match event {
        Event::Entered(call) => calls::tell(call, calls::ENTER),
        Event::Left(call) => calls::tell(call, calls::EXIT),
        Event::Work(work) => expect(work),
        Event::Retimed(times) => COURIER.retime(times),
        Event::Report(Report::KernelLoaded(symbol)) => code::load(symbol),
        Event::Report(Report::KernelUnloaded(id)) => code::unload(*id),
        Event::Count(..) | Event::Configured => {}
    }
}

static DISPATCHES: AtomicU64 = AtomicU64::new(0);

/// The operation of a dispatch that has ended.
const COMPLETE: u32 = 2;

/// Work that gets a record in a buffer when it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) work: Work,
    pub(crate) buffer: u64,
    dispatch: u64,
}

/// The thread for them.
pub(crate) static COURIER: Courier<Pending> = Courier::new("sim-rocprofiler", buffer::deliver, || COURIER.collect());

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

fn expect(work: &[Work]) {
    for work in work {
        if work.kind == COPY && work.direction == HOST_TO_HOST {
            // The processor does it.
            continue;
        }
        let dispatch = DISPATCHES.fetch_add(1, Ordering::Relaxed) + 1;
        for buffer in context::buffers(if work.kind == COPY { MEMORY_COPY } else { KERNEL_DISPATCH }) {
            COURIER.expect(Pending { work: *work, buffer, dispatch });
        }
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

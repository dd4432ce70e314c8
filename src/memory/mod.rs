//! Memory: allocators' events, recorded with the spans that cause them.
//!
//! An allocator calls [`record`] with each allocation and each free, and [`record_out_of_memory`] when it fails; [`Tracked`]
//! does so for the program's own memory. The events become `[memory]` and `[OutOfMemory]` instants on the allocating thread's
//! row, as in PyTorch's profiler. They carry that thread's innermost open slice, and feed counter tracks of each device.
//! Layers created with [`with_memory(true)`](crate::KinetoLayerBuilder::with_memory) record them.
//! [`Trace::memory_timeline`](crate::Trace::memory_timeline) shows live memory over time, by [`Category`].
//!
//! ```
//! use tracing_kineto::memory::{self, Category, Device};
//!
//! // In an allocator for the first GPU, which has 64 MiB of it:
//! memory::record(0x7f00_0000_0000, 4096, 4096, 64 << 20, Device::cuda(0));
//! memory::record(0x7f00_0000_0000, -4096, 0, 64 << 20, Device::cuda(0));
//! // In the program that calls it:
//! let _parameters = memory::scope(Category::Parameter);
//! ```

mod live;
mod scope;
mod tracked;

pub use kineto_model::memory::{Category, Device};
pub(crate) use kineto_model::memory::{MemoryAction, MemoryRow, MemoryTimeline};
pub(crate) use live::gather_counts;
pub use live::{Usage, usage};
pub use scope::{Scope, scope};
pub use tracked::Tracked;

use crate::buffer::{MemoryTag, flag};
use crate::clock;
use crate::layer::memory::{self as lanes, MemoryEvent};
use crate::recorder::memory_listeners;
use crate::time::Ticks;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an allocator other than [`Tracked`] has called.
static HAS_REPORTER: AtomicBool = AtomicBool::new(false);

/// The span field that sets the category of allocations inside the span.
pub(crate) const CATEGORY_FIELD: &str = "mem.category";

/// Returns whether any layer records memory; if not, an allocator need not report.
///
/// Two relaxed loads (torch: `memoryProfilingEnabled`). The first call notes that the program has a reporting allocator.
#[inline]
#[must_use]
pub fn is_enabled() -> bool {
    // An unconditional store would make threads contend for the cache line.
    if !HAS_REPORTER.load(Ordering::Relaxed) {
        HAS_REPORTER.store(true, Ordering::Relaxed);
    }
    memory_listeners::is_open()
}

/// The message of a memory profile to which no allocator reports.
pub(crate) const NO_REPORTS: &str =
    "no allocator has reported anything; make memory::Tracked the global allocator, or call memory::record";

/// Returns whether any allocator has reported so far.
pub(crate) fn has_reporter() -> bool {
    HAS_REPORTER.load(Ordering::Relaxed) || usage().live_bytes != 0
}

/// Records an allocation, a free, or a new use of allocated memory (torch: `reportMemoryUsage`).
///
/// - `address` identifies the memory until it is freed.
/// - `bytes` is the size, negative for a free. 0 means that the memory at `address` gets new content, of the current
///   category.
/// - `total_allocated` and `total_reserved` are the allocator's totals afterwards, in use and obtained from the device; 0 if
///   unknown.
///
/// Any allocator may call this on any thread, inside a span or not. It is safe to call from inside a global allocator: in
/// steady state it writes 64 bytes into the thread's own memory, without a lock and without allocating. Events that cannot be
/// recorded are counted by cause ([`Loss`](crate::Loss)). Record a free before the memory can be used again, and an
/// allocation once it can be used.
#[inline]
pub fn record(address: u64, bytes: i64, total_allocated: u64, total_reserved: u64, device: Device) {
    if is_enabled() {
        report_event(clock::now(), address, bytes, [total_allocated, total_reserved], device, 0);
    }
}

/// Records that an allocation of `bytes` failed (torch: `reportOutOfMemory`); the totals are as for [`record`].
#[inline]
pub fn record_out_of_memory(bytes: u64, total_allocated: u64, total_reserved: u64, device: Device) {
    if is_enabled() {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        report_event(clock::now(), 0, bytes, [total_allocated, total_reserved], device, flag::OUT_OF_MEMORY);
    }
}

/// Records an event; returns whether every active recorder accepted it.
#[cold]
fn report_event(time: Ticks, address: u64, bytes: i64, totals: [u64; 2], device: Device, flags: u8) -> bool {
    let tag =
        MemoryTag { kind: device.kind.number(), index: device.index, category: scope::current_category().number() };
    let [allocated, reserved] = totals;
    lanes::record_memory_event(&MemoryEvent { time, address, bytes, allocated, reserved, tag, flags })
}

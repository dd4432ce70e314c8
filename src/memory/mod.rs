//! Memory: allocators' events, recorded with the spans that cause them.
//!
//! An allocator calls [`record`] with each allocation and each free, and [`record_out_of_memory`] where it fails; for the
//! program's own memory, [`Tracked`] does that. They become `[memory]` and `[OutOfMemory]` instants on the row of the
//! thread that allocates, as in PyTorch's profiler, with the innermost open slice of that thread, and counter tracks of each
//! device. Layers record them that were made with
//! [`with_memory(true)`](crate::KinetoLayerBuilder::with_memory).
//! [`Trace::memory_timeline`](crate::Trace::memory_timeline) shows what lived when, by [`Category`].
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

pub use kineto_trace::memory::{Category, Device, UnknownCategory};
pub(crate) use kineto_trace::memory::{MemoryAction, MemoryRow, MemoryTimeline};
pub(crate) use live::gather;
pub use live::{Usage, usage};
pub use scope::{Scope, scope};
pub use tracked::Tracked;

use crate::buffer::{Whose, flag};
use crate::clock;
use crate::layer::memory::{self as lanes, MemoryEvent};
use crate::recorder::memory_listeners;
use crate::time::Ticks;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an allocator other than [`Tracked`] has called.
static HAS_REPORTER: AtomicBool = AtomicBool::new(false);

/// The field of a span that says what is allocated inside of it.
pub(crate) const CATEGORY_FIELD: &str = "mem.category";

/// Returns whether somebody records what allocators do; an allocator need report nothing while nobody does.
///
/// Two relaxed loads (torch: `memoryProfilingEnabled`). The first call notes that the program has an allocator that reports.
#[inline]
#[must_use]
pub fn is_enabled() -> bool {
    // A store at each call would make threads wait for each other's cache line.
    if !HAS_REPORTER.load(Ordering::Relaxed) {
        HAS_REPORTER.store(true, Ordering::Relaxed);
    }
    memory_listeners::is_open()
}

/// What a memory profile says if no allocator takes part in it.
pub(crate) const NO_REPORTS: &str =
    "no allocator has reported anything; make memory::Tracked the global allocator, or call memory::record";

/// Returns whether an allocator takes part in memory profiles, as far as any has called until now.
pub(crate) fn has_reporter() -> bool {
    HAS_REPORTER.load(Ordering::Relaxed) || usage().live_bytes != 0
}

/// Records an allocation, a free, or another use of what is allocated already (torch: `reportMemoryUsage`).
///
/// `address` names the memory until it is freed. `bytes` is how much was allocated, negative for a free; 0 says that the
/// memory at `address` has other content from here on, of the category that holds now. `total_allocated` and
/// `total_reserved` are what the allocator has handed out, and has had from the device, after that; 0 if it does not know.
///
/// For any allocator and any thread, inside a span or not. It is safe to call from inside a global allocator: in steady
/// state it writes 64 bytes into the thread's own memory, without a lock and without allocating; what cannot be recorded is
/// counted by cause ([`Loss`](crate::Loss)). Frees are to be recorded before the memory can be used again, allocations
/// when it can be.
#[inline]
pub fn record(address: u64, bytes: i64, total_allocated: u64, total_reserved: u64, device: Device) {
    if is_enabled() {
        report(clock::now(), address, bytes, [total_allocated, total_reserved], device, 0);
    }
}

/// Records that an allocator could not have `bytes` (torch: `reportOutOfMemory`); the totals are as for [`record`].
#[inline]
pub fn record_out_of_memory(bytes: u64, total_allocated: u64, total_reserved: u64, device: Device) {
    if is_enabled() {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        report(clock::now(), 0, bytes, [total_allocated, total_reserved], device, flag::OUT_OF_MEMORY);
    }
}

/// Records an event; returns whether every active recorder accepted it.
#[cold]
fn report(time: Ticks, address: u64, bytes: i64, totals: [u64; 2], device: Device, flags: u8) -> bool {
    let whose = Whose { kind: device.kind.number(), index: device.index, category: scope::current().number() };
    let [allocated, reserved] = totals;
    lanes::record(&MemoryEvent { time, address, bytes, allocated, reserved, whose, flags })
}

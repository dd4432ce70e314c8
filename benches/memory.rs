//! Measures an allocation and its free: by the system's allocator, and by `Tracked` while idle, while recording spans, and
//! while recording memory.
//!
//! With several threads, the idle counters should not contend.
#![allow(unsafe_code, reason = "an allocator has no safe form")]
#![expect(clippy::unwrap_used, reason = "a benchmark panics if its setup fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use tracing_kineto::KinetoLayer;
use tracing_kineto::memory::Tracked;

fn main() {
    divan::main();
}

/// The number of allocations in a batch.
const BATCH: u64 = 1000;
static TRACKED: Tracked = Tracked::system();

/// The allocator, and the recording.
#[derive(Clone, Copy, Debug)]
enum Subject {
    System,
    Off,
    Spans,
    Memory,
}

const SUBJECTS: [Subject; 4] = [Subject::System, Subject::Off, Subject::Spans, Subject::Memory];

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Subject::System => "system",
            Subject::Off => "tracked, off",
            Subject::Spans => "tracked, spans recorded",
            Subject::Memory => "tracked, memory recorded",
        })
    }
}

fn batch(allocator: &dyn GlobalAlloc) {
    let layout = Layout::new::<[u64; 8]>();
    for _ in 0..BATCH {
        // SAFETY: the layout is not empty.
        let pointer = black_box(unsafe { allocator.alloc(layout) });
        // SAFETY: it was allocated just now, with that layout.
        unsafe { allocator.dealloc(pointer, layout) };
    }
}

#[divan::bench(args = SUBJECTS, threads = [1, 2], sample_count = 200, sample_size = 10)]
fn alloc_and_free(bencher: Bencher<'_, '_>, subject: Subject) {
    let record = matches!(subject, Subject::Spans | Subject::Memory);
    let builder = KinetoLayer::builder().no_output().record_from_start(record);
    let (layer, guard) =
        builder.with_memory(matches!(subject, Subject::Memory)).buffer_limit_bytes(2 << 30).build().unwrap();
    let allocator: &(dyn GlobalAlloc + Sync) = if matches!(subject, Subject::System) { &System } else { &TRACKED };
    bencher.counter(ItemsCount::new(BATCH)).bench(|| batch(allocator));
    drop((layer, guard));
}

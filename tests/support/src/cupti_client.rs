//! A profiler on CUPTI: buffers, and records read by their fields.

use crate::{cuda, simulator};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// Kinds of activity.
pub const MEMCPY: u32 = 1;
pub const MEMSET: u32 = 2;
pub const DRIVER: u32 = 4;
pub const RUNTIME: u32 = 5;
pub const KERNEL: u32 = 10;
pub const MARKER: u32 = 12;
pub const MARKER_DATA: u32 = 13;
pub const OVERHEAD: u32 = 17;
pub const MEMCPY2: u32 = 22;
pub const CUDA_EVENT: u32 = 36;
pub const SYNCHRONIZATION: u32 = 38;
pub const EXTERNAL: u32 = 39;
pub const MEMORY2: u32 = 49;
pub const GRAPH_TRACE: u32 = 51;

/// All kinds except markers, which need an NVTX tool.
pub const ALL: [u32; 12] = [
    MEMCPY,
    MEMSET,
    DRIVER,
    RUNTIME,
    KERNEL,
    OVERHEAD,
    MEMCPY2,
    CUDA_EVENT,
    SYNCHRONIZATION,
    EXTERNAL,
    MEMORY2,
    GRAPH_TRACE,
];

static DELIVERED: Mutex<Vec<Delivered>> = Mutex::new(Vec::new());
/// The size of the next buffers, 0 to refuse.
pub static BUFFER_SIZE: AtomicUsize = AtomicUsize::new(1 << 16);
/// The most records in the next buffers, 0 for as many as fit.
pub static MOST_RECORDS: AtomicUsize = AtomicUsize::new(0);

/// A completed buffer.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub bytes: Vec<u8>,
    pub thread: ThreadId,
}

extern "C" fn requested(address: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let bytes = BUFFER_SIZE.load(Ordering::Relaxed);
    // SAFETY: the layout is a nonzero multiple of 8 bytes; CUPTI passes valid places for the three results.
    unsafe {
        *address =
            if bytes == 0 { std::ptr::null_mut() } else { libc::memset(libc::malloc(bytes), 0xee, bytes).cast() };
        *size = bytes;
        *most = MOST_RECORDS.load(Ordering::Relaxed);
    }
}

extern "C" fn completed(_context: *mut c_void, _stream: u32, address: *mut u8, _size: usize, valid: usize) {
    // SAFETY: CUPTI returns a buffer from `requested`, of which `valid` bytes are initialized.
    let bytes = unsafe {
        let bytes = std::slice::from_raw_parts(address, valid).to_vec();
        libc::free(address.cast());
        bytes
    };
    lock(&DELIVERED).push(Delivered { bytes, thread: std::thread::current().id() });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls a function of CUPTI; returns its result code.
#[macro_export]
macro_rules! cupti {
    ($name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the simulator's function of that name has this type.
        let function = unsafe { *$crate::cuda::cupti().get::<extern "C" fn($($type),*) -> i32>(name).unwrap() };
        function($($argument),*)
    }};
}

/// A profiler's session with exclusive use of CUPTI.
pub struct Session {
    pub cuda: cuda::Cuda,
}

/// Starts recording these kinds with these options.
#[track_caller]
pub fn session(settings: &str, kinds: &[u32]) -> Session {
    simulator::assert_own_process();
    let cuda = cuda::Cuda::with(settings);
    assert_eq!(cupti!(cuptiFinalize()), 0);
    cuda::reset();
    lock(&DELIVERED).clear();
    let callbacks = (requested as *const c_void, completed as *const c_void);
    assert_eq!(cupti!(cuptiActivityRegisterCallbacks(callbacks.0 => *const c_void, callbacks.1 => *const c_void)), 0);
    let mut dropped = 0;
    cupti!(cuptiActivityGetNumDroppedRecords(0 => u64, 0 => u32, &raw mut dropped => *mut usize));
    for kind in kinds {
        assert_eq!(cupti!(cuptiActivityEnable(*kind => u32)), 0, "{kind}");
    }
    Session { cuda }
}

impl Drop for Session {
    fn drop(&mut self) {
        BUFFER_SIZE.store(1 << 16, Ordering::Relaxed);
        MOST_RECORDS.store(0, Ordering::Relaxed);
        cuda::configure("");
        cuda::reset();
        cupti!(cuptiFinalize());
    }
}

pub fn push(kind: u32, id: u64) -> i32 {
    cupti!(cuptiActivityPushExternalCorrelationId(kind => u32, id => u64))
}

pub fn pop(kind: u32) -> Result<u64, i32> {
    let mut last = 0;
    match cupti!(cuptiActivityPopExternalCorrelationId(kind => u32, &raw mut last => *mut u64)) {
        0 => Ok(last),
        code => Err(code),
    }
}

pub fn dropped() -> usize {
    let mut dropped = 0;
    assert_eq!(cupti!(cuptiActivityGetNumDroppedRecords(0 => u64, 0 => u32, &raw mut dropped => *mut usize)), 0);
    dropped
}

pub fn timestamp() -> u64 {
    let mut timestamp = 0;
    assert_eq!(cupti!(cuptiGetTimestamp(&raw mut timestamp => *mut u64)), 0);
    timestamp
}

/// A record.
#[derive(Clone, Debug)]
pub struct Record {
    pub bytes: Vec<u8>,
    /// The kernel's name, read at once since its module may be unloaded.
    pub name: String,
}

impl Record {
    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes[offset..offset + 4].try_into().unwrap())
    }

    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes[offset..offset + 8].try_into().unwrap())
    }

    pub fn kind(&self) -> u32 {
        self.u32(0)
    }

    /// Returns the correlation id.
    pub fn correlation(&self) -> u32 {
        self.u32(match self.kind() {
            MEMCPY | MEMSET => 44,
            DRIVER | RUNTIME => 32,
            KERNEL => 92,
            MEMCPY2 => 60,
            CUDA_EVENT | GRAPH_TRACE => 4,
            SYNCHRONIZATION => 24,
            EXTERNAL => 16,
            MEMORY2 => 12,
            kind => panic!("{kind} has none"),
        })
    }

    /// Returns the start and end of device work or of a call.
    pub fn times(&self) -> (u64, u64) {
        let start = match self.kind() {
            DRIVER | RUNTIME | SYNCHRONIZATION | GRAPH_TRACE => 8,
            _ => 16,
        };
        (self.u64(start), self.u64(start + 8))
    }
}

/// Flushes complete buffers, or all with `forced`.
pub fn flush(forced: bool) {
    assert_eq!(cupti!(cuptiActivityFlushAll(u32::from(forced) => u32)), 0);
}

/// Takes the completed buffers.
pub fn buffers() -> Vec<Delivered> {
    std::mem::take(&mut *lock(&DELIVERED))
}

/// Takes the records of the completed buffers, which must contain nothing else.
pub fn records() -> Vec<Record> {
    buffers().iter().flat_map(|buffer| walk(&buffer.bytes, 12)).collect()
}

/// Returns the records of a buffer, whose walk must end with code `end`.
pub fn walk(bytes: &[u8], end: i32) -> Vec<Record> {
    let first = bytes.as_ptr() as usize;
    let mut record: *mut u8 = std::ptr::null_mut();
    let mut starts = Vec::new();
    let code = loop {
        let (buffer, valid) = (bytes.as_ptr().cast_mut(), bytes.len());
        match cupti!(cuptiActivityGetNextRecord(buffer => *mut u8, valid => usize, &raw mut record => *mut *mut u8)) {
            0 => starts.push(record as usize - first),
            code => break code,
        }
    };
    assert_eq!(code, end, "records at {starts:?} of {} bytes", bytes.len());
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let record = |(start, end): (&usize, usize)| {
        let mut record = Record { bytes: bytes[*start..end].to_vec(), name: String::new() };
        if record.kind() == KERNEL {
            // SAFETY: the name is a C string of a module that stays loaded while the test reads.
            let name = unsafe { CStr::from_ptr(record.u64(104) as *const c_char) };
            record.name = name.to_str().unwrap().to_owned();
        }
        record
    };
    starts.iter().zip(ends).map(record).collect()
}

/// Returns the records of a kind, in order of delivery.
pub fn of_kind(records: &[Record], kind: u32) -> Vec<Record> {
    records.iter().filter(|record| record.kind() == kind).cloned().collect()
}

//! Buffers: records that are delivered to the client together.

use crate::layout::{Bytes, TRACING, UNKNOWN, UNKNOWN_CATEGORY};
use crate::registration;
use crate::shared::counters::count;
use crate::shared::link;
use crate::status::{Status, answer};
use crate::work::{COURIER, Pending};
use sim_core::faults::RecordNumbers;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes records: context, buffer, pointers to the headers, their number, the client's own, how many were dropped.
pub(crate) type Callback = extern "C" fn(u64, u64, *mut *mut Header, usize, *mut c_void, u64);

/// `rocprofiler_record_header_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Header {
    category: u32,
    kind: u32,
    payload: *mut u64,
}

/// A record: its category, its kind and its bytes; none for a header that leads nowhere.
#[derive(Debug)]
struct Entry {
    category: u32,
    kind: u32,
    bytes: Option<Bytes>,
}

#[derive(Debug)]
struct Buffer {
    context: u64,
    size: usize,
    watermark: usize,
    lossless: bool,
    callback: Callback,
    argument: usize,
    entries: Vec<Entry>,
    used: usize,
    /// All that were ever dropped.
    dropped: u64,
}

/// The handle of the first buffer; the others follow.
const FIRST: u64 = 0x300;
/// The policy under which nothing is dropped.
const LOSSLESS: u32 = 2;
/// Bytes of a record of an unknown kind.
const UNKNOWN_SIZE: usize = 64;

static BUFFERS: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());
/// Numbers the records.
static RECORDS: RecordNumbers = RecordNumbers::new();

fn lock() -> MutexGuard<'static, Vec<Buffer>> {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(buffer: u64) -> usize {
    buffer.wrapping_sub(FIRST) as usize
}

pub(crate) fn exists(buffer: u64) -> Result<(), Status> {
    lock().get(index(buffer)).map(|_| ()).ok_or(Status::BUFFER_NOT_FOUND)
}

/// Adds the record of ended work, and any fault records of the options.
pub(crate) fn add(pending: &Pending) {
    let options = link::options();
    let number = RECORDS.next();
    if number.is_each(options.drop) {
        if let Some(buffer) = lock().get_mut(index(pending.buffer)) {
            buffer.drop_one();
        }
        return;
    }
    let (kind, mut bytes) = pending.record();
    let is_even = number.0.is_multiple_of(2);
    if number.is_each(options.garbage) {
        bytes.fill(16, number.nonsense(), &[]);
    }
    if number.is_each(options.wrong_size) {
        bytes = bytes.u64(0, if is_even { 24 } else { 1 << 40 });
    }
    let bytes = (!number.is_each(options.cut)).then_some(bytes);
    add_entry(pending.buffer, Entry { category: TRACING, kind, bytes });
    if number.is_each(options.unknown_kinds) {
        let (category, kind) = if is_even { (TRACING, UNKNOWN) } else { (UNKNOWN_CATEGORY, kind) };
        add_entry(pending.buffer, Entry { category, kind, bytes: Some(Bytes::sized(UNKNOWN_SIZE)) });
    }
}

impl Buffer {
    fn drop_one(&mut self) {
        self.dropped += 1;
        count(&link::counters().dropped);
    }
}

fn add_entry(handle: u64, entry: Entry) {
    let mut buffers = lock();
    let Some(buffer) = buffers.get_mut(index(handle)) else { return };
    let bytes = entry.bytes.as_ref().map_or(0, |bytes| bytes.bytes().len());
    if buffer.used + bytes > buffer.size && !buffer.lossless {
        return buffer.drop_one();
    }
    count(&link::counters().records);
    buffer.used += bytes;
    buffer.entries.push(entry);
    let is_due = buffer.used >= buffer.watermark;
    drop(buffers);
    if is_due {
        deliver(handle);
    }
}

/// Delivers a buffer's records to the client; they are invalid when it returns.
pub(crate) fn deliver(handle: u64) {
    let mut buffers = lock();
    let Some(buffer) = buffers.get_mut(index(handle)) else { return };
    let (context, callback, argument, dropped) = (buffer.context, buffer.callback, buffer.argument, buffer.dropped);
    let mut entries = std::mem::take(&mut buffer.entries);
    buffer.used = 0;
    drop(buffers);
    if entries.is_empty() {
        return;
    }
    count(&link::counters().delivered_buffers);
    link::call_client(move || {
        let header = |entry: &mut Entry| Header {
            category: entry.category,
            kind: entry.kind,
            payload: entry.bytes.as_mut().map_or(std::ptr::null_mut(), Bytes::pointer),
        };
        let mut headers: Vec<Header> = entries.iter_mut().map(header).collect();
        let mut pointers: Vec<*mut Header> = headers.iter_mut().map(|header| &raw mut *header).collect();
        callback(context, handle, pointers.as_mut_ptr(), pointers.len(), argument as *mut c_void, dropped);
        for bytes in entries.iter_mut().filter_map(|entry| entry.bytes.as_mut()) {
            bytes.fill(0, 0xdd, &[]);
        }
    });
}

/// Makes a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_create_buffer(
    context: u64,
    size: usize,
    watermark: usize,
    policy: u32,
    callback: Option<Callback>,
    argument: *mut c_void,
    place: *mut u64,
) -> i32 {
    let Some(callback) = callback.filter(|_| !place.is_null()) else { return Status::INVALID_ARGUMENT.code() };
    answer(registration::open().map(|()| {
        let (lossless, argument) = (policy == LOSSLESS, argument as usize);
        let mut buffers = lock();
        let (entries, used, dropped) = (Vec::new(), 0, 0);
        buffers.push(Buffer { context, size, watermark, lossless, callback, argument, entries, used, dropped });
        // SAFETY: the caller promises a valid place for the result.
        unsafe { place.write(FIRST + buffers.len() as u64 - 1) };
        COURIER.start();
    }))
}

/// Flushes a buffer, and returns after its delivery.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_flush_buffer(buffer: u64) -> i32 {
    link::delay_flush();
    answer(exists(buffer).map(|()| COURIER.empty(buffer)))
}

/// A thread for buffers; here one serves all.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_create_callback_thread(place: *mut u64) -> i32 {
    answer(registration::open().map(|()| {
        // SAFETY: the caller promises a valid place for the result.
        unsafe { place.write(1) };
    }))
}

/// Gives a buffer to a thread.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_assign_callback_thread(buffer: u64, _thread: u64) -> i32 {
    answer(exists(buffer))
}

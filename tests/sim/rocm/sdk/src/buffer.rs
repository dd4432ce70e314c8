//! Buffers: records that are delivered to the client together.

use crate::layout::{Bytes, TRACING, UNKNOWN, UNKNOWN_CATEGORY};
use crate::registration;
use crate::shared::counters::count;
use crate::shared::link;
use crate::status::{Outcome, Status, code_of, give};
use crate::work::{COURIER, Pending};
use sim_core::exports;
use sim_core::faults::RecordNumbers;
use sim_core::handles::Handles;
use std::ffi::c_void;

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

/// The policy under which nothing is dropped.
const LOSSLESS: u32 = 2;
/// Bytes of a record of an unknown kind.
const UNKNOWN_SIZE: usize = 64;

static BUFFERS: Handles<Buffer> = Handles::behind(0x2ff);
/// Numbers the records.
static RECORDS: RecordNumbers = RecordNumbers::new();

/// Does something with a buffer.
fn with<R>(buffer: u64, act: impl FnOnce(&mut Buffer) -> Outcome<R>) -> Outcome<R> {
    BUFFERS.with(buffer as usize, Status::BUFFER_NOT_FOUND, act)
}

pub(crate) fn exists(buffer: u64) -> Outcome {
    with(buffer, |_| Ok(()))
}

/// Adds the record of ended work, and any fault records of the options.
pub(crate) fn add(pending: &Pending) {
    let options = link::options();
    let number = RECORDS.next();
    if number.is_each(options.drop) {
        let _ = with(pending.buffer, Buffer::drop_one);
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
    /// Drops a record; the buffer is not due.
    fn drop_one(&mut self) -> Outcome<bool> {
        self.dropped += 1;
        count(&link::counters().dropped);
        Ok(false)
    }
}

fn add_entry(handle: u64, entry: Entry) {
    let is_due = with(handle, |buffer| {
        let bytes = entry.bytes.as_ref().map_or(0, |bytes| bytes.bytes().len());
        if buffer.used + bytes > buffer.size && !buffer.lossless {
            return buffer.drop_one();
        }
        count(&link::counters().records);
        buffer.used += bytes;
        buffer.entries.push(entry);
        Ok(buffer.used >= buffer.watermark)
    });
    if is_due == Ok(true) {
        deliver(handle);
    }
}

/// Delivers a buffer's records to the client; they are invalid when it returns.
pub(crate) fn deliver(handle: u64) {
    let taken = with(handle, |buffer| {
        buffer.used = 0;
        let client = (buffer.context, buffer.callback, buffer.argument, buffer.dropped);
        Ok((client, std::mem::take(&mut buffer.entries)))
    });
    let Ok(((context, callback, argument, dropped), mut entries)) = taken else { return };
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

exports! {
    code_of as i32;

    /// Makes a buffer.
    fn rocprofiler_create_buffer(
        context: u64, size: usize, watermark: usize, policy: u32, callback: Option<Callback>, argument: *mut c_void,
        place: *mut u64,
    ), by registration::open {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        let (lossless, argument) = (policy == LOSSLESS, argument as usize);
        let (entries, used, dropped) = (Vec::new(), 0, 0);
        let buffer = Buffer { context, size, watermark, lossless, callback, argument, entries, used, dropped };
        COURIER.start();
        give(place, BUFFERS.add(buffer) as u64)
    }

    /// Flushes a buffer, and returns after its delivery.
    fn rocprofiler_flush_buffer(buffer: u64) {
        link::delay_flush();
        exists(buffer)?;
        COURIER.empty(buffer);
        Ok(())
    }
}

//! Pools: buffers of records, with the names of kernels at their end.

use crate::activity::{COURIER, Record};
use crate::callback::connect;
use crate::shared::counters::count;
use crate::shared::link;
use crate::status::{Outcome, Status, answer, give};
use sim_core::exports;
use sim_core::faults::RecordNumbers;
use sim_core::handles::lock;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

/// Takes the records from one address to another; the client's own.
type Callback = extern "C" fn(*const c_char, *const c_char, *mut c_void);

/// `roctracer_properties_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Properties {
    mode: u32,
    buffer_size: usize,
    /// The client's allocator and its argument, which are null: no client has one.
    allocate: [*mut c_void; 2],
    callback: Option<Callback>,
    callback_argument: *mut c_void,
}

/// `roctracer_pool_t*`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Handle(u64);

impl Handle {
    pub(crate) const DEFAULT: Handle = Handle(0);
}

#[derive(Debug)]
struct Pool {
    properties: Properties,
    /// Never freed: no client closes a pool.
    memory: *mut u8,
    /// Bytes of records at the begin, and of names at the end.
    records: usize,
    names: usize,
}

// SAFETY: the client promises that its functions may be called by any thread.
unsafe impl Send for Pool {}

#[derive(Debug)]
struct Pools {
    all: Vec<Pool>,
    default: Option<u64>,
}

const RECORD: usize = size_of::<Record>();
/// Handles are multiples of this, from 1 on.
const HANDLE_STEP: u64 = 0x100;
/// What a cut buffer lacks.
const CUT: usize = 20;

static POOLS: Mutex<Pools> = Mutex::new(Pools { all: Vec::new(), default: None });
/// How many records and buffers there have been.
static RECORDS: RecordNumbers = RecordNumbers::new();
static BUFFERS: RecordNumbers = RecordNumbers::new();

impl Pools {
    fn get(&mut self, handle: u64) -> Option<&mut Pool> {
        self.all.get_mut((handle / HANDLE_STEP).checked_sub(1)? as usize)
    }
}

/// The pool of a handle; null is the default one.
pub(crate) fn find(pool: Handle) -> Outcome<u64> {
    let mut pools = lock(&POOLS);
    let handle = if pool == Handle::DEFAULT { pools.default.ok_or(Status::DEFAULT_POOL_UNDEFINED)? } else { pool.0 };
    pools.get(handle).map(|_| handle).ok_or(Status::INVALID_ARGUMENT)
}

impl Pool {
    fn new(properties: Properties) -> Pool {
        let bytes = properties.buffer_size.max(2 * RECORD);
        let memory = Box::leak(vec![0_u8; bytes].into_boxed_slice()).as_mut_ptr();
        Pool { properties: Properties { buffer_size: bytes, ..properties }, memory, records: 0, names: 0 }
    }

    fn has_room(&self, name: usize) -> bool {
        self.records + RECORD + name + self.names <= self.properties.buffer_size
    }

    /// Adds a record, for which there must be room.
    fn add(&mut self, mut record: Record, name: Option<&CStr>) {
        if let Some(name) = name {
            let bytes = name.to_bytes_with_nul();
            self.names += bytes.len();
            let place = self.memory.wrapping_add(self.properties.buffer_size - self.names);
            // SAFETY: there is room at the end.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
            record[7] = place as u64;
        }
        let place = self.memory.wrapping_add(self.records);
        // SAFETY: there is room.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr().cast::<u8>(), place, RECORD) };
        self.records += RECORD;
    }
}

/// Adds a record, and any fault records of the options.
pub(crate) fn add(pool: u64, mut record: Record, name: Option<&CStr>) {
    let options = link::options();
    let number = RECORDS.next();
    if number.is_each(options.drop) {
        return count(&link::counters().dropped);
    }
    if number.is_each(options.garbage) {
        record[2..7].fill(u64::from_ne_bytes([number.nonsense(); 8]));
    }
    add_one(pool, record, name);
    if number.is_each(options.unknown_kinds) {
        // An unknown operation, or domain.
        let unknown = if number.0.is_multiple_of(2) { [2 | 900 << 32, 99] } else { [99, 0] };
        add_one(pool, [unknown[0], unknown[1], number.0, 0, 0, 0, 0, 0], None);
    }
}

fn add_one(handle: u64, record: Record, name: Option<&CStr>) {
    let bytes = name.map_or(0, |name| name.to_bytes_with_nul().len());
    let is_full = lock(&POOLS).get(handle).is_some_and(|pool| !pool.has_room(bytes));
    if is_full {
        deliver(handle);
    }
    let mut pools = lock(&POOLS);
    let Some(pool) = pools.get(handle) else { return };
    // What is too long for an empty buffer goes without a name.
    let name = name.filter(|_| pool.has_room(bytes));
    if pool.has_room(0) {
        count(&link::counters().records);
        pool.add(record, name);
    }
}

/// Delivers a pool's records to the client; they are invalid when it returns.
///
/// Runs under the lock of the pools, so that a thread that adds a record waits, as with the real library.
pub(crate) fn deliver(handle: u64) {
    let mut pools = lock(&POOLS);
    let Some(pool) = pools.get(handle).filter(|pool| pool.records > 0) else { return };
    count(&link::counters().delivered_buffers);
    let options = link::options();
    let is_cut = options.cut != 0 && BUFFERS.next().is_each(options.cut);
    let length = pool.records - if is_cut { CUT } else { 0 };
    let (begin, argument) = (pool.memory as usize, pool.properties.callback_argument as usize);
    if let Some(callback) = pool.properties.callback {
        link::call_client(move || {
            callback(begin as *const c_char, (begin + length) as *const c_char, argument as *mut c_void);
        });
    }
    // SAFETY: the pool's memory is that long.
    unsafe { std::ptr::write_bytes(pool.memory, 0xdd, pool.properties.buffer_size) };
    (pool.records, pool.names) = (0, 0);
}

/// Makes a pool, and writes its handle; for null it is the default one.
fn open(properties: *const Properties, place: *mut Handle) -> Outcome {
    // SAFETY: null, or properties as the caller promises.
    let properties = *unsafe { properties.as_ref() }.ok_or(Status::INVALID_ARGUMENT)?;
    let mut pools = lock(&POOLS);
    if link::options().busy || (place.is_null() && pools.default.is_some()) {
        return Err(Status::DEFAULT_POOL_ALREADY_DEFINED);
    }
    COURIER.start();
    pools.all.push(Pool::new(properties));
    let handle = pools.all.len() as u64 * HANDLE_STEP;
    if place.is_null() {
        pools.default = Some(handle);
    } else {
        give(place, Handle(handle))?;
    }
    drop(pools);
    connect();
    Ok(())
}

fn flush(pool: Handle) -> Outcome {
    link::delay_flush();
    COURIER.empty(find(pool)?);
    Ok(())
}

exports! {
    answer as i32;

    /// Makes a pool; the default one where there is no place for the handle.
    fn roctracer_open_pool_expl(properties: *const Properties, pool: *mut Handle) {
        open(properties, pool)
    }

    /// The default pool, or null.
    fn roctracer_default_pool() -> Handle {
        Handle(lock(&POOLS).default.unwrap_or(0))
    }

    /// Flushes a pool, and returns after its delivery.
    fn roctracer_flush_activity_expl(pool: Handle) {
        flush(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_have_roctracers_size() {
        assert_eq!((size_of::<Properties>(), RECORD), (48, 64));
        assert_eq!(std::mem::offset_of!(Properties, callback), 32);
    }
}

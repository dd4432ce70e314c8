//! Pools: buffers of records, with the names of kernels at their end.

use crate::activity::{COURIER, Record};
use crate::callback::connect;
use crate::shared::counters::count;
use crate::shared::link;
use crate::status::{Status, answer};
use sim_core::faults::RecordNumbers;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory of that size for the address there, or none for 0; the client's own.
type Allocate = extern "C" fn(*mut *mut c_char, usize, *mut c_void);
/// Takes the records from one address to another; the client's own.
type Callback = extern "C" fn(*const c_char, *const c_char, *mut c_void);

/// `roctracer_properties_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Properties {
    mode: u32,
    buffer_size: usize,
    allocate: Option<Allocate>,
    allocate_argument: *mut c_void,
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
    handle: u64,
    properties: Properties,
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
/// What a cut buffer lacks.
const CUT: usize = 20;

static POOLS: Mutex<Pools> = Mutex::new(Pools { all: Vec::new(), default: None });
static HANDLES: AtomicU64 = AtomicU64::new(1);
/// How many records and buffers there have been.
static RECORDS: RecordNumbers = RecordNumbers::new();
static BUFFERS: RecordNumbers = RecordNumbers::new();

fn lock() -> MutexGuard<'static, Pools> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pools {
    fn get(&mut self, handle: u64) -> Option<&mut Pool> {
        self.all.iter_mut().find(|pool| pool.handle == handle)
    }
}

/// The pool of a handle; null is the default one.
pub(crate) fn find(pool: Handle) -> Result<u64, Status> {
    let mut pools = lock();
    let handle = if pool == Handle::DEFAULT { pools.default.ok_or(Status::DEFAULT_POOL_UNDEFINED)? } else { pool.0 };
    pools.get(handle).map(|pool| pool.handle).ok_or(Status::INVALID_ARGUMENT)
}

impl Pool {
    fn new(properties: Properties) -> Pool {
        // Memory is there for two buffers, as the real one has it; one is enough here.
        let bytes = properties.buffer_size.max(2 * RECORD);
        let properties = Properties { buffer_size: bytes, ..properties };
        let mut memory: *mut c_char = std::ptr::null_mut();
        match properties.allocate {
            Some(allocate) => allocate(&raw mut memory, 2 * bytes, properties.allocate_argument),
            // SAFETY: takes a size.
            None => memory = unsafe { libc::malloc(2 * bytes) }.cast(),
        }
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed) * 0x100;
        Pool { handle, properties, memory: memory.cast(), records: 0, names: 0 }
    }

    fn close(mut self) {
        let mut memory: *mut c_char = self.memory.cast();
        self.memory = std::ptr::null_mut();
        match self.properties.allocate {
            Some(allocate) => allocate(&raw mut memory, 0, self.properties.allocate_argument),
            // SAFETY: allocated above.
            None => unsafe { libc::free(memory.cast()) },
        }
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
    let is_full = lock().get(handle).is_some_and(|pool| !pool.has_room(bytes));
    if is_full {
        deliver(handle);
    }
    let mut pools = lock();
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
    let mut pools = lock();
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
fn open(properties: *const Properties, place: *mut Handle) -> Result<(), Status> {
    // SAFETY: null, or properties as the caller promises.
    let properties = *unsafe { properties.as_ref() }.ok_or(Status::INVALID_ARGUMENT)?;
    let mut pools = lock();
    if link::options().busy || (place.is_null() && pools.default.is_some()) {
        return Err(Status::DEFAULT_POOL_ALREADY_DEFINED);
    }
    COURIER.start();
    let pool = Pool::new(properties);
    if place.is_null() {
        pools.default = Some(pool.handle);
    } else {
        // SAFETY: the caller promises a valid place for the result.
        unsafe { place.write(Handle(pool.handle)) };
    }
    pools.all.push(pool);
    drop(pools);
    connect();
    Ok(())
}

fn close(pool: Handle) -> Result<(), Status> {
    let handle = find(pool)?;
    deliver(handle);
    let mut pools = lock();
    if pools.default == Some(handle) {
        pools.default = None;
    }
    let closed: Vec<Pool> = pools.all.extract_if(.., |pool| pool.handle == handle).collect();
    drop(pools);
    closed.into_iter().for_each(Pool::close);
    Ok(())
}

fn flush(pool: Handle) -> Result<(), Status> {
    link::delay_flush();
    COURIER.empty(find(pool)?);
    Ok(())
}

/// Makes a pool; the default one where there is no place for the handle.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_open_pool_expl(properties: *const Properties, pool: *mut Handle) -> i32 {
    answer(open(properties, pool))
}

#[unsafe(no_mangle)]
pub extern "C" fn roctracer_open_pool(properties: *const Properties) -> i32 {
    answer(open(properties, std::ptr::null_mut()))
}

/// Flushes a pool, and closes it.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_close_pool_expl(pool: Handle) -> i32 {
    answer(close(pool))
}

#[unsafe(no_mangle)]
pub extern "C" fn roctracer_close_pool() -> i32 {
    answer(close(Handle::DEFAULT))
}

/// Makes a pool the default one, unless it is null; the default one before.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_default_pool_expl(pool: Handle) -> Handle {
    let mut pools = lock();
    let before = Handle(pools.default.unwrap_or(0));
    if pool != Handle::DEFAULT {
        pools.default = Some(pool.0);
    }
    before
}

#[unsafe(no_mangle)]
pub extern "C" fn roctracer_default_pool() -> Handle {
    roctracer_default_pool_expl(Handle::DEFAULT)
}

/// Flushes a pool, and returns after its delivery.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_flush_activity_expl(pool: Handle) -> i32 {
    answer(flush(pool))
}

#[unsafe(no_mangle)]
pub extern "C" fn roctracer_flush_activity() -> i32 {
    answer(flush(Handle::DEFAULT))
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

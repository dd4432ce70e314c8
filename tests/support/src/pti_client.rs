//! A small profiler on PTI: enables views, and walks over delivered buffers.

use crate::{simulator, xpu};
use libloading::Library;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Kinds of views.
pub const KERNEL: u32 = 1;
pub const DRIVER_API: u32 = 3;
pub const OVERHEAD: u32 = 5;
pub const RUNTIME_API: u32 = 6;
pub const EXTERNAL: u32 = 7;
pub const MEMCPY: u32 = 8;
pub const MEMSET: u32 = 9;
pub const PEER: u32 = 10;
pub const SYNC: u32 = 11;
pub const COMMS: u32 = 12;
pub const ALL: [u32; 10] = [KERNEL, MEMCPY, MEMSET, PEER, DRIVER_API, OVERHEAD, RUNTIME_API, EXTERNAL, SYNC, COMMS];

/// A record of a delivered buffer.
#[derive(Clone, Debug)]
pub struct Row {
    pub kind: u32,
    /// The bytes from the record's start to the end of the buffer.
    bytes: Vec<u8>,
    /// The thread that delivered it.
    pub by: std::thread::ThreadId,
}

impl Row {
    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes[offset..offset + 4].try_into().unwrap())
    }

    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes[offset..offset + 8].try_into().unwrap())
    }

    /// Returns the number of bytes from its start to the end of the buffer.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    pub fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        &self.bytes[offset..offset + length]
    }

    /// Returns the text that the field points to.
    pub fn text(&self, offset: usize) -> String {
        let text = self.u64(offset) as *const std::ffi::c_char;
        assert!(!text.is_null());
        // SAFETY: the field holds the address of a C string that the simulator never frees.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }
}

/// The valid bytes of each delivered buffer, with the delivering thread.
static DELIVERED: Mutex<Vec<(Vec<u8>, std::thread::ThreadId)>> = Mutex::new(Vec::new());
static SIZE: Mutex<usize> = Mutex::new(64 << 10);

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize) {
    let bytes = *lock(&SIZE);
    let memory = if bytes == 0 {
        std::ptr::null_mut()
    } else {
        Box::leak(vec![0_u64; bytes / 8].into_boxed_slice()).as_mut_ptr()
    };
    // SAFETY: PTI passes a valid place for the buffer.
    unsafe { buffer.write(memory.cast()) };
    // SAFETY: PTI passes a valid place for the size.
    unsafe { size.write(bytes) };
}

extern "C" fn completed(buffer: *mut u8, _size: usize, used: usize) {
    if buffer.is_null() {
        return;
    }
    // SAFETY: the buffer is from `requested`, and `used` bytes of it are initialized.
    let bytes = unsafe { std::slice::from_raw_parts(buffer, used) }.to_vec();
    lock(&DELIVERED).push((bytes, std::thread::current().id()));
}

/// PTI.
#[derive(Clone, Copy)]
pub struct Pti {
    library: &'static Library,
}

impl Pti {
    pub fn of(library: &'static Library) -> Pti {
        Pti { library }
    }

    /// Returns the function of that name and type.
    pub fn function<T: Copy>(self, name: &str) -> T {
        // SAFETY: callers pass the type of PTI's function of that name.
        *unsafe { self.library.get::<T>(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Calls a function that takes a number.
    pub fn call(self, name: &str, argument: u32) -> u32 {
        self.function::<extern "C" fn(u32) -> u32>(name)(argument)
    }

    pub fn set_callbacks(self) -> u32 {
        type Set = extern "C" fn(extern "C" fn(*mut *mut u8, *mut usize), extern "C" fn(*mut u8, usize, usize)) -> u32;
        self.function::<Set>("ptiViewSetCallbacks")(requested, completed)
    }

    pub fn push(self, kind: u32, id: u64) -> u32 {
        self.function::<extern "C" fn(u32, u64) -> u32>("ptiViewPushExternalCorrelationId")(kind, id)
    }

    pub fn pop(self, kind: u32) -> (u32, u64) {
        let mut id = 0;
        let pop = self.function::<extern "C" fn(u32, *mut u64) -> u32>("ptiViewPopExternalCorrelationId");
        (pop(kind, &raw mut id), id)
    }

    pub fn flush(self) -> u32 {
        self.function::<extern "C" fn() -> u32>("ptiFlushAllViews")()
    }

    pub fn now(self) -> u64 {
        self.function::<extern "C" fn() -> u64>("ptiViewGetTimestamp")()
    }

    /// Limits recording to calls that submit work to a device.
    pub fn only_core_calls(self) -> u32 {
        self.function::<extern "C" fn(u32, u32, u32) -> u32>("ptiViewEnableRuntimeApiClass")(1, 1, 3)
    }

    /// Returns PTI's name of a function.
    pub fn name(self, group: u32, id: u32) -> Option<String> {
        let mut name = std::ptr::null();
        let get = self.function::<extern "C" fn(u32, u32, *mut *const std::ffi::c_char) -> u32>("ptiViewGetApiIdName");
        // SAFETY: on success PTI has set `name` to a C string.
        (get(group, id, &raw mut name) == 0).then(|| unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap().into())
    }

    /// Returns the records that PTI's walker finds in newly delivered buffers, and the last code of each buffer.
    pub fn rows(self) -> (Vec<Row>, Vec<u32>) {
        let next = self.function::<extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32>("ptiViewGetNextRecord");
        let (mut rows, mut ends) = (Vec::new(), Vec::new());
        for (mut bytes, by) in std::mem::take(&mut *lock(&DELIVERED)) {
            let (start, valid) = (bytes.as_mut_ptr(), bytes.len());
            let mut record = std::ptr::null_mut();
            let end = loop {
                match next(start, valid, &raw mut record) {
                    0 => {
                        let offset = record as usize - start as usize;
                        if offset + 4 > valid {
                            break u32::MAX;
                        }
                        let bytes = bytes[offset..].to_vec();
                        rows.push(Row { kind: u32::from_le_bytes(bytes[..4].try_into().unwrap()), bytes, by });
                    }
                    code => break code,
                }
            };
            ends.push(end);
        }
        (rows, ends)
    }

    /// Flushes, and returns the records of one kind.
    pub fn of_kind(self, kind: u32) -> Vec<Row> {
        assert_eq!(self.flush(), 0);
        self.rows().0.into_iter().filter(|row| row.kind == kind).collect()
    }
}

/// The machine, with PTI's views enabled.
pub struct Session {
    pub xpu: xpu::Xpu,
    pub pti: Pti,
}

/// Sets the machine's options and enables all views.
#[track_caller]
pub fn session(settings: &str) -> Session {
    session_of(settings, &ALL)
}

/// As [`session`], with these views.
#[track_caller]
pub fn session_of(settings: &str, views: &[u32]) -> Session {
    simulator::assert_own_process();
    set_buffer_size(64 << 10);
    let xpu = xpu::Xpu::with(settings);
    let pti = Pti::of(xpu::pti());
    xpu::reset();
    assert_eq!(pti.set_callbacks(), 0);
    lock(&DELIVERED).clear();
    for view in views {
        let code = pti.call("ptiViewEnable", *view);
        assert!(code == 0 || *view == COMMS && code == 3, "{view}: {code}");
    }
    Session { xpu, pti }
}

/// The size of the buffers that PTI gets from now on; 0 for none.
pub fn set_buffer_size(size: usize) {
    *lock(&SIZE) = size;
}

impl Drop for Session {
    fn drop(&mut self) {
        xpu::configure("");
        for view in ALL {
            self.pti.call("ptiViewDisable", view);
        }
        self.pti.flush();
        self.pti.rows();
        xpu::reset();
    }
}

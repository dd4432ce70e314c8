//! A client of the simulated Intel GPU: SYCL and Level Zero calls, and the simulator's controls.
//!
//! Both libraries are opened by path from `target/<profile>/deps`, so that searches for `libze_loader.so.1` and
//! `libpti_view.so.1` among the loaded libraries find them. Functions panic on errors.

pub use crate::simulator::library;
use crate::simulator::{invoke, open};
use libloading::Library;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

/// The simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Xpu;

/// A queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue(pub u64);

/// Kinds of memory, by PTI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    Pageable = 0,
    Pinned = 1,
    Device = 2,
    Shared = 3,
}

/// Ways to wait for a queue, by PTI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    Fence = 3,
    Event = 4,
    List = 5,
    Queue = 6,
    Device = 7,
}

/// Returns Level Zero, which stays loaded.
pub fn level_zero() -> &'static Library {
    static LEVEL_ZERO: OnceLock<Library> = OnceLock::new();
    LEVEL_ZERO.get_or_init(|| open("sim_ze_loader"))
}

/// Returns PTI, which stays loaded.
pub fn pti() -> &'static Library {
    static PTI: OnceLock<Library> = OnceLock::new();
    PTI.get_or_init(|| {
        level_zero();
        open("sim_pti")
    })
}

/// Calls a function of the simulated Level Zero; returns its result.
macro_rules! raw {
    ($($call:tt)*) => { invoke!(level_zero(), $($call)*) };
}

/// Calls a function that must succeed.
macro_rules! call {
    ($name:ident($($argument:expr => $type:ty),* $(,)?)) => {
        assert_eq!(raw!($name($($argument => $type),*) -> i32), 0, stringify!($name))
    };
}

/// Sets the simulator's options ("key=value,key=value"), and all others to their defaults.
pub fn configure(settings: &str) {
    assert!(crate::simulator::configure(level_zero(), settings), "{settings}");
}

/// Returns a counter of the simulator by its name.
pub fn count(what: &str) -> u64 {
    crate::simulator::count(level_zero(), what)
}

/// Resets the counters, and drops work that was not waited for.
pub fn reset() {
    raw!(simReset());
}

/// Ends endless kernels and a hung flush.
pub fn finish() {
    raw!(simFinish());
}

/// Flushes PTI's buffers.
pub fn flush() {
    // SAFETY: the simulator's function of that name has this type.
    let flush = unsafe { *pti().get::<extern "C" fn() -> u32>(b"ptiFlushAllViews\0").unwrap() };
    assert_eq!(flush(), 0);
}

impl Xpu {
    /// Loads both libraries with these options.
    pub fn with(settings: &str) -> Xpu {
        pti();
        configure(settings);
        Xpu::new()
    }

    /// As [`Xpu::with`], with the current options.
    pub fn new() -> Xpu {
        assert_eq!(raw!(zeInit(0 => u32) -> u32), 0);
        Xpu
    }

    /// Makes a SYCL queue.
    pub fn queue(self, device: u32) -> Queue {
        self.make(device, true)
    }

    /// Makes a Level Zero queue without SYCL.
    pub fn driver_queue(self, device: u32) -> Queue {
        self.make(device, false)
    }

    fn make(self, device: u32, is_sycl: bool) -> Queue {
        let mut queue = 0;
        call!(simQueueCreate(device => u32, is_sycl.into() => u32, &raw mut queue => *mut u64));
        Queue(queue)
    }

    pub fn destroy(self, queue: Queue) {
        call!(simQueueDestroy(queue.0 => u64));
    }

    /// Submits a kernel. A kernel with `_us500` in its name takes 500 us.
    pub fn submit(self, queue: Queue, name: &str) {
        self.submit_at(queue, name, "model.cpp", 42);
    }

    /// Submits a kernel with a source location.
    pub fn submit_at(self, queue: Queue, name: &str, file: &str, line: u64) {
        let (name, file) = (CString::new(name).unwrap(), CString::new(file).unwrap());
        let [name, file] = [&name, &file].map(|text| text.as_ptr());
        call!(simSubmitKernel(queue.0 => u64, name => *const c_char, file => *const c_char, line => u64));
    }

    pub fn memcpy(self, queue: Queue, from: MemoryKind, to: MemoryKind, bytes: u64) {
        call!(simMemcpy(queue.0 => u64, from as u32 => u32, to as u32 => u32, bytes => u64));
    }

    /// Copies from the queue's device to another.
    pub fn memcpy_peer(self, queue: Queue, to: u32, bytes: u64) {
        call!(simMemcpyPeer(queue.0 => u64, to => u32, bytes => u64));
    }

    pub fn memset(self, queue: Queue, value: u64, bytes: u64) {
        call!(simMemset(queue.0 => u64, value => u64, bytes => u64));
    }

    pub fn barrier(self, queue: Queue) {
        call!(simBarrier(queue.0 => u64));
    }

    /// Allocates device memory.
    pub fn allocate(self) {
        call!(simAllocate());
    }

    /// Waits for a queue, or for all queues.
    pub fn wait(self, queue: Queue, how: WaitKind) {
        call!(simSynchronize(queue.0 => u64, how as u32 => u32));
    }

    /// Runs a collective operation of oneCCL of `us` microseconds.
    pub fn collective(self, name: &str, communicator: u64, us: u64) {
        let name = CString::new(name).unwrap();
        call!(simCollective(
            name.as_ptr() => *const c_char, communicator => u64, 4096 => u64, 8192 => u64, us => u64,
        ));
    }
}

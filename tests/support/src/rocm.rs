//! A client of the simulated ROCm: HIP calls, and the simulator's controls.
//!
//! The libraries are opened by path from `target/<profile>/deps`, so that searches for `libamdhip64.so.6`,
//! `librocprofiler-sdk.so.1` and `libroctracer64.so.4` among the loaded libraries find them. Functions panic on errors.

use crate::simulator::{invoke, open};
use libloading::Library;
use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;

/// The simulated HIP.
#[derive(Clone, Copy)]
pub struct Hip;

/// A stream; [`Stream::NULL`] is the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub u64);

impl Stream {
    pub const NULL: Stream = Stream(0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module(pub u64);

/// A kernel of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(pub u64);

/// The host address of a kernel that is compiled into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostKernel(pub u64);

/// An executable graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graph(pub u64);

/// Device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub address: u64,
    pub bytes: usize,
}

/// `dim3`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Dimensions(u32, u32, u32);

/// `hipMemcpyKind`
const HOST_TO_DEVICE: u32 = 1;
const DEVICE_TO_HOST: u32 = 2;
const DEVICE_TO_DEVICE: u32 = 3;

/// Returns HIP, which stays loaded.
pub fn hip() -> &'static Library {
    static HIP: OnceLock<Library> = OnceLock::new();
    HIP.get_or_init(|| open("sim_hip"))
}

/// Returns rocprofiler-sdk, which stays loaded.
pub fn sdk() -> &'static Library {
    static SDK: OnceLock<Library> = OnceLock::new();
    SDK.get_or_init(|| {
        hip();
        open("sim_rocprofiler")
    })
}

/// Returns ROCm SMI, which stays loaded.
pub fn smi() -> &'static Library {
    static SMI: OnceLock<Library> = OnceLock::new();
    SMI.get_or_init(|| open("sim_rocm_smi"))
}

/// Returns roctracer, which stays loaded.
pub fn tracer() -> &'static Library {
    static TRACER: OnceLock<Library> = OnceLock::new();
    TRACER.get_or_init(|| {
        hip();
        open("sim_roctracer")
    })
}

/// Calls a function of HIP; returns its result.
macro_rules! raw {
    ($($call:tt)*) => { invoke!(hip(), $($call)*) };
}

/// Calls a function of HIP's API, which must succeed.
macro_rules! call {
    ($name:ident($($argument:expr => $type:ty),* $(,)?)) => {
        assert_eq!(raw!($name($($argument => $type),*) -> i32), 0, stringify!($name))
    };
}

/// Sets the simulator's options ("key=value,key=value"), and all others to their defaults.
pub fn configure(settings: &str) {
    assert!(crate::simulator::configure(hip(), settings), "{settings}");
}

/// Returns a counter of the simulator by its name.
pub fn count(what: &str) -> u64 {
    crate::simulator::count(hip(), what)
}

/// Resets the counters, and ends endless work.
pub fn reset() {
    raw!(simReset());
}

/// Ends endless kernels and flushes that hang.
pub fn finish() {
    raw!(simFinish());
}

impl Hip {
    /// Loads HIP and rocprofiler-sdk with these options; HIP has not been called.
    pub fn with_sdk(settings: &str) -> Hip {
        sdk();
        configure(settings);
        Hip
    }

    /// Loads HIP and roctracer with these options.
    pub fn with_tracer(settings: &str) -> Hip {
        tracer();
        configure(settings);
        Hip
    }

    /// Loads HIP alone, with these options.
    pub fn alone(settings: &str) -> Hip {
        hip();
        configure(settings);
        Hip
    }

    pub fn init(&self) {
        call!(hipInit(0 => u32));
    }

    pub fn devices(&self) -> i32 {
        let mut count = 0;
        call!(hipGetDeviceCount(&raw mut count => *mut i32));
        count
    }

    pub fn driver_version(&self) -> i32 {
        let mut version = 0;
        call!(hipDriverGetVersion(&raw mut version => *mut i32));
        version
    }

    /// Makes a device the thread's.
    pub fn set_device(&self, device: i32) {
        call!(hipSetDevice(device => i32));
    }

    /// Makes queries that programs make frequently.
    pub fn make_frequent_queries(&self) {
        let (mut device, mut value) = (0, 0);
        call!(hipGetDevice(&raw mut device => *mut i32));
        call!(hipDeviceGetAttribute(&raw mut value => *mut i32, 63 => i32, device => i32));
        call!(hipGetLastError());
    }

    pub fn stream(&self) -> Stream {
        let mut stream = 0;
        // Such a stream does not synchronize with the default one.
        call!(hipStreamCreateWithFlags(&raw mut stream => *mut u64, 1 => u32));
        Stream(stream)
    }

    pub fn destroy_stream(&self, stream: Stream) {
        call!(hipStreamDestroy(stream.0 => u64));
    }

    /// Loads a module with these kernels. A kernel with `_us500` in its name takes 500 us.
    pub fn module(&self, kernels: &[&str]) -> Module {
        let text = CString::new(format!("sim-rocm\n{}", kernels.join("\n"))).unwrap();
        let mut module = 0;
        call!(hipModuleLoadData(&raw mut module => *mut u64, text.as_ptr() => *const c_char));
        Module(module)
    }

    pub fn unload(&self, module: Module) {
        call!(hipModuleUnload(module.0 => u64));
    }

    pub fn kernel(&self, module: Module, name: &str) -> Kernel {
        let (mut kernel, name) = (0, CString::new(name).unwrap());
        call!(hipModuleGetFunction(&raw mut kernel => *mut u64, module.0 => u64, name.as_ptr() => *const c_char));
        Kernel(kernel)
    }

    /// Returns a kernel of that name, in its own module.
    pub fn only_kernel(&self, name: &str) -> Kernel {
        self.kernel(self.module(&[name]), name)
    }

    /// Returns a kernel that is compiled into the program.
    pub fn host_kernel(&self, name: &str) -> HostKernel {
        let name = CString::new(name).unwrap();
        HostKernel(raw!(simRegisterKernel(name.as_ptr() => *const c_char) -> u64))
    }

    /// Launches blocks of 256 threads by `hipModuleLaunchKernel`.
    pub fn launch(&self, kernel: Kernel, blocks: u32, stream: Stream) {
        let null = std::ptr::null();
        call!(hipModuleLaunchKernel(
            kernel.0 => u64, blocks => u32, 1 => u32, 1 => u32, 256 => u32, 1 => u32, 1 => u32, 0 => u32,
            stream.0 => u64, null => *const c_void, null => *const c_void,
        ));
    }

    /// Launches blocks of 64 threads by `hipExtModuleLaunchKernel`, which counts in threads.
    pub fn launch_ext(&self, kernel: Kernel, blocks: u32, stream: Stream) {
        let null = std::ptr::null();
        call!(hipExtModuleLaunchKernel(
            kernel.0 => u64, blocks * 64 => u32, 1 => u32, 1 => u32, 64 => u32, 1 => u32, 1 => u32, 0 => usize,
            stream.0 => u64, null => *const c_void, null => *const c_void, 0 => u64, 0 => u64, 0 => u32,
        ));
    }

    /// Launches blocks of 128 threads with 1024 bytes of shared memory by `hipLaunchKernel`.
    pub fn launch_host(&self, kernel: HostKernel, blocks: u32, stream: Stream) {
        call!(hipLaunchKernel(
            kernel.0 => u64, Dimensions(blocks, 1, 1) => Dimensions, Dimensions(128, 1, 1) => Dimensions,
            std::ptr::null() => *const c_void, 1024 => usize, stream.0 => u64,
        ));
    }

    /// Allocates device memory.
    pub fn allocate(&self, bytes: usize) -> Memory {
        let mut address = 0;
        call!(hipMalloc(&raw mut address => *mut u64, bytes => usize));
        Memory { address, bytes }
    }

    pub fn allocate_async(&self, bytes: usize, stream: Stream) -> Memory {
        let mut address = 0;
        call!(hipMallocAsync(&raw mut address => *mut u64, bytes => usize, stream.0 => u64));
        Memory { address, bytes }
    }

    pub fn free(&self, memory: Memory) {
        call!(hipFree(memory.address => u64));
    }

    pub fn free_async(&self, memory: Memory, stream: Stream) {
        call!(hipFreeAsync(memory.address => u64, stream.0 => u64));
    }

    /// Copies to the device.
    pub fn memcpy_htod(&self, target: Memory, source: &[u8], stream: Stream) {
        assert!(source.len() <= target.bytes);
        self.copy(target.address, source.as_ptr() as u64, source.len(), HOST_TO_DEVICE, stream);
    }

    /// Copies from the device.
    pub fn memcpy_dtoh(&self, target: &mut [u8], source: Memory, stream: Stream) {
        assert!(target.len() <= source.bytes);
        self.copy(target.as_mut_ptr() as u64, source.address, target.len(), DEVICE_TO_HOST, stream);
    }

    /// Copies on one device.
    pub fn memcpy_dtod(&self, target: Memory, source: Memory, stream: Stream) {
        self.copy(target.address, source.address, target.bytes.min(source.bytes), DEVICE_TO_DEVICE, stream);
    }

    fn copy(&self, target: u64, source: u64, bytes: usize, kind: u32, stream: Stream) {
        call!(hipMemcpyAsync(target => u64, source => u64, bytes => usize, kind => u32, stream.0 => u64));
    }

    /// Copies to the device, and waits for the copy.
    pub fn memcpy_with_stream(&self, target: Memory, source: &[u8], stream: Stream) {
        let (bytes, source) = (source.len(), source.as_ptr());
        call!(hipMemcpyWithStream(
            target.address => u64, source => *const u8, bytes => usize, HOST_TO_DEVICE => u32, stream.0 => u64,
        ));
    }

    /// Copies from one device to another.
    pub fn memcpy_peer(&self, target: (Memory, i32), source: (Memory, i32), stream: Stream) {
        call!(hipMemcpyPeerAsync(
            target.0.address => u64, target.1 => i32, source.0.address => u64, source.1 => i32,
            target.0.bytes.min(source.0.bytes) => usize, stream.0 => u64,
        ));
    }

    /// Fills memory with a byte.
    pub fn memset(&self, target: Memory, value: u8, stream: Stream) {
        call!(hipMemsetAsync(
            target.address => u64, i32::from(value) => i32, target.bytes => usize, stream.0 => u64,
        ));
    }

    pub fn event(&self) -> Event {
        let mut event = 0;
        call!(hipEventCreate(&raw mut event => *mut u64));
        Event(event)
    }

    pub fn record(&self, event: Event, stream: Stream) {
        call!(hipEventRecord(event.0 => u64, stream.0 => u64));
    }

    /// Makes a stream wait for an event.
    pub fn wait(&self, stream: Stream, event: Event) {
        call!(hipStreamWaitEvent(stream.0 => u64, event.0 => u64, 0 => u32));
    }

    pub fn synchronize_event(&self, event: Event) {
        call!(hipEventSynchronize(event.0 => u64));
    }

    pub fn synchronize_stream(&self, stream: Stream) {
        call!(hipStreamSynchronize(stream.0 => u64));
    }

    /// Waits for all work of the thread's device.
    pub fn synchronize(&self) {
        call!(hipDeviceSynchronize());
    }

    /// Captures the calls of `work` on a stream into a graph.
    pub fn graph(&self, stream: Stream, work: impl FnOnce()) -> Graph {
        call!(hipStreamBeginCapture(stream.0 => u64, 0 => u32));
        work();
        let (mut graph, mut executable) = (0, 0);
        call!(hipStreamEndCapture(stream.0 => u64, &raw mut graph => *mut u64));
        let null = std::ptr::null();
        call!(hipGraphInstantiate(
            &raw mut executable => *mut u64, graph => u64, null => *const c_void, null => *const c_void, 0 => usize,
        ));
        Graph(executable)
    }

    pub fn launch_graph(&self, graph: Graph, stream: Stream) {
        call!(hipGraphLaunch(graph.0 => u64, stream.0 => u64));
    }
}

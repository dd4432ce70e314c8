//! A client of the simulated GPU: driver API calls, and the simulator's controls.
//!
//! Both libraries are opened by path from `target/<profile>/deps`, so that searches for `libcuda.so.1` and
//! `libcupti.so.13` among the loaded libraries find them. Functions panic on errors.

pub use crate::simulator::library;
use crate::simulator::{invoke, open};
use libloading::Library;
use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;

/// The simulated driver.
#[derive(Clone, Copy)]
pub struct Cuda {
    launch: Launch,
}

type Launch = extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, *const c_void, *const c_void) -> i32;

/// `CUlaunchConfig`
#[repr(C)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    stream: u64,
    /// A launch attribute: an id, padding, and a value of 64 bytes.
    attributes: *const [u32; 18],
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(pub u64);

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

/// An executable graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graph(pub u64);

/// Device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub address: u64,
    pub bytes: usize,
}

/// Returns the driver, which stays loaded.
pub fn driver() -> &'static Library {
    static DRIVER: OnceLock<Library> = OnceLock::new();
    DRIVER.get_or_init(|| open("sim_cuda"))
}

/// Returns CUPTI, which stays loaded.
pub fn cupti() -> &'static Library {
    static CUPTI: OnceLock<Library> = OnceLock::new();
    CUPTI.get_or_init(|| {
        driver();
        open("sim_cupti")
    })
}

/// Calls a function of the driver; returns its result.
macro_rules! raw {
    ($($call:tt)*) => { invoke!(driver(), $($call)*) };
}

/// Calls a function of the driver API, which must succeed.
macro_rules! call {
    ($name:ident($($argument:expr => $type:ty),* $(,)?)) => {
        assert_eq!(raw!($name($($argument => $type),*) -> i32), 0, stringify!($name))
    };
}

/// Sets the simulator's options ("key=value,key=value"), and all others to their defaults.
pub fn configure(settings: &str) {
    assert!(try_configure(settings), "{settings}");
}

/// As [`configure`]; returns false for invalid settings.
pub fn try_configure(settings: &str) -> bool {
    crate::simulator::configure(driver(), settings)
}

/// Returns a counter of the simulator by its name.
pub fn count(what: &str) -> u64 {
    crate::simulator::count(driver(), what)
}

/// Resets the counters, and ends endless kernels.
pub fn reset() {
    raw!(simReset());
}

/// Ends endless kernels.
pub fn finish() {
    raw!(simFinish());
}

/// Calls `cuDriverGetVersion`; returns its result.
pub fn driver_version(version: *mut i32) -> i32 {
    raw!(cuDriverGetVersion(version => *mut i32) -> i32)
}

/// Returns a PTX text with these kernels.
pub fn ptx(kernels: &[&str]) -> String {
    let entry = |name: &&str| format!(".visible .entry {name}(.param .u64 a) {{ ret; }}\n");
    ".version 8.0\n.target sm_90\n.address_size 64\n".to_owned() + &kernels.iter().map(entry).collect::<String>()
}

impl Cuda {
    /// Loads both libraries with these options, and makes the first device's primary context the thread's.
    pub fn with(settings: &str) -> Cuda {
        cupti();
        configure(settings);
        Cuda::new()
    }

    /// As [`Cuda::with`], with the current options.
    pub fn new() -> Cuda {
        call!(cuInit(0 => u32));
        // SAFETY: the simulator's function of that name has this type.
        let launch = unsafe { *driver().get::<Launch>(b"cuLaunchKernel\0").unwrap() };
        let cuda = Cuda { launch };
        cuda.set_current(cuda.context(0));
        cuda
    }

    /// Returns the primary context of a device.
    pub fn context(&self, device: i32) -> Context {
        let mut context = 0;
        call!(cuDevicePrimaryCtxRetain(&raw mut context => *mut u64, device => i32));
        Context(context)
    }

    /// Releases the primary context of a device, which ends with the last release.
    pub fn release_context(&self, device: i32) {
        call!(cuDevicePrimaryCtxRelease_v2(device => i32));
    }

    /// Makes a further context of a device, and the thread's.
    pub fn new_context(&self, device: i32) -> Context {
        let mut context = 0;
        call!(cuCtxCreate_v2(&raw mut context => *mut u64, 0 => u32, device => i32));
        Context(context)
    }

    pub fn destroy_context(&self, context: Context) {
        call!(cuCtxDestroy_v2(context.0 => u64));
    }

    /// Makes a context the thread's.
    pub fn set_current(&self, context: Context) {
        call!(cuCtxSetCurrent(context.0 => u64));
    }

    /// Makes a stream that does not synchronize with the default one.
    pub fn stream(&self) -> Stream {
        self.stream_with_priority(0)
    }

    /// As [`Cuda::stream`], with a priority of -5 (first) to 0.
    pub fn stream_with_priority(&self, priority: i32) -> Stream {
        let mut stream = 0;
        call!(cuStreamCreateWithPriority(&raw mut stream => *mut u64, 1 => u32, priority => i32));
        Stream(stream)
    }

    /// Makes a stream that synchronizes with the default one.
    pub fn blocking_stream(&self) -> Stream {
        let mut stream = 0;
        call!(cuStreamCreate(&raw mut stream => *mut u64, 0 => u32));
        Stream(stream)
    }

    pub fn destroy_stream(&self, stream: Stream) {
        call!(cuStreamDestroy_v2(stream.0 => u64));
    }

    /// Loads a module with these kernels. A kernel with `_us500` in its name takes 500 us.
    pub fn module(&self, kernels: &[&str]) -> Module {
        let (mut module, text) = (0, CString::new(ptx(kernels)).unwrap());
        call!(cuModuleLoadData(&raw mut module => *mut u64, text.as_ptr() => *const c_char));
        Module(module)
    }

    pub fn unload(&self, module: Module) {
        call!(cuModuleUnload(module.0 => u64));
    }

    pub fn kernel(&self, module: Module, name: &str) -> Kernel {
        let (mut kernel, name) = (0, CString::new(name).unwrap());
        call!(cuModuleGetFunction(&raw mut kernel => *mut u64, module.0 => u64, name.as_ptr() => *const c_char));
        Kernel(kernel)
    }

    /// Returns a kernel of that name, in its own module.
    pub fn only_kernel(&self, name: &str) -> Kernel {
        self.kernel(self.module(&[name]), name)
    }

    /// Launches blocks of 256 threads.
    pub fn launch(&self, kernel: Kernel, blocks: u32, stream: Stream) {
        let null = std::ptr::null();
        assert_eq!((self.launch)(kernel.0, blocks, 1, 1, 256, 1, 1, 0, stream.0, null, null), 0, "cuLaunchKernel");
    }

    /// Launches without blocks, which the driver refuses.
    pub fn launch_nothing(&self, kernel: Kernel) {
        let null = std::ptr::null();
        assert_ne!((self.launch)(kernel.0, 0, 1, 1, 256, 1, 1, 0, 0, null, null), 0, "cuLaunchKernel");
    }

    /// Launches blocks of 256 threads by `cuLaunchKernelEx`, with attributes: each an id and three numbers.
    pub fn launch_ex(&self, kernel: Kernel, grid: [u32; 3], stream: Stream, attributes: &[(u32, [u32; 3])]) {
        let attribute = |(id, [x, y, z]): &(u32, [u32; 3])| {
            let mut attribute = [0_u32; 18];
            (attribute[0], attribute[2], attribute[3], attribute[4]) = (*id, *x, *y, *z);
            attribute
        };
        let attributes: Vec<[u32; 18]> = attributes.iter().map(attribute).collect();
        let config = LaunchConfig {
            grid,
            block: [256, 1, 1],
            dynamic_shared: 0,
            stream: stream.0,
            attributes: attributes.as_ptr(),
            count: u32::try_from(attributes.len()).unwrap(),
        };
        let null = std::ptr::null();
        call!(cuLaunchKernelEx(
            &raw const config => *const LaunchConfig, kernel.0 => u64, null => *const c_void, null => *const c_void,
        ));
    }

    /// Launches as a program on the CUDA runtime.
    pub fn launch_by_runtime(&self, kernel: Kernel, blocks: u32, stream: Stream) {
        let (grid, block) = ([blocks, 1, 1], [256, 1, 1]);
        call!(simRuntimeLaunchKernel(
            kernel.0 => u64, &raw const grid => *const [u32; 3], &raw const block => *const [u32; 3], 0 => u32,
            stream.0 => u64,
        ));
    }

    /// Allocates device memory.
    pub fn allocate(&self, bytes: usize) -> Memory {
        let mut address = 0;
        call!(cuMemAlloc_v2(&raw mut address => *mut u64, bytes => usize));
        Memory { address, bytes }
    }

    pub fn allocate_async(&self, bytes: usize, stream: Stream) -> Memory {
        let mut address = 0;
        call!(cuMemAllocAsync(&raw mut address => *mut u64, bytes => usize, stream.0 => u64));
        Memory { address, bytes }
    }

    pub fn free_async(&self, memory: Memory, stream: Stream) {
        call!(cuMemFreeAsync(memory.address => u64, stream.0 => u64));
    }

    pub fn allocate_managed(&self, bytes: usize) -> Memory {
        let mut address = 0;
        call!(cuMemAllocManaged(&raw mut address => *mut u64, bytes => usize, 1 => u32));
        Memory { address, bytes }
    }

    /// Allocates host memory that devices can access.
    pub fn allocate_pinned(&self, bytes: usize) -> Memory {
        let mut address = 0;
        call!(cuMemAllocHost_v2(&raw mut address => *mut u64, bytes => usize));
        Memory { address, bytes }
    }

    /// `cudaMalloc`
    pub fn allocate_by_runtime(&self, bytes: usize) -> Memory {
        let mut address = 0;
        call!(cudaMalloc(&raw mut address => *mut u64, bytes => usize));
        Memory { address, bytes }
    }

    /// `cudaFree`
    pub fn free_by_runtime(&self, memory: Memory) {
        call!(cudaFree(memory.address => u64));
    }

    pub fn free(&self, memory: Memory) {
        call!(cuMemFree_v2(memory.address => u64));
    }

    /// Copies to the device.
    pub fn memcpy_htod(&self, target: Memory, source: &[u8], stream: Stream) {
        let (bytes, source) = (source.len(), source.as_ptr());
        assert!(bytes <= target.bytes);
        call!(cuMemcpyHtoDAsync_v2(target.address => u64, source => *const u8, bytes => usize, stream.0 => u64));
    }

    /// Copies from the device.
    pub fn memcpy_dtoh(&self, target: &mut [u8], source: Memory, stream: Stream) {
        let (bytes, target) = (target.len(), target.as_mut_ptr());
        assert!(bytes <= source.bytes);
        call!(cuMemcpyDtoHAsync_v2(target => *mut u8, source.address => u64, bytes => usize, stream.0 => u64));
    }

    /// Copies from the device, after the work of the default stream.
    pub fn memcpy_dtoh_blocking(&self, target: &mut [u8], source: Memory) {
        let (bytes, target) = (target.len(), target.as_mut_ptr());
        assert!(bytes <= source.bytes);
        call!(cuMemcpyDtoH_v2(target => *mut u8, source.address => u64, bytes => usize));
    }

    /// Copies on one device.
    pub fn memcpy_dtod(&self, target: Memory, source: Memory, stream: Stream) {
        let bytes = target.bytes.min(source.bytes);
        call!(cuMemcpyDtoDAsync_v2(target.address => u64, source.address => u64, bytes => usize, stream.0 => u64));
    }

    /// Copies from one device to another.
    pub fn memcpy_peer(&self, target: (Memory, Context), source: (Memory, Context), stream: Stream) {
        let bytes = target.0.bytes.min(source.0.bytes);
        call!(cuMemcpyPeerAsync(
            target.0.address => u64, target.1.0 => u64, source.0.address => u64, source.1.0 => u64, bytes => usize,
            stream.0 => u64,
        ));
    }

    /// Fills memory with a byte.
    pub fn memset(&self, target: Memory, value: u8, stream: Stream) {
        call!(cuMemsetD8Async(target.address => u64, value => u8, target.bytes => usize, stream.0 => u64));
    }

    pub fn event(&self) -> Event {
        let mut event = 0;
        call!(cuEventCreate(&raw mut event => *mut u64, 0 => u32));
        Event(event)
    }

    pub fn record(&self, event: Event, stream: Stream) {
        call!(cuEventRecord(event.0 => u64, stream.0 => u64));
    }

    /// Makes a stream wait for an event.
    pub fn wait(&self, stream: Stream, event: Event) {
        call!(cuStreamWaitEvent(stream.0 => u64, event.0 => u64, 0 => u32));
    }

    pub fn synchronize_event(&self, event: Event) {
        call!(cuEventSynchronize(event.0 => u64));
    }

    pub fn synchronize_stream(&self, stream: Stream) {
        call!(cuStreamSynchronize(stream.0 => u64));
    }

    /// Waits for all work of the thread's context.
    pub fn synchronize(&self) {
        call!(cuCtxSynchronize());
    }

    /// Begins a capture in global mode, which unsafe calls of any thread invalidate.
    pub fn begin_capture(&self, stream: Stream) {
        call!(cuStreamBeginCapture_v2(stream.0 => u64, 0 => u32));
    }

    /// Begins a capture of the graph's work anew, as [`Cuda::begin_capture`].
    pub fn begin_recapture(&self, stream: Stream) {
        call!(cuStreamBeginRecaptureToGraph(stream.0 => u64, 0 => u32, 0 => u64, 0 => usize, 0 => usize));
    }

    /// Ends a capture; returns the error code if it was invalidated.
    pub fn end_capture(&self, stream: Stream) -> Result<Graph, i32> {
        let (mut graph, mut executable) = (0, 0);
        match raw!(cuStreamEndCapture(stream.0 => u64, &raw mut graph => *mut u64) -> i32) {
            0 => {}
            code => return Err(code),
        }
        call!(cuGraphInstantiateWithFlags(&raw mut executable => *mut u64, graph => u64, 0 => u64));
        Ok(Graph(executable))
    }

    /// As [`Cuda::begin_capture`], as a program on the CUDA runtime.
    pub fn begin_capture_by_runtime(&self, stream: Stream) {
        call!(simRuntimeStreamBeginCapture(stream.0 => u64, 0 => u32));
    }

    /// Ends a capture as a program on the CUDA runtime; returns the error code if it was invalidated.
    pub fn end_capture_by_runtime(&self, stream: Stream) -> Result<(), i32> {
        let mut graph = 0;
        match raw!(simRuntimeStreamEndCapture(stream.0 => u64, &raw mut graph => *mut u64) -> i32) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    /// Captures the calls of `work` on a stream into a graph.
    pub fn graph(&self, stream: Stream, work: impl FnOnce()) -> Graph {
        self.begin_capture(stream);
        work();
        self.end_capture(stream).unwrap()
    }

    pub fn launch_graph(&self, graph: Graph, stream: Stream) {
        call!(cuGraphLaunch(graph.0 => u64, stream.0 => u64));
    }

    /// `cuProfilerStart`
    pub fn start_profiler(&self) {
        call!(cuProfilerStart());
    }

    /// `cuProfilerStop`
    pub fn stop_profiler(&self) {
        call!(cuProfilerStop());
    }

    /// `cudaProfilerStart`
    pub fn start_profiler_by_runtime(&self) {
        call!(cudaProfilerStart());
    }

    /// `cudaProfilerStop`
    pub fn stop_profiler_by_runtime(&self) {
        call!(cudaProfilerStop());
    }
}

//! The driver without a profiler.

use std::ffi::{CStr, c_char, c_void};
use support::cuda::{self, Cuda, Stream};
use support::own_process;

fn with(settings: &str, test: impl FnOnce(Cuda)) {
    support::simulator::assert_own_process();
    cuda::configure(settings);
    test(Cuda::new());
    cuda::finish();
}

/// Calls a function of the driver; its result code.
macro_rules! call {
    ($name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the library's function of that name has this type.
        let function = unsafe { *cuda::driver().get::<extern "C" fn($($type),*) -> i32>(name).unwrap() };
        function($($argument),*)
    }};
}

#[own_process]
fn device_has_properties_and_names_itself_simulated() {
    with("devices=2", |_| {
        let (mut count, mut name) = (0, [0 as c_char; 64]);
        assert_eq!(call!(cuDeviceGetCount(&raw mut count => *mut i32)), 0);
        assert_eq!(call!(cuDeviceGetName(name.as_mut_ptr() => *mut c_char, 64 => i32, 1 => i32)), 0);
        // SAFETY: the driver has written a zero byte.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        assert_eq!((count, name.to_str().unwrap()), (2, "Simulated GPU (no real device)"));
        let attribute = |which: i32| {
            let mut value = -1;
            let code = call!(cuDeviceGetAttribute(&raw mut value => *mut i32, which => i32, 0 => i32));
            (code, value)
        };
        // Multiprocessors, their threads, blocks, registers and shared memory, and the compute capability.
        let figures =
            [16, 39, 106, 82, 81, 111, 75, 76].map(attribute).map(|(code, value)| (code == 0).then_some(value));
        assert_eq!(figures, [132, 2048, 32, 65_536, 233_472, 1024, 9, 0].map(Some));
        assert_eq!(attribute(0).0, 1);
        assert_eq!(call!(cuDeviceGet(&raw mut count => *mut i32, 2 => i32)), 101);
    });
}

#[own_process]
fn kernel_runs_as_long_as_its_name_says() {
    with("", |cuda| {
        let (first, last) = (cuda.event(), cuda.event());
        let kernel = cuda.only_kernel("slow_us3000");
        let stream = cuda.stream();
        cuda.record(first, stream);
        cuda.launch(kernel, 1, stream);
        cuda.record(last, stream);
        let mut elapsed = 0_f32;
        cuda.synchronize_event(last);
        assert_eq!(call!(cuEventQuery(last.0 => u64)), 0);
        let code = call!(cuEventElapsedTime(&raw mut elapsed => *mut f32, first.0 => u64, last.0 => u64));
        assert_eq!(code, 0);
        assert!(elapsed >= 3.0, "{elapsed} ms");
    });
}

#[own_process]
fn streams_wait_for_events_and_the_default_stream() {
    with("no_finish=endless", |cuda| {
        let endless = cuda.only_kernel("endless");
        let (first, second, third, event) = (cuda.stream(), cuda.stream(), cuda.stream(), cuda.event());
        cuda.launch(endless, 1, first);
        cuda.record(event, first);
        cuda.wait(second, event);
        assert_eq!(call!(cuStreamQuery(second.0 => u64)), 600, "a stream that waits is not ready");
        let short = cuda.only_kernel("short");
        cuda.launch(short, 1, second);
        cuda.launch(short, 1, third);
        cuda.synchronize_stream(third);
        let query = |stream: Stream| call!(cuStreamQuery(stream.0 => u64));
        assert_eq!((query(first), query(second), query(third)), (600, 600, 0));
        cuda::finish();
        cuda.synchronize();
        assert_eq!((query(first), query(second)), (0, 0));
    });
    with("no_finish=endless", |cuda| {
        let mut blocking = 0;
        assert_eq!(call!(cuStreamCreate(&raw mut blocking => *mut u64, 0 => u32)), 0);
        cuda.launch(cuda.only_kernel("endless"), 1, Stream(blocking));
        cuda.launch(cuda.only_kernel("short"), 1, Stream::NULL);
        assert_eq!(call!(cuStreamQuery(0 => u64)), 600, "the default stream waits for the other");
        cuda::finish();
        cuda.synchronize();
    });
}

#[own_process]
fn waiting_call_invalidates_a_capture() {
    with("", |cuda| {
        let (stream, kernel) = (cuda.stream(), cuda.only_kernel("captured"));
        cuda.begin_capture(stream);
        cuda.launch(kernel, 1, stream);
        assert_eq!(call!(cuCtxSynchronize()), 900);
        assert_eq!(cuda.end_capture(stream), Err(901));
        cuda.begin_capture(stream);
        assert_eq!(call!(cuStreamSynchronize(stream.0 => u64)), 900);
        let mut status = 0;
        assert_eq!(call!(cuStreamIsCapturing(stream.0 => u64, &raw mut status => *mut i32)), 0);
        assert_eq!((status, cuda.end_capture(stream)), (2, Err(901)));
        cuda.begin_capture(stream);
        let other = cuda.stream();
        cuda.launch(kernel, 1, other);
        cuda.synchronize_stream(other);
        assert!(cuda.end_capture(stream).is_ok(), "other streams may be waited for");
    });
}

#[own_process]
fn capture_follows_events_to_other_streams() {
    with("", |cuda| {
        let (first, second, event, kernel) = (cuda.stream(), cuda.stream(), cuda.event(), cuda.only_kernel("forked"));
        let before = cuda::count("kernels");
        let graph = cuda.graph(first, || {
            cuda.record(event, first);
            cuda.wait(second, event);
            cuda.launch(kernel, 1, second);
        });
        assert_eq!(cuda::count("kernels"), before);
        cuda.launch_graph(graph, first);
        assert_eq!(cuda::count("kernels"), before + 1);
        cuda.launch(kernel, 1, second);
        assert_eq!(cuda::count("kernels"), before + 2, "the capture is over there too");
        cuda.synchronize();
    });
}

#[own_process]
fn graphs_move_bytes_at_launch() {
    with("", |cuda| {
        let (stream, memory) = (cuda.stream(), cuda.allocate(8));
        let graph = cuda.graph(stream, || cuda.memset(memory, 7, stream));
        let mut back = [0; 8];
        cuda.memset(memory, 1, stream);
        cuda.memcpy_dtoh(&mut back, memory, stream);
        assert_eq!(back, [1; 8]);
        cuda.launch_graph(graph, stream);
        cuda.memcpy_dtoh(&mut back, memory, stream);
        assert_eq!(back, [7; 8]);
        cuda.synchronize();
    });
}

#[own_process]
fn invalid_arguments_are_refused() {
    with("", |cuda| {
        let memory = cuda.allocate(64);
        let mut host = [0_u8; 128];
        let mut copy =
            |bytes: usize| call!(cuMemcpyDtoH_v2(host.as_mut_ptr() => *mut u8, memory.address => u64, bytes => usize));
        assert_eq!((copy(64), copy(65)), (0, 1), "beyond the allocation");
        assert_eq!(call!(cuStreamSynchronize(0x99 => u64)), 400);
        let null = std::ptr::null::<c_void>();
        let mut kernel = 0;
        let module = cuda.module(&["there"]);
        let name = c"not_there".as_ptr();
        assert_eq!(
            call!(cuModuleGetFunction(&raw mut kernel => *mut u64, module.0 => u64, name => *const c_char)),
            500
        );
        assert_eq!(call!(cuModuleLoadData(&raw mut kernel => *mut u64, null => *const c_void)), 1);
        let elf = c"\x7fELF".as_ptr();
        assert_eq!(call!(cuModuleLoadData(&raw mut kernel => *mut u64, elf => *const c_char)), 200);
        let there = cuda.kernel(module, "there");
        let launch = |threads: u32| {
            call!(cuLaunchKernel(
                there.0 => u64, 1 => u32, 1 => u32, 1 => u32, threads => u32, 1 => u32, 1 => u32, 0 => u32, 0 => u64,
                null => *const c_void, null => *const c_void,
            ))
        };
        assert_eq!((launch(1024), launch(1025), launch(0)), (0, 1, 1));
        cuda.synchronize();
        cuda.unload(module);
        assert_eq!(launch(1), 400);
        let mut name = std::ptr::null();
        assert_eq!(call!(cuGetErrorName(400 => i32, &raw mut name => *mut *const c_char)), 0);
        // SAFETY: a text of the driver's.
        assert_eq!(unsafe { CStr::from_ptr(name) }, c"CUDA_ERROR_INVALID_HANDLE");
    });
}

#[own_process]
fn calls_fail_on_a_thread_without_a_context() {
    with("", |cuda| {
        let kernel = cuda.only_kernel("homeless").0;
        let launch = move || {
            call!(cuLaunchKernel(
                kernel => u64, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 0 => u32, 0 => u64,
                std::ptr::null() => *const c_void, std::ptr::null() => *const c_void,
            ))
        };
        assert_eq!(std::thread::spawn(launch).join().unwrap(), 201);
    });
}

#[own_process]
fn functions_are_found_by_name() {
    with("", |_| {
        let find = |name: &CStr| {
            let (mut function, mut status) = (std::ptr::null::<c_void>(), -1);
            let code = call!(cuGetProcAddress_v2(
                name.as_ptr() => *const c_char, &raw mut function => *mut *const c_void, 13_000 => i32, 0 => u64,
                &raw mut status => *mut i32,
            ));
            (code, function, status)
        };
        // SAFETY: only the symbol's address is read.
        let newest = unsafe { *cuda::driver().get::<*const c_void>(b"cuMemAlloc_v2\0").unwrap() };
        assert_eq!(find(c"cuMemAlloc"), (0, newest, 0));
        assert_eq!(find(c"cuNothing"), (500, std::ptr::null(), 1));
    });
}

#[own_process]
fn machine_may_have_no_devices() {
    with("", |_| {
        cuda::configure("devices=0");
        assert_eq!(call!(cuInit(0 => u32)), 100);
        cuda::configure("driver=0");
        assert_eq!(call!(cuInit(0 => u32)), 34);
    });
}

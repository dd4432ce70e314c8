//! The simulated roctracer as used by a tool, by the offsets of the public headers.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;
use support::own_process;
use support::rocm;
use support::rocm::{Hip, Stream};

const HIP_OPS: u32 = 2;
const HIP_API: u32 = 3;

/// What the tool has seen: calls with phase and words of their data, and records with their names.
static CALLS: Mutex<Vec<(String, u32, [u64; 10])>> = Mutex::new(Vec::new());
static RECORDS: Mutex<Vec<([u64; 8], String)>> = Mutex::new(Vec::new());

macro_rules! ask {
    ($name:ident($($argument:expr => $type:ty),* $(,)?) -> $returned:ty) => {{
        let name = concat!("roctracer_", stringify!($name), "\0").as_bytes();
        // SAFETY: the library's function of that name has this type.
        let function = unsafe { *rocm::tracer().get::<extern "C" fn($($type),*) -> $returned>(name).unwrap() };
        function($($argument),*)
    }};
}

#[repr(C)]
struct Properties {
    mode: u32,
    buffer_size: usize,
    allocate: *const c_void,
    allocate_argument: *const c_void,
    callback: extern "C" fn(*const u64, *const u64, *const c_void),
    argument: *const c_void,
}

extern "C" fn called(domain: u32, operation: u32, data: *const u64, _argument: *const c_void) {
    let name = op_string(domain, operation, 0);
    // SAFETY: what the library promises.
    let words: [u64; 10] = unsafe { data.cast::<[u64; 10]>().read() };
    CALLS.lock().unwrap().push((name, words[1] as u32, words));
}

extern "C" fn delivered(mut record: *const u64, end: *const u64, _argument: *const c_void) {
    let mut records = RECORDS.lock().unwrap();
    while record < end {
        // SAFETY: what the library promises.
        let words = unsafe { record.cast::<[u64; 8]>().read() };
        let is_kernel = words[1] as u32 == 0;
        // SAFETY: kernels have a name.
        let name = is_kernel.then(|| unsafe { CStr::from_ptr(words[7] as *const c_char) }.to_str().unwrap().to_owned());
        records.push((words, name.unwrap_or_default()));
        assert_eq!(ask!(next_record(record => *const u64, &raw mut record => *mut *const u64) -> i32), 0);
    }
}

fn op_string(domain: u32, operation: u32, kind: u32) -> String {
    let text = ask!(op_string(domain => u32, operation => u32, kind => u32) -> *const c_char);
    // SAFETY: a name of the library's.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

/// A machine with a tool.
fn machine(settings: &str) -> Hip {
    support::simulator::assert_own_process();
    let hip = Hip::with_tracer(settings);
    rocm::reset();
    CALLS.lock().unwrap().clear();
    RECORDS.lock().unwrap().clear();
    hip
}

/// What is recorded of `work`, in a pool of that many bytes, by its begin.
fn record(buffer_size: usize, work: impl FnOnce()) -> Vec<([u64; 8], String)> {
    let null = std::ptr::null();
    let properties = Properties {
        mode: 0,
        buffer_size,
        allocate: null,
        allocate_argument: null,
        callback: delivered,
        argument: null,
    };
    let mut pool: *mut c_void = std::ptr::null_mut();
    let properties = &raw const properties;
    assert_eq!(ask!(open_pool_expl(properties => *const Properties, &raw mut pool => *mut *mut c_void) -> i32), 0);
    let callback = called as extern "C" fn(u32, u32, *const u64, *const c_void);
    assert_eq!(ask!(enable_domain_callback(HIP_API => u32, callback => _, null => *const c_void) -> i32), 0);
    assert_eq!(ask!(disable_op_callback(HIP_API => u32, 78 => u32) -> i32), 0, "hipGetDevice");
    assert_eq!(ask!(enable_domain_activity_expl(HIP_OPS => u32, pool => *mut c_void) -> i32), 0);
    work();
    assert_eq!(ask!(flush_activity_expl(pool => *mut c_void) -> i32), 0);
    assert_eq!(ask!(disable_domain_activity(HIP_OPS => u32) -> i32), 0);
    assert_eq!(ask!(disable_domain_callback(HIP_API => u32) -> i32), 0);
    let mut records = std::mem::take(&mut *RECORDS.lock().unwrap());
    records.sort_by_key(|(words, _)| words[3]);
    records
}

#[own_process]
fn work_has_its_calls_and_records() {
    let hip = machine("cpus=2");
    let (kernel, memory) = (hip.host_kernel("add"), hip.allocate(64));
    let stream = hip.stream();
    let graph = hip.graph(stream, || hip.launch_host(kernel, 1, stream));
    let records = record(4096, || {
        hip.make_frequent_queries();
        hip.memcpy_htod(memory, &[1; 64], Stream::NULL);
        hip.launch_host(kernel, 16, Stream::NULL);
        hip.memset(memory, 0, Stream::NULL);
        hip.synchronize();
        hip.launch_graph(graph, stream);
        hip.synchronize();
    });
    let kinds: Vec<_> = records
        .iter()
        .map(|(words, name)| (op_string(HIP_OPS, words[1] as u32, (words[0] >> 32) as u32), name.as_str()))
        .collect();
    let expected = ["CopyHostToDevice", "KernelExecution", "FillBuffer", "Marker", "Task", "Marker"];
    assert_eq!(kinds.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!((kinds[1].1, kinds[4].1), ("add", "add"));
    let calls = CALLS.lock().unwrap();
    let launch: Vec<_> = calls.iter().filter(|call| call.0 == "hipLaunchKernel").collect();
    assert_eq!(launch.iter().map(|call| call.1).collect::<Vec<_>>(), [0, 1]);
    assert!(calls.iter().all(|call| call.0 != "hipGetDevice") && calls.iter().any(|call| call.0 == "hipGetLastError"));
    let data = launch[0].2;
    // Behind correlation id and phase: the address, then blocks and threads in 12 bytes each.
    assert_eq!((data[2], data[3] as u32, (data[4] >> 32) as u32), (kernel.0, 16, 128));
    let words = records[1].0;
    assert_eq!((words[0] as u32, words[2], words[5], words[6]), (HIP_OPS, data[0], 2, 0));
    assert!(words[3] < words[4]);
    assert_eq!(records[0].0[7], 64);
}

#[own_process]
fn pools_are_delivered_when_full() {
    let hip = machine("");
    let kernel = hip.only_kernel("a_kernel_with_a_name_that_takes_room");
    let records = record(512, || {
        (0..50).for_each(|_| hip.launch(kernel, 1, Stream::NULL));
        hip.synchronize();
    });
    assert_eq!(records.len(), 51);
    assert!(rocm::count("delivered_buffers") >= 10);
}

#[own_process]
fn errors_are_reported() {
    let _hip = machine("busy=1");
    let null: *const c_void = std::ptr::null();
    assert_eq!(ask!(enable_domain_callback(99 => u32, null => *const c_void, null => *const c_void) -> i32), -2);
    assert_eq!(ask!(enable_domain_activity_expl(HIP_OPS => u32, null => *const c_void) -> i32), -4);
    let text = ask!(error_string() -> *const c_char);
    // SAFETY: a text of the library's.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"Default pool is undefined");
}

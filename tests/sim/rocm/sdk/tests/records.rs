//! The simulated rocprofiler-sdk as used by a tool, by the offsets of the public headers.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::rocm;
use support::rocm::{Hip, Stream};

/// A call's name, phase and arguments by name.
type Call = (String, u32, Vec<(String, String)>);

/// What the tool has seen.
#[derive(Debug, Default)]
struct ToolState {
    calls: Vec<Call>,
    symbols: Vec<(u64, String)>,
    records: Vec<(u32, Vec<u64>)>,
    dropped: u64,
    agents: Vec<(u32, String, i32)>,
    handles: [u64; 3],
}

static TOOL_STATE: Mutex<Option<ToolState>> = Mutex::new(None);

fn with<T>(look: impl FnOnce(&mut ToolState) -> T) -> T {
    look(TOOL_STATE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

macro_rules! ask {
    ($name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        let name = concat!("rocprofiler_", stringify!($name), "\0").as_bytes();
        // SAFETY: the library's function of that name has this type.
        let function = unsafe { *rocm::sdk().get::<extern "C" fn($($type),*) -> i32>(name).unwrap() };
        function($($argument),*)
    }};
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Record([u64; 8]);

#[repr(C)]
struct Tool {
    size: usize,
    initialize: extern "C" fn(*const c_void, *mut c_void) -> c_int,
    finalize: *const c_void,
    data: *mut c_void,
}

extern "C" fn configure(version: u32, text: *const c_char, _priority: u32, client: *mut u64) -> *mut Tool {
    // SAFETY: what the library promises.
    let (text, client) = unsafe { (CStr::from_ptr(text), std::slice::from_raw_parts(client, 3)) };
    assert_eq!((version, text, client[0]), (10_000, c"1.0.0", 24));
    let (finalize, data) = (std::ptr::null(), std::ptr::null_mut());
    Box::leak(Box::new(Tool { size: 32, initialize, finalize, data }))
}

extern "C" fn initialize(_finalize: *const c_void, _data: *mut c_void) -> c_int {
    let (mut utility, mut main, mut buffer) = (0_u64, 0_u64, 0_u64);
    let null: *mut c_void = std::ptr::null_mut();
    assert_eq!(ask!(create_context(&raw mut utility => *mut u64)), 0);
    assert_eq!(ask!(create_context(&raw mut main => *mut u64)), 0);
    assert_eq!(ask!(create_context(&raw mut main => *mut u64)), 13, "the id is not 0");
    let callback = called as extern "C" fn(Record, *mut u64, *mut c_void);
    assert_eq!(
        ask!(configure_callback_tracing_service(
            utility => u64, 10 => u32, [2].as_ptr() => *const i32, 1 => usize, callback => _, null => *mut c_void
        )),
        0
    );
    // All but hipGetDevice.
    let mut operations: Vec<i32> = Vec::new();
    let place = (&raw mut operations).cast::<c_void>();
    let list = listed as extern "C" fn(u32, i32, *mut c_void) -> c_int;
    assert_eq!(ask!(iterate_callback_tracing_kind_operations(5 => u32, list => _, place => *mut c_void)), 0);
    operations.retain(|operation| operation_name(*operation) != "hipGetDevice");
    assert_eq!(
        ask!(configure_callback_tracing_service(
            main => u64, 5 => u32, operations.as_ptr() => *const i32, operations.len() => usize, callback => _,
            null => *mut c_void
        )),
        0
    );
    let deliver = delivered as extern "C" fn(u64, u64, *const *const Header, usize, *mut c_void, u64);
    assert_eq!(
        ask!(create_buffer(
            main => u64, 0x40000 => usize, 0x20000 => usize, 2 => u32, deliver => _, null => *mut c_void,
            &raw mut buffer => *mut u64
        )),
        0
    );
    for kind in [11, 10] {
        let none = std::ptr::null();
        let outcome = ask!(configure_buffer_tracing_service(
            main => u64, kind => u32, none => *const i32, 0 => usize, buffer => u64
        ));
        assert_eq!(outcome, 0);
    }
    let agents = told as extern "C" fn(u32, *const *const u8, usize, *mut c_void) -> i32;
    assert_eq!(ask!(query_available_agents(1 => u32, agents => _, 312 => usize, null => *mut c_void)), 0);
    assert_eq!(ask!(start_context(utility => u64)), 0);
    with(|seen| seen.handles = [utility, main, buffer]);
    0
}

extern "C" fn listed(_kind: u32, operation: i32, list: *mut c_void) -> c_int {
    // SAFETY: the list that the caller has handed in.
    unsafe { &mut *list.cast::<Vec<i32>>() }.push(operation);
    0
}

fn operation_name(operation: i32) -> String {
    let mut name = std::ptr::null();
    let length: *mut u64 = std::ptr::null_mut();
    let outcome = ask!(query_callback_tracing_kind_operation_name(
        5 => u32, operation => i32, &raw mut name => *mut *const c_char, length => *mut u64
    ));
    assert_eq!(outcome, 0);
    string(name)
}

fn string(text: *const c_char) -> String {
    // SAFETY: a name of the library's.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

extern "C" fn told(version: u32, agents: *const *const u8, count: usize, _data: *mut c_void) -> i32 {
    assert_eq!(version, 1);
    // SAFETY: what the library promises.
    for agent in unsafe { std::slice::from_raw_parts(agents, count) } {
        // SAFETY: the same promise of the caller covers this place.
        let field = |offset: usize| unsafe { agent.add(offset).cast::<u64>().read_unaligned() };
        assert_eq!(field(0), 312);
        let agent = (field(16) as u32, string(field(264) as *const c_char), field(288) as i32);
        with(|seen| seen.agents.push(agent));
    }
    0
}

extern "C" fn called(record: Record, _data: *mut u64, _argument: *mut c_void) {
    let [context, _, _, _, _, kind, phase, payload] = record.0;
    let (kind, operation) = (kind as u32, (kind >> 32) as i32);
    with(|seen| assert_eq!(context, seen.handles[usize::from(kind == 5)]));
    if kind == 10 {
        // SAFETY: what the library promises.
        let field = |index: usize| unsafe { (payload as *const u64).add(index).read() };
        assert_eq!((operation, field(0)), (2, 88));
        return with(|seen| seen.symbols.push((field(1), string(field(3) as *const c_char))));
    }
    let mut arguments: Vec<(String, String)> = Vec::new();
    let place = (&raw mut arguments).cast::<c_void>();
    assert_eq!(
        ask!(iterate_callback_tracing_kind_operation_args(
            record => Record, argument as *const c_void => *const c_void, 0 => i32, place => *mut c_void
        )),
        0
    );
    let call = (operation_name(operation), phase as u32, arguments);
    with(|seen| seen.calls.push(call));
}

extern "C" fn argument(
    _kind: u32,
    _operation: i32,
    _number: u32,
    _value: *const c_void,
    _indirections: i32,
    _type_name: *const c_char,
    name: *const c_char,
    text: *const c_char,
    _followed: i32,
    list: *mut c_void,
) -> c_int {
    // SAFETY: the list that the caller has handed in.
    unsafe { &mut *list.cast::<Vec<(String, String)>>() }.push((string(name), string(text)));
    0
}

#[repr(C)]
struct Header {
    category: u32,
    kind: u32,
    payload: *const u64,
}

extern "C" fn delivered(
    _context: u64,
    _buffer: u64,
    headers: *const *const Header,
    count: usize,
    _data: *mut c_void,
    dropped: u64,
) {
    // SAFETY: what the library promises.
    for header in unsafe { std::slice::from_raw_parts(headers, count) } {
        // SAFETY: the same promise of the caller covers this place.
        let Header { category, kind, payload } = unsafe { &**header };
        assert_eq!(*category, 1);
        // SAFETY: a record begins with its size.
        let words = unsafe { std::slice::from_raw_parts(*payload, **payload as usize / 8) };
        with(|seen| seen.records.push((*kind, words.to_vec())));
    }
    with(|seen| seen.dropped = dropped);
}

/// A machine with a tool that is set up once; tests take turns.
fn machine(settings: &str) -> (Hip, MutexGuard<'static, ()>) {
    static TURN: Mutex<bool> = Mutex::new(false);
    static HELD: Mutex<()> = Mutex::new(());
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let hip = Hip::with_sdk(settings);
    let mut is_set_up = TURN.lock().unwrap();
    if !*is_set_up {
        *is_set_up = true;
        let configure = configure as *const c_void;
        assert_eq!(ask!(force_configure(configure => *const c_void)), 0);
        assert_eq!(ask!(force_configure(configure => *const c_void)), 16, "there is one tool");
        hip.init();
    }
    rocm::reset();
    with(|seen| {
        (seen.calls, seen.records, seen.dropped) = (Vec::new(), Vec::new(), 0);
    });
    (hip, held)
}

/// Returns the records of `work`.
fn record(work: impl FnOnce()) -> Vec<(u32, Vec<u64>)> {
    let [_, main, buffer] = with(|seen| seen.handles);
    assert_eq!(ask!(start_context(main => u64)), 0);
    work();
    assert_eq!(ask!(stop_context(main => u64)), 0);
    assert_eq!(ask!(flush_buffer(buffer => u64)), 0);
    with(|seen| std::mem::take(&mut seen.records))
}

/// A number of 32 bits at an offset.
fn word(record: &[u64], offset: usize) -> u32 {
    (record[offset / 8] >> (offset % 8 * 8)) as u32
}

#[test]
fn kernel_has_a_call_a_name_and_a_record() {
    let (hip, _held) = machine("");
    let kernel = hip.host_kernel("_Z3addPf");
    let records = record(|| {
        hip.make_frequent_queries();
        hip.launch_host(kernel, 16, Stream::NULL);
        hip.synchronize();
    });
    let seen = TOOL_STATE.lock().unwrap();
    let ToolState { calls, symbols, agents, .. } = seen.as_ref().unwrap();
    assert_eq!(agents[0].0, 1);
    assert_eq!(agents[1], (2, "Simulated GPU (no real device)".to_owned(), 0));
    let launch: Vec<_> = calls.iter().filter(|call| call.0 == "hipLaunchKernel").collect();
    assert!(calls.iter().all(|call| call.0 != "hipGetDevice"));
    assert_eq!(launch.iter().map(|call| call.1).collect::<Vec<_>>(), [1, 2]);
    let argument = |name: &str| launch[0].2.iter().find(|(known, _)| known == name).unwrap().1.as_str();
    assert_eq!((argument("numBlocks"), argument("dimBlocks")), ("{z=1, y=1, x=16}", "{z=1, y=1, x=128}"));
    assert_eq!((argument("sharedMemBytes"), argument("stream")), ("1024", "0"));

    let [(kind, dispatch)] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((*kind, dispatch[0], word(dispatch, 8), word(dispatch, 12)), (11, 184, 11, 2));
    assert!(dispatch[5] < dispatch[6], "start and end");
    let name = symbols.iter().find(|(id, _)| *id == dispatch[10]).unwrap();
    assert_eq!(name.1, "_Z3addPf.kd");
    assert_eq!(word(dispatch, 100), 1024, "shared memory");
    assert_eq!([104, 108, 112].map(|offset| word(dispatch, offset)), [128, 1, 1]);
    assert_eq!([116, 120, 124].map(|offset| word(dispatch, offset)), [16 * 128, 1, 1], "the grid is in threads");
}

#[test]
fn copies_and_fills_have_records() {
    let (hip, _held) = machine("");
    let (memory, mut back) = (hip.allocate(64), [0_u8; 64]);
    let records = record(|| {
        hip.memcpy_htod(memory, &[1; 64], Stream::NULL);
        hip.memset(memory, 2, Stream::NULL);
        hip.memcpy_dtoh(&mut back, memory, Stream::NULL);
        hip.synchronize();
    });
    assert_eq!(records.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [10, 11, 10]);
    let copies: Vec<_> = records.iter().filter(|(kind, _)| *kind == 10).map(|(_, record)| record).collect();
    assert_eq!(
        copies.iter().map(|copy| (copy[0], word(copy, 12), copy[9])).collect::<Vec<_>>(),
        [(96, 2, 64), (96, 3, 64)]
    );
    assert_eq!((copies[0][7], copies[0][8]), (copies[1][8], copies[1][7]), "agents");
    assert_eq!((copies[0][10], copies[1][11]), (memory.address, memory.address));
    let symbols = with(|seen| seen.symbols.clone());
    let fill = symbols.iter().find(|(id, _)| *id == records[1].1[10]).unwrap();
    assert_eq!(fill.1, "__amd_rocclr_fillBufferAligned.kd");
}

#[test]
fn external_ids_are_in_the_work_records() {
    let (hip, _held) = machine("");
    let kernel = hip.only_kernel("add");
    let [_, main, _] = with(|seen| seen.handles);
    // SAFETY: takes nothing.
    let thread = unsafe { libc::gettid() } as u64;
    let records = record(|| {
        assert_eq!(ask!(push_external_correlation_id(main => u64, thread => u64, 77 => u64)), 0);
        hip.launch(kernel, 1, Stream::NULL);
        assert_eq!(rocm::count("push_depth"), 1);
        let mut popped = 0;
        let place = &raw mut popped;
        assert_eq!(ask!(pop_external_correlation_id(main => u64, thread => u64, place => *mut u64)), 0);
        assert_eq!(popped, 77);
        hip.synchronize();
    });
    assert_eq!((records[0].1[3], records[0].1[4]), (77, thread));
}

#[test]
fn faults_hit_each_nth_record() {
    let (hip, _held) = machine("drop=2");
    let kernel = hip.only_kernel("add");
    let launches = || {
        (0..20).for_each(|_| hip.launch(kernel, 1, Stream::NULL));
        hip.synchronize();
    };
    assert_eq!(record(launches).len(), 10);
    assert!(with(|seen| seen.dropped) >= 10);
    rocm::configure("garbage=2");
    let sizes: Vec<u64> = record(launches).into_iter().map(|(_, record)| record.first().copied().unwrap()).collect();
    assert_eq!(sizes, [184; 20]);
    rocm::configure("sdk=1.1");
    assert!(record(launches).iter().all(|(_, record)| record[0] == 200));
}

//! A library that makes NVTX ranges, like NCCL or cuDF: NVTX's header is compiled in, so it has its own slots.
//!
//! At its first call it opens the tool that `NVTX_INJECTION64_PATH` names, which writes its functions into the slots.
//! Without a tool, or with one that refuses, every call does nothing. Written from the protocol of NVTX's headers alone.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt as _;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Modules of functions, by NVTX's numbers: those of the default domain, and those that take one.
const CORE: u32 = 1;
const CORE2: u32 = 5;
const SLOTS: usize = 16;

type Slots = [AtomicPtr<c_void>; SLOTS];
/// A slot's address, or null; the first is none, and a null ends the list.
#[repr(transparent)]
struct Table([*const AtomicPtr<c_void>; SLOTS + 1]);
// SAFETY: the pointer is constant and leads to static atomics.
unsafe impl Sync for Table {}

static CORE_SLOTS: Slots = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];
static CORE2_SLOTS: Slots = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];
static CORE_TABLE: Table = table(&CORE_SLOTS);
static CORE2_TABLE: Table = table(&CORE2_SLOTS);

const fn table(slots: &'static Slots) -> Table {
    let mut table = [ptr::null(); SLOTS + 1];
    let mut at = 1;
    while at < SLOTS {
        table[at] = &raw const slots[at];
        at += 1;
    }
    Table(table)
}

#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: extern "C" fn(u32, *mut *const Table, *mut u32) -> c_int,
}
static CALLBACKS: Callbacks =
    Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_function_table };

extern "C" fn module_function_table(module: u32, table: *mut *const Table, count: *mut u32) -> c_int {
    let found = match module {
        CORE => &CORE_TABLE,
        CORE2 => &CORE2_TABLE,
        _ => return 0,
    };
    // SAFETY: the tool passes null or a valid place for the address.
    unsafe { table.as_mut() }.into_iter().for_each(|place| *place = found);
    // SAFETY: the tool passes null or a valid place for the number.
    unsafe { count.as_mut() }.into_iter().for_each(|place| *place = SLOTS as u32);
    1
}

extern "C" fn export_table(id: u32) -> *const c_void {
    if id == 1 { (&raw const CALLBACKS).cast() } else { ptr::null() }
}

type Initialize = extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;

/// Attaches a tool; returns its result, or -1 if it cannot be opened.
#[unsafe(no_mangle)]
pub extern "C" fn rangesConnect(path: *const c_char) -> c_int {
    // SAFETY: a C string; the tool's initialisers run.
    let library = unsafe { libc::dlopen(path, libc::RTLD_LAZY) };
    if library.is_null() {
        return -1;
    }
    // SAFETY: an open library and a C string.
    let initialize = unsafe { libc::dlsym(library, c"InitializeInjectionNvtx2".as_ptr()) };
    if initialize.is_null() {
        return -1;
    }
    // SAFETY: that is the type that NVTX gives the function.
    let initialize = unsafe { std::mem::transmute::<*mut c_void, Initialize>(initialize) };
    let answer = initialize(export_table);
    if answer == 0 {
        // Functions that it has already written must not be called.
        CORE_SLOTS.iter().chain(&CORE2_SLOTS).for_each(|slot| slot.store(ptr::null_mut(), Ordering::Release));
    }
    answer
}

/// Returns the function that the tool has written into a slot, if any.
fn written(slots: &Slots, at: usize) -> *mut c_void {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        if let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH")
            && let Ok(path) = CString::new(path.into_vec())
        {
            rangesConnect(path.as_ptr());
        }
    });
    slots[at].load(Ordering::Acquire)
}

/// Calls the function in a slot; evaluates to `$none` if the slot is empty.
macro_rules! call {
    ($slots:ident[$at:literal]($($argument:expr => $type:ty),*) $(-> $returned:ty, $none:expr)?) => {{
        let function = written(&$slots, $at);
        if function.is_null() {
            return $($none)?;
        }
        // SAFETY: that is the type that NVTX gives the function in that place.
        let function = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) $(-> $returned)?>(function) };
        function($($argument),*)
    }};
}

/// `nvtxEventAttributes_t` of NVTX 3.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    /// A C string, or the handle of a registered one.
    message: usize,
}

impl Attributes {
    fn new(message_type: i32, message: usize) -> Attributes {
        Attributes {
            version: 3,
            size: 48,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type,
            message,
        }
    }
}

/// `nvtxRangePushA`
#[unsafe(no_mangle)]
pub extern "C" fn rangesPush(text: *const c_char) -> c_int {
    call!(CORE_SLOTS[9](text => *const c_char) -> c_int, -1)
}

/// `nvtxRangePop`
#[unsafe(no_mangle)]
pub extern "C" fn rangesPop() -> c_int {
    call!(CORE_SLOTS[11]() -> c_int, -1)
}

/// `nvtxRangeStartA`
#[unsafe(no_mangle)]
pub extern "C" fn rangesStart(text: *const c_char) -> u64 {
    call!(CORE_SLOTS[5](text => *const c_char) -> u64, 0)
}

/// `nvtxRangeEnd`
#[unsafe(no_mangle)]
pub extern "C" fn rangesEnd(range: u64) {
    call!(CORE_SLOTS[7](range => u64));
}

/// `nvtxMarkA`
#[unsafe(no_mangle)]
pub extern "C" fn rangesMark(text: *const c_char) {
    call!(CORE_SLOTS[2](text => *const c_char));
}

/// `nvtxDomainCreateA`
#[unsafe(no_mangle)]
pub extern "C" fn rangesDomain(name: *const c_char) -> usize {
    call!(CORE2_SLOTS[12](name => *const c_char) -> usize, 0)
}

/// `nvtxDomainRangePushEx`, with all that attributes can say; the text is registered first, as NCCL's are.
#[unsafe(no_mangle)]
pub extern "C" fn rangesPushAll(domain: usize, text: *const c_char, category: u32, color: u32, payload: i64) -> c_int {
    let registered = call!(CORE2_SLOTS[10](domain => usize, text => *const c_char) -> usize, -1);
    let attributes = Attributes {
        category,
        color_type: 1,
        color,
        payload_type: 2,
        payload: payload.cast_unsigned(),
        ..Attributes::new(3, registered)
    };
    call!(CORE2_SLOTS[4](domain => usize, &raw const attributes => *const Attributes) -> c_int, -1)
}

/// `nvtxDomainRangePop`
#[unsafe(no_mangle)]
pub extern "C" fn rangesPopAll(domain: usize) -> c_int {
    call!(CORE2_SLOTS[5](domain => usize) -> c_int, -1)
}

/// `nvtxMarkEx` with a payload of floating point.
#[unsafe(no_mangle)]
pub extern "C" fn rangesMarkValue(text: *const c_char, value: f64) {
    let attributes =
        Attributes { payload_type: 3, payload: value.to_bits(), ..Attributes::new(1, text.expose_provenance()) };
    call!(CORE_SLOTS[1](&raw const attributes => *const Attributes));
}

/// Returns whether a tool is attached.
#[unsafe(no_mangle)]
pub extern "C" fn rangesAreHeard() -> c_int {
    c_int::from(!written(&CORE_SLOTS, 9).is_null())
}

const _: () = assert!(size_of::<Attributes>() == 48);

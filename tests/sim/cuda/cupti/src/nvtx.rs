//! CUPTI as an NVTX tool: calls become markers, if those are enabled.
//!
//! Push and pop ranges belong to a thread, start and end ranges to the process. Texts are never freed.

use crate::attributes;
use crate::code::need_driver_from_13_2;
use crate::layout::kind;
use crate::link;
use crate::record::new_record;
use crate::writer;
use sim_core::handles::lock;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};

/// Flags of markers, and of their data.
const INSTANTANEOUS: u32 = 1 << 0;
const START: u32 = 1 << 1;
const END: u32 = 1 << 2;
const COLOR_NONE: u32 = 1 << 0;
const COLOR_ARGB: u32 = 1 << 1;
/// Kinds of objects that markers are of.
const PROCESS: u32 = 1;
const THREAD: u32 = 2;
/// Kinds of payloads.
const DOUBLE: u32 = 0;
const UINT64: u32 = 1;
const INT64: u32 = 4;

/// The address of a text that is never freed; 0 for none, also the default domain.
type Text = u64;

static TEXTS: LazyLock<Mutex<BTreeSet<&'static CStr>>> = LazyLock::new(Mutex::default);
static MARKERS: AtomicU32 = AtomicU32::new(0);
/// The domains of ranges that were started, by their number.
static STARTED: LazyLock<Mutex<HashMap<u32, Text>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The ranges that the thread has pushed, with their domains.
    static PUSHED: RefCell<Vec<(Text, u32)>> = const { RefCell::new(Vec::new()) };
}

fn keep(text: *const c_char) -> Text {
    if text.is_null() {
        return 0;
    }
    // SAFETY: the client passes a C string.
    let text = unsafe { CStr::from_ptr(text) };
    let mut texts = lock(&TEXTS);
    let kept = texts.get(text).copied().unwrap_or_else(|| {
        let kept: &'static CStr = Box::leak(CString::from(text).into_boxed_c_str());
        texts.insert(kept);
        kept
    });
    kept.as_ptr() as u64
}

fn next_marker() -> u32 {
    MARKERS.fetch_add(1, Ordering::Relaxed) + 1
}

/// Records a marker; `name` is 0 for an end.
fn record(id: u32, flags: u32, object: u32, name: Text, domain: Text) {
    let Some(record) = new_record(kind::MARKER) else { return };
    let record = record.u32(4, flags).u64(8, writer::timestamp()).u32(16, id).u32(20, object);
    let thread = if object == THREAD { attributes::thread_id() } else { 0 };
    let record = record.u32(24, std::process::id()).u32(28, thread).u64(40, name).u64(48, domain);
    writer::add_for_all(&record);
}

/// Fields of the attributes, read by offset from the 48 bytes of `nvtxEventAttributes_t`.
struct MarkerAttributes {
    text: Text,
    category: u32,
    color: Option<u32>,
    payload: (u32, u64),
}

impl MarkerAttributes {
    fn read(attributes: *const u8) -> MarkerAttributes {
        fn at<T: Copy>(attributes: *const u8, offset: usize) -> T {
            // SAFETY: the client passes 48 bytes, and every offset is inside them.
            unsafe { attributes.add(offset).cast::<T>().read_unaligned() }
        }
        let bits: u64 = at(attributes, 24);
        let payload = match at::<i32>(attributes, 16) {
            1 => (UINT64, bits),
            2 => (INT64, bits),
            3 => (DOUBLE, bits),
            4 => (UINT64, bits & 0xffff_ffff),
            5 => (INT64, i64::from(bits as i32).cast_unsigned()),
            6 => (DOUBLE, f64::from(f32::from_bits(bits as u32)).to_bits()),
            _ => (DOUBLE, 0),
        };
        let message: u64 = at(attributes, 40);
        let text = match at::<i32>(attributes, 32) {
            1 => keep(message as *const c_char),
            // A handle is the address of a text that stays.
            3 => message,
            _ => 0,
        };
        let color = (at::<i32>(attributes, 8) == 1).then(|| at(attributes, 12));
        MarkerAttributes { text, category: at(attributes, 4), color, payload }
    }

    fn record(&self, id: u32) {
        let Some(record) = new_record(kind::MARKER_DATA) else { return };
        let flag = if self.color.is_some() { COLOR_ARGB } else { COLOR_NONE };
        let record = record.u32(4, flag).u32(8, id).u32(12, self.payload.0).u64(16, self.payload.1);
        writer::add_for_all(&record.u32(24, self.color.unwrap_or(0)).u32(28, self.category));
    }
}

fn push(domain: Text, text: Text) -> (u32, c_int) {
    let id = next_marker();
    record(id, START, THREAD, text, domain);
    let level = PUSHED.try_with(|pushed| {
        let mut pushed = pushed.borrow_mut();
        pushed.push((domain, id));
        pushed.iter().filter(|(of, _)| *of == domain).count() as c_int - 1
    });
    (id, level.unwrap_or(-1))
}

fn pop(domain: Text) -> c_int {
    let popped = PUSHED.try_with(|pushed| {
        let mut pushed = pushed.borrow_mut();
        let last = pushed.iter().rposition(|(of, _)| *of == domain)?;
        let (_, id) = pushed.remove(last);
        Some((id, pushed.iter().filter(|(of, _)| *of == domain).count() as c_int))
    });
    let Ok(Some((id, level))) = popped else { return -2 };
    record(id, END, THREAD, 0, domain);
    level
}

fn start(domain: Text, text: Text) -> u32 {
    let id = next_marker();
    lock(&STARTED).insert(id, domain);
    record(id, START, PROCESS, text, domain);
    id
}

fn end(range: u64) {
    let Ok(id) = u32::try_from(range) else { return };
    if let Some(domain) = lock(&STARTED).remove(&id) {
        record(id, END, PROCESS, 0, domain);
    }
}

fn mark(domain: Text, text: Text) -> u32 {
    let id = next_marker();
    record(id, INSTANTANEOUS, THREAD, text, domain);
    id
}

/// Functions for the slots of a module.
macro_rules! slots {
    ($table:ident: $($slot:literal = fn $name:ident($($argument:ident: $type:ty),*) $(-> $returned:ty)? $body:block)+) => {
        $(extern "C" fn $name($($argument: $type),*) $(-> $returned)? $body)+

        const $table: &[(usize, *const c_void)] = &[$(($slot, $name as *const c_void)),+];
    };
}

slots! { CORE:
    1 = fn mark_ex(attributes: *const u8) { domain_mark_ex(0, attributes); }
    2 = fn mark_a(text: *const c_char) { mark(0, keep(text)); }
    4 = fn start_ex(attributes: *const u8) -> u64 { domain_start_ex(0, attributes) }
    5 = fn start_a(text: *const c_char) -> u64 { start(0, keep(text)).into() }
    7 = fn range_end(range: u64) { end(range); }
    8 = fn push_ex(attributes: *const u8) -> c_int { domain_push_ex(0, attributes) }
    9 = fn push_a(text: *const c_char) -> c_int { push(0, keep(text)).1 }
    11 = fn range_pop() -> c_int { pop(0) }
}

slots! { CORE2:
    1 = fn domain_mark_ex(domain: Text, attributes: *const u8) {
        let attributes = MarkerAttributes::read(attributes);
        attributes.record(mark(domain, attributes.text));
    }
    2 = fn domain_start_ex(domain: Text, attributes: *const u8) -> u64 {
        let attributes = MarkerAttributes::read(attributes);
        let id = start(domain, attributes.text);
        attributes.record(id);
        id.into()
    }
    3 = fn domain_range_end(_domain: Text, range: u64) { end(range); }
    4 = fn domain_push_ex(domain: Text, attributes: *const u8) -> c_int {
        let attributes = MarkerAttributes::read(attributes);
        let (id, level) = push(domain, attributes.text);
        attributes.record(id);
        level
    }
    5 = fn domain_pop(domain: Text) -> c_int { pop(domain) }
    10 = fn domain_register_string_a(_domain: Text, text: *const c_char) -> Text { keep(text) }
    12 = fn domain_create_a(name: *const c_char) -> Text { keep(name) }
}

type GetExportTable = extern "C" fn(u32) -> *const c_void;

/// The first members of the export table of callbacks.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: Option<extern "C" fn(u32, *mut *const *mut *const c_void, *mut u32) -> c_int>,
}

/// The tool's entry point: returns 1 if it accepts. Without a driver it fills slots too but returns 0, and 13.2 aborts.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(get_export_table: GetExportTable) -> c_int {
    // From 13.3 on it ignores a missing driver here.
    let _ = need_driver_from_13_2();
    let callbacks = get_export_table(1).cast::<Callbacks>();
    // SAFETY: null, or the client's table, which is never freed.
    let Some(callbacks) = (unsafe { callbacks.as_ref() }) else { return 0 };
    let Some(get_table) = callbacks.get_module_function_table else { return 0 };
    if callbacks.struct_size < size_of::<Callbacks>() {
        return 0;
    }
    for (module, functions) in [(1, CORE), (5, CORE2)] {
        let (mut slots, mut count) = (std::ptr::null(), 0);
        if get_table(module, &raw mut slots, &raw mut count) != 1 {
            return 0;
        }
        for (at, function) in functions.iter().filter(|(at, _)| *at < count as usize) {
            // SAFETY: the table has `count` entries, each the address of a slot or null.
            let slot = unsafe { slots.add(*at).read() };
            if !slot.is_null() {
                // SAFETY: it is the client's slot for that function.
                unsafe { slot.write(*function) };
            }
        }
    }
    c_int::from(link::connected())
}

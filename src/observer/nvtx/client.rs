//! The client side of NVTX 3: passes a tool tables of slots, into which it writes its functions.
#![allow(unsafe_code, reason = "the tool writes plain function pointers, which are called")]

use crate::os::thread;
use crate::text::c_string;
use kineto_devices::OWN_NVTX_DOMAIN;
use kineto_devices::{Library, Unavailable, Why, check_tool};
use kineto_model::activity::ArgValue;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The process's tool, once it was initialized.
static TOOL: OnceLock<Result<Client, Unavailable>> = OnceLock::new();

/// The tool's functions, as far as it has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    /// The tool's handle of the domain of all ranges; 0 for NVTX's default domain, as in torch.
    domain: usize,
}

/// The attributes of a range or of a mark.
#[derive(Debug)]
pub(super) struct NvtxRange<'s> {
    pub(super) text: String,
    pub(super) category: u32,
    /// Alpha, red, green and blue, a byte each.
    pub(super) argb: u32,
    /// A number in addition to the text; other values are ignored.
    pub(super) payload: Option<ArgValue<'s>>,
}

/// `nvtxEventAttributes_t` of NVTX 3, 48 bytes.
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
    message: *const c_char,
}
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Attributes>() == 48);

const VERSION: u16 = 3;
const COLOR_ARGB: i32 = 1;
const MESSAGE_ASCII: i32 = 1;

/// The slots of a module: the tool finds them through [`Table`] and writes functions into them while it starts.
type Slots = [AtomicPtr<c_void>; SLOTS as usize];
const SLOTS: u32 = 16;
static CORE: Slots = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS as usize];
/// The slots of the module for functions that take a domain.
static CORE2: Slots = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS as usize];

const CORE_MODULE: u32 = 1;
const CORE2_MODULE: u32 = 5;

/// A module's slots, the index of one, and the type that NVTX defines for the function in it.
struct Slot<F>(&'static Slots, usize, PhantomData<F>);

static MARK_EX: Slot<unsafe extern "C" fn(*const Attributes)> = Slot(&CORE, 1, PhantomData);
static PUSH_EX: Slot<unsafe extern "C" fn(*const Attributes) -> c_int> = Slot(&CORE, 8, PhantomData);
static POP: Slot<unsafe extern "C" fn() -> c_int> = Slot(&CORE, 11, PhantomData);
static NAME_CATEGORY: Slot<unsafe extern "C" fn(u32, *const c_char)> = Slot(&CORE, 12, PhantomData);
static NAME_THREAD: Slot<unsafe extern "C" fn(u32, *const c_char)> = Slot(&CORE, 14, PhantomData);
static DOMAIN_MARK_EX: Slot<unsafe extern "C" fn(usize, *const Attributes)> = Slot(&CORE2, 1, PhantomData);
static DOMAIN_PUSH_EX: Slot<unsafe extern "C" fn(usize, *const Attributes) -> c_int> = Slot(&CORE2, 4, PhantomData);
static DOMAIN_POP: Slot<unsafe extern "C" fn(usize) -> c_int> = Slot(&CORE2, 5, PhantomData);
static DOMAIN_NAME_CATEGORY: Slot<unsafe extern "C" fn(usize, u32, *const c_char)> = Slot(&CORE2, 8, PhantomData);
static DOMAIN_CREATE: Slot<unsafe extern "C" fn(*const c_char) -> usize> = Slot(&CORE2, 12, PhantomData);

/// A null-terminated list of slots; index 0 is unused, as in NVTX's own table.
type Table = [Option<&'static AtomicPtr<c_void>>; SLOTS as usize + 1];

const fn slot_table(slots: &'static Slots) -> Table {
    let mut table = [None; SLOTS as usize + 1];
    let mut at = 1;
    while at < SLOTS as usize {
        #[expect(clippy::indexing_slicing, reason = "evaluated at compile time, within the length")]
        {
            table[at] = Some(&slots[at]);
        }
        at += 1;
    }
    table
}
static CORE_TABLE: Table = slot_table(&CORE);
static CORE2_TABLE: Table = slot_table(&CORE2);

/// `nvtxExportTableCallbacks_t`.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: extern "C" fn(u32, *mut *const Table, *mut u32) -> c_int,
}
static CALLBACKS: Callbacks =
    Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_function_table };

/// `nvtxExportTableVersionInfo_t`.
#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}
static VERSION_INFO: VersionInfo = VersionInfo {
    struct_size: size_of::<VersionInfo>(),
    version: VERSION as u32,
    reserved: 0,
    set_injection_version: ignore_version,
};

extern "C" fn ignore_version(_version: u32) {}

extern "C" fn module_function_table(module: u32, out_table: *mut *const Table, out_size: *mut u32) -> c_int {
    let table = match module {
        CORE_MODULE => &CORE_TABLE,
        CORE2_MODULE => &CORE2_TABLE,
        _ => return 0,
    };
    if !out_table.is_null() {
        // SAFETY: the tool passes a pointer that is valid for writes of a pointer.
        unsafe { out_table.write(table) };
    }
    if !out_size.is_null() {
        // SAFETY: the tool passes a pointer that is valid for writes of a `u32`.
        unsafe { out_size.write(SLOTS) };
    }
    1
}

extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => ptr::from_ref(&CALLBACKS).cast(),
        3 => ptr::from_ref(&VERSION_INFO).cast(),
        _ => ptr::null(),
    }
}

type GetExportTable = extern "C" fn(u32) -> *const c_void;
type InitializeInjection = unsafe extern "C" fn(GetExportTable) -> c_int;

/// Calls the tool's function in a slot, if the tool has set one.
macro_rules! tell {
    ($slot:ident $(, $argument:expr)*) => {
        // SAFETY: the arguments come from the tool or live until the call returns.
        $slot.tool_function().map(|function| unsafe { function($($argument),*) })
    };
}

impl Client {
    /// Loads the tool and lets it write its functions, once in a process.
    ///
    /// # Errors
    /// If no tool is available, with the reason.
    pub(super) fn open(injection: Option<&Path>) -> Result<Client, Unavailable> {
        let Some(path) = injection else {
            let advice =
                "run the program under a tool such as nsys, or name the tool's library in NVTX_INJECTION64_PATH";
            return Err(Unavailable::new(Why::Disabled, "no tool receives NVTX ranges", advice));
        };
        let is_cupti = check_tool("NVTX_INJECTION64_PATH", path)?;
        TOOL.get_or_init(|| Client::initialize_tool(path, is_cupti)).clone()
    }

    fn initialize_tool(path: &Path, is_cupti: bool) -> Result<Client, Unavailable> {
        let library = Library::open_file(path).map_err(|why| {
            let why = format!("{} could not be opened: {why}", path.display());
            Unavailable::new(Why::LibraryNotFound, why, "correct NVTX_INJECTION64_PATH")
        })?;
        // SAFETY: this is the type that NVTX defines for the function.
        let initialize: Option<InitializeInjection> = unsafe { library.resolve_function(c"InitializeInjectionNvtx2") };
        let Some(initialize) = initialize else {
            let why = format!("{} has no InitializeInjectionNvtx2", path.display());
            return Err(Unavailable::new(Why::Incompatible, why, "name a tool for NVTX 3"));
        };
        // SAFETY: as NVTX requires, `export_table` supplies tables, into whose slots the tool writes functions.
        if unsafe { initialize(export_table) } == 0 {
            // Functions that it has already written must not be called.
            CORE.iter().chain(&CORE2).for_each(|slot| slot.store(ptr::null_mut(), Ordering::Relaxed));
            let why = format!("{} refused NVTX ranges", path.display());
            return Err(Unavailable::new(Why::Failed, why, "start the program under that tool"));
        }
        let domain = if is_cupti { create_domain() } else { 0 };
        if is_cupti && domain == 0 {
            return Err(Unavailable::new(
                Why::Failed,
                format!("{} has no domains", path.display()),
                "use a newer tool",
            ));
        }
        Ok(Client { domain })
    }

    /// Begins a range on the calling thread.
    pub(super) fn push_range(&self, range: &NvtxRange<'_>) {
        let text = c_string(&range.text);
        let attributes = event_attributes(range, &text);
        match self.domain {
            0 => tell!(PUSH_EX, &raw const attributes),
            domain => tell!(DOMAIN_PUSH_EX, domain, &raw const attributes),
        };
    }

    /// Ends the range that the thread began last.
    pub(super) fn pop_range(&self) {
        match self.domain {
            0 => tell!(POP),
            domain => tell!(DOMAIN_POP, domain),
        };
    }

    /// Marks a point in time on the calling thread.
    pub(super) fn mark_point(&self, mark: &NvtxRange<'_>) {
        let text = c_string(&mark.text);
        let attributes = event_attributes(mark, &text);
        match self.domain {
            0 => tell!(MARK_EX, &raw const attributes),
            domain => tell!(DOMAIN_MARK_EX, domain, &raw const attributes),
        };
    }

    /// Names a category.
    pub(super) fn name_category(&self, category: u32, name: &str) {
        let name = c_string(name);
        match self.domain {
            0 => tell!(NAME_CATEGORY, category, name.as_ptr()),
            domain => tell!(DOMAIN_NAME_CATEGORY, domain, category, name.as_ptr()),
        };
    }

    /// Passes the calling thread's name to the tool.
    pub(super) fn name_thread(&self) {
        let (thread, name) = (u32::try_from(thread::id()).unwrap_or(0), c_string(&thread::rust_name()));
        tell!(NAME_THREAD, thread, name.as_ptr());
    }
}

/// Creates a domain for this crate; 0 if the tool has none.
///
/// libcupti's records may come back to our collector, which recognizes its own spans by this domain.
fn create_domain() -> usize {
    let name = c_string(OWN_NVTX_DOMAIN);
    tell!(DOMAIN_CREATE, name.as_ptr()).unwrap_or(0)
}

impl<F: Copy> Slot<F> {
    /// Returns the tool's function, if the tool has set one.
    fn tool_function(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // Acquire: the tool wrote it on the thread that started the recording.
        let written = self.0.get(self.1)?.load(Ordering::Acquire);
        // SAFETY: it is not null, and the slots above have the types that NVTX defines.
        (!written.is_null()).then(|| unsafe { std::mem::transmute_copy(&written) })
    }
}

fn event_attributes(range: &NvtxRange<'_>, text: &CStr) -> Attributes {
    let (payload_type, payload) = match range.payload {
        Some(ArgValue::U64(value)) => (1, value),
        Some(ArgValue::I64(value)) => (2, value.cast_unsigned()),
        Some(ArgValue::F64(value)) => (3, value.to_bits()),
        _ => (0, 0),
    };
    Attributes {
        version: VERSION,
        size: 48,
        category: range.category,
        color_type: COLOR_ARGB,
        color: range.argb,
        payload_type,
        reserved: 0,
        payload,
        message_type: MESSAGE_ASCII,
        message: text.as_ptr(),
    }
}

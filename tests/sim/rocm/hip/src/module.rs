//! Modules, texts that name kernels; and kernels compiled into a program.

use crate::argument::{Function as Handle, Module as ModuleHandle, Stream};
use crate::control::MACHINE;
use crate::error::{Error, Outcome, give};
use crate::shared::tracer::{Event, Report, Symbol};
use crate::state::{self, State};
use sim_core::ffi::{StaticText, c_string, read_text};
use sim_core::kernel::{forget_name, number_after};
use std::ffi::{CString, c_char, c_void};

/// A loaded module: its kernels by name.
#[derive(Debug)]
pub(crate) struct Module {
    functions: Vec<(String, u64)>,
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct Function {
    /// Unique in the process, as its code object.
    pub(crate) id: u64,
    code_object: u64,
    /// At an address that records carry.
    pub(crate) name: CString,
    /// As in the code object.
    symbol: CString,
    pub(crate) group: u32,
    /// Whether tracers know of it.
    is_told: bool,
}

/// What a module's text begins with.
const MARK: &str = "sim-rocm";
/// The kernel that fills memory, which is built into HIP.
const FILL: &str = "__amd_rocclr_fillBufferAligned";
const FILL_HANDLE: u64 = 1;

impl Function {
    fn new(state: &mut State, name: &str, code_object: u64) -> Function {
        state.kernels += 1;
        Function {
            id: state.kernels,
            code_object,
            name: c_string(name),
            symbol: c_string(&format!("{name}.kd")),
            group: number_after(name, "_smem").unwrap_or(0),
            is_told: false,
        }
    }

    /// Returns the kernel for the tracers, the first time.
    fn tell(&mut self) -> Option<Symbol> {
        if std::mem::replace(&mut self.is_told, true) {
            return None;
        }
        let (id, code_object, name) = (self.id, self.code_object, StaticText(self.symbol.as_ptr()));
        Some(Symbol { id, code_object, name, group: self.group, private: 0 })
    }
}

impl State {
    fn code_object(&mut self) -> u64 {
        self.code_objects += 1;
        self.code_objects
    }

    /// The kernel that fills memory.
    pub(crate) fn fill_kernel(&self) -> Outcome<&Function> {
        self.functions.get(&FILL_HANDLE).ok_or(Error::INVALID_DEVICE_FUNCTION)
    }
}

/// Makes HIP's built-in kernels.
pub(crate) fn load_own() {
    let mut state = state::lock();
    let code_object = state.code_object();
    let function = Function::new(&mut state, FILL, code_object);
    state.functions.insert(FILL_HANDLE, function);
    drop(state);
    tell(FILL_HANDLE);
}

/// Reports a kernel to the tracers, once.
pub(crate) fn tell(handle: u64) {
    let symbol = state::lock().functions.get_mut(&handle).and_then(Function::tell);
    if let Some(symbol) = symbol {
        MACHINE.tell(Event::Report(&Report::KernelLoaded(symbol)));
    }
}

fn load(place: *mut ModuleHandle, image: *const c_void) -> Outcome {
    let image = read_text(image.cast()).ok_or(Error::INVALID_VALUE)?.to_str().map_err(|_| Error::INVALID_IMAGE)?;
    let mut lines = image.lines();
    if lines.next() != Some(MARK) {
        return Err(Error::INVALID_IMAGE);
    }
    let mut state = state::ready()?;
    let code_object = state.code_object();
    let mut functions = Vec::new();
    for name in lines {
        let (handle, function) = (state.objects.ids.next_handle(), Function::new(&mut state, name, code_object));
        state.functions.insert(handle, function);
        functions.push((name.to_owned(), handle));
    }
    let handles: Vec<u64> = functions.iter().map(|(_, handle)| *handle).collect();
    let handle = state.objects.ids.next_handle();
    state.modules.insert(handle, Module { functions });
    drop(state);
    handles.into_iter().for_each(tell);
    give(place, ModuleHandle(handle))
}

api! {
    fn hipModuleLoadData(module: *mut ModuleHandle, image: *const c_void) |_| {
        load(module, image)
    }

    fn hipModuleGetFunction(function: *mut Handle, module: ModuleHandle, kname: *const c_char) |_| {
        let name = read_text(kname).ok_or(Error::INVALID_VALUE)?.to_str().map_err(|_| Error::NOT_FOUND)?;
        let state = state::ready()?;
        let module = state.modules.get(&module.0).ok_or(Error::INVALID_HANDLE)?;
        let found = module.functions.iter().find(|(known, _)| known == name).ok_or(Error::NOT_FOUND)?;
        give(function, Handle(found.1))
    }

    fn hipModuleUnload(module: ModuleHandle) |_| {
        let mut state = state::ready()?;
        let module = state.modules.remove(&module.0).ok_or(Error::INVALID_HANDLE)?;
        let gone: Vec<Function> = module.functions.iter().filter_map(|(_, handle)| state.functions.remove(handle)).collect();
        drop(state);
        for function in gone {
            MACHINE.tell(Event::Report(&Report::KernelUnloaded(function.id)));
            forget_name(function.name);
            forget_name(function.symbol);
        }
        Ok(())
    }
}

/// Registers a kernel that is compiled into the program; returns its host address.
#[unsafe(no_mangle)]
pub extern "C" fn simRegisterKernel(name: *const c_char) -> *const c_void {
    let name = read_text(name).unwrap_or_default().to_string_lossy();
    let mut state = state::lock();
    let (handle, code_object) = (state.objects.ids.next_handle(), state.code_object());
    let function = Function::new(&mut state, &name, code_object);
    state.functions.insert(handle, function);
    handle as *const c_void
}

/// Returns the name of a kernel, or null for an unknown handle.
fn name_of(handle: u64) -> *const c_char {
    state::lock().functions.get(&handle).map_or(std::ptr::null(), |function| function.name.as_ptr())
}

/// Returns the name of a kernel, also for profilers.
#[unsafe(no_mangle)]
pub extern "C" fn hipKernelNameRef(f: Handle) -> *const c_char {
    name_of(f.0)
}

/// Returns the name of the kernel at a host address, also for profilers.
#[unsafe(no_mangle)]
pub extern "C" fn hipKernelNameRefByPtr(hostFunction: *const c_void, _stream: Stream) -> *const c_char {
    name_of(hostFunction as u64)
}

//! Modules: PTX text, whose entries are the kernels.

use crate::attributes;
use crate::error::{Error, Outcome, give};
use crate::shared::clock::now;
use crate::state::{self, State};
use crate::trace;
use sim_core::ffi::c_string;
use sim_core::kernel::{forget_name, number_after};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    /// The entries by name, with the handle once requested.
    entries: HashMap<String, Option<u64>>,
}

/// A kernel of a module.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its name, at an address that the records of CUPTI carry.
    pub(crate) name: CString,
    pub(crate) registers: u32,
    pub(crate) static_shared: u32,
    pub(crate) max_dynamic_shared: u32,
}

/// CUPTI's numbers of driver overhead.
const MODULE_LOADING: u32 = 4 << 16;
const LAZY_FUNCTION_LOADING: u32 = 5 << 16;

/// The names of the entries of a PTX text.
fn entries(ptx: &str) -> Vec<String> {
    let names = ptx.split(".entry").skip(1).map(|rest| {
        let rest = rest.trim_start();
        rest.split(|end: char| end == '(' || end == '{' || end.is_whitespace()).next().unwrap_or_default().to_owned()
    });
    names.filter(|name| !name.is_empty()).collect()
}

fn load(place: *mut u64, image: *const c_void, correlation: u32) -> Outcome {
    let start = now();
    if image.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller promises a PTX text that ends with a zero byte. Other images have one too, in their headers.
    let text = unsafe { CStr::from_ptr(image.cast()) };
    let text = text.to_str().map_err(|_| Error::INVALID_IMAGE)?;
    if !text.contains(".version") && !text.contains(".entry") {
        return Err(Error::INVALID_IMAGE);
    }
    let mut state = state::ready()?;
    state.context()?;
    let handle = state.objects.ids.next_handle();
    let entries = entries(text).into_iter().map(|name| (name, None)).collect();
    state.modules.insert(handle, Module { entries });
    give(place, handle)?;
    drop(state);
    trace::overhead(MODULE_LOADING, correlation, start);
    Ok(())
}

/// Returns the handle of a kernel, and whether this call has made it.
fn function(state: &mut State, module: u64, name: &str) -> Outcome<(u64, bool)> {
    let fresh = state.objects.ids.next_handle();
    let module = state.modules.get_mut(&module).ok_or(Error::INVALID_HANDLE)?;
    let entry = module.entries.get_mut(name).ok_or(Error::NOT_FOUND)?;
    if let Some(handle) = *entry {
        return Ok((handle, false));
    }
    *entry = Some(fresh);
    let function = Function {
        name: c_string(name),
        registers: number_after(name, "_regs").unwrap_or(32),
        static_shared: number_after(name, "_smem").unwrap_or(0),
        max_dynamic_shared: attributes::SHARED_PER_BLOCK,
    };
    state.functions.insert(fresh, function);
    Ok((fresh, true))
}

/// Attributes of functions, by CUDA's numbers.
const MAX_DYNAMIC_SHARED: i32 = 8;

fn attribute(function: &Function, attribute: i32) -> Outcome<i32> {
    Ok(match attribute {
        0 => attributes::THREADS_PER_BLOCK as i32,
        1 => function.static_shared as i32,
        2 | 3 | 7 => 0,
        4 => function.registers as i32,
        5 | 6 => 90,
        MAX_DYNAMIC_SHARED => function.max_dynamic_shared as i32,
        9 => -1,
        _ => return Err(Error::INVALID_VALUE),
    })
}

api! {
    fn cuModuleLoadData(module: *mut u64, image: *const c_void) |caller| {
        load(module, image, caller.correlation)
    }

    fn cuModuleGetFunction(place: *mut u64, module: u64, name: *const c_char) |caller| {
        let start = now();
        if name.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the caller promises a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Error::NOT_FOUND)?;
        let (handle, is_new) = function(&mut *state::ready()?, module, name)?;
        if is_new {
            trace::overhead(LAZY_FUNCTION_LOADING, caller.correlation, start);
        }
        give(place, handle)
    }

    fn cuModuleUnload(module: u64) |_| {
        let mut state = state::ready()?;
        let module = state.modules.remove(&module).ok_or(Error::INVALID_HANDLE)?;
        for handle in module.entries.into_values().flatten() {
            if let Some(function) = state.functions.remove(&handle) {
                forget_name(function.name);
            }
        }
        Ok(())
    }

    fn cuFuncGetAttribute(value: *mut i32, which: i32, function: u64) |_| {
        let state = state::ready()?;
        let function = state.functions.get(&function).ok_or(Error::INVALID_HANDLE)?;
        give(value, attribute(function, which)?)
    }

    fn cuFuncSetAttribute(function: u64, which: i32, value: i32) |_| {
        let mut state = state::ready()?;
        let function = state.functions.get_mut(&function).ok_or(Error::INVALID_HANDLE)?;
        let value = u32::try_from(value).map_err(|_| Error::INVALID_VALUE)?;
        if which == MAX_DYNAMIC_SHARED {
            if value + function.static_shared > attributes::SHARED_PER_BLOCK_OPTIN {
                return Err(Error::INVALID_VALUE);
            }
            function.max_dynamic_shared = value;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_in_ptx() {
        let ptx = ".version 8.0\n.visible .entry add(.param .u64 a)\n{ ret; }\n.entry\n  mul_us500 (\n)\n{ret;}";
        assert_eq!(entries(ptx), ["add", "mul_us500"]);
        assert!(entries(".version 8.0").is_empty());
    }
}

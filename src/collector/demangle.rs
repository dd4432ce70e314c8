//! C++ names as people write them: by the C++ runtime of the program if it has one, else by a crate.
#![allow(unsafe_code, reason = "the C++ runtime is foreign code")]

use std::borrow::Cow;
#[cfg(unix)]
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Longer names stay as they are, as in libkineto: some take for ever.
const LONGEST: usize = 8192;

/// Returns the name as people write it; as it is, if it is no C++ name.
pub(crate) fn demangle(name: &str) -> Cow<'_, str> {
    if !name.starts_with("_Z") || name.len() > LONGEST {
        return Cow::Borrowed(name);
    }
    by_runtime(name).or_else(|| by_crate(name)).map_or(Cow::Borrowed(name), Cow::Owned)
}

#[cfg(feature = "demangle")]
fn by_crate(name: &str) -> Option<String> {
    use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
    const DEEPEST: u32 = 128;
    let symbol = Symbol::new_with_options(name, &ParseOptions::default().recursion_limit(DEEPEST)).ok()?;
    symbol.demangle_with_options(&DemangleOptions::new().recursion_limit(DEEPEST)).ok()
}

#[cfg(not(feature = "demangle"))]
fn by_crate(_name: &str) -> Option<String> {
    None
}

#[cfg(unix)]
type Demangler = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// Asks `__cxa_demangle`, if anything in the process has it.
#[cfg(unix)]
fn by_runtime(name: &str) -> Option<String> {
    // SAFETY: dlsym only looks.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__cxa_demangle".as_ptr()) };
    if function.is_null() {
        return None;
    }
    // SAFETY: that is the type of the function of this name in every C++ runtime.
    let demangle = unsafe { std::mem::transmute::<*mut c_void, Demangler>(function) };
    let name = CString::new(name).ok()?;
    let mut status = 0;
    // SAFETY: the name is a C string, and no buffer is given, so one is made.
    let text = unsafe { demangle(name.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), &raw mut status) };
    if text.is_null() {
        return None;
    }
    // SAFETY: the function gives a C string.
    let name = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: the function has it made by malloc, and leaves it to the caller.
    unsafe { libc::free(text.cast()) };
    (status == 0).then_some(name)
}

#[cfg(not(unix))]
fn by_runtime(_name: &str) -> Option<String> {
    None
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cpp_name_or_too_long_stays() {
        assert_eq!(demangle("vecadd"), "vecadd");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
        let long = format!("_Z{}{}v", LONGEST, "a".repeat(LONGEST));
        assert_eq!(demangle(&long), long);
    }

    #[test]
    #[cfg(feature = "demangle")]
    fn cpp_names_are_written_out() {
        assert_eq!(by_crate("_Z6vecaddPKfS0_Pfi").as_deref(), Some("vecadd(float const*, float const*, float*, int)"));
        assert!(demangle("_ZN2at6native6vectorIfEEvT_").starts_with("void at::native::vector<float>"));
    }
}

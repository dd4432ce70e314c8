//! Demangles C++ names: by the program's C++ runtime if it has one, otherwise by a crate.
#![allow(unsafe_code, reason = "the C++ runtime is foreign code")]

use std::borrow::Cow;
#[cfg(unix)]
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Longer names stay mangled, as in libkineto: some take very long.
const LONGEST: usize = 8192;

/// Returns the demangled name; the name itself if it is not a C++ name.
pub(crate) fn demangle(name: &str) -> Cow<'_, str> {
    if !name.starts_with("_Z") || name.len() > LONGEST {
        return Cow::Borrowed(name);
    }
    demangle_by_runtime(name).or_else(|| demangle_by_crate(name)).map_or(Cow::Borrowed(name), Cow::Owned)
}

#[cfg(feature = "demangle")]
fn demangle_by_crate(name: &str) -> Option<String> {
    use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
    const DEEPEST: u32 = 128;
    let symbol = Symbol::new_with_options(name, &ParseOptions::default().recursion_limit(DEEPEST)).ok()?;
    symbol.demangle_with_options(&DemangleOptions::new().recursion_limit(DEEPEST)).ok()
}

#[cfg(not(feature = "demangle"))]
fn demangle_by_crate(_name: &str) -> Option<String> {
    None
}

#[cfg(unix)]
type Demangler = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// Calls `__cxa_demangle`, if a library of the process exports it.
#[cfg(unix)]
fn demangle_by_runtime(name: &str) -> Option<String> {
    // SAFETY: dlsym reads the symbol table, and the name is a C string.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__cxa_demangle".as_ptr()) };
    if function.is_null() {
        return None;
    }
    // SAFETY: the Itanium C++ ABI gives `__cxa_demangle` this type.
    let demangle = unsafe { std::mem::transmute::<*mut c_void, Demangler>(function) };
    let name = CString::new(name).ok()?;
    let mut status = 0;
    // SAFETY: the name is a C string; without a buffer the function allocates the result.
    let text = unsafe { demangle(name.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), &raw mut status) };
    if text.is_null() {
        return None;
    }
    // SAFETY: the function returns a C string.
    let name = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: the function allocates the result with malloc and passes its ownership to the caller.
    unsafe { libc::free(text.cast()) };
    (status == 0).then_some(name)
}

#[cfg(not(unix))]
fn demangle_by_runtime(_name: &str) -> Option<String> {
    None
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn non_cpp_and_overlong_names_stay_mangled() {
        assert_eq!(demangle("vecadd"), "vecadd");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
        let long = format!("_Z{}{}v", LONGEST, "a".repeat(LONGEST));
        assert_eq!(demangle(&long), long);
    }

    #[test]
    #[cfg(feature = "demangle")]
    fn cpp_names_are_demangled() {
        assert_eq!(
            demangle_by_crate("_Z6vecaddPKfS0_Pfi").as_deref(),
            Some("vecadd(float const*, float const*, float*, int)")
        );
        assert!(demangle("_ZN2at6native6vectorIfEEvT_").starts_with("void at::native::vector<float>"));
    }
}

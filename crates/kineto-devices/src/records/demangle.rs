//! Demangles C++ names: by the program's C++ runtime, else by the system's, else by a crate.
#![allow(unsafe_code, reason = "the C++ runtime is foreign code")]

use std::borrow::Cow;
#[cfg(unix)]
use std::ffi::{CStr, CString, c_char, c_int, c_void};
#[cfg(unix)]
use std::sync::OnceLock;

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

/// Returns `__cxa_demangle` of the process's C++ runtime, or else of the system's, which is then loaded for itself.
#[cfg(unix)]
fn find_demangler() -> Option<Demangler> {
    /// GNU's runtime, and LLVM's.
    const RUNTIMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++abi.dylib"];

    let symbol_in = |library: *mut c_void| {
        // SAFETY: the handle is of this process, and the name is a C string.
        let symbol = unsafe { libc::dlsym(library, c"__cxa_demangle".as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    };
    let load = |name: &CStr| {
        // SAFETY: the initializers of a C++ runtime have no effects outside of it. It is never closed.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        (!library.is_null()).then_some(library)
    };
    let loaded = || RUNTIMES.into_iter().filter_map(load).find_map(symbol_in);
    let symbol = symbol_in(libc::RTLD_DEFAULT).or_else(loaded)?;
    // SAFETY: the Itanium C++ ABI gives `__cxa_demangle` this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Demangler>(symbol) })
}

/// Demangles by a C++ runtime.
#[cfg(unix)]
fn demangle_by_runtime(name: &str) -> Option<String> {
    static DEMANGLER: OnceLock<Option<Demangler>> = OnceLock::new();

    let demangle = (*DEMANGLER.get_or_init(find_demangler))?;
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
    #[cfg(target_os = "linux")]
    fn runtime_of_the_system_demangles_when_there_is_one() {
        // The test's process has no C++ runtime.
        let Some(name) = demangle_by_runtime("_Z6vecaddPKfS0_Pfi") else { return };
        assert_eq!(name, "vecadd(float const*, float const*, float*, int)");
        assert_eq!(demangle_by_runtime("_Znonsense"), None);
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

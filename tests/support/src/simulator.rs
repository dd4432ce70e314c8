//! Shared parts of the clients of simulated GPUs: paths, calls, and the simulator's controls.

use libloading::Library;
use std::ffi::{CString, c_char};
use std::path::PathBuf;

/// Asserts that the test has this process to itself, with the one simulated machine of each vendor that a process has.
#[track_caller]
pub fn assert_own_process() {
    assert!(test_base::owns_process(), "mark the test #[own_process] or #[virtual_time]: it uses a simulated machine");
}

/// Returns the path of a simulated library, such as `sim_cuda`.
pub fn library(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.ancestors().map(|folder| if folder.ends_with("deps") { folder.into() } else { folder.join("deps") });
    let file = format!("lib{name}.so");
    deps.map(|deps| deps.join(&file)).find(|path| path.exists()).unwrap_or_else(|| panic!("no {file} near {own:?}"))
}

pub fn open(name: &str) -> Library {
    // SAFETY: the simulated libraries have no initialisers.
    unsafe { Library::new(library(name)) }.unwrap()
}

/// Calls a function of a library; returns its result.
macro_rules! invoke {
    ($library:expr, $name:ident($($argument:expr => $type:ty),* $(,)?) $(-> $returned:ty)?) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: callers pass the type of the library's function of that name.
        let function = unsafe { *$library.get::<extern "C" fn($($type),*) $(-> $returned)?>(name).unwrap() };
        function($($argument),*)
    }};
}
pub(crate) use invoke;

/// Sets the simulator's options ("key=value,key=value"), and all others to their defaults; returns false for invalid
/// settings.
pub fn configure(library: &Library, settings: &str) -> bool {
    let settings = CString::new(settings).unwrap();
    invoke!(library, simConfigure(settings.as_ptr() => *const c_char) -> i32) == 0
}

/// Returns a counter of the simulator by its name.
pub fn count(library: &Library, what: &str) -> u64 {
    let name = CString::new(what).unwrap();
    let count = invoke!(library, simCount(name.as_ptr() => *const c_char) -> u64);
    assert_ne!(count, u64::MAX, "{what}");
    count
}

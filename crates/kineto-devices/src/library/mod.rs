//! Finds vendors' libraries on the machine, and opens them until the process ends.
#![allow(unsafe_code, reason = "opening a library runs its code, and a symbol has the type that the caller names")]

#[cfg(feature = "devices")]
pub(crate) mod codes;
#[cfg(feature = "devices")]
pub(crate) mod contained;
#[cfg(feature = "devices")]
pub(crate) mod lazy;
#[cfg(feature = "devices")]
pub(crate) mod lease;
pub(crate) mod panic;
#[cfg(feature = "devices")]
pub(crate) mod search;
#[cfg(feature = "devices")]
pub(crate) mod text;

use kineto_base::os::process;
use kineto_base::sorting::sort_few_by_key;
use std::ffi::{CStr, OsStr, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

/// A place where a library was searched, and the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The name and method, such as "libcupti.so.13, by the loader".
    pub what: String,
    /// The outcome, such as "opened" or the loader's message.
    pub outcome: String,
}

impl Attempt {
    /// Creates the entry of one place.
    pub fn new(what: impl Into<String>, outcome: impl Into<String>) -> Attempt {
        Attempt { what: what.into(), outcome: outcome.into() }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.outcome)
    }
}

/// A library that stays open until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Library(&'static Opened);

#[cfg(any(unix, windows))]
use libloading::Library as Opened;

/// Uninhabited: systems without a loader open no library.
#[cfg(not(any(unix, windows)))]
#[derive(Debug)]
enum Opened {}

/// Declares a struct of functions of a vendor's library: required ones, and those that some versions lack. Their types are
/// those that the vendor documents, all `unsafe extern "C"`. A visibility before the name is that of the functions. Only
/// this macro resolves vendors' functions.
macro_rules! functions {
    (
        $(#[$about:meta])*
        $fields:vis $api:ident
        $(required { $($name:ident = $symbol:literal: fn($($arg:ty),*) $(-> $result:ty)?;)* })?
        $(optional { $($maybe:ident = $other:literal: fn($($of:ty),*) $(-> $returned:ty)?;)* })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $api {
            $($($fields $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*)?
            $($($fields $maybe: Option<unsafe extern "C" fn($($of),*) $(-> $returned)?>,)*)?
        }

        impl $api {
            /// Resolves the functions.
            ///
            /// # Errors
            /// The name of a required function that is missing.
            pub(super) fn new(library: $crate::library::Library) -> Result<$api, &'static std::ffi::CStr> {
                Ok($api {
                    // SAFETY: the vendor documents these types.
                    $($($name: unsafe { library.resolve_function($symbol) }.ok_or($symbol)?,)*)?
                    // SAFETY: the vendor documents these types.
                    $($($maybe: unsafe { library.resolve_function($other) },)*)?
                })
            }

            /// Returns the names of the optional functions that are missing.
            #[allow(dead_code, reason = "only some collectors report it")]
            pub(super) fn missing_functions(&self) -> Vec<&'static str> {
                let missing: &[Option<&'static std::ffi::CStr>] = &[$($(self.$maybe.is_none().then_some($other)),*)?];
                missing.iter().flatten().filter_map(|name| name.to_str().ok()).collect()
            }
        }
    };
}
pub(crate) use functions;

/// A way to open a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// The process has already loaded a library of this name.
    Mapped(String),
    /// The loader finds a library of this name.
    Loader(String),
    /// The path of the library.
    File(PathBuf),
}

impl Library {
    /// Opens the first candidate that can be opened; adds all attempts to `attempts`.
    pub(crate) fn open_first(
        candidates: impl Iterator<Item = Candidate>,
        attempts: &mut Vec<Attempt>,
    ) -> Option<Library> {
        for candidate in candidates {
            let opened = candidate.open();
            // A library that is not loaded yet is the usual case.
            if !matches!((&candidate, &opened), (Candidate::Mapped(_), Err(_))) {
                let outcome = opened.as_ref().map_or_else(Clone::clone, |_| "opened".to_owned());
                attempts.push(Attempt::new(candidate.to_string(), outcome));
            }
            if let Ok(library) = opened {
                return Some(library);
            }
        }
        None
    }

    #[cfg(any(unix, windows))]
    fn keep_open(library: Opened) -> Library {
        Library(Box::leak(Box::new(library)))
    }

    /// Opens that file.
    ///
    /// # Errors
    /// The loader's message.
    pub fn open_file(path: &Path) -> Result<Library, String> {
        Library::open(path.as_os_str())
    }

    #[cfg(not(any(unix, windows)))]
    fn open(_name: &OsStr) -> Result<Library, String> {
        Err("this system has no loader of libraries".to_owned())
    }

    /// Loads a library, unless the program has an untrusted caller: vendors' libraries load others that the environment
    /// names, so the caller could choose them.
    #[cfg(any(unix, windows))]
    fn open(name: &OsStr) -> Result<Library, String> {
        if process::has_untrusted_caller() {
            return Err("not loaded: the program has more rights than its caller".to_owned());
        }
        // SAFETY: a vendor's library, whose initialisation every program that uses the vendor's devices runs.
        let opened = unsafe { Opened::new(name) };
        opened.map(Library::keep_open).map_err(|error| loader_message(&error))
    }

    #[cfg(unix)]
    fn open_loaded(name: &str) -> Option<Library> {
        use libloading::os::unix;
        // `NOLOAD`: only a library that is already loaded.
        let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
        // SAFETY: nothing is loaded, so no code runs.
        let opened = unsafe { unix::Library::open(Some(name), flags) };
        opened.ok().map(|library| Library::keep_open(library.into()))
    }

    #[cfg(not(unix))]
    fn open_loaded(_name: &str) -> Option<Library> {
        None
    }

    /// Returns the function of that name.
    ///
    /// # Safety
    /// `F` is the type of a function pointer: that of the vendor's function of this name.
    pub unsafe fn resolve_function<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
        let address = self.symbol_address(name)?;
        // SAFETY: the caller guarantees the type, and all pointers have the same size.
        Some(unsafe { std::mem::transmute_copy::<*const c_void, F>(&address) })
    }

    /// Returns whether it has a function or variable of that name.
    pub(crate) fn has_symbol(self, name: &CStr) -> bool {
        self.symbol_address(name).is_some()
    }

    /// Returns the address of the function or variable of that name. Not generic, so it is compiled only once.
    #[cfg(any(unix, windows))]
    fn symbol_address(self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: the pointer is only used as an address.
        let symbol = unsafe { self.0.get::<*const c_void>(name) };
        symbol.ok().map(|symbol| *symbol)
    }

    /// Returns `None`: there is no library.
    #[cfg(not(any(unix, windows)))]
    fn symbol_address(self, _name: &CStr) -> Option<*const c_void> {
        match *self.0 {}
    }

    /// Returns the file that it was opened from, found by the address of one of its functions.
    #[cfg(target_os = "linux")]
    pub(crate) fn path_by_symbol(self, name: &CStr) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt as _;
        let address = self.symbol_address(name)?;
        let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: `about` is a valid place for the result.
        let found = unsafe { libc::dladdr(address, about.as_mut_ptr()) };
        // SAFETY: all zeros are a valid value, and dladdr writes a valid one.
        let file = unsafe { about.assume_init() }.dli_fname;
        if found == 0 || file.is_null() {
            return None;
        }
        // SAFETY: dladdr returns a C string, which lives as long as the library, and that is never closed.
        let file = unsafe { CStr::from_ptr(file) };
        Some(PathBuf::from(OsStr::from_bytes(file.to_bytes())))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn path_by_symbol(self, _name: &CStr) -> Option<PathBuf> {
        None
    }
}

impl Candidate {
    fn open(&self) -> Result<Library, String> {
        match self {
            Candidate::Mapped(name) => Library::open_loaded(name).ok_or_else(String::new),
            Candidate::Loader(name) => Library::open(name.as_ref()),
            Candidate::File(path) if path.exists() => Library::open(path.as_os_str()),
            Candidate::File(_) => Err("not there".to_owned()),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Candidate::Mapped(name) => write!(f, "{name}, already loaded"),
            Candidate::Loader(name) => write!(f, "{name}, by the loader"),
            Candidate::File(path) => path.display().fmt(f),
        }
    }
}

/// Returns the loader's own message, which the error has as its source.
#[cfg(any(unix, windows))]
fn loader_message(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns the paths that match a pattern, highest version first. `*` may occur once in each component.
pub(crate) fn matching_paths(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components().map(|part| part.as_os_str()) {
        let Some((before, after)) = part.to_str().and_then(|part| part.split_once('*')) else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        let below = |folder: &PathBuf| {
            let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let names = names.filter_map(|entry| entry.file_name().into_string().ok());
            let fits = |name: &String| name.strip_prefix(before).is_some_and(|rest| rest.ends_with(after));
            let mut names: Vec<_> = names.filter(fits).collect();
            sort_few_by_key(&mut names, |name| std::cmp::Reverse(version_numbers(name)));
            names.into_iter().map(|name| folder.join(name)).collect::<Vec<_>>()
        };
        found = found.iter().flat_map(below).collect();
    }
    found.retain(|path| path.exists());
    found
}

/// Returns the numbers in a name, by which versions are ordered.
pub(crate) fn version_numbers(name: &str) -> Vec<u64> {
    let parts = name.split(|character: char| !character.is_ascii_digit());
    parts.filter(|part| !part.is_empty()).map(|part| part.parse().unwrap_or(u64::MAX)).collect()
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn first_library_that_opens_wins_and_attempts_are_listed() {
        let candidates = [
            Candidate::Mapped("libnothing.so.1".into()),
            Candidate::File("/nowhere/libnothing.so.1".into()),
            Candidate::Loader("libnothing.so.1".into()),
            Candidate::Loader("libm.so.6".into()),
            Candidate::Loader("libc.so.6".into()),
        ];
        let mut attempts = Vec::new();
        let library = Library::open_first(candidates.into_iter(), &mut attempts).unwrap();
        let attempts: Vec<_> = attempts.iter().map(ToString::to_string).collect();
        assert_eq!(attempts.len(), 3, "{attempts:?}");
        assert_eq!(attempts[0], "/nowhere/libnothing.so.1: not there");
        assert!(
            attempts[1].starts_with("libnothing.so.1, by the loader: ") && attempts[1].contains("No such file"),
            "{attempts:?}"
        );
        assert_eq!(attempts[2], "libm.so.6, by the loader: opened");
        // SAFETY: this is the type of `cos`.
        let cos = unsafe { library.resolve_function::<extern "C" fn(f64) -> f64>(c"cos") }.unwrap();
        assert_eq!(cos(0.0), 1.0);
        // SAFETY: the library lacks this function.
        assert!(unsafe { library.resolve_function::<extern "C" fn()>(c"no_such_function") }.is_none());
        assert!(library.path_by_symbol(c"cos").unwrap().to_str().unwrap().contains("libm"));
        assert!(Library::open_loaded("libm.so.6").is_some() && Library::open_loaded("libnothing.so.1").is_none());
    }

    #[test]
    fn patterns_yield_the_highest_version_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cuda-12.9/lib64", "cuda-13.1/lib64", "cuda-12.10/lib64", "other", "cuda-13.2"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let found = matching_paths(&folder.path().join("cuda-*/lib64"));
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["cuda-13.1/lib64", "cuda-12.10/lib64", "cuda-12.9/lib64"]);
        assert_eq!(matching_paths(&folder.path().join("other")).len(), 1);
        assert!(matching_paths(&folder.path().join("none/*")).is_empty());
    }
}

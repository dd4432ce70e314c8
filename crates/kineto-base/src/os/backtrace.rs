//! The calling thread's stack: return addresses, and their symbols.
#![allow(unsafe_code, reason = "the safe stack walk takes a process-wide lock")]

/// The function that contains a return address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// The demangled name; empty if unknown.
    pub name: String,
    /// The source file; empty if unknown.
    pub file: String,
    /// The line in that file; 0 if unknown.
    pub line: u32,
}

/// The folder of this package's sources, where stacks are captured.
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");

/// Whether this build can capture stacks.
pub const CAN_CAPTURE: bool = cfg!(feature = "backtrace");

/// Writes the return addresses of the calling thread into `addresses`, the innermost first; returns their number.
#[cfg(feature = "backtrace")]
#[inline(never)]
pub fn capture_addresses(addresses: &mut [u64]) -> usize {
    let mut places = addresses.iter_mut();
    // Some unwinders end with a null frame.
    let keep = |frame: &backtrace::Frame| match frame.ip().expose_provenance() as u64 {
        0 => false,
        address => places.next().map(|place| *place = address).is_some(),
    };
    #[cfg(unix)]
    // SAFETY: the lock that this form skips guards Windows' debugging library. Other systems' unwinders are thread-safe, and
    // in a forked child the lock could be held forever.
    unsafe {
        backtrace::trace_unsynchronized(keep)
    };
    #[cfg(not(unix))]
    backtrace::trace(keep);
    let left = places.len();
    addresses.len() - left
}

/// Calls `each` with the functions that contain a return address, inlined functions before their callers.
#[cfg(feature = "backtrace")]
pub fn resolve_symbols(address: u64, each: &mut dyn FnMut(Symbol)) {
    let Ok(address) = usize::try_from(address) else { return };
    backtrace::resolve(std::ptr::with_exposed_provenance_mut(address), |symbol| {
        // The alternate form omits the compiler's hash.
        let name = symbol.name().map(|name| format!("{name:#}"));
        let file = symbol.filename().map(|file| file.display().to_string());
        each(Symbol {
            name: name.unwrap_or_default(),
            file: file.unwrap_or_default(),
            line: symbol.lineno().unwrap_or(0),
        });
    });
}

/// Captures nothing without the feature `backtrace`.
#[cfg(not(feature = "backtrace"))]
pub fn capture_addresses(_addresses: &mut [u64]) -> usize {
    0
}

/// Resolves nothing without the feature `backtrace`.
#[cfg(not(feature = "backtrace"))]
pub fn resolve_symbols(_address: u64, _each: &mut dyn FnMut(Symbol)) {}

#[cfg(all(test, feature = "backtrace"))]
mod tests {
    use super::*;

    #[test]
    fn capture_contains_the_calling_function() {
        let mut addresses = [0; 128];
        let count = capture_addresses(&mut addresses);
        assert!(count > 1 && addresses[..count].iter().all(|address| *address != 0), "{count}: {addresses:?}");
        assert_eq!(capture_addresses(&mut addresses[..2]), 2);
        let mut symbols = Vec::new();
        addresses[..count].iter().for_each(|address| resolve_symbols(*address, &mut |symbol| symbols.push(symbol)));
        assert!(
            symbols.iter().any(|symbol| symbol.name.contains("capture_contains_the_calling_function")),
            "{symbols:?}"
        );
    }
}

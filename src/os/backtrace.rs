//! The calling thread's stack: return addresses, and their symbols.
#![allow(unsafe_code, reason = "the safe form of a walk up the stack takes a lock of the process")]

/// A function that a return address lies in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// As people write it; empty if it is not known.
    pub(crate) name: String,
    /// Empty if that is not known.
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// Whether this build can tell where a thread is.
pub(crate) const IS_THERE: bool = cfg!(feature = "backtrace");

/// Puts the return addresses of the calling thread into `addresses`, the innermost first; returns how many.
#[cfg(feature = "backtrace")]
#[inline(never)]
pub(crate) fn capture(addresses: &mut [u64]) -> usize {
    let mut places = addresses.iter_mut();
    // Some unwinders end with a frame that is nowhere.
    let keep = |frame: &backtrace::Frame| match frame.ip().expose_provenance() as u64 {
        0 => false,
        address => places.next().map(|place| *place = address).is_some(),
    };
    #[cfg(unix)]
    // SAFETY: the lock that this form does without guards Windows' debugging library; the unwinder of other systems may be
    // called by any number of threads, and a forked child would find the lock held for ever.
    unsafe {
        backtrace::trace_unsynchronized(keep)
    };
    #[cfg(not(unix))]
    backtrace::trace(keep);
    let left = places.len();
    addresses.len() - left
}

/// Calls `each` with the functions that a return address lies in: those inlined into another before that.
#[cfg(feature = "backtrace")]
pub(crate) fn resolve(address: u64, each: &mut dyn FnMut(Symbol)) {
    let Ok(address) = usize::try_from(address) else { return };
    backtrace::resolve(std::ptr::with_exposed_provenance_mut(address), |symbol| {
        // The alternate form is without the hash of the compiler.
        let name = symbol.name().map(|name| format!("{name:#}"));
        let file = symbol.filename().map(|file| file.display().to_string());
        each(Symbol {
            name: name.unwrap_or_default(),
            file: file.unwrap_or_default(),
            line: symbol.lineno().unwrap_or(0),
        });
    });
}

/// Without the feature `backtrace`, nothing is known.
#[cfg(not(feature = "backtrace"))]
pub(crate) fn capture(_addresses: &mut [u64]) -> usize {
    0
}

/// Without the feature `backtrace`, nothing is known.
#[cfg(not(feature = "backtrace"))]
pub(crate) fn resolve(_address: u64, _each: &mut dyn FnMut(Symbol)) {}

#[cfg(all(test, feature = "backtrace"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_finds_itself() {
        let mut addresses = [0; 128];
        let count = capture(&mut addresses);
        assert!(count > 1 && addresses[..count].iter().all(|address| *address != 0), "{count}: {addresses:?}");
        assert_eq!(capture(&mut addresses[..2]), 2);
        let mut symbols = Vec::new();
        addresses[..count].iter().for_each(|address| resolve(*address, &mut |symbol| symbols.push(symbol)));
        assert!(symbols.iter().any(|symbol| symbol.name.contains("a_thread_finds_itself")), "{symbols:?}");
    }
}

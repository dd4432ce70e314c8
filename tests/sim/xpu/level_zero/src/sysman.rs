//! The one function of the system management that PTI needs the loader to have.

/// Initialises the system management, which this machine has none of.
#[unsafe(no_mangle)]
pub extern "C" fn zesInit(_flags: u32) -> u32 {
    0
}

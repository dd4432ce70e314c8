//! The link to the driver.

use crate::code::{Code, Outcome};
use crate::shared::counters::Counters;
use crate::shared::options::{CuptiVersion, Options};
use crate::shared::tracer::Cuda;
use crate::writer;
use sim_core::loader;
use sim_core::machine::Link;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

static LINK: Link<Cuda> = Link::new(Options::parse, Counters::new(), || find(c"simMachine"));

/// Returns whether a driver exists that is no stub and has this CUPTI's major version or a later one. Searches for it
/// until found.
pub(crate) fn connected() -> bool {
    let is_there = LINK.connect(|machine| machine.attach(writer::hear)).is_some();
    let Options { driver, cupti, .. } = *options();
    let major = CuptiVersion::ALL[cupti.0].0.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(i32::MAX);
    is_there && driver / 1_000 >= major
}

/// Returns the context of the calling thread and its device, by the driver's `simCurrentContext`.
pub(crate) fn current_context() -> (u64, u32) {
    static ADDRESS: OnceLock<usize> = OnceLock::new();
    let address = *ADDRESS.get_or_init(|| find(c"simCurrentContext").expose_provenance());
    if address == 0 {
        return (0, 0);
    }
    let address = std::ptr::with_exposed_provenance_mut::<c_void>(address);
    // SAFETY: only the simulated driver has a function of that name, and it has this type.
    let get = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut u64, *mut u32)>(address) };
    let (mut context, mut device) = (0, 0);
    get(&raw mut context, &raw mut device);
    (context, device)
}

/// Succeeds unless a stream is being captured, whose capture then ends with an error, by the driver's `simSpoilCaptures`.
pub(crate) fn spoil_captures() -> Outcome {
    let address = find(c"simSpoilCaptures");
    if address.is_null() {
        return Ok(());
    }
    // SAFETY: only the simulated driver has a function of that name, and it has this type.
    let spoil = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(address) };
    if spoil() == 0 { Ok(()) } else { Err(Code::INVALID_OPERATION) }
}

/// Returns a function of the loaded driver, or else of the one next to this library, or else of the loader's.
fn find(name: &CStr) -> *mut c_void {
    let libraries = loader::candidates(c"libcuda.so.1", find as *const c_void, &["libsim_cuda.so", "libcuda.so.1"]);
    let mut functions = libraries.map(|library| loader::symbol(library, name));
    functions.find(|found| !found.is_null()).unwrap_or(std::ptr::null_mut())
}

/// Returns the current options: the driver's, or without one those of the environment.
pub(crate) fn options() -> &'static Options {
    LINK.machine().options.get()
}

/// The driver's counters.
pub(crate) fn counters() -> &'static Counters {
    &LINK.machine().counters
}

//! The way to the driver: finds it, and hands it the table of what it is to call.

use crate::shared::counters::Counters;
use crate::shared::options::{CuptiVersion, Options};
use crate::shared::tracer::SetTracer;
use crate::writer;
use sim_core::ffi::StaticPointer;
use sim_core::loader;
use sim_core::options::OptionsStore;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

static OPTIONS: OptionsStore<Options> = OptionsStore::new("sim-cupti", "SIM_CUDA", Options::parse);
static COUNTERS: StaticPointer<Counters> = StaticPointer::null();
/// What is counted where there is no driver to ask.
static NO_COUNTERS: Counters = Counters::new();
static CONNECTING: Mutex<()> = Mutex::new(());

/// Whether there is a driver that is more than a stub, and of this CUPTI's major version or a later one. Looks for it
/// while there is none.
pub(crate) fn connected() -> bool {
    if COUNTERS.get().is_none() {
        let _one_at_a_time = CONNECTING.lock().unwrap_or_else(PoisonError::into_inner);
        if COUNTERS.get().is_none() {
            connect();
        }
    }
    let Options { driver, cupti, .. } = *options();
    let major = CuptiVersion::ALL[cupti.0].0.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(i32::MAX);
    COUNTERS.get().is_some() && driver / 1_000 >= major
}

fn connect() {
    let address = find();
    if address.is_null() {
        return;
    }
    // SAFETY: only the simulated driver has a function of that name, and it has this type.
    let set_tracer = unsafe { std::mem::transmute::<*mut c_void, SetTracer>(address) };
    // SAFETY: the table lives as long as the process.
    let counters = unsafe { set_tracer(&raw const writer::TRACER) };
    // SAFETY: the driver's counters stay; libraries are not closed.
    unsafe { COUNTERS.set(counters) };
}

/// `simSetTracer` of the driver that is loaded already, else of the one beside this library, else of the loader's.
fn find() -> *mut c_void {
    let libraries = loader::candidates(c"libcuda.so.1", find as *const c_void, &["libsim_cuda.so", "libcuda.so.1"]);
    let mut functions = libraries.map(|library| loader::symbol(library, c"simSetTracer"));
    functions.find(|found| !found.is_null()).unwrap_or(std::ptr::null_mut())
}

/// The options in force: the driver's, and without one those of the environment.
pub(crate) fn options() -> &'static Options {
    OPTIONS.get()
}

pub(crate) fn configure(options: &Options) {
    OPTIONS.set(*options);
}

/// The driver's counters.
pub(crate) fn counters() -> &'static Counters {
    COUNTERS.get().unwrap_or(&NO_COUNTERS)
}

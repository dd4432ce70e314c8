//! The link to Level Zero.

use crate::code::{Code, Outcome};
use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::Xpu;
use crate::{pool, writer};
use sim_core::loader;
use sim_core::machine::Link;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static LINK: Link<Xpu> = Link::new(Options::parse, Counters::new(), || loader::symbol(find(), c"simMachine"));
/// How often the options have been set.
static CONFIGURED: AtomicU64 = AtomicU64::new(0);

type Init = extern "C" fn(u32) -> u32;

/// Succeeds with a loader that has all that PTI needs. The result of the first call is final.
///
/// # Errors
/// There is none.
pub(crate) fn need_loader() -> Outcome<Init> {
    static INIT: OnceLock<Option<Init>> = OnceLock::new();
    INIT.get_or_init(connect).ok_or(Code::NOT_IMPLEMENTED)
}

/// As [`need_loader`], with a driver: without one the real library throws an uncaught exception.
///
/// # Errors
/// There is no loader.
pub(crate) fn need_driver() -> Outcome {
    static IS_THERE: OnceLock<()> = OnceLock::new();
    let init = need_loader()?;
    IS_THERE.get_or_init(|| {
        /// The first version of Level Zero with all that PTI takes for granted.
        const LEAST_API: u32 = 3;
        let (result, api) = (init(0), options().driver_api.minor);
        if result != 0 || api < LEAST_API {
            eprintln!("sim-pti: zeInit: {result:#x}, Level Zero 1.{api}: that ends the process, as with the real PTI");
            std::process::abort();
        }
    });
    Ok(())
}

fn connect() -> Option<Init> {
    let library = find();
    let [sysman, init] = [c"zesInit", c"zeInit"].map(|name| loader::symbol(library, name));
    if sysman.is_null() || init.is_null() {
        return None;
    }
    LINK.connect(|machine| machine.attach(writer::hear))?;
    configured();
    // SAFETY: the library's function of that name has this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Init>(init) })
}

/// Returns the loaded loader, or else the one next to this library, or else the system's.
fn find() -> *mut c_void {
    let mut libraries = loader::candidates(c"libze_loader.so.1", find as *const c_void, &["libsim_ze_loader.so"]);
    libraries.find(|found| !found.is_null()).unwrap_or(std::ptr::null_mut())
}

/// The options in force: Level Zero's, and without it those of the environment.
pub(crate) fn options() -> &'static Options {
    LINK.machine().options.get()
}

/// The options have been set.
pub(crate) fn configured() {
    CONFIGURED.fetch_add(1, Ordering::Release);
    pool::configured();
}

/// Changes whenever a test sets options or ends endless work.
pub(crate) fn configurations() -> u64 {
    CONFIGURED.load(Ordering::Acquire)
}

/// Level Zero's counters.
pub(crate) fn counters() -> &'static Counters {
    &LINK.machine().counters
}

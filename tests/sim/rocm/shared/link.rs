//! A profiler's link to HIP.

use super::counters::Counters;
use super::options::Options;
use super::tracer::Rocm;
use sim_core::loader;
use sim_core::machine::{Link, Machine};
use std::ffi::c_void;
use std::time::Duration;

static LINK: Link<Rocm> = Link::new(Options::parse, Counters::new(), find);

/// Returns `simMachine` of HIP, if that is loaded.
fn find() -> *mut c_void {
    loader::symbol(loader::open(c"libamdhip64.so.6", libc::RTLD_NOLOAD), c"simMachine")
}

/// HIP, if it is loaded.
pub(crate) fn hip() -> Option<&'static Machine<Rocm>> {
    LINK.connect(|_| ())
}

/// HIP's machine, or without it one of the environment.
fn machine() -> &'static Machine<Rocm> {
    hip().unwrap_or_else(|| LINK.machine())
}

pub(crate) fn options() -> &'static Options {
    machine().options.get()
}

pub(crate) fn counters() -> &'static Counters {
    &machine().counters
}

/// Delays a flush as the options say.
pub(crate) fn delay_flush() {
    let options = options();
    if options.hanging_flush {
        hip().into_iter().for_each(Machine::wait_for_finish);
    }
    sim_core::clock::sleep(Duration::from_millis(options.slow_flush));
}

/// Calls the client, by option on a new thread for each buffer.
pub(crate) fn call_client(call: impl FnOnce() + Send + 'static) {
    if options().foreign_thread {
        // A panic of the client ends the process: the thread has no error.
        let _ = std::thread::spawn(call).join();
    } else {
        call();
    }
}

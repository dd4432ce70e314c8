//! A second profiler in this process, which competes for CUPTI's only subscription.

use libloading::os::unix::{Library, RTLD_NOW};
use std::error::Error;
use std::ffi::c_void;
use std::path::Path;
use std::time::{Duration, Instant};

type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// An id kind that this process does not use otherwise.
const CUSTOM: u32 = 5;

/// libcupti, with the functions that any program may use.
pub struct Rival {
    subscribe: unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32,
    unsubscribe: unsafe extern "C" fn(*mut c_void) -> u32,
    push: unsafe extern "C" fn(u32, u64) -> u32,
    pop: unsafe extern "C" fn(u32, *mut u64) -> u32,
    /// Keeps the library open while its functions may be called.
    _library: Library,
}

/// The subscription; released on drop.
pub struct Held<'r> {
    rival: &'r Rival,
    subscriber: *mut c_void,
}

extern "C" fn ignore(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}

impl Rival {
    /// Uses the library that is loaded already.
    pub fn new(path: &Path) -> Result<Rival, Box<dyn Error>> {
        const RTLD_NOLOAD: i32 = 4;
        // SAFETY: it is loaded already, so its initializers have run.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_NOLOAD) }?;
        Ok(Rival {
            // SAFETY: this is the type in NVIDIA's header, as for the functions below.
            subscribe: unsafe { *library.get(b"cuptiSubscribe\0")? },
            // SAFETY: see above.
            unsubscribe: unsafe { *library.get(b"cuptiUnsubscribe\0")? },
            // SAFETY: see above.
            push: unsafe { *library.get(b"cuptiActivityPushExternalCorrelationId\0")? },
            // SAFETY: see above.
            pop: unsafe { *library.get(b"cuptiActivityPopExternalCorrelationId\0")? },
            _library: library,
        })
    }

    /// Acquires the subscription.
    ///
    /// # Errors
    /// CUPTI's code: 39 if another profiler holds it.
    pub fn subscribe(&self) -> Result<Held<'_>, u32> {
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: `subscriber` is valid for writes, and the callback does nothing.
        match unsafe { (self.subscribe)(&mut subscriber, ignore, std::ptr::null_mut()) } {
            0 => Ok(Held { rival: self, subscriber }),
            code => Err(code),
        }
    }

    /// Returns the time of a push and pop of an id, in nanoseconds, or CUPTI's code.
    pub fn push_and_pop(&self) -> Result<f64, u32> {
        const TIMES: u32 = 100_000;
        let mut least = Duration::MAX;
        for _ in 0..5 {
            let start = Instant::now();
            for id in 1..=TIMES {
                let mut popped = 0;
                // SAFETY: it takes two numbers.
                let pushed = unsafe { (self.push)(CUSTOM, id.into()) };
                // SAFETY: `popped` is valid for writes.
                let code = unsafe { (self.pop)(CUSTOM, &mut popped) };
                if pushed != 0 || code != 0 || popped != u64::from(id) {
                    return Err(pushed.max(code));
                }
            }
            least = least.min(start.elapsed());
        }
        Ok(least.as_nanos() as f64 / f64::from(TIMES))
    }
}

impl Held<'_> {
    /// Pushes an id, and pops it; returns CUPTI's code.
    pub fn push(&self) -> u32 {
        // SAFETY: it takes two numbers.
        let code = unsafe { (self.rival.push)(CUSTOM, 1) };
        if code == 0 {
            // SAFETY: the place is valid for writes.
            unsafe { (self.rival.pop)(CUSTOM, &mut 0) };
        }
        code
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: `cuptiSubscribe` returned it, and it is released once.
        unsafe { (self.rival.unsubscribe)(self.subscriber) };
    }
}

//! The machine of a vendor: its options and counters, which the device's library owns, and the profilers that listen to it.
//!
//! The device's library exports its machine by `simMachine`, which a profiler's [`Link`] finds. Both are built from the
//! same sources, so they agree on all types.

use crate::clock::sleep;
use crate::counters::Counts;
use crate::engine::FinishedWork;
use crate::ffi::{StaticPointer, read_text};
use crate::handles::lock;
use crate::ids::CorrelationIds;
use crate::options::OptionsStore;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// The types of a vendor's libraries.
pub trait Vendor: Sized + 'static {
    type Options: Default + Sync + 'static;
    type Counters: Counts + 'static;
    /// A call of the API, as profilers get it.
    type Call;
    /// Work of a device, as profilers get it.
    type Work;
    /// What else a device tells profilers.
    type Report;

    /// The name in messages, and the environment variable of the options.
    const SIMULATOR: &'static str;
    const VARIABLE: &'static str;
}

/// What a device tells profilers, never under its locks.
#[repr(C)]
pub enum Event<'a, V: Vendor> {
    /// A test has changed the options, or ended endless work.
    Configured,
    Entered(&'a mut V::Call),
    Left(&'a mut V::Call),
    /// Work that was given to a device, several items for a graph; of a device that tells it when the program waits, work
    /// that has ended.
    Work(&'a [V::Work]),
    /// Work whose times have become known.
    Retimed(Times),
    Report(&'a V::Report),
    /// Asks for a counter that only a profiler has.
    Count(&'a str, &'a mut Option<u64>),
}

/// The times of work that were unknown at its launch: start and end as timestamps, and the true end.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub id: u64,
    pub start: u64,
    pub end: u64,
    pub done_at: u64,
}

/// A profiler's function that hears events.
pub type Listener<V> = fn(&mut Event<'_, V>);

/// A machine; there are two profilers at most.
#[repr(C)]
pub struct Machine<V: Vendor> {
    /// The size of its parts, by which a profiler recognises a library of other sources.
    size: usize,
    pub options: OptionsStore<V::Options>,
    pub counters: V::Counters,
    /// How often a test has ended endless work.
    finishes: AtomicU64,
    /// Whether the program has called the library.
    pub has_started: AtomicBool,
    correlations: CorrelationIds,
    profilers: [OnceLock<Listener<V>>; 2],
}

impl<V: Vendor> Machine<V> {
    const SIZE: usize = size_of::<Machine<V>>() + size_of::<V::Options>() + size_of::<V::Work>() + size_of::<V::Call>();

    pub const fn new(parse: fn(&str) -> Result<V::Options, String>, counters: V::Counters) -> Machine<V> {
        Machine {
            size: Machine::<V>::SIZE,
            options: OptionsStore::new(V::SIMULATOR, V::VARIABLE, parse),
            counters,
            finishes: AtomicU64::new(0),
            has_started: AtomicBool::new(false),
            correlations: CorrelationIds::new(),
            profilers: [const { OnceLock::new() }; 2],
        }
    }

    /// Returns the id of the next call: from 1 on, and from 1 again after `last` unless that is 0.
    pub fn next_correlation(&self, last: u64) -> u64 {
        self.correlations.next(last)
    }

    /// Attaches a profiler, unless it is attached.
    ///
    /// # Panics
    /// There are two others.
    pub fn attach(&self, listener: Listener<V>) {
        let is_there = self.listeners().any(|known| std::ptr::fn_addr_eq(known, listener));
        assert!(is_there || self.profilers.iter().any(|place| place.set(listener).is_ok()), "two profilers at most");
    }

    fn listeners(&self) -> impl Iterator<Item = Listener<V>> {
        self.profilers.iter().filter_map(|place| place.get().copied())
    }

    /// Returns whether a profiler is attached.
    pub fn is_traced(&self) -> bool {
        self.listeners().next().is_some()
    }

    /// Tells the profilers an event, in the order in which they were attached.
    pub fn tell(&self, mut event: Event<'_, V>) {
        self.listeners().for_each(|listener| listener(&mut event));
    }

    /// Replaces the options by those of a C string; false if that is invalid.
    pub fn configure(&self, settings: *const c_char) -> bool {
        let is_valid = self.options.configure(settings);
        if is_valid {
            self.tell(Event::Configured);
        }
        is_valid
    }

    /// Tells the times of work that was behind endless kernels; `stamp` returns timestamps.
    pub fn tell_finished(&self, finished: Vec<FinishedWork>, stamp: impl Fn(u64) -> u64) {
        for FinishedWork { id, start, end } in finished {
            self.tell(Event::Retimed(Times { id, start: stamp(start), end: stamp(end), done_at: end }));
        }
    }

    /// Counts that a test has ended endless work.
    pub fn note_finish(&self) {
        self.finishes.fetch_add(1, Ordering::Release);
    }

    /// Waits until a test ends endless work.
    pub fn wait_for_finish(&self) {
        let before = self.finishes.load(Ordering::Acquire);
        while self.finishes.load(Ordering::Acquire) == before {
            sleep(Duration::from_millis(1));
        }
    }

    /// Returns a counter of the device or of a profiler.
    pub fn count(&self, name: &str) -> Option<u64> {
        let mut count = self.counters.get(name);
        if count.is_none() {
            self.tell(Event::Count(name, &mut count));
        }
        count
    }
}

/// Returns a counter by its C name, `u64::MAX` for an unknown one.
pub fn count_by_name(name: *const c_char, get: impl FnOnce(&str) -> Option<u64>) -> u64 {
    read_text(name).and_then(|name| name.to_str().ok()).and_then(get).unwrap_or(u64::MAX)
}

/// Exports `simConfigure` and `simCount` by functions that take the settings and the name.
#[macro_export]
macro_rules! controls {
    ($configure:expr, $count:expr) => {
        /// Sets the options in `settings` ("key=value,key=value"), and all others to their defaults.
        ///
        /// Returns 0; on invalid settings changes nothing, writes a line to stderr and returns -1.
        #[unsafe(no_mangle)]
        pub extern "C" fn simConfigure(settings: *const std::ffi::c_char) -> std::ffi::c_int {
            if $configure(settings) { 0 } else { -1 }
        }

        /// Returns the counter of that name (README.md lists them), or `u64::MAX` for an unknown one.
        #[unsafe(no_mangle)]
        pub extern "C" fn simCount(name: *const std::ffi::c_char) -> u64 {
            $crate::machine::count_by_name(name, $count)
        }
    };
}

/// Declares the machine of a device's library, and exports its controls. `finish` ends endless work, `reset` drops what a
/// test has left, and `count` knows further counters.
#[macro_export]
macro_rules! machine {
    ($vendor:ty, $finish:expr, $reset:expr, $count:expr) => {
        pub(crate) static MACHINE: $crate::machine::Machine<$vendor> =
            $crate::machine::Machine::new(Options::parse, Counters::new());

        /// Returns the current options; at first those of the environment.
        pub(crate) fn options() -> &'static Options {
            MACHINE.options.get()
        }

        pub(crate) fn counters() -> &'static Counters {
            &MACHINE.counters
        }

        /// The entry point by which profilers find the machine.
        #[unsafe(no_mangle)]
        pub extern "C" fn simMachine() -> *const std::ffi::c_void {
            (&raw const MACHINE).cast()
        }

        $crate::controls!(|settings| MACHINE.configure(settings), |name| MACHINE.count(name).or_else(|| $count(name)));

        /// Resets the counters, and ends endless work.
        #[unsafe(no_mangle)]
        pub extern "C" fn simReset() {
            simFinish();
            $reset();
            $crate::counters::Counts::reset(&MACHINE.counters);
        }

        /// Ends the endless kernels that have been launched and hung flushes; waiting work continues.
        #[unsafe(no_mangle)]
        pub extern "C" fn simFinish() {
            MACHINE.note_finish();
            $finish();
        }
    };
}

/// A profiler's way to the machine. Without a device's library it has options and counters of its own.
pub struct Link<V: Vendor> {
    found: StaticPointer<Machine<V>>,
    alone: Machine<V>,
    connecting: Mutex<()>,
    /// Returns the address of `simMachine`, or null.
    find: fn() -> *mut c_void,
}

impl<V: Vendor> Link<V>
where
    Machine<V>: Sync,
{
    pub const fn new(
        parse: fn(&str) -> Result<V::Options, String>,
        counters: V::Counters,
        find: fn() -> *mut c_void,
    ) -> Link<V> {
        Link { found: StaticPointer::null(), alone: Machine::new(parse, counters), connecting: Mutex::new(()), find }
    }

    /// Returns the machine. Searches for it until it is found, and calls `attach` once then.
    pub fn connect(&self, attach: impl FnOnce(&'static Machine<V>)) -> Option<&'static Machine<V>> {
        if self.found.get().is_none() {
            let _one_at_a_time = lock(&self.connecting);
            if self.found.get().is_none() {
                attach(self.search()?);
            }
        }
        self.found.get()
    }

    fn search(&self) -> Option<&'static Machine<V>> {
        let address = (self.find)();
        if address.is_null() {
            return None;
        }
        // SAFETY: only the simulated libraries have a function of that name, and it has this type.
        let get = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Machine<V>>(address) };
        let machine = get();
        // SAFETY: a machine begins with its size.
        if unsafe { machine.cast::<usize>().read() } != Machine::<V>::SIZE {
            return None;
        }
        // SAFETY: the library's machine is static, and libraries are not closed.
        unsafe { self.found.set(machine) };
        self.found.get()
    }

    /// Returns the machine that was found, or else the link's own.
    pub fn machine(&'static self) -> &'static Machine<V> {
        self.found.get().unwrap_or(&self.alone)
    }
}

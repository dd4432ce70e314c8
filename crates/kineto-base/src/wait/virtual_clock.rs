//! A clock that moves only if a test advances it.
//!
//! It is a page of memory in a file that the variable [`VARIABLE`] names, so that a program, its children, and libraries which
//! compile this file too (the simulated devices), read the same time. A thread that waits by the clock sleeps on one futex in that page.
//!
//! A test must see what a step of the clock caused. So before each step the clock waits until nothing runs any more: every
//! other thread of the processes that use the clock is asleep, and was not awake since the last look. The kernel knows that,
//! whatever lock, join or queue a thread waits for. A thread that sleeps by another clock counts as asleep.
#![allow(unsafe_code, reason = "a mapping shared by processes, and a futex, have no safe form")]
#![allow(clippy::panic, clippy::expect_used, reason = "only tests select the clock, and fail where it cannot work")]
#![allow(clippy::disallowed_methods, reason = "no configuration reaches the first reading of the time")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The environment variable that names the file of the clock.
pub const VARIABLE: &str = "VIRTUAL_CLOCK_FILE";

/// A clock that moves only if it is advanced. All times are in nanoseconds.
#[repr(C)]
#[derive(Debug)]
pub struct VirtualClock {
    /// The steady clock.
    now: AtomicU64,
    /// CLOCK_REALTIME when the steady clock was 0.
    wall: AtomicU64,
    /// Changes with the time and with each notification: who waits sleeps on it.
    generation: AtomicU32,
    /// Processes that use the clock, 0 for none.
    processes: [AtomicU32; 15],
    waiting: [Waiting; 256],
}

/// A thread that waits.
#[repr(C)]
#[derive(Debug)]
struct Waiting {
    /// The kernel's number of the thread, 0 for none.
    thread: AtomicU32,
    /// When it wants to be woken, 0 for not yet known.
    at: AtomicU64,
}

/// The environment variable of [`Pace`]: `late` or `fine`.
const PACE_VARIABLE: &str = "VIRTUAL_CLOCK_PACE";

/// How the clock jumps. What a test shows must be the same at each pace.
#[derive(Clone, Copy)]
enum Pace {
    AtOnce,
    /// After a thousand times as long.
    Late,
    /// In a thousand steps, at each of which all that wait look whether they are done.
    Fine,
}

/// A thousand times what the looks take from one jump to the next.
const LATE: Duration = Duration::from_millis(50);

/// The number of steps of a fine jump.
const FINE: u64 = 1000;

/// Returns the pace that the environment selects.
///
/// # Panics
/// If it is unknown.
fn pace() -> Pace {
    static PACE: OnceLock<Pace> = OnceLock::new();
    *PACE.get_or_init(|| match std::env::var(PACE_VARIABLE).as_deref() {
        Err(_) => Pace::AtOnce,
        Ok("late") => Pace::Late,
        Ok("fine") => Pace::Fine,
        Ok(other) => panic!("{PACE_VARIABLE}={other}: late or fine"),
    })
}

/// How long nothing may come to rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the clock that the environment selects; `None` if time is the machine's.
///
/// # Panics
/// If the file that the variable names is no clock.
pub fn selected() -> Option<&'static VirtualClock> {
    static SELECTED: OnceLock<Option<&'static VirtualClock>> = OnceLock::new();
    *SELECTED.get_or_init(|| {
        let path = std::env::var_os(VARIABLE)?;
        let open = || VirtualClock::map(&OpenOptions::new().read(true).write(true).open(&path)?);
        let clock = open().unwrap_or_else(|error| panic!("{VARIABLE}={}: {error}", path.display()));
        clock.add_process();
        Some(clock)
    })
}

impl VirtualClock {
    /// Makes the file of a clock that shows the machine's time; put its path into [`VARIABLE`] of the program to start.
    ///
    /// # Errors
    /// The file cannot be written or mapped.
    pub fn create(path: &Path) -> io::Result<&'static VirtualClock> {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.write_all(&[0; size_of::<VirtualClock>()])?;
        let clock = VirtualClock::map(&file)?;
        const BEGIN: u64 = 1_000_000_000_000;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        clock.now.store(BEGIN, Ordering::SeqCst);
        clock.wall.store(nanos(wall).saturating_sub(BEGIN), Ordering::SeqCst);
        Ok(clock)
    }

    fn map(file: &File) -> io::Result<&'static VirtualClock> {
        let length = size_of::<VirtualClock>();
        if file.metadata()?.len() != length as u64 {
            return Err(io::Error::other(format!("not a clock, which has {length} bytes")));
        }
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel selects.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, access, shared, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is as long as the type, at a page's start, and stays; atomics of any value are valid.
        Ok(unsafe { &*address.cast::<VirtualClock>() })
    }

    fn add_process(&self) {
        let own = std::process::id();
        let is_added = |process: &AtomicU32| {
            let user = process.load(Ordering::SeqCst);
            let is_free = user == 0 || !Path::new(&format!("/proc/{user}")).exists();
            user == own || is_free && process.compare_exchange(user, own, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        assert!(self.processes.iter().any(is_added), "too many processes use the clock");
    }

    /// Returns the steady clock's time.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Returns the steady clock's time, and a later one at each call.
    ///
    /// Spans and calls are ordered by their times, so what takes times of records never sees one twice.
    pub fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns CLOCK_REALTIME, since the Unix epoch, and a later one at each call.
    pub fn wall(&self) -> u64 {
        self.tick() + self.wall.load(Ordering::SeqCst)
    }

    /// Sets CLOCK_REALTIME that much forward, or back.
    pub fn step_wall(&self, by: i64) {
        self.wall.fetch_add(by.cast_unsigned(), Ordering::SeqCst);
        self.wake();
    }

    /// Waits until `is_done` returns true, which it may do after a [`wake`](Self::wake), or until that time.
    ///
    /// # Panics
    /// If too many threads wait.
    pub fn wait(&self, deadline: Option<u64>, is_done: &dyn Fn() -> bool) {
        let _deadline = deadline.map(|at| self.enter(at));
        loop {
            let generation = self.generation.load(Ordering::SeqCst);
            if is_done() || deadline.is_some_and(|at| self.now() >= at) {
                break;
            }
            self.futex(libc::FUTEX_WAIT, generation);
        }
    }

    /// Calls `look`, which waits for something else for a moment, until it returns true, or until that time: the clock does not pass
    /// it before.
    ///
    /// # Panics
    /// If too many threads wait.
    pub fn look_until(&self, deadline: Option<u64>, look: &mut dyn FnMut() -> bool) {
        let _deadline = deadline.map(|at| self.enter(at));
        while deadline.is_none_or(|at| self.now() < at) && !look() {}
    }

    /// Enters a deadline of this thread, until what is returned is dropped.
    fn enter(&self, deadline: u64) -> OnDrop<impl Fn()> {
        let thread = own_thread();
        let is_claimed =
            |place: &&Waiting| place.thread.compare_exchange(0, thread, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let place = self.waiting.iter().find(is_claimed).expect("too many threads wait by the clock");
        place.at.store(deadline.max(1), Ordering::SeqCst);
        OnDrop(|| {
            place.at.store(0, Ordering::SeqCst);
            place.thread.store(0, Ordering::SeqCst);
        })
    }

    /// Returns whether a thread has yet to see that its deadline has come. One that ended while it waited does not count.
    fn is_awaited(&self) -> bool {
        let now = self.now();
        let lives = |thread: u32| Path::new(&format!("/proc/{thread}")).exists();
        let is_due = |place: &Waiting| {
            (1..=now).contains(&place.at.load(Ordering::SeqCst)) && lives(place.thread.load(Ordering::SeqCst))
        };
        self.waiting.iter().any(is_due)
    }

    /// Wakes all that wait, to look whether they are done.
    pub fn wake(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.futex(libc::FUTEX_WAKE, i32::MAX.cast_unsigned());
    }

    fn futex(&self, operation: i32, value: u32) {
        let no_limit = std::ptr::null::<libc::timespec>();
        // SAFETY: the word lives as long as the process; the kernel reads it, and no limit is given.
        unsafe { libc::syscall(libc::SYS_futex, self.generation.as_ptr(), operation, value, no_limit) };
    }

    /// Advances the time in the order of all deadlines, and returns when what that caused has come to rest.
    ///
    /// # Panics
    /// If something runs on for a minute.
    pub fn advance(&self, by: Duration) {
        let until = self.now() + nanos(by);
        while self.step(until) {}
        self.now.fetch_max(until, Ordering::SeqCst);
        self.wake();
        self.settle();
    }

    /// Lets time pass as it is waited for, while `work` runs: it jumps to the next deadline whenever nothing else can go on.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let is_over = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while is_over.load(Ordering::SeqCst) == 0 {
                    // Without a deadline, what is waited for is outside: a disk, a child.
                    if !self.pause_until_rest(&|| is_over.load(Ordering::SeqCst) != 0) || !self.jump(u64::MAX) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
            let _ends = OnDrop(|| is_over.store(1, Ordering::SeqCst));
            work()
        })
    }

    /// Waits for rest, and sets the time to the next deadline; returns whether there is one by then.
    fn step(&self, until: u64) -> bool {
        self.settle();
        self.jump(until)
    }

    /// Sets the time to the next deadline; returns whether there is one by then.
    fn jump(&self, until: u64) -> bool {
        let Some(next) = self.next_deadline(until) else { return false };
        match pace() {
            Pace::AtOnce => {}
            Pace::Late => std::thread::sleep(LATE),
            Pace::Fine => {
                let step = (next.saturating_sub(self.now()) / FINE).max(1);
                while let Some(next) = self.next_deadline(next) {
                    self.now.fetch_max(next.min(self.now() + step), Ordering::SeqCst);
                    self.wake();
                    self.settle();
                }
            }
        }
        self.now.fetch_max(next, Ordering::SeqCst);
        self.wake();
        true
    }

    /// Returns the next time that is waited for, until then.
    fn next_deadline(&self, until: u64) -> Option<u64> {
        let (now, waiting) = (self.now(), self.waiting.iter().map(|place| place.at.load(Ordering::SeqCst)));
        // At rest, an earlier deadline is of a process that ended while it waited.
        waiting.filter(|at| *at > now && *at <= until).min()
    }

    /// Waits until nothing runs.
    ///
    /// # Panics
    /// If something runs on for a minute.
    pub fn settle(&self) {
        let begun = Instant::now();
        let is_late = || begun.elapsed() > PATIENCE;
        assert!(self.pause_until_rest(&is_late), "a thread runs on: {:?}", self.running_threads());
    }

    /// Waits until nothing runs, or until `is_over`; returns whether nothing runs.
    fn pause_until_rest(&self, is_over: &dyn Fn() -> bool) -> bool {
        let mut pause = Duration::from_micros(10);
        while !self.is_at_rest() {
            if is_over() {
                return false;
            }
            // What runs needs the processor more than this thread.
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        true
    }

    /// Returns whether all other threads were asleep at two looks, and in between.
    fn is_at_rest(&self) -> bool {
        if self.is_awaited() {
            // Readings of the time move it without waking anybody.
            self.wake();
            return false;
        }
        let first = self.look();
        first.is_some() && first == self.look()
    }

    /// Returns how often each of the other threads has run; `None` if one is running.
    fn look(&self) -> Option<BTreeMap<u32, u64>> {
        let mut runs = BTreeMap::new();
        for (thread, status) in self.other_threads() {
            let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            if !line("State:").is_some_and(|state| state.starts_with(['S', 'Z', 'X'])) {
                return None;
            }
            let count = |key| line(key).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            runs.insert(thread, count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:"));
        }
        Some(runs)
    }

    /// Returns the names of threads that run now.
    fn running_threads(&self) -> Vec<String> {
        let awake = self.other_threads().into_iter().filter(|(_, status)| !status.contains("State:\tS"));
        awake.map(|(_, status)| status.lines().next().unwrap_or_default().to_owned()).collect()
    }

    /// Returns the kernel's number and status of each thread but this one.
    fn other_threads(&self) -> Vec<(u32, String)> {
        let own = own_thread();
        let processes = self.processes.iter().map(|process| process.load(Ordering::SeqCst)).filter(|id| *id != 0);
        let tasks = processes.flat_map(|id| fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten());
        tasks
            .filter_map(|task| {
                let thread = task.file_name().to_str()?.parse().ok().filter(|thread| *thread != own)?;
                Some((thread, fs::read_to_string(task.path().join("status")).ok()?))
            })
            .collect()
    }
}

/// Calls a function when it is dropped, also by a panic.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Returns the kernel's number of this thread.
fn own_thread() -> u32 {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

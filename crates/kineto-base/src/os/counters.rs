//! Event counters of the kernel and the processor for one thread (`perf_event_open`).
#![allow(unsafe_code, reason = "the kernel's counters have no safe form")]

use std::io;

/// A countable event.
#[derive(Debug, PartialEq, Eq)]
pub struct PerfEvent {
    /// Its name in `perf`.
    pub name: &'static str,
    /// The kernel's event type (hardware 0, software 1) and event number.
    kind: u32,
    number: u64,
    /// Whether it is counted in kernel mode; other events are counted in user mode only.
    in_kernel: bool,
}

const fn hardware_event(name: &'static str, number: u64) -> PerfEvent {
    PerfEvent { name, kind: 0, number, in_kernel: false }
}

const fn software_event(name: &'static str, number: u64, in_kernel: bool) -> PerfEvent {
    PerfEvent { name, kind: 1, number, in_kernel }
}

/// All countable events. The first two are torch's.
pub static EVENTS: [PerfEvent; 19] = [
    hardware_event("cycles", 0),
    hardware_event("instructions", 1),
    hardware_event("cache-references", 2),
    hardware_event("cache-misses", 3),
    hardware_event("branches", 4),
    hardware_event("branch-misses", 5),
    hardware_event("bus-cycles", 6),
    hardware_event("stalled-cycles-frontend", 7),
    hardware_event("stalled-cycles-backend", 8),
    hardware_event("ref-cycles", 9),
    software_event("cpu-clock", 0, false),
    software_event("task-clock", 1, false),
    software_event("page-faults", 2, false),
    software_event("context-switches", 3, true),
    software_event("cpu-migrations", 4, true),
    software_event("minor-faults", 5, false),
    software_event("major-faults", 6, false),
    software_event("alignment-faults", 7, false),
    software_event("emulation-faults", 8, false),
];

impl PerfEvent {
    /// Returns the event of that name.
    pub fn from_name(name: &str) -> Option<&'static PerfEvent> {
        EVENTS.iter().find(|event| event.name == name)
    }
}

/// The most events that are counted together.
pub const EVENTS_MAX: usize = 12;

/// A thread's counters at one time: for how many nanoseconds they were enabled and for how many they counted, then a count
/// for each event.
#[derive(Clone, Copy, Debug, Default)]
pub struct CounterReading {
    words: [u64; 3 + EVENTS_MAX],
    length: usize,
}

impl CounterReading {
    /// Returns the two times and the counts.
    pub fn counter_words(&self) -> &[u64] {
        self.words.get(1..self.length).unwrap_or_default()
    }
}

/// Reads a thread's counters; valid while its [`Group`] lives.
#[derive(Clone, Copy, Debug)]
pub struct CounterReader {
    descriptor: i32,
    /// The kernel's number of the event: the program may close the descriptor and use its number again.
    #[cfg_attr(
        not(all(target_os = "linux", not(miri))),
        allow(dead_code, reason = "no counters exist on this platform")
    )]
    event: u64,
}

pub use kernel::Group;

#[cfg(all(target_os = "linux", not(miri)))]
mod kernel {
    use super::{CounterReader, CounterReading, EVENTS_MAX, PerfEvent, io};
    use crate::os::fork;
    use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

    /// The counters of the thread that created it. They count until it is dropped, which any thread may do.
    #[derive(Debug)]
    pub struct Group {
        /// The indexes of its descriptors in `OPEN`; the first is the group leader, which is read.
        places: Vec<usize>,
        born: u64,
    }

    /// Linux's `perf_event_attr`, in its first version.
    #[repr(C)]
    #[derive(Default)]
    struct PerfAttributes {
        kind: u32,
        size: u32,
        number: u64,
        sample_period: u64,
        sample_type: u64,
        read_format: u64,
        flags: u64,
        wakeup: u32,
        breakpoint: u32,
        more: u64,
    }

    const SIZE: u32 = 64;
    const _: () = assert!(size_of::<PerfAttributes>() == SIZE as usize);
    /// A reading holds the times for which the group was enabled and counted, and all of its counts.
    const READ_FORMAT: u64 = 1 | 1 << 1 | 1 << 3;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

    /// The open descriptors of the process, each plus 1; 0 is a free slot. A forked child closes its parent's descriptors,
    /// which would otherwise keep counting there.
    static OPEN: [AtomicI32; 4096] = [const { AtomicI32::new(0) }; 4096];

    /// The kernel's numbers of their events.
    static NUMBERS: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

    impl Group {
        /// Starts counting those of `events` that can be counted on the calling thread, and calls `refused` with the others.
        pub fn open_events(
            events: impl Iterator<Item = &'static PerfEvent>,
            refused: &mut dyn FnMut(&'static PerfEvent, io::Error),
        ) -> Group {
            let mut group = Group { places: Vec::with_capacity(EVENTS_MAX), born: fork::generation() };
            for event in events.take(EVENTS_MAX) {
                match group.add_event(event) {
                    Ok(place) => group.places.push(place),
                    Err(why) => refused(event, why),
                }
            }
            group
        }

        /// Returns its reader; `None` if it counts nothing.
        pub fn reader(&self) -> Option<CounterReader> {
            let at = *self.places.first()?;
            let (place, event) = (OPEN.get(at)?.load(Ordering::Relaxed), NUMBERS.get(at)?.load(Ordering::Relaxed));
            (place > 0).then_some(CounterReader { descriptor: place - 1, event })
        }

        fn add_event(&self, event: &PerfEvent) -> io::Result<usize> {
            let usable = OPEN.len().min(usable_descriptors());
            let free = OPEN.iter().take(usable).enumerate().find(|(_, place)| claim_slot(place));
            let (at, place) = free.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
            let leader = self.reader().map_or(-1, |reader| reader.descriptor);
            let opened = open_perf_event(event, leader);
            if let (Ok(descriptor), Some(number)) = (&opened, NUMBERS.get(at)) {
                number.store(event_number(*descriptor).unwrap_or(0), Ordering::Relaxed);
            }
            place.store(opened.as_ref().map_or(0, |descriptor| descriptor + 1), Ordering::Relaxed);
            opened.map(|_| at)
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            // In a forked child, the slots belong to other groups by now.
            if self.born == fork::generation() {
                // The leader is closed last.
                self.places.iter().rev().for_each(|at| close_slot(*at));
            }
        }
    }

    impl CounterReader {
        /// Reads the counters of the calling thread, which must own them.
        #[inline]
        pub fn read_counters(self) -> Option<CounterReading> {
            if event_number(self.descriptor) != Some(self.event) {
                return None;
            }
            let mut reading = CounterReading::default();
            let (words, bytes) = (reading.words.as_mut_ptr().cast(), size_of_val(&reading.words));
            // SAFETY: the kernel writes at most `bytes` bytes to `words`, which has that size.
            let read = unsafe { libc::read(self.descriptor, words, bytes) };
            reading.length = usize::try_from(read).ok().filter(|read| *read > 3 * size_of::<u64>())? / size_of::<u64>();
            Some(reading)
        }
    }

    /// Returns how many descriptors may be used: a quarter of the process's limit.
    fn usable_descriptors() -> usize {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for the result.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        usize::try_from(limit.rlim_cur / 4).unwrap_or(usize::MAX)
    }

    fn claim_slot(place: &AtomicI32) -> bool {
        place.compare_exchange(0, -1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn open_perf_event(event: &PerfEvent, leader: i32) -> io::Result<i32> {
        let attributes = PerfAttributes {
            kind: event.kind,
            size: SIZE,
            number: event.number,
            read_format: READ_FORMAT,
            // Counting inside the kernel needs privileges; it is excluded for all programs, so that counts are comparable.
            flags: EXCLUDE_HYPERVISOR | if event.in_kernel { 0 } else { EXCLUDE_KERNEL },
            ..PerfAttributes::default()
        };
        let (thread, processor) = (0 as libc::pid_t, -1 as libc::c_int);
        // SAFETY: `attributes` holds its own size and is only read; the other arguments are numbers.
        let descriptor = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, thread, processor, leader, CLOSE_ON_EXEC)
        };
        match i32::try_from(descriptor) {
            Ok(descriptor @ 0..) => Ok(descriptor),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the kernel's number of a counter's event; `None` if the descriptor is of another file.
    #[inline]
    fn event_number(descriptor: i32) -> Option<u64> {
        /// `PERF_EVENT_IOC_ID`, which is `_IOR('$', 7, __u64 *)`.
        const READ_ID: u64 = (2 << 30) | ((size_of::<*mut u64>() as u64) << 16) | (0x24 << 8) | 7;
        let mut number = 0_u64;
        // SAFETY: the call writes a number of that size, or fails.
        let failed = unsafe { libc::ioctl(descriptor, READ_ID as libc::Ioctl, &raw mut number) } != 0;
        (!failed).then_some(number)
    }

    fn close_slot(at: usize) {
        let (Some(place), Some(event)) = (OPEN.get(at), NUMBERS.get(at)) else { return };
        let event = event.load(Ordering::Relaxed);
        if let Some(descriptor @ 0..) = place.swap(0, Ordering::Relaxed).checked_sub(1)
            && event_number(descriptor) == Some(event)
        {
            // SAFETY: the descriptor was opened here, and only the thread that swaps it out of its slot closes it.
            unsafe { libc::close(descriptor) };
        }
    }

    /// Closes a forked child's copies of its parent's descriptors.
    pub fn close_all() {
        (0..OPEN.len()).for_each(close_slot);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
pub use kernel::close_all;

#[cfg(not(all(target_os = "linux", not(miri))))]
mod kernel {
    use super::{CounterReader, CounterReading, PerfEvent, io};

    /// No counters exist on this platform.
    #[derive(Debug)]
    pub struct Group;

    impl Group {
        /// Refuses all events.
        pub fn open_events(
            events: impl Iterator<Item = &'static PerfEvent>,
            refused: &mut dyn FnMut(&'static PerfEvent, io::Error),
        ) -> Group {
            events.for_each(|event| refused(event, io::ErrorKind::Unsupported.into()));
            Group
        }

        pub fn reader(&self) -> Option<CounterReader> {
            None
        }
    }

    impl CounterReader {
        pub fn read_counters(self) -> Option<CounterReading> {
            None
        }
    }
}

/// Does nothing on this platform.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn close_all() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for event in &EVENTS {
            assert!(std::ptr::eq(PerfEvent::from_name(event.name).unwrap(), event), "{}", event.name);
        }
        assert!(PerfEvent::from_name("warp-drives").is_none());
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn events_are_counted_or_refused_with_a_reason() {
        let mut refused = Vec::new();
        let group = Group::open_events(EVENTS[..EVENTS_MAX].iter(), &mut |event, why| refused.push((event.name, why)));
        assert!(refused.iter().all(|(_, why)| why.raw_os_error().is_some()), "{refused:?}");
        let Some(reader) = group.reader() else { return };
        let (first, second) = (reader.read_counters().unwrap(), reader.read_counters().unwrap());
        assert_eq!(first.counter_words().len(), 2 + EVENTS_MAX - refused.len());
        assert!(first.counter_words().iter().zip(second.counter_words()).all(|(first, second)| first <= second));
    }
}

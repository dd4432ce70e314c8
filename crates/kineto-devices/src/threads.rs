//! The threads that made calls, collected as the calls arrive.

use super::records::record::Thread;
use kineto_base::encoding::encoded;
use std::collections::HashSet;

/// The threads that made calls.
#[derive(Clone, Debug)]
pub struct Threads {
    all: HashSet<Thread>,
    /// The threads seen last, each at the index of its hash.
    recent: [Option<Thread>; RECENT],
}

const RECENT: usize = 64;

encoded! {
    Threads { all } + { recent: [None; RECENT] }
}

impl Default for Threads {
    fn default() -> Threads {
        Threads { all: HashSet::new(), recent: [None; RECENT] }
    }
}

impl Threads {
    /// Returns how many there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Adds a thread that made a call.
    #[inline]
    pub(super) fn add(&mut self, thread: Thread) {
        let number = match thread {
            Thread::Handle(handle) => u64::from(handle),
            Thread::Id(id) => id.cast_unsigned(),
        };
        // Fibonacci hashing spreads page-aligned values such as thread handles.
        let place = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - RECENT.ilog2());
        match self.recent.get_mut(usize::try_from(place).unwrap_or(0)) {
            Some(recent) if *recent == Some(thread) => {}
            recent => {
                self.all.insert(thread);
                if let Some(recent) = recent {
                    *recent = Some(thread);
                }
            }
        }
    }

    /// Returns each thread once, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Thread> + '_ {
        self.all.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_listed_once() {
        let mut threads = Threads::default();
        for round in 0..3 {
            for number in 0..1000_u32 {
                threads.add(Thread::Handle(number << 12));
                threads.add(Thread::Id(i64::from(number) - round));
            }
        }
        let mut ids: Vec<_> =
            threads.iter().filter_map(|it| if let Thread::Id(id) = it { Some(id) } else { None }).collect();
        ids.sort_unstable();
        assert_eq!(ids, (-2..1000).collect::<Vec<_>>());
        assert_eq!(threads.iter().count(), 1002 + 1000);
    }
}

//! How often the daemon is asked.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The time between two polls: as the settings say, else short while the daemon answers fast.
///
/// A daemon serves its host's processes one after the other, a hundred times a second. How long it takes to answer
/// tells how many there are, so that those of a large host ask less often.
#[derive(Debug)]
pub(super) struct Pace {
    fixed: Option<Duration>,
    /// How long the last two answers took: a single slow one tells nothing.
    latencies: [Duration; 2],
    random: RandomState,
    polls: u64,
}

/// The time that is waited where answers come at once, and where they take long.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);
/// A process may take that part of the daemon's time.
const SHARE: u32 = 50;

impl Pace {
    pub(super) fn new(fixed: Option<Duration>) -> Pace {
        Pace { fixed, latencies: [Duration::ZERO; 2], random: RandomState::new(), polls: 0 }
    }

    /// Goes by what the settings say now.
    pub(super) fn follow(&mut self, fixed: Option<Duration>) {
        self.fixed = fixed;
    }

    /// An answer has come after that time.
    pub(super) fn answered(&mut self, latency: Duration) {
        self.latencies = [latency, self.latencies[0]];
    }

    /// Returns how long to wait until the next poll: up to a tenth more or less than would be said, so that processes
    /// which were started together do not ask together for ever.
    pub(super) fn next(&mut self) -> Duration {
        let latency = self.latencies[0].min(self.latencies[1]);
        let usual = self.fixed.unwrap_or_else(|| (latency * SHARE).clamp(SHORTEST, LONGEST));
        self.polls += 1;
        let thousandths = u32::try_from(900 + self.random.hash_one(self.polls) % 201).unwrap_or(1000);
        usual * thousandths / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(pace: &mut Pace, usual: Duration) {
        let all: Vec<_> = (0..200).map(|_| pace.next()).collect();
        assert!(all.iter().all(|next| *next >= usual * 9 / 10 && *next <= usual * 11 / 10), "{all:?}");
        assert!(all.iter().any(|next| *next < usual) && all.iter().any(|next| *next > usual));
    }

    #[test]
    fn polls_are_as_far_apart_as_is_said_or_as_the_daemon_is_slow() {
        around(&mut Pace::new(Some(Duration::from_millis(40))), Duration::from_millis(40));
        let mut pace = Pace::new(None);
        around(&mut pace, SHORTEST);
        pace.answered(Duration::from_secs(100));
        around(&mut pace, SHORTEST);
        pace.answered(Duration::from_millis(50));
        around(&mut pace, Duration::from_millis(2500));
        pace.answered(Duration::from_secs(100));
        pace.answered(Duration::from_secs(100));
        around(&mut pace, LONGEST);
        pace.answered(Duration::from_millis(1));
        around(&mut pace, SHORTEST);
        pace.follow(Some(Duration::from_secs(60)));
        around(&mut pace, Duration::from_secs(60));
    }
}

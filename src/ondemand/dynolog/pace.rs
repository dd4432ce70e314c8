//! How often the daemon is polled.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The time between two polls: the configured interval, else short while the daemon answers fast.
///
/// A daemon serves its host's processes one after the other, a hundred times a second. Its latency shows how many there
/// are, so processes on a large host poll less often.
#[derive(Debug)]
pub(super) struct Pace {
    /// The configured interval.
    pub(super) fixed: Option<Duration>,
    /// The latency of the last two answers: a single slow one has no effect.
    latencies: [Duration; 2],
    random: RandomState,
    polls: u64,
}

/// The interval if answers arrive at once, and if they take long.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);
/// The inverse of the part of the daemon's time that a process may take.
const SHARE: u32 = 50;

impl Pace {
    pub(super) fn new(fixed: Option<Duration>) -> Pace {
        Pace { fixed, latencies: [Duration::ZERO; 2], random: RandomState::new(), polls: 0 }
    }

    /// Records the latency of an answer.
    pub(super) fn record_latency(&mut self, latency: Duration) {
        self.latencies = [latency, self.latencies[0]];
    }

    /// Returns the time until the next poll. It varies by up to a tenth, so that processes that were started together do not
    /// keep polling together.
    pub(super) fn next_interval(&mut self) -> Duration {
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
        let all: Vec<_> = (0..200).map(|_| pace.next_interval()).collect();
        assert!(all.iter().all(|next| *next >= usual * 9 / 10 && *next <= usual * 11 / 10), "{all:?}");
        assert!(all.iter().any(|next| *next < usual) && all.iter().any(|next| *next > usual));
    }

    #[test]
    fn interval_is_fixed_or_follows_the_latency() {
        around(&mut Pace::new(Some(Duration::from_millis(40))), Duration::from_millis(40));
        let mut pace = Pace::new(None);
        around(&mut pace, SHORTEST);
        pace.record_latency(Duration::from_secs(100));
        around(&mut pace, SHORTEST);
        pace.record_latency(Duration::from_millis(50));
        around(&mut pace, Duration::from_millis(2500));
        pace.record_latency(Duration::from_secs(100));
        pace.record_latency(Duration::from_secs(100));
        around(&mut pace, LONGEST);
        pace.record_latency(Duration::from_millis(1));
        around(&mut pace, SHORTEST);
        pace.fixed = Some(Duration::from_secs(60));
        around(&mut pace, Duration::from_secs(60));
    }
}

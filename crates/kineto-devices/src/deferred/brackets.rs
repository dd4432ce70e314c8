//! Bounds the offset between the host's clock and a device's by brackets.

/// Bounds on how far the host's clock is ahead of a device's. A bracket is work that began and ended on the device
/// between two readings of the host's clock. All times are in nanoseconds.
///
/// A bracket's bounds also hold at other times, loosened by the possible drift in between. So the bounds at a time
/// are the tightest of all brackets, each loosened by its distance.
#[derive(Clone, Debug, Default)]
pub(super) struct Brackets {
    least: BoundSet,
    /// The upper bounds, negated.
    most: BoundSet,
    seen: u64,
}

/// The bounds that no other bound implies, sorted by device time.
#[derive(Clone, Debug, Default)]
struct BoundSet(Vec<(u64, i64)>);

/// The most bounds that are kept. Beyond that, every second bound is dropped; the others remain valid.
const KEPT: usize = 4096;

impl Brackets {
    /// Adds a bracket: the device worked from `first` to `last`, between the host's `before` and `after`.
    pub(super) fn add(&mut self, [before, after]: [u64; 2], [first, last]: [u64; 2], drift_ppm: u32) {
        self.least.add((first, clock_offset(before, first)), drift_ppm);
        self.most.add((last, clock_offset(after, last).saturating_neg()), drift_ppm);
        self.seen += 1;
    }

    /// Returns the lower and upper bound of the offset at that device time; the lower exceeds the upper where
    /// brackets contradict each other. Returns `None` without brackets.
    pub(super) fn offset_limits(&self, at: u64, drift_ppm: u32) -> Option<(i64, i64)> {
        Some((self.least.bound_at(at, drift_ppm)?, self.most.bound_at(at, drift_ppm)?.saturating_neg()))
    }

    /// Returns the drift at which no brackets contradict each other: the given drift, doubled until it fits; `None`
    /// if none fits.
    pub(super) fn fitting_drift(&self, drift_ppm: u32) -> Option<u32> {
        const ALL: u32 = 1_000_000;
        let fits = |ppm: &u32| {
            self.bound_times().all(|at| self.offset_limits(at, *ppm).is_none_or(|(least, most)| least <= most))
        };
        let doubled = |ppm: &u32| (*ppm < ALL).then(|| ppm.saturating_mul(2).clamp(1, ALL));
        std::iter::successors(Some(drift_ppm.min(ALL)), doubled).find(fits)
    }

    /// Returns the times of all bounds: if bounds contradict each other anywhere, then at one of these.
    fn bound_times(&self) -> impl Iterator<Item = u64> + '_ {
        self.least.0.iter().chain(&self.most.0).map(|limit| limit.0)
    }

    /// Returns how many brackets were added.
    pub(super) fn bracket_count(&self) -> u64 {
        self.seen
    }
}

impl BoundSet {
    fn add(&mut self, limit: (u64, i64), drift_ppm: u32) {
        let BoundSet(limits) = self;
        let covers = |by: &(u64, i64), other: &(u64, i64)| loosen_bound(*by, other.0, drift_ppm) >= other.1;
        let at = limits.partition_point(|known| known.0 < limit.0);
        let (behind, ahead) = limits.split_at(at);
        if behind.last().into_iter().chain(ahead.first()).any(|known| covers(known, &limit)) {
            return;
        }
        let from = behind.iter().rposition(|known| !covers(&limit, known)).map_or(0, |last| last + 1);
        let to = ahead.iter().position(|known| !covers(&limit, known)).map_or(limits.len(), |first| at + first);
        limits.splice(from..to, [limit]);
        if limits.len() > KEPT {
            *limits = limits.iter().copied().step_by(2).collect();
        }
    }

    /// Returns the tightest bound at that time, which is one of the two neighbours: no bound follows from another.
    fn bound_at(&self, at: u64, drift_ppm: u32) -> Option<i64> {
        let next = self.0.partition_point(|limit| limit.0 <= at);
        let neighbours = next.checked_sub(1).and_then(|last| self.0.get(last)).into_iter().chain(self.0.get(next));
        neighbours.map(|limit| loosen_bound(*limit, at, drift_ppm)).max()
    }
}

/// Loosens a bound by the drift up to another time.
fn loosen_bound((from, limit): (u64, i64), at: u64, drift_ppm: u32) -> i64 {
    limit.saturating_sub_unsigned(drift_over(from.abs_diff(at), drift_ppm))
}

/// Returns how far clocks may drift apart in that many nanoseconds.
pub(super) fn drift_over(ns: u64, drift_ppm: u32) -> u64 {
    u64::try_from((u128::from(ns) * u128::from(drift_ppm)).div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Returns how far the host's clock is ahead of the device's.
fn clock_offset(host: u64, device: u64) -> i64 {
    let ahead = i128::from(host) - i128::from(device);
    i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A device whose clock drifts by that many ppm in each stretch of its time.
    struct Device<'d> {
        boot: u64,
        ahead: i64,
        stretch: u64,
        drifts: &'d [i32],
    }

    impl Device<'_> {
        /// Returns the offset at that device time, in whole nanoseconds that stay within the drift.
        fn ahead(&self, at: u64) -> i64 {
            let at = at - self.boot;
            let whole = usize::try_from(at / self.stretch).unwrap();
            let ppm = |nth: usize| i64::from(self.drifts[nth % self.drifts.len()]);
            let rest = i64::try_from(at % self.stretch).unwrap() * ppm(whole);
            let before: i64 = (0..whole).map(|nth| i64::try_from(self.stretch).unwrap() * ppm(nth)).sum();
            self.ahead + (before + rest).div_euclid(1_000_000)
        }
        fn host(&self, at: u64) -> u64 {
            at.checked_add_signed(self.ahead(at)).unwrap()
        }
    }

    proptest! {
        #[test]
        fn limits_contain_the_true_offset(
            ahead in -40_000_000_000_000_i64..1_800_000_000_000_000_000,
            drifts in vec(-200..=200_i32, 1..6),
            work in vec((0..2_000_000_000_u64, 0..5_000_000_u64, 0..400_000_u64, 0..400_000_u64), 1..60),
            asked in vec(0..3_000_000_000_u64, 1..30),
        ) {
            let boot = 50_000_000_000_000;
            let device = Device { boot, ahead, stretch: 300_000_000, drifts: &drifts };
            let mut brackets = Brackets::default();
            for (start, length, delay, late) in work {
                let (first, last) = (boot + start, boot + start + length);
                // A nanosecond for rounding.
                let host = [device.host(first) - delay - 1, device.host(last) + late + 1];
                brackets.add(host, [first, last], 200);
            }
            prop_assert_eq!(brackets.fitting_drift(200), Some(200));
            for at in asked.into_iter().map(|at| boot + at) {
                let (least, most) = brackets.offset_limits(at, 200).unwrap();
                let truth = device.ahead(at);
                prop_assert!(least - 1 <= truth && truth <= most + 1, "{least} <= {truth} <= {most}");
            }
        }

        #[test]
        fn dropped_limits_were_redundant(
            limits in vec((0..1000_u64, -50..50_i64), 1..100), asked in 0..1000_u64, ppm in 0..500_000_u32,
        ) {
            let mut tents = BoundSet::default();
            limits.iter().for_each(|limit| tents.add(*limit, ppm));
            let all = limits.iter().map(|limit| loosen_bound(*limit, asked, ppm)).max();
            // Each distance is rounded separately.
            let found = tents.bound_at(asked, ppm).unwrap();
            prop_assert!(found <= all.unwrap() && all.unwrap() - found <= 1, "{found} for {all:?}");
        }
    }

    #[test]
    fn excess_drift_is_detected_and_allowed_for() {
        let mut brackets = Brackets::default();
        // A thousandth too fast, bracketed to within 10 microseconds ten times a second.
        for nth in 0..10_u64 {
            let device = 5_000_000 + nth * 100_000_000;
            let host = 1_000_000_000 + nth * 100_100_000;
            brackets.add([host - 5000, host + 5000 + 1000], [device, device + 1000], 100);
        }
        let fitting = brackets.fitting_drift(100).unwrap();
        assert!((800..=1600).contains(&fitting), "{fitting}");
        let (least, most) = brackets.offset_limits(5_000_000 + 900_000_000, fitting).unwrap();
        assert!(least <= 995_900_000 && 995_900_000 <= most, "{least} {most}");
        brackets.add([0, 1], [5_000_000, 5_000_001], 100);
        assert_eq!(brackets.fitting_drift(100), None, "the bounds contradict each other at the same time");
    }

    #[test]
    fn number_of_limits_is_bounded() {
        let mut brackets = Brackets::default();
        for nth in 0..3 * KEPT as u64 {
            // Each is as tight as possible, and none follows from another.
            let at = nth * 1_000_000;
            brackets.add([at, at], [at + nth % 2 * 500, at + nth % 2 * 500], 0);
        }
        assert!(brackets.least.0.len() <= KEPT && brackets.most.0.len() <= KEPT);
        assert_eq!((brackets.bracket_count(), Brackets::default().offset_limits(0, 0)), (3 * KEPT as u64, None));
    }
}

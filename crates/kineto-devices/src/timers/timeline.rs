//! Places the events of a stream: distances by the device's clock, the offset by the host's.

use super::timer::Token;
use kineto_base::sorted::SortedMap;
use kineto_base::sorting::sort_in_place_by_key;
use std::time::Duration;

/// An event of a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimelineMark {
    pub(super) token: Token,
    /// The index of the event in the recording.
    pub(super) nth: u64,
    /// When the host began to record it, in nanoseconds of CLOCK_REALTIME: the device reached it later.
    pub(super) host: u64,
}

/// The two events around a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) slice: u64,
    pub(super) first: TimelineMark,
    pub(super) last: TimelineMark,
}

/// A span on its stream, in nanoseconds of CLOCK_REALTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedSpan {
    pub(super) slice: u64,
    pub(super) device: i32,
    pub(super) stream: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Some libraries return distances as 32-bit floats, which are exact to a few nanoseconds up to this distance.
const FAR_NS: i64 = 50_000_000;

/// Measures spans by `elapsed`; leaves out those whose events cannot be compared.
///
/// All events of a stream are measured from a common event, so their distances are those on the device. The offset
/// from the host's clock is unknown: the stream is placed as early as possible, with no event before the call that
/// recorded it. The remaining error is the shortest time that an event took to reach the device.
pub(super) fn measure_spans(pairs: &[Pair], elapsed: impl Fn(Token, Token) -> Option<Duration>) -> Vec<TimedSpan> {
    let mut streams: SortedMap<(i32, u32), Vec<&Pair>> = SortedMap::new();
    for pair in pairs {
        let place = |mark: &TimelineMark| (mark.token.device, mark.token.stream);
        if place(&pair.first) == place(&pair.last) {
            streams.get_or_insert_with(place(&pair.first), Default::default).push(pair);
        }
    }
    let mut timed = Vec::with_capacity(pairs.len());
    for ((device, stream), pairs) in streams {
        let (event_positions, ahead) = event_positions(&pairs, &elapsed);
        let at = |mark: &TimelineMark| u64::try_from(ahead.saturating_add(*event_positions.get(&mark.nth)?)).ok();
        timed.extend(pairs.iter().filter_map(|pair| {
            let (start, end) = (at(&pair.first)?, at(&pair.last)?);
            (start <= end).then_some(TimedSpan { slice: pair.slice, device, stream, start, end })
        }));
    }
    timed
}

/// Returns the position of each event relative to the first, and the offset of that from the host's clock.
fn event_positions(pairs: &[&Pair], elapsed: impl Fn(Token, Token) -> Option<Duration>) -> (SortedMap<u64, i64>, i64) {
    let mut marks: Vec<&TimelineMark> = pairs.iter().flat_map(|pair| [&pair.first, &pair.last]).collect();
    sort_in_place_by_key(&mut marks, |mark| mark.nth);
    let ns = |from, to| elapsed(from, to).and_then(|time| i64::try_from(time.as_nanos()).ok());
    let (mut event_positions, mut ahead) = (SortedMap::new(), i64::MIN);
    let mut base: Option<(Token, i64)> = None;
    for mark in marks {
        let (from, begun) = base.unwrap_or((mark.token, 0));
        // Threads that share a stream may reach it in another order than the list.
        let Some(after) = ns(from, mark.token).or_else(|| ns(mark.token, from).map(|before| -before)) else { continue };
        let at = begun.saturating_add(after);
        if base.is_none() || after > FAR_NS {
            base = Some((mark.token, at));
        }
        ahead = ahead.max(i64::try_from(mark.host).unwrap_or(i64::MAX).saturating_sub(at));
        event_positions.insert(mark.nth, at);
    }
    (event_positions, ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a pair of events at these device times, each with the host's time of its recording.
    fn pair(slice: u64, [first, last]: [(u64, u64, u64); 2]) -> Pair {
        let mark = |(nth, id, host)| TimelineMark { token: Token { id, device: 0, stream: 7 }, nth, host };
        Pair { slice, first: mark(first), last: mark(last) }
    }

    /// The device time is an event's id; event 13 cannot be measured.
    fn elapsed_by_id(from: Token, to: Token) -> Option<Duration> {
        (from.id != 13 && to.id != 13).then(|| to.id.checked_sub(from.id).map(Duration::from_nanos))?
    }

    fn intervals(pairs: &[Pair]) -> Vec<(u64, u64, u64)> {
        measure_spans(pairs, elapsed_by_id).iter().map(|timed| (timed.slice, timed.start, timed.end)).collect()
    }

    #[test]
    fn spans_keep_device_distances_after_their_calls() {
        // The device's clock is 900 behind. The inner event arrives 5 after its recording, all others later.
        let inner = pair(2, [(2, 105, 1000), (3, 125, 1001)]);
        let outer = pair(1, [(1, 101, 990), (4, 131, 1002)]);
        assert_eq!(intervals(&[inner, outer]), [(2, 1000, 1020), (1, 996, 1026)]);
    }

    #[test]
    fn events_of_threads_may_be_out_of_order() {
        let one = pair(1, [(1, 200, 1000), (4, 230, 1000)]);
        let other = pair(2, [(2, 150, 1000), (3, 190, 1000)]);
        assert_eq!(intervals(&[one, other]), [(1, 1050, 1080), (2, 1000, 1040)]);
    }

    #[test]
    fn unmeasurable_spans_are_left_out() {
        let moved = Pair {
            last: TimelineMark { token: Token { id: 9, device: 0, stream: 8 }, nth: 2, host: 5 },
            ..pair(1, [(1, 1, 1); 2])
        };
        let broken = pair(2, [(3, 13, 10), (4, 20, 10)]);
        let good = pair(3, [(5, 30, 20), (6, 40, 20)]);
        let backwards = pair(4, [(7, 60, 20), (8, 50, 20)]);
        assert_eq!(intervals(&[moved, broken, good, backwards]), [(3, 20, 30)]);
        assert!(intervals(&[]).is_empty());
    }

    #[test]
    fn long_recordings_are_measured_stepwise() {
        let far = FAR_NS.unsigned_abs();
        let pairs: Vec<Pair> = (0..5)
            .map(|n| pair(n, [(2 * n, n * 2 * far, n * 2 * far), (2 * n + 1, n * 2 * far + 7, n * 2 * far)]))
            .collect();
        let near =
            |from: Token, to: Token| elapsed_by_id(from, to).filter(|time| time.as_nanos() <= u128::from(3 * far));
        let timed = measure_spans(&pairs, near);
        assert_eq!(
            timed.iter().map(|timed| (timed.start, timed.end - timed.start)).collect::<Vec<_>>(),
            (0..5).map(|n| (n * 2 * far, 7)).collect::<Vec<_>>()
        );
    }
}

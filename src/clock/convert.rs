//! Converts ticks to nanoseconds since the Unix epoch, by the anchors of a session.

use super::Anchor;
use crate::encoding::{encoded, encoded_as};
use crate::time::{Ticks, Timestamp};

/// The converter of a trace: piecewise linear between the anchors, extrapolated after the last.
///
/// If CLOCK_REALTIME and the monotonic clock differ between two anchors by more than the brackets and NTP's slewing allow,
/// the clock that fits the counter's rate determines the slope. So a step of CLOCK_REALTIME, or a suspend, changes no
/// duration.
#[derive(Clone, Debug)]
pub(crate) struct Converter {
    pieces: Vec<Piece>,
    error_ns: u64,
    steps: u32,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    from: u64,
    unix_ns: u64,
    /// Nanoseconds per tick, with 32 fractional bits.
    ns_per_tick: u64,
}

/// Converts ticks with a cache of the last piece: successive ticks usually lie in the same one.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'c> {
    pieces: &'c [Piece],
    piece: Piece,
    /// The number of ticks for which the piece is valid; 0 before the first use.
    length: u64,
}

encoded! {
    Piece { from, unix_ns, ns_per_tick }
}

encoded_as! {
    Converter as (Vec<Piece>, (u64, u32)): |converter| {
        (converter.pieces.clone(), (converter.error_ns, converter.steps))
    }, |(pieces, (error_ns, steps))| {
        let is_valid = pieces.is_sorted_by_key(|piece| piece.from) && pieces.iter().all(|piece| piece.ns_per_tick != 0);
        is_valid.then_some(Converter { pieces, error_ns, steps })
    };
}

impl Converter {
    /// Creates the converter of a session's anchors; without any, all times are 0.
    pub(crate) fn new(anchors: Vec<Anchor>) -> Converter {
        Converter::from_anchors(anchors, Anchor::ticks)
    }

    /// Creates the converter of a process that has ended, whose records had times of the counter if `by_counter`.
    pub(crate) fn of_other_process(anchors: Vec<Anchor>, by_counter: bool) -> Converter {
        Converter::from_anchors(anchors, if by_counter { |anchor| anchor.counter } else { |anchor| anchor.monotonic })
    }

    /// Creates a converter of ticks that are nanoseconds since the Unix epoch.
    pub(crate) fn of_nanoseconds() -> Converter {
        Converter { pieces: vec![Piece { from: 0, unix_ns: 0, ns_per_tick: 1 << 32 }], error_ns: 0, steps: 0 }
    }

    fn from_anchors(mut anchors: Vec<Anchor>, ticks: fn(&Anchor) -> Ticks) -> Converter {
        // A thread that is pre-empted between reading the clocks and storing the anchor stores it after a later one.
        anchors.sort_by_key(ticks);
        let mut converter = Converter { pieces: Vec::with_capacity(anchors.len()), error_ns: 0, steps: 0 };
        let rate = AnchorInterval::tick_rate(&anchors, ticks);
        let mut slope = rate;
        for passed in AnchorInterval::from_anchors(&anchors, ticks) {
            let found = if passed.clocks_agree(rate) { Some(passed.unix) } else { passed.likeliest_duration(rate) };
            converter.steps += u32::from(found != Some(passed.unix));
            slope = found.map_or(Some(rate), |ns| fixed_point_ratio(ns, passed.ticks)).unwrap_or(slope);
            converter.push_piece(passed.at, ticks(passed.at), slope);
        }
        if let Some(last) = anchors.last() {
            converter.push_piece(last, ticks(last), slope);
        }
        converter
    }

    fn push_piece(&mut self, at: &Anchor, from: Ticks, ns_per_tick: u64) {
        self.error_ns = self.error_ns.max(ticks_to_nanos(at.error_ticks, ns_per_tick) + 1);
        self.pieces.push(Piece { from: from.0, unix_ns: at.unix.as_nanos(), ns_per_tick });
    }

    /// Returns the time of a tick. The order of ticks is preserved, except across a step of the clock.
    pub(crate) fn timestamp_of(&self, ticks: Ticks) -> Timestamp {
        Cursor::new(self).timestamp_of(ticks)
    }

    /// Returns the first tick at or after a time, between the anchors; if a step of the clock skips the time, the tick of the
    /// step.
    pub(crate) fn ticks_at(&self, at: Timestamp) -> Ticks {
        let ends = self.pieces.iter().skip(1).map(|next| next.from).chain([u64::MAX]);
        let reached = |piece: &Piece| {
            let left = at.as_nanos().saturating_sub(piece.unix_ns);
            let ticks = (u128::from(left) << 32).div_ceil(u128::from(piece.ns_per_tick));
            piece.from.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
        };
        let found =
            self.pieces.iter().zip(ends).map(|(piece, end)| (reached(piece), end)).find(|(tick, end)| tick < end);
        Ticks(found.map_or(u64::MAX, |(tick, _)| tick))
    }

    /// Returns the largest error relative to CLOCK_REALTIME, in nanoseconds: half the widest bracket.
    pub(crate) fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// Returns how often CLOCK_REALTIME was stepped during the session.
    pub(crate) fn clock_steps(&self) -> u32 {
        self.steps
    }
}

/// The time between two successive anchors, in nanoseconds of each clock and in ticks.
struct AnchorInterval<'a> {
    at: &'a Anchor,
    unix: u64,
    monotonic: u64,
    ticks: u64,
    /// The width of both brackets together, in ticks: the clocks may have been read that far apart.
    width: u64,
}

impl<'a> AnchorInterval<'a> {
    fn from_anchors(anchors: &'a [Anchor], ticks: fn(&Anchor) -> Ticks) -> impl Iterator<Item = AnchorInterval<'a>> {
        let passed = move |(at, next): (&'a Anchor, &Anchor)| AnchorInterval {
            at,
            unix: next.unix.since(at.unix),
            monotonic: next.monotonic.0.saturating_sub(at.monotonic.0),
            ticks: ticks(next).0.saturating_sub(ticks(at).0),
            width: 2 * (at.error_ticks + next.error_ticks),
        };
        anchors.iter().zip(anchors.iter().skip(1)).map(passed)
    }

    /// Returns the rate of the counter: from all pieces in which the clocks agree, else from the monotonic clock, else 1 ns a
    /// tick.
    fn tick_rate(anchors: &'a [Anchor], ticks: fn(&Anchor) -> Ticks) -> u64 {
        let sum = |agreeing: Option<u64>| {
            let pieces = AnchorInterval::from_anchors(anchors, ticks)
                .filter(|piece| agreeing.is_none_or(|rate| piece.clocks_agree(rate)));
            let add = |(ns, ticks): (u64, u64), piece: AnchorInterval<'_>| (ns + piece.monotonic, ticks + piece.ticks);
            let (ns, ticks) = pieces.fold((0, 0), add);
            fixed_point_ratio(ns, ticks)
        };
        let about = sum(None);
        about.and_then(|about| sum(Some(about))).or(about).unwrap_or(1 << 32)
    }

    /// Returns the largest difference of two clocks: twice that of NTP, which slews by at most 500 ppm.
    fn tolerance(&self, rate: u64) -> u64 {
        self.monotonic / 1000 + ticks_to_nanos(self.width, rate)
    }

    /// Returns whether CLOCK_REALTIME and the monotonic clock agree: no step, no suspend.
    fn clocks_agree(&self, rate: u64) -> bool {
        self.unix.abs_diff(self.monotonic) <= self.tolerance(rate)
    }

    /// Returns the duration by the clock that fits the counter's rate: CLOCK_REALTIME if the machine was suspended with a
    /// running counter, the monotonic clock if CLOCK_REALTIME was stepped. `None` if neither fits.
    fn likeliest_duration(&self, rate: u64) -> Option<u64> {
        let expected = ticks_to_nanos(self.ticks, rate);
        let fits = |ns: &u64| ns.abs_diff(expected) <= expected / 1000 + ticks_to_nanos(self.width, rate);
        [self.unix, self.monotonic].into_iter().find(fits)
    }
}

impl<'c> Cursor<'c> {
    pub(crate) fn new(converter: &'c Converter) -> Cursor<'c> {
        Cursor { pieces: &converter.pieces, piece: Piece { from: 0, unix_ns: 0, ns_per_tick: 0 }, length: 0 }
    }

    /// Returns the same as [`Converter::timestamp_of`].
    #[inline]
    pub(crate) fn timestamp_of(&mut self, ticks: Ticks) -> Timestamp {
        let Piece { from, .. } = self.piece;
        if ticks.0.wrapping_sub(from) >= self.length {
            return self.seek_piece(ticks);
        }
        Timestamp::from_nanos(self.piece.unix_ns.saturating_add(ticks_to_nanos(ticks.0 - from, self.piece.ns_per_tick)))
    }

    #[cold]
    fn seek_piece(&mut self, ticks: Ticks) -> Timestamp {
        let after = self.pieces.partition_point(|piece| piece.from <= ticks.0);
        let Some(piece) = self.pieces.get(after.saturating_sub(1)) else { return Timestamp::default() };
        if ticks.0 < piece.from {
            let before = ticks_to_nanos(piece.from - ticks.0, piece.ns_per_tick);
            return Timestamp::from_nanos(piece.unix_ns.saturating_sub(before));
        }
        self.piece = *piece;
        self.length = self.pieces.get(after).map_or(u64::MAX, |next| next.from) - piece.from;
        Timestamp::from_nanos(piece.unix_ns.saturating_add(ticks_to_nanos(ticks.0 - piece.from, piece.ns_per_tick)))
    }
}

/// Returns `ns / ticks` with 32 fractional bits; `None` if the bracket is too short, or the ratio absurd.
fn fixed_point_ratio(ns: u64, ticks: u64) -> Option<u64> {
    let slope = (u128::from(ns) << 32).checked_div(u128::from(ticks))?;
    u64::try_from(slope).ok().filter(|slope| *slope != 0)
}

#[inline]
fn ticks_to_nanos(ticks: u64, ns_per_tick: u64) -> u64 {
    const HALF: u128 = 1 << 31;
    u64::try_from((u128::from(ticks) * u128::from(ns_per_tick) + HALF) >> 32).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tick::read_counter;
    use super::*;
    use crate::encoding::Encoded;
    use kineto_trace::fallible::List;

    fn anchor(ticks: u64, monotonic_ns: u64, unix_ns: u64) -> Anchor {
        let (counter, monotonic) = (Ticks(ticks), Ticks(monotonic_ns));
        Anchor { counter, monotonic, unix: Timestamp::from_nanos(unix_ns), error_ticks: 30 }
    }
    fn converter(anchors: &[Anchor]) -> Converter {
        Converter::from_anchors(anchors.to_vec(), |anchor| anchor.counter)
    }
    fn at(converter: &Converter, ticks: u64) -> u64 {
        converter.timestamp_of(Ticks(ticks)).as_nanos()
    }

    #[test]
    fn conversion_is_linear_between_anchors() {
        let c = converter(&[anchor(1000, 0, 5_000_000), anchor(4000, 1000, 5_001_000)]);
        assert_eq!(
            (at(&c, 1000), at(&c, 2500), at(&c, 4000), at(&c, 7000)),
            (5_000_000, 5_000_500, 5_001_000, 5_002_000)
        );
        assert_eq!(c.clock_steps(), 0);
        // 30 ticks of a third of a nanosecond, and the rounding.
        assert_eq!((c.error_ns(), converter(&[]).error_ns()), (11, 0));
    }

    #[test]
    fn one_cursor_gives_the_times_of_all_pieces_in_any_order() {
        let c = converter(&[anchor(1000, 0, 5_000_000), anchor(4000, 1000, 5_001_000), anchor(8000, 3000, 5_003_000)]);
        let ticks = [1000, 1003, 3999, 4000, 4002, 9000, 700, 1006, 4001].map(Ticks);
        let mut cursor = Cursor::new(&c);
        assert_eq!(ticks.map(|ticks| cursor.timestamp_of(ticks)), ticks.map(|ticks| c.timestamp_of(ticks)));
        let mut cursor = Cursor::new(&c);
        cursor.timestamp_of(Ticks(1000));
        assert_eq!(cursor.timestamp_of(Ticks(1300)).as_nanos(), 5_000_100);
    }

    #[test]
    fn conversion_extrapolates_before_the_first_anchor() {
        let c = converter(&[anchor(1000, 0, 5_000_000), anchor(4000, 1000, 5_001_000)]);
        assert_eq!(at(&c, 700), 4_999_900);
    }

    #[test]
    fn anchors_may_come_in_any_order() {
        let ordered = [anchor(1000, 0, 5_000_000), anchor(4000, 1000, 5_001_000), anchor(8000, 3000, 5_003_000)];
        let [first, second, third] = ordered;
        for anchors in [ordered, [first, third, second], [third, second, first]] {
            let c = converter(&anchors);
            let mut stored = List::new();
            c.encode(&mut stored);
            let stored = Converter::decode(&mut &stored[..]).expect("a segment with this clock can be read");
            for ticks in [700, 1000, 2500, 4000, 6000, 8000, 9000] {
                assert_eq!([&c, &stored].map(|c| at(c, ticks)), [at(&converter(&ordered), ticks); 2], "{anchors:?}");
            }
            assert_eq!(c.clock_steps(), 0);
        }
    }

    #[test]
    fn drift_is_followed_and_a_step_starts_a_new_piece() {
        let second = 1_000_000_000;
        let c = converter(&[
            anchor(0, 0, 10 * second),
            anchor(second, second, 11 * second + 400_000),
            anchor(2 * second, 2 * second, 72 * second),
            anchor(3 * second, 3 * second, 73 * second),
        ]);
        assert_eq!(c.clock_steps(), 1);
        assert_eq!(at(&c, second / 2), 10 * second + 500_200_000, "the drift is spread over the piece");
        let before = at(&c, 2 * second - 10);
        assert!((12 * second..13 * second).contains(&before), "the old time continues until the step: {before}");
        assert_eq!(at(&c, 2 * second), 72 * second);
    }

    #[test]
    fn step_back_is_detected() {
        let second = 1_000_000_000;
        let c = converter(&[anchor(0, 0, 10 * second), anchor(second, second, 5 * second)]);
        assert_eq!((c.clock_steps(), at(&c, second / 2), at(&c, second)), (1, 10 * second + second / 2, 5 * second));
    }

    #[test]
    fn small_step_changes_no_duration() {
        // 10 ms during which CLOCK_REALTIME is set forward by 0.9 ms, on a counter of 3 GHz.
        let c = converter(&[anchor(0, 0, 5_000_000), anchor(30_000_000, 10_000_000, 15_900_000)]);
        assert_eq!((c.clock_steps(), at(&c, 27_000_000) - at(&c, 3_000_000)), (1, 8_000_000));
        // A difference within the brackets (40 ns) and the slewing (100 ns) is no step, and a larger one is.
        let steps =
            |ns: u64| converter(&[anchor(0, 0, 5_000_000), anchor(300_000, 100_000, 5_100_000 + ns)]).clock_steps();
        assert_eq!([15, 140, 141].map(steps), [0, 0, 1]);
    }

    /// A machine whose clocks are read each second.
    struct Machine {
        anchors: Vec<Anchor>,
        counter: u64,
        monotonic: u64,
        unix: u64,
    }

    impl Machine {
        const RATE: u64 = 3;

        fn new() -> Machine {
            let mut machine = Machine { anchors: Vec::new(), counter: 7, monotonic: 1, unix: 1 << 60 };
            machine.passes([0; 3]);
            machine
        }

        /// Advances the counter, the monotonic clock and CLOCK_REALTIME, in nanoseconds.
        fn passes(&mut self, [counter, monotonic, unix]: [u64; 3]) {
            self.counter += counter * Machine::RATE;
            self.monotonic += monotonic;
            self.unix += unix;
            self.anchors.push(anchor(self.counter, self.monotonic, self.unix));
        }

        /// The duration of a millisecond in the middle of each second, in nanoseconds.
        fn milliseconds(&self) -> (Vec<u64>, u32) {
            let c = converter(&self.anchors);
            let middles = self.anchors.windows(2).map(|pair| pair[0].counter.0 + 400_000_000 * Machine::RATE);
            let spans = middles.map(|middle| at(&c, middle + 1_000_000 * Machine::RATE) - at(&c, middle));
            (spans.collect(), c.clock_steps())
        }
    }

    #[test]
    fn durations_hold_through_steps_and_suspends() {
        const SECOND: u64 = 1_000_000_000;
        let changes = [
            ("a step", [SECOND, SECOND, 61 * SECOND]),
            ("a small step", [SECOND, SECOND, SECOND + 2_500_000]),
            ("a suspend with a running counter", [3600 * SECOND, SECOND, 3600 * SECOND]),
            ("a suspend that stops the counter", [SECOND, SECOND, 3600 * SECOND]),
            ("a suspend with a counter that begins anew, as far as it got", [2 * SECOND, SECOND, 3600 * SECOND]),
        ];
        for (what, change) in changes {
            let mut machine = Machine::new();
            [[SECOND; 3], [SECOND; 3], change, [SECOND; 3]].into_iter().for_each(|time| machine.passes(time));
            let (spans, _) = machine.milliseconds();
            assert!(spans.iter().all(|span| span.abs_diff(1_000_000) <= 1_000), "{what}: {spans:?}");
        }
    }

    #[test]
    fn clocks_that_agree_outweigh_the_counter() {
        const SECOND: u64 = 1_000_000_000;
        let mut machine = Machine::new();
        // As after a move to a machine whose counter is twice as fast, while NTP slews.
        let moved = [2 * SECOND, SECOND, SECOND + 400_000];
        [[SECOND; 3], [SECOND; 3], moved, [SECOND; 3]].into_iter().for_each(|time| machine.passes(time));
        assert_eq!(machine.milliseconds(), (vec![1_000_000, 1_000_000, 500_200, 1_000_000], 0));
    }

    #[test]
    fn duration_tolerance_grows_with_the_duration() {
        let interval = |unix, monotonic| {
            let at = anchor(0, 0, 0);
            AnchorInterval { at: &at, unix, monotonic, ticks: 1_000_000_000, width: 0 }.likeliest_duration(1 << 32)
        };
        assert_eq!(interval(1_000_900_000, 7), Some(1_000_900_000));
        assert_eq!(interval(1_001_100_000, 999_100_000), Some(999_100_000));
        assert_eq!(interval(1_001_100_000, 998_900_000), None);
    }

    #[test]
    fn ordered_ticks_give_ordered_times() {
        let anchors: Vec<_> = (0..50u64).map(|i| anchor(i * 2_600_000, i * 1_000_000, i * 1_000_000 + i % 7)).collect();
        let c = converter(&anchors);
        let times: Vec<_> = (0..130_000_000u64).step_by(1009).map(|t| at(&c, t)).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn tick_of_a_time_is_the_first_at_or_after_it() {
        let second = 1_000_000_000;
        let c = converter(&[
            anchor(1_000, 0, 10 * second),
            anchor(1_000 + 3 * second, second, 11 * second),
            anchor(1_000 + 6 * second, 2 * second, 72 * second),
        ]);
        for ns in [10 * second, 10 * second + 1, 10 * second + 333_333_333, 11 * second + 5, 72 * second, 80 * second] {
            let tick = c.ticks_at(Timestamp::from_nanos(ns));
            assert_eq!(c.timestamp_of(tick).as_nanos(), ns, "{tick:?}");
            assert!(tick.0 == 1_000 || c.timestamp_of(Ticks(tick.0 - 1)).as_nanos() <= ns);
        }
        let stepped_over = c.ticks_at(Timestamp::from_nanos(30 * second));
        assert_eq!(stepped_over, Ticks(1_000 + 6 * second));
        assert_eq!(c.ticks_at(Timestamp::from_nanos(5 * second)), Ticks(1_000));
        assert_eq!(converter(&[]).ticks_at(Timestamp::default()), Ticks(u64::MAX));
        let back = converter(&[anchor(0, 0, 10 * second), anchor(second, second, 5 * second)]);
        assert_eq!(back.ticks_at(Timestamp::from_nanos(10 * second + 7)), Ticks(7), "the first time that it is so");
        assert_eq!(back.ticks_at(Timestamp::from_nanos(11 * second)), Ticks(7 * second), "the step has skipped it");
    }

    #[test]
    fn degenerate_sessions_do_not_divide_by_zero() {
        assert_eq!(at(&converter(&[]), 5), 0);
        assert_eq!(at(&converter(&[anchor(7, 7, 100)]), 9), 102);
        assert_eq!(at(&converter(&[anchor(7, 7, 100), anchor(7, 7, 100)]), 9), 102);
    }

    #[test]
    fn anchor_lies_between_readings_around_it() {
        for _ in 0..1000 {
            let before = read_counter();
            let anchor = Anchor::read_clocks();
            let after = read_counter();
            let error = anchor.error_ticks - 1;
            assert!(anchor.counter.0 - error >= before.0 && anchor.counter.0 + error <= after.0, "{anchor:?}");
        }
    }

    #[test]
    fn real_anchor_is_within_its_error() {
        let first = Anchor::read_clocks();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let anchors = [first, Anchor::read_clocks()];
        for ticks in [Anchor::ticks, |anchor| anchor.counter, |anchor| anchor.monotonic] as [fn(&Anchor) -> Ticks; 3] {
            let c = Converter::from_anchors(anchors.to_vec(), ticks);
            assert!(c.timestamp_of(ticks(&first)).as_nanos().abs_diff(first.unix.as_nanos()) <= 1);
            assert!(c.error_ns() > 0);
        }
    }
}

//! Converts ticks to nanoseconds since the Unix epoch, by the anchors of a session.

use super::Anchor;
use crate::encoding::{encoded, encoded_as};
use crate::fallible::List;
use crate::time::{Ticks, Timestamp};

/// The converter of a trace: piecewise linear between the anchors, extrapolated after the last.
///
/// If CLOCK_REALTIME and the monotonic clock differ between two anchors by more than the brackets and NTP's slewing allow,
/// the clock that fits the counter's rate determines the slope. So a step of CLOCK_REALTIME, or a suspend, changes no
/// duration, unless the suspend resets the counter. A step is taken to happen at the anchor after it, and times repeat after a step back.
#[derive(Clone, Debug)]
pub struct Converter {
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

/// Ticks that lie in one piece.
struct PieceTicks<'c> {
    piece: &'c Piece,
    next: Option<&'c Piece>,
    from: u64,
    to: u64,
}

/// Converts ticks with a cache of the last piece: successive ticks usually lie in the same one.
#[derive(Clone, Debug)]
pub struct Cursor<'c> {
    converter: &'c Converter,
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
    pub fn new(anchors: Vec<Anchor>) -> Converter {
        Converter::from_anchors(anchors, Anchor::ticks)
    }

    /// Creates the converter of a process that has ended, whose records had times of the counter if `by_counter`.
    pub fn of_other_process(anchors: Vec<Anchor>, by_counter: bool) -> Converter {
        Converter::from_anchors(anchors, if by_counter { |anchor| anchor.counter } else { |anchor| anchor.monotonic })
    }

    /// Creates a converter of ticks that are nanoseconds since the Unix epoch.
    pub fn of_nanoseconds() -> Converter {
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
            converter.steps += u32::from(found != Some(passed.unix) || passed.goes_back);
            slope = found.map_or(Some(rate), |ns| fixed_point_ratio(ns, passed.ticks)).unwrap_or(slope);
            converter.push_piece(passed.at, ticks(passed.at), slope);
        }
        if let Some(last) = anchors.last() {
            converter.push_piece(last, ticks(last), slope);
        }
        converter
    }

    fn push_piece(&mut self, at: &Anchor, from: Ticks, ns_per_tick: u64) {
        self.error_ns = self.error_ns.max(ticks_to_nanos(at.error_ticks, ns_per_tick).saturating_add(1));
        self.pieces.push(Piece { from: from.0, unix_ns: at.unix.as_nanos(), ns_per_tick });
    }

    /// Returns the time of a tick. The order of ticks is preserved, except across a step of the clock.
    pub fn timestamp_of(&self, ticks: Ticks) -> Timestamp {
        Cursor::new(self).timestamp_of(ticks)
    }

    /// Returns the start and the end of a slice, whose duration is that of its ticks, also across a step of the clock.
    pub fn slice_times(&self, start: Ticks, end: Ticks) -> (Timestamp, Timestamp) {
        let at = self.timestamp_of(start);
        if self.steps == 0 {
            return (at, self.timestamp_of(end));
        }
        let crossed = self.pieces_between(start, end).filter_map(|ticks| ticks.step_within(end));
        let (set_by, end) = (crossed.sum::<i128>(), self.timestamp_of(end));
        let end = u64::try_from(i128::from(end.as_nanos()).saturating_sub(set_by)).unwrap_or(0);
        (at, Timestamp::from_nanos(end).max(at))
    }

    /// Returns the stretches of time of stretches of ticks. If the clock was stepped, they are sorted and joined.
    ///
    /// The clock may have been stepped at any time between two anchors, so the ticks there have two stretches.
    pub fn stretches_of(&self, all: &[(Ticks, Ticks)]) -> List<(Timestamp, Timestamp)> {
        if self.steps == 0 {
            return all.iter().map(|(start, end)| (self.timestamp_of(*start), self.timestamp_of(*end))).collect();
        }
        let mut stretches: List<_> =
            all.iter().flat_map(|(start, end)| self.stretches_by_piece(*start, *end)).collect();
        stretches.sort_unstable();
        stretches.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            last.1 = if touches { last.1.max(next.1) } else { last.1 };
            touches
        });
        stretches
    }

    /// Returns the stretches of time of a stretch of ticks, in order of its pieces; two where the clock may have been stepped.
    fn stretches_by_piece(&self, start: Ticks, end: Ticks) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        self.pieces_between(start, end).flat_map(|PieceTicks { piece, next, from, to }| {
            let stepped = next.map(|next| Piece { ns_per_tick: piece.ns_per_tick, ..*next });
            let times = move |piece: Piece| (piece.time_at(from), piece.time_at(to));
            [Some(times(*piece)), stepped.map(times)].into_iter().flatten()
        })
    }

    /// Returns the earliest and the latest time of a stretch of ticks: all times of its records lie between them.
    pub fn time_range(&self, start: Ticks, end: Ticks) -> (Timestamp, Timestamp) {
        if self.steps == 0 {
            return (self.timestamp_of(start), self.timestamp_of(end));
        }
        let both = self.stretches_by_piece(start, end).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        both.unwrap_or_default()
    }

    /// Returns the earliest and the latest time of all anchors, if the clock was stepped between two of them.
    pub fn stepped_range(&self) -> Option<(Timestamp, Timestamp)> {
        let (first, last) = self.pieces.first().zip(self.pieces.last()).filter(|_| self.steps > 0)?;
        Some(self.time_range(Ticks(first.from), Ticks(last.from)))
    }

    /// Returns whether times repeat, because the clock was set back.
    pub fn repeats_times(&self) -> bool {
        let is_back = |(piece, next): (&Piece, &Piece)| piece.time_at(next.from).as_nanos() > next.unix_ns;
        self.steps > 0 && self.pieces.iter().zip(self.pieces.iter().skip(1)).any(is_back)
    }

    /// Returns the parts of a stretch of ticks that lie in each piece.
    fn pieces_between(&self, start: Ticks, end: Ticks) -> impl Iterator<Item = PieceTicks<'_>> {
        let first = self.piece_number(start);
        let count = self.piece_number(end).saturating_sub(first) + 1;
        self.pieces.iter().enumerate().skip(first).take(count).map(move |(number, piece)| {
            let next = self.pieces.get(number + 1);
            let from = if number == first { start.0 } else { piece.from };
            PieceTicks { piece, next, from, to: next.map_or(end.0, |next| next.from.min(end.0)) }
        })
    }

    /// Returns the number of the piece of a tick.
    fn piece_number(&self, ticks: Ticks) -> usize {
        self.pieces.partition_point(|piece| piece.from <= ticks.0).saturating_sub(1)
    }

    /// Returns the first tick at or after a time, between the anchors: after the last step back that repeats the time. If a step
    /// of the clock skips the time, returns the tick of the step.
    pub fn ticks_at(&self, at: Timestamp) -> Ticks {
        let ends = self.pieces.iter().skip(1).map(|next| next.from).chain([u64::MAX]);
        let reached = |piece: &Piece| piece.ticks_after(piece.from, at.as_nanos().saturating_sub(piece.unix_ns));
        let all = self.pieces.iter().zip(ends).map(|(piece, end)| (piece, reached(piece), end));
        let mut found = all.filter(|(_, tick, end)| tick < end);
        let has_time = |(piece, _, end): &(&Piece, u64, u64)| piece.unix_ns <= at.as_nanos() && *end != u64::MAX;
        let last = found.clone().filter(has_time).last();
        Ticks(last.or_else(|| found.next()).map_or(u64::MAX, |(_, tick, _)| tick))
    }

    /// Returns the tick that many nanoseconds after another one, if the clock is not stepped meanwhile.
    pub fn ticks_after(&self, from: Ticks, ns: u64) -> Ticks {
        let piece = self.pieces.get(self.piece_number(from));
        piece.map_or(from, |piece| Ticks(piece.ticks_after(from.0, ns)))
    }

    /// Returns the largest error relative to CLOCK_REALTIME, in nanoseconds: half the widest bracket.
    pub fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// Returns how often CLOCK_REALTIME was stepped during the session.
    pub fn clock_steps(&self) -> u32 {
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
    /// Whether CLOCK_REALTIME shows an earlier time at the end.
    goes_back: bool,
}

impl<'a> AnchorInterval<'a> {
    fn from_anchors(anchors: &'a [Anchor], ticks: fn(&Anchor) -> Ticks) -> impl Iterator<Item = AnchorInterval<'a>> {
        let passed = move |(at, next): (&'a Anchor, &Anchor)| AnchorInterval {
            at,
            unix: next.unix.since(at.unix),
            monotonic: next.monotonic.0.saturating_sub(at.monotonic.0),
            ticks: ticks(next).0.saturating_sub(ticks(at).0),
            width: at.error_ticks.saturating_add(next.error_ticks).saturating_mul(2),
            goes_back: next.unix < at.unix,
        };
        anchors.iter().zip(anchors.iter().skip(1)).map(passed)
    }

    /// Returns the rate of the counter: from all pieces in which the clocks agree, else from the monotonic clock, else 1 ns a
    /// tick.
    fn tick_rate(anchors: &'a [Anchor], ticks: fn(&Anchor) -> Ticks) -> u64 {
        let sum = |agreeing: Option<u64>| {
            let pieces = AnchorInterval::from_anchors(anchors, ticks)
                .filter(|piece| agreeing.is_none_or(|rate| piece.clocks_agree(rate)));
            // The anchors of a damaged file may have any times.
            let add = |(ns, ticks): (u64, u64), piece: AnchorInterval<'_>| {
                (ns.saturating_add(piece.monotonic), ticks.saturating_add(piece.ticks))
            };
            let (ns, ticks) = pieces.fold((0, 0), add);
            fixed_point_ratio(ns, ticks)
        };
        let about = sum(None);
        about.and_then(|about| sum(Some(about))).or(about).unwrap_or(1 << 32)
    }

    /// Returns the largest difference of two clocks: twice that of NTP, which slews by at most 500 ppm.
    fn tolerance(&self, rate: u64) -> u64 {
        ticks_to_nanos(self.width, rate).saturating_add(self.monotonic / 1000)
    }

    /// Returns whether CLOCK_REALTIME and the monotonic clock agree: no step, no suspend.
    fn clocks_agree(&self, rate: u64) -> bool {
        self.unix.abs_diff(self.monotonic) <= self.tolerance(rate)
    }

    /// Returns the duration by the clock that fits the counter's rate: CLOCK_REALTIME if the machine was suspended with a
    /// running counter, the monotonic clock if CLOCK_REALTIME was stepped. `None` if neither fits.
    fn likeliest_duration(&self, rate: u64) -> Option<u64> {
        let expected = ticks_to_nanos(self.ticks, rate);
        let tolerance = ticks_to_nanos(self.width, rate).saturating_add(expected / 1000);
        let fits = |ns: &u64| ns.abs_diff(expected) <= tolerance;
        [self.unix, self.monotonic].into_iter().find(fits)
    }
}

impl<'c> Cursor<'c> {
    /// Creates a cursor, which finds its first piece when it converts.
    pub fn new(converter: &'c Converter) -> Cursor<'c> {
        Cursor { converter, piece: Piece { from: 0, unix_ns: 0, ns_per_tick: 0 }, length: 0 }
    }

    /// Returns the same as [`Converter::slice_times`].
    #[inline]
    pub fn slice_times(&mut self, start: Ticks, end: Ticks) -> (Timestamp, Timestamp) {
        match self.converter.steps {
            0 => (self.timestamp_of(start), self.timestamp_of(end)),
            _ => self.converter.slice_times(start, end),
        }
    }

    /// Returns the same as [`Converter::timestamp_of`].
    #[inline]
    pub fn timestamp_of(&mut self, ticks: Ticks) -> Timestamp {
        let Piece { from, .. } = self.piece;
        if ticks.0.wrapping_sub(from) >= self.length {
            return self.seek_piece(ticks);
        }
        Timestamp::from_nanos(self.piece.unix_ns.saturating_add(ticks_to_nanos(ticks.0 - from, self.piece.ns_per_tick)))
    }

    #[cold]
    fn seek_piece(&mut self, ticks: Ticks) -> Timestamp {
        let Converter { pieces, .. } = self.converter;
        let number = self.converter.piece_number(ticks);
        let Some(piece) = pieces.get(number) else { return Timestamp::default() };
        if ticks.0 >= piece.from {
            self.piece = *piece;
            self.length = pieces.get(number + 1).map_or(u64::MAX, |next| next.from) - piece.from;
        }
        piece.time_at(ticks.0)
    }
}

impl PieceTicks<'_> {
    /// Returns by how many nanoseconds the clock was set at the end of the piece, if that is not after `end`.
    fn step_within(&self, end: Ticks) -> Option<i128> {
        let next = self.next.filter(|next| next.from <= end.0)?;
        let set_by = i128::from(next.unix_ns) - i128::from(self.piece.time_at(next.from).as_nanos());
        // The slope is rounded down.
        let rounding = i128::from((next.from - self.piece.from) >> 32) + 1;
        (!(0..=rounding).contains(&set_by)).then_some(set_by)
    }
}

impl Piece {
    /// Returns the first tick that many nanoseconds or more after another one.
    fn ticks_after(&self, from: u64, ns: u64) -> u64 {
        let ticks = (u128::from(ns) << 32).div_ceil(u128::from(self.ns_per_tick));
        from.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
    }

    /// Returns the time of a tick, which may lie outside of the piece.
    fn time_at(&self, ticks: u64) -> Timestamp {
        let passed = ticks_to_nanos(ticks.abs_diff(self.from), self.ns_per_tick);
        Timestamp::from_nanos(match ticks < self.from {
            true => self.unix_ns.saturating_sub(passed),
            false => self.unix_ns.saturating_add(passed),
        })
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
    use crate::fallible::List;

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
            AnchorInterval { at: &at, unix, monotonic, ticks: 1_000_000_000, width: 0, goes_back: false }
                .likeliest_duration(1 << 32)
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

    /// A counter of 3 GHz, and a clock that was set by so many seconds between the fifth second and the sixth.
    fn set_clock(seconds: i64) -> Converter {
        const SECOND: u64 = 1_000_000_000;
        let unix = |at: u64| (1_000 + at).saturating_add_signed(if at > 5 { seconds } else { 0 });
        converter(&(0..=10).map(|at| anchor(3 * at * SECOND, at * SECOND, unix(at) * SECOND)).collect::<Vec<_>>())
    }

    #[test]
    fn slice_over_a_step_has_the_duration_of_its_ticks() {
        const SECOND: u64 = 3_000_000_000;
        for seconds in [0, -2, -60, 60] {
            let c = set_clock(seconds);
            for (from, to) in
                [(1, 2), (4, 5), (5, 6), (4, 8), (6, 7), (0, 12)].map(|(a, b)| (a * SECOND + 3, b * SECOND + 6))
            {
                let (start, end) = c.slice_times(Ticks(from), Ticks(to));
                assert_eq!(
                    (start, end.since(start)),
                    (c.timestamp_of(Ticks(from)), (to - from) / 3),
                    "{seconds} {from}"
                );
                assert_eq!(Cursor::new(&c).slice_times(Ticks(from), Ticks(to)), (start, end));
            }
        }
    }

    #[test]
    fn ticks_around_a_step_have_two_stretches_of_time() {
        const SECOND: u64 = 3_000_000_000;
        let stretches = |seconds, windows: &[(u64, u64)]| {
            let windows: Vec<_> = windows.iter().map(|(a, b)| (Ticks(a * SECOND), Ticks(b * SECOND))).collect();
            let stretches = set_clock(seconds).stretches_of(&windows);
            stretches
                .iter()
                .map(|(start, end)| [start, end].map(|at| (at.as_nanos() + 5) / 1_000_000_000))
                .collect::<Vec<_>>()
        };
        assert_eq!(stretches(0, &[(0, 4), (4, 10)]), [[1000, 1004], [1004, 1010]], "not joined");
        assert_eq!(stretches(-60, &[(0, 10)]), [[945, 950], [1000, 1006]]);
        assert_eq!(stretches(-2, &[(0, 10)]), [[1000, 1008]]);
        assert_eq!(stretches(60, &[(0, 10)]), [[1000, 1006], [1065, 1070]]);
        assert_eq!(stretches(-60, &[(0, 4), (8, 9)]), [[948, 949], [1000, 1004]]);
        assert_eq!(stretches(-60, &[(4, 4), (12, 13)]), [[952, 953], [1004, 1004]]);
        assert_eq!([0, 60, -2].map(|seconds| set_clock(seconds).repeats_times()), [false, false, true]);
        assert_eq!([0, -60].map(|seconds| set_clock(seconds).stepped_range().is_some()), [false, true]);
        let tick_of = |set_by, time: u64| set_clock(set_by).ticks_at(Timestamp::from_nanos(time * 1_000_000_000)).0;
        assert_eq!([tick_of(-2, 1005), tick_of(-60, 1005), tick_of(-60, 947)], [7, 5, 7].map(|at| at * SECOND));
        let after = set_clock(-60).ticks_after(Ticks(11 * SECOND), 1_000_000_000);
        assert!((0..=1).contains(&(after.0 - 12 * SECOND)), "{after:?}");
    }

    #[test]
    fn any_anchors_of_a_file_are_accepted() {
        let numbers = [0, 1, 7, 1 << 40, u64::MAX];
        let anchors = (0..625).map(|number| {
            let [counter, monotonic, unix, error_ticks] = [1, 5, 25, 125].map(|by| numbers[number / by % 5]);
            Anchor {
                counter: Ticks(counter),
                monotonic: Ticks(monotonic),
                unix: Timestamp::from_nanos(unix),
                error_ticks,
            }
        });
        let anchors: Vec<Anchor> = anchors.collect();
        for by_counter in [false, true] {
            for step in [1, 7, 31, 311] {
                let c = Converter::of_other_process(anchors.iter().copied().step_by(step).collect(), by_counter);
                for (from, to) in numbers.iter().flat_map(|from| numbers.map(|to| (Ticks(*from), Ticks(to)))) {
                    let (start, end) = c.slice_times(from, to);
                    assert!(start <= end || from > to || c.clock_steps() == 0);
                    assert!(c.stretches_of(&[(from, to), (to, from)]).is_sorted() || c.clock_steps() == 0);
                }
            }
        }
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
        assert_eq!(back.ticks_at(Timestamp::from_nanos(10 * second + 7)), Ticks(7));
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

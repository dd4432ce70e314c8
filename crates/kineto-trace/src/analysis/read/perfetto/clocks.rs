//! Converts the times of packets to nanoseconds since 1970.

use super::wire::ProtoMessage;
use crate::analysis::json_reader::Result;
use crate::hash::HashMap;
use crate::write::perfetto::fields::clock;

/// The clocks of a file, or of one sequence of it.
#[derive(Debug, Default)]
pub(super) struct ReadClocks(HashMap<u64, ReadClock>);

/// A clock, known from its last snapshot.
#[derive(Clone, Copy, Debug)]
struct ReadClock {
    /// The time of day minus the clock's time.
    offset: i128,
    /// Nanoseconds of one unit.
    unit: u64,
    /// The last time, if each time is the distance from the one before.
    last: Option<i128>,
}

impl ReadClocks {
    /// Returns the time of day of a time, in nanoseconds; `None` for an unknown clock.
    fn time_of_day(&mut self, id: u64, time: u64) -> Option<i128> {
        let clock = self.0.get_mut(&id)?;
        let time = i128::from(time).saturating_mul(clock.unit.into());
        let time = match &mut clock.last {
            Some(last) => {
                *last = last.saturating_add(time);
                *last
            }
            None => time,
        };
        Some(time.saturating_add(clock.offset))
    }
}

/// The clocks that all sequences share.
#[derive(Debug)]
pub(super) struct GlobalClocks {
    clocks: ReadClocks,
    /// The clock of packets that name none.
    primary: u64,
    /// The time of day of the first snapshot, in nanoseconds.
    pub(super) base: Option<i64>,
}

impl Default for GlobalClocks {
    fn default() -> GlobalClocks {
        GlobalClocks { clocks: ReadClocks::default(), primary: clock::BOOTTIME, base: None }
    }
}

/// Returns whether a clock belongs to a sequence.
fn is_local(id: u64) -> bool {
    (clock::OF_SEQUENCE..2 * clock::OF_SEQUENCE).contains(&id)
}

impl GlobalClocks {
    /// Reads a snapshot: the times of several clocks at one moment.
    pub(super) fn read_snapshot(&mut self, mut snapshot: ProtoMessage<'_>, local: &mut ReadClocks) -> Result<()> {
        let mut times: Vec<(u64, ReadClock)> = Vec::new();
        while let Some((field, value)) = snapshot.next_field()? {
            match field {
                clock::CLOCKS => times.push(read_clock(value.message())?),
                clock::PRIMARY => self.primary = value.number(),
                _ => {}
            }
        }
        let time_of = |clock: &ReadClock| clock.offset;
        let real = times.iter().find(|(id, _)| *id == clock::REALTIME).map(|(_, clock)| time_of(clock));
        let known = || {
            let mut known = times.iter().filter_map(|(id, clock)| Some((self.clocks.0.get(id)?.offset, clock)));
            known.next().map(|(offset, clock)| time_of(clock).saturating_add(offset))
        };
        // Without the time of day, the first clock counts as such.
        let first = || times.first().map(|(_, clock)| time_of(clock));
        let Some(now) = real.or_else(known).or_else(first) else { return Ok(()) };
        self.base.get_or_insert(clamp_nanos(now));
        for (id, clock) in times {
            let time = time_of(&clock);
            let clock = ReadClock { offset: now.saturating_sub(time), last: clock.last.map(|_| time), ..clock };
            if is_local(id) {
                local.0.insert(id, clock)
            } else {
                self.clocks.0.insert(id, clock)
            };
        }
        Ok(())
    }

    /// Returns the time of day of a packet, in nanoseconds. `id` is its clock, `time` its time on that.
    pub(super) fn time_of_packet(&mut self, id: Option<u64>, time: u64, local: &mut ReadClocks) -> i64 {
        let id = id.unwrap_or(self.primary);
        let clocks = if is_local(id) { local } else { &mut self.clocks };
        clamp_nanos(clocks.time_of_day(id, time).unwrap_or(time.into()))
    }
}

/// Returns a clock with its time as offset.
fn read_clock(mut message: ProtoMessage<'_>) -> Result<(u64, ReadClock)> {
    let (mut id, mut time, mut is_incremental, mut unit) = (0, 0, false, 1);
    while let Some((field, value)) = message.next_field()? {
        match field {
            clock::ID => id = value.number(),
            clock::TIMESTAMP => time = value.number(),
            clock::IS_INCREMENTAL => is_incremental = value.number() != 0,
            clock::MULTIPLIER => unit = value.number().max(1),
            _ => {}
        }
    }
    let offset = i128::from(time).saturating_mul(unit.into());
    Ok((id, ReadClock { offset, unit, last: is_incremental.then_some(0) }))
}

fn clamp_nanos(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a snapshot: ids, times, whether they count from the last one, units.
    fn snapshot(clocks: &[(u8, u8, bool, u8)]) -> Vec<u8> {
        let clock = |(id, time, is_incremental, unit): &(u8, u8, bool, u8)| {
            vec![0x0a, 8, 8, *id, 16, *time, 24, u8::from(*is_incremental), 32, *unit]
        };
        clocks.iter().flat_map(clock).collect()
    }

    #[test]
    fn times_of_all_clocks_become_times_of_day() {
        let (mut global, mut local) = (GlobalClocks::default(), ReadClocks::default());
        let read = |global: &mut GlobalClocks, local: &mut ReadClocks, clocks: &[_]| {
            global.read_snapshot(ProtoMessage::new(&snapshot(clocks), 0), local).unwrap();
        };
        assert_eq!(global.time_of_packet(None, 9, &mut local), 9);
        read(&mut global, &mut local, &[(3, 10, false, 1), (1, 100, false, 1), (6, 20, false, 1)]);
        assert_eq!([3, 1, 6].map(|id| global.time_of_packet(Some(id), 30, &mut local)), [120, 30, 110]);
        assert_eq!((global.time_of_packet(None, 30, &mut local), global.base), (110, Some(100)));
        read(&mut global, &mut local, &[(64, 5, true, 2), (6, 20, false, 1)]);
        assert_eq!([1, 0, 3].map(|time| global.time_of_packet(Some(64), time, &mut local)), [102, 102, 108]);
        assert_eq!(global.time_of_packet(Some(64), 3, &mut ReadClocks::default()), 3);
        read(&mut global, &mut local, &[(65, 1, false, 100), (3, 10, false, 1)]);
        assert_eq!(global.time_of_packet(Some(65), 2, &mut local), 200);
        assert_eq!(global.time_of_packet(Some(65), u64::MAX, &mut local), i64::MAX);
    }
}

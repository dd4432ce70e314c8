//! The actions between two steps: PyTorch's table of transitions.

use super::ProfilerAction::{self, DeviceStopped, None as Nothing, Record, RecordAndSave, Warmup};

/// One part of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Starts the collectors.
    Prepare,
    /// Starts recording.
    Start,
    /// Ends the recording; it is dropped unless `Save` follows.
    Stop,
    /// Saves the trace.
    Save,
    /// Prints a warning.
    Warn(&'static str),
}

const UNUSED_WARMUP: Transition =
    Transition::Warn("nothing was recorded: the schedule goes from Warmup to None; let Record follow");
const UNSAVED_RECORDING: Transition = Transition::Warn(
    "the recording is dropped: the schedule ended it without RecordAndSave; return that for its last step",
);
const COLLECTOR_STOPPED: Transition =
    Transition::Warn("a collector has stopped on its own: the trace ends here; the next cycle records again");

/// Returns the transitions from `previous` to `next`; `None` is the end of the schedule.
pub(crate) fn transitions_between(previous: ProfilerAction, next: Option<ProfilerAction>) -> &'static [Transition] {
    use Transition::{Prepare, Save, Start, Stop};
    match (previous, next) {
        (Nothing | DeviceStopped, None | Some(Nothing | DeviceStopped)) => &[],
        (Nothing | DeviceStopped, Some(Warmup)) => &[Prepare],
        (Nothing | DeviceStopped, Some(Record | RecordAndSave)) => &[Prepare, Start],
        // Collectors stop as after a recording; their records are dropped.
        (Warmup, Some(Nothing)) => &[UNUSED_WARMUP, Start, Stop],
        (Warmup, None) => &[Start, Stop],
        (Warmup, Some(Warmup)) => &[],
        (Warmup, Some(Record | RecordAndSave)) => &[Start],
        // An empty trace shows the program that there was a cycle.
        (Warmup, Some(DeviceStopped)) => &[COLLECTOR_STOPPED, Start, Stop, Save],
        (Record, Some(Nothing | Warmup)) => &[UNSAVED_RECORDING, Stop],
        (Record, Some(Record | RecordAndSave)) => &[],
        (Record, Some(DeviceStopped)) => &[COLLECTOR_STOPPED, Stop, Save],
        (Record, None) => &[Stop, Save],
        (RecordAndSave, None | Some(Nothing | DeviceStopped)) => &[Stop, Save],
        (RecordAndSave, Some(Warmup)) => &[Stop, Save, Prepare],
        (RecordAndSave, Some(Record | RecordAndSave)) => &[Stop, Save, Prepare, Start],
    }
}

/// A program's position in its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SchedulePosition {
    /// The action of this step.
    pub(crate) action: ProfilerAction,
    /// The action that the schedule returned for this step.
    scheduled: ProfilerAction,
}

impl SchedulePosition {
    pub(crate) fn new(action: ProfilerAction) -> SchedulePosition {
        SchedulePosition { action, scheduled: action }
    }

    /// Returns the next position when the schedule returns `scheduled` for the next step.
    ///
    /// If a collector has stopped on its own, the rest of the cycle is skipped.
    pub(crate) fn next_position(self, scheduled: ProfilerAction, has_stopped: bool) -> SchedulePosition {
        let action = match self.action {
            DeviceStopped if self.scheduled != RecordAndSave && scheduled != Nothing => DeviceStopped,
            Warmup | Record if has_stopped && scheduled != Nothing => DeviceStopped,
            _ => scheduled,
        };
        SchedulePosition { action, scheduled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ProfilerAction; 5] = [Nothing, Warmup, Record, RecordAndSave, DeviceStopped];

    /// Each row is an action, each column the next one or the end: (p)repare, (s)tart, s(t)op, sa(v)e, (w)arn.
    const TABLE: [[&str; 6]; 5] = [
        //  None   Warmup  Record  R.AndSave  DeviceStopped  end
        ["", "p", "ps", "ps", "", ""],
        ["wst", "", "s", "s", "wstv", "st"],
        ["wt", "wt", "", "", "wtv", "tv"],
        ["tv", "tvp", "tvps", "tvps", "tv", "tv"],
        ["", "p", "ps", "ps", "", ""],
    ];

    fn letters(transitions: &[Transition]) -> String {
        let letter = |transition: &Transition| match transition {
            Transition::Prepare => 'p',
            Transition::Start => 's',
            Transition::Stop => 't',
            Transition::Save => 'v',
            Transition::Warn(_) => 'w',
        };
        transitions.iter().map(letter).collect()
    }

    #[test]
    fn transitions_equal_those_of_torch() {
        for (previous, row) in ALL.iter().zip(TABLE) {
            let next = ALL.iter().copied().map(Some).chain([None]);
            for (next, expected) in next.zip(row) {
                assert_eq!(letters(transitions_between(*previous, next)), expected, "{previous:?} to {next:?}");
            }
        }
    }

    #[test]
    fn recordings_are_stopped_exactly_once() {
        for (previous, next) in ALL.iter().flat_map(|p| ALL.iter().map(move |n| (*p, Some(*n))).chain([(*p, None)])) {
            let mut running = matches!(previous, Record | RecordAndSave);
            for transition in transitions_between(previous, next) {
                match transition {
                    Transition::Start => assert!(!std::mem::replace(&mut running, true), "{previous:?} {next:?}"),
                    Transition::Stop => assert!(std::mem::replace(&mut running, false), "{previous:?} {next:?}"),
                    Transition::Save | Transition::Prepare => assert!(!running),
                    Transition::Warn(_) => {}
                }
            }
            assert_eq!(running, matches!(next, Some(Record | RecordAndSave)), "{previous:?} {next:?}");
        }
    }

    /// Follows a schedule given as numbers; a `!` after a step means that a collector has stopped by then.
    fn follow(schedule: &str) -> String {
        let mut position: Option<SchedulePosition> = None;
        let mut followed = String::new();
        let mut steps = schedule.chars().peekable();
        let mut has_stopped = false;
        while let Some(step) = steps.next() {
            let scheduled = ALL[usize::try_from(step.to_digit(10).unwrap()).unwrap()];
            let now = position
                .map_or(SchedulePosition::new(scheduled), |position| position.next_position(scheduled, has_stopped));
            has_stopped = steps.next_if_eq(&'!').is_some();
            followed.push(char::from(b'0' + now.action as u8));
            position = Some(now);
        }
        followed
    }

    #[test]
    fn stopped_collector_ends_the_cycle() {
        for (schedule, done) in [
            ("0122301223", "0122301223"),
            // Stopped while recording: no recording until the end of the cycle; the next cycle is not affected.
            ("012!2301223", "0124401223"),
            // While warming up.
            ("01!12301", "0144401"),
            // Without a wait between, the next cycle follows at once.
            ("12!23123", "1244123"),
            ("2!2323", "24423"),
            // The last step of a cycle, the end of the schedule and idle steps proceed as usual.
            ("123!0", "1230"),
            ("2!0", "20"),
            ("0!0!1", "001"),
        ] {
            assert_eq!(follow(schedule), done, "{schedule}");
        }
    }
}

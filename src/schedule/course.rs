//! What has to be done between two steps: PyTorch's table of transitions.

use super::ProfilerAction::{self, DeviceStopped, None as Nothing, Record, RecordAndSave, Warmup};

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Collectors begin.
    Prepare,
    /// Recording begins.
    Start,
    /// Recording ends; without a `Save`, for nothing.
    Stop,
    /// What was recorded is handed out.
    Save,
    /// The program is told something.
    Warn(&'static str),
}

const WARMED_FOR_NOTHING: Act = Act::Warn("the schedule goes from Warmup to None: nothing was recorded");
const LEFT_UNSAVED: Act =
    Act::Warn("the schedule ends a recording without RecordAndSave: what was recorded is dropped");
const STOPPED_BY_ITSELF: Act =
    Act::Warn("a collector has stopped by itself: the trace ends here, and the next cycle records again");

/// Returns what is done when `next` follows `previous`; `None` is the end of the program's stepping.
pub(crate) fn acts(previous: ProfilerAction, next: Option<ProfilerAction>) -> &'static [Act] {
    use Act::{Prepare, Save, Start, Stop};
    match (previous, next) {
        (Nothing | DeviceStopped, None | Some(Nothing | DeviceStopped)) => &[],
        (Nothing | DeviceStopped, Some(Warmup)) => &[Prepare],
        (Nothing | DeviceStopped, Some(Record | RecordAndSave)) => &[Prepare, Start],
        // Collectors stop as they would after a recording; what they have is dropped.
        (Warmup, Some(Nothing)) => &[WARMED_FOR_NOTHING, Start, Stop],
        (Warmup, None) => &[Start, Stop],
        (Warmup, Some(Warmup)) => &[],
        (Warmup, Some(Record | RecordAndSave)) => &[Start],
        // A trace without records, so that the program sees that the cycle was there.
        (Warmup, Some(DeviceStopped)) => &[STOPPED_BY_ITSELF, Start, Stop, Save],
        (Record, Some(Nothing | Warmup)) => &[LEFT_UNSAVED, Stop],
        (Record, Some(Record | RecordAndSave)) => &[],
        (Record, Some(DeviceStopped)) => &[STOPPED_BY_ITSELF, Stop, Save],
        (Record, None) => &[Stop, Save],
        (RecordAndSave, None | Some(Nothing | DeviceStopped)) => &[Stop, Save],
        (RecordAndSave, Some(Warmup)) => &[Stop, Save, Prepare],
        (RecordAndSave, Some(Record | RecordAndSave)) => &[Stop, Save, Prepare, Start],
    }
}

/// Where a program is on its way through a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// What is done now.
    pub(crate) action: ProfilerAction,
    /// What the schedule says of this step.
    scheduled: ProfilerAction,
}

impl Course {
    pub(crate) fn new(action: ProfilerAction) -> Course {
        Course { action, scheduled: action }
    }

    /// Returns what follows when the schedule says `scheduled` of the next step.
    ///
    /// If a collector has stopped by itself, the rest of the cycle is left out.
    pub(crate) fn next(self, scheduled: ProfilerAction, has_stopped: bool) -> Course {
        let action = match self.action {
            DeviceStopped if self.scheduled != RecordAndSave && scheduled != Nothing => DeviceStopped,
            Warmup | Record if has_stopped && scheduled != Nothing => DeviceStopped,
            _ => scheduled,
        };
        Course { action, scheduled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ProfilerAction; 5] = [Nothing, Warmup, Record, RecordAndSave, DeviceStopped];

    /// Each row is an action, each column what follows it, the last one being the end: (p)repare, (s)tart, s(t)op, sa(v)e,
    /// (w)arn.
    const TABLE: [[&str; 6]; 5] = [
        //  None   Warmup  Record  R.AndSave  DeviceStopped  end
        ["", "p", "ps", "ps", "", ""],
        ["wst", "", "s", "s", "wstv", "st"],
        ["wt", "wt", "", "", "wtv", "tv"],
        ["tv", "tvp", "tvps", "tvps", "tv", "tv"],
        ["", "p", "ps", "ps", "", ""],
    ];

    fn letters(acts: &[Act]) -> String {
        let letter = |act: &Act| match act {
            Act::Prepare => 'p',
            Act::Start => 's',
            Act::Stop => 't',
            Act::Save => 'v',
            Act::Warn(_) => 'w',
        };
        acts.iter().map(letter).collect()
    }

    #[test]
    fn every_transition_is_as_torch_has_it() {
        for (previous, row) in ALL.iter().zip(TABLE) {
            let next = ALL.iter().copied().map(Some).chain([None]);
            for (next, expected) in next.zip(row) {
                assert_eq!(letters(acts(*previous, next)), expected, "{previous:?} to {next:?}");
            }
        }
    }

    #[test]
    fn whatever_follows_a_recording_is_never_left_running_nor_stopped_twice() {
        for (previous, next) in ALL.iter().flat_map(|p| ALL.iter().map(move |n| (*p, Some(*n))).chain([(*p, None)])) {
            let mut running = matches!(previous, Record | RecordAndSave);
            for act in acts(previous, next) {
                match act {
                    Act::Start => assert!(!std::mem::replace(&mut running, true), "{previous:?} {next:?}"),
                    Act::Stop => assert!(std::mem::replace(&mut running, false), "{previous:?} {next:?}"),
                    Act::Save | Act::Prepare => assert!(!running),
                    Act::Warn(_) => {}
                }
            }
            assert_eq!(running, matches!(next, Some(Record | RecordAndSave)), "{previous:?} {next:?}");
        }
    }

    /// Follows a schedule given as numbers; a `!` behind a step is a collector that has stopped by then.
    fn follow(schedule: &str) -> String {
        let mut course: Option<Course> = None;
        let mut followed = String::new();
        let mut steps = schedule.chars().peekable();
        let mut has_stopped = false;
        while let Some(step) = steps.next() {
            let scheduled = ALL[usize::try_from(step.to_digit(10).unwrap()).unwrap()];
            let now = course.map_or(Course::new(scheduled), |course| course.next(scheduled, has_stopped));
            has_stopped = steps.next_if_eq(&'!').is_some();
            followed.push(char::from(b'0' + now.action as u8));
            course = Some(now);
        }
        followed
    }

    #[test]
    fn a_collector_that_stops_takes_the_rest_of_the_cycle() {
        for (schedule, done) in [
            ("0122301223", "0122301223"),
            // Stopped while recording: to the end of the cycle, and the next one is as if nothing had been.
            ("012!2301223", "0124401223"),
            // While warming up.
            ("01!12301", "0144401"),
            // Without a wait between, the next cycle follows at once.
            ("12!23123", "1244123"),
            ("2!2323", "24423"),
            // The last step of a cycle, the end of the schedule and idle steps go on as they would.
            ("123!0", "1230"),
            ("2!0", "20"),
            ("0!0!1", "001"),
        ] {
            assert_eq!(follow(schedule), done, "{schedule}");
        }
    }
}

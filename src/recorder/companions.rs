//! What is recorded beside the times of slices, if that was asked for: from where they were entered, and what the processor
//! has counted meanwhile.

use crate::buffer::{Loss, Losses};
use crate::collector::{Unavailable, Why};
use crate::diag::diag;
use crate::os::counters::{EVENTS, EVENTS_MAX, Event, Group};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a recording is to have beside the times of slices.
#[derive(Debug, Default)]
pub(crate) struct Companions {
    /// How many frames of a stack are shown, 0 for no stacks.
    pub(crate) frames: usize,
    /// What is counted of what was asked for.
    pub(crate) events: Vec<&'static Event>,
    reports: Vec<CounterReport>,
    has_warned: AtomicBool,
}

/// How a counter of the CPU fared that was asked for; see
/// [`performance_events`](crate::KinetoLayerBuilder::performance_events).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CounterReport {
    /// Its name.
    pub name: &'static str,
    /// Nothing, or why it was not counted.
    pub state: Result<(), Unavailable>,
}

impl fmt::Display for CounterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            Ok(()) => write!(f, "{}: counted", self.name),
            Err(reason) => write!(f, "{}: {reason}", self.name),
        }
    }
}

impl Companions {
    /// The most frames of a stack.
    pub(crate) const FRAMES_MAX: usize = 128;

    /// Stacks of so many frames, and counters of these names, which are tried at once: what cannot be counted on the calling
    /// thread is left out, with a warning.
    ///
    /// # Errors
    /// What is wrong with the names.
    pub(crate) fn new(frames: usize, names: &[String]) -> Result<Companions, String> {
        let mut wanted = Vec::new();
        for name in names {
            let event = Event::named(name).ok_or_else(|| unknown(name))?;
            if !wanted.contains(&event) {
                wanted.push(event);
            }
        }
        if wanted.len() > EVENTS_MAX {
            return Err(format!("{} performance events are too many; at most {EVENTS_MAX} are counted", wanted.len()));
        }
        let mut reports: Vec<_> =
            wanted.iter().map(|event| CounterReport { name: event.name, state: Ok(()) }).collect();
        drop(Group::open(wanted.iter().copied(), &mut |event, why| {
            let refused = reports.iter_mut().filter(|report| report.name == event.name);
            refused.for_each(|report| report.state = Err(reason(&why)));
        }));
        let is_counted =
            |event: &&Event| reports.iter().any(|report| report.name == event.name && report.state.is_ok());
        let events = wanted.into_iter().filter(is_counted).collect();
        warn(&reports);
        Ok(Companions { frames, events, reports, has_warned: AtomicBool::new(false) })
    }

    /// Whether slices have anything beside their times.
    #[inline]
    pub(crate) fn are_wanted(&self) -> bool {
        self.frames > 0 || self.count()
    }

    /// Whether anything is counted.
    #[inline]
    pub(crate) fn count(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns how each counter fared.
    pub(crate) fn reports(&self) -> Vec<CounterReport> {
        self.reports.clone()
    }

    /// Begins to count on the calling thread, if it can be counted as on the one that built the layer.
    pub(crate) fn open(&self, losses: &Losses) -> Option<Group> {
        let mut refusal = None;
        let group = Group::open(self.events.iter().copied(), &mut |_, why| refusal = Some(why));
        let Some(why) = refusal else { return Some(group) };
        losses.add(Loss::ThreadsUncounted, 1);
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let why = reason(&why);
            diag!(Warning, "counters", "a thread has no performance counters: {why}");
        }
        None
    }
}

/// Returns why stacks cannot be recorded; `None` if this build has the feature for them.
pub(crate) fn no_stacks(has_feature: bool) -> Option<&'static str> {
    let why = "call stacks take the feature `backtrace` of tracing-kineto, which this program is built without; add it to \
               the features in Cargo.toml, or leave out with_stack";
    (!has_feature).then_some(why)
}

fn unknown(name: &str) -> String {
    let known: Vec<_> = EVENTS.iter().map(|event| event.name).collect();
    format!("the performance event `{name}` is not known; known are {}", known.join(", "))
}

/// One message about all that is not counted.
fn warn(reports: &[CounterReport]) {
    let refused = || reports.iter().filter_map(|report| Some((report.name, report.state.as_ref().err()?)));
    let Some((_, first)) = refused().next() else { return };
    let names: Vec<_> = refused().filter(|(_, why)| *why == first).map(|(name, _)| name).collect();
    let more = refused().count() - names.len();
    let rest =
        if more > 0 { format!(" ({more} more for other reasons, see the trace's statistics)") } else { String::new() };
    diag!(Warning, "counters", "not counted: {}: {first}{rest}", names.join(", "));
}

/// What the kernel means.
#[cfg(unix)]
fn reason(error: &io::Error) -> Unavailable {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Unavailable::new(
            Why::Forbidden,
            "the kernel does not permit it (kernel.perf_event_paranoid)",
            "`sysctl kernel.perf_event_paranoid=1`, or give the program CAP_PERFMON; a container needs --cap-add PERFMON",
        ),
        Some(libc::ENOSYS) => Unavailable::new(
            Why::Unsupported,
            "the kernel, or the container's seccomp profile, has no perf_event_open",
            "permit it in the profile, or run outside of the container",
        ),
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Unavailable::new(
            Why::Unsupported,
            "the processor has no such counter, or the virtual machine does not show it",
            "use another event, or a machine with its PMU",
        ),
        Some(libc::EINVAL | libc::ENOSPC) => Unavailable::new(
            Why::Unsupported,
            "the processor has too few counters for all of them at once",
            "ask for fewer events",
        ),
        Some(libc::EMFILE | libc::ENFILE) => Unavailable::new(
            Why::Failed,
            "each thread takes a file descriptor for each event, and a quarter of the process's limit, or 4096, are used up",
            "raise `ulimit -n`, or ask for fewer events",
        ),
        None => elsewhere(),
        Some(_) => Unavailable::new(Why::Failed, error.to_string(), ""),
    }
}

#[cfg(not(unix))]
fn reason(_error: &io::Error) -> Unavailable {
    elsewhere()
}

fn elsewhere() -> Unavailable {
    Unavailable::new(Why::Unsupported, "counters of the CPU are read on Linux alone", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_name_that_is_not_known_is_an_error_that_lists_the_known_ones() {
        let error = Companions::new(0, &names(&["cycles", "cykles"])).unwrap_err();
        assert!(error.contains("`cykles` is not known; known are cycles, instructions, cache-references"), "{error}");
        let all: Vec<_> = EVENTS.iter().map(|event| event.name).collect();
        assert!(Companions::new(0, &names(&all)).unwrap_err().contains("19 performance events are too many"));
    }

    #[test]
    fn each_event_is_counted_or_has_a_reason() {
        let wanted = ["task-clock", "cycles", "page-faults", "cycles", "context-switches"];
        let companions = Companions::new(0, &names(&wanted)).unwrap();
        let reports = companions.reports();
        let told: Vec<_> = reports.iter().map(|report| report.name).collect();
        assert_eq!(told, ["task-clock", "cycles", "page-faults", "context-switches"]);
        let counted: Vec<_> = companions.events.iter().map(|event| event.name).collect();
        let expected: Vec<_> = reports.iter().filter(|r| r.state.is_ok()).map(|r| r.name).collect();
        assert_eq!(counted, expected);
        assert!(reports.iter().all(|report| report.state.is_ok() || report.to_string().len() > 20), "{reports:?}");
    }

    #[test]
    #[cfg(unix)]
    fn what_the_kernel_says_reads_as_advice() {
        for (error, said) in [
            (libc::EACCES, "perf_event_paranoid"),
            (libc::ENOSYS, "seccomp"),
            (libc::ENOENT, "virtual machine"),
            (libc::EMFILE, "ulimit -n"),
            (libc::EINVAL, "ask for fewer"),
            (libc::EIO, "os error"),
        ] {
            let reason = reason(&io::Error::from_raw_os_error(error)).to_string();
            assert!(reason.contains(said), "{error}: {reason}");
        }
    }
}

//! Optional data of slices: the stack at the enter, and the processor's event counts.

use crate::buffer::{Loss, Losses};
use crate::diag::diag;
use crate::encoding::encoded;
use crate::os::counters::{EVENTS, EVENTS_MAX, Group, PerfEvent};
use crate::text::joined;
use kineto_devices::{Unavailable, Why};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The stacks and counters that a recording adds to slices.
#[derive(Debug, Default)]
pub(crate) struct SliceExtras {
    /// The number of stack frames shown, 0 for no stacks.
    pub(crate) frames: usize,
    /// The requested events that can be counted.
    pub(crate) events: Vec<&'static PerfEvent>,
    /// The state of each requested counter.
    pub(crate) reports: Vec<CounterReport>,
    has_warned: AtomicBool,
}

/// The state of a requested CPU counter; see
/// [`performance_events`](crate::KinetoLayerBuilder::performance_events).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CounterReport {
    /// Its name.
    pub name: Cow<'static, str>,
    /// `Ok` if it was counted, else the reason.
    pub state: Result<(), Unavailable>,
}

encoded! {
    CounterReport { name, state }
}

impl fmt::Display for CounterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            Ok(()) => write!(f, "{}: counted", self.name),
            Err(reason) => write!(f, "{}: {reason}", self.name),
        }
    }
}

impl SliceExtras {
    /// The most frames of a stack.
    pub(crate) const FRAMES_MAX: usize = 128;

    /// Creates stacks of up to `frames` frames, and counters by `names`.
    ///
    /// Tries each counter on the calling thread; those that fail are left out, with a warning.
    ///
    /// # Errors
    /// If a name is unknown, or there are too many.
    pub(crate) fn new(frames: usize, names: &[String]) -> Result<SliceExtras, String> {
        let mut wanted = Vec::new();
        for name in names {
            let event = PerfEvent::from_name(name).ok_or_else(|| unknown_event_message(name))?;
            if !wanted.contains(&event) {
                wanted.push(event);
            }
        }
        if wanted.len() > EVENTS_MAX {
            return Err(format!("{} performance events are too many; at most {EVENTS_MAX} are counted", wanted.len()));
        }
        let mut reports = Vec::with_capacity(wanted.len());
        for event in &wanted {
            reports.push(CounterReport { name: event.name.into(), state: Ok(()) });
        }
        drop(Group::open_events(wanted.iter().copied(), &mut |event, why| {
            if let Some(refused) = reports.iter_mut().find(|report| report.name == event.name) {
                refused.state = Err(refusal_reason(&why));
            }
        }));
        let mut events = wanted;
        events.retain(|event| reports.iter().any(|report| report.name == event.name && report.state.is_ok()));
        if let Some(names) = uncounted_events(&reports) {
            diag!(Warning, "counters", "not counted: {names}");
        }
        Ok(SliceExtras { frames, events, reports, has_warned: AtomicBool::new(false) })
    }

    /// Returns whether slices have stacks or counts.
    #[inline]
    pub(crate) fn are_enabled(&self) -> bool {
        self.frames > 0 || self.has_counters()
    }

    /// Returns whether any event is counted.
    #[inline]
    pub(crate) fn has_counters(&self) -> bool {
        !self.events.is_empty()
    }

    /// Starts the counters of the calling thread; `None`, with a warning, if one of them cannot be opened.
    pub(crate) fn open_counters(&self, losses: &Losses) -> Option<Group> {
        let mut refusal = None;
        let group = Group::open_events(self.events.iter().copied(), &mut |_, why| refusal = Some(why));
        let Some(why) = refusal else { return Some(group) };
        losses.add(Loss::ThreadsUncounted, 1);
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let why = refusal_reason(&why);
            diag!(Warning, "counters", "a thread has no performance counters: {why}");
        }
        None
    }
}

/// Returns why stacks cannot be recorded; `None` if this build has the feature for them.
pub(crate) fn no_stacks(has_feature: bool) -> Option<&'static str> {
    let why = "call stacks are not recorded: this program was built without the feature `backtrace` of tracing-kineto; \
               enable it in Cargo.toml, or remove with_stack";
    (!has_feature).then_some(why)
}

fn unknown_event_message(name: &str) -> String {
    let known: Vec<_> = EVENTS.iter().map(|event| event.name).collect();
    format!("the performance event `{name}` is not known; known are {}", joined(&known, ", "))
}

/// Returns the names of the events that cannot be counted, with the reason of the first; `None` if all can.
fn uncounted_events(reports: &[CounterReport]) -> Option<String> {
    let first = reports.iter().find_map(|report| report.state.as_ref().err())?;
    let (mut names, mut more) = (Vec::new(), 0);
    for report in reports {
        match &report.state {
            Ok(()) => {}
            Err(why) if why == first => names.push(&*report.name),
            Err(_) => more += 1,
        }
    }
    let rest =
        if more > 0 { format!(" ({more} more for other reasons; see the trace's statistics)") } else { String::new() };
    Some(format!("{}: {first}{rest}", joined(&names, ", ")))
}

/// Translates the kernel's error.
#[cfg(unix)]
fn refusal_reason(error: &io::Error) -> Unavailable {
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
            "the limit of file descriptors for counters is reached (one for each thread and event; a quarter of `ulimit -n`, at most 4096)",
            "raise `ulimit -n`, or ask for fewer events",
        ),
        None => unsupported_system(),
        Some(_) => Unavailable::new(Why::Failed, error.to_string(), "select other events"),
    }
}

#[cfg(not(unix))]
fn refusal_reason(_error: &io::Error) -> Unavailable {
    unsupported_system()
}

fn unsupported_system() -> Unavailable {
    Unavailable::new(Why::Unsupported, "CPU counters are supported only on Linux", "record on Linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn readers_know_the_events_by_name() {
        let names = EVENTS.iter().map(|event| event.name);
        assert!(names.eq(kineto_model::activity::CPU_COUNTERS.iter().copied()));
    }

    #[test]
    fn unknown_event_name_error_lists_known_names() {
        let error = SliceExtras::new(0, &names(&["cycles", "cykles"])).unwrap_err();
        assert!(error.contains("`cykles` is not known; known are cycles, instructions, cache-references"), "{error}");
        let all: Vec<_> = EVENTS.iter().map(|event| event.name).collect();
        assert!(SliceExtras::new(0, &names(&all)).unwrap_err().contains("19 performance events are too many"));
    }

    #[test]
    fn each_event_is_counted_or_has_a_reason() {
        let wanted = ["task-clock", "cycles", "page-faults", "cycles", "context-switches"];
        let slice_extras = SliceExtras::new(0, &names(&wanted)).unwrap();
        let reports = &slice_extras.reports;
        let told: Vec<_> = reports.iter().map(|report| &*report.name).collect();
        assert_eq!(told, ["task-clock", "cycles", "page-faults", "context-switches"]);
        let counted: Vec<_> = slice_extras.events.iter().map(|event| event.name).collect();
        let expected: Vec<_> = reports.iter().filter(|r| r.state.is_ok()).map(|r| &*r.name).collect();
        assert_eq!(counted, expected);
        assert!(reports.iter().all(|report| report.state.is_ok() || report.to_string().len() > 20), "{reports:?}");
    }

    #[test]
    fn uncounted_events_share_one_message() {
        let report = |name: &'static str, why: Option<Why>| CounterReport {
            name: name.into(),
            state: why.map_or(Ok(()), |why| Err(Unavailable::new(why, "the reason", "the remedy"))),
        };
        let counted = report("cycles", None);
        assert_eq!(uncounted_events(std::slice::from_ref(&counted)), None);
        let [a, b, c] = [("a", Why::Forbidden), ("b", Why::Forbidden), ("c", Why::Unsupported)]
            .map(|(name, why)| report(name, Some(why)));
        assert_eq!(uncounted_events(&[a.clone(), counted, b.clone()]).unwrap(), "a, b: the reason; the remedy");
        let message = uncounted_events(&[a, b, c]).unwrap();
        assert_eq!(message, "a, b: the reason; the remedy (1 more for other reasons; see the trace's statistics)");
    }

    #[test]
    fn extras_are_enabled_by_stacks_or_counters() {
        assert!(!SliceExtras::default().are_enabled());
        assert!(SliceExtras::new(1, &[]).unwrap().are_enabled());
        let counting = SliceExtras { events: vec![&EVENTS[0]], ..SliceExtras::default() };
        assert!(counting.are_enabled() && counting.has_counters());
    }

    #[test]
    #[cfg(unix)]
    fn kernel_errors_become_advice() {
        for (error, said) in [
            (libc::EACCES, "perf_event_paranoid"),
            (libc::ENOSYS, "seccomp"),
            (libc::ENOENT, "virtual machine"),
            (libc::EMFILE, "ulimit -n"),
            (libc::EINVAL, "ask for fewer"),
            (libc::EIO, "os error"),
        ] {
            let reason = refusal_reason(&io::Error::from_raw_os_error(error)).to_string();
            assert!(reason.contains(said), "{error}: {reason}");
        }
    }
}

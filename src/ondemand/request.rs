//! A request, checked against all bounds: its kind, times and file.

use super::machine::ClockReading;
use super::place::OutputFile;
use super::source::{AnswerChannel, Incoming};
use crate::config::{OnDemandConfig, ParsedRequest, PlaceholderValues, Timetable, extension_warning};
use crate::text::count_with_noun;
use crate::wait::{steady, wall};
use crate::write::file::FileFormat;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A valid request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The requester, for messages.
    pub(super) by: String,
    /// Where to report the progress.
    pub(super) answer: Option<Arc<dyn AnswerChannel>>,
    pub(super) kind: RequestKind,
    pub(super) when: When,
    pub(super) output: PathBuf,
    /// Whether the trace replaces one that this process wrote to the same file.
    pub(super) replaces_own: bool,
    /// Whether it comes from the program's own configuration, so it is trusted.
    pub(super) is_own: bool,
    /// How long it may record, and wait for an iteration.
    pub(super) longest: Duration,
    /// The parsed text, and the warnings about it.
    pub(super) asked: ParsedRequest,
}

/// The kind of recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Trace,
    MemoryProfile,
}

/// When to record, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// For a time.
    Time {
        /// `None` for at once.
        start: Option<StartTime>,
        /// How long collectors run before, if there is time.
        warmup: Duration,
        length: Duration,
    },
    /// For some iterations of the program.
    Iterations {
        /// The first iteration, if it has not passed.
        start: u64,
        /// Otherwise it begins with a multiple of this.
        roundup: u64,
        warmup: u64,
        count: u64,
        /// The duration if the program counts no iterations; `None` waits for them.
        or: Option<Duration>,
    },
}

/// A given start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartTime {
    /// A time since the Unix epoch, from a requester that may know no other clock.
    Clock(Duration),
    /// A time that the program's own configuration gives. The wall clock may be set before it.
    Own(Instant),
}

const WARMUP_MAX: Duration = Duration::from_secs(60);
/// libkineto's warm-up if a start time is given without one.
pub(super) const WARMUP: Duration = Duration::from_secs(5);
const ITERATIONS_MAX: u64 = 1_000_000;
const GPU_BUFFER_MAX: u64 = 4096;
/// Bytes of a name.
const NAME_MAX: usize = 256;

impl Request {
    /// Reads a request; `parts` are the values for its file's name, with the time at which the request arrived.
    ///
    /// # Errors
    /// The reason to refuse it, as a clause.
    pub(super) fn from_incoming(
        incoming: &Incoming,
        settings: &OnDemandConfig,
        parts: &PlaceholderValues,
    ) -> Result<Request, String> {
        let mut asked = ParsedRequest::parse(&incoming.text)?;
        if !asked.is_enabled {
            return Err("ACTIVITIES_ENABLED is false; remove it".to_owned());
        }
        let is_own = incoming.output.is_some();
        let (arrived, now) = (parts.time.unwrap_or_else(wall), steady());
        if !is_own {
            check_bounds(&asked, settings, arrived)?;
        }
        let start = asked.start.map(|at| match is_own {
            true => StartTime::Own(now + at.saturating_sub(arrived.duration_since(UNIX_EPOCH).unwrap_or_default())),
            false => StartTime::Clock(at),
        });
        if asked.last.is_some() && asked.memory_profile.is_some() {
            return Err("PROFILE_LAST_MSECS is for traces; remove it or PROFILE_MEMORY".to_owned());
        }
        let kind = if asked.memory_profile.is_some() { RequestKind::MemoryProfile } else { RequestKind::Trace };
        let default = match kind {
            RequestKind::Trace => "libkineto_activities.json",
            RequestKind::MemoryProfile => "memory_snapshot.json",
        };
        let output = match &incoming.output {
            Some(path) => OutputFile { path: path.clone(), rejection: None, replaces_own: true },
            None => OutputFile::from_requested_path(asked.log_file.as_deref(), &settings.trace_folder, parts, default)?,
        };
        let elsewhere = output.rejection.map(|why| format!("{why}; writing to {} instead", output.path.display()));
        asked.warnings.extend(elsewhere);
        if kind == RequestKind::Trace && !is_own && FileFormat::check_extension(&output.path).is_err() {
            asked.warnings.push(extension_warning(&output.path));
        }
        Ok(Request {
            by: incoming.by.clone(),
            answer: incoming.answer.clone(),
            kind,
            when: When::from_parsed(&asked, start, is_own),
            output: output.path,
            replaces_own: output.replaces_own,
            is_own,
            longest: if is_own { Timetable::FOREVER } else { settings.max_duration },
            asked,
        })
    }

    /// Returns its name in messages.
    pub(super) fn display_name(&self) -> String {
        format!("the request by {}{}", self.by, self.trace_suffix())
    }

    /// Returns `, trace ` and its trace id, or an empty text.
    pub(super) fn trace_suffix(&self) -> String {
        match self.asked.trace_id.as_str() {
            "" => String::new(),
            id => format!(", trace {}", id.escape_debug()),
        }
    }

    /// Returns whether it begins without waiting for a start time or an iteration.
    pub(super) fn begins_at_once(&self) -> bool {
        matches!(self.when, When::Time { start: None, .. })
    }

    /// Returns the time until its start; zero without a start time.
    pub(super) fn time_until_start(&self, moment: &ClockReading) -> Duration {
        match self.when {
            When::Time { start: Some(StartTime::Clock(at)), .. } => at.saturating_sub(moment.since_epoch()),
            When::Time { start: Some(StartTime::Own(at)), .. } => at.saturating_duration_since(moment.now),
            _ => Duration::ZERO,
        }
    }

    /// Returns whether it lasts until the program ends.
    pub(super) fn is_endless(&self) -> bool {
        matches!(self.when, When::Time { length: Timetable::FOREVER, .. })
    }
}

impl When {
    /// Decides as libkineto does: iterations if both their number and the first one are given, else a duration.
    fn from_parsed(asked: &ParsedRequest, start: Option<StartTime>, is_own: bool) -> When {
        let warmup = asked.warmup.unwrap_or(if start.is_some() { WARMUP } else { Duration::ZERO });
        match (asked.start_iteration, asked.memory_profile) {
            (_, Some(length)) => When::Time { start, warmup: Duration::ZERO, length },
            (Some(start), None) if asked.iterations > 0 => When::Iterations {
                start,
                roundup: asked.roundup.unwrap_or(1).max(1),
                warmup: asked.warmup_iterations,
                count: asked.iterations,
                or: (!is_own).then_some(asked.duration),
            },
            _ => When::Time { start, warmup, length: asked.duration },
        }
    }
}

/// Checks each number against its bounds.
fn check_bounds(asked: &ParsedRequest, settings: &OnDemandConfig, now: SystemTime) -> Result<(), String> {
    let within = |kind: &str, is_within: bool, bounds: &str| {
        if is_within { Ok(()) } else { Err(format!("{kind} must be {bounds}")) }
    };
    let length = asked.memory_profile.unwrap_or(asked.duration);
    let (longest, latest) = (settings.max_duration, settings.max_start_delay);
    let bounds = format!("between 1 ms and {longest:?} (KINETO_ONDEMAND_MAX_DURATION_SECS)");
    within("the duration", !length.is_zero() && length <= longest, &bounds)?;
    within("the warm-up", asked.warmup.is_none_or(|warmup| warmup <= WARMUP_MAX), "60 s at most")?;
    within("ACTIVITIES_ITERATIONS", asked.iterations <= ITERATIONS_MAX, "1000000 at most")?;
    within("ACTIVITIES_WARMUP_ITERATIONS", asked.warmup_iterations <= ITERATIONS_MAX, "1000000 at most")?;
    within("ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB", asked.gpu_buffer_mebibytes <= GPU_BUFFER_MAX, "4096 at most")?;
    let names = [&asked.trace_id, &asked.group_trace_id];
    within("a trace's name", names.iter().all(|name| name.len() <= NAME_MAX), "of 256 bytes at most")?;
    let bounds = format!("within the next {latest:?} (KINETO_ONDEMAND_MAX_AHEAD_SECS)");
    let latest = now.duration_since(UNIX_EPOCH).unwrap_or_default() + latest;
    within("PROFILE_START_TIME", asked.start.is_none_or(|start| start <= latest), &bounds)
}

/// Formats the request as a clause.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == RequestKind::MemoryProfile {
            f.write_str("a memory profile of ")?;
        }
        if let Some(last) = self.asked.last {
            return write!(f, "the last {last:?} into {}", self.output.display());
        }
        match self.when {
            When::Time { .. } if self.is_endless() => f.write_str("everything until the program ends")?,
            When::Time { length, .. } => write!(f, "{length:?}")?,
            When::Iterations { count, .. } => write!(f, "{}", count_with_noun(count, "iteration"))?,
        }
        match self.when {
            When::Time { start: Some(_), .. } if !self.is_own => f.write_str(" from a given time on")?,
            When::Iterations { roundup: 2.., .. } => f.write_str(" from a round one on")?,
            _ => {}
        }
        write!(f, " into {}", self.output.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Request, String> {
        let incoming = Incoming { text: text.to_owned(), by: "a test".to_owned(), output: None, answer: None };
        Request::from_incoming(
            &incoming,
            &Config::default().ondemand,
            &PlaceholderValues { pid: 7, ..Config::default().placeholder_values() },
        )
    }

    fn start_in(seconds: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
        format!("PROFILE_START_TIME={}", (now + seconds) * 1000)
    }

    // Shows the key PROFILE_START_ITERATION.
    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn iterations_need_a_start_iteration() {
        let soon = When::Time { start: None, warmup: Duration::ZERO, length: Duration::from_millis(500) };
        for text in ["", "ACTIVITIES_ITERATIONS=3", "PROFILE_START_ITERATION_ROUNDUP=9\nACTIVITIES_ITERATIONS=3"] {
            assert_eq!(read(text).unwrap().when, soon, "{text}");
        }
        assert_eq!(read("PROFILE_START_ITERATION=4").unwrap().when, soon);
        let text = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=1000\nACTIVITIES_ITERATIONS=3";
        let or = Some(Duration::from_millis(500));
        let iterations = When::Iterations { start: 0, roundup: 1000, warmup: 0, count: 3, or };
        assert_eq!(read(text).unwrap().when, iterations);
        let When::Time { start: Some(_), warmup, .. } = read(&start_in(9)).unwrap().when else { panic!("no start") };
        assert_eq!(warmup, Duration::from_secs(5));
    }

    // Shows the keys ACTIVITIES_ENABLED, ACTIVITIES_DURATION_SECS.
    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn every_number_has_bounds() {
        for text in [
            "ACTIVITIES_DURATION_SECS=3601",
            "ACTIVITIES_DURATION_MSECS=0",
            "ACTIVITIES_WARMUP_PERIOD_SECS=61",
            "ACTIVITIES_ITERATIONS=1000001",
            "ACTIVITIES_WARMUP_ITERATIONS=1000001",
            "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=4097",
            "PROFILE_MEMORY=1\nPROFILE_MEMORY_DURATION_MSECS=2147483647",
            "PROFILE_START_TIME=9223372036854775807",
            "PROFILE_START_TIME=1",
            "PROFILE_LAST_MSECS=5\nPROFILE_MEMORY=1",
            &start_in(3700),
            &start_in(-11),
            &format!("REQUEST_TRACE_ID={}", "x".repeat(257)),
            "ACTIVITIES_ENABLED=no",
            "ACTIVITY_TYPES=no_such_type",
            "nonsense",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(&start_in(3500)).is_ok() && read("ACTIVITIES_DURATION_SECS=3600").is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn request_is_shown_as_a_clause() {
        let shown = |text: &str| read(text).unwrap().to_string();
        assert_eq!(shown("ACTIVITIES_LOG_FILE=/tmp/a.json"), "500ms into /tmp/a_7.json");
        assert_eq!(shown("PROFILE_MEMORY=1"), "a memory profile of 1s into /tmp/memory_snapshot_7.json");
        assert_eq!(shown("PROFILE_LAST_MSECS=9000"), "the last 9s into /tmp/libkineto_activities_7.json");
        let text = "PROFILE_START_ITERATION=0\nACTIVITIES_ITERATIONS=2\nPROFILE_START_ITERATION_ROUNDUP=10";
        assert_eq!(shown(text), "2 iterations from a round one on into /tmp/libkineto_activities_7.json");
        let elsewhere = read("ACTIVITIES_LOG_FILE=/etc/passwd").unwrap();
        assert_eq!(elsewhere.output, PathBuf::from("/tmp/libkineto_activities_7.json"));
        let warnings = &elsewhere.asked.warnings;
        assert!(warnings[0].starts_with("\"/etc/passwd\" is not in /tmp"), "{warnings:?}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn file_with_an_unknown_extension_is_json_with_a_warning() {
        for (asked, path) in [("/tmp/a.txt", "/tmp/a_7.txt"), ("/tmp/a", "/tmp/a_7")] {
            let request = read(&format!("ACTIVITIES_LOG_FILE={asked}")).unwrap();
            let warnings = &request.asked.warnings;
            assert_eq!(request.output, PathBuf::from(path));
            assert!(warnings.len() == 1 && warnings[0].contains("unknown extension"), "{warnings:?}");
        }
        assert_eq!(read("ACTIVITIES_LOG_FILE=/tmp/a.pftrace").unwrap().asked.warnings, [""; 0]);
    }

    // Shows the keys ACTIVITIES_WARMUP_PERIOD_SECS, ACTIVITIES_WARMUP_ITERATIONS.
    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn warmup_is_read_in_seconds_or_iterations() {
        let text = format!("{}\nACTIVITIES_WARMUP_PERIOD_SECS=2", start_in(9));
        let When::Time { warmup, .. } = read(&text).unwrap().when else { panic!("no time") };
        assert_eq!(warmup, Duration::from_secs(2));
        let text = "PROFILE_START_ITERATION=4\nACTIVITIES_ITERATIONS=2\nACTIVITIES_WARMUP_ITERATIONS=30";
        let When::Iterations { start, warmup, count, .. } = read(text).unwrap().when else { panic!("no iterations") };
        assert_eq!((start, warmup, count), (4, 30, 2));
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "asks the operating system")]
        fn any_text_is_a_request_within_bounds_or_refused(text in "[A-Z_=0-9a-z/.#\" \n]{0,300}") {
            if let Ok(request) = read(&text) {
                prop_assert!(request.output.starts_with("/tmp"));
            }
        }

        #[test]
        #[cfg_attr(miri, ignore = "asks the operating system")]
        fn any_numbers_are_within_bounds_or_refused(
            duration in any::<i64>(), iterations in any::<i64>(), start in any::<i64>(), roundup in any::<i32>()
        ) {
            let text = format!(
                "ACTIVITIES_DURATION_MSECS={duration}\nACTIVITIES_ITERATIONS={iterations}\n\
                 PROFILE_START_ITERATION={start}\nPROFILE_START_ITERATION_ROUNDUP={roundup}"
            );
            match read(&text).map(|request| request.when) {
                Ok(When::Time { length, .. }) => prop_assert!(length <= Config::default().ondemand.max_duration && iterations == 0),
                Ok(When::Iterations { count, roundup, .. }) => prop_assert!(count <= ITERATIONS_MAX && roundup > 0),
                Err(why) => prop_assert!(!why.is_empty()),
            }
        }
    }
}

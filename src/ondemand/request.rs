//! A request, checked against all bounds: its kind, times and file.

use super::machine::ClockReading;
use super::place::OutputFile;
use super::plan::Point;
use super::source::{AnswerChannel, Incoming};
use crate::config::{OnDemandConfig, ParsedRequest, PlaceholderValues, Timetable, extension_warning};
use crate::text::count_with_noun;
use crate::wait::{steady, wall};
use crate::write::file::FileFormat;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A valid request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The requester, for messages.
    pub(super) by: String,
    /// Where to report the progress.
    pub(super) answer: Option<Arc<dyn AnswerChannel>>,
    /// The given start time: [`Point::Clock`], or [`Point::Own`] from the program's own configuration.
    pub(super) start: Option<Point>,
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
        if asked.is_declined {
            return Err("ACTIVITIES_ENABLED is false; remove it".to_owned());
        }
        let is_own = incoming.output.is_some();
        let (arrived, now) = (parts.time.unwrap_or_else(wall), steady());
        if !is_own {
            check_bounds(&asked, settings, arrived)?;
        }
        let start = asked.start.map(|at| match is_own {
            // The wall clock may be set before it.
            true => Point::Own(now + at.saturating_sub(arrived.duration_since(UNIX_EPOCH).unwrap_or_default())),
            false => Point::Clock(at),
        });
        if asked.last.is_some() && asked.memory_profile.is_some() {
            return Err("PROFILE_LAST_MSECS is for traces; remove it or PROFILE_MEMORY".to_owned());
        }
        let is_trace = asked.memory_profile.is_none();
        let default = if is_trace { "libkineto_activities.json" } else { "memory_snapshot.json" };
        let output = match &incoming.output {
            Some(path) => OutputFile { path: path.clone(), rejection: None, replaces_own: true },
            None => OutputFile::from_requested_path(asked.log_file.as_deref(), &settings.trace_folder, parts, default)?,
        };
        let elsewhere = output.rejection.map(|why| format!("{why}; writing to {} instead", output.path.display()));
        asked.warnings.extend(elsewhere);
        if is_trace && !is_own && FileFormat::check_extension(&output.path).is_err() {
            asked.warnings.push(extension_warning(&output.path));
        }
        Ok(Request {
            by: incoming.by.clone(),
            answer: incoming.answer.clone(),
            start,
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

    /// Returns whether it asks for a memory profile instead of a trace.
    pub(super) fn is_memory_profile(&self) -> bool {
        self.asked.memory_profile.is_some()
    }

    /// Returns the first iteration if it records iterations: as in libkineto, if their number is given too.
    pub(super) fn start_iteration(&self) -> Option<u64> {
        self.asked.start_iteration.filter(|_| self.asked.iterations > 0 && !self.is_memory_profile())
    }

    /// Returns how long it records, unless it records iterations.
    pub(super) fn length(&self) -> Duration {
        self.asked.memory_profile.unwrap_or(self.asked.duration)
    }

    /// Returns how long collectors run before, if there is time.
    pub(super) fn warmup(&self) -> Duration {
        let default = if self.start.is_some() { WARMUP } else { Duration::ZERO };
        if self.is_memory_profile() { Duration::ZERO } else { self.asked.warmup.unwrap_or(default) }
    }

    /// Returns whether it begins without waiting for a start time or an iteration.
    pub(super) fn begins_at_once(&self) -> bool {
        self.start.is_none() && self.start_iteration().is_none()
    }

    /// Returns the time until its start; zero without a start time.
    pub(super) fn time_until_start(&self, moment: &ClockReading) -> Duration {
        let start = self.start.filter(|_| self.start_iteration().is_none());
        start.map_or(Duration::ZERO, |start| start.time_left(moment))
    }

    /// Returns whether it records until the program ends.
    pub(super) fn is_endless(&self) -> bool {
        self.start_iteration().is_none() && self.length() == Timetable::FOREVER
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
        if self.is_memory_profile() {
            f.write_str("a memory profile of ")?;
        }
        if let Some(last) = self.asked.last {
            return write!(f, "the last {last:?} into {}", self.output.display());
        }
        let is_by_time = self.start_iteration().is_none();
        match is_by_time {
            true if self.is_endless() => f.write_str("everything until the program ends")?,
            true => write!(f, "{:?}", self.length())?,
            false => write!(f, "{}", count_with_noun(self.asked.iterations, "iteration"))?,
        }
        match is_by_time {
            true if self.start.is_some() && !self.is_own => f.write_str(" from a given time on")?,
            false if self.asked.roundup.is_some_and(|roundup| roundup > 1) => f.write_str(" from a round one on")?,
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
        let times = |text: &str| {
            let request = read(text).unwrap();
            (request.start_iteration(), request.start, request.warmup(), request.length())
        };
        let soon = (None, None, Duration::ZERO, Duration::from_millis(500));
        for text in ["", "ACTIVITIES_ITERATIONS=3", "PROFILE_START_ITERATION_ROUNDUP=9\nACTIVITIES_ITERATIONS=3"] {
            assert_eq!(times(text), soon, "{text}");
        }
        assert_eq!(times("PROFILE_START_ITERATION=4"), soon);
        let text = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=1000\nACTIVITIES_ITERATIONS=3";
        assert_eq!(times(text), (Some(0), None, Duration::ZERO, Duration::from_millis(500)));
        let asked = read(text).unwrap().asked;
        assert_eq!((asked.roundup, asked.warmup_iterations, asked.iterations), (Some(1000), 0, 3));
        let (_, start, warmup, _) = times(&start_in(9));
        assert!(matches!(start, Some(Point::Clock(_))) && warmup == Duration::from_secs(5), "{start:?} {warmup:?}");
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
        let request = read(&text).unwrap();
        assert_eq!((request.start_iteration(), request.warmup()), (None, Duration::from_secs(2)));
        let text = "PROFILE_START_ITERATION=4\nACTIVITIES_ITERATIONS=2\nACTIVITIES_WARMUP_ITERATIONS=30";
        let request = read(text).unwrap();
        let (warmup, count) = (request.asked.warmup_iterations, request.asked.iterations);
        assert_eq!((request.start_iteration(), warmup, count), (Some(4), 30, 2));
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
            match read(&text) {
                Ok(request) if request.start_iteration().is_none() => {
                    prop_assert!(request.length() <= Config::default().ondemand.max_duration && iterations == 0);
                }
                Ok(request) => prop_assert!(request.asked.iterations <= ITERATIONS_MAX),
                Err(why) => prop_assert!(!why.is_empty()),
            }
        }
    }
}

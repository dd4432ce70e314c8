//! An accepted request, and its calls to the session.

use super::place::{NotedFiles, RequestFiles, WrittenFiles};
use super::plan::RequestPlan;
use super::request::Request;
use super::source::report_progress;
use crate::config::Config;
use crate::error::Error;
use crate::session::{ActiveWrite, Session};
use crate::trace::{Trace, TraceStats};
use crate::wait::{since, steady, wall};
use crate::write::file::Destination;
use crate::write::sink::Sinks;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// An accepted request.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Its unique number.
    pub(super) id: u64,
    pub(super) request: Arc<Request>,
    pub(super) plan: RequestPlan,
    /// How late it began.
    pub(super) late: Arc<OnceLock<Duration>>,
    /// The part of the program's own recording that the request gets, if that is shared.
    pub(super) part: SharedPart,
    /// That part, once it is taken.
    pub(super) taken: Arc<OnceLock<Result<Trace, Error>>>,
}

/// When a part of the program's own recording begins and ends.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedPart {
    /// The wall clock's time of the begin, and when it was set.
    begin: Arc<OnceLock<(SystemTime, Instant)>>,
    end: Arc<OnceLock<SystemTime>>,
}

impl SharedPart {
    /// Returns the part between two times.
    pub(super) fn new(begin: SystemTime, end: SystemTime) -> SharedPart {
        SharedPart { begin: Arc::new((begin, steady()).into()), end: Arc::new(end.into()) }
    }

    fn begin(&self, at: SystemTime) {
        self.begin.get_or_init(|| (at, steady()));
    }

    /// Ends the part now, unless the request gives the time.
    fn end(&self, given: Option<SystemTime>) {
        if let Some((begin, begun)) = self.begin.get() {
            // The wall clock may have been set since, back or forward.
            self.end.get_or_init(|| given.unwrap_or_else(|| wall().max(*begin + since(*begun))));
        }
    }

    /// Returns the times, if the part has begun; it ends now if it has not.
    fn times(&self) -> Option<(SystemTime, SystemTime)> {
        self.end(None);
        self.begin.get().zip(self.end.get()).map(|((begin, _), end)| (*begin, *end))
    }
}

/// A file that was written for a request.
#[derive(Debug)]
pub(super) struct SavedFile {
    pub(super) path: PathBuf,
    /// A summary of its contents, for people.
    pub(super) content: String,
    pub(super) stats: TraceStats,
}

impl Job {
    /// Creates the job of a request that has not begun.
    pub(super) fn new(request: Arc<Request>, plan: RequestPlan) -> Job {
        Job { id: 0, request, plan, late: Arc::default(), part: SharedPart::default(), taken: Arc::default() }
    }

    /// Starts the collectors, and reports what the recording will lack.
    pub(super) fn prepare(&self, session: &Session) -> Result<(), Error> {
        if self.request.is_memory_profile() {
            return Ok(());
        }
        let (config, missing) = self.recording_settings(session);
        let is_shared = session.requests.shares_recording();
        let missing = if is_shared { session.settings.without_effect(&config) } else { missing };
        if let Some(missing) = missing {
            report_progress!(Warning, Ongoing, self.request.answer, "{}: {missing}", self.request.display_name());
        }
        if is_shared { Ok(()) } else { session.requests.prepare(self.id, config) }
    }

    /// Begins the recording.
    pub(super) fn start(&self, session: &Session) -> Result<(), Error> {
        let (id, between) = (self.id, self.plan.cut_times());
        if self.request.is_memory_profile() {
            return session.memory_profile.start_for(id, between);
        }
        if session.requests.shares_recording() {
            self.part.begin(between.map_or_else(wall, |(begin, _)| begin));
            return Ok(());
        }
        session.requests.start(id, between, self.recording_settings(session).0)
    }

    /// Stops recording at once. An error is reported when the file is saved.
    pub(super) fn halt(&self, session: &Session) {
        if !self.request.is_memory_profile() {
            self.part.end(self.plan.cut_times().map(|(_, end)| end));
            let _ = session.requests.halt(self.id);
        }
    }

    /// Takes the part of the program's own recording, if the request gets one and it has begun. The first call ends the part;
    /// others wait for it and return the same.
    pub(super) fn take_part(&self, session: &Session) -> Option<Result<Trace, Error>> {
        let times = self.part.times()?;
        let take = || session.requests.part_of_recording(times, self.request.asked.ids());
        Some(self.taken.get_or_init(take).clone())
    }

    /// Returns whether the part is taken, so that no later record belongs to it.
    pub(super) fn is_part_taken(&self) -> bool {
        self.taken.get().is_some()
    }

    /// Discards the recording, for that reason.
    pub(super) fn cancel(&self, session: &Session, why: &str) {
        if self.request.is_memory_profile() {
            session.memory_profile.discard_for(self.id);
        } else {
            session.requests.discard(self.id, why);
        }
    }

    /// Ends the recording and writes its file; returns its path and contents. Absent devices are named if the request names
    /// types.
    pub(super) fn stop_and_save(
        &self,
        session: &Session,
        write: &ActiveWrite,
        written: &WrittenFiles,
    ) -> Result<SavedFile, Error> {
        let (is_profile, output) = (self.request.is_memory_profile(), &self.request.output);
        let trace = if is_profile {
            session.memory_profile.stop_for(self.id)?
        } else {
            self.take_part(session).unwrap_or_else(|| session.requests.stop(self.id))?
        };
        write.set_trace(Some(trace.clone()));
        let files = if self.request.is_own {
            None
        } else {
            Some(RequestFiles::open_folder(&self.request, &session.settings.next_config().ondemand, written)?)
        };
        let to: &dyn Destination = match &files {
            Some(files) => files,
            None => trace.destination(),
        };
        let noted = NotedFiles::new(to);
        let path = if is_profile {
            session.memory_profile.write_timeline(&trace, &noted, output)
        } else {
            write.save(&trace, &noted, output)
        };
        let limits = session.settings.next_config().ondemand.kept;
        let file_path = |path: &PathBuf| Sinks::file_path(path).unwrap_or(path).to_owned();
        written.add_request(noted.into_paths().iter().map(file_path).collect(), self.request.is_own, &limits);
        let path = path?;
        let content = match trace.why_empty() {
            _ if is_profile => "allocations".to_owned(),
            Some(why) => format!("empty: {why}"),
            None if self.request.asked.names_types() => trace.stats().to_string(),
            None => trace.stats().without_absent().to_string(),
        };
        let cut = trace.progress().file_cut().map(|cut| format!("{}; ", cut.describe(trace.row_count())));
        Ok(SavedFile { path, content: cut.unwrap_or_default() + &content, stats: trace.stats() })
    }

    /// Returns the recording's settings, and a warning if it requests options that only the layer can enable.
    fn recording_settings(&self, session: &Session) -> (Config, Option<&'static str>) {
        session.settings.of_request(&self.request.asked, self.request.output.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_ends_after_its_begin_when_the_clock_is_set_back() {
        let part = SharedPart::default();
        part.end(None);
        assert_eq!(part.times(), None, "it has not begun");
        let ahead = SystemTime::now() + Duration::from_secs(3600);
        part.begin(ahead);
        part.end(None);
        let (begin, end) = part.times().unwrap();
        assert!(begin == ahead && end >= ahead, "{begin:?} {end:?}");
        part.end(Some(ahead));
        assert_eq!(part.times(), Some((begin, end)), "the first end counts");
    }
}

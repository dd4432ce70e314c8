//! The state machine of requests: which one waits, warms up, records or is written, and which are refused and why.
//!
//! It has no side effects: time, iterations and the program's state are passed in, and actions are returned.

use super::job::Job;
use super::plan::{RequestEnd, RequestPlan};
use super::request::Request;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The current request, the one that is queued behind it, and those with a later start.
#[derive(Debug, Default)]
pub(super) struct RequestMachine {
    current: Option<(RequestPhase, Job)>,
    pending: Option<Arc<Request>>,
    /// Accepted requests that have not begun; the first that can begin goes first.
    accepted: Vec<Job>,
    /// The number of requests that have begun.
    last_id: u64,
}

/// What becomes of the current request.
#[derive(Clone, Copy, Debug)]
enum RequestPhase {
    /// Collectors run; recording has not started.
    Warming,
    /// A caller is starting the recording, and will report it.
    Starting(RequestEnd),
    Collecting(RequestEnd),
    /// A caller is writing or discarding it, and will report it.
    Ending,
}

/// The clocks and the iteration at a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
    /// The current iteration of the program, if it counts them.
    pub(super) iteration: Option<u64>,
    /// Whether the program begins that iteration now, and waits until all due actions are done.
    pub(super) begins: bool,
}

impl ClockReading {
    /// Returns the wall clock, since the Unix epoch.
    pub(super) fn since_epoch(&self) -> Duration {
        self.wall.duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// The state of the program.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramState {
    /// Why no recording can begin.
    pub(super) busy: Option<&'static str>,
    /// The collector that stopped on its own, and the cause.
    pub(super) stopped: Option<String>,
}

/// Whether a new request is admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Accepted,
    /// It is queued behind the current request.
    Pending,
    Refused(String),
}

/// An action to perform now, without the machine's lock. The caller reports the result: [`mark_begun`](RequestMachine::mark_begun)
/// after a start, [`mark_ended`](RequestMachine::mark_ended) after a stop or cancel, and [`mark_failed`](RequestMachine::mark_failed) if it
/// cannot begin.
#[derive(Debug)]
pub(super) enum RequestAction {
    /// Start the collectors.
    Prepare(Job),
    /// Start the recording.
    Start(Job),
    /// End the recording and write the file; with a reason if it ends early.
    Stop(Job, Option<String>),
    /// Discard the recording, for that reason.
    Cancel(Job, String),
    /// Report that a request that cannot begin is refused, and why.
    Refuse(Arc<Request>, String),
    /// Report that a request that waited is cancelled, and why.
    CancelWaiting(Arc<Request>, String),
}

impl RequestMachine {
    /// The maximum number of requests with a later start.
    pub(super) const MOST_AHEAD: usize = 4;

    /// Admits a request unless too many are waiting.
    pub(super) fn admit_request(&mut self, request: Request, moment: &ClockReading) -> Admission {
        if self.repeats_known_request(&request) {
            let why = "a request with its REQUEST_TRACE_ID records or waits already; give each one its own";
            return Admission::Refused(why.to_owned());
        }
        let request = Arc::new(request);
        if self.has_begun() {
            if self.pending.is_some() {
                return Admission::Refused(
                    "another request is waiting already; try again when it has begun".to_owned(),
                );
            }
            self.pending = Some(request);
            return Admission::Pending;
        }
        if self.accepted.len() >= Self::MOST_AHEAD {
            return Admission::Refused(format!(
                "{} requests wait for their start already; cancel them with CANCEL=true",
                Self::MOST_AHEAD
            ));
        }
        match self.accept_request(request, moment) {
            Ok(()) => Admission::Accepted,
            Err((_, why)) => Admission::Refused(why),
        }
    }

    /// Returns whether it has the id of a request that records or waits: its sender has sent it again.
    fn repeats_known_request(&self, request: &Request) -> bool {
        let id = &request.asked.trace_id;
        let jobs = self.accepted.iter().chain(self.current.as_ref().map(|(_, job)| job));
        let known = jobs.map(|job| &job.request).chain(&self.pending);
        !request.is_own && !id.is_empty() && known.into_iter().any(|known| known.asked.trace_id == *id)
    }

    fn accept_request(&mut self, request: Arc<Request>, moment: &ClockReading) -> Result<(), (Arc<Request>, String)> {
        match RequestPlan::new(&request, moment) {
            Ok(plan) => {
                self.accepted.push(Job::new(request, plan));
                Ok(())
            }
            Err(why) => Err((request, why)),
        }
    }

    /// Advances by one state, if one is due; returns the action for it.
    pub(super) fn advance(&mut self, moment: &ClockReading, program: &ProgramState) -> Option<RequestAction> {
        if self.current.is_none() {
            let accepted = self.pending.take().map(|request| self.accept_request(request, moment));
            if let Some(Err((request, why))) = accepted {
                return Some(RequestAction::Refuse(request, why));
            }
        }
        let expired = self.accepted.iter().enumerate().find_map(|(at, job)| Some((at, job.plan.why_expired(moment)?)));
        if let Some((at, why)) = expired {
            return Some(RequestAction::Refuse(self.accepted.remove(at).request, why));
        }
        match self.current.clone() {
            None => self.begin_next(moment, program),
            Some((RequestPhase::Warming, job)) => self.advance_warming(job, moment, program),
            Some((RequestPhase::Collecting(until), job)) => self.advance_collecting(job, until, moment, program),
            Some((RequestPhase::Starting(_) | RequestPhase::Ending, _)) => None,
        }
    }

    /// Begins the first request that can begin.
    fn begin_next(&mut self, moment: &ClockReading, program: &ProgramState) -> Option<RequestAction> {
        let at = self.accepted.iter().position(|job| job.plan.is_warm(moment))?;
        let mut job = self.accepted.remove(at);
        if let Some(busy) = program.busy {
            return Some(RequestAction::Refuse(job.request, busy.to_owned()));
        }
        // Numbered in the order of their begin: the session treats a lower number than the last one as ended.
        self.last_id += 1;
        job.id = self.last_id;
        self.current = Some((RequestPhase::Warming, job.clone()));
        Some(RequestAction::Prepare(job))
    }

    fn advance_warming(&mut self, job: Job, moment: &ClockReading, program: &ProgramState) -> Option<RequestAction> {
        if let Some(why) = &program.stopped {
            return Some(self.cancel_job(job, format!("a collector stopped before the start: {why}")));
        }
        if let Some(why) = job.plan.why_expired(moment) {
            return Some(self.cancel_job(job, why));
        }
        job.plan.is_due(moment).then(|| {
            let until = job.plan.end_condition(moment, job.request.longest);
            self.current = Some((RequestPhase::Starting(until), job.clone()));
            RequestAction::Start(job)
        })
    }

    fn advance_collecting(
        &mut self,
        job: Job,
        until: RequestEnd,
        moment: &ClockReading,
        program: &ProgramState,
    ) -> Option<RequestAction> {
        let why = match &program.stopped {
            Some(why) => format!("a collector stopped: {why}"),
            None if job.is_part_taken() => "the program ended its recording".to_owned(),
            None if until.is_over(moment) => return Some(self.stop_job(job, None)),
            None if until.is_too_long(moment) => {
                format!("it took longer than {:?}; raise KINETO_ONDEMAND_MAX_DURATION_SECS", job.request.longest)
            }
            None => return None,
        };
        Some(self.end_early(job, why, moment))
    }

    /// Ends a recording early; if its start time is still ahead, there is nothing to write.
    fn end_early(&mut self, job: Job, why: String, moment: &ClockReading) -> RequestAction {
        let has_begun = job.plan.time_until_start(moment).is_zero();
        if has_begun { self.stop_job(job, Some(why)) } else { self.cancel_job(job, why) }
    }

    fn stop_job(&mut self, job: Job, early: Option<String>) -> RequestAction {
        self.current = Some((RequestPhase::Ending, job.clone()));
        RequestAction::Stop(job, early)
    }

    fn cancel_job(&mut self, job: Job, why: String) -> RequestAction {
        self.current = Some((RequestPhase::Ending, job.clone()));
        RequestAction::Cancel(job, why)
    }

    /// Records that a recording has begun; returns `false` if it was cancelled meanwhile.
    pub(super) fn mark_begun(&mut self, id: u64, moment: &ClockReading) -> bool {
        let Some((phase, job)) = self.current.as_mut().filter(|(_, job)| job.id == id) else { return false };
        let RequestPhase::Starting(planned) = *phase else { return false };
        let from_now = || job.plan.end_condition(moment, job.request.longest);
        *phase = RequestPhase::Collecting(if planned.end_iteration().is_some() { planned } else { from_now() });
        true
    }

    /// Records that a request cannot begin; returns `false` if it was cancelled meanwhile, which is reported elsewhere.
    pub(super) fn mark_failed(&mut self, id: u64) -> bool {
        let has_not_begun = |phase| matches!(phase, RequestPhase::Warming | RequestPhase::Starting(_));
        self.current.take_if(|(phase, job)| job.id == id && has_not_begun(*phase)).is_some()
    }

    /// Records that a request has ended.
    pub(super) fn mark_ended(&mut self, id: u64) {
        self.current.take_if(|(phase, job)| job.id == id && matches!(phase, RequestPhase::Ending));
    }

    /// Cancels all external requests, unless they are ending already.
    pub(super) fn cancel_requests(&mut self, why: &str) -> Vec<RequestAction> {
        let mut actions = self.drop_waiting(why, |request| !request.is_own);
        let is_own = self.current.as_ref().is_some_and(|(_, job)| job.request.is_own);
        actions.extend(if is_own { None } else { self.cancel_current(why) });
        actions
    }

    /// Cancels requests that have not begun.
    fn drop_waiting(&mut self, why: &str, is_dropped: impl Fn(&Request) -> bool) -> Vec<RequestAction> {
        let pending = self.pending.take_if(|request| is_dropped(request));
        let accepted = self.accepted.extract_if(.., |job| is_dropped(&job.request)).map(|job| job.request);
        accepted.chain(pending).map(|request| RequestAction::CancelWaiting(request, why.to_owned())).collect()
    }

    /// Cancels the current request, unless it is ending already.
    pub(super) fn cancel_current(&mut self, why: &str) -> Option<RequestAction> {
        match self.current.clone()? {
            (RequestPhase::Ending, _) => None,
            (_, job) => Some(self.cancel_job(job, why.to_owned())),
        }
    }

    /// Ends all requests because the program ends: the current recording is written, and the others are cancelled.
    pub(super) fn end_all_requests(&mut self, moment: &ClockReading) -> Vec<RequestAction> {
        const WHY: &str = "the program ends";
        let mut actions = self.drop_waiting(WHY, |_| true);
        let current = match self.current.clone() {
            // It was meant to last until the program ends.
            Some((RequestPhase::Collecting(_), job)) if job.request.is_endless() => Some(self.stop_job(job, None)),
            Some((RequestPhase::Collecting(_), job)) => Some(self.end_early(job, WHY.to_owned(), moment)),
            _ => self.cancel_current(WHY),
        };
        actions.extend(current);
        actions
    }

    /// Returns the request that uses the session, if one does.
    pub(super) fn in_session(&self) -> Option<u64> {
        let is_in_session = |phase| matches!(phase, RequestPhase::Warming | RequestPhase::Collecting(_));
        self.current.as_ref().filter(|(phase, _)| is_in_session(*phase)).map(|(_, job)| job.id)
    }

    /// Returns the request that records or is being written, if one is.
    pub(super) fn current_job(&self) -> Option<&Job> {
        self.current.as_ref().filter(|(phase, _)| !matches!(phase, RequestPhase::Warming)).map(|(_, job)| job)
    }

    /// Returns whether sources should hold back further requests. Fewer than [`MOST_AHEAD`](Self::MOST_AHEAD) requests with a
    /// later start do not count.
    pub(super) fn is_busy(&self) -> bool {
        self.has_begun() || self.pending.is_some() || self.accepted.len() >= Self::MOST_AHEAD
    }

    /// Returns whether a request is active, or begins at once.
    fn has_begun(&self) -> bool {
        self.current.is_some() || self.accepted.iter().any(|job| job.request.begins_at_once())
    }

    /// Returns whether collectors have not begun, and all starts are after that iteration.
    pub(super) fn has_time(&self, iteration: u64) -> bool {
        let is_ahead = |job: &Job| job.plan.start_iteration().is_none_or(|start| iteration < start);
        self.current.is_none() && self.accepted.iter().all(is_ahead)
    }

    /// Returns whether a caller is starting or ending a recording; it performs the next due actions afterwards.
    pub(super) fn is_underway(&self) -> bool {
        matches!(self.current, Some((RequestPhase::Starting(_) | RequestPhase::Ending, _)))
    }

    /// Returns the name of the state, the current request, and the number of waiting ones.
    pub(super) fn state_summary(&self) -> (&'static str, Option<&Request>, usize) {
        let state = match &self.current {
            None => "idle",
            Some((RequestPhase::Warming | RequestPhase::Starting(_), _)) => "preparing",
            Some((RequestPhase::Collecting(_), _)) => "recording",
            Some((RequestPhase::Ending, _)) => "writing",
        };
        let request = self.current.as_ref().map(|(_, job)| &*job.request);
        (state, request, self.accepted.len() + usize::from(self.pending.is_some()))
    }

    /// Returns when something is due by time alone.
    pub(super) fn next_due_time(&self, moment: &ClockReading) -> Option<Instant> {
        match &self.current {
            None => self.accepted.iter().map(|job| job.plan.warm_at(moment)).min(),
            Some((RequestPhase::Warming, job)) => Some(job.plan.start_at(moment)),
            Some((RequestPhase::Collecting(until), _)) => Some(until.end_time(moment)),
            Some((RequestPhase::Starting(_) | RequestPhase::Ending, _)) => None,
        }
    }

    /// Returns the iteration at which something is due.
    pub(super) fn next_due_iteration(&self) -> Option<u64> {
        match &self.current {
            None => self.accepted.iter().filter_map(|job| job.plan.warm_iteration()).min(),
            Some((RequestPhase::Warming, job)) => job.plan.start_iteration(),
            Some((RequestPhase::Starting(until) | RequestPhase::Collecting(until), _)) => until.end_iteration(),
            Some((RequestPhase::Ending, _)) => None,
        }
    }
}

#[cfg(test)]
mod tests;

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
    state: RequestState,
    pending: Option<Arc<Request>>,
    /// Accepted requests that have not begun; the first that can begin goes first.
    accepted: Vec<Job>,
    /// The number of requests that have begun.
    last_id: u64,
}

#[derive(Debug, Default)]
enum RequestState {
    #[default]
    Idle,
    /// Collectors run; recording has not started.
    Warming(Job),
    /// A caller is starting the recording, and will report it.
    Starting(Job, RequestEnd),
    Collecting(Job, RequestEnd),
    /// A caller is writing or discarding it, and will report it.
    Ending(Job),
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
        let current = match &self.state {
            RequestState::Idle => None,
            RequestState::Warming(job)
            | RequestState::Starting(job, _)
            | RequestState::Collecting(job, _)
            | RequestState::Ending(job) => Some(&job.request),
        };
        let known = self.accepted.iter().map(|job| &job.request).chain(&self.pending).chain(current);
        !request.is_own && !id.is_empty() && known.into_iter().any(|known| known.asked.trace_id == *id)
    }

    fn accept_request(&mut self, request: Arc<Request>, moment: &ClockReading) -> Result<(), (Arc<Request>, String)> {
        match RequestPlan::new(&request.when, moment, request.longest) {
            Ok(plan) => {
                self.accepted.push(Job::new(request, plan));
                Ok(())
            }
            Err(why) => Err((request, why)),
        }
    }

    /// Advances by one state, if one is due; returns the action for it.
    pub(super) fn advance(&mut self, moment: &ClockReading, program: &ProgramState) -> Option<RequestAction> {
        if matches!(self.state, RequestState::Idle) {
            let accepted = self.pending.take().map(|request| self.accept_request(request, moment));
            if let Some(Err((request, why))) = accepted {
                return Some(RequestAction::Refuse(request, why));
            }
        }
        let expired = self.accepted.iter().enumerate().find_map(|(at, job)| Some((at, job.plan.why_expired(moment)?)));
        if let Some((at, why)) = expired {
            return Some(RequestAction::Refuse(self.accepted.remove(at).request, why));
        }
        let (next, action) = match std::mem::take(&mut self.state) {
            RequestState::Idle => self.begin_next(moment, program),
            RequestState::Warming(job) => advance_warming(job, moment, program),
            RequestState::Collecting(job, until) => advance_collecting(job, until, moment, program),
            other => (other, None),
        };
        self.state = next;
        action
    }

    /// Begins the first request that can begin.
    fn begin_next(&mut self, moment: &ClockReading, program: &ProgramState) -> (RequestState, Option<RequestAction>) {
        let Some(at) = self.accepted.iter().position(|job| job.plan.is_warm(moment)) else {
            return (RequestState::Idle, None);
        };
        let mut job = self.accepted.remove(at);
        if let Some(busy) = program.busy {
            return (RequestState::Idle, Some(RequestAction::Refuse(job.request, busy.to_owned())));
        }
        // Numbered in the order of their begin: the session treats a lower number than the last one as ended.
        self.last_id += 1;
        job.id = self.last_id;
        (RequestState::Warming(job.clone()), Some(RequestAction::Prepare(job)))
    }

    /// Records that a recording has begun; returns `false` if it was cancelled meanwhile.
    pub(super) fn mark_begun(&mut self, id: u64, moment: &ClockReading) -> bool {
        let (next, is_wanted) = match std::mem::take(&mut self.state) {
            RequestState::Starting(job, planned) if job.id == id => {
                let until = if planned.end_iteration().is_some() {
                    planned
                } else {
                    job.plan.end_condition(moment, job.request.longest)
                };
                (RequestState::Collecting(job, until), true)
            }
            other => (other, false),
        };
        self.state = next;
        is_wanted
    }

    /// Records that a request cannot begin; returns `false` if it was cancelled meanwhile, which is reported elsewhere.
    pub(super) fn mark_failed(&mut self, id: u64) -> bool {
        let must_report =
            matches!(&self.state, RequestState::Warming(job) | RequestState::Starting(job, _) if job.id == id);
        if must_report {
            self.state = RequestState::Idle;
        }
        must_report
    }

    /// Records that a request has ended.
    pub(super) fn mark_ended(&mut self, id: u64) {
        if matches!(&self.state, RequestState::Ending(job) if job.id == id) {
            self.state = RequestState::Idle;
        }
    }

    /// Cancels all external requests, unless they are ending already.
    pub(super) fn cancel_requests(&mut self, why: &str) -> Vec<RequestAction> {
        let mut actions = self.drop_waiting(why, |request| !request.is_own);
        let current = match &self.state {
            RequestState::Warming(job) | RequestState::Starting(job, _) | RequestState::Collecting(job, _)
                if !job.request.is_own =>
            {
                self.cancel_current(why)
            }
            _ => None,
        };
        actions.extend(current);
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
        let (next, action) = match std::mem::take(&mut self.state) {
            RequestState::Warming(job) | RequestState::Starting(job, _) | RequestState::Collecting(job, _) => {
                cancel_job(job, why.to_owned())
            }
            other => (other, None),
        };
        self.state = next;
        action
    }

    /// Ends all requests because the program ends: the current recording is written, and the others are cancelled.
    pub(super) fn end_all_requests(&mut self, moment: &ClockReading) -> Vec<RequestAction> {
        const WHY: &str = "the program ends";
        let mut actions = self.drop_waiting(WHY, |_| true);
        let (next, current) = match std::mem::take(&mut self.state) {
            // It was meant to last until the program ends.
            RequestState::Collecting(job, _) if job.request.is_endless() => {
                (RequestState::Ending(job.clone()), Some(RequestAction::Stop(job, None)))
            }
            RequestState::Collecting(job, _) => ended_early(job, WHY.to_owned(), moment),
            other => (other, None),
        };
        self.state = next;
        actions.extend(current.or_else(|| self.cancel_current(WHY)));
        actions
    }

    /// Returns the request that uses the session, if one does.
    pub(super) fn in_session(&self) -> Option<u64> {
        match &self.state {
            RequestState::Warming(job) | RequestState::Collecting(job, _) => Some(job.id),
            _ => None,
        }
    }

    /// Returns the request that records or is being written, if one is.
    pub(super) fn current_job(&self) -> Option<&Job> {
        match &self.state {
            RequestState::Starting(job, _) | RequestState::Collecting(job, _) | RequestState::Ending(job) => Some(job),
            RequestState::Idle | RequestState::Warming(_) => None,
        }
    }

    /// Returns whether sources should hold back further requests. Fewer than [`MOST_AHEAD`](Self::MOST_AHEAD) requests with a
    /// later start do not count.
    pub(super) fn is_busy(&self) -> bool {
        self.has_begun() || self.pending.is_some() || self.accepted.len() >= Self::MOST_AHEAD
    }

    /// Returns whether a request is active, or begins at once.
    fn has_begun(&self) -> bool {
        !matches!(self.state, RequestState::Idle) || self.accepted.iter().any(|job| job.request.begins_at_once())
    }

    /// Returns whether collectors have not begun, and all starts are after that iteration.
    pub(super) fn has_time(&self, iteration: u64) -> bool {
        let is_ahead = |job: &Job| job.plan.start_iteration().is_none_or(|start| iteration < start);
        matches!(self.state, RequestState::Idle) && self.accepted.iter().all(is_ahead)
    }

    /// Returns whether a caller is starting or ending a recording; it performs the next due actions afterwards.
    pub(super) fn is_underway(&self) -> bool {
        matches!(self.state, RequestState::Starting(..) | RequestState::Ending(_))
    }

    /// Returns the name of the state, the current request, and the number of waiting ones.
    pub(super) fn state_summary(&self) -> (&'static str, Option<&Request>, usize) {
        let (state, request) = match &self.state {
            RequestState::Idle => ("idle", None),
            RequestState::Warming(job) | RequestState::Starting(job, _) => ("preparing", Some(&*job.request)),
            RequestState::Collecting(job, _) => ("recording", Some(&*job.request)),
            RequestState::Ending(job) => ("writing", Some(&*job.request)),
        };
        (state, request, self.accepted.len() + usize::from(self.pending.is_some()))
    }

    /// Returns when something is due by time alone.
    pub(super) fn next_due_time(&self, moment: &ClockReading) -> Option<Instant> {
        match &self.state {
            RequestState::Idle => self.accepted.iter().map(|job| job.plan.warm_at(moment)).min(),
            RequestState::Warming(job) => Some(job.plan.start_at(moment)),
            RequestState::Collecting(_, until) => Some(until.end_time(moment)),
            RequestState::Starting(..) | RequestState::Ending(_) => None,
        }
    }

    /// Returns the iteration at which something is due.
    pub(super) fn next_due_iteration(&self) -> Option<u64> {
        match &self.state {
            RequestState::Idle => self.accepted.iter().filter_map(|job| job.plan.warm_iteration()).min(),
            RequestState::Warming(job) => job.plan.start_iteration(),
            RequestState::Starting(_, until) | RequestState::Collecting(_, until) => until.end_iteration(),
            RequestState::Ending(_) => None,
        }
    }
}

fn advance_warming(job: Job, moment: &ClockReading, program: &ProgramState) -> (RequestState, Option<RequestAction>) {
    if let Some(why) = &program.stopped {
        return cancel_job(job, format!("a collector stopped before the start: {why}"));
    }
    if let Some(why) = job.plan.why_expired(moment) {
        return cancel_job(job, why);
    }
    if !job.plan.is_due(moment) {
        return (RequestState::Warming(job), None);
    }
    let until = job.plan.end_condition(moment, job.request.longest);
    (RequestState::Starting(job.clone(), until), Some(RequestAction::Start(job)))
}

fn advance_collecting(
    job: Job,
    until: RequestEnd,
    moment: &ClockReading,
    program: &ProgramState,
) -> (RequestState, Option<RequestAction>) {
    match &program.stopped {
        Some(why) => ended_early(job, format!("a collector stopped: {why}"), moment),
        None if job.is_part_taken() => ended_early(job, "the program ended its recording".to_owned(), moment),
        None if until.is_over(moment) => (RequestState::Ending(job.clone()), Some(RequestAction::Stop(job, None))),
        None if until.is_too_long(moment) => {
            let why = format!("it took longer than {:?}; raise KINETO_ONDEMAND_MAX_DURATION_SECS", job.request.longest);
            ended_early(job, why, moment)
        }
        None => (RequestState::Collecting(job, until), None),
    }
}

/// Ends a recording early; if its start time is still ahead, there is nothing to write.
fn ended_early(job: Job, why: String, moment: &ClockReading) -> (RequestState, Option<RequestAction>) {
    if !job.plan.time_until_start(moment).is_zero() {
        return cancel_job(job, why);
    }
    (RequestState::Ending(job.clone()), Some(RequestAction::Stop(job, Some(why))))
}

fn cancel_job(job: Job, why: String) -> (RequestState, Option<RequestAction>) {
    (RequestState::Ending(job.clone()), Some(RequestAction::Cancel(job, why)))
}

#[cfg(test)]
mod tests;

//! What becomes of requests: which one waits, warms up, is collected or written, and which are refused and why.
//!
//! Nothing is done here: time, iterations and what the program does are passed in, and what is to be done comes out.

use super::job::Job;
use super::plan::{Plan, Until};
use super::request::Request;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The request that is being done, the one that waits for it to end, and those whose start lies ahead.
#[derive(Debug, Default)]
pub(super) struct Machine {
    state: State,
    pending: Option<Arc<Request>>,
    /// Accepted requests that have not begun; the first that can begin goes before those that cannot.
    accepted: Vec<Job>,
    /// How many requests have begun.
    tickets: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// Collectors run, and nothing is recorded yet.
    Warming(Job),
    /// Somebody begins the recording, and says so.
    Starting(Job, Until),
    Collecting(Job, Until),
    /// Somebody writes it or throws it away, and says so.
    Ending(Job),
}

/// When something is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
    /// The iteration that the program is in, if it counts them.
    pub(super) iteration: Option<u64>,
    /// It begins that iteration now, and goes on when what is due is done.
    pub(super) begins: bool,
}

impl Moment {
    /// The wall clock, since the Unix epoch.
    pub(super) fn since_epoch(&self) -> Duration {
        self.wall.duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// What goes on in the program meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// Why no recording can begin.
    pub(super) busy: Option<&'static str>,
    /// Which collector has stopped by itself, and why.
    pub(super) stopped: Option<String>,
}

/// What became of a request that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Offer {
    Accepted,
    /// It waits for the one that is being done.
    Pending,
    Refused(String),
}

/// Something that is to be done now, without the machine's lock. Of a start, it is told that it has
/// [`begun`](Machine::begun), of a stop and a cancel that it has [`ended`](Machine::ended), and of what cannot begin that
/// it has [`failed`](Machine::failed).
#[derive(Debug)]
pub(super) enum Act {
    /// Have collectors begin.
    Prepare(Job),
    /// Begin the recording.
    Start(Job),
    /// End it and write the file; because of something, if it is before its time.
    Stop(Job, Option<String>),
    /// Throw away what there is, for that reason.
    Cancel(Job, String),
    /// Report that a request that cannot begin is refused, and why.
    Refuse(Arc<Request>, String),
    /// Report that a request that waited is cancelled, and why.
    CancelWaiting(Arc<Request>, String),
}

impl Machine {
    /// The most requests whose start lies ahead.
    pub(super) const MOST_AHEAD: usize = 4;

    /// Takes a request if there is a place for it.
    pub(super) fn offer(&mut self, request: Request, moment: &Moment) -> Offer {
        let request = Arc::new(request);
        if self.has_begun() {
            if self.pending.is_some() {
                return Offer::Refused("another request is waiting already".to_owned());
            }
            self.pending = Some(request);
            return Offer::Pending;
        }
        if self.accepted.len() >= Self::MOST_AHEAD {
            return Offer::Refused(format!("{} requests wait for their start already", Self::MOST_AHEAD));
        }
        match self.accept(request, moment) {
            Ok(()) => Offer::Accepted,
            Err((_, why)) => Offer::Refused(why),
        }
    }

    fn accept(&mut self, request: Arc<Request>, moment: &Moment) -> Result<(), (Arc<Request>, String)> {
        match Plan::new(&request.when, moment, request.longest) {
            Ok(plan) => {
                self.accepted.push(Job { ticket: 0, request, plan, late: Arc::default() });
                Ok(())
            }
            Err(why) => Err((request, why)),
        }
    }

    /// Goes one step on, if one is due; returns what is to be done for it.
    pub(super) fn advance(&mut self, moment: &Moment, host: &Host) -> Option<Act> {
        if matches!(self.state, State::Idle) {
            let accepted = self.pending.take().map(|request| self.accept(request, moment));
            if let Some(Err((request, why))) = accepted {
                return Some(Act::Refuse(request, why));
            }
        }
        let expired = self.accepted.iter().enumerate().find_map(|(at, job)| Some((at, job.plan.why_expired(moment)?)));
        if let Some((at, why)) = expired {
            return Some(Act::Refuse(self.accepted.remove(at).request, why));
        }
        let (next, act) = match std::mem::take(&mut self.state) {
            State::Idle => self.idle(moment, host),
            State::Warming(job) => warming(job, moment, host),
            State::Collecting(job, until) => collecting(job, until, moment, host),
            other => (other, None),
        };
        self.state = next;
        act
    }

    /// Begins the first request that can begin.
    fn idle(&mut self, moment: &Moment, host: &Host) -> (State, Option<Act>) {
        let Some(at) = self.accepted.iter().position(|job| job.plan.is_warm(moment)) else {
            return (State::Idle, None);
        };
        let mut job = self.accepted.remove(at);
        if let Some(busy) = host.busy {
            return (State::Idle, Some(Act::Refuse(job.request, busy.to_owned())));
        }
        // Numbered in the order in which they begin: for the session, a lower number than the last one is over.
        self.tickets += 1;
        job.ticket = self.tickets;
        (State::Warming(job.clone()), Some(Act::Prepare(job)))
    }

    /// The recording of that number has begun by now, which may have taken its time; whether it is still wanted.
    pub(super) fn begun(&mut self, ticket: u64, moment: &Moment) -> bool {
        let (next, is_wanted) = match std::mem::take(&mut self.state) {
            State::Starting(job, planned) if job.ticket == ticket => {
                let until =
                    if planned.iteration().is_some() { planned } else { job.plan.until(moment, job.request.longest) };
                (State::Collecting(job, until), true)
            }
            other => (other, false),
        };
        self.state = next;
        is_wanted
    }

    /// The request of that number cannot begin; whether that is news, or somebody has taken it back and says so.
    pub(super) fn failed(&mut self, ticket: u64) -> bool {
        let is_news = matches!(&self.state, State::Warming(job) | State::Starting(job, _) if job.ticket == ticket);
        if is_news {
            self.state = State::Idle;
        }
        is_news
    }

    /// The request of that number is done.
    pub(super) fn ended(&mut self, ticket: u64) {
        if matches!(&self.state, State::Ending(job) if job.ticket == ticket) {
            self.state = State::Idle;
        }
    }

    /// Cancels all requests from outside, unless they are ending already.
    pub(super) fn cancel_requests(&mut self, why: &str) -> Vec<Act> {
        let mut acts = self.drop_waiting(why, |request| !request.is_own);
        let current = match &self.state {
            State::Warming(job) | State::Starting(job, _) | State::Collecting(job, _) if !job.request.is_own => {
                self.cancel(why)
            }
            _ => None,
        };
        acts.extend(current);
        acts
    }

    /// Cancels requests that have not begun.
    fn drop_waiting(&mut self, why: &str, is_dropped: impl Fn(&Request) -> bool) -> Vec<Act> {
        let pending = self.pending.take_if(|request| is_dropped(request));
        let accepted = self.accepted.extract_if(.., |job| is_dropped(&job.request)).map(|job| job.request);
        accepted.chain(pending).map(|request| Act::CancelWaiting(request, why.to_owned())).collect()
    }

    /// Takes back what goes on, unless it ends already.
    pub(super) fn cancel(&mut self, why: &str) -> Option<Act> {
        let (next, act) = match std::mem::take(&mut self.state) {
            State::Warming(job) | State::Starting(job, _) | State::Collecting(job, _) => cancelled(job, why.to_owned()),
            other => (other, None),
        };
        self.state = next;
        act
    }

    /// The program ends: what was collected is written, and the rest is not done.
    pub(super) fn close(&mut self, moment: &Moment) -> Vec<Act> {
        const WHY: &str = "the program ends";
        let mut acts = self.drop_waiting(WHY, |_| true);
        let (next, current) = match std::mem::take(&mut self.state) {
            // It was to go on until then.
            State::Collecting(job, _) if job.request.is_endless() => {
                (State::Ending(job.clone()), Some(Act::Stop(job, None)))
            }
            State::Collecting(job, _) => ended_early(job, WHY.to_owned(), moment),
            other => (other, None),
        };
        self.state = next;
        acts.extend(current.or_else(|| self.cancel(WHY)));
        acts
    }

    /// Returns the number of what the session is used for, if it has been given that.
    pub(super) fn in_session(&self) -> Option<u64> {
        match &self.state {
            State::Warming(job) | State::Collecting(job, _) => Some(job.ticket),
            _ => None,
        }
    }

    /// Whether there is something to do, so that no further request is asked for. Fewer than
    /// [`MOST_AHEAD`](Self::MOST_AHEAD) requests whose start lies ahead do not count.
    pub(super) fn is_busy(&self) -> bool {
        self.has_begun() || self.pending.is_some() || self.accepted.len() >= Self::MOST_AHEAD
    }

    /// Returns whether a request is being done, or begins at once.
    fn has_begun(&self) -> bool {
        !matches!(self.state, State::Idle) || self.accepted.iter().any(|job| job.request.begins_at_once())
    }

    /// Whether collectors have yet to begin, and the start is still ahead in that iteration.
    pub(super) fn has_time(&self, iteration: u64) -> bool {
        let is_ahead = |job: &Job| job.plan.start_iteration().is_none_or(|start| iteration < start);
        matches!(self.state, State::Idle) && self.accepted.iter().all(is_ahead)
    }

    /// Whether somebody begins or ends a recording, after which he goes on with what is due.
    pub(super) fn is_underway(&self) -> bool {
        matches!(self.state, State::Starting(..) | State::Ending(_))
    }

    /// Returns the name of the state, the request that is being done, and how many others wait.
    pub(super) fn status(&self) -> (&'static str, Option<&Request>, usize) {
        let (state, request) = match &self.state {
            State::Idle => ("idle", None),
            State::Warming(job) | State::Starting(job, _) => ("preparing", Some(&*job.request)),
            State::Collecting(job, _) => ("recording", Some(&*job.request)),
            State::Ending(job) => ("writing", Some(&*job.request)),
        };
        (state, request, self.accepted.len() + usize::from(self.pending.is_some()))
    }

    /// Returns when something is due by time alone.
    pub(super) fn due(&self, moment: &Moment) -> Option<Instant> {
        match &self.state {
            State::Idle => self.accepted.iter().map(|job| job.plan.warm_at(moment)).min(),
            State::Warming(job) => Some(job.plan.start_at(moment)),
            State::Collecting(_, until) => Some(until.at(moment)),
            State::Starting(..) | State::Ending(_) => None,
        }
    }

    /// Returns with which iteration something is due.
    pub(super) fn watched(&self) -> Option<u64> {
        match &self.state {
            State::Idle => self.accepted.iter().filter_map(|job| job.plan.warm_iteration()).min(),
            State::Warming(job) => job.plan.start_iteration(),
            State::Starting(_, until) | State::Collecting(_, until) => until.iteration(),
            State::Ending(_) => None,
        }
    }
}

fn warming(job: Job, moment: &Moment, host: &Host) -> (State, Option<Act>) {
    if let Some(why) = &host.stopped {
        return cancelled(job, format!("a collector stopped before the start: {why}"));
    }
    if let Some(why) = job.plan.why_expired(moment) {
        return cancelled(job, why);
    }
    if !job.plan.is_due(moment) {
        return (State::Warming(job), None);
    }
    let until = job.plan.until(moment, job.request.longest);
    (State::Starting(job.clone(), until), Some(Act::Start(job)))
}

fn collecting(job: Job, until: Until, moment: &Moment, host: &Host) -> (State, Option<Act>) {
    match &host.stopped {
        Some(why) => ended_early(job, format!("a collector stopped: {why}"), moment),
        None if until.is_over(moment) => (State::Ending(job.clone()), Some(Act::Stop(job, None))),
        None if until.is_too_long(moment) => {
            let why = format!("it took longer than {:?}", job.request.longest);
            ended_early(job, why, moment)
        }
        None => (State::Collecting(job, until), None),
    }
}

/// Ends a recording before its time; if the time that was said for its start is still ahead, there is nothing to write.
fn ended_early(job: Job, why: String, moment: &Moment) -> (State, Option<Act>) {
    if !job.plan.ahead(moment).is_zero() {
        return cancelled(job, why);
    }
    (State::Ending(job.clone()), Some(Act::Stop(job, Some(why))))
}

fn cancelled(job: Job, why: String) -> (State, Option<Act>) {
    (State::Ending(job.clone()), Some(Act::Cancel(job, why)))
}

#[cfg(test)]
mod tests;

//! What becomes of requests: which one waits, warms up, is collected or written, and which are refused and why.
//!
//! Nothing is done here: time, iterations and what the program does are passed in, and what is to be done comes out.

use super::plan::{Plan, Until};
use super::request::Request;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The request that is being done, and the one that waits for it to end.
#[derive(Debug, Default)]
pub(super) struct Machine {
    state: State,
    pending: Option<Arc<Request>>,
    /// How many requests were accepted.
    tickets: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// For the time at which collectors begin.
    Waiting(Job),
    /// Collectors run, and nothing is recorded yet.
    Warming(Job),
    Collecting(Job, Until),
    Writing(Job),
}

/// A request that was accepted.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Its number, which is no other one's.
    pub(super) ticket: u64,
    pub(super) request: Arc<Request>,
    pub(super) plan: Plan,
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

/// Something that is to be done now.
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
    /// Nothing but to say that it is not done, and why.
    Refuse(Arc<Request>, String),
}

impl Machine {
    /// Takes a request if there is a place for it.
    pub(super) fn offer(&mut self, request: Request, moment: &Moment) -> Offer {
        let request = Arc::new(request);
        if !matches!(self.state, State::Idle) {
            if self.pending.is_some() {
                return Offer::Refused("another request is waiting already".to_owned());
            }
            self.pending = Some(request);
            return Offer::Pending;
        }
        match self.accept(request, moment) {
            Ok(()) => Offer::Accepted,
            Err((_, why)) => Offer::Refused(why),
        }
    }

    fn accept(&mut self, request: Arc<Request>, moment: &Moment) -> Result<(), (Arc<Request>, String)> {
        match Plan::new(&request.when, moment, request.longest()) {
            Ok(plan) => {
                self.tickets += 1;
                self.state = State::Waiting(Job { ticket: self.tickets, request, plan });
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
        let (next, act) = match std::mem::take(&mut self.state) {
            State::Waiting(job) => waiting(job, moment, host),
            State::Warming(job) => warming(job, moment, host),
            State::Collecting(job, until) => collecting(job, until, moment, host),
            other => (other, None),
        };
        self.state = next;
        act
    }

    /// The recording has begun by now, which may have taken its time.
    pub(super) fn begun(&mut self, now: Instant) {
        if let State::Collecting(job, until) = &mut self.state {
            *until = job.plan.until_from(now, *until);
        }
    }

    /// The recording of that number is written, or cannot go on; whether that was news.
    pub(super) fn ended(&mut self, ticket: u64) -> bool {
        let is_it = self.job().is_some_and(|job| job.ticket == ticket);
        if is_it {
            self.state = State::Idle;
        }
        is_it
    }

    /// Takes back what goes on, unless it is being written already.
    pub(super) fn cancel(&mut self, why: &str) -> Option<Act> {
        let (next, act) = match std::mem::take(&mut self.state) {
            State::Waiting(job) => (State::Idle, Some(Act::Refuse(job.request, why.to_owned()))),
            State::Warming(job) | State::Collecting(job, _) => (State::Idle, Some(Act::Cancel(job, why.to_owned()))),
            other => (other, None),
        };
        self.state = next;
        act
    }

    /// The program ends: what was collected is written, and the rest is not done.
    pub(super) fn close(&mut self) -> Vec<Act> {
        const WHY: &str = "the program ends";
        let pending = self.pending.take().map(|request| Act::Refuse(request, WHY.to_owned()));
        let current = match std::mem::take(&mut self.state) {
            State::Collecting(job, _) => {
                self.state = State::Writing(job.clone());
                let early = (!job.request.is_endless()).then(|| WHY.to_owned());
                Some(Act::Stop(job, early))
            }
            other => {
                self.state = other;
                self.cancel(WHY)
            }
        };
        pending.into_iter().chain(current).collect()
    }

    fn job(&self) -> Option<&Job> {
        match &self.state {
            State::Idle => None,
            State::Waiting(job) | State::Warming(job) | State::Collecting(job, _) | State::Writing(job) => Some(job),
        }
    }

    /// Returns the number of what the session is used for.
    pub(super) fn in_session(&self) -> Option<u64> {
        match &self.state {
            State::Warming(job) | State::Collecting(job, _) => Some(job.ticket),
            _ => None,
        }
    }

    /// Whether there is something to do, so that no further request is asked for.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle) || self.pending.is_some()
    }

    /// Whether collectors have yet to begin, and the start is still ahead in that iteration.
    pub(super) fn has_time(&self, iteration: u64) -> bool {
        let is_ahead = |job: &Job| job.plan.start_iteration().is_none_or(|start| iteration < start);
        matches!(&self.state, State::Waiting(job) if is_ahead(job))
    }

    pub(super) fn is_writing(&self) -> bool {
        matches!(self.state, State::Writing(_))
    }

    /// Returns when something is due by time alone.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Waiting(job) => Some(job.plan.warm_at()),
            State::Warming(job) => Some(job.plan.start_at()),
            State::Collecting(_, until) => Some(until.at()),
            State::Idle | State::Writing(_) => None,
        }
    }

    /// Returns with which iteration something is due.
    pub(super) fn watched(&self) -> Option<u64> {
        match &self.state {
            State::Waiting(job) => job.plan.warm_iteration(),
            State::Warming(job) => job.plan.start_iteration(),
            State::Collecting(_, until) => until.iteration(),
            State::Idle | State::Writing(_) => None,
        }
    }
}

fn waiting(job: Job, moment: &Moment, host: &Host) -> (State, Option<Act>) {
    match (job.plan.is_expired(moment), job.plan.is_warm(moment), host.busy) {
        (true, _, _) => (State::Idle, Some(Act::Refuse(job.request, job.plan.why_expired()))),
        (_, true, Some(busy)) => (State::Idle, Some(Act::Refuse(job.request, busy.to_owned()))),
        (_, true, None) => (State::Warming(job.clone()), Some(Act::Prepare(job))),
        (_, false, _) => (State::Waiting(job), None),
    }
}

fn warming(job: Job, moment: &Moment, host: &Host) -> (State, Option<Act>) {
    if let Some(why) = &host.stopped {
        let why = format!("a collector stopped before the start: {why}");
        return (State::Idle, Some(Act::Cancel(job, why)));
    }
    if job.plan.is_expired(moment) {
        let why = job.plan.why_expired();
        return (State::Idle, Some(Act::Cancel(job, why)));
    }
    if !job.plan.is_due(moment) {
        return (State::Warming(job), None);
    }
    let until = job.plan.until(moment, job.request.longest());
    (State::Collecting(job.clone(), until), Some(Act::Start(job)))
}

fn collecting(job: Job, until: Until, moment: &Moment, host: &Host) -> (State, Option<Act>) {
    let early = match &host.stopped {
        Some(why) => Some(format!("a collector stopped: {why}")),
        None if until.is_over(moment) => None,
        None if until.is_too_long(moment) => Some(format!("it took longer than {:?}", job.request.longest())),
        None => return (State::Collecting(job, until), None),
    };
    (State::Writing(job.clone()), Some(Act::Stop(job, early)))
}

#[cfg(test)]
mod tests;

//! Who uses a session, the program or an external request, and what follows from each event.
//!
//! A pure state machine: events go in, effects come out. It knows no lock, no thread, no file and no clock. Its table is in
//! [decision 47](https://github.com/tracing-kineto/tracing-kineto/blob/main/docs/decisions/047-a-session-is-a-state-machine.md).

#[cfg(test)]
mod tests;

use Effect::{BeginRecording, Discard, EndRecording, StartCollectors};

/// The state of a session's recordings, or of its memory profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SessionMachine {
    phase: Phase,
    /// The highest id of a request that has begun, or may not begin any more.
    highest_request: u64,
    /// How often the program has prepared a recording.
    preparations: u64,
}

/// What is going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// Collectors run for a user, and nothing is recorded.
    Prepared(User),
    /// A user's recording runs; it may be paused.
    Recording(User),
}

/// Who uses a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum User {
    Program,
    /// An external request. Ids ascend from 1, in the order in which requests begin.
    Request(u64),
}

/// What happens to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// The user wants collectors to run.
    Prepare(User),
    /// The user wants a recording.
    Start(User),
    /// What a preparation or a start demanded has failed.
    Fail,
    /// The user ends its recording, and gets the trace.
    End(User),
    /// The request gives up.
    GiveUp(u64),
    /// The program gives up its preparation of that number.
    CancelPreparation(u64),
    /// The program is about to use the session.
    Evict,
    /// The process was forked: what its parent did does not count.
    Fork,
}

/// What is to be done, in this order. The caller holds the lock of the machine until it has done it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Stop the collectors, and the recording if there is one, and drop its records.
    Discard,
    StartCollectors,
    BeginRecording,
    EndRecording,
}

/// Why an event has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A user has the session: this one, or one that is not evicted.
    UsedBy(User),
    /// The request has ended or failed, was evicted, or a later one has begun.
    IsOver,
    /// No recording is running.
    NothingRuns,
}

impl SessionMachine {
    /// Changes the state; returns what is to be done.
    pub(super) fn handle(&mut self, event: Event) -> Result<&'static [Effect], Refusal> {
        match event {
            Event::Prepare(by) => self.begin(by, Phase::Prepared(by)),
            Event::Start(by) => self.begin(by, Phase::Recording(by)),
            Event::End(by) => match (self.phase, by) {
                (Phase::Recording(user), _) if user == by => Ok(self.become_idle(&[EndRecording])),
                (_, User::Request(id)) if self.request() != Some(id) => Err(Refusal::IsOver),
                (Phase::Prepared(user) | Phase::Recording(user), _) if user != by => Err(Refusal::UsedBy(user)),
                _ => Err(Refusal::NothingRuns),
            },
            Event::GiveUp(id) => {
                self.mark_over(id);
                Ok(if self.request() == Some(id) { self.become_idle(&[Discard]) } else { &[] })
            }
            Event::CancelPreparation(number) => {
                let is_current = self.phase == Phase::Prepared(User::Program) && number == self.preparations;
                Ok(if is_current { self.become_idle(&[Discard]) } else { &[] })
            }
            Event::Evict => Ok(if self.request().is_some() { self.become_idle(&[Discard]) } else { &[] }),
            Event::Fail | Event::Fork => Ok(self.become_idle(&[])),
        }
    }

    /// Begins a preparation or a recording. A request that fails once is over: a preparation that comes late is refused.
    fn begin(&mut self, by: User, next: Phase) -> Result<&'static [Effect], Refusal> {
        if let User::Request(id) = by {
            if self.is_over(id) {
                return Err(Refusal::IsOver);
            }
            self.mark_over(id);
        }
        let records = matches!(next, Phase::Recording(_));
        let effects: &[Effect] = match (self.phase, by) {
            (Phase::Prepared(User::Request(_)) | Phase::Recording(User::Request(_)), User::Program) if records => {
                &[Discard, StartCollectors, BeginRecording]
            }
            (Phase::Prepared(User::Request(_)) | Phase::Recording(User::Request(_)), User::Program) => {
                &[Discard, StartCollectors]
            }
            (Phase::Idle, _) if records => &[StartCollectors, BeginRecording],
            (Phase::Idle, _) => &[StartCollectors],
            (Phase::Prepared(user), _) if user == by && records => &[BeginRecording],
            // It may have begun before its preparation came.
            (Phase::Prepared(user) | Phase::Recording(user), User::Request(_)) if user == by && !records => {
                return Ok(&[]);
            }
            (Phase::Prepared(user) | Phase::Recording(user), _) => return Err(Refusal::UsedBy(user)),
        };
        if next == Phase::Prepared(User::Program) {
            self.preparations += 1;
        }
        self.phase = next;
        Ok(effects)
    }

    fn become_idle(&mut self, effects: &'static [Effect]) -> &'static [Effect] {
        self.phase = Phase::Idle;
        effects
    }

    fn mark_over(&mut self, id: u64) {
        self.highest_request = self.highest_request.max(id);
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns whether a recording runs.
    pub(super) fn is_recording(&self) -> bool {
        matches!(self.phase, Phase::Recording(_))
    }

    /// Returns who uses the session.
    pub(super) fn user(&self) -> Option<User> {
        match self.phase {
            Phase::Idle => None,
            Phase::Prepared(user) | Phase::Recording(user) => Some(user),
        }
    }

    /// Returns the request that uses the session.
    pub(super) fn request(&self) -> Option<u64> {
        match self.user()? {
            User::Program => None,
            User::Request(id) => Some(id),
        }
    }

    /// Returns whether the request cannot get the session any more.
    pub(super) fn is_over(&self, id: u64) -> bool {
        id <= self.highest_request && self.request() != Some(id)
    }

    /// Forgets the requests of the parent in a forked child, which counts its own from 1.
    pub(super) fn forget_requests(&mut self) {
        self.highest_request = 0;
        if self.request().is_some() {
            self.phase = Phase::Idle;
        }
    }

    /// Returns the number of the program's last preparation.
    pub(super) fn preparation(&self) -> u64 {
        self.preparations
    }
}

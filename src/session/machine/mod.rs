//! Who uses a session, the program or an external request, and what follows from each event.
//!
//! A pure state machine: events go in, effects come out. It knows no lock, no thread, no file and no clock. Its table is in
//! [decision 47](https://github.com/tracing-kineto/tracing-kineto/blob/main/docs/decisions/047-a-session-is-a-state-machine.md).

#[cfg(test)]
mod tests;

mod control;

pub(super) use control::{EventOnDrop, MachineControl, SnapshotMark};

use Effect::{BeginRecording, Discard, EndRecording, MovePart, StartCollectors, TakeSnapshots};

/// The state of a session's recordings, or of its memory profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SessionMachine {
    phase: Phase,
    /// Whether a part of the recording is leaving the memory.
    moves_part: bool,
    /// The highest id of a request that has begun, or may not begin any more.
    highest_request: u64,
    /// How often the program has prepared a recording.
    preparations: u64,
}

/// The phase of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// Collectors run for a user, and nothing is recorded.
    Prepared(User),
    /// A user's recording runs; it may be paused.
    Recording(User),
    /// A user's recording runs until what needs its records is taken.
    Ending(User),
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
    /// The effects of a start have failed.
    Fail,
    /// The user ends its recording, and gets the trace.
    End(User),
    /// The trace of the ending recording is made.
    Ended,
    /// The end of a recording has failed: it continues.
    EndFailed,
    /// The request gives up.
    GiveUp(u64),
    /// The program gives up its preparation of that number.
    CancelPreparation(u64),
    /// The program is about to use the session.
    Evict,
    /// The program wants what is recorded until now; a thread takes that later.
    Mark,
    /// A part of the recording is due to leave the memory, while so many marks are not taken.
    MovePart { marks: usize },
    /// The part has left the memory.
    PartMoved,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Stop the collectors, and the recording if there is one, and drop its records.
    Discard,
    StartCollectors,
    BeginRecording,
    /// Take what is marked.
    TakeSnapshots,
    EndRecording,
    MovePart,
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
    /// A recording is ending, or a part of it is leaving the memory: the event may come again when that is done.
    IsChanging,
}

impl SessionMachine {
    /// Returns the machine of a forked child: idle, whatever the parent did. Preparations count on, since the child may hold the
    /// parent's handles.
    pub(super) fn of_child(&self) -> SessionMachine {
        SessionMachine { preparations: self.preparations, ..SessionMachine::default() }
    }

    /// Changes the state; returns what is to be done.
    pub(super) fn handle(&mut self, event: Event) -> Result<&'static [Effect], Refusal> {
        match event {
            Event::Prepare(by) => self.begin(by, Phase::Prepared(by)),
            Event::Start(by) => self.begin(by, Phase::Recording(by)),
            Event::End(by) => match (self.phase, by) {
                (Phase::Recording(user), _) if user == by => {
                    Ok(self.enter(Phase::Ending(by), &[TakeSnapshots, EndRecording]))
                }
                (_, User::Request(id)) if self.request() != Some(id) => Err(Refusal::IsOver),
                _ => Err(match self.user() {
                    Some(user) if user != by => Refusal::UsedBy(user),
                    _ => Refusal::NothingRuns,
                }),
            },
            Event::GiveUp(id) => {
                self.note_request(id);
                // Its recording is ending then.
                let is_over = matches!(self.phase, Phase::Ending(_)) || self.request() != Some(id);
                Ok(if is_over { &[] } else { self.enter(Phase::Idle, &[Discard]) })
            }
            Event::CancelPreparation(number) => {
                let is_current = self.phase == Phase::Prepared(User::Program) && number == self.preparations;
                Ok(if is_current { self.enter(Phase::Idle, &[Discard]) } else { &[] })
            }
            Event::Evict if matches!(self.phase, Phase::Ending(_)) => Err(Refusal::IsChanging),
            Event::Evict => Ok(if self.request().is_some() { self.enter(Phase::Idle, &[Discard]) } else { &[] }),
            Event::EndFailed => {
                if let Phase::Ending(by) = self.phase {
                    self.phase = Phase::Recording(by);
                }
                Ok(&[])
            }
            Event::Ended if !matches!(self.phase, Phase::Ending(_)) => Ok(&[]),
            Event::Fail | Event::Ended => Ok(self.enter(Phase::Idle, &[])),
            Event::Mark => match (self.phase, self.user()) {
                (_, Some(user @ User::Request(_))) => Err(Refusal::UsedBy(user)),
                (Phase::Recording(_), _) if self.moves_part => Err(Refusal::IsChanging),
                (Phase::Recording(_), _) => Ok(&[]),
                _ => Err(Refusal::NothingRuns),
            },
            Event::MovePart { marks } => match (self.user(), marks) {
                // A request gets one trace.
                (Some(user @ User::Request(_)), _) => Err(Refusal::UsedBy(user)),
                _ if !self.has_records() => Err(Refusal::NothingRuns),
                (_, 0) => {
                    self.moves_part = true;
                    Ok(&[MovePart])
                }
                // Marks hold older records.
                _ => Ok(&[TakeSnapshots]),
            },
            Event::PartMoved => {
                self.moves_part = false;
                Ok(&[])
            }
        }
    }

    /// Begins a preparation or a recording. A request that fails once is over: a preparation that comes late is refused.
    fn begin(&mut self, by: User, next: Phase) -> Result<&'static [Effect], Refusal> {
        if matches!(self.phase, Phase::Ending(_)) {
            return Err(Refusal::IsChanging);
        }
        if let User::Request(id) = by {
            if self.is_over(id) {
                return Err(Refusal::IsOver);
            }
            self.note_request(id);
        }
        let records = matches!(next, Phase::Recording(_));
        let effects: &[Effect] = match (self.phase, self.user()) {
            (_, None) if records => &[StartCollectors, BeginRecording],
            (_, None) => &[StartCollectors],
            (_, Some(User::Request(_))) if by == User::Program && records => {
                &[Discard, StartCollectors, BeginRecording]
            }
            (_, Some(User::Request(_))) if by == User::Program => &[Discard, StartCollectors],
            (Phase::Prepared(_), Some(user)) if user == by && records => &[BeginRecording],
            // It may have begun before its preparation came.
            (_, Some(user @ User::Request(_))) if user == by && !records => return Ok(&[]),
            (_, Some(user)) => return Err(Refusal::UsedBy(user)),
        };
        if next == Phase::Prepared(User::Program) {
            self.preparations += 1;
        }
        Ok(self.enter(next, effects))
    }

    fn enter(&mut self, phase: Phase, effects: &'static [Effect]) -> &'static [Effect] {
        self.phase = phase;
        effects
    }

    fn note_request(&mut self, id: u64) {
        self.highest_request = self.highest_request.max(id);
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns whether a recording runs and is not ending.
    pub(super) fn is_recording(&self) -> bool {
        matches!(self.phase, Phase::Recording(_))
    }

    /// Returns whether there are records: a recording runs, or its records are being taken.
    pub(super) fn has_records(&self) -> bool {
        matches!(self.phase, Phase::Recording(_) | Phase::Ending(_))
    }

    /// Returns who uses the session.
    pub(super) fn user(&self) -> Option<User> {
        match self.phase {
            Phase::Idle => None,
            Phase::Prepared(user) | Phase::Recording(user) | Phase::Ending(user) => Some(user),
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

    /// Returns the number of the program's last preparation.
    pub(super) fn last_preparation(&self) -> u64 {
        self.preparations
    }
}

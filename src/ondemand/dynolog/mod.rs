//! The client of the dynolog daemon: registers, polls, and takes what comes.

mod ancestors;
mod fabric;
mod pace;
mod wire;

use super::source::{Incoming, RequestSource};
use crate::config::OnDemand;
use crate::diag::diag;
use ancestors::ancestors;
use fabric::{Fabric, Unsent};
use pace::Pace;
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use wire::Wanted;

/// A process as the daemon knows it.
#[derive(Debug)]
pub(super) struct Client {
    fabric: Fabric,
    /// This process, and by whom else it may be named.
    pids: Vec<i32>,
    job: i64,
    pace: Pace,
    due: Instant,
    /// When the poll was sent that has no answer yet.
    asked: Option<Instant>,
    contact: Contact,
    /// How many datagrams were thrown away.
    strays: u64,
}

/// What is known of the daemon, and was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contact {
    /// Nothing yet.
    Unknown,
    /// It does not answer, or is not there.
    None,
    /// It has answered.
    Registered,
}

/// An answer that takes longer is not waited for with the next poll; it is taken whenever it comes.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many datagrams are looked at in one go.
const BATCH: usize = 64;

impl Client {
    /// Binds a socket; the first turn registers.
    pub(super) fn new(settings: &OnDemand) -> io::Result<Client> {
        Ok(Client {
            fabric: Fabric::open(settings.socket_folder.as_deref(), settings.trusted)?,
            pids: ancestors(),
            job: settings.job,
            pace: Pace::new(settings.interval),
            due: Instant::now(),
            asked: None,
            contact: Contact::Unknown,
            strays: 0,
        })
    }

    fn take_answers(&mut self, now: Instant) -> Vec<Incoming> {
        let mut requests = Vec::new();
        for _ in 0..BATCH {
            match self.fabric.receive() {
                None => break,
                Some(Ok(answer)) => {
                    if let Some(asked) = self.asked.take() {
                        self.pace.answered(now.saturating_duration_since(asked));
                    }
                    self.is_heard();
                    if !answer.text.is_empty() {
                        let by = format!("dynolog (pid {})", answer.sender);
                        requests.push(Incoming { text: answer.text, by, answer: None });
                    }
                }
                Some(Err(stray)) => {
                    self.strays += 1;
                    diag!(Warning, "ondemand", "datagram {} was thrown away: {stray}", self.strays);
                }
            }
        }
        requests
    }

    /// Sends a poll.
    fn poll(&mut self, now: Instant, busy: bool) {
        let wanted = if busy { Wanted::Nothing } else { Wanted::Activities };
        match self.fabric.send(&wire::poll(wanted, self.job, &self.pids)) {
            Ok(()) => self.asked = Some(now),
            Err(unsent) => self.is_unheard(&unsent),
        }
    }

    fn is_heard(&mut self) {
        if self.contact != Contact::Registered {
            let (pid, job) = (self.pids.first().copied().unwrap_or_default(), self.job);
            diag!(
                Stage,
                "ondemand",
                "registered with the dynolog daemon: `dyno gputrace --job-id {job} --pids {pid}` traces this process"
            );
        }
        self.contact = Contact::Registered;
    }

    fn is_unheard(&mut self, unsent: &Unsent) {
        self.asked = None;
        if self.contact == Contact::None {
            return;
        }
        let before = if self.contact == Contact::Registered { "no longer there" } else { "not there" };
        match unsent {
            Unsent::Absent(why) => diag!(
                Warning,
                "ondemand",
                "the dynolog daemon is {before} ({why}); it is asked again and again: start it with \
                 --enable_ipc_monitor, in the same network namespace, or with the same KINETO_IPC_SOCKET_DIR"
            ),
            Unsent::Full => diag!(
                Warning,
                "ondemand",
                "the dynolog daemon does not read what it is sent; it is asked again and again: restart it"
            ),
        }
        self.contact = Contact::None;
    }
}

impl RequestSource for Client {
    fn descriptor(&self) -> Option<RawFd> {
        Some(self.fabric.descriptor())
    }

    fn turn(&mut self, now: Instant, busy: bool) -> Vec<Incoming> {
        let requests = self.take_answers(now);
        if now >= self.due {
            self.due = now + self.pace.next();
            let is_open = self.asked.is_some_and(|asked| now.saturating_duration_since(asked) < PATIENCE);
            if !is_open {
                // What has just come is to be done first.
                self.poll(now, busy || !requests.is_empty());
            }
        }
        requests
    }

    fn due(&self) -> Instant {
        self.due
    }

    /// Waits a moment for the answer that is still to come: a daemon that answers somebody who has gone is held up.
    fn close(&mut self, deadline: Instant) {
        const MOMENT: Duration = Duration::from_millis(20);
        let deadline = deadline.min(Instant::now() + MOMENT);
        while self.asked.is_some() && self.contact == Contact::Registered && Instant::now() < deadline {
            crate::os::datagram::wait(&[self.fabric.descriptor()], Duration::from_millis(5));
            for request in self.take_answers(Instant::now()) {
                diag!(Warning, "ondemand", "a request by {} is refused because the program ends", request.by);
            }
        }
    }
}

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
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::Wanted;

/// A process as the daemon knows it.
#[derive(Debug)]
pub(super) struct Client {
    fabric: Fabric,
    /// This process, and by whom else it may be named.
    pids: Vec<i32>,
    job: i64,
    /// The settings say to ask it.
    asks: bool,
    pace: Pace,
    due: Instant,
    /// When the poll was sent that has no answer yet.
    asked: Option<Instant>,
    /// Since when nothing was heard in spite of polls.
    unheard: Option<Instant>,
    contact: Contact,
    /// How many datagrams were thrown away.
    strays: u64,
    /// The folder in which requests may have files written.
    folder: PathBuf,
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

/// An answer that takes longer is not waited for with the next poll, and missed; it is taken whenever it comes.
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
            asks: settings.asks_daemon(),
            pace: Pace::new(settings.interval),
            due: Instant::now(),
            asked: None,
            unheard: None,
            contact: Contact::Unknown,
            strays: 0,
            folder: settings.trace_folder.clone(),
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
                    self.greet();
                    if !answer.text.is_empty() {
                        let by = named(answer.sender);
                        requests.push(Incoming { text: answer.text, by, output: None, answer: None });
                    }
                }
                Some(Err(stray)) => {
                    self.unheard = None;
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
            Ok(()) => {
                self.asked = Some(now);
                diag!(Verbose, "ondemand", "asked the dynolog daemon for {wanted:?}");
            }
            // As it is for a while where many processes start together.
            Err(Unsent::Full) => {}
            Err(Unsent::Absent(why)) => {
                (self.asked, self.unheard) = (None, None);
                let before = if self.contact == Contact::Registered { "no longer there" } else { "not there" };
                return self.miss(
                    &format!("is {before} ({why})"),
                    "start it with --enable_ipc_monitor, in the same network namespace, or with the same \
                     KINETO_IPC_SOCKET_DIR",
                );
            }
        }
        let since = *self.unheard.get_or_insert(now);
        if now.saturating_duration_since(since) >= PATIENCE {
            self.miss(&format!("has not answered for {PATIENCE:?}"), "if it hangs, restart it");
        }
    }

    /// The daemon has answered: says so, once until it is missed.
    fn greet(&mut self) {
        if self.contact != Contact::Registered {
            diag!(
                Stage,
                "ondemand",
                "registered with the dynolog daemon: `dyno gputrace --job-id {} --pids {} --log-file {}` traces this \
                 process",
                self.job,
                self.pids.first().copied().unwrap_or_default(),
                self.folder.join("trace.json").display()
            );
        }
        (self.contact, self.unheard) = (Contact::Registered, None);
    }

    /// Says what is wrong with the daemon, once until it answers.
    fn miss(&mut self, what: &str, advice: &str) {
        if self.contact != Contact::None {
            diag!(Warning, "ondemand", "the dynolog daemon {what}; it is asked again and again: {advice}");
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
            if self.asks && !is_open {
                // What has just come is to be done first.
                self.poll(now, busy || !requests.is_empty());
            }
        }
        requests
    }

    fn follow(&mut self, settings: &OnDemand) {
        if settings.asks_daemon() && !self.asks {
            // It may have forgotten this process, and was not asked meanwhile.
            (self.contact, self.unheard) = (Contact::Unknown, None);
        }
        self.asks = settings.asks_daemon();
        self.pace.follow(settings.interval);
        self.due = self.due.min(Instant::now() + self.pace.next());
    }

    fn due(&self) -> Instant {
        self.due
    }

    /// Waits a moment for the answer that is still to come, to the first poll too: a daemon that answers somebody who has
    /// gone is held up for ten seconds, each time.
    fn close(&mut self, deadline: Instant) {
        const MOMENT: Duration = Duration::from_millis(20);
        let deadline = deadline.min(Instant::now() + MOMENT);
        while self.asked.is_some() && Instant::now() < deadline {
            crate::os::datagram::wait(&[self.fabric.descriptor()], Duration::from_millis(5));
            for request in self.take_answers(Instant::now()) {
                diag!(Warning, "ondemand", "a request by {} is refused because the program ends", request.by);
            }
        }
    }
}

/// The daemon as a requester, for people; the kernel gives one that is outside of this PID namespace no number.
fn named(sender: i32) -> String {
    if sender == 0 { "dynolog".to_owned() } else { format!("dynolog (pid {sender})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// A daemon in a folder of its own, and a client that has not asked it yet.
    fn pair() -> (tempfile::TempDir, UnixDatagram, Client) {
        let folder = tempfile::tempdir().unwrap();
        let daemon = UnixDatagram::bind(folder.path().join("dynolog")).unwrap();
        let socket_folder = Some(folder.path().to_owned());
        let settings = OnDemand { use_daemon: true, socket_folder, ..OnDemand::default() };
        let client = Client::new(&settings).unwrap();
        (folder, daemon, client)
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn the_answer_to_the_first_poll_is_taken_at_the_end() {
        let (_folder, daemon, mut client) = pair();
        let now = Instant::now();
        assert!(client.turn(now, false).is_empty() && client.asked.is_some());
        let (_, asker) = daemon.recv_from(&mut [0; 256]).unwrap();
        let nothing = [&[0; 8], b"req".as_slice(), &[0; 29]].concat();
        daemon.send_to_addr(&nothing, &asker).unwrap();
        client.close(now + Duration::from_secs(60));
        assert!(client.asked.is_none() && client.contact == Contact::Registered);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn a_daemon_that_is_behind_is_missed_after_a_while() {
        let (_folder, daemon, mut client) = pair();
        let crowd = UnixDatagram::unbound().unwrap();
        crowd.connect_addr(&daemon.local_addr().unwrap()).unwrap();
        crowd.set_nonblocking(true).unwrap();
        while crowd.send(b"x").is_ok() {}
        let now = Instant::now();
        client.poll(now, false);
        client.poll(now + PATIENCE / 2, false);
        assert_eq!((client.asked, client.contact), (None, Contact::Unknown));
        client.poll(now + PATIENCE, false);
        assert_eq!((client.asked, client.contact), (None, Contact::None));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn a_daemon_that_was_not_asked_for_a_while_is_not_missed() {
        let (_folder, _daemon, mut client) = pair();
        let settings = |fabric| OnDemand { fabric: Some(fabric), ..OnDemand::default() };
        let now = Instant::now();
        client.poll(now, false);
        client.follow(&settings(false));
        client.follow(&settings(true));
        client.poll(now + 2 * PATIENCE, false);
        assert_eq!((client.contact, client.unheard), (Contact::Unknown, Some(now + 2 * PATIENCE)));
    }

    #[test]
    fn a_daemon_outside_of_the_pid_namespace_has_no_number() {
        assert_eq!((named(0).as_str(), named(7).as_str()), ("dynolog", "dynolog (pid 7)"));
    }
}

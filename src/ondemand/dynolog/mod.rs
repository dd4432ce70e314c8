//! The client of the dynolog daemon: registers, polls, and takes what comes.

mod ancestors;
mod fabric;
mod pace;
mod wire;

use super::source::{Incoming, RequestSource};
use crate::config::OnDemand;
use crate::diag::diag;
use ancestors::ancestors;
use fabric::{Fabric, Stray, Unsent};
use pace::Pace;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::Wanted;

/// A process as the daemon knows it.
#[derive(Debug)]
pub(super) struct Client {
    /// `None` while it cannot be opened: the folder of the sockets may be made later.
    fabric: Option<Fabric>,
    /// The folder of the sockets, and a user that is trusted besides root and this one.
    place: (Option<PathBuf>, Option<u32>),
    /// This process, and by whom else it may be named.
    pids: Vec<i32>,
    job: i64,
    /// The settings say to ask it.
    asks: bool,
    pace: Pace,
    due: Instant,
    /// When the poll was sent that has no answer yet.
    asked: Option<Instant>,
    /// Since when there is no daemon, and why the last poll was not sent.
    absent: Option<(Instant, io::Error)>,
    /// Since when no answer came in spite of polls.
    unheard: Option<Instant>,
    /// The daemon has answered, and no trouble was met since.
    is_registered: bool,
    /// The troubles that were reported since its last answer.
    reported: Vec<Trouble>,
    /// How many datagrams were dropped.
    strays: u64,
    /// The folder in which requests may have files written.
    folder: PathBuf,
}

/// Why no answer of the daemon arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// No socket can be bound.
    Unbound,
    /// There is no daemon.
    Absent,
    /// It does not answer.
    Silent,
    /// A user that is not trusted has the daemon's name.
    Impostor,
}

/// An answer that takes longer is not waited for with the next poll, and missed; it is taken whenever it comes.
const PATIENCE: Duration = Duration::from_secs(5);
/// A daemon that is started beside the program is not missed for so long.
const GRACE: Duration = Duration::from_secs(2);
/// So many datagrams are looked at in one go.
const BATCH: usize = 64;

impl Client {
    /// Binds a socket; the first turn registers. One that cannot be bound yet is tried again.
    pub(super) fn new(settings: &OnDemand) -> io::Result<Client> {
        let mut client = Client {
            fabric: None,
            place: (settings.socket_folder.clone(), settings.trusted),
            pids: ancestors(),
            job: settings.job,
            asks: settings.asks_daemon(),
            pace: Pace::new(settings.interval),
            due: Instant::now(),
            asked: None,
            absent: None,
            unheard: None,
            is_registered: false,
            reported: Vec::new(),
            strays: 0,
            folder: settings.trace_folder.clone(),
        };
        match client.bind() {
            Err(why) if why.kind() == io::ErrorKind::InvalidInput => Err(why),
            _ => Ok(client),
        }
    }

    /// Replaces the socket by a new one.
    fn bind(&mut self) -> io::Result<&mut Fabric> {
        let (folder, trusted) = &self.place;
        self.asked = None;
        Ok(self.fabric.insert(Fabric::open(folder.as_deref(), *trusted)?))
    }

    fn take_answers(&mut self, now: Instant) -> Vec<Incoming> {
        let mut requests = Vec::new();
        for _ in 0..BATCH {
            match self.fabric.as_mut().and_then(Fabric::receive) {
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
                Some(Err(Stray::User(user))) => {
                    self.turn_away(user, now);
                    break;
                }
                Some(Err(stray)) => {
                    self.strays += 1;
                    diag!(Warning, "ondemand", "datagram {} was dropped: {stray}", self.strays);
                }
            }
        }
        requests
    }

    /// Closes the socket when an untrusted user answers under the daemon's name, and polls again after [`PATIENCE`].
    fn turn_away(&mut self, user: Option<u32>, now: Instant) {
        (self.fabric, self.asked, self.unheard) = (None, None, None);
        self.due = now + PATIENCE;
        let (whose, advice) = match user {
            Some(user) => (
                format!("user {user}"),
                format!("end that process; only if it is your own daemon, set KINETO_DAEMON_UID={user}"),
            ),
            None => ("an unknown user".to_owned(), "find and end that process".to_owned()),
        };
        let what = format!("may be impersonated: a process of {whose} answers under its name and is not believed");
        self.report(Trouble::Impostor, &what, &advice);
    }

    /// Sends a poll.
    fn poll(&mut self, now: Instant, busy: bool) {
        let is_overdue = self.unheard.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE);
        let wanted = if busy { Wanted::Nothing } else { Wanted::Activities };
        let poll = wire::poll(wanted, self.job, &self.pids);
        let fabric = match self.reachable(is_overdue) {
            Ok(fabric) => fabric,
            Err(why) => {
                let advice = match &self.place.0 {
                    Some(folder) => format!("create {}, or make it writable", folder.display()),
                    None => "it needs a file descriptor".to_owned(),
                };
                let what = format!("cannot be asked ({why})");
                return self.report(Trouble::Unbound, &what, &advice);
            }
        };
        match fabric.send(&poll) {
            Ok(()) => {
                (self.asked, self.absent) = (Some(now), None);
                diag!(Verbose, "ondemand", "asked the dynolog daemon for {wanted:?}");
            }
            // As it is for a while where many processes start together.
            Err(Unsent::Full) => {}
            Err(Unsent::Absent(why)) => {
                let since = self.absent.take().map_or(now, |(since, _)| since);
                (self.asked, self.unheard, self.absent) = (None, None, Some((since, why)));
                if self.is_registered || now.saturating_duration_since(since) >= GRACE {
                    self.report_absent();
                }
                return;
            }
        }
        self.unheard.get_or_insert(now);
        if is_overdue {
            self.report(Trouble::Silent, &format!("has not answered for {PATIENCE:?}"), "if it hangs, restart it");
        }
    }

    /// Returns a socket that answers can reach. If an answer is overdue, it is connected again: another process may have the
    /// daemon's name by now.
    fn reachable(&mut self, is_overdue: bool) -> io::Result<&mut Fabric> {
        if self.fabric.as_ref().is_none_or(|fabric| is_overdue && !fabric.is_reachable()) {
            return self.bind();
        }
        let fabric = self.fabric.as_mut().ok_or(io::ErrorKind::NotFound)?;
        if is_overdue {
            // The send that follows reports why it fails.
            let _ = fabric.connect();
        }
        Ok(fabric)
    }

    /// Reports that the daemon has answered, once until it is missed.
    fn greet(&mut self) {
        if !self.is_registered {
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
        (self.is_registered, self.unheard) = (true, None);
        self.reported.clear();
    }

    /// Reports that there is no daemon, if there is none.
    fn report_absent(&mut self) {
        let Some((_, why)) = &self.absent else { return };
        let before = if self.is_registered { "no longer there" } else { "not there" };
        let what = format!("is {before} ({why})");
        let advice = "start it with --enable_ipc_monitor, in the same network namespace, or with the same \
                      KINETO_IPC_SOCKET_DIR";
        self.report(Trouble::Absent, &what, advice);
    }

    /// Reports what is wrong with the daemon, once until it answers.
    fn report(&mut self, trouble: Trouble, what: &str, advice: &str) {
        self.is_registered = false;
        if !self.reported.contains(&trouble) {
            self.reported.push(trouble);
            diag!(Warning, "ondemand", "the dynolog daemon {what}; it is asked again and again: {advice}");
        }
    }
}

impl RequestSource for Client {
    fn descriptor(&self) -> Option<RawFd> {
        self.fabric.as_ref().map(Fabric::descriptor)
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
            (self.is_registered, self.unheard) = (false, None);
            self.reported.clear();
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
            crate::os::datagram::wait(self.descriptor().as_slice(), Duration::from_millis(5));
            for request in self.take_answers(Instant::now()) {
                diag!(Warning, "ondemand", "a request by {} is refused because the program ends", request.by);
            }
        }
        // A program that ended before that was due has its reason too.
        self.report_absent();
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
        assert!(client.asked.is_none() && client.is_registered);
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
        assert_eq!((client.asked, &client.reported[..]), (None, &[][..]));
        client.poll(now + PATIENCE, false);
        assert_eq!((client.asked, &client.reported[..]), (None, &[Trouble::Silent][..]));
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
        assert_eq!((&client.reported[..], client.unheard), (&[][..], Some(now + 2 * PATIENCE)));
    }

    #[test]
    fn a_daemon_outside_of_the_pid_namespace_has_no_number() {
        assert_eq!((named(0).as_str(), named(7).as_str()), ("dynolog", "dynolog (pid 7)"));
    }
}

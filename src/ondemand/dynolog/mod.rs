//! The client of the dynolog daemon: registers, polls, and receives requests.

mod ancestors;
mod fabric;
mod pace;
pub(super) mod wire;

use super::source::{Incoming, RequestSource};
use crate::config::OnDemandConfig;
use crate::diag::diag;
use crate::wait::steady;
use ancestors::process_and_ancestors;
use fabric::{DropReason, Fabric};
use pace::Pace;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::PollKind;

/// The daemon's client in this process.
#[derive(Debug)]
pub(super) struct DaemonClient {
    /// `None` while it cannot be opened: the folder of the sockets may be created later.
    fabric: Option<Fabric>,
    /// The folder of the sockets, and a user that is trusted in addition to root and this one.
    location: (Option<PathBuf>, Option<u32>),
    /// This process and its ancestors, under whose ids it may be requested.
    pids: Vec<i32>,
    job: i64,
    /// Whether the settings enable polling.
    is_polling: bool,
    pace: Pace,
    due: Instant,
    /// When the unanswered poll was sent.
    asked: Option<Instant>,
    /// Since when there is no daemon, and why the last poll was not sent.
    absent: Option<(Instant, io::Error)>,
    /// Since when polls were not answered.
    unheard: Option<Instant>,
    /// Whether the daemon has answered, and no trouble occurred since.
    is_registered: bool,
    /// The troubles reported since its last answer.
    reported: Vec<Trouble>,
    /// The number of dropped datagrams.
    dropped: u64,
    /// The folder of the requests' files.
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
    /// An untrusted user's process has the daemon's name.
    Impostor,
}

/// After that time without an answer, the next poll is sent and the answer counts as overdue.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an absent daemon is not reported, in case it starts together with the program.
const GRACE: Duration = Duration::from_secs(2);
/// The maximum number of datagrams that are read at once.
const BATCH: usize = 64;

impl DaemonClient {
    /// Binds a socket; the first poll registers. A failed bind is repeated later.
    pub(super) fn new(settings: &OnDemandConfig) -> io::Result<DaemonClient> {
        let mut client = DaemonClient {
            fabric: None,
            location: (settings.socket_folder.clone(), settings.trusted_uid),
            pids: process_and_ancestors(),
            job: settings.slurm_job_id,
            is_polling: settings.polls_daemon(),
            pace: Pace::new(settings.poll_interval),
            due: steady(),
            asked: None,
            absent: None,
            unheard: None,
            is_registered: false,
            reported: Vec::new(),
            dropped: 0,
            folder: settings.trace_folder.clone(),
        };
        match client.replace_socket() {
            Err(why) if why.kind() == io::ErrorKind::InvalidInput => Err(why),
            _ => Ok(client),
        }
    }

    /// Replaces the socket by a new one.
    fn replace_socket(&mut self) -> io::Result<&mut Fabric> {
        let (folder, trusted) = &self.location;
        self.asked = None;
        Ok(self.fabric.insert(Fabric::open(folder.as_deref(), *trusted)?))
    }

    fn take_answers(&mut self, now: Instant) -> Vec<Incoming> {
        let mut requests = Vec::new();
        for _ in 0..BATCH {
            match self.fabric.as_mut().and_then(Fabric::receive_reply) {
                None => break,
                Some(Ok(answer)) => {
                    if let Some(asked) = self.asked.take() {
                        self.pace.record_latency(now.saturating_duration_since(asked));
                    }
                    self.report_registered();
                    if !answer.text.is_empty() {
                        let by = requester_name(answer.sender);
                        requests.push(Incoming { text: answer.text, by, output: None, answer: None });
                    }
                }
                Some(Err(DropReason::User(user))) => {
                    self.reject_impostor(user, now);
                    break;
                }
                Some(Err(DropReason::Other(reason))) => {
                    self.dropped += 1;
                    diag!(
                        Warning,
                        "ondemand",
                        "datagram {} was dropped: {reason}; no other program may use the daemon's socket",
                        self.dropped
                    );
                }
            }
        }
        requests
    }

    /// Closes the socket when an untrusted user answers under the daemon's name, and polls again after [`PATIENCE`].
    fn reject_impostor(&mut self, user: Option<u32>, now: Instant) {
        (self.fabric, self.asked, self.unheard) = (None, None, None);
        self.due = now + PATIENCE;
        let (owner, advice) = match user {
            Some(user) => (
                format!("user {user}"),
                format!("end that process; only if it is your own daemon, set KINETO_DAEMON_UID={user}"),
            ),
            None => ("an unknown user".to_owned(), "find and end that process".to_owned()),
        };
        let what = format!("may be impersonated: a process of {owner} answers under its name and is ignored");
        self.report_trouble(Trouble::Impostor, &what, &advice);
    }

    /// Sends a poll.
    fn send_poll(&mut self, now: Instant, busy: bool) {
        let is_overdue = self.unheard.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE);
        let wanted = if busy { PollKind::Nothing } else { PollKind::Activities };
        let poll = wire::encode_poll(wanted, self.job, &self.pids);
        let fabric = match self.reachable_fabric(is_overdue) {
            Ok(fabric) => fabric,
            Err(why) => {
                let advice = match &self.location.0 {
                    Some(folder) => format!("create {}, or make it writable", folder.display()),
                    None => "raise the limit on open files (ulimit -n)".to_owned(),
                };
                let what = format!("cannot be polled ({why})");
                return self.report_trouble(Trouble::Unbound, &what, &advice);
            }
        };
        match fabric.send(&poll) {
            Ok(()) => {
                (self.asked, self.absent) = (Some(now), None);
                diag!(Verbose, "ondemand", "asked the dynolog daemon for {wanted:?}");
            }
            // Normal for a while if many processes start together.
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(why) => {
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
            self.report_trouble(
                Trouble::Silent,
                &format!("has not answered for {PATIENCE:?}"),
                "if it hangs, restart it",
            );
        }
    }

    /// Returns a socket that answers can reach. If an answer is overdue, it is connected again: another process may have the
    /// daemon's name by now.
    fn reachable_fabric(&mut self, is_overdue: bool) -> io::Result<&mut Fabric> {
        if self.fabric.as_ref().is_none_or(|fabric| is_overdue && !fabric.is_reachable()) {
            return self.replace_socket();
        }
        let fabric = self.fabric.as_mut().ok_or(io::ErrorKind::NotFound)?;
        if is_overdue {
            // The send that follows reports why it fails.
            let _ = fabric.connect();
        }
        Ok(fabric)
    }

    /// Reports that the daemon has answered, once until the next trouble.
    fn report_registered(&mut self) {
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
        let before = if self.is_registered { "no longer reachable" } else { "not reachable" };
        let what = format!("is {before} ({why})");
        let advice = "start it with --enable_ipc_monitor, in the same network namespace, or with the same \
                      KINETO_IPC_SOCKET_DIR";
        self.report_trouble(Trouble::Absent, &what, advice);
    }

    /// Reports what is wrong with the daemon, once until it answers.
    fn report_trouble(&mut self, trouble: Trouble, what: &str, advice: &str) {
        self.is_registered = false;
        if !self.reported.contains(&trouble) {
            self.reported.push(trouble);
            diag!(Warning, "ondemand", "the dynolog daemon {what}; polling continues: {advice}");
        }
    }
}

impl RequestSource for DaemonClient {
    fn descriptor(&self) -> Option<RawFd> {
        self.fabric.as_ref()?.descriptor()
    }

    fn poll_requests(&mut self, now: Instant, busy: bool) -> Vec<Incoming> {
        let requests = self.take_answers(now);
        if now >= self.due {
            self.due = now + self.pace.next_interval();
            let is_open = self.asked.is_some_and(|asked| now.saturating_duration_since(asked) < PATIENCE);
            if self.is_polling && !is_open {
                // The requests that have just arrived come first.
                self.send_poll(now, busy || !requests.is_empty());
            }
        }
        requests
    }

    fn apply_settings(&mut self, settings: &OnDemandConfig) {
        if settings.polls_daemon() && !self.is_polling {
            // The daemon may have forgotten this process, because it was not polled.
            (self.is_registered, self.unheard) = (false, None);
            self.reported.clear();
        }
        self.is_polling = settings.polls_daemon();
        self.pace.fixed = settings.poll_interval;
        self.due = self.due.min(steady() + self.pace.next_interval());
    }

    fn next_poll_time(&self) -> Instant {
        self.due
    }

    /// Waits a moment for an outstanding answer: a daemon that answers a closed socket blocks for ten seconds each time.
    fn close(&mut self, deadline: Instant) {
        const MOMENT: Duration = Duration::from_millis(20);
        let deadline = deadline.min(steady() + MOMENT);
        while self.asked.is_some() && steady() < deadline {
            crate::os::datagram::wait_readable(self.descriptor().as_slice(), Duration::from_millis(5));
            for request in self.take_answers(steady()) {
                diag!(
                    Warning,
                    "ondemand",
                    "the request by {} was refused: the program ends; send it to a running process",
                    request.by
                );
            }
        }
        // A short program gets the report before it is due.
        self.report_absent();
    }
}

/// Returns the daemon's name in messages. The kernel reports 0 for a process outside this PID namespace.
fn requester_name(sender: i32) -> String {
    if sender == 0 { "dynolog".to_owned() } else { format!("dynolog (pid {sender})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::os::unix::net::UnixDatagram;

    /// A daemon in its own folder, and a client that has not polled it yet.
    fn pair() -> (tempfile::TempDir, UnixDatagram, DaemonClient) {
        let folder = tempfile::tempdir().unwrap();
        let daemon = UnixDatagram::bind(folder.path().join("dynolog")).unwrap();
        let socket_folder = Some(folder.path().to_owned());
        let settings = OnDemandConfig { use_daemon: true, socket_folder, ..Config::default().ondemand };
        let client = DaemonClient::new(&settings).unwrap();
        (folder, daemon, client)
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn close_waits_for_the_first_answer() {
        let (_folder, daemon, mut client) = pair();
        let now = Instant::now();
        assert!(client.poll_requests(now, false).is_empty() && client.asked.is_some());
        let (_, asker) = daemon.recv_from(&mut [0; 256]).unwrap();
        let nothing = [&[0; 8], b"req".as_slice(), &[0; 29]].concat();
        daemon.send_to_addr(&nothing, &asker).unwrap();
        client.close(now + Duration::from_secs(60));
        assert!(client.asked.is_none() && client.is_registered);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn busy_daemon_is_reported_after_a_while() {
        let (_folder, daemon, mut client) = pair();
        let crowd = UnixDatagram::unbound().unwrap();
        crowd.connect_addr(&daemon.local_addr().unwrap()).unwrap();
        crowd.set_nonblocking(true).unwrap();
        while crowd.send(b"x").is_ok() {}
        let now = Instant::now();
        client.send_poll(now, false);
        client.send_poll(now + PATIENCE / 2, false);
        assert_eq!((client.asked, &client.reported[..]), (None, &[][..]));
        client.send_poll(now + PATIENCE, false);
        assert_eq!((client.asked, &client.reported[..]), (None, &[Trouble::Silent][..]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn daemon_that_was_not_polled_is_not_reported() {
        let (_folder, _daemon, mut client) = pair();
        let settings = |fabric| OnDemandConfig { polling_override: Some(fabric), ..Config::default().ondemand };
        let now = Instant::now();
        client.send_poll(now, false);
        client.apply_settings(&settings(false));
        client.apply_settings(&settings(true));
        client.send_poll(now + 2 * PATIENCE, false);
        assert_eq!((&client.reported[..], client.unheard), (&[][..], Some(now + 2 * PATIENCE)));
    }

    #[test]
    fn daemon_outside_the_pid_namespace_has_no_pid() {
        assert_eq!((requester_name(0).as_str(), requester_name(7).as_str()), ("dynolog", "dynolog (pid 7)"));
    }
}

//! Serves external and timed requests: in the process that creates the layer, and in forks of it that enable this.

use super::KinetoLayerBuilder;
use crate::config::{Key, Value};
use crate::error::Error;
use crate::profiler::Profiler;
use crate::session::Session;
use std::path::PathBuf;
use std::sync::Arc;

/// Serves external requests with the session.
#[cfg(target_os = "linux")]
pub(super) fn serve_requests(session: &Arc<Session>) {
    crate::ondemand::serve_requests(session);
}

/// Reports that requests are served on Linux only.
#[cfg(not(target_os = "linux"))]
pub(super) fn serve_requests(_session: &Arc<Session>) {
    crate::diag::diag!(
        Warning,
        "ondemand",
        "requests (KINETO_USE_DAEMON, KINETO_TRIGGER_DIR) and timed recordings (START_DELAY_MS, ACTIVITIES_DURATION_MSECS) \
         are not served: they need Linux; unset these keys, or start recordings in the program"
    );
}

/// # Requests from outside
impl KinetoLayerBuilder {
    /// Serves requests from that folder (Linux): a file `<pid>.request` requests a trace of the process with that id, in
    /// libkineto's keys, like a request from the dynolog daemon; an empty file requests 500 ms. `KINETO_TRIGGER_DIR`.
    /// Default: none.
    ///
    /// The process takes a file when its writer has closed it or renamed it to its name, and no recording is running. The
    /// file must be regular, have one name, be younger than the process, contain at most 64 KiB of UTF-8, and belong to root,
    /// to the process's own user or to `KINETO_DAEMON_UID`. Its outcome is written to `<pid>.answer`, or to
    /// `<pid>.<id>.answer` for a request with a `REQUEST_TRACE_ID`: lines, the last of which is `done` or `failed`. The
    /// command `kineto trigger PID` writes such files and follows the answers.
    ///
    /// The process's user must be able to write to the folder. Other users who can write to it may remove requests; requests
    /// from users who are not trusted are refused and removed. A file that cannot be removed is not served, not even root's:
    /// this happens in a sticky folder of another user. The folder must be on this machine, because changes that other
    /// machines make to a network folder are not reported here.
    pub fn trigger_folder(self, path: impl Into<PathBuf>) -> Self {
        self.with(Key::TriggerFolder, Value::of_path(&path.into()))
    }
}

impl Profiler {
    /// Serves external requests in a forked child, from the sources that the layer was created with.
    ///
    /// These are the dynolog daemon and the trigger folder. Timed recordings stay with the parent.
    ///
    /// A server that forks its workers after installing the layer calls it in each worker. In the process that created the
    /// layer, and without such sources, it does nothing. A worker registers under its own process id and its parent's.
    ///
    /// ```no_run
    /// # fn fork() -> i32 { 0 }
    /// # fn serve() {}
    /// # fn workers(guard: &tracing_kineto::KinetoGuard) -> Result<(), tracing_kineto::Error> {
    /// if fork() == 0 {
    ///     guard.profiler().after_fork()?;
    ///     serve();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Forked`](crate::ErrorKind::Forked) if another thread was starting or stopping a recording at the fork.
    pub fn after_fork(&self) -> Result<(), Error> {
        // There is no session if the layer is off.
        if let Ok(session) = self.session()
            && session.settings.next_config().ondemand.accepts_requests()
            && session.requests.is_unserved_child()?
        {
            serve_requests(session);
        }
        Ok(())
    }
}

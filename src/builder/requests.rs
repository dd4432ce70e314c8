//! Serves requests from outside: in the process that makes the layer, and in its forks that ask for it.

use crate::error::Error;
use crate::profiler::Profiler;
use crate::session::Session;
use std::sync::Arc;

/// Serves requests from outside with the session.
#[cfg(target_os = "linux")]
pub(super) fn serve(session: &Arc<Session>) {
    crate::ondemand::serve(session);
}

/// Reports that requests are served on Linux only.
#[cfg(not(target_os = "linux"))]
pub(super) fn serve(_session: &Arc<Session>) {
    crate::diag::diag!(
        Warning,
        "ondemand",
        "nothing is recorded for requests (KINETO_USE_DAEMON, KINETO_TRIGGER_DIR) or by the clock (START_DELAY_MS, \
         ACTIVITIES_DURATION_MSECS): that is for Linux; unset them, or start recordings in the program"
    );
}

impl Profiler {
    /// Serves requests from outside in a forked child, from the sources that the layer was made with.
    ///
    /// These are the dynolog daemon and the trigger folder. Recordings by the clock stay the parent's.
    ///
    /// A server that forks its workers after the layer was installed calls it in each worker. In the process that made the
    /// layer, and without such sources, it does nothing. A worker registers under its own number and its parent's.
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
            && session.settings().ondemand.has_requesters()
            && session.forget_requests_of_parent()?
        {
            serve(session);
        }
        Ok(())
    }
}

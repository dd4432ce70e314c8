//! Threads that the program includes in a recording, or excludes from it.

use super::SessionRecording;
use crate::error::{Error, ErrorKind};
use crate::layer::thread_selection;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Records the calling thread until this is dropped; from
/// [`Profiler::enable_in_this_thread`](crate::Profiler::enable_in_this_thread).
///
/// ```
/// use tracing::info_span;
/// use tracing_kineto::{KinetoLayer, ThreadFilter};
/// use tracing_subscriber::prelude::*;
///
/// let builder = KinetoLayer::builder().no_output().threads(ThreadFilter::Registered);
/// let (layer, guard) = builder.build()?;
/// let profiler = guard.profiler();
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     let recorded = profiler.enable_in_this_thread();
///     info_span!("recorded").in_scope(|| ());
///     drop(recorded);
///     info_span!("excluded").in_scope(|| ());
/// });
/// assert_eq!(guard.finish()?.stats().slices, 1);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[must_use = "dropping it excludes the thread again; call `keep` to record it to the end"]
pub struct ThreadRecording {
    session: Arc<SessionRecording>,
    recording: u64,
    /// Keeps it on its thread.
    _thread: PhantomData<*const ()>,
}

impl fmt::Debug for ThreadRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadRecording").field("recording", &self.recording).finish_non_exhaustive()
    }
}

impl ThreadRecording {
    /// Records the thread until the recording ends, or until it is
    /// [excluded](crate::Profiler::disable_in_this_thread) again.
    pub fn keep(mut self) {
        self.recording = 0;
    }
}

impl Drop for ThreadRecording {
    fn drop(&mut self) {
        if self.session.recorder.thread_selection.recording() == self.recording {
            // It fails if the thread was excluded meanwhile, or the recording has ended.
            let _ = self.session.exclude_thread();
        }
    }
}

impl SessionRecording {
    /// Records the calling thread from now on.
    pub(crate) fn include_thread(self: &Arc<Self>) -> Result<ThreadRecording, Error> {
        let recording = self.check_recording("include")?;
        if !thread_selection::is_excluded(&self.recorder) {
            return Err(Error::new(ErrorKind::AlreadyActive, "this thread is recorded already; no call is needed"));
        }
        thread_selection::include_thread(&self.recorder, self.recorder.epoch());
        Ok(ThreadRecording { session: self.clone(), recording, _thread: PhantomData })
    }

    /// Excludes the calling thread from now on.
    pub(crate) fn exclude_thread(&self) -> Result<(), Error> {
        self.check_recording("exclude")?;
        if thread_selection::is_excluded(&self.recorder) {
            return Err(Error::new(ErrorKind::NotActive, "this thread is not recorded; no call is needed"));
        }
        thread_selection::leave_recording(&self.recorder);
        Ok(())
    }

    /// Returns the number of the running recording; `action` names what is impossible without one.
    fn check_recording(&self, action: &str) -> Result<u64, Error> {
        let _state = self.lock_recording(&format!("cannot {action} this thread: "))?;
        Ok(self.recorder.thread_selection.recording())
    }
}

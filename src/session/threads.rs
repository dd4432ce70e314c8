//! Threads that join a recording, or leave it, by their own word.

use super::{Phase, Session};
use crate::error::{Error, ErrorKind};
use crate::layer::reach;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The calling thread is recorded until this is dropped; from
/// [`Profiler::enable_in_this_thread`](crate::Profiler::enable_in_this_thread).
#[must_use = "dropping it leaves the thread out again; call `keep` to have it recorded to the end"]
pub struct ThreadRecording {
    session: Arc<Session>,
    recording: u64,
    /// It is of one thread.
    _thread: PhantomData<*const ()>,
}

impl fmt::Debug for ThreadRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadRecording").field("recording", &self.recording).finish_non_exhaustive()
    }
}

impl ThreadRecording {
    /// Has the thread recorded until the recording ends, or it is
    /// [left out](crate::Profiler::disable_in_this_thread) again.
    pub fn keep(mut self) {
        self.recording = 0;
    }
}

impl Drop for ThreadRecording {
    fn drop(&mut self) {
        if self.session.recorder.reach.recording() == self.recording {
            // It may have been left out meanwhile, or the recording has ended.
            let _ = self.session.leave();
        }
    }
}

impl Session {
    /// Has the calling thread recorded from now on.
    pub(crate) fn join(self: &Arc<Self>) -> Result<ThreadRecording, Error> {
        let recording = self.check_recording("there is nothing that the thread could join")?;
        if !reach::is_left_out(&self.recorder) {
            return Err(Error::new(ErrorKind::AlreadyActive, "this thread is recorded already"));
        }
        reach::join(&self.recorder);
        Ok(ThreadRecording { session: self.clone(), recording, _thread: PhantomData })
    }

    /// Leaves the calling thread out from now on.
    pub(crate) fn leave(&self) -> Result<(), Error> {
        self.check_recording("there is nothing to leave the thread out of")?;
        if reach::is_left_out(&self.recorder) {
            return Err(Error::new(ErrorKind::NotActive, "this thread is not recorded"));
        }
        reach::leave(&self.recorder);
        Ok(())
    }

    /// Returns the number of the recording that goes on.
    fn check_recording(&self, so: &str) -> Result<u64, Error> {
        let state = self.lock()?;
        self.check_process()?;
        match state.phase {
            Phase::Recording => Ok(self.recorder.reach.recording()),
            _ => Err(Error::new(ErrorKind::NotActive, format!("no recording is going on, so {so}"))),
        }
    }
}

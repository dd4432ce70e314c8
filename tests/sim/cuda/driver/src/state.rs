//! The driver's objects by handle, under one lock.

use crate::context::{self, Context};
use crate::error::{Error, Outcome};
use crate::memory::Location;
use crate::module::{Function, Module};
use crate::shared::tracer::Work;
use sim_core::device::{Objects, Stream};
use sim_core::handles;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The objects that have been made and not destroyed.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) initialized: bool,
    pub(crate) objects: Objects<Work, Location>,
    pub(crate) contexts: HashMap<u64, Context>,
    /// The primary context of each device and how often it is retained.
    pub(crate) primary: HashMap<i32, (u64, u32)>,
    pub(crate) next_context: u32,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Function>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// Returns the state, initialized or not.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    handles::lock(&STATE)
}

/// Returns the state if `cuInit` has succeeded.
///
/// # Errors
/// `cuInit` has not succeeded.
pub(crate) fn ready() -> Outcome<MutexGuard<'static, State>> {
    let state = lock();
    if state.initialized { Ok(state) } else { Err(Error::NOT_INITIALIZED) }
}

impl State {
    /// The context of the calling thread.
    ///
    /// # Errors
    /// There is none, or it has been destroyed.
    pub(crate) fn context(&mut self) -> Outcome<(u64, &mut Context)> {
        let handle = context::current().ok_or(Error::INVALID_CONTEXT)?;
        self.contexts.get_mut(&handle).map(|context| (handle, context)).ok_or(Error::INVALID_CONTEXT)
    }

    /// The handle under which a stream is kept: 0, 1 and 2 are the default stream of the calling thread's context.
    ///
    /// # Errors
    /// There is no such stream.
    pub(crate) fn stream(&mut self, stream: u64) -> Outcome<u64> {
        match stream {
            0..=2 => Ok(self.context()?.1.null_stream),
            _ => Ok(self.objects.stream(stream).map(|_| stream)?),
        }
    }

    /// A stream and its context.
    pub(crate) fn stream_and_context(&self, handle: u64) -> Outcome<(&Stream, &Context)> {
        let stream = self.objects.stream(handle)?;
        Ok((stream, self.contexts.get(&stream.owner).ok_or(Error::INVALID_CONTEXT)?))
    }
}

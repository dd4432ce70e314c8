//! The driver's objects by handle, under one lock.

use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::event::Event;
use crate::graph::{Executable, Graph};
use crate::memory::Location;
use crate::module::{Function, Module};
use crate::stream::Stream;
use crate::{capture::Capture, context};
use sim_core::engine::Engine;
use sim_core::ids::Ids;
use sim_core::memory::Allocations;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The objects that have been made and not destroyed.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) initialized: bool,
    pub(crate) ids: Ids,
    pub(crate) engine: Engine,
    pub(crate) contexts: HashMap<u64, Context>,
    /// The primary context of each device and how often it is retained.
    pub(crate) primary: HashMap<i32, (u64, u32)>,
    pub(crate) next_context: u32,
    pub(crate) streams: HashMap<u64, Stream>,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) next_event: u32,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Function>,
    pub(crate) graphs: HashMap<u64, Graph>,
    pub(crate) executables: HashMap<u64, Executable>,
    pub(crate) next_graph: u32,
    pub(crate) captures: HashMap<u64, Capture>,
    pub(crate) allocations: Allocations<Location>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// Returns the state, initialized or not.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
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
            _ if self.streams.contains_key(&stream) => Ok(stream),
            _ => Err(Error::INVALID_HANDLE),
        }
    }
}

//! HIP's objects by handle, under one lock.

use crate::argument;
use crate::engine::Job;
use crate::error::{Error, Outcome};
use crate::module::{Function, Module};
use crate::stream::Stream;
use crate::{control, device};
use sim_core::engine::{Engine, Moment};
use sim_core::ids::Ids;
use sim_core::memory::Allocations;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The objects that have been made and not destroyed.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) ids: Ids,
    pub(crate) engine: Engine,
    pub(crate) streams: HashMap<u64, Stream>,
    /// When the device reaches the last record of an event; none before the first.
    pub(crate) events: HashMap<u64, Option<Moment>>,
    pub(crate) modules: HashMap<u64, Module>,
    /// By handle; compiled-in kernels by their address.
    pub(crate) functions: HashMap<u64, Function>,
    pub(crate) kernels: u64,
    pub(crate) code_objects: u64,
    /// Graphs, and those ready to be launched.
    pub(crate) graphs: HashMap<u64, Vec<Job>>,
    pub(crate) executables: HashMap<u64, Vec<Job>>,
    /// Each with its device.
    pub(crate) allocations: Allocations<u32>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// Returns the state, initialized or not.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the state, if a device exists.
///
/// # Errors
/// No device exists.
pub(crate) fn ready() -> Outcome<MutexGuard<'static, State>> {
    if control::options().devices == 0 { Err(Error::NO_DEVICE) } else { Ok(lock()) }
}

impl State {
    /// The handle under which a stream is kept: 0, 1 and 2 are the default stream of the thread's device.
    ///
    /// # Errors
    /// There is no such stream.
    pub(crate) fn stream(&mut self, stream: argument::Stream) -> Outcome<u64> {
        let device = device::current();
        match stream.0 {
            0..=2 => {
                let handle = Stream::null_handle(device);
                self.streams.entry(handle).or_insert_with(|| Stream::null(device));
                Ok(handle)
            }
            handle if self.streams.contains_key(&handle) => Ok(handle),
            _ => Err(Error::INVALID_HANDLE),
        }
    }
}

//! HIP's objects by handle, under one lock.

use crate::argument;
use crate::error::{Error, Outcome};
use crate::module::{Function, Module};
use crate::shared::tracer::Work;
use crate::{control, device};
use sim_core::device::{Objects, Stream};
use sim_core::handles;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The objects that have been made and not destroyed.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Those of devices; each allocation has its device.
    pub(crate) objects: Objects<Work, u32>,
    pub(crate) modules: HashMap<u64, Module>,
    /// By handle; compiled-in kernels by their address.
    pub(crate) functions: HashMap<u64, Function>,
    pub(crate) kernels: u64,
    pub(crate) code_objects: u64,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// Returns the state, initialized or not.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    handles::lock(&STATE)
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
        if stream.0 > 2 {
            return Ok(self.objects.stream(stream.0).map(|_| stream.0)?);
        }
        let device = u64::from(device::current());
        let handle = 0x10 + device;
        let default = || Stream { is_default: true, ..Stream::new(0, device, 0) };
        self.objects.streams.entry(handle).or_insert_with(default);
        Ok(handle)
    }
}

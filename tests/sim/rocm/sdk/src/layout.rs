//! Layouts of structs for the client: those of 1.0, and of a later version with longer records.

use crate::shared::link;
use crate::shared::options::Version;

pub(crate) use sim_core::record::Record as Bytes;

/// Kinds of callback services.
pub(crate) const HIP_RUNTIME_API: u32 = 5;
pub(crate) const CODE_OBJECT: u32 = 10;
/// Kinds of buffered services.
pub(crate) const MEMORY_COPY: u32 = 10;
pub(crate) const KERNEL_DISPATCH: u32 = 11;
/// An unknown kind.
pub(crate) const UNKNOWN: u32 = 900;

/// The category of tracing records, and an unknown one.
pub(crate) const TRACING: u32 = 1;
pub(crate) const UNKNOWN_CATEGORY: u32 = 9;

/// What a later version adds to the end of a record.
const ADDED: usize = 16;

pub(crate) fn version() -> Version {
    link::options().sdk
}

fn added() -> usize {
    if version() > (Version { major: 1, minor: 0 }) { ADDED } else { 0 }
}

/// Bytes of a record or a struct.
pub(crate) fn kernel_dispatch() -> usize {
    184 + added()
}

pub(crate) fn memory_copy() -> usize {
    96 + added()
}

pub(crate) fn kernel_symbol() -> usize {
    88 + added()
}

pub(crate) fn code_object() -> usize {
    88 + added()
}

pub(crate) fn agent() -> usize {
    312 + added()
}

/// `rocprofiler_callback_tracing_record_t`
pub(crate) type Record = [u64; 8];

/// A callback's record, which C passes by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Passed(pub(crate) Record);

/// The fields of a callback record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallbackInfo {
    pub(crate) context: u64,
    pub(crate) thread: u64,
    pub(crate) correlation: u64,
    pub(crate) external: u64,
    pub(crate) kind: u32,
    pub(crate) operation: i32,
    pub(crate) phase: u32,
    pub(crate) payload: u64,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl CallbackInfo {
    pub(crate) fn record(&self) -> Record {
        let [kind, phase] = [pair(self.kind, self.operation as u32), pair(self.phase, 0)];
        [self.context, self.thread, self.correlation, self.external, 0, kind, phase, self.payload]
    }
}

//! Reads the fields of PTI's records from their bytes.
//!
//! From 0.12 to 1.0 records only grew at their ends, except for communication, whose fields moved. So a field exists
//! if the record is long enough. No other value in a buffer is trusted.

use crate::records::fields::{kinds, records};

kinds! {
    view Record
    Kernel(Kernel) = KERNEL: 1;
    Memcpy(Memcpy) = COPY: 8;
    PeerMemcpy(PeerMemcpy) = PEER_COPY: 10;
    Memset(Memset) = FILL: 9;
    Runtime(Call) = RUNTIME: 6;
    Driver(Call) = DRIVER: 3;
    Synchronization(Synchronization) = SYNCHRONIZATION: 11;
    ExternalCorrelation(ExternalCorrelation) = EXTERNAL_CORRELATION: 7;
    Overhead(Overhead) = OVERHEAD: 5;
    Communication(Communication) = COMMUNICATION: 12;
}

records! {
    /// A kernel.
    Kernel, 168 bytes {
        queue: u64 = 8, context: u64 = 16, name: u64 = 24, source_file: u64 = 32, source_line: u64 = 40, id: u64 = 48,
        correlation: u32 = 56, uuid: [u8; 16] = 80, appended: u64 = 96, start: u64 = 104, end: u64 = 112,
        submitted: u64 = 120, task_begin: u64 = 128, enqueue_begin: u64 = 136, node: u64 = 144, sycl_queue: u64 = 152,
        invocation: u32 = 160,
    }
    /// A copy on a device, or between it and the host.
    Memcpy, 136 bytes {
        what: u32 = 4, source_kind: u32 = 8, target_kind: u32 = 12, queue: u64 = 16, context: u64 = 24, name: u64 = 32,
        uuid: [u8; 16] = 56, id: u64 = 72, correlation: u32 = 80, appended: u64 = 88, start: u64 = 96, end: u64 = 104,
        submitted: u64 = 112, bytes: u64 = 120, sycl_queue: u64 = 128,
    }
    /// A copy between devices.
    PeerMemcpy, 168 bytes {
        what: u32 = 4, source_kind: u32 = 8, target_kind: u32 = 12, queue: u64 = 16, context: u64 = 24, name: u64 = 32,
        uuid: [u8; 16] = 72, target_uuid: [u8; 16] = 88, id: u64 = 104, correlation: u32 = 112, appended: u64 = 120,
        start: u64 = 128, end: u64 = 136, submitted: u64 = 144, bytes: u64 = 152, sycl_queue: u64 = 160,
    }
    /// A fill.
    Memset, 136 bytes {
        memory_kind: u32 = 4, queue: u64 = 8, context: u64 = 16, name: u64 = 24, uuid: [u8; 16] = 48, id: u64 = 64,
        correlation: u32 = 72, appended: u64 = 80, start: u64 = 88, end: u64 = 96, submitted: u64 = 104,
        bytes: u64 = 112, value: u64 = 120, sycl_queue: u64 = 128,
    }
    /// A call of a runtime or the driver.
    Call, 48 bytes {
        start: u64 = 8, end: u64 = 16, group: u32 = 24, function: u32 = 28, thread: u32 = 36, correlation: u32 = 40,
    }
    /// A wait.
    Synchronization, 72 bytes {
        what: u32 = 4, context: u64 = 8, queue: u64 = 16, event: u64 = 24, start: u64 = 32, end: u64 = 40,
        thread: u32 = 48, correlation: u32 = 52, events: u32 = 56, result: u32 = 60, function: u32 = 64,
        group: u32 = 68,
    }
    /// An id that was pushed around a call.
    ExternalCorrelation, 24 bytes {
        correlation: u32 = 4, id: u64 = 8, id_kind: u32 = 16,
    }
    /// Overhead of PTI.
    Overhead, 56 bytes {
        start: u64 = 8, end: u64 = 16, count: u64 = 32, duration: u64 = 40, what: u32 = 48,
    }
    /// A collective operation.
    Communication, 56 bytes {
        start: u64 = 8, end: u64 = 16, thread: u32 = 28, word_40: u64 = 40, word_48: u64 = 48,
    }
    + { word_56: u64 = 56, }
}

impl Communication<'_> {
    /// Returns the communicator and the address of the name; versions after 0.17 have them 8 bytes later.
    pub(super) fn communicator_and_name(&self) -> (u64, u64) {
        self.word_56().map_or((self.word_40(), self.word_48()), |name| (self.word_48(), name))
    }
}

#[cfg(test)]
mod tests;

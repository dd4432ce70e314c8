//! Settings of the builder about recordings that do not fit into memory.

use super::KinetoLayerBuilder;
use crate::config::{Key, Overflow, Value};
use std::time::Duration;

/// # Memory: how much records take, and what happens at the limit
impl KinetoLayerBuilder {
    /// Sets the most bytes that records may take, those in traces included. Default: 512 MiB.
    pub fn buffer_limit_bytes(self, bytes: u64) -> Self {
        self.with(Key::BufferLimit, Value::Bytes(bytes))
    }

    /// Sets what happens at the buffer limit. Default: [`Overflow::Stop`].
    pub fn overflow(self, overflow: Overflow) -> Self {
        self.with(Key::Overflow, Value::Overflow(overflow))
    }

    /// Sets how far back the records of [`Overflow::KeepNewest`] reach, if the memory suffices. Default: all that fit.
    ///
    /// Each trace begins at most this long before its end.
    pub fn keep(self, time: Duration) -> Self {
        self.with(Key::Keep, Value::Duration(time))
    }
}

//! Settings of the builder about recordings that do not fit into memory.

use super::KinetoLayerBuilder;
use crate::config::{Key, Overflow, Value};
use std::time::Duration;

/// # Memory: how much records take, and what happens at the limit
impl KinetoLayerBuilder {
    /// Sets the most bytes that records may take, those in traces included. Default: 512 MiB.
    pub fn buffer_limit_bytes(mut self, bytes: u64) -> Self {
        self.overrides.set(Key::BufferLimit, Value::Bytes(bytes));
        self
    }

    /// Sets what happens at the buffer limit. Default: [`Overflow::Stop`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overrides.set(Key::Overflow, overflow);
        self
    }

    /// Sets how far back the records of [`Overflow::KeepNewest`] reach, if the memory suffices. Default: all that fit.
    ///
    /// Each trace begins at most this long before its end.
    pub fn keep(mut self, time: Duration) -> Self {
        self.overrides.set(Key::Keep, Value::Duration(time));
        self
    }
}

//! Layouts: the meaning of a record's words.

use super::super::DeviceDescription;
use super::names::{Name, NameTable};
use kineto_base::time::Timestamp;
use kineto_model::activity::ArgValue;
use std::fmt;

/// Shows the words of a kind of record as arguments.
///
/// A collector stores numbers and [names](Name) in as few 64-bit words as it can. Their keys, and values derived from
/// them, are computed when a row is written.
pub trait RecordLayout: fmt::Debug + Sync {
    /// Calls `each` with every key and value, in order.
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>));
}

/// A record as a [`RecordLayout`] reads it.
#[derive(Clone, Copy)]
pub struct RecordView<'t> {
    pub(crate) words: &'t [u64],
    pub(crate) names: &'t NameTable,
    /// When it began.
    pub start: Timestamp,
    /// When it ended; the end of the recording if it has not.
    pub end: Timestamp,
    /// Its correlation id, 0 for none.
    pub correlation: u64,
    /// The device's number, -1 if it is not known.
    pub device_id: i32,
    /// The device, if its collector described it.
    pub device: Option<&'t DeviceDescription>,
    /// The stream's number.
    pub stream: u32,
    /// For a wait for an event, where that event was recorded.
    pub wait: Option<Wait>,
}

impl fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaped")
            .field("words", &self.words)
            .field("start", &self.start)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// Where an event that something waits for was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The stream.
    pub stream: u32,
    /// The correlation id of the call that recorded it.
    pub correlation: u64,
}

impl<'t> RecordView<'t> {
    /// Returns a word; 0 beyond the last.
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// Returns the lower half of a word.
    #[inline]
    pub fn low(&self, at: usize) -> u32 {
        (self.word(at) & 0xFFFF_FFFF) as u32
    }

    /// Returns the upper half of a word.
    #[inline]
    pub fn high(&self, at: usize) -> u32 {
        (self.word(at) >> 32) as u32
    }

    /// Writes how many bytes were copied or filled, and how fast if that is known.
    #[expect(clippy::cast_precision_loss, reason = "a ratio, written with a few digits")]
    pub(crate) fn write_bytes(&self, bytes: u64, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("bytes", ArgValue::U64(bytes));
        let duration = self.end.since(self.start);
        if duration > 0 {
            each("memory bandwidth (GB/s)", ArgValue::F64(bytes as f64 / duration as f64));
        }
    }

    /// Returns the text of a name whose number is in a word.
    pub fn text(&self, at: usize) -> &'t str {
        self.names.text(Name(self.low(at)))
    }
}

//! Reads any bytes as records, for a fuzz target.

use super::Reader;
use crate::buffered::walk::{Unreadable, Walker};
use crate::records::fields::kind_of;
use crate::trial::{self, Findings};
use kineto_model::activity::ActivityTypes;

/// Walks records of 256 bytes, as long as the longest of all versions.
#[derive(Debug)]
struct EqualSteps;

impl Walker for EqualSteps {
    fn next_offset(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        let next = at.map_or(0, |at| at + 256);
        match buffer.get(next..) {
            None | Some([]) => Ok(None),
            Some(record) => kind_of(record).ok_or(Unreadable).map(|_| Some(next)),
        }
    }
}

/// Reads a buffer of CUPTI's activity records, each of 256 bytes.
pub fn read_cupti_buffer(bytes: &[u8]) -> Findings {
    let sink = trial::unbounded_sink();
    let mut reader = Reader::new(sink.clone(), ActivityTypes::ALL, Box::new(|_, _| None));
    reader.read_buffer(bytes, &EqualSteps);
    Findings::of_sink(&sink)
}

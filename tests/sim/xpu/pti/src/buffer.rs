//! A buffer of the client's, with records.

use crate::courier;
use crate::link;

/// Bytes by which a buffer is reported shorter than what is in it, on demand.
const CUT: usize = 20;

/// A buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    address: *mut u8,
    size: usize,
    used: usize,
    is_nonsense: bool,
}

// SAFETY: the client has given the memory away until it gets it back.
unsafe impl Send for Buffer {}

/// Bytes that no reader can make sense of, at the end of a buffer with garbage.
const NONSENSE: [u8; 20] = [0xa5; 20];

impl Buffer {
    pub(crate) fn new(address: *mut u8, size: usize) -> Buffer {
        Buffer { address, size, used: 0, is_nonsense: false }
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes <= self.size
    }

    /// Adds a record, for which there must be room.
    pub(crate) fn add(&mut self, record: &[u8]) {
        debug_assert!(self.has_room(record.len()));
        // SAFETY: the range is inside the buffer.
        let place = unsafe { self.address.add(self.used) };
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), place, record.len()) };
        self.used += record.len();
    }

    /// Marks that a record here is nonsense.
    pub(crate) fn note_garbage(&mut self) {
        self.is_nonsense = true;
    }

    /// Gives it back to the client.
    pub(crate) fn deliver(mut self, completed: courier::Completed) {
        if self.is_nonsense && self.has_room(NONSENSE.len()) {
            self.add(&NONSENSE);
        }
        let cut = if link::options().cut_buffers && self.used > CUT { CUT } else { 0 };
        completed(self.address, self.size, self.used - cut);
    }
}

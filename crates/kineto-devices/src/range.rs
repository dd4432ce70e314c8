//! A range that the program chooses, outside of which nothing is recorded.

use std::fmt;
use std::sync::Weak;

/// Opens and closes the recording when the program calls its vendor's functions for that, such as `cudaProfilerStart`
/// and `cudaProfilerStop`. It is a cheap clone and works on any thread.
///
/// A collector that sees such calls receives it with its [`Selection`](super::Selection). It may be called inside a
/// vendor's callback: it takes locks only briefly, then pauses or resumes the
/// collectors on the same thread. Ranges do not nest: `begin` in an open
/// range does nothing.
#[derive(Clone)]
pub struct CaptureRange {
    marks: Weak<dyn Marks>,
}

/// Receives the marks of a range.
pub trait Marks: Send + Sync {
    /// Begins or ends the range.
    fn mark_range(&self, begins: bool);
}

impl CaptureRange {
    /// Creates a range that passes its marks on.
    pub fn new(marks: Weak<dyn Marks>) -> CaptureRange {
        CaptureRange { marks }
    }

    /// Begins the range: later work of this thread is recorded. Does nothing if the range is open or no recording
    /// runs.
    pub fn begin(&self) {
        self.mark_range(true);
    }

    /// Ends the range: later work of this thread is not recorded.
    pub fn end(&self) {
        self.mark_range(false);
    }

    fn mark_range(&self, begins: bool) {
        if let Some(marks) = self.marks.upgrade() {
            marks.mark_range(begins);
        }
    }
}

impl fmt::Debug for CaptureRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureRange").finish_non_exhaustive()
    }
}

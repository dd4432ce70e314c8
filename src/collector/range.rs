//! A range of the program's own choosing, outside of which nothing is recorded.

use std::fmt;
use std::sync::Weak;

/// Opens and closes the recording where the program says so to its vendor, as by `cudaProfilerStart` and
/// `cudaProfilerStop`; a cheap clone, for any thread.
///
/// A collector that sees such calls gets it with its [`Selection`](super::Selection). It may be told from within a
/// vendor's callback: no lock is waited for but for moments, and then the collectors themselves are told to
/// [pause](super::Collector::pause) or to [resume](super::Collector::resume), on the same thread. Ranges do not nest: what
/// is open already stays open.
#[derive(Clone)]
pub struct CaptureRange {
    marks: Weak<dyn Marks>,
}

/// Who acts on the marks of a range.
pub(crate) trait Marks: Send + Sync {
    /// The range begins, or it ends.
    fn mark(&self, begins: bool);
}

impl CaptureRange {
    pub(crate) fn new(marks: Weak<dyn Marks>) -> CaptureRange {
        CaptureRange { marks }
    }

    /// The range begins: what follows on this thread is recorded. Nothing if it has begun, or no recording goes on.
    pub fn begin(&self) {
        self.mark(true);
    }

    /// The range ends: what follows on this thread is not recorded.
    pub fn end(&self) {
        self.mark(false);
    }

    fn mark(&self, begins: bool) {
        if let Some(marks) = self.marks.upgrade() {
            marks.mark(begins);
        }
    }
}

impl fmt::Debug for CaptureRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureRange").finish_non_exhaustive()
    }
}

//! Walks over records of known size.

use crate::buffered::walk::{Unreadable, Walker};
use crate::records::fields::kind_of;
use std::cell::Cell;

/// Skips a record without calling CUPTI's walker once it has seen a record of that kind in the same buffer.
///
/// All records of a kind have the same size in a given version, and NVIDIA's walker takes 30 ns, as long as
/// everything else together. If a size were wrong, the walk would not end at the end of the buffer, which would then
/// count as broken.
#[derive(Debug)]
pub(super) struct RecordSteps<'w, W> {
    walker: &'w W,
    /// Sizes by kind; 0 if not known yet.
    sizes: [Cell<usize>; 64],
}

impl<'w, W: Walker> RecordSteps<'w, W> {
    pub(super) fn new(walker: &'w W) -> RecordSteps<'w, W> {
        RecordSteps { walker, sizes: [const { Cell::new(0) }; 64] }
    }
}

impl<W: Walker> Walker for RecordSteps<'_, W> {
    #[inline]
    fn next_offset(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        let Some(from) = at else { return self.walker.next_offset(buffer, None) };
        let kind = buffer.get(from..).and_then(kind_of).unwrap_or(u32::MAX);
        let size = self.sizes.get(kind as usize);
        match size.map(Cell::get) {
            Some(size) if size > 0 => Ok(Some(from + size).filter(|next| *next != buffer.len())),
            _ => {
                let next = self.walker.next_offset(buffer, at)?;
                if let (Some(size), Some(next)) = (size, next) {
                    size.set(next.saturating_sub(from));
                }
                Ok(next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffered::walk::{Records, ScriptedWalker};

    #[test]
    fn wrong_step_breaks_the_buffer() {
        let record = |number: u32, size: usize| {
            let mut bytes = vec![0u8; size];
            bytes[..4].copy_from_slice(&number.to_ne_bytes());
            bytes
        };
        let lengths = |records: &[Vec<u8>], script: Vec<Result<Option<usize>, Unreadable>>| {
            let (buffer, walker) = (records.concat(), ScriptedWalker(script));
            let steps = RecordSteps::new(&walker);
            let mut records = Records::new(&buffer, &steps);
            (records.by_ref().take(100).map(<[u8]>::len).collect::<Vec<_>>(), records.is_broken())
        };
        let records = [record(4, 40), record(10, 248), record(4, 40), record(10, 248), record(4, 40)];
        // The walker returns the first record of each kind, and would end the buffer there.
        let script = vec![Ok(Some(0)), Ok(Some(40)), Ok(Some(288)), Err(Unreadable)];
        assert_eq!(lengths(&records, script.clone()), (vec![40, 248, 40, 248, 40], false));
        let longer = [record(4, 40), record(10, 248), record(4, 48), record(10, 248), record(4, 40)];
        assert!(lengths(&longer, script.clone()).1, "the step does not lead to a record");
        let cut = [record(4, 40), record(10, 248), record(4, 40), record(10, 200)];
        assert_eq!(lengths(&cut, script), (vec![40, 248, 40, 200], true));
    }
}

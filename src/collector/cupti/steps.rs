//! Walks over records of known size.

#[cfg(test)]
use super::records::kind;
use super::records::kind_of;
use crate::collector::buffered::walk::{Unreadable, Walker};
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

/// A walker that computes sizes from the library's version, for tests without the library.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordSizes {
    /// The result of `cuptiGetVersion`.
    pub(super) api_version: u32,
    /// Whether it is 11.8, which reports the same number as 12.0.
    pub(super) is_11_8: bool,
}

#[cfg(test)]
impl RecordSizes {
    /// Returns the size of a record; `None` for unknown kinds.
    pub(super) fn size(self, kind: u32) -> Option<usize> {
        // The sizes of all versions, each with the first version that uses it.
        let sizes: &[(u32, usize)] = match kind {
            kind::CONCURRENT_KERNEL | kind::KERNEL if self.is_11_8 => &[(0, 200)],
            kind::CONCURRENT_KERNEL | kind::KERNEL => {
                &[(0, 176), (18, 208), (130_001, 216), (130_101, 224), (130_301, 232), (130_401, 248)]
            }
            kind::MEMCPY => &[(0, 88), (26, 96), (130_401, 112)],
            kind::MEMCPY2 => &[(0, 96)],
            kind::MEMSET => &[(0, 88), (130_401, 104)],
            kind::RUNTIME | kind::DRIVER => &[(0, 40)],
            kind::SYNCHRONIZATION => &[(0, 40), (26, 56)],
            kind::OVERHEAD => &[(0, 40), (21, 48), (22, 56)],
            kind::EXTERNAL_CORRELATION => &[(0, 24)],
            kind::CUDA_EVENT => &[(0, 24), (26, 56)],
            kind::GRAPH_TRACE => &[(0, 48), (21, 56)],
            kind::MARKER => &[(0, 56)],
            kind::MEMORY2 => &[(0, 120), (24, 128)],
            kind::MARKER_DATA => &[(0, 32), (130_001, 40)],
            _ => return None,
        };
        sizes.iter().rev().find(|(since, _)| *since <= self.api_version).map(|(_, size)| *size)
    }
}

#[cfg(test)]
impl Walker for RecordSizes {
    fn next_offset(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        let Some(at) = at else { return Ok(Some(0)) };
        let kind = buffer.get(at..).and_then(kind_of).ok_or(Unreadable)?;
        let next = at + self.size(kind).ok_or(Unreadable)?;
        Ok((next < buffer.len()).then_some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::buffered::walk::{Records, ScriptedWalker};
    use proptest::prelude::*;

    #[test]
    fn record_sizes_match_the_versions() {
        let size = |api_version, kind| RecordSizes { api_version, is_11_8: false }.size(kind);
        for (api_version, sizes) in [
            (17, [176, 88, 96, 88, 40, 40, 40, 24, 24, 48]),
            (18, [208, 88, 96, 88, 40, 40, 40, 24, 24, 48]),
            (21, [208, 88, 96, 88, 40, 40, 48, 24, 24, 56]),
            (22, [208, 88, 96, 88, 40, 40, 56, 24, 24, 56]),
            (28, [208, 96, 96, 88, 40, 56, 56, 24, 56, 56]),
            (130_001, [216, 96, 96, 88, 40, 56, 56, 24, 56, 56]),
            (130_101, [224, 96, 96, 88, 40, 56, 56, 24, 56, 56]),
            (130_301, [232, 96, 96, 88, 40, 56, 56, 24, 56, 56]),
            (130_401, [248, 112, 96, 104, 40, 56, 56, 24, 56, 56]),
        ] {
            let kinds = [10, 1, 22, 2, 5, 38, 17, 39, 36, 51];
            assert_eq!(kinds.map(|kind| size(api_version, kind).unwrap()), sizes, "{api_version}");
        }
        assert_eq!(RecordSizes { api_version: 18, is_11_8: true }.size(10), Some(200));
        assert_eq!(size(28, 77), None);
    }

    #[test]
    fn wrong_step_breaks_the_buffer() {
        let record = |number: u32, size: usize| {
            let mut bytes = vec![0u8; size];
            bytes[..4].copy_from_slice(&number.to_ne_bytes());
            bytes
        };
        let lengths = |records: &[Vec<u8>], told: Vec<Result<Option<usize>, Unreadable>>| {
            let (buffer, walker) = (records.concat(), ScriptedWalker(told));
            let steps = RecordSteps::new(&walker);
            let mut records = Records::new(&buffer, &steps);
            (records.by_ref().take(100).map(<[u8]>::len).collect::<Vec<_>>(), records.is_broken())
        };
        let records = [record(4, 40), record(10, 248), record(4, 40), record(10, 248), record(4, 40)];
        // The walker returns the first record of each kind, and would end the buffer there.
        let told = vec![Ok(Some(0)), Ok(Some(40)), Ok(Some(288)), Err(Unreadable)];
        assert_eq!(lengths(&records, told.clone()), (vec![40, 248, 40, 248, 40], false));
        let longer = [record(4, 40), record(10, 248), record(4, 48), record(10, 248), record(4, 40)];
        assert!(lengths(&longer, told.clone()).1, "the step does not lead to a record");
        let cut = [record(4, 40), record(10, 248), record(4, 40), record(10, 200)];
        assert_eq!(lengths(&cut, told), (vec![40, 248, 40, 200], true));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let strides = RecordSizes { api_version: 130_001, is_11_8: false };
            prop_assert!(Records::new(&bytes, &strides).map(<[u8]>::len).sum::<usize>() <= bytes.len());
        }
    }
}

//! Splits a buffer of a vendor's records.

/// Finds where records begin.
pub(crate) trait Walker {
    /// Returns the offset of the record after the record at `at`, or of the first; `None` after the last.
    ///
    /// # Errors
    /// The rest of the buffer cannot be read.
    fn next_offset(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable>;
}

/// The rest of a buffer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Iterates over the records of a buffer, each as all of its bytes.
///
/// A record ends where the next begins. If the walker fails, does not advance, or leaves the buffer, the iteration
/// ends and the buffer is [broken](Records::is_broken).
#[derive(Debug)]
pub(crate) struct Records<'b, W> {
    buffer: &'b [u8],
    walker: &'b W,
    /// The offset of the next record.
    at: Option<usize>,
    broken: bool,
}

impl<'b, W: Walker> Records<'b, W> {
    pub(crate) fn new(buffer: &'b [u8], walker: &'b W) -> Records<'b, W> {
        let mut records = Records { buffer, walker, at: None, broken: false };
        if !buffer.is_empty() {
            records.at = records.offset_after(None);
            records.broken |= records.at.is_none();
        }
        records
    }

    /// Returns whether the rest of the buffer cannot be read.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    #[inline]
    fn offset_after(&mut self, from: Option<usize>) -> Option<usize> {
        match self.walker.next_offset(self.buffer, from) {
            Ok(None) => None,
            Ok(Some(next)) if next < self.buffer.len() && from.is_none_or(|from| from < next) => Some(next),
            Ok(Some(_)) | Err(_) => {
                self.broken = true;
                None
            }
        }
    }
}

impl<'b, W: Walker> Iterator for Records<'b, W> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        let from = self.at?;
        self.at = self.offset_after(Some(from));
        self.buffer.get(from..self.at.unwrap_or(self.buffer.len()))
    }
}

/// A walker that returns what a test prescribes.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ScriptedWalker(pub(crate) Vec<Result<Option<usize>, Unreadable>>);

#[cfg(test)]
impl Walker for ScriptedWalker {
    fn next_offset(&self, _: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        let index_of = |at| self.0.iter().position(|scripted| *scripted == Ok(Some(at))).ok_or(Unreadable);
        let place = at.map_or(Ok(0), |at| index_of(at).map(|place| place + 1))?;
        self.0.get(place).copied().unwrap_or(Ok(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split_buffer(length: usize, script: &[Result<Option<usize>, Unreadable>]) -> (Vec<usize>, bool) {
        let (buffer, walker) = (vec![0u8; length], ScriptedWalker(script.to_vec()));
        let mut records = Records::new(&buffer, &walker);
        let lengths = records.by_ref().take(100).map(<[u8]>::len).collect();
        (lengths, records.is_broken())
    }

    #[test]
    fn record_ends_where_the_next_begins() {
        assert_eq!(split_buffer(100, &[Ok(Some(0)), Ok(Some(40)), Ok(Some(64)), Ok(None)]), (vec![40, 24, 36], false));
        assert_eq!(split_buffer(0, &[Ok(Some(0))]), (vec![], false));
    }

    #[test]
    fn walker_error_ends_the_buffer() {
        for wrong in [Ok(Some(8)), Ok(Some(40)), Ok(Some(0)), Ok(Some(100)), Ok(Some(usize::MAX)), Err(Unreadable)] {
            let (lengths, broken) = split_buffer(100, &[Ok(Some(8)), Ok(Some(40)), wrong]);
            assert_eq!((lengths, broken), (vec![32, 60], true), "{wrong:?}");
        }
        assert_eq!(split_buffer(100, &[Err(Unreadable)]), (vec![], true));
        assert_eq!(split_buffer(1, &[Ok(None)]), (vec![], true), "no record, but bytes");
        assert_eq!(split_buffer(100, &[Ok(Some(100))]), (vec![], true));
    }

    proptest! {
        #[test]
        fn any_buffer_and_walker_end_in_bounds(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            steps in proptest::collection::vec(0usize..700, 0..20),
        ) {
            let walker = ScriptedWalker(steps.iter().map(|step| Ok(Some(*step))).collect());
            let total: usize = Records::new(&bytes, &walker).map(<[u8]>::len).sum();
            prop_assert!(total <= bytes.len());
        }
    }
}

//! Cuts a buffer into records.

use super::error::PtiError;
use super::ffi::Api;

/// Knows where records begin.
pub(super) trait Walker {
    /// Returns where the record behind the one at `at` begins, or the first; `None` behind the last.
    ///
    /// # Errors
    /// The buffer cannot be read on.
    fn next(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, PtiError>;
}

impl Walker for Api {
    fn next(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, PtiError> {
        self.next_record(buffer, at)
    }
}

/// The records of a buffer, each as all of its bytes.
///
/// A record reaches to the beginning of the next one. Where the walker fails, goes back, stays or leaves the buffer,
/// that is the end, and the buffer is [broken](Records::broken).
#[derive(Debug)]
pub(super) struct Records<'b, W> {
    buffer: &'b [u8],
    walker: &'b W,
    /// Where the next record begins.
    at: Option<usize>,
    broken: bool,
}

impl<'b, W: Walker> Records<'b, W> {
    pub(super) fn new(buffer: &'b [u8], walker: &'b W) -> Records<'b, W> {
        let mut records = Records { buffer, walker, at: None, broken: false };
        if !buffer.is_empty() {
            records.at = records.step(None);
        }
        records
    }

    /// Whether the rest of the buffer cannot be read.
    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    fn step(&mut self, from: Option<usize>) -> Option<usize> {
        match self.walker.next(self.buffer, from) {
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

    fn next(&mut self) -> Option<&'b [u8]> {
        let from = self.at?;
        self.at = self.step(Some(from));
        self.buffer.get(from..self.at.unwrap_or(self.buffer.len()))
    }
}

/// A walker that knows the sizes of records by PTI's version, for tests without the library.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Strides {
    /// Whether it is 1.0 or newer.
    pub(super) is_1_0: bool,
}

#[cfg(test)]
impl Strides {
    /// Returns the size of a record; `None` for kinds that are not known.
    pub(super) fn size(self, view: u32) -> Option<usize> {
        let (older, newer) = match view {
            1 => (168, 184),
            8 => (136, 152),
            10 => (168, 192),
            9 => (136, 152),
            7 => (24, 24),
            5 => (56, 56),
            3 | 6 => (48, 48),
            11 => (72, 72),
            12 => (56, 64),
            _ => return None,
        };
        Some(if self.is_1_0 { newer } else { older })
    }
}

#[cfg(test)]
impl Walker for Strides {
    fn next(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, PtiError> {
        const BAD_ARGUMENT: PtiError = PtiError(3);
        let Some(at) = at else { return Ok(Some(0)) };
        let view = buffer.get(at..).and_then(super::records::view_of).ok_or(BAD_ARGUMENT)?;
        let next = at + self.size(view).ok_or(BAD_ARGUMENT)?;
        Ok((next < buffer.len()).then_some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Says what the test wrote down.
    #[derive(Debug)]
    struct Told(Vec<Result<Option<usize>, PtiError>>);

    impl Walker for Told {
        fn next(&self, _: &[u8], at: Option<usize>) -> Result<Option<usize>, PtiError> {
            let told = |at| self.0.iter().position(|told| *told == Ok(Some(at))).ok_or(PtiError(3));
            let place = at.map_or(Ok(0), |at| told(at).map(|place| place + 1))?;
            self.0.get(place).copied().unwrap_or(Ok(None))
        }
    }

    fn cut(length: usize, told: &[Result<Option<usize>, PtiError>]) -> (Vec<usize>, bool) {
        let (buffer, walker) = (vec![0u8; length], Told(told.to_vec()));
        let mut records = Records::new(&buffer, &walker);
        let lengths = records.by_ref().take(100).map(<[u8]>::len).collect();
        (lengths, records.broken())
    }

    #[test]
    fn a_record_reaches_to_the_next_and_the_last_to_the_end() {
        assert_eq!(cut(100, &[Ok(Some(0)), Ok(Some(48)), Ok(Some(72)), Ok(None)]), (vec![48, 24, 28], false));
        assert_eq!(cut(0, &[Ok(Some(0))]), (vec![], false));
        assert_eq!(cut(48, &[Ok(None)]), (vec![], false));
    }

    #[test]
    fn a_walker_that_errs_ends_the_buffer() {
        for wrong in [Ok(Some(8)), Ok(Some(48)), Ok(Some(0)), Ok(Some(100)), Ok(Some(usize::MAX)), Err(PtiError(3))] {
            let (lengths, broken) = cut(100, &[Ok(Some(8)), Ok(Some(48)), wrong]);
            assert_eq!((lengths, broken), (vec![40, 52], true), "{wrong:?}");
        }
        assert_eq!(cut(100, &[Err(PtiError(3))]), (vec![], true));
    }

    proptest! {
        #[test]
        fn no_bytes_and_no_walker_lead_astray(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            steps in proptest::collection::vec(0usize..700, 0..20),
        ) {
            let walker = Told(steps.iter().map(|step| Ok(Some(*step))).collect());
            let total: usize = Records::new(&bytes, &walker).map(<[u8]>::len).sum();
            prop_assert!(total <= bytes.len());
        }
    }
}

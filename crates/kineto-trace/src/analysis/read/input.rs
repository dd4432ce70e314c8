//! The bytes of a file, some of which may be returned and read once more.

use super::Progress;
use crate::analysis::fault::{Cause, Fault, Place};
use crate::analysis::json_reader::Result;
use std::io::{self, Cursor, ErrorKind, Read};

/// Reads a file's JSON, and takes bytes back.
pub(super) struct Input<R> {
    reader: R,
    /// Bytes that were returned.
    returned: Cursor<Vec<u8>>,
    /// Whether the reader has reached its end.
    is_over: bool,
    /// Whether a decompressor found that the file is cut off.
    is_cut: bool,
    /// The line of the first byte that is not consumed.
    lines: LineCount,
    /// The error that ended it, until it is reported.
    error: Option<io::Error>,
    /// The offset in the file of the next byte.
    offset: u64,
    max_file_len: u64,
    progress: Progress,
    /// The number of bytes reported last.
    reported: u64,
}

/// The ends of lines so far, and the bytes since the last one.
#[derive(Clone, Copy, Debug, Default)]
struct LineCount {
    ends: u64,
    since_end: u64,
}

impl LineCount {
    fn advance(&mut self, bytes: &[u8]) {
        let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let behind = bytes.iter().rev().take_while(|byte| **byte != b'\n').count() as u64;
        self.since_end = if ends == 0 { self.since_end + behind } else { behind };
        self.ends += ends;
    }
}

impl<R: Read> Input<R> {
    /// `max_file_len` limits the length of the file, after decompression.
    pub(super) fn new(reader: R, max_file_len: u64, progress: Progress) -> Input<R> {
        Input {
            reader,
            returned: Cursor::default(),
            is_over: false,
            is_cut: false,
            lines: LineCount::default(),
            error: None,
            offset: 0,
            max_file_len,
            progress,
            reported: 0,
        }
    }

    /// Returns whether the file was cut off within its compressed data.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Counts the lines of bytes that are consumed, in the order of the file.
    pub(super) fn consume(&mut self, bytes: &[u8]) {
        self.lines.advance(bytes);
    }

    /// Returns the place that follows `text`, which follows what is consumed.
    pub(super) fn place_after(&self, text: &[u8]) -> Place {
        let mut lines = self.lines;
        lines.advance(text);
        Place { line: lines.ends + 1, column: lines.since_end + 1 }
    }

    /// Returns the offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads some bytes; 0 at the end of the file.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let read = self.read_any(buf);
        if read == 0
            && let Some(error) = self.error.take()
        {
            return Err(Fault::new(Cause::Io(error), self.offset));
        }
        self.offset += read as u64;
        if self.is_too_long() {
            return Err(Fault::new(Cause::TooLong, self.max_file_len));
        }
        self.report_progress();
        Ok(read)
    }

    /// Fills as much of `buf` as possible in steps of `step` bytes, and returns how much that is. What stopped it is
    /// found again by the next [`read`](Input::read), for which the bytes must be returned.
    pub(super) fn fill(&mut self, buf: &mut [u8], step: usize) -> usize {
        let mut filled = 0;
        while let Some(free) = buf.get_mut(filled..).filter(|free| !free.is_empty() && !self.is_too_long()) {
            let length = free.len().min(step);
            let read = self.read_any(free.get_mut(..length).unwrap_or_default());
            if read == 0 {
                break;
            }
            filled += read;
            self.offset += read as u64;
            if !self.is_too_long() {
                self.report_progress();
            }
        }
        filled
    }

    /// Takes the last bytes back that were read.
    pub(super) fn put_back(&mut self, mut bytes: Vec<u8>) {
        self.offset = self.offset.saturating_sub(bytes.len() as u64);
        // Before returned bytes that were not read again.
        let at = usize::try_from(self.returned.position()).unwrap_or(usize::MAX);
        bytes.extend_from_slice(self.returned.get_ref().get(at..).unwrap_or_default());
        self.returned = Cursor::new(bytes);
    }

    fn is_too_long(&self) -> bool {
        self.offset > self.max_file_len
    }

    /// Reports each number of bytes once.
    fn report_progress(&mut self) {
        if let Some(report) = self.progress.as_ref().filter(|_| self.offset >= self.reported) {
            self.reported = self.offset;
            report(self.offset);
        }
    }

    /// Reads some bytes; 0 at the end of the file and at an error, which is kept.
    fn read_any(&mut self, buf: &mut [u8]) -> usize {
        // Reading from memory does not fail.
        let returned = self.returned.read(buf).unwrap_or(0);
        if returned > 0 || self.is_over {
            return returned;
        }
        loop {
            match self.reader.read(buf) {
                Ok(0) => {}
                Ok(read) => return read.min(buf.len()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // A decompressor reports a truncated file this way.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.is_cut = true,
                Err(error) => self.error = Some(error),
            }
            self.is_over = true;
            return 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_bytes_are_read_again_before_the_error() {
        /// Returns an error after some bytes.
        struct Failing(Cursor<Vec<u8>>);
        impl Read for Failing {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                match self.0.read(buf)? {
                    0 => Err(io::Error::other("the disk is gone")),
                    read => Ok(read),
                }
            }
        }
        let mut input = Input::new(Failing(Cursor::new(b"0123456789".to_vec())), u64::MAX, None);
        let mut buf = [0; 16];
        assert_eq!((input.fill(&mut buf, 3), input.offset()), (10, 10));
        input.put_back(buf[2..10].to_vec());
        assert_eq!((input.read(&mut buf[..1]).unwrap(), buf[0], input.offset()), (1, b'2', 3));
        input.put_back(b"2".to_vec());
        assert_eq!((input.read(&mut buf).unwrap(), &buf[..8]), (8, b"23456789".as_slice()));
        let fault = input.read(&mut buf).unwrap_err();
        assert!(matches!(fault.cause, Cause::Io(_)) && fault.at == 10, "{fault:?}");
    }

    #[test]
    fn reader_is_not_read_again_after_its_end() {
        /// Ends after each byte, as a terminal may.
        struct Terminal(u8);
        impl Read for Terminal {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                Ok(usize::from(self.0 % 2))
            }
        }
        let mut input = Input::new(Terminal(0), u64::MAX, None);
        let reads = [(); 4].map(|()| input.read(&mut [0; 4]).unwrap());
        assert_eq!(reads, [1, 0, 0, 0]);
    }

    #[test]
    fn length_limit_is_found_again_after_a_return() {
        let mut input = Input::new(b"0123456789".as_slice(), 4, None);
        let mut buf = [0; 16];
        assert_eq!(input.fill(&mut buf, 3), 6);
        input.put_back(buf[1..6].to_vec());
        assert_eq!(input.read(&mut buf[..2]).unwrap(), 2);
        let fault = input.read(&mut buf).unwrap_err();
        assert!(matches!(fault.cause, Cause::TooLong) && fault.at == 4, "{fault:?}");
    }
}

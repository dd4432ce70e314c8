//! Frames: the parts of a segment file, each with a checksum.
//!
//! A frame begins on a multiple of 32 bytes: its magic and kind, the length of its body, its number in the file, the segment's
//! number, and the CRC-32 of all of these and of the body. Zeros fill the last 32 bytes.

use crate::encoding::{Encoded, encoded};
use crc32fast::Hasher;
use kineto_base::fallible::{List, attempt};
use std::io::{self, Read, Write};

/// The size of a head, and the unit in which frames are placed.
pub(super) const UNIT: usize = 32;

const MAGIC: [u8; 4] = *b"KFRM";

/// The kind of a frame; the numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameKind(u32);

impl FrameKind {
    /// The facts about the trace, and its metadata.
    pub(super) const INFO: FrameKind = FrameKind(1);
    /// The conversion of ticks to time.
    pub(super) const CLOCK: FrameKind = FrameKind(2);
    /// What the host's records refer to: callsites, lanes, windows.
    pub(super) const HOST: FrameKind = FrameKind(3);
    /// The records of a chunk, or one that outlived its chunk.
    pub(super) const RECORDS: FrameKind = FrameKind(4);
    /// A payload that no chunk could hold.
    pub(super) const LARGE_PAYLOAD: FrameKind = FrameKind(5);
    /// Records that the program pushed: a builder; then pieces of it.
    pub(super) const PUSHED: FrameKind = FrameKind(6);
    pub(super) const PUSHED_PIECE: FrameKind = FrameKind(7);
    /// A collector's report and tables; then its names, and blocks of its records.
    pub(super) const COLLECTION: FrameKind = FrameKind(8);
    pub(super) const NAMES: FrameKind = FrameKind(9);
    pub(super) const BLOCK: FrameKind = FrameKind(10);
    /// The file is complete.
    pub(super) const END: FrameKind = FrameKind(11);
}

/// The head of a frame.
struct FrameHead {
    kind: u32,
    length: u64,
    sequence: u64,
    segment: u32,
    checksum: u32,
}

encoded! {
    FrameHead { kind, length, sequence, segment, checksum }
}

impl FrameHead {
    /// The part in front of the checksum.
    const CHECKED: usize = UNIT - 4;

    fn to_bytes(&self) -> List<u8> {
        let mut bytes = List::new();
        bytes.extend(MAGIC);
        self.encode(&mut bytes);
        bytes
    }

    /// Reads a head; `None` if the bytes do not begin with the magic.
    fn from_bytes(bytes: &[u8]) -> Option<FrameHead> {
        FrameHead::decode(&mut bytes.strip_prefix(&MAGIC)?)
    }
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut checksum = Hasher::new();
    checksum.update(head.get(..FrameHead::CHECKED).unwrap_or_default());
    checksum.update(body);
    checksum.finalize()
}

/// Writes frames. Its buffer holds one at a time.
#[derive(Debug)]
pub(super) struct FrameWriter<W> {
    out: W,
    buffer: List<u8>,
    segment: u32,
    sequence: u64,
}

impl<W: Write> FrameWriter<W> {
    pub(super) fn new(out: W, segment: u32) -> FrameWriter<W> {
        FrameWriter { out, buffer: List::new(), segment, sequence: 0 }
    }

    /// Writes a frame with the body that `body` appends.
    pub(super) fn write_frame(&mut self, kind: FrameKind, body: impl FnOnce(&mut List<u8>)) -> io::Result<()> {
        let (segment, sequence, buffer) = (self.segment, self.sequence, &mut self.buffer);
        attempt(|| {
            buffer.clear();
            buffer.resize(UNIT, 0);
            body(buffer);
            if let Some((place, body)) = buffer.split_first_chunk_mut::<UNIT>() {
                let mut head = FrameHead { kind: kind.0, length: body.len() as u64, sequence, segment, checksum: 0 };
                head.checksum = checksum(&head.to_bytes(), body);
                place.copy_from_slice(&head.to_bytes());
            }
            buffer.resize(buffer.len().next_multiple_of(UNIT), 0);
        })?;
        self.out.write_all(&self.buffer)?;
        self.sequence += 1;
        Ok(())
    }
}

/// Reads frames, and skips what is damaged.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    file: R,
    /// What was read of the file; what lies before `at` is done with.
    buffer: Vec<u8>,
    at: usize,
    has_ended: bool,
    segment: u32,
    /// The number of the next frame.
    sequence: u64,
    /// The bytes that were read, and those that were checked in vain.
    read: u64,
    checked_in_vain: u64,
    pub(super) lost: LostFrames,
}

/// What could not be read of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LostFrames {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

/// A hostile file may consist of heads, each of which claims the rest of the file. So many times its size is checked in all.
const CHECKS_IN_VAIN: u64 = 16;

impl<R: Read> FrameReader<R> {
    pub(super) fn new(file: R, segment: u32) -> FrameReader<R> {
        FrameReader {
            file,
            buffer: Vec::new(),
            at: 0,
            has_ended: false,
            segment,
            sequence: 0,
            read: 0,
            checked_in_vain: 0,
            lost: LostFrames::default(),
        }
    }

    /// Returns the kind and the body of the next intact frame; `None` at the end of the file.
    pub(super) fn next_frame(&mut self) -> io::Result<Option<(FrameKind, &[u8])>> {
        loop {
            let available = self.fill_buffer(UNIT as u64)?;
            if available < UNIT {
                self.lost.bytes += available as u64;
                self.at += available;
                return Ok(None);
            }
            if let Some((kind, length)) = self.check_frame()? {
                let from = self.at + UNIT;
                self.at = from + length.next_multiple_of(UNIT);
                return Ok(Some((FrameKind(kind), self.buffer.get(from..from + length).unwrap_or_default())));
            }
            self.at += UNIT;
            self.lost.bytes += UNIT as u64;
        }
    }

    /// Checks the frame at hand; returns its kind and length if it is intact.
    fn check_frame(&mut self) -> io::Result<Option<(u32, usize)>> {
        let Some(head) = self.left().get(..UNIT).and_then(FrameHead::from_bytes) else { return Ok(None) };
        let length =
            head.length.checked_next_multiple_of(UNIT as u64).and_then(|padded| padded.checked_add(UNIT as u64));
        let is_ours = head.segment == self.segment && head.sequence >= self.sequence;
        let Some(length) =
            length.filter(|_| is_ours && self.checked_in_vain <= self.read.saturating_mul(CHECKS_IN_VAIN))
        else {
            return Ok(None);
        };
        self.fill_buffer(length)?;
        let body = usize::try_from(head.length).ok().and_then(|length| self.left().get(UNIT..)?.get(..length));
        let Some(body) = body else { return Ok(None) };
        // A fuzzer does not find checksums.
        if checksum(self.left(), body) != head.checksum && !cfg!(fuzzing) {
            self.checked_in_vain += head.length;
            return Ok(None);
        }
        let length = body.len();
        self.lost.frames += head.sequence - self.sequence;
        self.sequence = head.sequence.saturating_add(1);
        Ok(Some((head.kind, length)))
    }

    fn left(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Reads until so many bytes are at hand, or the file ends; returns how many are.
    fn fill_buffer(&mut self, wanted: u64) -> io::Result<usize> {
        const AT_ONCE: u64 = 1 << 16;
        let missing = wanted.saturating_sub(self.left().len() as u64);
        if missing > 0 && !self.has_ended {
            self.buffer.drain(..self.at.min(self.buffer.len()));
            self.at = 0;
            // The buffer grows with the bytes of the file, whatever a head claims.
            let wanted = missing.max(AT_ONCE);
            let read = self.file.by_ref().take(wanted).read_to_end(&mut self.buffer)? as u64;
            self.read += read;
            self.has_ended = read < wanted;
        }
        Ok(self.left().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bodies: &[&[u8]]) -> Vec<u8> {
        let mut frames = FrameWriter::new(Vec::new(), 7);
        for body in bodies {
            frames.write_frame(FrameKind::RECORDS, |out| out.extend(body.iter().copied())).unwrap();
        }
        frames.out
    }

    fn read(file: &[u8]) -> (Vec<Vec<u8>>, LostFrames) {
        let mut frames = FrameReader::new(file, 7);
        let mut bodies = Vec::new();
        while let Some((kind, body)) = frames.next_frame().unwrap() {
            assert_eq!(kind, FrameKind::RECORDS);
            bodies.push(body.to_vec());
        }
        (bodies, frames.lost)
    }

    const BODIES: [&[u8]; 4] = [b"first", &[9; 32], &[0; 1000], b""];

    #[test]
    fn frames_are_read_as_written() {
        let file = file(&BODIES);
        assert_eq!(file.len() % UNIT, 0);
        assert_eq!(read(&file), (BODIES.map(<[u8]>::to_vec).to_vec(), LostFrames::default()));
    }

    #[test]
    fn damaged_frame_is_skipped_and_counted() {
        let intact = file(&BODIES);
        // In the head, the length and the body of the second frame, which takes the bytes 64 to 128.
        for at in [64, 72, 73, 79, 80, 88, 95, 96, 127] {
            let mut damaged = intact.clone();
            damaged[at] ^= 0x10;
            let others = [BODIES[0], BODIES[2], BODIES[3]].map(<[u8]>::to_vec).to_vec();
            assert_eq!(read(&damaged), (others, LostFrames { frames: 1, bytes: 64 }), "byte {at}");
        }
    }

    #[test]
    fn cut_file_is_read_as_far_as_it_goes() {
        let intact = file(&BODIES);
        for length in 0..intact.len() {
            let (bodies, lost) = read(&intact[..length]);
            assert!(bodies.iter().zip(BODIES).all(|(body, expected)| body == expected), "{length}");
            let used = bodies.iter().map(|body| UNIT + body.len().next_multiple_of(UNIT)).sum::<usize>();
            assert_eq!((lost.frames, lost.bytes), (0, length.saturating_sub(used) as u64), "{length}");
        }
    }

    #[test]
    fn frames_of_other_segments_are_not_read() {
        let mut other = FrameWriter::new(Vec::new(), 8);
        other.write_frame(FrameKind::RECORDS, |out| out.push(1)).unwrap();
        assert_eq!(read(&other.out), (vec![], LostFrames { frames: 0, bytes: 64 }));
    }

    #[test]
    fn false_heads_are_read_in_bounded_time() {
        let rest = 1 << 20;
        let head = FrameHead { kind: 1, length: rest, sequence: 0, segment: 7, checksum: 0 };
        let hostile = head.to_bytes().repeat(1 << 16);
        let mut frames = FrameReader::new(hostile.as_slice(), 7);
        assert!(frames.next_frame().unwrap().is_none());
        assert!(frames.checked_in_vain <= (CHECKS_IN_VAIN + 1) * hostile.len() as u64);
        assert_eq!(frames.lost.bytes, hostile.len() as u64);
    }
}

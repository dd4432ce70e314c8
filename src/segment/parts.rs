//! The parts of a segment, one after the other, each with a checksum.
//!
//! A segment is a sealed live file: its parts are those that lie in slots there ([`SlotUse`]), in the order in which a reader needs them. It begins
//! with its header. Each part begins on a multiple of 64 bytes with its entry of the directory: what it holds, four words about that, the
//! length of its body, its number in the file with that of the segment, and a magic with the CRC-32 of all of these and of the body. Zeros fill
//! the last 64 bytes.

use super::SegmentFault;
use crate::live::{ENTRY_WORDS, FileHeader, JournalKind, SlotUse, encode_entry};
use crc32fast::Hasher;
use kineto_base::fallible::{List, attempt};
use std::io::{self, Read, Write};

/// The size of a head, and the unit in which parts are placed.
pub(super) const UNIT: usize = ENTRY_WORDS * 8;

/// The words of a segment's header, of which the last is its checksum.
pub(super) const SEALED_WORDS: usize = 16;

const MAGIC: u32 = u32::from_le_bytes(*b"KPRT");

/// A part of the journal ends when it has so many bytes.
const JOURNAL_BYTES: usize = 1 << 15;

/// What a part holds, and its body.
#[derive(Debug)]
pub(super) struct Part<'p> {
    /// The number of a [`SlotUse`].
    pub(super) holds: u64,
    /// What its entry of the directory says about it.
    pub(super) words: [u64; 4],
    pub(super) body: &'p [u8],
}

/// The head of a part.
struct PartHead {
    holds: u64,
    words: [u64; 4],
    length: u64,
    sequence: u32,
    segment: u32,
}

impl PartHead {
    /// Returns the bytes of the head of that body.
    fn to_bytes(&self, body: &[u8]) -> [u8; UNIT] {
        let [a, b, c, d] = self.words;
        let number = u64::from(self.segment) << 32 | u64::from(self.sequence);
        let mut bytes = [0; UNIT];
        let (checked, sealed) = bytes.split_at_mut(UNIT - 8);
        let words = [self.holds, a, b, c, d, self.length, number];
        checked.iter_mut().zip(words.into_iter().flat_map(u64::to_le_bytes)).for_each(|(place, byte)| *place = byte);
        let seal = u64::from(MAGIC) << 32 | u64::from(checksum(&[checked, body]));
        sealed.iter_mut().zip(seal.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        bytes
    }

    /// Reads a head; `None` if it does not end with the magic. Also returns the checksum.
    fn from_bytes(bytes: &[u8]) -> Option<(PartHead, u32)> {
        let (words, _) = bytes.as_chunks();
        let [holds, a, b, c, d, length, number, seal] = *words.first_chunk::<ENTRY_WORDS>()?;
        let halves = |word: [u8; 8]| {
            let word = u64::from_le_bytes(word);
            u32::try_from(word >> 32).ok().zip(u32::try_from(word & u64::from(u32::MAX)).ok())
        };
        let (segment, sequence) = halves(number)?;
        let (_, checksum) = halves(seal).filter(|(magic, _)| *magic == MAGIC)?;
        let [holds, a, b, c, d, length] = [holds, a, b, c, d, length].map(u64::from_le_bytes);
        Some((PartHead { holds, words: [a, b, c, d], length, sequence, segment }, checksum))
    }
}

fn checksum(pieces: &[&[u8]]) -> u32 {
    let mut checksum = Hasher::new();
    pieces.iter().for_each(|piece| checksum.update(piece));
    checksum.finalize()
}

/// Returns the bytes of a segment's header.
fn header_bytes(header: &FileHeader) -> [u8; SEALED_WORDS * 8] {
    let mut bytes = [0; SEALED_WORDS * 8];
    bytes.iter_mut().zip(header.words().into_iter().flat_map(u64::to_le_bytes)).for_each(|(place, byte)| *place = byte);
    let (checked, sealed) = bytes.split_at_mut((SEALED_WORDS - 1) * 8);
    let seal = u64::from(checksum(&[checked]));
    sealed.iter_mut().zip(seal.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    bytes
}

/// Reads the header of a segment or a live file from the first words of the file.
pub(super) fn read_header(bytes: &[u8]) -> Result<FileHeader, SegmentFault> {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let header = match FileHeader::read(&words) {
        Some(Ok(header)) => header,
        Some(Err(version)) => return Err(SegmentFault::OtherVersion(version)),
        None if FileHeader::MAGIC.iter().any(|magic| bytes.starts_with(magic)) => {
            return Err(SegmentFault::DamagedHeader);
        }
        None => return Err(SegmentFault::NoSegment),
    };
    // A live file changes while its process lives. A fuzzer does not find checksums.
    let is_intact = header.slots > 0 || cfg!(fuzzing) || bytes.starts_with(&header_bytes(&header));
    if is_intact { Ok(header) } else { Err(SegmentFault::DamagedHeader) }
}

/// Writes a segment. Its buffer holds one part at a time.
#[derive(Debug)]
pub(super) struct PartWriter<W> {
    out: W,
    /// The place of a head, and a body. Between calls: of a part of the journal that has not ended, or empty.
    buffer: List<u8>,
    segment: u32,
    sequence: u32,
}

impl<W: Write> PartWriter<W> {
    /// Begins a segment.
    pub(super) fn begin(mut out: W, header: &FileHeader) -> io::Result<PartWriter<W>> {
        out.write_all(&header_bytes(header))?;
        Ok(PartWriter { out, buffer: List::new(), segment: header.number, sequence: 0 })
    }

    /// Adds an entry to the journal.
    pub(super) fn put(
        &mut self,
        kind: JournalKind,
        key: (u64, u64),
        value: impl FnOnce(&mut List<u8>),
    ) -> io::Result<()> {
        let buffer = &mut self.buffer;
        let fits = attempt(|| {
            buffer.resize(buffer.len().max(UNIT), 0);
            encode_entry(buffer, kind, key, Some(value))
        })?;
        if !fits {
            return Err(io::Error::other("a table of the trace has 4 GiB or more"));
        }
        if buffer.len() > JOURNAL_BYTES { self.end_journal() } else { Ok(()) }
    }

    /// Ends a part of the journal.
    pub(super) fn end_journal(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.write_part(SlotUse::Journal, [0; 4]) }
    }

    /// Writes a part whose body `body` appends.
    pub(super) fn put_part(
        &mut self,
        holds: SlotUse,
        words: [u64; 4],
        body: impl FnOnce(&mut List<u8>),
    ) -> io::Result<()> {
        self.end_journal()?;
        let buffer = &mut self.buffer;
        attempt(|| {
            buffer.resize(UNIT, 0);
            body(buffer);
        })?;
        self.write_part(holds, words)
    }

    /// Writes the buffer.
    fn write_part(&mut self, holds: SlotUse, words: [u64; 4]) -> io::Result<()> {
        if let Some((place, body)) = self.buffer.split_first_chunk_mut::<UNIT>() {
            let (length, sequence, segment) = (body.len() as u64, self.sequence, self.segment);
            *place = PartHead { holds: holds as u64, words, length, sequence, segment }.to_bytes(body);
        }
        let buffer = &mut self.buffer;
        attempt(|| buffer.resize(buffer.len().next_multiple_of(UNIT), 0))?;
        self.out.write_all(buffer)?;
        buffer.clear();
        self.sequence += 1;
        Ok(())
    }

    /// Ends the segment.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.put_part(SlotUse::End, [0; 4], |_| {})
    }
}

/// Reads parts, and skips what is damaged.
#[derive(Debug)]
pub(super) struct PartReader<R> {
    file: R,
    /// What was read of the file; what lies before `at` is done with.
    buffer: Vec<u8>,
    at: usize,
    has_ended: bool,
    segment: u32,
    /// The number of the next part.
    sequence: u32,
    /// The bytes that were read, and those that were checked in vain.
    read: u64,
    checked_in_vain: u64,
    pub(super) lost: LostParts,
}

/// What could not be read of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LostParts {
    pub(super) parts: u64,
    pub(super) bytes: u64,
}

/// A hostile file may consist of heads, each of which claims the rest of the file. So many times its size is checked in all.
const CHECKS_IN_VAIN: u64 = 16;

impl<R: Read> PartReader<R> {
    /// Reads what follows the header of that segment.
    pub(super) fn new(file: R, segment: u32) -> PartReader<R> {
        PartReader {
            file,
            buffer: Vec::new(),
            at: 0,
            has_ended: false,
            segment,
            sequence: 0,
            read: 0,
            checked_in_vain: 0,
            lost: LostParts::default(),
        }
    }

    /// Returns the next intact part; `None` at the end of the file.
    pub(super) fn next_part(&mut self) -> io::Result<Option<Part<'_>>> {
        loop {
            let available = self.fill_buffer(UNIT as u64)?;
            if available < UNIT {
                self.lost.bytes += available as u64;
                self.at += available;
                return Ok(None);
            }
            if let Some((PartHead { holds, words, .. }, length)) = self.check_part()? {
                let from = self.at + UNIT;
                self.at = from + length.next_multiple_of(UNIT);
                let body = self.buffer.get(from..from + length).unwrap_or_default();
                return Ok(Some(Part { holds, words, body }));
            }
            self.at += UNIT;
            self.lost.bytes += UNIT as u64;
        }
    }

    /// Checks the part at hand; returns its head and length if it is intact.
    fn check_part(&mut self) -> io::Result<Option<(PartHead, usize)>> {
        let Some((head, expected)) = self.left().get(..UNIT).and_then(PartHead::from_bytes) else { return Ok(None) };
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
        let checked = self.left().get(..UNIT - 8).unwrap_or_default();
        // A fuzzer does not find checksums.
        if checksum(&[checked, body]) != expected && !cfg!(fuzzing) {
            self.checked_in_vain += head.length;
            return Ok(None);
        }
        let length = body.len();
        self.lost.parts += u64::from(head.sequence - self.sequence);
        self.sequence = head.sequence.saturating_add(1);
        Ok(Some((head, length)))
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
    use crate::time::Timestamp;

    fn header(number: u32) -> FileHeader {
        FileHeader::of_process(0, number, Timestamp::from_nanos(5))
    }

    /// Returns a file without its header.
    fn file(segment: u32, bodies: &[&[u8]]) -> Vec<u8> {
        let mut parts = PartWriter::begin(Vec::new(), &header(segment)).unwrap();
        for body in bodies {
            parts.put_part(SlotUse::Chunk, [1, 2, 3, 4], |out| out.extend(body.iter().copied())).unwrap();
        }
        parts.out.split_off(SEALED_WORDS * 8)
    }

    fn read(file: &[u8]) -> (Vec<Vec<u8>>, LostParts) {
        let mut parts = PartReader::new(file, 7);
        let mut bodies = Vec::new();
        while let Some(part) = parts.next_part().unwrap() {
            assert_eq!((part.holds, part.words), (SlotUse::Chunk as u64, [1, 2, 3, 4]));
            bodies.push(part.body.to_vec());
        }
        (bodies, parts.lost)
    }

    #[test]
    fn header_survives_and_a_damaged_one_is_refused() {
        let header = header(3);
        let mut file = header_bytes(&header);
        assert_eq!(read_header(&file).unwrap(), header);
        for at in 0..file.len() {
            let mut damaged = file;
            damaged[at] ^= 1;
            assert!(read_header(&damaged).is_err(), "byte {at}");
            assert!(read_header(&file[..at]).is_err(), "cut to {at}");
        }
        file[8] = 9;
        assert!(matches!(read_header(&file), Err(SegmentFault::OtherVersion(9))));
    }

    const BODIES: [&[u8]; 4] = [b"first", &[9; 32], &[0; 1000], b""];

    #[test]
    fn parts_are_read_as_written() {
        let file = file(7, &BODIES);
        assert_eq!(file.len() % UNIT, 0);
        assert_eq!(read(&file), (BODIES.map(<[u8]>::to_vec).to_vec(), LostParts::default()));
    }

    #[test]
    fn damaged_part_is_skipped_and_counted() {
        let intact = file(7, &BODIES);
        // In the head, the length and the body of the second part, which takes the bytes 128 to 256.
        for at in [128, 136, 168, 175, 176, 184, 191, 192, 223] {
            let mut damaged = intact.clone();
            damaged[at] ^= 0x10;
            let others = [BODIES[0], BODIES[2], BODIES[3]].map(<[u8]>::to_vec).to_vec();
            assert_eq!(read(&damaged), (others, LostParts { parts: 1, bytes: 128 }), "byte {at}");
        }
    }

    #[test]
    fn cut_file_is_read_as_far_as_it_goes() {
        let intact = file(7, &BODIES);
        for length in 0..intact.len() {
            let (bodies, lost) = read(&intact[..length]);
            assert!(bodies.iter().zip(BODIES).all(|(body, expected)| body == expected), "{length}");
            let used = bodies.iter().map(|body| UNIT + body.len().next_multiple_of(UNIT)).sum::<usize>();
            assert_eq!((lost.parts, lost.bytes), (0, length.saturating_sub(used) as u64), "{length}");
        }
    }

    #[test]
    fn parts_of_other_segments_are_not_read() {
        assert_eq!(read(&file(8, &[&[1]])), (vec![], LostParts { parts: 0, bytes: 128 }));
    }

    #[test]
    fn false_heads_are_read_in_bounded_time() {
        let head = PartHead { holds: 1, words: [0; 4], length: 1 << 20, sequence: 0, segment: 7 };
        let hostile = head.to_bytes(b"another body").repeat(1 << 15);
        let mut parts = PartReader::new(hostile.as_slice(), 7);
        assert!(parts.next_part().unwrap().is_none());
        assert!(parts.checked_in_vain <= (CHECKS_IN_VAIN + 1) * hostile.len() as u64);
        assert_eq!(parts.lost.bytes, hostile.len() as u64);
    }
}

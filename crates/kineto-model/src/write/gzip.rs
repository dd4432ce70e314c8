//! A gzip stream in front of a writer, compressed on several threads.
//!
//! The text is cut into blocks. Each is compressed separately and ends at a whole byte, as after zlib's sync flush. In their order
//! they are one gzip member, since not every reader accepts several. The result does not depend on the number of threads.

use kineto_base::channel::{Receiver, Sender, bounded, channel};
use kineto_base::os::thread::spawn_scoped;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{TryRecvError, TrySendError};
use std::thread::{self, Scope};

use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress};

use super::file::{self, FileContent};

/// The bytes of text that are compressed at a time. A smaller block takes less memory and compresses worse.
const BLOCK: usize = 1 << 19;

/// The most threads, in addition to the calling one.
const MOST_THREADS: usize = 3;

/// The most blocks in memory; beyond it the calling thread waits for the oldest.
const MOST_BLOCKS: usize = 8;

/// The approximate memory use of a compressor, in bytes.
const MEMORY: usize = 1 << 20;

/// Gzip magic, deflate, no flags, no time, no hint of the level, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// An empty last block of deflate, with fixed codes.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Compresses written data into one gzip member.
///
/// A block goes to a thread of `scope` that has fewer than two; if there is none, the calling thread compresses it, so that it
/// rarely waits for a thread, even on a busy machine. [`finish`](Gzip::finish) writes the end; without it the file is truncated.
pub(super) struct Gzip<'scope, 'env, 'w> {
    out: &'w mut dyn FileContent,
    scope: &'scope Scope<'scope, 'env>,
    level: u32,
    /// The block that is being filled.
    block: TextBlock,
    /// The blocks that are not written yet, in their order.
    unwritten: VecDeque<Unwritten>,
    spare: Vec<TextBlock>,
    /// The checksum and the length modulo 2^32 of the text before them.
    crc: Hasher,
    length: u32,
    workers: Vec<Worker>,
    /// How many threads may run; known once there is a whole block.
    most_workers: Option<usize>,
    /// That of the calling thread.
    compressor: Compressor,
}

/// A block that is not written yet.
enum Unwritten {
    Compressed(TextBlock),
    /// The next one of that thread.
    OfWorker(usize),
}

impl FileContent for Gzip<'_, '_, '_> {
    fn file_bytes(&self) -> u64 {
        self.out.file_bytes()
    }
}

impl<'scope, 'env, 'w> Gzip<'scope, 'env, 'w> {
    /// `level`: 0 (stored) to 9 (smallest); higher values count as 9.
    pub(super) fn new(
        out: &'w mut dyn FileContent,
        level: u32,
        scope: &'scope Scope<'scope, 'env>,
    ) -> io::Result<Self> {
        let (block, compressor) = (TextBlock::new()?, Compressor::new(level)?);
        out.write_all(&HEADER)?;
        let (unwritten, spare, workers, most_workers) = Default::default();
        Ok(Gzip {
            out,
            scope,
            level,
            block,
            unwritten,
            spare,
            crc: Hasher::new(),
            length: 0,
            workers,
            most_workers,
            compressor,
        })
    }

    /// Writes the end of the stream and flushes the writer.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.compressor.compress(&mut self.block)?;
        self.write_blocks(0)?;
        let last = std::mem::take(&mut self.block);
        self.write_block(last)?;
        self.out.write_all(&LAST_BLOCK)?;
        self.out.write_all(&self.crc.clone().finalize().to_le_bytes())?;
        self.out.write_all(&self.length.to_le_bytes())?;
        self.out.flush()
    }

    /// Compresses a full block, and writes those before it that are compressed.
    fn end_block(&mut self) -> io::Result<()> {
        let spare = self.spare.pop().map_or_else(TextBlock::new, Ok)?;
        let block = std::mem::replace(&mut self.block, spare);
        let unwritten = match self.give_to_worker(block) {
            Ok(worker) => Unwritten::OfWorker(worker),
            Err(mut block) => {
                self.compressor.compress(&mut block)?;
                Unwritten::Compressed(block)
            }
        };
        self.unwritten.push_back(unwritten);
        self.write_blocks(MOST_BLOCKS - 1)
    }

    /// Gives a block to a thread, of which it returns the index; returns the block if there is none.
    fn give_to_worker(&mut self, mut block: TextBlock) -> Result<usize, TextBlock> {
        for (index, worker) in self.workers.iter().enumerate() {
            match worker.blocks.try_send(block) {
                Ok(()) => return Ok(index),
                Err(TrySendError::Full(full) | TrySendError::Disconnected(full)) => block = full,
            }
        }
        let index = self.workers.len();
        let other_cores = || thread::available_parallelism().map_or(0, |cores| cores.get() - 1).min(MOST_THREADS);
        if index == *self.most_workers.get_or_insert_with(other_cores) {
            return Err(block);
        }
        let Ok(worker) = Worker::start(self.scope, self.level) else {
            self.most_workers = Some(index);
            return Err(block);
        };
        let sent = worker.blocks.try_send(block);
        self.workers.push(worker);
        sent.map(|()| index).map_err(|(TrySendError::Full(block) | TrySendError::Disconnected(block))| block)
    }

    /// Writes blocks in their order until one is not compressed. If more than `most` are left, waits for it.
    fn write_blocks(&mut self, most: usize) -> io::Result<()> {
        while let Some(next) = self.unwritten.pop_front() {
            let must_wait = self.unwritten.len() >= most;
            let block = match next {
                Unwritten::Compressed(block) => block,
                Unwritten::OfWorker(index) => {
                    match self.workers.get(index).map(|worker| worker.next_block(must_wait)) {
                        Some(Some(block)) => block?,
                        _ => {
                            self.unwritten.push_front(next);
                            return Ok(());
                        }
                    }
                }
            };
            self.write_block(block)?;
        }
        Ok(())
    }

    fn write_block(&mut self, mut block: TextBlock) -> io::Result<()> {
        self.out.write_all(&block.packed)?;
        self.crc.combine(&block.crc);
        #[expect(clippy::cast_possible_truncation, reason = "a block is short")]
        let length = block.text.len() as u32;
        self.length = self.length.wrapping_add(length);
        block.text.clear();
        self.spare.push(block);
        Ok(())
    }
}

impl Write for Gzip<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK - self.block.text.len());
        self.block.text.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        if self.block.text.len() == BLOCK {
            self.end_block()?;
        }
        Ok(taken)
    }

    /// Does nothing: a partial stream is useless, and a flush would enlarge it.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Gzip<'_, '_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gzip").finish_non_exhaustive()
    }
}

/// A part of the text, and what it is compressed to.
#[derive(Default)]
struct TextBlock {
    text: Vec<u8>,
    packed: Vec<u8>,
    /// The checksum of the text.
    crc: Hasher,
}

impl TextBlock {
    fn new() -> io::Result<TextBlock> {
        let mut text = Vec::new();
        text.try_reserve_exact(BLOCK)?;
        Ok(TextBlock { text, ..TextBlock::default() })
    }
}

/// A thread that compresses; it ends when this is dropped.
struct Worker {
    blocks: Sender<TextBlock>,
    compressed: Receiver<io::Result<TextBlock>>,
}

impl Worker {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, level: u32) -> io::Result<Worker> {
        let mut compressor = Compressor::new(level)?;
        let (blocks, to_compress) = bounded::<TextBlock>(1);
        let (done, compressed) = channel();
        let compress_all = move || {
            let _protected = file::begin_protection();
            for mut block in to_compress {
                // If writing has failed, the receiver is gone.
                let _ = done.send(compressor.compress(&mut block).map(|()| block));
            }
        };
        spawn_scoped(scope, "kineto-gzip", Box::new(compress_all))?;
        Ok(Worker { blocks, compressed })
    }

    /// Returns the next compressed block, or `None` if there is none yet.
    fn next_block(&self, must_wait: bool) -> Option<io::Result<TextBlock>> {
        let received = if must_wait {
            self.compressed.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            self.compressed.try_recv()
        };
        match received {
            Ok(block) => Some(block),
            Err(TryRecvError::Empty) => None,
            // So does the end of the scope.
            Err(TryRecvError::Disconnected) => Some(Err(io::Error::other("a thread that compresses has panicked"))),
        }
    }
}

/// Compresses blocks, or stores them without zlib.
struct Compressor(Option<Compress>);

impl Compressor {
    /// Level 6 takes four times as long as level 1 for a third less. In an unoptimized build zlib is twenty times slower still, so
    /// level 1, the default, stores the text there.
    fn new(level: u32) -> io::Result<Compressor> {
        if level == 0 || cfg!(debug_assertions) && level == 1 {
            return Ok(Compressor(None));
        }
        // zlib cannot report a failed allocation.
        Vec::<u8>::new().try_reserve_exact(MEMORY)?;
        Ok(Compressor(Some(Compress::new(Compression::new(level.min(9)), false))))
    }

    fn compress(&mut self, block: &mut TextBlock) -> io::Result<()> {
        let TextBlock { text, packed, crc } = block;
        *crc = Hasher::new();
        crc.update(text);
        packed.clear();
        match &mut self.0 {
            Some(zlib) => compress_by_zlib(zlib, text, packed),
            None => store(text, packed),
        }
    }
}

/// Stores a text in deflate's blocks: no last block, no compression, the length and its complement.
fn store(text: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
    const MOST: usize = u16::MAX as usize;

    packed.try_reserve(text.len() + 5 * text.len().div_ceil(MOST))?;
    for part in text.chunks(MOST) {
        #[expect(clippy::cast_possible_truncation, reason = "a part is no longer than MOST")]
        let length = part.len() as u16;
        packed.push(0);
        packed.extend_from_slice(&length.to_le_bytes());
        packed.extend_from_slice(&(!length).to_le_bytes());
        packed.extend_from_slice(part);
    }
    Ok(())
}

fn compress_by_zlib(zlib: &mut Compress, text: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
    /// JSON compresses to a sixth or less.
    const STEP: usize = BLOCK / 4;

    zlib.reset();
    let mut rest = text;
    // The block is complete once zlib leaves space unused. No text gives nothing, whatever space an earlier block has left.
    while !rest.is_empty() || packed.len() == packed.capacity() && !packed.is_empty() {
        packed.try_reserve(STEP)?;
        let before = zlib.total_in();
        zlib.compress_vec(rest, packed, FlushCompress::Sync)?;
        let taken = usize::try_from(zlib.total_in() - before).unwrap_or(rest.len());
        rest = rest.get(taken..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::file::CountedFile;
    use std::io::Read;

    use super::*;

    /// Compresses a text on that many threads.
    fn pack(text: &[u8], level: u32, threads: usize) -> Vec<u8> {
        let mut packed = Vec::new();
        let mut file = CountedFile::new(&mut packed);
        thread::scope(|scope| {
            let mut gzip = Gzip::new(&mut file, level, scope).unwrap();
            gzip.most_workers = Some(threads);
            for piece in text.chunks(70_001) {
                gzip.write_all(piece).unwrap();
                gzip.flush().unwrap();
            }
            gzip.finish().unwrap();
        });
        packed
    }

    /// The plain decoder, unlike `MultiGzDecoder`, stops after one member.
    fn unpack(packed: &[u8]) -> Vec<u8> {
        let mut decoder = flate2::read::GzDecoder::new(packed);
        let mut unpacked = Vec::new();
        decoder.read_to_end(&mut unpacked).unwrap();
        assert!(decoder.into_inner().is_empty());
        unpacked
    }

    fn rows(length: usize) -> Vec<u8> {
        let rows = (0..).flat_map(|n| format!("{{\"ph\":\"X\",\"ts\":{n}.{:03}}},\n", n % 997).into_bytes());
        rows.take(length).collect()
    }

    #[test]
    fn every_level_round_trips_as_one_member() {
        let text = rows(BLOCK + BLOCK / 4);
        for level in (0..=9).chain([77]) {
            let packed = pack(&text, level, 2);
            assert_eq!(packed.len() < text.len() / 3, level > u32::from(cfg!(debug_assertions)));
            assert!(unpack(&packed) == text, "level {level}");
        }
    }

    #[test]
    fn any_length_gives_the_same_bytes_on_any_threads() {
        let text = rows(2 * MOST_BLOCKS * BLOCK + 5);
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, text.len()] {
            let text = &text[..length];
            let packed = pack(text, 1, 0);
            assert!(unpack(&packed) == text, "{length}");
            assert!([1, 2, MOST_THREADS].iter().all(|threads| pack(text, 1, *threads) == packed), "{length}");
        }
    }

    /// The last block is empty if the text ends with a whole one; its space depends on the threads.
    #[test]
    fn no_text_gives_no_bytes_whatever_the_space() {
        for (level, space) in [(1, 0), (1, 99), (2, 0), (2, 99)] {
            let mut block = TextBlock { packed: Vec::with_capacity(space), ..TextBlock::default() };
            Compressor::new(level).unwrap().compress(&mut block).unwrap();
            assert!(block.packed.is_empty(), "level {level}, space {space}");
        }
    }

    #[test]
    fn text_that_does_not_compress_is_kept() {
        let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(n | 1).to_le_bytes();
        let text: Vec<u8> = (0..BLOCK as u64 / 4).flat_map(random).collect();
        for level in 0..3 {
            let packed = pack(&text, level, 1);
            assert!(packed.len() > text.len() / 2 && unpack(&packed) == text, "level {level}");
        }
    }

    #[test]
    fn failed_write_is_returned_after_a_few_blocks() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for threads in [0, MOST_THREADS] {
            let (mut blocks, mut full) = (0, Full(HEADER.len()));
            let mut file = CountedFile::new(&mut full);
            let written = thread::scope(|scope| {
                let mut gzip = Gzip::new(&mut file, 1, scope)?;
                gzip.most_workers = Some(threads);
                let text = rows(BLOCK);
                loop {
                    gzip.write_all(&text)?;
                    blocks += 1;
                }
            });
            let written: io::Result<()> = written;
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert!(blocks < MOST_BLOCKS, "{blocks} with {threads} threads");
        }
    }

    #[test]
    fn panic_of_the_program_ends_the_threads() {
        let panicked = std::panic::catch_unwind(|| {
            let mut sink = io::sink();
            let mut file = CountedFile::new(&mut sink);
            thread::scope(|scope| {
                let mut gzip = Gzip::new(&mut file, 1, scope).unwrap();
                gzip.most_workers = Some(MOST_THREADS);
                gzip.write_all(&rows(3 * BLOCK)).unwrap();
                panic!("in the walk");
            })
        });
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in the walk"));
    }
}

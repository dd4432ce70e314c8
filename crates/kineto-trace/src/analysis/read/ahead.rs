//! Decompresses a file on another thread while its events are parsed.

use kineto_base::channel::{Receiver, Sender, bounded, channel};
use kineto_base::os::thread::spawn;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// The size of a block in bytes.
const BLOCK: usize = 256 << 10;

/// How many blocks may be ahead.
const BLOCKS: usize = 8;

/// A reader whose bytes another thread has read ahead.
struct ReadAhead {
    blocks: Receiver<io::Result<Block>>,
    /// Returns blocks to the thread.
    used: Sender<Vec<u8>>,
    block: Block,
    at: usize,
}

/// Some bytes, at the beginning of a buffer.
#[derive(Default)]
struct Block {
    buffer: Vec<u8>,
    length: usize,
}

/// Returns a reader of the same bytes. A thread reads ahead for it, unless none can be started.
pub(super) fn read_ahead(reader: Box<dyn Read + Send>) -> Box<dyn Read> {
    let (ready, blocks) = bounded(BLOCKS);
    let (used, free) = channel();
    // Comes back if the thread cannot be started.
    let shared = Arc::new(Mutex::new(Some(reader)));
    let taken = shared.clone();
    let take =
        |reader: &Mutex<Option<Box<dyn Read + Send>>>| reader.lock().unwrap_or_else(PoisonError::into_inner).take();
    let work = move || {
        if let Some(reader) = take(&taken) {
            send_blocks(reader, &ready, &free);
        }
    };
    match spawn("kineto-read", Box::new(work)) {
        Ok(_) => Box::new(ReadAhead { blocks, used, block: Block::default(), at: 0 }),
        Err(_) => take(&shared).map_or(Box::new(io::empty()), |reader| reader as Box<dyn Read>),
    }
}

/// Reads until the end, an error, or until the receiver is gone.
fn send_blocks(mut reader: Box<dyn Read + Send>, ready: &Sender<io::Result<Block>>, free: &Receiver<Vec<u8>>) {
    loop {
        let mut buffer = free.try_recv().unwrap_or_default();
        buffer.resize(BLOCK, 0);
        let read = match reader.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read,
        };
        let is_last = !matches!(read, Ok(1..));
        let sent = ready.send(read.map(|length| Block { buffer, length }));
        if is_last || sent.is_err() {
            return;
        }
    }
}

impl Read for ReadAhead {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.length {
            // The thread's end is the file's.
            let next = self.blocks.recv().unwrap_or(Ok(Block::default()))?;
            // The thread may have ended.
            let _ = self.used.send(std::mem::replace(&mut self.block, next).buffer);
            self.at = 0;
        }
        let read = self.block.buffer.get(self.at..self.block.length).unwrap_or_default().read(room)?;
        self.at += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Is interrupted before each read, and returns an error after some bytes.
    struct Failing {
        bytes: io::Cursor<Vec<u8>>,
        was_interrupted: bool,
    }

    impl Read for Failing {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.was_interrupted = !self.was_interrupted;
            if self.was_interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match self.bytes.read(room)? {
                0 => Err(io::Error::other("the disk is gone")),
                read => Ok(read),
            }
        }
    }

    #[test]
    fn bytes_arrive_in_order_and_errors_behind_them() {
        let bytes: Vec<u8> = (0..=250).cycle().take(BLOCK * 20 + 7).collect();
        let mut all = Vec::new();
        read_ahead(Box::new(io::Cursor::new(bytes.clone()))).read_to_end(&mut all).unwrap();
        assert!(all == bytes);
        let mut part = Vec::new();
        let failing = Failing { bytes: io::Cursor::new(bytes.clone()), was_interrupted: false };
        let failed = read_ahead(Box::new(failing)).read_to_end(&mut part);
        assert_eq!(failed.unwrap_err().to_string(), "the disk is gone");
        assert!(part == bytes);
    }

    #[test]
    fn thread_ends_when_the_reader_is_dropped() {
        let (sender, ended) = channel();
        /// Endless; reports its drop.
        struct Endless(Sender<()>);
        impl Read for Endless {
            fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
                Ok(room.len())
            }
        }
        impl Drop for Endless {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let mut reader = read_ahead(Box::new(Endless(sender)));
        reader.read_exact(&mut [0; 10]).unwrap();
        drop(reader);
        ended.recv().unwrap();
    }
}

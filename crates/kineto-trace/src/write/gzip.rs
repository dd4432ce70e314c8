//! A gzip stream in front of a writer.

use std::fmt;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::fast_gzip::FastGzip;

/// Compresses written data into one gzip member, since not every reader accepts several.
///
/// [`finish`](Gzip::finish) writes the end; without it the file is truncated.
pub(crate) enum Gzip<W: Write> {
    Zlib(GzEncoder<W>),
    Fast(FastGzip<W>),
}

/// The approximate memory use of an encoder, in bytes.
const MEMORY: usize = 1 << 20;

impl<W: Write> Gzip<W> {
    /// `level`: 0 (stored) to 9 (smallest); higher values count as 9. Level 1 takes about eight times as long as
    /// formatting; level 6 takes four times as long again for a third less. In an unoptimized build zlib is twenty
    /// times slower still, so [`FastGzip`] does level 1, the default, there.
    pub(crate) fn new(out: W, level: u32) -> io::Result<Self> {
        // zlib cannot report a failed allocation.
        Vec::<u8>::new().try_reserve_exact(MEMORY)?;
        if cfg!(debug_assertions) && level == 1 {
            return FastGzip::new(out).map(Gzip::Fast);
        }
        Ok(Gzip::Zlib(GzEncoder::new(out, Compression::new(level.min(9)))))
    }

    /// Writes the end of the stream, flushes the writer and returns it.
    pub(crate) fn finish(self) -> io::Result<W> {
        let mut out = match self {
            Gzip::Zlib(encoder) => encoder.finish()?,
            Gzip::Fast(encoder) => encoder.finish()?,
        };
        out.flush()?;
        Ok(out)
    }
}

impl<W: Write> Write for Gzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Gzip::Zlib(encoder) => encoder.write(bytes),
            Gzip::Fast(encoder) => encoder.write(bytes),
        }
    }

    /// Does nothing: a partial stream is useless, and a flush would enlarge it.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> fmt::Debug for Gzip<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gzip").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn every_level_round_trips_as_one_member() {
        let text = "{\"ph\":\"X\"},\n".repeat(100_000);
        for level in [0, 1, 6, 9, 77] {
            let mut gzip = Gzip::new(Vec::new(), level).unwrap();
            for piece in text.as_bytes().chunks(70_001) {
                gzip.write_all(piece).unwrap();
                gzip.flush().unwrap();
            }
            let packed = gzip.finish().unwrap();
            assert_eq!(packed.len() < text.len() / 10, level > 0);
            // The plain decoder, unlike `MultiGzDecoder`, stops after one member.
            let mut decoder = flate2::read::GzDecoder::new(packed.as_slice());
            let mut unpacked = String::new();
            decoder.read_to_string(&mut unpacked).unwrap();
            assert_eq!(unpacked, text);
            assert!(decoder.into_inner().is_empty());
        }
    }
}

//! A deflate encoder for unoptimized builds, in which zlib takes twenty times as long as formatting the JSON.
//!
//! It checks one candidate for a match, the last position of the same four bytes, and uses deflate's fixed codes. On
//! the rows of a trace, the result is as small as zlib's at level 1. The loops index arrays with plain numbers, because
//! in such a build every iterator and every small function of `std` is a call.

use std::io;

/// Compresses blocks of text, which share nothing.
pub(super) struct FastDeflate {
    /// By hash: its last position in the block.
    last_seen: Vec<u32>,
}

/// Collects bits into bytes, lowest bit first.
struct BitWriter<'b> {
    bytes: &'b mut Vec<u8>,
    /// The number of bytes used.
    at: usize,
    pending: u64,
    count: u32,
}

const HASHES: usize = 1 << 13;
/// Deflate's limits for a match.
const MAX_DISTANCE: usize = 1 << 15;
const MAX_LENGTH: usize = 258;
/// The number of bytes compared with one call.
const STRIDE: usize = 32;

const END_OF_BLOCK: usize = 256;

/// The code and its length in bits of each literal and length symbol.
static CODES: [(u16, u8); 288] = fixed_codes();

impl FastDeflate {
    pub(super) fn new() -> io::Result<FastDeflate> {
        let mut last_seen = Vec::new();
        last_seen.try_reserve_exact(HASHES)?;
        last_seen.resize(HASHES, 0);
        Ok(FastDeflate { last_seen })
    }

    /// Compresses a text of less than 4 GiB into whole bytes, which replace those of `packed`.
    pub(super) fn compress(&mut self, text: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
        // A byte of text takes at most nine bits.
        let most = text.len() + text.len() / 8 + 32;
        packed.clear();
        packed.try_reserve(most)?;
        packed.resize(most, 0);
        self.last_seen.fill(u32::MAX);
        let mut bits = BitWriter { bytes: packed, at: 0, pending: 0, count: 0 };
        // Not the last block, fixed codes.
        bits.put_bits(1 << 1, 3);
        compress_text(text, &mut self.last_seen, &mut bits);
        bits.align();
        Ok(())
    }
}

#[expect(clippy::indexing_slicing, reason = "indices are below the lengths they are compared with; `get` is a call")]
fn compress_text(text: &[u8], last_seen: &mut [u32], bits: &mut BitWriter<'_>) {
    let mut at = 0;
    while at < text.len() {
        let (mut distance, mut length) = (0, 0);
        if at + 4 <= text.len() {
            let word = usize::from(text[at])
                ^ (usize::from(text[at + 1]) << 3)
                ^ (usize::from(text[at + 2]) << 6)
                ^ (usize::from(text[at + 3]) << 9);
            let hash = (word ^ (word >> 7)) % HASHES;
            let before = last_seen[hash] as usize;
            #[expect(clippy::cast_possible_truncation, reason = "a block is short")]
            {
                last_seen[hash] = at as u32;
            }
            if before < at && at - before <= MAX_DISTANCE {
                distance = at - before;
                let limit = if text.len() - at < MAX_LENGTH { text.len() - at } else { MAX_LENGTH };
                length = common_prefix(&text[before..before + limit], &text[at..at + limit]);
            }
        }
        if length < 4 {
            bits.put_symbol(usize::from(text[at]));
            at += 1;
        } else {
            put_match(bits, length, distance);
            at += length;
        }
        bits.flush_bytes();
    }
    bits.put_symbol(END_OF_BLOCK);
}

/// Returns the length of the common prefix of two texts of equal length.
#[expect(clippy::indexing_slicing, reason = "indices are below the length they are compared with; `get` is a call")]
fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let mut length = 0;
    while length + STRIDE <= left.len() && left[length..length + STRIDE] == right[length..length + STRIDE] {
        length += STRIDE;
    }
    while length < left.len() && left[length] == right[length] {
        length += 1;
    }
    length
}

/// Writes a match, as in RFC 1951, section 3.2.5.
fn put_match(bits: &mut BitWriter<'_>, length: usize, distance: usize) {
    let rest = length - 3;
    if length == MAX_LENGTH {
        bits.put_symbol(285);
    } else if rest < 8 {
        bits.put_symbol(257 + rest);
    } else {
        let extra = rest.ilog2() - 2;
        bits.put_symbol(257 + 4 * extra as usize + (rest >> extra));
        bits.put_bits((rest & ((1 << extra) - 1)) as u64, extra);
    }
    let rest = distance - 1;
    let extra = if rest < 4 { 0 } else { rest.ilog2() - 1 };
    let symbol = 2 * extra as usize + (rest >> extra);
    #[expect(clippy::cast_possible_truncation, reason = "below 30")]
    let code = (symbol as u8).reverse_bits() >> 3;
    bits.put_bits(u64::from(code), 5);
    bits.put_bits((rest & ((1 << extra) - 1)) as u64, extra);
}

impl BitWriter<'_> {
    fn put_bits(&mut self, bits: u64, count: u32) {
        self.pending |= bits << self.count;
        self.count += count;
    }

    #[expect(clippy::indexing_slicing, reason = "there is a code for each symbol; `get` is a call")]
    fn put_symbol(&mut self, symbol: usize) {
        let (code, length) = CODES[symbol];
        self.put_bits(u64::from(code), u32::from(length));
    }

    /// Moves whole bytes out of the pending bits.
    #[expect(clippy::indexing_slicing, reason = "there is room for them; `get` is a call")]
    #[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
    fn flush_bytes(&mut self) {
        while self.count >= 8 {
            self.bytes[self.at] = self.pending as u8;
            self.at += 1;
            self.pending >>= 8;
            self.count -= 8;
        }
    }

    /// Ends at a whole byte, by an empty stored block.
    fn align(&mut self) {
        self.put_bits(0, 3);
        self.count = self.count.next_multiple_of(8);
        self.flush_bytes();
        self.put_bits(0xffff_0000, 32);
        self.flush_bytes();
        self.bytes.truncate(self.at);
    }
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "evaluated by the compiler")]
const fn fixed_codes() -> [(u16, u8); 288] {
    let mut codes = [(0, 0); 288];
    let mut symbol = 0;
    while symbol < codes.len() {
        let (code, length) = match symbol {
            0..144 => (0x30 + symbol, 8),
            144..256 => (0x190 + symbol - 144, 9),
            256..280 => (symbol - 256, 7),
            _ => (0xc0 + symbol - 280, 8),
        };
        // Codes are stored with their highest bit first.
        codes[symbol] = ((code as u16).reverse_bits() >> (16 - length), length);
        symbol += 1;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read as _;

    fn round_trip_length(text: &[u8]) -> usize {
        let mut packed = b"replaced".to_vec();
        FastDeflate::new().unwrap().compress(text, &mut packed).unwrap();
        // An empty last block.
        packed.extend([3, 0]);
        let mut unpacked = Vec::new();
        flate2::read::DeflateDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == text, "{} bytes", text.len());
        packed.len()
    }

    #[test]
    fn fast_deflate_keeps_text_of_any_length() {
        let rows: String = (0..9000).map(|n| format!("{{\"ph\":\"X\",\"ts\":{n}.{:03}}},\n", n % 997)).collect();
        for length in [0, 1, 3, 4, 8, 257, 258, 259, 1000, rows.len()] {
            round_trip_length(&rows.as_bytes()[..length]);
        }
        assert!(round_trip_length(rows.as_bytes()) < rows.len() / 2);
    }

    #[test]
    fn fast_deflate_keeps_matches_up_to_the_limits() {
        for distance in [1, 2, 4, 5, 8, 9, 100, 4096, 4097, MAX_DISTANCE - 1, MAX_DISTANCE, MAX_DISTANCE + 1] {
            for length in [4, 10, 11, 12, 18, 19, 131, 257, 258, 259, 600] {
                // Bytes above 143 have longer codes.
                let mut text: Vec<u8> =
                    (0..distance).map(|at| ((at * at / 7 + at) % 251).try_into().unwrap()).collect();
                for at in 0..length {
                    text.push(text[at % distance]);
                }
                round_trip_length(&text);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn fast_deflate_keeps_any_bytes(parts in prop::collection::vec(any::<u8>(), 0..2000), repeat in 1..300_usize) {
            round_trip_length(&parts.repeat(repeat));
        }
    }
}

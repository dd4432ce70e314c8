//! The CRC-32 of gzip and of segment files.
//!
//! The loop indexes arrays with plain numbers, because in an unoptimized build every iterator is a call.

/// A checksum of all bytes so far.
#[derive(Clone, Copy, Debug)]
pub struct Crc32(u32);

/// The polynomial; the highest bit is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLES: [[u32; 256]; 8] = make_tables();

impl Default for Crc32 {
    fn default() -> Crc32 {
        Crc32(!0)
    }
}

impl Crc32 {
    /// Adds bytes, eight at a time.
    #[expect(clippy::indexing_slicing, reason = "bytes index tables of 256; `get` is a call")]
    pub fn update(&mut self, bytes: &[u8]) {
        let mut crc = self.0;
        let mut at = 0;
        while at + 8 <= bytes.len() {
            crc = TABLES[7][((crc ^ bytes[at] as u32) & 255) as usize]
                ^ TABLES[6][(((crc >> 8) ^ bytes[at + 1] as u32) & 255) as usize]
                ^ TABLES[5][(((crc >> 16) ^ bytes[at + 2] as u32) & 255) as usize]
                ^ TABLES[4][((crc >> 24) ^ bytes[at + 3] as u32) as usize]
                ^ TABLES[3][bytes[at + 4] as usize]
                ^ TABLES[2][bytes[at + 5] as usize]
                ^ TABLES[1][bytes[at + 6] as usize]
                ^ TABLES[0][bytes[at + 7] as usize];
            at += 8;
        }
        while at < bytes.len() {
            crc = TABLES[0][((crc ^ bytes[at] as u32) & 255) as usize] ^ (crc >> 8);
            at += 1;
        }
        self.0 = crc;
    }

    /// Returns the checksum.
    pub fn value(self) -> u32 {
        !self.0
    }
}

/// Returns the checksum of two texts from those of each, of which the second has that length.
#[cfg(feature = "gzip")]
pub(crate) fn checksum_of_both(first: u32, second: u32, mut length: usize) -> u32 {
    // The first is multiplied by x^8 for each byte of the second.
    let (mut product, mut power) = (first, 1 << (31 - 8));
    while length > 0 {
        if length & 1 == 1 {
            product = multiply(product, power);
        }
        power = multiply(power, power);
        length >>= 1;
    }
    product ^ second
}

/// Multiplies two polynomials modulo the [`POLYNOMIAL`].
#[cfg(feature = "gzip")]
fn multiply(left: u32, right: u32) -> u32 {
    let (mut product, mut shifted) = (0, right);
    for bit in (0..32).rev() {
        if left >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted = times_x(shifted);
    }
    product
}

/// Multiplies a polynomial by x.
const fn times_x(crc: u32) -> u32 {
    if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 }
}

/// `tables[n][byte]` is the checksum of the byte and `n` zeros.
#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "evaluated by the compiler")]
const fn make_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = times_x(crc);
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = (before >> 8) ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_the_standard_one() {
        let mut crc = Crc32::default();
        assert_eq!(crc.value(), 0);
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.value(), 0xCBF4_3926);
    }

    #[test]
    #[cfg(feature = "gzip")]
    fn checksum_of_two_texts_is_that_of_both() {
        let text: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(n) >> 7).to_le_bytes()[0]).collect();
        let checksum = |text: &[u8]| {
            let mut crc = Crc32::default();
            crc.update(text);
            crc.value()
        };
        for at in [0, 1, 7, 50_000, text.len()] {
            let (first, second) = text.split_at(at);
            let both = checksum_of_both(checksum(first), checksum(second), second.len());
            assert_eq!(both, checksum(&text));
        }
    }
}

//! The checksum of a gzip stream, CRC-32.

/// The polynomial; the highest bit is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLES: [[u32; 256]; 8] = tables_by_zeros();

/// Returns the checksum of a text. In an unoptimized build, that of zlib takes fifty times as long as this one.
pub(super) fn of_text(text: &[u8]) -> u32 {
    if cfg!(debug_assertions) {
        return of_text_by_tables(text);
    }
    let mut crc = flate2::Crc::new();
    crc.update(text);
    crc.sum()
}

/// Returns the checksum of two texts, of which the second has that length.
pub(super) fn of_both(first: u32, second: u32, mut length: usize) -> u32 {
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

/// Computes the checksum of a text, eight bytes at a time.
///
/// The loops index arrays with plain numbers, because in an unoptimized build every iterator and every small function of `std` is a
/// call.
#[expect(clippy::indexing_slicing, reason = "bytes index tables of 256; `get` is a call")]
fn of_text_by_tables(text: &[u8]) -> u32 {
    let mut crc = !0;
    let mut at = 0;
    while at + 8 <= text.len() {
        crc = TABLES[7][((crc ^ text[at] as u32) & 255) as usize]
            ^ TABLES[6][(((crc >> 8) ^ text[at + 1] as u32) & 255) as usize]
            ^ TABLES[5][(((crc >> 16) ^ text[at + 2] as u32) & 255) as usize]
            ^ TABLES[4][((crc >> 24) ^ text[at + 3] as u32) as usize]
            ^ TABLES[3][text[at + 4] as usize]
            ^ TABLES[2][text[at + 5] as usize]
            ^ TABLES[1][text[at + 6] as usize]
            ^ TABLES[0][text[at + 7] as usize];
        at += 8;
    }
    while at < text.len() {
        crc = TABLES[0][((crc ^ text[at] as u32) & 255) as usize] ^ (crc >> 8);
        at += 1;
    }
    !crc
}

/// `TABLES[n][byte]` is the checksum of the byte and `n` zeros.
#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "evaluated by the compiler")]
const fn tables_by_zeros() -> [[u32; 256]; 8] {
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
    fn checksum_is_that_of_the_standard() {
        assert_eq!(of_text(b"123456789"), 0xcbf4_3926);
        assert_eq!((of_text(b""), of_text_by_tables(b"123456789")), (0, 0xcbf4_3926));
    }

    #[test]
    fn checksum_of_two_texts_is_that_of_both() {
        let text: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(n) >> 7).to_le_bytes()[0]).collect();
        for at in [0, 1, 7, 50_000, text.len()] {
            let (first, second) = text.split_at(at);
            assert_eq!(of_both(of_text(first), of_text(second), second.len()), of_text(&text));
        }
    }
}

//! A protobuf encoder.

use super::fields::Field;
use kineto_base::fallible::may_grow;

/// An encoded message.
///
/// A field is left out if memory for it is short; the enclosing write then fails.
#[derive(Debug, Default)]
pub(super) struct Encoder(Vec<u8>);

/// The wire type of a field.
#[derive(Clone, Copy, Debug)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

impl Encoder {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends an unsigned integer.
    #[inline]
    pub(super) fn put_uint(&mut self, field: Field, value: u64) {
        self.put_tag(field, WireType::Varint);
        self.put_varint(value);
    }

    /// Appends a signed integer: its two's complement, without zigzag.
    #[inline]
    pub(super) fn put_int(&mut self, field: Field, value: i64) {
        self.put_uint(field, value.cast_unsigned());
    }

    /// Appends a number of eight bytes.
    pub(super) fn put_fixed64(&mut self, field: Field, value: u64) {
        self.put_tag(field, WireType::Fixed64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a float.
    pub(super) fn put_double(&mut self, field: Field, value: f64) {
        self.put_fixed64(field, value.to_bits());
    }

    /// Appends a string or an encoded message.
    #[inline]
    pub(super) fn put_bytes(&mut self, field: Field, bytes: &[u8]) {
        if !may_grow(self.0.try_reserve(bytes.len() + 2 * MAX_VARINT)) {
            return;
        }
        self.put_tag(field, WireType::Bytes);
        self.put_varint(length_of(bytes.len()));
        self.0.extend_from_slice(bytes);
    }

    /// Appends a message, which `fill` encodes.
    #[inline]
    pub(super) fn put_message<T>(&mut self, field: Field, fill: impl FnOnce(&mut Encoder) -> T) -> T {
        self.put_tag(field, WireType::Bytes);
        let at = self.0.len();
        // A short length fits into this byte; a longer one shifts the message.
        self.0.push(0);
        let result = fill(self);
        let length = self.0.len() - at - 1;
        match (u8::try_from(length), self.0.get_mut(at)) {
            (Ok(short @ ..0x80), Some(place)) => *place = short,
            _ => self.insert_length(at, length),
        }
        result
    }

    #[cold]
    fn insert_length(&mut self, at: usize, length: usize) {
        let mut encoded = Encoder::default();
        encoded.put_varint(length_of(length));
        if may_grow(self.0.try_reserve(encoded.len())) {
            self.0.splice(at..=at, encoded.0);
        } else {
            self.0.truncate(at + 1);
        }
    }

    fn put_tag(&mut self, field: Field, wire: WireType) {
        #[expect(clippy::as_conversions, reason = "the number of a variant")]
        self.put_varint(u64::from(field << 3 | wire as u32));
    }

    #[inline]
    fn put_varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }
}

/// The maximum length of a varint in bytes.
const MAX_VARINT: usize = 10;

fn length_of(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_in_protobuf() {
        let mut encoder = Encoder::default();
        encoder.put_uint(1, 150);
        assert_eq!(encoder.as_bytes(), [0x08, 0x96, 0x01]);
        encoder.clear();
        encoder.put_bytes(2, b"testing");
        assert_eq!(encoder.as_bytes(), b"\x12\x07testing");
        encoder.clear();
        encoder.put_int(87, -1);
        assert_eq!(encoder.as_bytes(), [&[0xb8, 0x05][..], &[0xff; 9], &[1]].concat());
        encoder.clear();
        encoder.put_double(5, 1.0);
        assert_eq!(encoder.as_bytes(), [0x29, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    }

    #[test]
    fn messages_of_any_length_keep_their_content() {
        for length in [0, 1, 126, 127, 128, 20_000, 3_000_000] {
            let mut nested = Encoder::default();
            nested.put_message(3, |outer| outer.put_message(4, |inner| inner.put_bytes(5, &vec![b'a'; length])));
            let mut flat = Encoder::default();
            let mut parts = [Encoder::default(), Encoder::default()];
            parts[0].put_bytes(5, &vec![b'a'; length]);
            let inner = std::mem::take(&mut parts[0]);
            parts[1].put_bytes(4, inner.as_bytes());
            flat.put_bytes(3, parts[1].as_bytes());
            assert_eq!(nested.as_bytes(), flat.as_bytes());
        }
    }
}

//! A protobuf reader over a message in memory.

use crate::analysis::fault::{Cause, Fault};
use crate::analysis::json_reader::Result;
use crate::write::perfetto::fields::Field;

/// A message, whose fields are read one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProtoMessage<'a> {
    rest: &'a [u8],
    /// The offset of `rest` in the file.
    at: u64,
}

/// The value of a field, in one of the encodings of protobuf.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProtoValue<'a> {
    /// A number, whose bits its type interprets.
    Number(u64),
    /// A string or a message.
    Bytes(ProtoMessage<'a>),
}

/// A number of up to ten bytes at the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Varint {
    /// The number, and how many bytes it takes.
    Whole(u64, usize),
    /// The text ends inside it.
    Cut,
    /// It exceeds 64 bits.
    TooLong,
}

impl Varint {
    #[inline]
    pub(super) fn read_from(bytes: &[u8]) -> Varint {
        let mut value = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let low = u64::from(byte & 0x7f);
            match at {
                9 if *byte > 1 => return Varint::TooLong,
                _ => value |= low << (7 * at),
            }
            if byte & 0x80 == 0 {
                return Varint::Whole(value, at + 1);
            }
        }
        Varint::Cut
    }
}

impl<'a> ProtoMessage<'a> {
    /// `at` is the offset of `bytes` in the file.
    pub(super) fn new(bytes: &'a [u8], at: u64) -> ProtoMessage<'a> {
        ProtoMessage { rest: bytes, at }
    }

    /// Returns the unread bytes.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the offset in the file of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// Reads the next field; `None` at the end of the message.
    #[inline]
    pub(super) fn next_field(&mut self) -> Result<Option<(Field, ProtoValue<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let start = *self;
        let tag = self.read_varint()?;
        let value = match tag & 7 {
            0 => ProtoValue::Number(self.read_varint()?),
            1 => ProtoValue::Number(u64::from_le_bytes(self.read_array()?)),
            2 => {
                let length = self.read_varint()?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let at = self.at;
                ProtoValue::Bytes(ProtoMessage::new(self.take_bytes(length)?, at))
            }
            5 => ProtoValue::Number(u64::from(u32::from_le_bytes(self.read_array()?))),
            _ => return start.expected_error("a known wire type"),
        };
        match Field::try_from(tag >> 3) {
            Ok(field @ 1..) => Ok(Some((field, value))),
            _ => start.expected_error("a field number"),
        }
    }

    /// Returns an error at the next byte.
    pub(super) fn expected_error<T>(&self, expected: &'static str) -> Result<T> {
        Err(Fault::new(Cause::NotProtobuf(expected), self.at))
    }

    #[inline]
    fn read_varint(&mut self) -> Result<u64> {
        match Varint::read_from(self.rest) {
            Varint::Whole(value, length) => {
                self.take_bytes(length)?;
                Ok(value)
            }
            Varint::Cut => self.expected_error("a whole number before the message's end"),
            Varint::TooLong => self.expected_error("a number of 64 bits"),
        }
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let start = *self;
        let bytes = self.take_bytes(N)?;
        bytes.first_chunk().copied().map_or_else(|| start.expected_error("a number"), Ok)
    }

    #[inline]
    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return self.expected_error("a field that ends inside its message");
        };
        self.rest = rest;
        self.at = self.at.saturating_add(count as u64);
        Ok(taken)
    }
}

impl<'a> ProtoValue<'a> {
    /// Returns a number; 0 for a field of another encoding, which protobuf treats as unknown.
    pub(super) fn number(&self) -> u64 {
        match self {
            ProtoValue::Number(number) => *number,
            ProtoValue::Bytes(_) => 0,
        }
    }

    /// Returns a signed number: two's complement, without zigzag.
    pub(super) fn signed(&self) -> i64 {
        self.number().cast_signed()
    }

    pub(super) fn double(&self) -> f64 {
        f64::from_bits(self.number())
    }

    /// Returns a message; empty for a field of another encoding.
    pub(super) fn message(&self) -> ProtoMessage<'a> {
        match self {
            ProtoValue::Number(_) => ProtoMessage::new(&[], 0),
            ProtoValue::Bytes(message) => *message,
        }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.message().bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(bytes: &[u8]) -> std::result::Result<Vec<(Field, String)>, (u64, String)> {
        let (mut message, mut found) = (ProtoMessage::new(bytes, 100), Vec::new());
        loop {
            match message.next_field() {
                Ok(Some((field, ProtoValue::Number(number)))) => found.push((field, number.to_string())),
                Ok(Some((field, value))) => found.push((field, String::from_utf8_lossy(value.bytes()).into_owned())),
                Ok(None) => return Ok(found),
                Err(fault) => return Err((fault.at, format!("{:?}", fault.cause))),
            }
        }
    }

    #[test]
    fn all_encodings_are_read() {
        let negative = [&[0xb8, 0x05][..], &[0xff; 9], &[1]].concat();
        let bytes = [b"\x08\x96\x01\x12\x07testing\x1d\x01\0\0\0\x21\x02\0\0\0\0\0\0\0".as_slice(), &negative].concat();
        let found = fields(&bytes).unwrap();
        let text = |field: Field, text: &str| (field, text.to_owned());
        let minus_one = u64::MAX.to_string();
        assert_eq!(found, [text(1, "150"), text(2, "testing"), text(3, "1"), text(4, "2"), text(87, &minus_one)]);
    }

    #[test]
    fn broken_fields_are_reported_with_their_position() {
        for (bytes, at, expected) in [
            (b"\x08\x01\x08".as_slice(), 103, "a whole number"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 101, "64 bits"),
            (b"\x08\x01\x0b", 102, "wire type"),
            (b"\x00\x01", 100, "a field number"),
            (b"\x12\x05abc", 102, "ends inside its message"),
            (b"\x21\x02\0\0", 101, "ends inside its message"),
            (b"\xf8\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01", 100, "a field number"),
        ] {
            let (found, cause) = fields(bytes).unwrap_err();
            assert!(found == at && cause.contains(expected), "{bytes:?}: {found} {cause}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = fields(&bytes);
        }
    }
}

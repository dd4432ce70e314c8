//! Values as bytes: the tables of a segment file.
//!
//! The bytes do not describe themselves. A type lists its fields once, by [`encoded!`], and both directions follow that list.
//! Bytes from a file are untrusted: a length is never believed, and a list grows with the items that were read.

use crate::fallible::{List, may_grow};
use crate::time::{Ticks, Timestamp};
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::Arc;

/// A value that has a form in bytes.
///
/// Lists grow fallibly, so callers encode and decode within [`attempt`](crate::fallible::attempt).
pub trait Encoded: Sized {
    /// Appends the value.
    fn encode(&self, out: &mut List<u8>);

    /// Takes a value off the front; `None` if the bytes are no such value.
    fn decode(from: &mut &[u8]) -> Option<Self>;
}

/// Encodes structs as their fields, in this order; fields after `+` are not encoded and get these values.
#[macro_export]
macro_rules! encoded {
    ($($type:ty { $($field:tt),* $(,)? } $(+ { $($other:ident: $value:expr),* $(,)? })?)*) => {$(
        impl $crate::encoding::Encoded for $type {
            fn encode(&self, out: &mut $crate::fallible::List<u8>) {
                $($crate::encoding::Encoded::encode(&self.$field, out);)*
            }

            fn decode(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::encoding::Encoded::decode(from)?,)* $($($other: $value,)*)? })
            }
        }
    )*};
}

/// Encodes values as those of another type.
#[macro_export]
macro_rules! encoded_as {
    ($($type:ty as $other:ty: $to:expr, $from:expr;)*) => {$(
        impl $crate::encoding::Encoded for $type {
            fn encode(&self, out: &mut $crate::fallible::List<u8>) {
                let to: fn(&$type) -> $other = $to;
                $crate::encoding::Encoded::encode(&to(self), out);
            }

            fn decode(from: &mut &[u8]) -> Option<Self> {
                let of: fn($other) -> Option<$type> = $from;
                of(<$other as $crate::encoding::Encoded>::decode(from)?)
            }
        }
    )*};
}

pub use crate::{encoded, encoded_as};

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Encoded for $number {
            fn encode(&self, out: &mut List<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn decode(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 u128 i16 i32 i64 f64 }

encoded_as! {
    bool as u8: |value| u8::from(*value), |byte| (byte < 2).then_some(byte == 1);
    usize as u64: |value| *value as u64, |value| usize::try_from(value).ok();
    Ticks as u64: |ticks| ticks.0, |ticks| Some(Ticks(ticks));
    Timestamp as u64: |at| at.as_nanos(), |ns| Some(Timestamp::from_nanos(ns));
    PathBuf as String: |path| path.to_string_lossy().into_owned(), |text| Some(PathBuf::from(text));
}

/// Appends a text.
fn encode_text(text: &str, out: &mut List<u8>) {
    text.len().encode(out);
    out.extend(text.bytes());
}

/// Takes a text off the front.
fn decode_text<'b>(from: &mut &'b [u8]) -> Option<&'b str> {
    let length = usize::decode(from)?;
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    str::from_utf8(text).ok()
}

macro_rules! texts {
    ($($text:ty)*) => {$(
        impl Encoded for $text {
            fn encode(&self, out: &mut List<u8>) {
                encode_text(self, out);
            }

            fn decode(from: &mut &[u8]) -> Option<Self> {
                let text = decode_text(from)?;
                let mut owned = String::new();
                may_grow(owned.try_reserve_exact(text.len())).then(|| owned.push_str(text))?;
                Some(owned.into())
            }
        }
    )*};
}

texts! { String Box<str> Arc<str> Cow<'static, str> }

/// Appends items, after their number: the form of a `Vec`.
pub fn encode_items<'i, T: Encoded + 'i>(items: impl ExactSizeIterator<Item = &'i T>, out: &mut List<u8>) {
    items.len().encode(out);
    items.for_each(|item| item.encode(out));
}

impl<T: Encoded> Encoded for Vec<T> {
    fn encode(&self, out: &mut List<u8>) {
        encode_items(self.iter(), out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let mut items = Vec::new();
        for _ in 0..u64::decode(from)? {
            let item = T::decode(from)?;
            may_grow(items.try_reserve(1)).then(|| items.push(item))?;
        }
        Some(items)
    }
}

impl<T: Encoded> Encoded for Arc<T> {
    fn encode(&self, out: &mut List<u8>) {
        T::encode(self, out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some(Arc::new(T::decode(from)?))
    }
}

impl<T: Encoded> Encoded for Arc<[T]> {
    fn encode(&self, out: &mut List<u8>) {
        encode_items(self.iter(), out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some(Vec::decode(from)?.into())
    }
}

impl<T: Encoded + Eq + Hash> Encoded for HashSet<T> {
    fn encode(&self, out: &mut List<u8>) {
        encode_items(self.iter(), out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some(Vec::decode(from)?.into_iter().collect())
    }
}

impl<T: Encoded, const N: usize> Encoded for [T; N] {
    fn encode(&self, out: &mut List<u8>) {
        encode_items(self.iter(), out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Vec::decode(from)?.try_into().ok()
    }
}

/// Appends words. They are the last part of a value: nothing says how many there are.
pub fn encode_words(words: impl Iterator<Item = u64>, out: &mut List<u8>) {
    out.extend(words.flat_map(u64::to_le_bytes));
}

/// Takes all words, as items made of them; `None` if bytes are left over.
pub fn decode_words<T, const N: usize>(from: &mut &[u8], item: impl Fn([u64; N]) -> T) -> Option<Vec<T>> {
    let (words, rest) = std::mem::take(from).as_chunks();
    let (items, odd) = words.as_chunks::<N>();
    let mut all = Vec::new();
    let fits = rest.is_empty() && odd.is_empty() && may_grow(all.try_reserve_exact(items.len()));
    fits.then(|| all.extend(items.iter().map(|words| item(words.map(u64::from_le_bytes)))))?;
    Some(all)
}

impl Encoded for () {
    fn encode(&self, _out: &mut List<u8>) {}

    fn decode(_from: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl<A: Encoded, B: Encoded> Encoded for (A, B) {
    fn encode(&self, out: &mut List<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some((A::decode(from)?, B::decode(from)?))
    }
}

impl<T: Encoded, E: Encoded> Encoded for Result<T, E> {
    fn encode(&self, out: &mut List<u8>) {
        self.is_ok().encode(out);
        match self {
            Ok(value) => value.encode(out),
            Err(error) => error.encode(out),
        }
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::decode(from)? { Ok(T::decode(from)?) } else { Err(E::decode(from)?) })
    }
}

impl<T: Encoded> Encoded for Option<T> {
    fn encode(&self, out: &mut List<u8>) {
        self.is_some().encode(out);
        if let Some(value) = &self {
            value.encode(out);
        }
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::decode(from)? { Some(T::decode(from)?) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    #[track_caller]
    fn survives<T: Encoded + PartialEq + Debug>(value: &T) {
        let mut bytes = List::new();
        value.encode(&mut bytes);
        let mut from = &*bytes;
        assert_eq!((T::decode(&mut from).as_ref(), from), (Some(value), &[][..]));
        for length in 0..bytes.len() {
            assert_eq!(T::decode(&mut &bytes[..length]), None, "{value:?} cut to {length}");
        }
    }

    #[test]
    fn values_survive_and_cut_ones_are_refused() {
        survives(&(u128::MAX, (-1_i64, f64::MIN)));
        survives(&vec![Some("text".to_owned()), None, Some(String::new())]);
        survives(&[Ok::<_, Box<str>>(true), Err("because".into())]);
        survives(&HashSet::from([1_u32, 2, 3]));
        survives(&Cow::<'static, str>::Borrowed("static"));
    }

    #[test]
    fn absurd_lengths_are_refused() {
        for length in [3, 1 << 20, u64::MAX] {
            let mut bytes = List::new();
            (length, 7_u8).encode(&mut bytes);
            assert_eq!(Vec::<u64>::decode(&mut &*bytes), None, "{length}");
            assert_eq!(String::decode(&mut &*bytes), None, "{length}");
        }
    }
}

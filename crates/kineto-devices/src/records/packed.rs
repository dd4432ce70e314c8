//! Packs the values that a record's arguments are computed from into words.

use super::names::Name;

/// A value of a fixed number of bits.
pub(crate) trait PackedValue {
    const BITS: u32;

    /// Returns the bits, without any above [`BITS`](Self::BITS).
    fn to_bits(self) -> u64;

    /// Makes a value from the lowest bits; those above are ignored.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl PackedValue for $number {
            const BITS: u32 = <$number>::BITS;

            #[inline]
            fn to_bits(self) -> u64 {
                self.into()
            }

            #[inline]
            #[expect(clippy::cast_possible_truncation, reason = "bits above are ignored")]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}

numbers! { u8 u16 u32 }

/// Defines values that convert to and from another packed value.
macro_rules! converted {
    ($($name:ty as $bits:ty: $to:expr, $from:expr;)*) => {$(
        impl PackedValue for $name {
            const BITS: u32 = <$bits>::BITS;

            #[inline]
            fn to_bits(self) -> u64 {
                let to: fn($name) -> $bits = $to;
                to(self).into()
            }

            #[inline]
            fn from_bits(bits: u64) -> Self {
                let from: fn($bits) -> $name = $from;
                from(<$bits>::from_bits(bits))
            }
        }
    )*};
}

converted! {
    i16 as u16: i16::cast_unsigned, u16::cast_signed;
    i32 as u32: i32::cast_unsigned, u32::cast_signed;
    Name as u32: |name| name.0, Name;
    MinusOne as u32: |value| value.0.wrapping_sub(1), |bits| MinusOne(bits.wrapping_add(1));
}

/// A number that is usually 1, packed as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MinusOne(pub(crate) u32);

impl PackedValue for u64 {
    const BITS: u32 = 64;

    #[inline]
    fn to_bits(self) -> u64 {
        self
    }

    #[inline]
    fn from_bits(bits: u64) -> u64 {
        bits
    }
}

impl PackedValue for bool {
    const BITS: u32 = 1;

    #[inline]
    fn to_bits(self) -> u64 {
        self.into()
    }

    #[inline]
    fn from_bits(bits: u64) -> bool {
        bits & 1 != 0
    }
}

/// One bit more, which is set if there is a value.
impl<T: PackedValue> PackedValue for Option<T> {
    const BITS: u32 = T::BITS + 1;

    #[inline]
    fn to_bits(self) -> u64 {
        self.map_or(0, |value| 1 << T::BITS | value.to_bits())
    }

    #[inline]
    fn from_bits(bits: u64) -> Option<T> {
        (bits >> T::BITS & 1 != 0).then(|| T::from_bits(bits))
    }
}

/// Defines values that are packed into words: for each its word, counted from 0, and its lowest bit in that.
///
/// Values that are rarely other than 0 belong into the last words: trailing zeros are not stored.
macro_rules! packed {
    ($($(#[$doc:meta])* $name:ident, $size:literal words {
        $($(#[$about:meta])* $field:ident: $type:ty = $word:literal $(>> $bit:literal)?,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name {
            $($(#[$about])* pub(super) $field: $type,)*
        }

        impl $name {
            #[inline]
            pub(super) fn to_words(self) -> [u64; $size] {
                let mut words = [0; $size];
                $(words[$word] |= $crate::records::packed::PackedValue::to_bits(self.$field) << (0 $(+ $bit)?);)*
                words
            }

            #[inline]
            pub(super) fn from_record(record: &$crate::RecordView<'_>) -> $name {
                $name {
                    $($field: $crate::records::packed::PackedValue::from_bits(record.word($word) >> (0 $(+ $bit)?)),)*
                }
            }
        }

        // No two values overlap, and none is cut off.
        const _: [u64; $size] = {
            let mut used = [0; $size];
            $({
                let bits = <$type as $crate::records::packed::PackedValue>::BITS + (0 $(+ $bit)?);
                assert!(bits <= 64);
                let mask = u64::MAX >> (64 - bits) & u64::MAX << (0 $(+ $bit)?);
                assert!(used[$word] & mask == 0);
                used[$word] |= mask;
            })*
            used
        };
    )*};
}

pub(crate) use packed;

/// Puts words before others, whose first words are 0.
#[inline]
pub(crate) fn prepend_words<const FIRST: usize, const ALL: usize>(
    first: [u64; FIRST],
    mut all: [u64; ALL],
) -> [u64; ALL] {
    all.iter_mut().zip(first).for_each(|(to, from)| *to |= from);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_packing() {
        fn survives<T: PackedValue + Copy + PartialEq + std::fmt::Debug>(values: &[T]) {
            for value in values {
                let bits = value.to_bits();
                assert_eq!(bits.checked_shr(T::BITS).unwrap_or(0), 0, "{value:?}");
                assert_eq!(T::from_bits(bits), *value);
                assert_eq!(T::from_bits(bits | u64::MAX.checked_shl(T::BITS).unwrap_or(0)), *value);
            }
        }
        survives(&[0, u64::MAX]);
        survives(&[0, u8::MAX]);
        survives(&[i32::MIN, -1, i32::MAX]);
        survives(&[true, false]);
        survives(&[None, Some(Name(0)), Some(Name(u32::MAX))]);
        survives(&[None, Some(-1i16), Some(i16::MIN)]);
        survives(&[MinusOne(0), MinusOne(1), MinusOne(u32::MAX)]);
        assert_eq!(MinusOne(1).to_bits(), 0);
    }
}

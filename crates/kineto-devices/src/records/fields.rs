//! Reads the fields of vendors' records from their bytes.

/// A field of a record, in this machine's byte order.
pub(crate) trait Field: Default {
    /// Reads the field at that offset; returns `None` if the record is too short.
    fn read_at(record: &[u8], at: usize) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            #[inline]
            fn read_at(record: &[u8], at: usize) -> Option<Self> {
                <[u8; size_of::<$number>()]>::read_at(record, at).map(Self::from_ne_bytes)
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 }

impl<const SIZE: usize> Field for [u8; SIZE]
where
    [u8; SIZE]: Default,
{
    #[inline]
    fn read_at(record: &[u8], at: usize) -> Option<Self> {
        record.get(at..)?.first_chunk().copied()
    }
}

/// A field that can be selected, in a library that records selected fields alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectableField {
    /// The vendor's number of the field in the records of its kind.
    pub(crate) id: i32,
    /// Where it is in a whole record, and how many bytes it has.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// Defines records with the offsets of their fields, each with its number in brackets if it can be selected.
///
/// The first fields and the size are those of all versions. The fields after `+` were appended by a later version: they
/// are `None` in a shorter record.
macro_rules! records {
    ($($(#[$doc:meta])* $name:ident, $size:literal bytes {
            $($field:ident: $type:ty = $at:literal $([$id:literal])?,)*
        }
        $(+ { $($later:ident: $later_type:ty = $later_at:literal $([$later_id:literal])?,)* })?)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name<'b> {
            first: &'b [u8; $size],
            #[allow(dead_code, reason = "no version appended fields to some records")]
            all: &'b [u8],
        }

        impl<'b> $name<'b> {
            /// The length of the shortest record of any version.
            #[allow(dead_code, reason = "not every vendor lists all records")]
            pub(super) const SIZE: usize = $size;

            /// The fields that can be selected, by their offsets.
            #[allow(dead_code, reason = "only some libraries record selected fields")]
            pub(super) const SELECTABLE: &'static [$crate::records::fields::SelectableField] = &[
                $($($crate::records::fields::SelectableField { id: $id, at: $at, bytes: size_of::<$type>() },)?)*
                $($($($crate::records::fields::SelectableField {
                    id: $later_id,
                    at: $later_at,
                    bytes: size_of::<$later_type>(),
                },)?)*)?
            ];

            /// Returns `None` if the record is shorter than in any version.
            #[inline]
            fn new(all: &'b [u8]) -> Option<$name<'b>> {
                Some($name { first: all.first_chunk()?, all })
            }

            $(#[inline]
            pub(super) fn $field(&self) -> $type {
                $crate::records::fields::Field::read_at(self.first, $at).unwrap_or_default()
            })*

            $($(#[inline]
            pub(super) fn $later(&self) -> Option<$later_type> {
                $crate::records::fields::Field::read_at(self.all, $later_at)
            })*)?
        }
    )*};
}

pub(crate) use records;

/// Defines the records of a vendor from a module of numbers and rows: a variant, its structure of `records!`, and the
/// vendor's names and numbers of its kinds.
macro_rules! kinds {
    ($module:ident $record:ident $($variant:ident($fields:ident) = $($name:ident: $number:literal),+;)+) => {
        /// The kinds of records, by the vendor's numbers.
        pub(super) mod $module {
            $($(pub(crate) const $name: u32 = $number;)+)+

            /// All kinds, with the shortest length of their records, and the fields that can be selected.
            #[allow(dead_code, reason = "not every vendor lists all records")]
            pub(crate) const ALL: &[(u32, usize, &[$crate::records::fields::SelectableField])] =
                &[$($(($name, super::$fields::SIZE, super::$fields::SELECTABLE),)+)+];
        }

        /// A borrowed record of a known kind.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum $record<'b> {
            $($variant($fields<'b>),)+
        }

        impl<'b> $record<'b> {
            /// Reads a record from all of its bytes; returns `None` if its kind is unknown, or it is too short.
            // The caller's match merges with this one.
            #[inline(always)]
            pub(super) fn from_bytes(bytes: &'b [u8]) -> Option<$record<'b>> {
                Some(match $crate::records::fields::kind_of(bytes)? {
                    $($($module::$name)|+ => $record::$variant($fields::new(bytes)?),)+
                    _ => return None,
                })
            }
        }
    };
}

pub(crate) use kinds;

/// Returns the kind of the record at the start of `bytes`.
#[inline]
pub(crate) fn kind_of(bytes: &[u8]) -> Option<u32> {
    Field::read_at(bytes, 0)
}

/// Makes a record of `size` bytes from fields: offset, size and value.
#[cfg(test)]
pub(crate) fn make_record(kind: u32, size: usize, fields: &[(usize, usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0u8; size];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    for (at, width, value) in fields {
        bytes[*at..at + width].copy_from_slice(&value.to_le_bytes()[..*width]);
    }
    bytes
}

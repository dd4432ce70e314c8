//! Stub of encoding for builds without the feature `segments`: no value has a form in bytes, and nothing asks for one.

use crate::fallible::List;

/// A value that has a form in bytes with the feature.
pub trait Encoded {
    /// Appends nothing.
    fn encode(&self, _out: &mut List<u8>) {}
}

impl<T: ?Sized> Encoded for T {}

/// Encodes no structs.
#[macro_export]
macro_rules! encoded {
    ($($fields:tt)*) => {};
}

/// Encodes no values as those of another type.
#[macro_export]
macro_rules! encoded_as {
    ($($types:tt)*) => {};
}

pub use crate::{encoded, encoded_as};

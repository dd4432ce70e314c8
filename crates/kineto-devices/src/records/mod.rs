//! Records of devices: what a collector delivers, how it is packed, and how it is read back.
//!
//! A vendor's bytes are read by [`fields`], delivered as a [`record`], packed by the [`store`] and [`packed`], kept as
//! [`collected`] entries, and shown by their [`layout`].

mod arena;
pub(super) mod by_value;
pub(super) mod collected;
pub(super) mod demangle;
pub(super) mod fields;
pub(super) mod layout;
#[cfg(feature = "segments")]
mod live;
pub(super) mod names;
pub(super) mod packed;
pub(super) mod pairs;
mod pauses;
pub(super) mod pending;
pub(super) mod record;
pub(super) mod renumber;
pub(super) mod store;

//! The clock of the span path: raw ticks when recording, nanoseconds since the Unix epoch afterwards.
//!
//! Ticks are read with one instruction and mean nothing by themselves. Brackets ([`Anchor`]) tie them to
//! CLOCK_REALTIME at both ends of a session and each second between; the [`Converter`] made of those is piecewise
//! linear. CLOCK_REALTIME is also what CUPTI's records carry, so host and device rows share one timeline.

mod anchor;
mod convert;
mod tick;

pub(crate) use anchor::Anchor;
pub(crate) use convert::{Converter, Cursor};
pub(crate) use tick::{counter, is_counter, now, source};

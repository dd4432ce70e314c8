//! The clock of the span path: raw ticks when recording, nanoseconds since the Unix epoch afterwards.
//!
//! Ticks are read with one instruction and have no absolute meaning. Brackets ([`Anchor`]) tie them to CLOCK_REALTIME at both
//! ends of a session and each second between; the [`Converter`] made of them is piecewise linear. CUPTI's records use
//! CLOCK_REALTIME too, so host and device rows share one timeline.

mod anchor;
mod convert;
mod tick;

pub use anchor::Anchor;
pub use convert::{Converter, Cursor};
pub use tick::{is_counter, now, read_counter, source_name};

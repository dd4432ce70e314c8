//! The clock that records are stamped by: the client's own, or real time.

use crate::code::{Outcome, unless};
use crate::link;
use crate::shared::clock;
use std::sync::{Mutex, PoisonError};

/// Reads the client's clock, in nanoseconds.
pub(crate) type Timestamp = extern "C" fn() -> u64;

#[derive(Debug)]
struct Stamps {
    client: Option<Timestamp>,
    /// How far stamps are from the machine's clock, with the number of the options that it is of.
    shift: Option<(u64, i64)>,
}

static STAMPS: Mutex<Stamps> = Mutex::new(Stamps { client: None, shift: None });

/// Lets stamps be of the client's clock.
pub(crate) fn use_clock(timestamp: Timestamp) -> Outcome {
    unless(link::options().clock_error)?;
    *STAMPS.lock().unwrap_or_else(PoisonError::into_inner) = Stamps { client: Some(timestamp), shift: None };
    Ok(())
}

/// Now, as records are stamped.
pub(crate) fn now() -> u64 {
    let client = STAMPS.lock().unwrap_or_else(PoisonError::into_inner).client;
    read(client)
}

fn read(client: Option<Timestamp>) -> u64 {
    match client {
        Some(read) => read(),
        None => clock::wall().saturating_add_signed(link::options().clock_skew_ns),
    }
}

/// The stamp of a moment of the machine's clock.
pub(crate) fn of(at: u64) -> u64 {
    let mut stamps = STAMPS.lock().unwrap_or_else(PoisonError::into_inner);
    let configured = link::configured();
    let known = stamps.shift.filter(|(number, _)| *number == configured).map(|(_, shift)| shift);
    let shift = known.unwrap_or_else(|| measure(stamps.client));
    stamps.shift = Some((configured, shift));
    at.saturating_add_signed(shift)
}

/// The best of some tries: the thread may have to wait between the readings.
fn measure(client: Option<Timestamp>) -> i64 {
    const TRIES: usize = 20;
    let once = |_| {
        let (before, stamp, after) = (clock::now(), read(client), clock::now());
        (after - before, stamp.wrapping_sub(before.midpoint(after)) as i64)
    };
    (0..TRIES).map(once).min_by_key(|(width, _)| *width).map_or(0, |(_, shift)| shift)
}

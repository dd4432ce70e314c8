//! The buffers in use: one for the records of each thread.

use crate::buffer::Buffer;
use crate::code::{Outcome, unless};
use crate::courier::{self, Completed, Requested};
use crate::layout;
use crate::link;
use crate::record::Record;
use crate::shared::counters::count;
use sim_core::clock::thread_id;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// By the thread's number.
static BUFFERS: LazyLock<Mutex<HashMap<u32, Buffer>>> = LazyLock::new(Mutex::default);
/// How many records there have been since the options were set.
static RECORDS: AtomicU64 = AtomicU64::new(0);

/// The options have been set.
pub(crate) fn configured() {
    RECORDS.store(0, Ordering::Relaxed);
}

/// Whether a record is one of those that a fault meets, which is one in `each`. Which ones follows no pattern that the
/// program's own could meet, and is the same each time.
fn is_met(ordinal: u64, each: u64) -> bool {
    let mut mixed = ordinal.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    each != 0 && (mixed ^ mixed >> 31).is_multiple_of(each)
}

fn lock() -> MutexGuard<'static, HashMap<u32, Buffer>> {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the callbacks; the first buffer is the calling thread's.
pub(crate) fn register(requested: Requested, completed: Completed) -> Outcome {
    unless(link::options().callbacks_error)?;
    let first = courier::register(requested, completed)?;
    let before = lock().insert(thread_id(), first);
    courier::deliver(Vec::from_iter(before), false);
    Ok(())
}

/// Adds a record to a thread's buffer, and whatever the options put beside it.
pub(crate) fn add(thread: u32, record: &Record) {
    let options = link::options();
    let ordinal = RECORDS.fetch_add(1, Ordering::Relaxed) + 1;
    if is_met(ordinal, options.drop) {
        return count(&link::counters().dropped);
    }
    let garbage = is_met(ordinal, options.garbage).then(|| {
        let mut record = record.clone();
        record.scramble(if ordinal.is_multiple_of(2) { 0xa5 } else { 0xff });
        record
    });
    add_one(thread, garbage.as_ref().unwrap_or(record), garbage.is_some());
    if is_met(ordinal, options.unknown_kinds)
        && let Some(unknown) = Record::new(layout::kind::UNKNOWN)
    {
        add_one(thread, &unknown.u64(8, ordinal), false);
    }
}

/// Adds a record; a buffer that then has no room for any other is full. The client is asked for buffers under the lock,
/// as by the real library.
fn add_one(thread: u32, record: &Record, is_garbage: bool) {
    let mut full = Vec::new();
    {
        let mut buffers = lock();
        let mut buffer = match buffers.remove(&thread) {
            Some(buffer) => buffer,
            None => match courier::request() {
                Some(buffer) => buffer,
                None => return count(&link::counters().dropped),
            },
        };
        if buffer.has_room(record.bytes().len()) {
            buffer.add(record.bytes());
        }
        if is_garbage {
            buffer.note_garbage();
        }
        if buffer.has_room(layout::longest(link::options())) {
            buffers.insert(thread, buffer);
        } else {
            full.push(buffer);
        }
    }
    if !full.is_empty() {
        courier::deliver(full, false);
    }
}

/// Gives all buffers back, whatever is in them.
pub(crate) fn flush() -> Outcome {
    let options = link::options();
    count(&link::counters().flushes);
    unless(options.flush_error)?;
    std::thread::sleep(Duration::from_millis(options.slow_flush));
    let configured = link::configured();
    while options.hanging_flush && link::configured() == configured {
        std::thread::sleep(Duration::from_millis(1));
    }
    let all: Vec<Buffer> = lock().drain().map(|(_, buffer)| buffer).collect();
    courier::deliver(all, true);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_meet_one_in_so_many() {
        for each in [2, 3, 5, 7] {
            let met = (0..7_000).filter(|ordinal| is_met(*ordinal, each)).count() as u64;
            assert!((met * each).abs_diff(7_000) < 700, "{each}: {met}");
        }
        assert!(!is_met(1, 0));
    }
}

//! The buffers in use: one for the records of each thread.

use crate::code::{Code, Outcome};
use crate::courier::{self, Completed, Requested};
use crate::layout;
use crate::link;
use crate::record::{self, new_record};
use crate::shared::counters::count;
use sim_core::buffer::RecordBuffer as Buffer;
use sim_core::clock::thread_id;
use sim_core::faults::RecordNumbers;
use sim_core::handles::lock;
use sim_core::record::Record;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

/// By the thread's number.
static BUFFERS: LazyLock<Mutex<HashMap<u32, Buffer>>> = LazyLock::new(Mutex::default);
/// How many records there have been since the options were set.
static RECORDS: RecordNumbers = RecordNumbers::new();

/// The options have been set.
pub(crate) fn configured() {
    RECORDS.reset();
}

/// Sets the callbacks; the first buffer is the calling thread's.
pub(crate) fn register(requested: Requested, completed: Completed) -> Outcome {
    Code::unless(link::options().callbacks_error)?;
    let first = courier::register(requested, completed)?;
    let before = lock(&BUFFERS).insert(thread_id(), first);
    courier::deliver(Vec::from_iter(before), false);
    Ok(())
}

/// Adds a record to a thread's buffer, and any fault records of the options.
pub(crate) fn add(thread: u32, record: &Record) {
    let options = link::options();
    let number = RECORDS.next();
    if number.is_one_in(options.drop) {
        return count(&link::counters().dropped);
    }
    let garbage = number.is_one_in(options.garbage).then(|| {
        let mut garbage = record.clone();
        record::scramble(&mut garbage, number.nonsense());
        garbage
    });
    add_one(thread, garbage.as_ref().unwrap_or(record), garbage.is_some());
    if number.is_one_in(options.unknown_kinds)
        && let Some(unknown) = new_record(layout::kind::UNKNOWN)
    {
        add_one(thread, &unknown.u64(8, number.0), false);
    }
}

/// Adds a record; retires the buffer if no other record fits. Requests buffers under the lock, as the real library does.
fn add_one(thread: u32, record: &Record, is_garbage: bool) {
    let mut full = Vec::new();
    {
        let mut buffers = lock(&BUFFERS);
        let mut buffer = match buffers.remove(&thread) {
            Some(buffer) => buffer,
            None => match courier::request() {
                Some(buffer) => buffer,
                None => return count(&link::counters().dropped),
            },
        };
        if buffer.has_room(record.bytes().len()) {
            buffer.add(record, None);
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

/// Delivers all buffers, empty ones too.
pub(crate) fn flush() -> Outcome {
    let options = link::options();
    Code::unless(options.flush_error)?;
    sim_core::clock::sleep(Duration::from_millis(options.slow_flush));
    let configured = link::configurations();
    while options.hanging_flush && link::configurations() == configured {
        sim_core::clock::sleep(Duration::from_millis(1));
    }
    let all: Vec<Buffer> = lock(&BUFFERS).drain().map(|(_, buffer)| buffer).collect();
    courier::deliver(all, true);
    Ok(())
}

//! The current buffers of a client: one for host records, and one for the records of each context.

use crate::client::{self, Client};
use crate::delivery;
use crate::layout;
use crate::link;
use crate::record::{self, new_record};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::writer;
use sim_core::buffer::{PendingRecord, RecordBuffer as Buffer};
use sim_core::faults::RecordNumbers;
use sim_core::handles::lock;
use sim_core::record::Record;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The owner of a buffer: a context, by its id.
pub(crate) type Owner = u32;

/// The records of the host, of all contexts.
pub(crate) const HOST: Owner = 0;

#[derive(Debug, Default)]
struct Pool {
    current: HashMap<Owner, Buffer>,
    /// Buffers without room whose work has not ended.
    full: Vec<Buffer>,
    /// Spare buffers: the client gave one to each of two threads at once.
    spare: Vec<Buffer>,
}

/// The buffers of a client.
#[derive(Debug, Default)]
pub(crate) struct ClientPool {
    pool: Mutex<Pool>,
    /// Records dropped since the last query.
    dropped: AtomicUsize,
}

impl ClientPool {
    fn drop_record(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        count(&link::counters().dropped);
    }

    /// The records dropped since the last call.
    pub(crate) fn take_dropped(&self) -> usize {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if link::options().many_dropped { usize::MAX } else { dropped }
    }
}

/// Numbers the records.
static RECORDS: RecordNumbers = RecordNumbers::new();

/// Adds a record, and any fault records of the options.
pub(crate) fn add(client: &'static Client, owner: Owner, record: &Record, pending: Option<PendingRecord>) {
    let options = link::options();
    let number = RECORDS.next();
    if number.is_each(options.drop) {
        return client.pool.drop_record();
    }
    let garbage = number.is_each(options.garbage).then(|| {
        let mut garbage = record.clone();
        record::scramble(&mut garbage, number.nonsense());
        garbage
    });
    let mutated = (options.mutate != 0).then(|| {
        let mut mutated = record.clone();
        let mut seed = options.mutate ^ number.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        record::mutate(&mut mutated, || {
            // xorshift64*
            seed ^= seed >> 12;
            seed ^= seed << 25;
            seed ^= seed >> 27;
            seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
        });
        mutated
    });
    add_one(client, owner, garbage.as_ref().or(mutated.as_ref()).unwrap_or(record), pending, garbage.is_some());
    if number.is_each(options.unknown_kinds)
        && let Some(unknown) = new_record(layout::kind::UNKNOWN)
    {
        add_one(client, owner, &unknown.u64(8, number.0), None, false);
    }
}

/// Adds a record to the owner's buffer, or to a new one if it is full.
fn add_one(client: &'static Client, owner: Owner, record: &Record, pending: Option<PendingRecord>, is_garbage: bool) {
    let (record, pending) = client.selected_fields.convert(record, pending);
    let bytes = record.bytes().len();
    let mut complete = Vec::new();
    let mut asked_at = None;
    loop {
        let mut pool = lock(&client.pool.pool);
        pool.retire(owner, bytes);
        pool.take_complete(&mut complete);
        if let Some(buffer) = pool.current.get_mut(&owner) {
            buffer.add(&record, pending);
            if is_garbage {
                buffer.note_garbage();
            }
            break;
        }
        drop(pool);
        // No callback runs under the lock.
        let asking = link::options().reported(now());
        let Some(fresh) = delivery::request(client) else {
            client.pool.drop_record();
            break;
        };
        asked_at = Some(asking);
        // The owner takes it in the next pass, unless another thread has added one in the meantime.
        lock(&client.pool.pool).spare.push(fresh);
    }
    delivery::deliver(client, complete);
    // Not for the record of such a request, which would recurse with buffers for one record.
    if let Some(start) = asked_at.filter(|_| record.kind() != layout::kind::OVERHEAD) {
        writer::buffer_requested(client, start);
    }
}

impl Pool {
    /// Retires the owner's buffer if it is full, and replaces it by a spare one.
    fn retire(&mut self, owner: Owner, bytes: usize) {
        if self.current.get(&owner).is_some_and(|buffer| !buffer.has_room(bytes)) {
            self.full.extend(self.current.remove(&owner));
        }
        if !self.current.contains_key(&owner)
            && let Some(spare) = self.spare.pop()
        {
            self.current.insert(owner, spare);
        }
    }

    fn take_complete(&mut self, complete: &mut Vec<Buffer>) {
        complete.extend(self.full.extract_if(.., |buffer| buffer.is_complete(now())));
    }
}

/// Delivers the buffers of all clients whose work is complete, or with `forced` all.
pub(crate) fn flush(forced: bool) {
    client::for_each(|client| flush_one(client, forced));
}

fn flush_one(client: &'static Client, forced: bool) {
    let options = link::options();
    while options.hanging_flush && std::ptr::eq(link::options(), options) {
        sim_core::clock::sleep(Duration::from_millis(1));
    }
    let (start, mut out) = (options.reported(now()), Vec::new());
    {
        let mut pool = lock(&client.pool.pool);
        out.extend(pool.full.extract_if(.., |buffer| forced || buffer.is_complete(now())));
        let ready = |buffer: &Buffer| buffer.used > 0 && (forced || buffer.is_complete(now()));
        out.extend(pool.current.extract_if(|_, buffer| ready(buffer)).map(|(_, buffer)| buffer));
        if forced {
            out.append(&mut pool.spare);
        }
    }
    // Where buffers are late, a client that flushes until it has all of them would wait for the records of its own flushes.
    let is_recorded = !out.is_empty() && options.late_buffers == 0;
    delivery::deliver(client, out);
    if is_recorded {
        writer::buffers_flushed(client, start);
    }
}

/// Fills in the times of work that were not known at its launch.
pub(crate) fn retime(id: u64, start: u64, end: u64, done_at: u64) {
    client::for_each(|client| {
        let mut pool = lock(&client.pool.pool);
        let Pool { current, full, .. } = &mut *pool;
        let mut buffers = full.iter_mut().chain(current.values_mut());
        buffers.any(|buffer| buffer.retime(id, start, end, done_at));
    });
}

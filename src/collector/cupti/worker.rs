//! The thread that reads CUPTI's buffers and ends the recording.

use super::ffi::{Api, DRIVER, Subscriber};
use super::hub::HUB;
use super::kinds::Kinds;
use super::reader::Reader;
use super::subscription::Subscription;
use crate::buffer::Loss;
use crate::collector::clock::now;
use crate::collector::contained::run_reader;
use crate::collector::cuda::Driver;
use crate::collector::pool::{FilledBuffer, PoolCounts};
use crate::collector::reader_commands::{self, EndNotifier, ReaderCommand};
use crate::collector::walk::Records;
use crate::os::{fork, thread};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often complete records are flushed.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// The pause between polls at the end of a recording, at first and at most.
const SHORTEST_WAIT: Duration = Duration::from_micros(200);
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// How long an end or a pause waits for buffers of a program that keeps launching, which are never complete.
const PATIENCE: Duration = Duration::from_millis(200);

/// The channel to the thread.
pub(super) type ReaderCommands = reader_commands::ReaderCommands<End>;

/// How a recording is to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The end time, on the clock of the records.
    pub(super) at: u64,
    /// How long to wait for device work that has begun.
    pub(super) deadline: Instant,
    /// Whether to detach the library.
    pub(super) teardown: bool,
    /// No record arrived during the start.
    pub(super) is_unproven: bool,
}

/// The state of a recording's thread.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) api: &'static Api,
    pub(super) driver: &'static Driver,
    pub(super) kinds: Arc<Kinds>,
    pub(super) reader: Reader,
    pub(super) commands: Arc<ReaderCommands>,
    /// Records are known to be missing, so the ledger cannot be waited for.
    pub(super) is_missing_records: bool,
    /// A pause that waits for records of earlier launches.
    pub(super) pausing: Option<Pausing>,
    /// Released with the worker; after that, the thread that waits for the end is woken.
    pub(super) subscription: Subscription,
    pub(super) _ended: EndNotifier<End>,
}

/// A pause that waits for records of earlier launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pausing {
    cutoff: Cutoff,
    poll_at: Instant,
    wait: Duration,
}

/// The last point in time whose records are wanted.
#[derive(Clone, Copy, Debug)]
struct Cutoff {
    /// On the clock of the records.
    at: u64,
    /// Earlier records are in buffers that were requested up to this number.
    requests: u64,
    patience_ends: Instant,
}

impl Cutoff {
    fn new(at: u64) -> Cutoff {
        Cutoff { at, requests: HUB.pool.requests(), patience_ends: Instant::now() + PATIENCE }
    }
}

impl Worker {
    /// Reads buffers until the recording ends.
    pub(super) fn run(mut self) {
        let sink = self.reader.sink().clone();
        run_reader(&sink, || self.record());
        sink.lost(Loss::DeviceBuffersKept, HUB.pool.close().kept);
    }

    fn record(&mut self) {
        self.query_devices();
        let commands = self.commands.clone();
        let mut flush_at = Instant::now() + FLUSH_EVERY;
        loop {
            HUB.pool.preallocate();
            let until = self.pausing.map_or(flush_at, |pausing| flush_at.min(pausing.poll_at));
            let filled = HUB.pool.take(until, || commands.is_pending());
            self.read(filled);
            match commands.take() {
                Some(ReaderCommand::End(end)) => return self.end(&end),
                Some(ReaderCommand::Drain(drains)) => {
                    self.flush(false);
                    commands.finish_drains(drains);
                }
                Some(ReaderCommand::Poll) => self.flush(false),
                None => {}
            }
            self.suspend_kinds();
            if Instant::now() >= flush_at {
                self.flush(false);
                flush_at = Instant::now() + FLUSH_EVERY;
            }
        }
    }

    /// Queries the devices if the recording started inside of `cuInit`; this waits until that is done.
    fn query_devices(&mut self) {
        if !self.driver.knows_devices() {
            self.driver.devices();
            self.reader.exclude_calls(thread::handle(), self.api.timestamp().unwrap_or_else(now));
        }
    }

    /// Disables the kinds in a pause, once the records of earlier launches have arrived.
    fn suspend_kinds(&mut self) {
        let Some(at) = self.kinds.pending_pause() else {
            self.pausing = None;
            return;
        };
        let now = Instant::now();
        let begun = || Pausing { cutoff: Cutoff::new(at), poll_at: now, wait: SHORTEST_WAIT };
        let mut pausing = self.pausing.filter(|pausing| pausing.cutoff.at == at).unwrap_or_else(begun);
        if now >= pausing.poll_at {
            self.flush(false);
            if self.is_settled(&pausing.cutoff) {
                self.kinds.suspend();
            }
            pausing.poll_at = now + pausing.wait;
            pausing.wait = (pausing.wait * 2).min(FLUSH_EVERY);
        }
        self.pausing = Some(pausing);
    }

    /// Returns whether the records of earlier work have arrived, as far as that can be known.
    fn is_settled(&self, cutoff: &Cutoff) -> bool {
        let keeps_launching = self.reader.ledger.is_past(cutoff.at) && Instant::now() >= cutoff.patience_ends;
        let is_complete = self.is_missing_records || self.reader.ledger.owed() == 0;
        is_complete && (keeps_launching || !HUB.pool.holds_records(cutoff.requests))
    }

    fn flush(&mut self, forced: bool) {
        // Records that cannot be flushed arrive when their buffer is full, or are counted as missing.
        let _ = self.api.flush(forced);
        let filled = HUB.pool.take(Instant::now(), || true);
        self.read(filled);
    }

    fn read(&mut self, filled: Vec<FilledBuffer>) {
        for filled in filled {
            if filled.is_scrap() {
                let dropped = Records::new(filled.bytes(), self.api).count() as u64;
                self.is_missing_records |= dropped > 0;
                self.reader.sink().lost(Loss::DeviceRecordsOverLimit, dropped);
            } else {
                self.is_missing_records |= !self.reader.read(filled.bytes(), self.api);
            }
            HUB.pool.give_back(filled);
        }
    }

    /// Waits for device work that has begun, and releases the recording's resources.
    ///
    /// A forced flush also takes unfinished kernels, and then loses their ends. So it comes last, when time is up.
    /// The program's devices are never synchronized: a capture may be in progress.
    fn end(&mut self, end: &End) {
        self.reader.ledger.close(end.at);
        let cutoff = Cutoff::new(end.at);
        let mut wait = SHORTEST_WAIT;
        loop {
            self.flush(false);
            self.count_dropped();
            if self.is_settled(&cutoff) {
                break;
            }
            let left = end.deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                self.flush(true);
                break;
            }
            let filled = HUB.pool.take(Instant::now() + wait.min(left), || false);
            self.read(filled);
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.kinds.end();
        // Records that arrived meanwhile.
        self.flush(false);
        self.count_dropped();
        self.reader.finish();
        let counts = HUB.pool.close();
        if end.is_unproven && counts.filled == 0 {
            self.reader.sink().note("libcupti delivered no records, not even of the test call at the start");
        }
        self.report_losses(&counts);
        if end.teardown {
            self.detach();
        }
    }

    fn count_dropped(&mut self) {
        let dropped = self.api.dropped();
        self.is_missing_records |= dropped > 0;
        self.reader.sink().lost(Loss::VendorDropped, dropped);
    }

    fn report_losses(&self, counts: &PoolCounts) {
        let sink = self.reader.sink();
        if counts.refused > 0 {
            let note = format!(
                "CUPTI requested {} buffers beyond ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB; they were refused, or \
                 their records dropped; CUPTI may repeat a request; raise the limit",
                counts.refused
            );
            sink.note(note);
        }
        if counts.unknown > 0 {
            sink.note(format!("CUPTI returned {} buffers of another profiler", counts.unknown));
        }
    }

    /// Detaches the library when a call returns. The thread makes that call itself instead of waiting for the
    /// program's next call.
    fn detach(&mut self) {
        let subscriber = self.subscription.subscriber;
        *DETACHING.lock() = Some((self.api, subscriber));
        HUB.request_detach();
        if self.api.enable_domain(subscriber, DRIVER).is_ok() {
            let _ = self.driver.query_version();
        }
        if HUB.take_detach_request() {
            return self.reader.sink().note("could not detach libcupti (KINETO_TEARDOWN_CUPTI): no callback ran");
        }
        // Another thread's callback may still be detaching it.
        drop(DETACHING.lock());
        self.subscription.set_detached();
    }
}

/// The arguments of the callback that detaches the library.
static DETACHING: fork::Own<Option<(&'static Api, Subscriber)>> = fork::Own::of_first(None);

/// Detaches the library, inside a callback.
pub(super) fn detach_in_callback() {
    let mut held = DETACHING.lock();
    if let Some((api, subscriber)) = held.take() {
        let _ = api.unsubscribe(subscriber);
        let _ = api.finalize();
    }
}

//! The thread that reads what CUPTI has filled, and ends the recording.

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

/// How often what is complete is asked for.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How long the end waits between two looks, at first and at most.
const SHORTEST_WAIT: Duration = Duration::from_micros(200);
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// How long an end or a pause waits for buffers of a program that goes on launching, so that they are never complete.
const PATIENCE: Duration = Duration::from_millis(200);

/// The way to the thread.
pub(super) type ReaderCommands = reader_commands::ReaderCommands<End>;

/// How a recording is to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// When, by the clock of the records.
    pub(super) at: u64,
    /// How long to wait for what has begun.
    pub(super) deadline: Instant,
    /// The library is to be let go of.
    pub(super) teardown: bool,
    /// No record arrived during the start.
    pub(super) is_unproven: bool,
}

/// A recording, as its thread has it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) api: &'static Api,
    pub(super) driver: &'static Driver,
    pub(super) kinds: Arc<Kinds>,
    pub(super) reader: Reader,
    pub(super) commands: Arc<ReaderCommands>,
    /// Records are known to be missing, so launches cannot be waited for one by one.
    pub(super) is_missing_records: bool,
    /// A pause before which something was launched that owes its record.
    pub(super) pausing: Option<Pausing>,
    /// Given up with the worker; after that, the thread that waits for the end is woken.
    pub(super) subscription: Subscription,
    pub(super) _ended: EndNotifier<End>,
}

/// A pause that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pausing {
    last: Last,
    look_at: Instant,
    wait: Duration,
}

/// The last moment of which records are wanted.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// By the clock of the records.
    at: u64,
    /// What began before it is in a buffer that was handed out before it.
    requests: u64,
    patience_ends: Instant,
}

impl Last {
    fn new(at: u64) -> Last {
        Last { at, requests: HUB.pool.requests(), patience_ends: Instant::now() + PATIENCE }
    }
}

impl Worker {
    /// Reads what comes until the recording ends.
    pub(super) fn run(mut self) {
        let sink = self.reader.sink().clone();
        run_reader(&sink, || self.record());
        sink.lost(Loss::DeviceBuffersKept, HUB.pool.close().kept);
    }

    fn record(&mut self) {
        self.ask_for_devices();
        let commands = self.commands.clone();
        let mut flush_at = Instant::now() + FLUSH_EVERY;
        loop {
            HUB.pool.preallocate();
            let until = self.pausing.map_or(flush_at, |pausing| flush_at.min(pausing.look_at));
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
            self.rest();
            if Instant::now() >= flush_at {
                self.flush(false);
                flush_at = Instant::now() + FLUSH_EVERY;
            }
        }
    }

    /// Asks for the devices if the recording has begun inside of `cuInit`: this waits until that is done.
    fn ask_for_devices(&mut self) {
        if !self.driver.knows_devices() {
            self.driver.devices();
            self.reader.leave_out(thread::handle(), self.api.timestamp().unwrap_or_else(now));
        }
    }

    /// Lets the kinds rest in a pause, once what was launched before has its records.
    fn rest(&mut self) {
        let Some(at) = self.kinds.to_rest() else {
            self.pausing = None;
            return;
        };
        let now = Instant::now();
        let begun = || Pausing { last: Last::new(at), look_at: now, wait: SHORTEST_WAIT };
        let mut pausing = self.pausing.filter(|pausing| pausing.last.at == at).unwrap_or_else(begun);
        if now >= pausing.look_at {
            self.flush(false);
            if self.is_settled(&pausing.last) {
                self.kinds.rest();
            }
            pausing.look_at = now + pausing.wait;
            pausing.wait = (pausing.wait * 2).min(FLUSH_EVERY);
        }
        self.pausing = Some(pausing);
    }

    /// Whether what began until then has come, as far as can be told.
    fn is_settled(&self, last: &Last) -> bool {
        let goes_on = self.reader.ledger.is_past(last.at) && Instant::now() >= last.patience_ends;
        let is_complete = self.is_missing_records || self.reader.ledger.owed() == 0;
        is_complete && (goes_on || !HUB.pool.holds_records(last.requests))
    }

    fn flush(&mut self, forced: bool) {
        // What cannot be flushed comes when its buffer is full, or is missed in the end.
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

    /// Waits for what has begun, and gives up what the recording held.
    ///
    /// A forced flush takes kernels that have not ended, and their ends with them, so it comes last, when there is no
    /// more time. The program is not made to wait for its devices: it may be in the middle of a capture.
    fn end(&mut self, end: &End) {
        self.reader.ledger.close(end.at);
        let last = Last::new(end.at);
        let mut wait = SHORTEST_WAIT;
        loop {
            self.flush(false);
            self.count_dropped();
            if self.is_settled(&last) {
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
        // What came while that was done.
        self.flush(false);
        self.count_dropped();
        self.reader.finish();
        let counts = HUB.pool.close();
        if end.is_unproven && counts.filled == 0 {
            self.reader.sink().note("libcupti delivered no records, not even of the test call at the start");
        }
        self.tell_losses(&counts);
        if end.teardown {
            self.let_go();
        }
    }

    fn count_dropped(&mut self) {
        let dropped = self.api.dropped();
        self.is_missing_records |= dropped > 0;
        self.reader.sink().lost(Loss::VendorDropped, dropped);
    }

    fn tell_losses(&self, counts: &PoolCounts) {
        let sink = self.reader.sink();
        if counts.refused > 0 {
            let note = format!(
                "CUPTI asked for a buffer {} times while all that ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB allows were in use, and was \
                 refused, or given one of which nothing is kept; it may ask many times for the same one",
                counts.refused
            );
            sink.note(note);
        }
        if counts.unknown > 0 {
            sink.note(format!("CUPTI handed over {} buffers that are not ours", counts.unknown));
        }
    }

    /// Lets go of the library, as a call returns: one of ours, so that nobody waits for one of the program's.
    fn let_go(&mut self) {
        let subscriber = self.subscription.subscriber;
        *LETTING_GO.lock() = Some((self.api, subscriber));
        HUB.let_go();
        if self.api.enable_domain(subscriber, DRIVER).is_ok() {
            let _ = self.driver.ask_version();
        }
        if HUB.is_to_let_go() {
            return self.reader.sink().note("libcupti could not be let go of (KINETO_TEARDOWN_CUPTI)");
        }
        // A thread of the program may be at it still.
        drop(LETTING_GO.lock());
        self.subscription.let_go();
    }
}

/// What the callback that lets go needs.
static LETTING_GO: fork::Own<Option<(&'static Api, Subscriber)>> = fork::Own::of_first(None);

/// Lets go of the library, from within a callback.
pub(super) fn let_go_now() {
    let mut held = LETTING_GO.lock();
    if let Some((api, subscriber)) = held.take() {
        let _ = api.unsubscribe(subscriber);
        let _ = api.finalize();
    }
}

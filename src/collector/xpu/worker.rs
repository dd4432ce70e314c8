//! The thread that reads what PTI has filled, and ends the recording.

use super::error::PtiError;
use super::ffi::Api;
use super::hub::{HUB, Lease};
use super::reader::Reader;
use super::scope::Sampling;
use super::views::Views;
use crate::buffer::Loss;
use crate::collector::contained::run_reader;
use crate::collector::pool::{FilledBuffer, PoolCounts};
use crate::collector::reader_commands::{self, EndNotifier, ReaderCommand};
use crate::collector::walk::Records;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the thread looks what there is to do while nothing comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the end and a pause wait between two looks, at first and at most.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// How often a pause looks for the end of what was launched before it.
const LOOKS_OF_PAUSE: u32 = 12;

/// The way to the thread, which is told until when to wait for what has begun.
pub(super) type ReaderCommands = reader_commands::ReaderCommands<Instant>;

/// A recording, as its thread has it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) api: &'static Api,
    pub(super) views: Arc<Views>,
    pub(super) reader: Reader,
    pub(super) commands: Arc<ReaderCommands>,
    pub(super) sampling: Option<Sampling>,
    /// A pause whose views do not rest yet: when to look again, and how often that was done.
    pub(super) pausing: Option<(Instant, u32)>,
    /// Given up with the worker; after that, the thread that waits for the end is woken.
    pub(super) _lease: Lease,
    pub(super) _ended: EndNotifier<Instant>,
}

impl Worker {
    /// Reads what comes until the recording ends.
    pub(super) fn run(mut self) {
        let sink = self.reader.sink().clone();
        run_reader(&sink, || self.record());
        sink.lost(Loss::DeviceBuffersKept, HUB.pool.close().kept);
    }

    fn record(&mut self) {
        let commands = self.commands.clone();
        loop {
            HUB.pool.preallocate();
            let later = Instant::now() + LOOK_EVERY;
            let until = self.pausing.map_or(later, |(look_at, _)| later.min(look_at));
            let filled = HUB.pool.take(until, || commands.is_pending());
            self.read(filled);
            match commands.take() {
                Some(ReaderCommand::End(deadline)) => return self.end(deadline),
                Some(ReaderCommand::Drain(drains)) => {
                    self.flush();
                    commands.finish_drains(drains);
                }
                Some(ReaderCommand::Poll) | None => {}
            }
            self.rest();
            if let Some(sampling) = &mut self.sampling {
                sampling.follow(self.views.is_enabled(), self.reader.sink());
            }
        }
    }

    /// Lets the views rest in a pause, once what was launched before has its records, or has had time for them.
    fn rest(&mut self) {
        if self.views.is_to_rest() {
            let (api, now) = (self.api, Instant::now());
            let (look_at, looks) = self.pausing.unwrap_or((now, 0));
            let mut flushed = None;
            self.views.quiet(|| flushed = (now >= look_at).then(|| api.flush()));
            if let Some(flushed) = flushed {
                self.read_flushed(flushed);
                if self.reader.owed() == 0 || looks >= LOOKS_OF_PAUSE {
                    self.views.rest();
                    // What ends while the views rest has no record.
                    self.reader.forget_owed();
                }
                self.pausing = Some((now + (SHORTEST_WAIT * (1 << looks.min(8))).min(LONGEST_WAIT), looks + 1));
            }
        } else {
            self.pausing = None;
        }
        self.views.look_again();
    }

    fn flush(&mut self) {
        let (api, mut flushed) = (self.api, Ok(()));
        self.views.hushed(|| flushed = api.flush());
        self.read_flushed(flushed);
    }

    fn read_flushed(&mut self, flushed: Result<(), PtiError>) {
        if let Err(error) = flushed {
            // What is in them comes when they are full, or is missed in the end.
            self.reader.sink().note(format!("PTI does not flush its buffers, so records are missing: {error}"));
        }
        let filled = HUB.pool.take(Instant::now(), || true);
        self.read(filled);
    }

    fn read(&mut self, filled: Vec<FilledBuffer>) {
        for filled in filled {
            if filled.is_scrap() {
                let dropped = Records::new(filled.bytes(), self.api).count() as u64;
                self.reader.missing(Loss::DeviceRecordsOverLimit, dropped);
            } else {
                self.reader.read(filled.bytes(), self.api);
            }
            HUB.pool.give_back(filled);
        }
    }

    /// Waits for what has begun, and gives up what the recording held.
    ///
    /// PTI sees that a kernel has ended when the program waits for it. The program is not made to wait: what it has not
    /// waited for by the deadline has no record.
    fn end(&mut self, deadline: Instant) {
        self.views.close();
        let mut wait = SHORTEST_WAIT;
        loop {
            self.flush();
            let left = deadline.saturating_duration_since(Instant::now());
            // What PTI was told to hand over comes, if on a thread of its own.
            let is_complete = self.reader.owed() == 0 && !HUB.pool.holds_records(u64::MAX);
            if is_complete || left == Duration::ZERO {
                break;
            }
            let filled = HUB.pool.take(Instant::now() + wait.min(left), || false);
            self.read(filled);
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.views.end();
        // What came while that was done.
        self.flush();
        if let Some(sampling) = self.sampling.take() {
            sampling.end(&mut self.reader);
        }
        self.reader.finish();
        let counts = HUB.pool.close();
        self.tell_losses(&counts);
    }

    fn tell_losses(&self, counts: &PoolCounts) {
        let sink = self.reader.sink();
        if counts.refused > 0 {
            sink.note(format!(
                "PTI asked for a buffer {} times while all that ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB allows were in \
                use, and was given one of which nothing is kept",
                counts.refused
            ));
        }
        if counts.uncounted > 0 {
            sink.lost(Loss::DeviceRecordsOverLimit, counts.uncounted);
            sink.note(format!("of {} buffers not even the records that are lost could be counted", counts.uncounted));
        }
        if counts.unknown > 0 {
            sink.note(format!("PTI handed over {} buffers that are not ours", counts.unknown));
        }
    }
}

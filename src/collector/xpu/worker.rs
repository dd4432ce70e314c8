//! The thread that reads PTI's buffers and ends the recording.

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

/// How often the thread polls while no buffer arrives.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// The pause between polls at the end and in a pause, at first and at most.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// How often a pause polls for the end of earlier launches.
const MAX_PAUSE_POLLS: u32 = 12;

/// The channel to the thread; an end carries the deadline for device work.
pub(super) type ReaderCommands = reader_commands::ReaderCommands<Instant>;

/// The state of a recording's thread.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) api: &'static Api,
    pub(super) views: Arc<Views>,
    pub(super) reader: Reader,
    pub(super) commands: Arc<ReaderCommands>,
    pub(super) sampling: Option<Sampling>,
    /// A pause whose views are still enabled: the time of the next poll, and the number of polls so far.
    pub(super) pausing: Option<(Instant, u32)>,
    /// Released with the worker; after that, the thread that waits for the end is woken.
    pub(super) _lease: Lease,
    pub(super) _ended: EndNotifier<Instant>,
}

impl Worker {
    /// Reads buffers until the recording ends.
    pub(super) fn run(mut self) {
        let sink = self.reader.sink().clone();
        run_reader(&sink, || self.record());
        sink.lost(Loss::DeviceBuffersKept, HUB.pool.close().kept);
    }

    fn record(&mut self) {
        let commands = self.commands.clone();
        loop {
            HUB.pool.preallocate();
            let later = Instant::now() + POLL_EVERY;
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
            self.suspend_views();
            if let Some(sampling) = &mut self.sampling {
                sampling.follow_views(self.views.is_enabled(), self.reader.sink());
            }
        }
    }

    /// Disables the views in a pause, once the records of earlier launches have arrived, or had time to.
    fn suspend_views(&mut self) {
        if self.views.has_pending_pause() {
            let (api, now) = (self.api, Instant::now());
            let (look_at, looks) = self.pausing.unwrap_or((now, 0));
            let mut flushed = None;
            self.views.suspend_host(|| flushed = (now >= look_at).then(|| api.flush()));
            if let Some(flushed) = flushed {
                self.read_flushed(flushed);
                if self.reader.owed() == 0 || looks >= MAX_PAUSE_POLLS {
                    self.views.suspend();
                    // Work that ends while the views are disabled has no record.
                    self.reader.clear_owed();
                }
                self.pausing = Some((now + (SHORTEST_WAIT * (1 << looks.min(8))).min(LONGEST_WAIT), looks + 1));
            }
        } else {
            self.pausing = None;
        }
        self.views.retry_resume();
    }

    fn flush(&mut self) {
        let (api, mut flushed) = (self.api, Ok(()));
        self.views.with_host_views_off(|| flushed = api.flush());
        self.read_flushed(flushed);
    }

    fn read_flushed(&mut self, flushed: Result<(), PtiError>) {
        if let Err(error) = flushed {
            // Their records arrive when the buffers are full, or are counted as missing.
            self.reader.sink().note(format!("PTI failed to flush its buffers, so records are missing: {error}"));
        }
        let filled = HUB.pool.take(Instant::now(), || true);
        self.read(filled);
    }

    fn read(&mut self, filled: Vec<FilledBuffer>) {
        for filled in filled {
            if filled.is_scrap() {
                let dropped = Records::new(filled.bytes(), self.api).count() as u64;
                self.reader.count_lost(Loss::DeviceRecordsOverLimit, dropped);
            } else {
                self.reader.read(filled.bytes(), self.api);
            }
            HUB.pool.give_back(filled);
        }
    }

    /// Waits for device work that has begun, and releases the recording's resources.
    ///
    /// PTI notices the end of a kernel only when the program waits for it. The program's devices are never
    /// synchronized, so kernels that it has not waited for by the deadline have no record.
    fn end(&mut self, deadline: Instant) {
        self.views.close();
        let mut wait = SHORTEST_WAIT;
        loop {
            self.flush();
            let left = deadline.saturating_duration_since(Instant::now());
            // PTI may deliver flushed buffers on its own thread.
            let is_complete = self.reader.owed() == 0 && !HUB.pool.holds_records(u64::MAX);
            if is_complete || left == Duration::ZERO {
                break;
            }
            let filled = HUB.pool.take(Instant::now() + wait.min(left), || false);
            self.read(filled);
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.views.end();
        // Records that arrived meanwhile.
        self.flush();
        if let Some(sampling) = self.sampling.take() {
            sampling.end(&mut self.reader);
        }
        self.reader.finish();
        let counts = HUB.pool.close();
        self.report_losses(&counts);
    }

    fn report_losses(&self, counts: &PoolCounts) {
        let sink = self.reader.sink();
        if counts.refused > 0 {
            sink.note(format!(
                "PTI requested {} buffers beyond ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB; their records were dropped; raise \
                 the limit",
                counts.refused
            ));
        }
        if counts.uncounted > 0 {
            sink.lost(Loss::DeviceRecordsOverLimit, counts.uncounted);
            sink.note(format!("{} buffers were discarded; the number of lost records is unknown", counts.uncounted));
        }
        if counts.unknown > 0 {
            sink.note(format!("PTI returned {} buffers of another profiler", counts.unknown));
        }
    }
}

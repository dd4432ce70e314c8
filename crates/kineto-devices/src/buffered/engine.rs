//! The thread that makes a library deliver its records during a recording, and ends it. It reads the buffers of the pool; a
//! library that has buffers of its own leaves the pool empty.

use super::commands::{EndNotifier, ReaderCommand, ReaderCommands, RecordingEnd};
use super::kinds::PausableKinds;
use super::launches::UnfinishedLaunches;
use super::pool::{FilledBuffer, Pool, PoolCounts};
use crate::library::contained::run_reader;
use crate::{RecordSink, Unavailable};
use kineto_base::os::thread;
use kineto_base::text::count_with_noun;
use kineto_base::wait::steady;
use kineto_model::Loss;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the thread treats a library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LibraryTraits {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// The shortest and the longest pause between two polls at the end, and the longest in a pause.
    pub(crate) waits: [Duration; 3],
    /// Whether it returns complete buffers only when it is flushed.
    pub(crate) needs_flushes: bool,
}

/// A library that writes the records of a recording into buffers of a pool, or into its own. Dropping it releases its
/// resources, also after a panic.
pub(crate) trait BufferedLibrary: fmt::Debug + Send + 'static {
    fn sink(&self) -> &RecordSink;

    /// Returns the launches whose records are awaited; `None` if the library's callbacks track them.
    fn unfinished_launches(&mut self) -> Option<&mut UnfinishedLaunches> {
        None
    }

    /// Stops waiting for launches after that time, on the clock of the records, since the recording ends.
    fn ignore_launches_after(&mut self, at: u64) {
        if let Some(launches) = self.unfinished_launches() {
            launches.ignore_launches_after(at);
        }
    }

    /// Called first on the thread.
    fn begin_recording(&mut self) {}

    /// Makes the library return its buffers: those with complete records, or, if `forced`, all.
    fn flush_buffers(&mut self, forced: bool);

    /// Reads the records of a buffer of the pool.
    fn read_buffer(&mut self, _bytes: &[u8]) {}

    /// Returns how many records a scrap buffer contains.
    fn count_records(&self, _bytes: &[u8]) -> u64 {
        0
    }

    /// Called at least once a second.
    fn poll(&mut self) {}

    /// Returns whether all records up to `cutoff` have arrived, as far as known.
    fn has_records(&mut self, cutoff: &Cutoff) -> bool;

    /// Returns whether a pause may disable the kinds.
    fn can_suspend(&mut self, cutoff: &Cutoff) -> bool {
        self.has_records(cutoff)
    }

    /// Ends the recording after the kinds were disabled and the last buffers read. Until `deadline` it may wait for work.
    fn finish_recording(&mut self, counts: &PoolCounts, deadline: Instant);
}

/// The last point in time whose records are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutoff {
    /// On the clock of the records.
    pub(crate) at: u64,
    /// Earlier records are in buffers that were requested up to this number.
    pub(crate) requests: u64,
    /// When to stop waiting for buffers that never complete, since the program keeps launching.
    pub(crate) patience_ends: Instant,
    /// How often it was polled.
    pub(crate) polls: u32,
}

/// A pause that waits for records of earlier launches.
#[derive(Clone, Copy, Debug)]
struct Pausing {
    cutoff: Cutoff,
    poll_at: Instant,
    wait: Duration,
}

/// The state of a recording's thread.
#[derive(Debug)]
pub(crate) struct ReaderThread {
    traits: LibraryTraits,
    pool: &'static Pool,
    commands: Arc<ReaderCommands>,
    kinds: Arc<PausableKinds>,
    pausing: Option<Pausing>,
    library: Box<dyn BufferedLibrary>,
    /// Dropped after the library, so that the next recording starts only then.
    _ended: EndNotifier,
}

/// How often the thread polls, and flushes a library that needs it.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// How long a pause or an end waits for buffers that are never complete.
const PATIENCE: Duration = Duration::from_millis(200);

impl ReaderThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(crate) fn spawn(
        name: &str,
        traits: LibraryTraits,
        pool: &'static Pool,
        commands: &Arc<ReaderCommands>,
        kinds: &Arc<PausableKinds>,
        library: Box<dyn BufferedLibrary>,
    ) -> Result<(), Unavailable> {
        let (commands, kinds) = (commands.clone(), kinds.clone());
        let _ended = EndNotifier(commands.clone());
        let reader = ReaderThread { traits, pool, commands, kinds, pausing: None, library, _ended };
        let thread = thread::spawn(name, Box::new(move || reader.run()));
        thread.map(drop).map_err(|error| Unavailable::no_thread(&error))
    }

    /// Reads buffers until the recording ends.
    fn run(mut self) {
        let sink = self.library.sink().clone();
        run_reader(&sink, || self.read_until_end());
        sink.lost(Loss::DeviceBuffersKept, self.pool.close().kept);
    }

    fn read_until_end(&mut self) {
        self.library.begin_recording();
        let commands = self.commands.clone();
        let [shortest, ..] = self.traits.waits;
        let (mut poll_at, mut wait) = (steady() + POLL_EVERY, shortest);
        loop {
            self.pool.preallocate();
            let until = self.pausing.map_or(poll_at, |pausing| poll_at.min(pausing.poll_at));
            let filled = self.pool.take_filled(until, || commands.is_pending());
            self.read_buffers(filled);
            match commands.take_command() {
                Some(ReaderCommand::End(end)) => return self.end_recording(&end),
                Some(ReaderCommand::Drain) => self.drain(),
                Some(ReaderCommand::Poll) | None => {}
            }
            self.suspend_kinds();
            self.library.poll();
            if steady() >= poll_at {
                if !self.traits.needs_flushes || self.flush_finished_work() {
                    wait = shortest;
                    poll_at = steady() + POLL_EVERY;
                } else {
                    poll_at = steady() + wait;
                    wait = (wait * 2).min(POLL_EVERY);
                }
            }
        }
    }

    /// Disables the kinds in a pause, once the records of earlier launches have arrived, or had time to.
    fn suspend_kinds(&mut self) {
        if let Some(at) = self.kinds.pending_pause() {
            let (now, [shortest, _, longest]) = (steady(), self.traits.waits);
            let begun = || Pausing { cutoff: self.cutoff_at(at), poll_at: now, wait: shortest };
            let mut pausing = self.pausing.filter(|pausing| pausing.cutoff.at == at).unwrap_or_else(begun);
            if now >= pausing.poll_at {
                let library = &mut self.library;
                self.kinds.suspend_calls(|| library.flush_buffers(false));
                self.read_returned();
                if self.library.can_suspend(&pausing.cutoff) {
                    self.kinds.suspend_all();
                    // Work that ends while the kinds are disabled has no record.
                    self.library.unfinished_launches().into_iter().for_each(UnfinishedLaunches::clear);
                }
                pausing.poll_at = now + pausing.wait;
                pausing.wait = (pausing.wait * 2).min(longest);
                pausing.cutoff.polls += 1;
            }
            self.pausing = Some(pausing);
        } else {
            self.pausing = None;
        }
        self.kinds.retry_resume();
    }

    fn cutoff_at(&self, at: u64) -> Cutoff {
        Cutoff { at, requests: self.pool.request_count(), patience_ends: steady() + PATIENCE, polls: 0 }
    }

    /// Flushes; returns whether that brought records of launches, or none are awaited.
    ///
    /// The library keeps a buffer with a running kernel, and all earlier records in it. So a later flush tries again.
    fn flush_finished_work(&mut self) -> bool {
        self.read_returned();
        let before = self.unfinished_count();
        self.flush_and_read(false);
        let after = self.unfinished_count();
        after == 0 || after < before
    }

    fn unfinished_count(&mut self) -> u64 {
        self.library.unfinished_launches().map_or(0, |launches| launches.unfinished_count())
    }

    /// Serves the drains that were requested. A patient one waits for the records of all launches so far: on a busy device, a
    /// flush between two kernels brings them.
    fn drain(&mut self) {
        let (drains, patience) = self.commands.requested_drains();
        let ([wait, ..], until) = (self.traits.waits, steady() + patience);
        self.flush_and_read(false);
        let last = self.library.unfinished_launches().map_or(0, |launches| launches.newest());
        while steady() < until
            && !self.commands.is_pending()
            && self.library.unfinished_launches().is_some_and(|launches| launches.unfinished_until(last) > 0)
        {
            let filled = self.pool.take_filled(steady() + wait, || false);
            self.read_buffers(filled);
            self.flush_and_read(false);
        }
        self.commands.finish_drains(drains);
    }

    fn flush_and_read(&mut self, forced: bool) {
        let library = &mut self.library;
        self.kinds.with_calls_disabled(|| library.flush_buffers(forced));
        self.read_returned();
    }

    fn read_returned(&mut self) {
        let filled = self.pool.take_filled(steady(), || true);
        self.read_buffers(filled);
    }

    fn read_buffers(&mut self, filled: Vec<FilledBuffer>) {
        for filled in filled {
            if filled.is_scrap() {
                let dropped = self.library.count_records(filled.bytes());
                self.library.unfinished_launches().into_iter().for_each(|launches| launches.note_missing(dropped));
                self.library.sink().lost(Loss::DeviceRecordsOverLimit, dropped);
            } else {
                self.library.read_buffer(filled.bytes());
            }
            self.pool.give_back(filled);
        }
    }

    /// Waits for device work that has begun, and ends the recording.
    ///
    /// A forced flush also takes unfinished kernels, and then loses their ends, also for other profilers. So it comes when time is
    /// up. Once the kinds are disabled, no buffer gets new work: each is complete when its last work has ended.
    /// Buffers that are still out after `PATIENCE` are flushed by force, since a library may continue one in the next recording.
    /// The program's devices are never synchronized: a capture may be in progress.
    fn end_recording(&mut self, end: &RecordingEnd) {
        self.kinds.disable_calls();
        self.library.ignore_launches_after(end.at);
        let (cutoff, pool) = (self.cutoff_at(end.at), self.pool);
        let is_complete = self.flush_until(end.deadline, &|library| library.has_records(&cutoff));
        // CUPTI states the layouts of selected fields with each buffer, of enabled kinds alone. Without a buffer so far, those
        // that come back later could not be read.
        let has_no_layouts = pool.counts().filled == 0 && pool.holds_records(u64::MAX);
        if !is_complete || has_no_layouts {
            self.flush_and_read(true);
        }
        self.kinds.disable_all();
        let until = end.deadline.min(steady() + PATIENCE);
        if !self.flush_until(until, &|_| !pool.holds_records(u64::MAX)) {
            self.flush_and_read(true);
        }
        let counts = pool.close();
        self.report_losses(&counts);
        self.library.finish_recording(&counts, end.deadline);
    }

    /// Flushes and reads until `is_done`, and once more after `until`; returns whether it is done. Serves drains with that, since
    /// a thread of the program may wait for one.
    fn flush_until(&mut self, until: Instant, is_done: &dyn Fn(&mut dyn BufferedLibrary) -> bool) -> bool {
        let [mut wait, longest, _] = self.traits.waits;
        loop {
            let left = until.saturating_duration_since(steady());
            let (drains, _) = self.commands.requested_drains();
            self.flush_and_read(false);
            self.commands.finish_drains(drains);
            if is_done(&mut *self.library) {
                return true;
            }
            if left == Duration::ZERO {
                return false;
            }
            let filled = self.pool.take_filled(steady() + wait.min(left), || false);
            self.read_buffers(filled);
            wait = (wait * 2).min(longest);
        }
    }

    fn report_losses(&self, counts: &PoolCounts) {
        let sink = self.library.sink();
        if counts.refused > 0 {
            sink.note(format!(
                "{} requested {} beyond ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB, so records are missing; raise the \
                 limit",
                self.traits.name,
                count_with_noun(counts.refused, "buffer")
            ));
        }
        if counts.uncounted > 0 {
            sink.lost(Loss::DeviceRecordsOverLimit, counts.uncounted);
            sink.note(format!(
                "discarded {}; the number of lost records is unknown",
                count_with_noun(counts.uncounted, "buffer")
            ));
        }
        if counts.unknown > 0 {
            sink.note(format!(
                "{} returned {} of another profiler",
                self.traits.name,
                count_with_noun(counts.unknown, "buffer")
            ));
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::trial;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// A library whose last records arrive when the test says.
    #[derive(Debug)]
    struct SlowLibrary {
        sink: RecordSink,
        progress: Arc<Progress>,
    }

    #[derive(Debug, Default)]
    struct Progress {
        polls: AtomicU32,
        has_records: AtomicBool,
        has_finished: AtomicBool,
    }

    impl BufferedLibrary for SlowLibrary {
        fn sink(&self) -> &RecordSink {
            &self.sink
        }

        fn flush_buffers(&mut self, _: bool) {}

        fn has_records(&mut self, _: &Cutoff) -> bool {
            self.progress.polls.fetch_add(1, Ordering::SeqCst);
            self.progress.has_records.load(Ordering::SeqCst)
        }

        fn finish_recording(&mut self, _: &PoolCounts, _: Instant) {
            self.progress.has_finished.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn drain_is_served_while_a_recording_ends() {
        static POOL: Pool = Pool::new();
        let (progress, commands) = (Arc::<Progress>::default(), Arc::new(ReaderCommands::new(&POOL)));
        let kinds = Arc::new(PausableKinds::none());
        let library = SlowLibrary { sink: trial::unbounded_sink(), progress: progress.clone() };
        let traits = LibraryTraits { name: "slow", waits: [Duration::from_micros(200); 3], needs_flushes: true };
        ReaderThread::spawn("test", traits, &POOL, &commands, &kinds, Box::new(library)).unwrap();
        let patience = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let (end, channel) = (RecordingEnd { at: 0, deadline: Instant::now() + patience }, &*commands);
            let end = scope.spawn(move || channel.end_recording(end, 2 * patience));
            while progress.polls.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            commands.drain_buffers(2 * patience);
            assert!(!progress.has_finished.load(Ordering::SeqCst), "the drain has waited for the end");
            progress.has_records.store(true, Ordering::SeqCst);
            assert!(end.join().unwrap());
        });
    }
}

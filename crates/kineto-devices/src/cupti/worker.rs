//! What the thread that reads CUPTI's buffers does to the library.

use super::ffi::DRIVER;
use super::hub::HUB;
use super::reader::Reader;
use super::subscriber::Subscriber;
use super::subscription::Subscription;
use crate::RecordSink;
use crate::buffered::engine::{BufferedLibrary, Cutoff, LibraryTraits};
use crate::buffered::launches::UnfinishedLaunches;
use crate::buffered::pool::PoolCounts;
use crate::buffered::recording::RecordingApi;
use crate::buffered::walk::Records;
use crate::clock::realtime_now;
use crate::cuda::Driver;
use kineto_base::os::{fork, thread};
use kineto_base::text::count_with_noun;
use kineto_base::wait::steady;
use kineto_model::Loss;
use std::time::{Duration, Instant};

/// CUPTI during a recording.
#[derive(Debug)]
pub(super) struct CuptiLibrary {
    pub(super) subscriber: Subscriber,
    pub(super) driver: &'static Driver,
    pub(super) reader: Reader,
    pub(super) subscription: Subscription,
    /// Whether the start makes a call whose record must arrive.
    pub(super) makes_test_call: bool,
    /// Whether to detach the library at the end.
    pub(super) teardown: bool,
    /// The times of device work, if they are those of the hardware.
    pub(super) hardware_times: Option<HardwareTimes>,
}

/// What the hardware's own buffer of times has lost. CUPTI empties it at each flush, once a second, and counts no losses:
/// records of work beyond its size have no times.
#[derive(Debug, Default)]
pub(super) struct HardwareTimes {
    lost: u64,
    /// From then on, records without an end are of work that still runs.
    is_forced: bool,
}

pub(super) const TRAITS: LibraryTraits = LibraryTraits {
    name: "CUPTI",
    waits: [Duration::from_micros(200), Duration::from_millis(20), Duration::from_secs(1)],
    needs_flushes: true,
};

impl BufferedLibrary for CuptiLibrary {
    fn sink(&self) -> &RecordSink {
        self.reader.sink()
    }

    fn unfinished_launches(&mut self) -> Option<&mut UnfinishedLaunches> {
        Some(&mut self.reader.launches)
    }

    /// Queries the devices if the recording started inside of `cuInit`; this waits until that is done.
    fn begin_recording(&mut self) {
        if !self.driver.knows_devices() {
            self.driver.devices();
            self.reader
                .exclude_calls(thread::pthread_low32(), self.subscriber.timestamp().unwrap_or_else(realtime_now));
        }
    }

    fn flush_buffers(&mut self, forced: bool) {
        self.count_lost_times();
        if let Some(times) = &mut self.hardware_times {
            times.is_forced |= forced;
        }
        // Records that cannot be flushed arrive when their buffer is full, or are counted as missing.
        let _ = self.subscriber.api.flush_buffers(forced);
        let dropped = self.subscriber.take_dropped_count();
        self.reader.launches.note_missing(dropped);
        self.sink().lost(Loss::VendorDropped, dropped);
    }

    fn read_buffer(&mut self, bytes: &[u8]) {
        self.reader.read_buffer(bytes, &self.subscriber);
    }

    fn count_records(&self, bytes: &[u8]) -> u64 {
        Records::new(bytes, &self.subscriber).count() as u64
    }

    fn has_records(&mut self, cutoff: &Cutoff) -> bool {
        let launches = &self.reader.launches;
        let keeps_launching = launches.is_past(cutoff.at) && steady() >= cutoff.patience_ends;
        launches.unfinished_count() == 0 && (keeps_launching || !HUB.pool.holds_records(cutoff.requests))
    }

    fn finish_recording(&mut self, counts: &PoolCounts, deadline: Instant) {
        self.subscription.finish_ranges(deadline);
        self.count_lost_times();
        if let Some(HardwareTimes { lost: lost @ 1.., .. }) = self.hardware_times {
            let why = "the hardware's buffer of times was full; launch less in a second, or unset CUPTI_HARDWARE_TIMES";
            self.sink().note(format!("{} of device work without times: {why}", count_with_noun(lost, "record")));
        }
        self.reader.finish_recording();
        if self.makes_test_call && counts.filled == 0 {
            self.sink().note("libcupti delivered no records, not even of the test call at the start");
        }
        if self.teardown {
            self.detach_library();
        }
    }
}

impl CuptiLibrary {
    /// Counts the records without times that were read before a forced flush.
    fn count_lost_times(&mut self) {
        let lost = self.reader.take_without_times();
        if let Some(times) = self.hardware_times.as_mut().filter(|times| !times.is_forced) {
            times.lost += lost;
        }
    }

    /// Detaches the library when a call returns. The thread makes that call itself instead of waiting for the
    /// program's next call.
    fn detach_library(&mut self) {
        if self.subscriber.is_shared() {
            let note = "libcupti was not detached (KINETO_TEARDOWN_CUPTI), since this process has shared it";
            return self.reader.sink().note(note);
        }
        *DETACHING.lock() = Some(self.subscriber);
        HUB.request_detach();
        if self.subscriber.enable_domain(DRIVER).is_ok() {
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

/// The subscriber of the callback that detaches the library.
static DETACHING: fork::Own<Option<Subscriber>> = fork::Own::of_first(None);

/// Detaches the library, inside a callback.
pub(super) fn detach_in_callback() {
    let mut held = DETACHING.lock();
    if let Some(subscriber) = held.take() {
        let _ = subscriber.unsubscribe();
        let _ = subscriber.api.finalize();
    }
}

//! The streams that are being captured. Meanwhile no thread waits for a context, and none calls CUPTI's profiler: that
//! invalidates captures.

use super::calls::{CallPlace, OpenCalls};
use kineto_base::sorted::SortedMap;
use kineto_base::wait::{Condvar, steady};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The captured streams of the process, as far as known: for each handle, how many captures run. The handle of a thread's own
/// default stream is the same on all threads.
#[derive(Debug, Default)]
pub(super) struct Captures {
    streams: Mutex<SortedMap<usize, u32>>,
    ended: Condvar,
}

/// What a call does to the capture of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureStep {
    Begin,
    End,
    /// It destroys the stream.
    Destroy,
}

/// The results of ending a capture that was invalidated, or has work that was not joined, which end it too.
const CAPTURE_INVALIDATED: u32 = 901;
const CAPTURE_UNJOINED: u32 = 904;

thread_local! {
    static PLACE: CallPlace<Captures, (CaptureStep, usize)> = const { RefCell::new(None) };
}

/// The calls that threads are in, with the stream of each.
pub(super) static CALL: OpenCalls<Captures, (CaptureStep, usize)> = OpenCalls(&PLACE);

/// Ends the call of that function that the calling thread is in.
pub(super) fn end_call(function: (u32, u32), error: u32) {
    if let Some((captures, (step, stream))) = CALL.leave(function) {
        captures.leave_call(step, stream, error);
    }
}

impl Captures {
    fn lock_streams(&self) -> MutexGuard<'_, SortedMap<usize, u32>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a stream is being captured.
    pub(super) fn is_any(&self) -> bool {
        !self.lock_streams().is_empty()
    }

    /// Waits until no stream is being captured; returns whether that came true in time.
    pub(super) fn wait_for_ends(&self, limit: Duration) -> bool {
        let (streams, until) = (self.lock_streams(), steady() + limit);
        self.ended.wait_while_until(&self.streams, streams, until, |streams| !streams.is_empty()).is_empty()
    }

    /// Notes a call that begins.
    pub(super) fn enter_call(self: &Arc<Self>, function: (u32, u32), step: CaptureStep, stream: usize) {
        if CALL.is_of(self) {
            return;
        }
        if step == CaptureStep::Begin {
            // At the begin: another thread must not wait from now on.
            *self.lock_streams().get_or_insert_with(stream, Default::default) += 1;
        }
        CALL.enter(self, function, (step, stream));
    }

    fn leave_call(&self, step: CaptureStep, stream: usize, error: u32) {
        let mut streams = self.lock_streams();
        let Some(count) = streams.get_mut(&stream) else { return };
        match step {
            CaptureStep::Begin if error != 0 => *count -= 1,
            CaptureStep::End if matches!(error, 0 | CAPTURE_INVALIDATED | CAPTURE_UNJOINED) => *count -= 1,
            CaptureStep::Destroy if error == 0 => *count = 0,
            CaptureStep::Begin | CaptureStep::End | CaptureStep::Destroy => {}
        }
        if *count == 0 {
            streams.remove(&stream);
            self.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_end_by_success_invalidation_or_destruction() {
        let captures = Arc::new(Captures::default());
        let call = |step, stream, error| {
            captures.enter_call((1, 2), step, stream);
            assert!(CALL.is_in((1, 2)) && !CALL.is_in((2, 2)));
            // The driver's call inside that of the runtime.
            captures.enter_call((2, 2), step, stream);
            end_call((2, 2), error);
            end_call((1, 2), error);
            captures.is_any()
        };
        use CaptureStep::{Begin, Destroy, End};
        let calls = [(Begin, 7, 0), (Begin, 7, 401), (End, 8, 0), (End, 7, 900), (End, 7, 901)];
        assert_eq!(calls.map(|(step, stream, error)| call(step, stream, error)), [true, true, true, true, false]);
        let calls = [(Begin, 7, 401), (Begin, 7, 0), (Destroy, 7, 1), (Destroy, 7, 0), (End, 7, 0)];
        assert_eq!(calls.map(|(step, stream, error)| call(step, stream, error)), [false, true, true, false, false]);
    }
}

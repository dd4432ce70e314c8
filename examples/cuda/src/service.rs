//! A service with a constant load: 20,000 spans and 10,000 launches a second, on eight threads.

use crate::program::Gpu;
use cudarc::driver::{CudaStream, DriverError, result};
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};
use tracing::info_span;

pub const THREADS: u32 = 8;
/// The time from one request of a thread to the next.
const INTERVAL: Duration = Duration::from_millis(8);
/// The number of launches of a request.
pub const LAUNCHES: usize = 10;
/// The number of its spans that launch nothing; with those of the launches and its own, there are 20.
const OTHER_SPANS: usize = 9;

/// What a thread of the service does in addition.
pub trait Visitor {
    /// Called in that request of the thread, after its launches.
    fn in_request(&mut self, _number: u32) {}

    /// Called after a request with the time that a span took.
    fn after_request(&mut self, _span: Duration) {}
}

impl Visitor for () {}

/// Serves the requests of `time`, each at its time if `is_paced`, else as fast as possible. Runs `work` meanwhile and returns its
/// result. `visitor` makes the visitor of a thread from its number.
pub fn serve<V: Visitor + Send, R>(
    gpu: &Gpu,
    time: Duration,
    is_paced: bool,
    visitor: impl Fn(u32) -> V + Sync,
    work: impl FnOnce() -> R,
) -> Result<(Vec<V>, R), DriverError> {
    let visitor = &visitor;
    thread::scope(|scope| {
        let start = move |number| scope.spawn(move || serve_thread(gpu, time, is_paced, visitor(number)));
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let result = work();
        let served =
            |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        let visitors = threads.into_iter().map(served).collect::<Result<Vec<_>, _>>()?;
        Ok((visitors, result))
    })
}

fn serve_thread<V: Visitor>(gpu: &Gpu, time: Duration, is_paced: bool, mut visitor: V) -> Result<V, DriverError> {
    let context = gpu.lanes[0].stream.context();
    context.bind_to_thread()?;
    let stream = context.new_stream()?;
    let start = Instant::now();
    for number in 1..=requests_of_thread(time) {
        info_span!("request").in_scope(|| {
            (0..LAUNCHES).try_for_each(|_| info_span!("launch").in_scope(|| launch(gpu, &stream)))?;
            visitor.in_request(number);
            Ok(())
        })?;
        let begun = Instant::now();
        info_span!("other").in_scope(|| {});
        visitor.after_request(begun.elapsed());
        (1..OTHER_SPANS).for_each(|_| info_span!("other").in_scope(|| {}));
        if is_paced {
            thread::sleep((INTERVAL * number).saturating_sub(start.elapsed()));
        } else {
            // A GPU takes longer than a launch, and a full queue would block anyway.
            stream.synchronize()?;
        }
    }
    stream.synchronize()?;
    Ok(visitor)
}

/// Returns how many requests a thread serves in that time.
pub fn requests_of_thread(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / INTERVAL.as_nanos()).unwrap_or(u32::MAX)
}

/// Launches a kernel that takes no parameters and does nothing.
pub fn launch(gpu: &Gpu, stream: &CudaStream) -> Result<(), DriverError> {
    // SAFETY: the kernel has no parameters.
    unsafe { result::launch_kernel(gpu.empty.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut []) }
}

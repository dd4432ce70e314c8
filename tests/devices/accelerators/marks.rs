//! Two threads of a program that begin and end its profiler range at the same time.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};
use support::virtual_time;
use support::wait::{sleep, wall};
use tracing_kineto::integration::{
    ApiCall, Capabilities, CaptureRange, Collector, DeviceWork, RecordLayout, RecordSink, RecordView, Recording,
    Selection, Thread, Unavailable,
};
use tracing_kineto::{ActivityType, ActivityTypes, ArgValue, Devices, KinetoLayer, Timestamp};

const TYPES: ActivityTypes = ActivityTypes::of(&[ActivityType::ConcurrentKernel, ActivityType::CudaRuntime]);

thread_local! {
    /// Whether the thread waits after its next reading of the clock.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// A collector whose clock can hold up a thread.
#[derive(Clone, Debug)]
struct SlowClock {
    started: Arc<Mutex<Option<(RecordSink, CaptureRange)>>>,
    /// Reports that a thread waits, and lets it return.
    gate: Arc<Mutex<(Sender<()>, Receiver<()>)>>,
}

#[derive(Debug)]
struct NoArgs;

impl RecordLayout for NoArgs {
    fn visit(&self, _: &RecordView<'_>, _: &mut dyn FnMut(&str, ArgValue<'_>)) {}
}

impl Collector for SlowClock {
    fn name(&self) -> &'static str {
        "npu"
    }

    fn types(&self) -> ActivityTypes {
        TYPES
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let mut capabilities = Capabilities::default();
        capabilities.types = TYPES;
        Ok(capabilities)
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        *self.started.lock().unwrap() = selection.range.clone().map(|range| (sink, range));
        Ok((self.probe()?, Box::new(self.clone())))
    }
}

impl Recording for SlowClock {
    fn sees_ranges(&self) -> bool {
        true
    }

    fn clock(&self) -> Option<u64> {
        let at = now();
        if WAITS.take() {
            let gate = self.gate.lock().unwrap();
            gate.0.send(()).unwrap();
            gate.1.recv().unwrap();
        }
        Some(at)
    }

    fn stop(&self, _: Timestamp, _: Instant) {}
}

fn now() -> u64 {
    u64::try_from(wall().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Waits longer than a piece of work takes, so that the next time is later than its end.
fn pause() {
    sleep(std::time::Duration::from_millis(2));
}

#[virtual_time]
fn slow_end_of_a_range_keeps_the_next_range() {
    let ((waits, is_waiting), (go, may_return)) = (channel(), channel());
    let npu = SlowClock { started: Arc::default(), gate: Arc::new(Mutex::new((waits, may_return))) };
    let builder =
        KinetoLayer::builder().no_output().collector(npu.clone()).devices(Devices::new().profiler_range(true));
    let (_layer, guard) = builder.activities(ActivityTypes::DEFAULT).build().unwrap();
    let (sink, range) = npu.started.lock().unwrap().clone().unwrap();
    let mut launched = Vec::new();
    let mut launch = || {
        pause();
        launched.push(now());
        pause();
    };
    range.begin();
    launch();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            WAITS.set(true);
            range.end();
        });
        is_waiting.recv().unwrap();
        range.end();
        pause();
        range.begin();
        launch();
        launch();
        go.send(()).unwrap();
    });
    range.begin();
    launch();
    range.end();
    // As libraries do, it delivers later.
    sink.record(|batch| {
        let (call, kernel) = (batch.name("launch"), batch.name("kernel"));
        for (correlation, at) in (1..).zip(&launched) {
            let times = (*at, at + 1000);
            let call = ApiCall::new(ActivityType::CudaRuntime, call, Thread::Id(1), times, &NoArgs);
            batch.call(&ApiCall { correlation, launches: true, ..call });
            let times = (at + 2000, at + 3000);
            let work = DeviceWork::new(ActivityType::ConcurrentKernel, kernel, (0, 7), times, &NoArgs);
            batch.work(&DeviceWork { correlation, ..work });
        }
    });
    let stats = guard.finish().unwrap().stats();
    assert_eq!((stats.device_activities, &stats.losses[..]), (launched.len() as u64, &[][..]), "{stats}");
}

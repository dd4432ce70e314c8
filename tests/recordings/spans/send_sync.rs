//! Types that are `Send` and `Sync`.

use tracing_kineto::{
    Error, Format, KinetoGuard, KinetoLayer, KinetoLayerBuilder, Loss, Profiler, RecordWhile, Schedule, Status,
    StepOutcome, Trace, TraceStats, TraceTrack,
};

const fn is_send_and_sync<T: Send + Sync + 'static>() {}

const _: () = {
    is_send_and_sync::<KinetoLayer>();
    is_send_and_sync::<KinetoGuard>();
    is_send_and_sync::<Profiler>();
    is_send_and_sync::<Schedule>();
    is_send_and_sync::<StepOutcome>();
    is_send_and_sync::<RecordWhile>();
    is_send_and_sync::<Trace>();
    is_send_and_sync::<TraceStats>();
    is_send_and_sync::<TraceTrack>();
    is_send_and_sync::<Error>();
    is_send_and_sync::<Status>();
    is_send_and_sync::<Loss>();
};

const fn is_send<T: Send>() {}

const _: () = is_send::<KinetoLayerBuilder>();

#[test]
fn trace_can_be_written_by_several_threads_at_once() {
    let (_layer, guard) = KinetoLayer::builder().no_output().build().expect("builds");
    let trace = guard.finish().expect("was recording");
    let write = || {
        let mut text = Vec::new();
        trace.write(&mut text, Format::Json).expect("writes to memory");
        text
    };
    let texts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
        threads.into_iter().map(|thread| thread.join().expect("does not panic")).collect::<Vec<_>>()
    });
    assert!(texts.iter().all(|text| *text == texts[0] && !text.is_empty()));
}

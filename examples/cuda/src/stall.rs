//! Records a service all the time and stalls one request of it: the dump that this triggers must show the request and its kernels.

use crate::program::Machine;
use crate::report::Report;
use crate::service::{self, LAUNCHES, THREADS, Visitor};
use crate::soak::resident;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tracing_kineto::analysis::Events;
use tracing_kineto::{DumpTrigger, Dumps, KinetoLayer, SessionObserver};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Slower requests are dumped; others may take that long when their threads have to wait for a processor.
const SLOW: Duration = Duration::from_millis(400);
const STALL: Duration = Duration::from_millis(500);
const LIMIT: u64 = 64 << 20;
/// From the trigger to the dump; shorter than by default.
const DUMP_AFTER: Duration = Duration::from_millis(100);

/// Serves the requests of that time, stalls one of them at half of it, and checks the dump next to `path`.
pub fn run(time: Duration, is_paced: bool, path: &str, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let (sender, dumps) = channel();
    let builder = KinetoLayer::builder().output(path).buffer_limit_bytes(LIMIT).session_observer(DumpSender(sender));
    // Another request may be slow before, because the machine is busy.
    let interval = Duration::from_secs(1);
    let triggers = Dumps::on([DumpTrigger::slow_span("request", SLOW)]).after(DUMP_AFTER).interval(interval);
    let (layer, guard) = builder.dumps(triggers).write_at_end(false).build()?;
    tracing_subscriber::registry().with(layer).init();
    let machine = Machine::open()?;
    let gpu = machine.gpus.first().ok_or("there is no GPU")?;

    let (is_dumping, begun) = (AtomicBool::new(false), OnceLock::<Instant>::new());
    let stalled = service::requests_of_thread(time) / 2;
    let visitor = |thread| {
        let stalls_in = (thread == 0).then_some(stalled);
        Watch { stalls_in, is_dumping: &is_dumping, begun: &begun, times: [Vec::new(), Vec::new()] }
    };
    let wait = || {
        let deadline = Instant::now() + time + Duration::from_secs(60);
        let is_of_stall = |dump: &(Instant, PathBuf)| begun.get().is_some_and(|begun| dump.0 > *begun + STALL);
        let next = || dumps.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        let dump = std::iter::from_fn(next).find(is_of_stall);
        is_dumping.store(false, Ordering::Relaxed);
        dump
    };
    let start = Instant::now();
    let (watches, dump) = service::serve(gpu, time, is_paced, visitor, wait)?;
    let served = start.elapsed();
    let (ended, dump) = dump.ok_or("no dump of the stalled request was written")?;
    let begun = begun.get().ok_or("no request stalled")?;
    let resident = resident()? >> 20;
    drop(guard);

    let took = ended.duration_since(*begun).saturating_sub(STALL + DUMP_AFTER);
    let events = Events::read(&dump)?;
    let request =
        events.iter().filter(|event| event.name() == "request").max_by_key(|event| event.end().since(event.start()));
    let request = request.ok_or("the dump has no request")?;
    let length = Duration::from_nanos(request.end().since(request.start()));
    let (attribution, tree) = (events.attribution(), events.span_tree());
    let is_own = |op| tree.ancestors(op).any(|span| span.span() == request.span());
    let kernels: Vec<_> = events.iter().filter(|event| event.is_device_work()).collect();
    let own = kernels.iter().filter(|kernel| attribution.op(**kernel).is_some_and(is_own)).count();
    let figures = format!("{length:.1?}, with {own} of {LAUNCHES} kernels; {} in the dump", kernels.len());
    report.check("the stalled request is in the dump", length >= STALL && own == LAUNCHES, figures);
    let requests: usize = watches.iter().map(Watch::requests).sum();
    let all = THREADS * service::requests_of_thread(time);
    report.check(
        "the service answers all",
        requests == all as usize,
        format_args!("{requests} of {all} in {served:.1?}"),
    );
    let size = std::fs::metadata(&dump)?.len() >> 10;
    report.say(format_args!(
        "      the dump was complete {took:.1?} after it was due, {size} KiB; {resident} MiB resident"
    ));
    for (which, when) in ["otherwise", "while it stalls and dumps"].into_iter().enumerate() {
        let mut times: Vec<_> = watches.iter().flat_map(|watch| watch.times[which].iter().copied()).collect();
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 1000).copied().unwrap_or(0);
        report.say(format_args!(
            "      a span takes {} ns, 99 %: {} ns, 99.9 %: {} ns, {when} ({} spans)",
            at(500),
            at(990),
            at(999),
            times.len()
        ));
    }
    Ok(())
}

/// Passes dumps on, each with the time of its end.
#[derive(Debug)]
struct DumpSender(Sender<(Instant, PathBuf)>);

impl SessionObserver for DumpSender {
    fn dump_ended(&self, reason: &str, dump: Result<&Path, &tracing_kineto::Error>) {
        match dump {
            Ok(path) => drop(self.0.send((Instant::now(), path.to_owned()))),
            Err(error) => eprintln!("no dump of {reason}: {error}"),
        }
    }
}

/// Stalls one request, and keeps the times of spans: otherwise, and from the stall to the end of the dump.
struct Watch<'w> {
    /// The request that stalls, if it is one of this thread.
    stalls_in: Option<u32>,
    is_dumping: &'w AtomicBool,
    begun: &'w OnceLock<Instant>,
    times: [Vec<u32>; 2],
}

impl Watch<'_> {
    fn requests(&self) -> usize {
        self.times.iter().map(Vec::len).sum()
    }
}

impl Visitor for Watch<'_> {
    fn in_request(&mut self, number: u32) {
        if self.stalls_in == Some(number) {
            self.is_dumping.store(true, Ordering::Relaxed);
            let _ = self.begun.set(Instant::now());
            thread::sleep(STALL);
        }
    }

    fn after_request(&mut self, span: Duration) {
        let which = usize::from(self.is_dumping.load(Ordering::Relaxed));
        self.times[which].push(u32::try_from(span.as_nanos()).unwrap_or(u32::MAX));
    }
}

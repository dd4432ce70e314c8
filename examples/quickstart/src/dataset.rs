//! The data set, read by two alternating futures on one thread.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tracing::{Span, field, info_span, instrument};

use crate::random::Random;

/// A point of one of the spirals.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub(crate) x: f32,
    pub(crate) y: f32,
    pub(crate) class: usize,
}

/// Reads two shards concurrently.
#[instrument(name = "fetch_data_set")]
pub(crate) fn fetch() -> io::Result<Vec<Point>> {
    let disk = Disk::start()?;
    let (mut points, more) = block_on_both(fetch_shard(&disk, 0, 6), fetch_shard(&disk, 1, 4));
    points.extend(more);
    Ok(points)
}

/// Reads and decodes block after block; it is polled many times, so the trace also shows it on an async track.
#[instrument(skip(disk), fields(points = field::Empty))]
async fn fetch_shard(disk: &Disk, shard: u64, blocks: u64) -> Vec<Point> {
    let mut points = Vec::new();
    for block in 0..blocks {
        let seed = disk.read(shard * 100 + block).await;
        info_span!("decode", block).in_scope(|| points.extend(spirals(seed, 2_000)));
    }
    Span::current().record("points", points.len());
    points
}

/// Returns points along three arms, with some noise.
fn spirals(seed: u64, count: usize) -> impl Iterator<Item = Point> {
    let mut random = Random(seed + 1);
    (0..3).cycle().take(count).map(move |class| {
        let radius = random.signed().abs();
        let angle = 5.0 * radius + 2.1 * class as f32 + 0.15 * random.signed();
        Point { x: radius * angle.cos(), y: radius * angle.sin(), class }
    })
}

/// A thread that simulates a slow disk.
struct Disk {
    requests: mpsc::Sender<(u64, Span, Arc<Mutex<Reply>>)>,
}

/// The state of a pending read.
#[derive(Default)]
struct Reply {
    seed: Option<u64>,
    waker: Option<Waker>,
}

impl Disk {
    fn start() -> io::Result<Disk> {
        let (requests, queue) = mpsc::channel::<(u64, Span, Arc<Mutex<Reply>>)>();
        let serve = move || {
            for (block, asked_by, reply) in queue {
                let span = info_span!(parent: None, "read_block", block);
                span.follows_from(&asked_by);
                span.in_scope(|| thread::sleep(Duration::from_millis(3)));
                let mut reply = reply.lock().unwrap_or_else(PoisonError::into_inner);
                reply.seed = Some(block);
                reply.waker.take().into_iter().for_each(Waker::wake);
            }
        };
        thread::Builder::new().name("disk".into()).spawn(serve)?;
        Ok(Disk { requests })
    }

    fn read(&self, block: u64) -> Read {
        let reply = Arc::new(Mutex::new(Reply::default()));
        drop(self.requests.send((block, Span::current(), reply.clone())));
        Read(reply)
    }
}

/// The future of a block.
struct Read(Arc<Mutex<Reply>>);

impl Future for Read {
    type Output = u64;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        let mut reply = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reply.waker = Some(context.waker().clone());
        reply.seed.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Polls both futures alternately on this thread, which sleeps while neither is ready.
fn block_on_both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let (mut a, mut b, mut first, mut second) = (pin!(a), pin!(b), None, None);
    loop {
        if first.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(&mut context)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(&mut context)
        {
            second = Some(value);
        }
        match (first, second) {
            (Some(first), Some(second)) => return (first, second),
            halves => (first, second) = halves,
        }
        thread::park();
    }
}

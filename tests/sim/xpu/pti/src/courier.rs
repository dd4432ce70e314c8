//! The client's two callbacks, and the thread that brings full buffers.

use crate::buffer::Buffer;
use crate::code::{Code, Outcome};
use crate::layout;
use crate::link;
use crate::shared::counters::count;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Asks for a buffer: its address and size.
pub(crate) type Requested = extern "C" fn(*mut *mut u8, *mut usize);
/// Gives a buffer back: address, size, and the bytes in use.
pub(crate) type Completed = extern "C" fn(*mut u8, usize, usize);

static CALLBACKS: Mutex<Option<(Requested, Completed)>> = Mutex::new(None);

/// Sets the callbacks, and asks for the first buffer at once.
///
/// # Errors
/// That buffer is no good; the callbacks before stay.
pub(crate) fn register(requested: Requested, completed: Completed) -> Outcome<Buffer> {
    let buffer = ask(requested, completed).ok_or(Code::BAD_ARGUMENT)?;
    *CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner) = Some((requested, completed));
    Ok(buffer)
}

fn callbacks() -> Option<(Requested, Completed)> {
    *CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn is_registered() -> bool {
    callbacks().is_some()
}

/// A new buffer; none if the client refuses, or gives one that holds no record, which it gets back.
pub(crate) fn request() -> Option<Buffer> {
    let (requested, completed) = callbacks()?;
    ask(requested, completed)
}

fn ask(requested: Requested, completed: Completed) -> Option<Buffer> {
    let options = link::options();
    dawdle(options.slow_callbacks);
    let (mut address, mut size) = (std::ptr::null_mut(), 0);
    requested(&raw mut address, &raw mut size);
    count(&link::counters().requested_buffers);
    if address.is_null() || size < layout::longest(options) {
        completed(address, size, 0);
        return None;
    }
    Some(Buffer::new(address, size))
}

fn dawdle(ms: u64) {
    if ms != 0 {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// Buffers for the thread that brings them, and when.
#[derive(Debug)]
struct Parcel {
    buffers: Vec<Buffer>,
    due: Instant,
    /// Told when they are there.
    done: Sender<()>,
}

static COURIER: LazyLock<Mutex<Sender<Parcel>>> = LazyLock::new(|| {
    let (sender, receiver) = channel();
    let courier = std::thread::Builder::new().name("sim-pti".to_owned());
    courier.spawn(move || bring(receiver)).map(drop).unwrap_or_else(|error| eprintln!("sim-pti: {error}"));
    Mutex::new(sender)
});

fn bring(parcels: Receiver<Parcel>) {
    for parcel in parcels {
        std::thread::sleep(parcel.due.saturating_duration_since(Instant::now()));
        complete(parcel.buffers);
        // Nobody waits any more: nothing to tell.
        let _ = parcel.done.send(());
    }
}

/// Gives buffers to the client, on a thread of our own unless an option says otherwise; waits for it if asked to, which
/// it does not do for buffers that are late.
pub(crate) fn deliver(buffers: Vec<Buffer>, is_waiting: bool) {
    let options = link::options();
    if !options.foreign_thread && options.late_buffers == 0 {
        return complete(buffers);
    }
    let (done, wait) = channel();
    let due = Instant::now() + Duration::from_millis(options.late_buffers);
    let sent = COURIER.lock().unwrap_or_else(PoisonError::into_inner).send(Parcel { buffers, due, done });
    match sent {
        Ok(()) if is_waiting && options.late_buffers == 0 => drop(wait.recv()),
        Ok(()) => {}
        // There is no such thread: then from here.
        Err(unsent) => complete(unsent.0.buffers),
    }
}

fn complete(buffers: Vec<Buffer>) {
    let Some((_, completed)) = callbacks() else { return };
    for buffer in buffers {
        dawdle(link::options().slow_callbacks);
        count(&link::counters().delivered_buffers);
        buffer.deliver(completed);
    }
}

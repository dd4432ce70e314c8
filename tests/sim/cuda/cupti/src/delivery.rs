//! The client's two callbacks, and the thread that brings buffers late.

use crate::buffer::Buffer;
use crate::layout;
use crate::link;
use crate::shared::counters::count;
use std::ffi::c_void;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Asks for a buffer: its address, size and most records, the last 0 for as many as fit.
pub(crate) type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives a buffer back: context and stream, which are of no use, address, size, and the bytes in use.
pub(crate) type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

static CALLBACKS: Mutex<Option<(Requested, Completed)>> = Mutex::new(None);

pub(crate) fn register(requested: Requested, completed: Completed) {
    *CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner) = Some((requested, completed));
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
    dawdle();
    let (mut address, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
    requested(&raw mut address, &raw mut size, &raw mut most);
    count(&link::counters().requested_buffers);
    if address.is_null() {
        return None;
    }
    if size < layout::longest(link::options().cupti) {
        completed(std::ptr::null_mut(), 0, address, size, 0);
        return None;
    }
    Some(Buffer::new(address, size, most))
}

/// Sleeps as long as an option says.
fn dawdle() {
    match link::options().slow_callbacks {
        0 => {}
        ms => std::thread::sleep(Duration::from_millis(ms)),
    }
}

/// Buffers for the thread that brings them, and when.
#[derive(Debug)]
struct Parcel {
    buffers: Vec<Buffer>,
    due: Instant,
    /// Told when they are there.
    done: Option<Sender<()>>,
}

static COURIER: LazyLock<Mutex<Sender<Parcel>>> = LazyLock::new(|| {
    let (sender, receiver) = channel();
    let courier = std::thread::Builder::new().name("sim-cupti".to_owned());
    courier.spawn(move || bring(receiver)).map(drop).unwrap_or_else(|error| eprintln!("sim-cupti: {error}"));
    Mutex::new(sender)
});

fn bring(parcels: Receiver<Parcel>) {
    for parcel in parcels {
        std::thread::sleep(parcel.due.saturating_duration_since(Instant::now()));
        complete(parcel.buffers);
        if let Some(done) = parcel.done {
            // Nobody waits any more: nothing to tell.
            let _ = done.send(());
        }
    }
}

/// Gives buffers to the client: at once, or as the options say. What is not late is there when this returns.
pub(crate) fn deliver(mut buffers: Vec<Buffer>) {
    if buffers.is_empty() {
        return;
    }
    buffers.iter_mut().for_each(Buffer::close);
    let options = link::options();
    if options.late_buffers == 0 && !options.foreign_thread {
        return complete(buffers);
    }
    let late = Duration::from_millis(options.late_buffers);
    let (done, wait) = channel();
    let done = late.is_zero().then_some(done);
    let is_waiting = done.is_some();
    let sent = {
        let courier = COURIER.lock().unwrap_or_else(PoisonError::into_inner);
        courier.send(Parcel { buffers, due: Instant::now() + late, done })
    };
    match sent {
        Ok(()) if is_waiting => drop(wait.recv()),
        Ok(()) => {}
        // There is no such thread: then from here.
        Err(unsent) => complete(unsent.0.buffers),
    }
}

fn complete(buffers: Vec<Buffer>) {
    let Some((_, completed)) = callbacks() else { return };
    for buffer in buffers {
        dawdle();
        count(&link::counters().delivered_buffers);
        let used = if link::options().one_byte { 1 } else { buffer.used };
        completed(std::ptr::null_mut(), 0, buffer.address, buffer.size, used);
    }
}

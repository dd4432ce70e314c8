//! The client's two callbacks, and the thread that brings full buffers.

use crate::code::{Code, Outcome};
use crate::layout;
use crate::link;
use crate::shared::clock::now;
use crate::shared::counters::count;
use sim_core::buffer::RecordBuffer as Buffer;
use sim_core::delivery::DeliveryThread;
use sim_core::handles::lock;
use std::sync::Mutex;
use std::time::Duration;

/// Asks for a buffer: its address and size.
pub(crate) type Requested = extern "C" fn(*mut *mut u8, *mut usize);
/// Gives a buffer back: address, size, and the bytes in use.
pub(crate) type Completed = extern "C" fn(*mut u8, usize, usize);

/// Bytes by which a buffer is reported shorter than what is in it, on demand.
const CUT: usize = 20;

static CALLBACKS: Mutex<Option<(Requested, Completed)>> = Mutex::new(None);

/// Sets the callbacks, and asks for the first buffer at once.
///
/// # Errors
/// That buffer is no good; the callbacks before stay.
pub(crate) fn register(requested: Requested, completed: Completed) -> Outcome<Buffer> {
    let buffer = ask(requested, completed).ok_or(Code::BAD_ARGUMENT)?;
    *lock(&CALLBACKS) = Some((requested, completed));
    Ok(buffer)
}

fn callbacks() -> Option<(Requested, Completed)> {
    *lock(&CALLBACKS)
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
    sim_core::clock::sleep(Duration::from_millis(options.slow_callbacks));
    let (mut address, mut size) = (std::ptr::null_mut(), 0);
    requested(&raw mut address, &raw mut size);
    count(&link::counters().requested_buffers);
    if address.is_null() || size < layout::longest(options) {
        completed(address, size, 0);
        return None;
    }
    Some(Buffer::new(address, size, 0))
}

static DELIVERY: DeliveryThread<Vec<Buffer>> = DeliveryThread::new("sim-pti", complete, None);

/// Delivers buffers to the client, on a separate thread unless an option disables it; waits on request, except for late
/// buffers.
pub(crate) fn deliver(buffers: Vec<Buffer>, is_waiting: bool) {
    let options = link::options();
    if !options.foreign_thread && options.late_buffers == 0 {
        return complete(buffers);
    }
    DELIVERY.deliver(buffers, options.late_buffers, is_waiting);
}

fn complete(buffers: Vec<Buffer>) {
    let Some((_, completed)) = callbacks() else { return };
    for mut buffer in buffers {
        let options = link::options();
        sim_core::clock::sleep(Duration::from_millis(options.slow_callbacks));
        count(&link::counters().delivered_buffers);
        buffer.close(now());
        let cut = if options.cut_buffers && buffer.used > CUT { CUT } else { 0 };
        completed(buffer.address, buffer.size, buffer.used - cut);
    }
}

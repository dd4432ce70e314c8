//! The client's two callbacks, and the thread that brings buffers late.

use crate::layout;
use crate::link;
use crate::shared::clock::now;
use crate::shared::counters::count;
use sim_core::buffer::RecordBuffer as Buffer;
use sim_core::delivery::DeliveryThread;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Requests a buffer: its address, size and most records (0 for as many as fit).
pub(crate) type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Returns a buffer: context and stream, both unused, address, size, and the bytes in use.
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

/// Requests a new buffer; none if the client refuses, or if its buffer fits no record and is returned.
pub(crate) fn request() -> Option<Buffer> {
    let (requested, completed) = callbacks()?;
    delay_callback();
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

static DELIVERY: DeliveryThread<Vec<Buffer>> = DeliveryThread::new("sim-cupti", complete);

/// Delivers buffers to the client, at once or with the delay that the options set.
pub(crate) fn deliver(mut buffers: Vec<Buffer>) {
    if buffers.is_empty() {
        return;
    }
    buffers.iter_mut().for_each(|buffer| buffer.close(now()));
    let options = link::options();
    if options.late_buffers == 0 && !options.foreign_thread {
        return complete(buffers);
    }
    DELIVERY.deliver(buffers, options.late_buffers, true);
}

/// Waits for the time that an option sets.
fn delay_callback() {
    std::thread::sleep(Duration::from_millis(link::options().slow_callbacks));
}

fn complete(buffers: Vec<Buffer>) {
    let Some((_, completed)) = callbacks() else { return };
    for buffer in buffers {
        delay_callback();
        count(&link::counters().delivered_buffers);
        let used = if link::options().one_byte { 1 } else { buffer.used };
        completed(std::ptr::null_mut(), 0, buffer.address, buffer.size, used);
    }
}

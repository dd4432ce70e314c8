//! A client's two callbacks, and the thread that brings buffers late.

use crate::client::{self, Client};
use crate::layout;
use crate::link;
use crate::selected_fields::BufferInfo;
use crate::shared::clock::now;
use crate::shared::counters::count;
use sim_core::buffer::RecordBuffer as Buffer;
use sim_core::delivery::DeliveryThread;
use sim_core::handles::lock;
use std::ffi::c_void;
use std::time::Duration;

/// Requests a buffer: its address, size and most records (0 for as many as fit).
pub(crate) type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Returns a buffer: context and stream, both unused, address, size, and the bytes in use.
pub(crate) type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The same for a subscriber: without context and stream, and with facts about the buffer at the end.
pub(crate) type SharedRequested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const c_void);
pub(crate) type SharedCompleted = extern "C" fn(*mut u8, usize, usize, *const BufferInfo);

/// The callbacks of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callbacks {
    First(Requested, Completed),
    Shared(SharedRequested, SharedCompleted),
}

impl Client {
    pub(crate) fn register(&self, callbacks: Callbacks) {
        *lock(&self.callbacks) = Some(callbacks);
    }

    fn registered(&self) -> Option<Callbacks> {
        *lock(&self.callbacks)
    }

    fn complete(&self, buffer: *mut u8, size: usize, used: usize) {
        match self.registered() {
            Some(Callbacks::First(_, completed)) => completed(std::ptr::null_mut(), 0, buffer, size, used),
            Some(Callbacks::Shared(_, completed)) => {
                self.selected_fields.with_info(&self.activity, |info| completed(buffer, size, used, info));
            }
            None => {}
        }
    }
}

/// Returns whether any client has registered callbacks.
pub(crate) fn is_registered() -> bool {
    let mut is_registered = false;
    client::for_each(|client| is_registered |= client.registered().is_some());
    is_registered
}

/// Requests a new buffer; none if the client refuses, or if its buffer fits no record and is returned.
pub(crate) fn request(client: &'static Client) -> Option<Buffer> {
    let callbacks = client.registered()?;
    delay_callback();
    let (mut address, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
    match callbacks {
        Callbacks::First(requested, _) => requested(&raw mut address, &raw mut size, &raw mut most),
        Callbacks::Shared(requested, _) => {
            requested(&raw mut address, &raw mut size, &raw mut most, std::ptr::null());
        }
    }
    count(&link::counters().requested_buffers);
    if address.is_null() {
        return None;
    }
    if size < layout::longest(link::options().cupti) {
        client.complete(address, size, 0);
        return None;
    }
    Some(Buffer::new(address, size, most))
}

static DELIVERY: DeliveryThread<(&'static Client, Vec<Buffer>)> = DeliveryThread::new("sim-cupti", complete, None);

/// Delivers buffers to the client, at once or with the delay that the options set.
pub(crate) fn deliver(client: &'static Client, mut buffers: Vec<Buffer>) {
    if buffers.is_empty() {
        return;
    }
    buffers.iter_mut().for_each(|buffer| buffer.close(now()));
    let options = link::options();
    if options.late_buffers == 0 && !options.foreign_thread {
        return complete((client, buffers));
    }
    DELIVERY.deliver((client, buffers), options.late_buffers, true);
}

/// Waits for the time that an option sets.
fn delay_callback() {
    sim_core::clock::sleep(Duration::from_millis(link::options().slow_callbacks));
}

fn complete((client, buffers): (&'static Client, Vec<Buffer>)) {
    if client.registered().is_none() {
        return;
    }
    for buffer in buffers {
        delay_callback();
        count(&link::counters().delivered_buffers);
        let used = if link::options().one_byte { 1 } else { buffer.used };
        client.complete(buffer.address, buffer.size, used);
    }
}

//! The thread that brings buffers to the client.

use crate::channel::{Receiver, Sender, channel};
use crate::wait::{sleep, steady};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A thread that delivers buffers to the client. It starts at the first delivery.
#[derive(Debug)]
pub struct DeliveryThread<T> {
    name: &'static str,
    complete: fn(T),
    deliveries: OnceLock<Mutex<Sender<Delivery<T>>>>,
}

#[derive(Debug)]
struct Delivery<T> {
    buffers: T,
    due: Instant,
    /// Receives a message when the client has the buffers.
    done: Sender<()>,
}

impl<T: Send + 'static> DeliveryThread<T> {
    pub const fn new(name: &'static str, complete: fn(T)) -> DeliveryThread<T> {
        DeliveryThread { name, complete, deliveries: OnceLock::new() }
    }

    /// Delivers buffers after that many milliseconds. `waits` returns after the delivery, unless there is a delay.
    pub fn deliver(&self, buffers: T, delay: u64, waits: bool) {
        let (done, wait) = channel();
        let due = steady() + Duration::from_millis(delay);
        let sent = {
            let deliveries = self.deliveries.get_or_init(|| self.start());
            deliveries.lock().unwrap_or_else(PoisonError::into_inner).send(Delivery { buffers, due, done })
        };
        match sent {
            Ok(()) if waits && delay == 0 => drop(wait.recv()),
            Ok(()) => {}
            // The thread could not be started.
            Err(unsent) => (self.complete)(unsent.0.buffers),
        }
    }

    fn start(&self) -> Mutex<Sender<Delivery<T>>> {
        let (sender, receiver): (_, Receiver<Delivery<T>>) = channel();
        let complete = self.complete;
        let run = move || {
            for Delivery { buffers, due, done } in receiver {
                sleep(due.saturating_duration_since(steady()));
                complete(buffers);
                // An error means that no thread waits.
                let _ = done.send(());
            }
        };
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        thread.spawn(run).map(drop).unwrap_or_else(|error| eprintln!("{}: {error}", self.name));
        Mutex::new(sender)
    }
}

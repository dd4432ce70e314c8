//! The thread that brings buffers to the client.

use crate::channel::{Receiver, Sender, channel};
use crate::handles::lock;
use crate::wait::{sleep, steady};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The longest sleep of a thread that collects.
const NAP: Duration = Duration::from_millis(1);

/// A thread that delivers buffers to the client.
#[derive(Debug)]
pub struct DeliveryThread<T> {
    name: &'static str,
    complete: fn(T),
    /// What it does each millisecond, and before each delivery.
    collect: Option<fn()>,
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
    pub const fn new(name: &'static str, complete: fn(T), collect: Option<fn()>) -> DeliveryThread<T> {
        DeliveryThread { name, complete, collect, deliveries: OnceLock::new() }
    }

    /// Delivers buffers after that many milliseconds. `waits` returns after the delivery, unless there is a delay.
    pub fn deliver(&self, buffers: T, delay: u64, waits: bool) {
        let (done, wait) = channel();
        let due = steady() + Duration::from_millis(delay);
        let sent = lock(self.sender()).send(Delivery { buffers, due, done });
        match sent {
            Ok(()) if waits && delay == 0 => drop(wait.recv()),
            Ok(()) => {}
            // The thread could not be started.
            Err(unsent) => (self.complete)(unsent.0.buffers),
        }
    }

    /// Starts the thread if necessary; a delivery does so too.
    pub fn start(&self) {
        self.sender();
    }

    fn sender(&self) -> &Mutex<Sender<Delivery<T>>> {
        self.deliveries.get_or_init(|| {
            let (sender, receiver) = channel();
            let (complete, collect) = (self.complete, self.collect);
            let thread = std::thread::Builder::new().name(self.name.to_owned());
            let started = thread.spawn(move || run(&receiver, complete, collect));
            started.map(drop).unwrap_or_else(|error| eprintln!("{}: {error}", self.name));
            Mutex::new(sender)
        })
    }
}

fn run<T>(deliveries: &Receiver<Delivery<T>>, complete: fn(T), collect: Option<fn()>) {
    loop {
        let next = match collect {
            Some(_) => deliveries.recv_timeout(NAP),
            None => deliveries.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if let Some(collect) = collect {
            collect();
        }
        match next {
            Ok(Delivery { buffers, due, done }) => {
                sleep(due.saturating_duration_since(steady()));
                complete(buffers);
                // An error means that no thread waits.
                let _ = done.send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

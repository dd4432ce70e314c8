//! A queue between threads: a lock, a list and two conditions.
//!
//! It has the calls and the errors of [`std::sync::mpsc`], which compiles three queues for each type of message, 15 KiB of machine
//! code in all. This one is a tenth of that, and its lock costs nothing at the rates of commands and blocks.

use crate::wait::{Condvar, steady};
use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The end of a channel that messages are put in.
pub struct Sender<T>(Arc<Channel<T>>);

/// The end of a channel that messages are taken from.
pub struct Receiver<T>(Arc<Channel<T>>);

struct Channel<T> {
    queue: Mutex<Queue<T>>,
    /// A message arrived, or the last sender is gone.
    is_readable: Condvar,
    /// A message was taken, or the receiver is gone.
    is_writable: Condvar,
}

struct Queue<T> {
    messages: VecDeque<T>,
    messages_max: usize,
    senders: usize,
    has_receiver: bool,
}

/// Creates a channel of any number of messages.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// Creates a channel of at most `messages_max` messages, and at least one; further senders wait.
pub fn bounded<T>(messages_max: usize) -> (Sender<T>, Receiver<T>) {
    let messages_max = messages_max.max(1);
    let queue = Queue { messages: VecDeque::new(), messages_max, senders: 1, has_receiver: true };
    let (is_readable, is_writable) = (Condvar::new(), Condvar::new());
    let channel = Arc::new(Channel { queue: Mutex::new(queue), is_readable, is_writable });
    (Sender(channel.clone()), Receiver(channel))
}

impl<T> Channel<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    /// Puts a message in; waits while the channel is full.
    ///
    /// # Errors
    /// The message, if the receiver is gone.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut queue = self.0.lock();
        while queue.has_receiver && queue.messages.len() >= queue.messages_max {
            queue = self.0.is_writable.wait(&self.0.queue, queue);
        }
        self.put(queue, message).map_err(SendError)
    }

    /// Puts a message in, if there is space.
    ///
    /// # Errors
    /// The message, if the channel is full or the receiver is gone.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let queue = self.0.lock();
        if queue.has_receiver && queue.messages.len() >= queue.messages_max {
            return Err(TrySendError::Full(message));
        }
        self.put(queue, message).map_err(TrySendError::Disconnected)
    }

    fn put(&self, mut queue: MutexGuard<'_, Queue<T>>, message: T) -> Result<(), T> {
        if !queue.has_receiver {
            return Err(message);
        }
        queue.messages.push_back(message);
        drop(queue);
        self.0.is_readable.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Takes the oldest message; waits for one.
    ///
    /// # Errors
    /// The channel is empty, and all senders are gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.take(None).map_err(|_| RecvError)
    }

    /// Takes the oldest message; waits for one for at most that time.
    ///
    /// # Errors
    /// There is none in that time, or there will be none because all senders are gone.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.take(Some(timeout))
    }

    /// Takes the oldest message.
    ///
    /// # Errors
    /// There is none now, or there will be none because all senders are gone.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.take(Some(Duration::ZERO)).map_err(|error| match error {
            RecvTimeoutError::Timeout => TryRecvError::Empty,
            RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
        })
    }

    fn take(&self, timeout: Option<Duration>) -> Result<T, RecvTimeoutError> {
        // A time beyond the clock's range is no limit.
        let deadline = timeout.and_then(|timeout| steady().checked_add(timeout));
        let mut queue = self.0.lock();
        loop {
            if let Some(message) = queue.messages.pop_front() {
                drop(queue);
                self.0.is_writable.notify_one();
                return Ok(message);
            }
            if queue.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            queue = match deadline {
                None => self.0.is_readable.wait(&self.0.queue, queue),
                Some(deadline) if steady() >= deadline => return Err(RecvTimeoutError::Timeout),
                Some(deadline) => self.0.is_readable.wait_until(&self.0.queue, queue, deadline),
            };
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.senders -= 1;
        if queue.senders == 0 {
            drop(queue);
            self.0.is_readable.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.has_receiver = false;
        let unread = std::mem::take(&mut queue.messages);
        drop(queue);
        self.0.is_writable.notify_all();
        // After the lock is released: a message may hold a sender of this channel.
        drop(unread);
    }
}

/// Takes messages until all senders are gone.
impl<T> Iterator for Receiver<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.recv().ok()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn messages_arrive_in_order_until_senders_are_gone() {
        let (sender, receiver) = bounded(2);
        let other = sender.clone();
        let writer = thread::Builder::new().spawn(move || (0..1_000).try_for_each(|n| sender.send(n))).unwrap();
        assert_eq!((&mut { receiver }).take(1_000).collect::<Vec<_>>(), (0..1_000).collect::<Vec<_>>());
        assert_eq!(writer.join().unwrap(), Ok(()));
        // The receiver is gone.
        assert_eq!(other.send(1), Err(SendError(1)));
    }

    #[test]
    fn receiver_returns_the_rest_and_the_end() {
        let (sender, receiver) = channel();
        sender.send("a").unwrap();
        drop(sender);
        assert_eq!(receiver.recv_timeout(Duration::MAX), Ok("a"));
        assert_eq!(receiver.recv(), Err(RecvError));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn full_and_empty_channels_are_told_from_closed_ones() {
        let (sender, receiver) = bounded(1);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
        assert_eq!(sender.try_send(1), Ok(()));
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        drop(receiver);
        assert_eq!(sender.try_send(2), Err(TrySendError::Disconnected(2)));
    }

    #[test]
    fn end_of_the_receiver_wakes_a_sender_that_waits() {
        let (sender, receiver) = bounded(1);
        sender.send(1).unwrap();
        let waiting = thread::Builder::new().spawn(move || sender.send(2)).unwrap();
        drop(receiver);
        assert_eq!(waiting.join().unwrap(), Err(SendError(2)));
    }

    #[test]
    fn unread_message_may_hold_a_sender_of_its_channel() {
        struct Answer(#[expect(dead_code, reason = "its drop is the test")] Sender<Answer>);
        let (sender, receiver) = channel();
        sender.send(Answer(sender.clone())).unwrap();
        drop(receiver);
        assert!(sender.send(Answer(sender.clone())).is_err());
    }
}

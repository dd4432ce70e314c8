//! Captures: streams whose work becomes graph nodes, and the calls that invalidate a capture.

use crate::engine::Job;
use crate::error::{Error, Outcome};
use crate::graph::Graph;
use crate::state::State;
use std::thread::ThreadId;

/// A running capture.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The stream that it began in.
    stream: u64,
    mode: u32,
    thread: ThreadId,
    spoiled: bool,
    pub(crate) jobs: Vec<Job>,
}

/// Whether a stream captures, by CUDA's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    None = 0,
    Active = 1,
    Invalidated = 2,
}

/// Modes: unsafe calls are forbidden to all threads, to the capturing thread, or to none.
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;

impl State {
    pub(crate) fn begin_capture(&mut self, stream: u64, mode: u32) -> Outcome {
        let id = self.ids.next_id();
        let origin = self.streams.get_mut(&stream).ok_or(Error::INVALID_HANDLE)?;
        if origin.capture.is_some() {
            return Err(Error::ILLEGAL_STATE);
        }
        let is_null = self.contexts.values().any(|context| context.null_stream == stream);
        if is_null {
            return Err(Error::CAPTURE_UNSUPPORTED);
        }
        origin.capture = Some(id);
        let thread = std::thread::current().id();
        self.captures.insert(id, Capture { stream, mode, thread, spoiled: false, jobs: Vec::new() });
        Ok(())
    }

    /// Ends the capture that began in `stream`; returns the graph's handle.
    pub(crate) fn end_capture(&mut self, stream: u64) -> Outcome<u64> {
        let id = self.streams.get(&stream).and_then(|stream| stream.capture).ok_or(Error::ILLEGAL_STATE)?;
        if self.captures.get(&id).is_none_or(|capture| capture.stream != stream) {
            return Err(Error::CAPTURE_UNMATCHED);
        }
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
        for event in self.events.values_mut().filter(|event| event.capture == Some(id)) {
            event.capture = None;
        }
        let capture = self.captures.remove(&id).ok_or(Error::ILLEGAL_STATE)?;
        if capture.spoiled {
            return Err(Error::CAPTURE_INVALIDATED);
        }
        let handle = self.ids.next_handle();
        self.graphs.insert(handle, Graph { jobs: capture.jobs });
        Ok(handle)
    }

    pub(crate) fn capture_status(&self, stream: u64) -> Status {
        let capture = self.streams.get(&stream).and_then(|stream| self.captures.get(&stream.capture?));
        match capture {
            None => Status::None,
            Some(capture) if capture.spoiled => Status::Invalidated,
            Some(_) => Status::Active,
        }
    }

    /// Returns whether that is a default stream, and one that synchronizes with it is being captured.
    pub(crate) fn blocks_legacy_stream(&self, stream: u64) -> bool {
        let blocks = |context: u64| {
            self.streams.values().any(|other| other.context == context && other.blocking && other.capture.is_some())
        };
        self.contexts.iter().any(|(handle, context)| context.null_stream == stream && blocks(*handle))
    }

    /// Returns the capture of a stream.
    ///
    /// # Errors
    /// The capture has been invalidated.
    pub(crate) fn capture_of(&mut self, stream: u64) -> Outcome<Option<&mut Capture>> {
        let Some(id) = self.streams.get(&stream).and_then(|stream| stream.capture) else { return Ok(None) };
        match self.captures.get_mut(&id) {
            Some(capture) if capture.spoiled => Err(Error::CAPTURE_INVALIDATED),
            capture => Ok(capture),
        }
    }

    /// For calls that wait for a stream: during a capture they fail and invalidate it.
    pub(crate) fn forbid_on_capturing(&mut self, stream: u64) -> Outcome {
        match self.capture_of(stream)? {
            None => Ok(()),
            Some(capture) => {
                capture.spoiled = true;
                Err(Error::CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// For calls that may wait for any stream: as [`State::forbid_on_capturing`], for all captures whose mode forbids it.
    pub(crate) fn forbid_while_capturing(&mut self) -> Outcome {
        let thread = std::thread::current().id();
        let cares = |capture: &Capture| match capture.mode {
            GLOBAL => true,
            THREAD_LOCAL => capture.thread == thread,
            _ => false,
        };
        let mut found = false;
        for capture in self.captures.values_mut().filter(|capture| cares(capture)) {
            capture.spoiled = true;
            found = true;
        }
        if found { Err(Error::CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }
}

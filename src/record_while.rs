//! A layer that lets the recording run only while a span with a given name is open.

use crate::session::{SessionHandle, SessionRecording};
use std::fmt;
use tracing_core::Subscriber;
use tracing_core::span::Id;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Pauses the recording while no span with its name is entered, on any thread.
///
/// [`Profiler::record_while`](crate::Profiler::record_while) creates it. Add it to the registry before the
/// [`KinetoLayer`](crate::KinetoLayer), so that the recording contains the span that resumes it; that span ends with the
/// window, marked `"finished": false`.
#[must_use = "put it on the registry, before the KinetoLayer: until then, nothing is recorded"]
pub struct RecordWhile {
    session: SessionHandle,
    name: String,
}

impl fmt::Debug for RecordWhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordWhile").field("span", &self.name).finish_non_exhaustive()
    }
}

impl RecordWhile {
    pub(crate) fn new(session: SessionHandle, name: &str) -> RecordWhile {
        if let Some(session) = session.get() {
            session.recording.wait_for_span();
        }
        RecordWhile { session, name: name.to_owned() }
    }

    /// Returns the recordings if the span is one that they depend on.
    fn recording_of_span<S>(&self, id: &Id, ctx: &Context<'_, S>) -> Option<&SessionRecording>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let session = self.session.get()?;
        (ctx.metadata(id)?.name() == self.name).then_some(&*session.recording)
    }
}

impl<S> Layer<S> for RecordWhile
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        self.recording_of_span(id, &ctx).into_iter().for_each(SessionRecording::enter_awaited_span);
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        self.recording_of_span(id, &ctx).into_iter().for_each(SessionRecording::exit_awaited_span);
    }
}

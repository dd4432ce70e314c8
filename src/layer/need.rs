//! What is missing where a hook is not done in the usual way.

use crate::recorder::SpanState;

/// What a hook needs before it can be done; see [`super::find::settle`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// The thread has no lane for this epoch yet.
    Lane,
    /// The chunk is full.
    Chunk,
    /// The thread does not know the span.
    Find,
    /// The thread does not know that the span was entered.
    ExitElsewhere,
    /// The state of that span has to be stored in the recorder's table first.
    Store(u64, SpanState),
    /// The new span has no place but the recorder's table.
    StoreNew(SpanState),
    /// The span may be known to others, who have to hear that it closes.
    CloseElsewhere,
}

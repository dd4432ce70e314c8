//! What a hook lacks when its fast path fails.

use crate::recorder::SpanState;

/// What a hook lacks; see [`super::find::supply_missing`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missing {
    /// The thread has no lane for this epoch yet.
    Lane,
    /// The chunk is full.
    Chunk,
    /// The thread does not know the span.
    Find,
    /// The thread does not know that the span was entered.
    ExitElsewhere,
    /// The state of that span must be stored in the span table first.
    Store(u64, SpanState),
    /// The new span has no frame and must be stored in the span table.
    StoreNew(SpanState),
    /// Other threads may know the span that closes.
    CloseElsewhere,
}

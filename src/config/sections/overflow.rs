//! The behaviour at the buffer limit.

/// The behaviour of a recording at the buffer limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overflow {
    /// Keeps the records so far and counts further ones.
    #[default]
    Stop,
    /// Replaces the oldest records with new ones, so that a trace holds the last part of the recording, for at most
    /// [`keep`](crate::KinetoLayerBuilder::keep).
    ///
    /// The trace is one window: after its start, nothing is missing. Spans that were open at its start are drawn from there,
    /// with their fields. What was replaced is counted in [`before_window`](crate::TraceStats::before_window).
    ///
    /// ```
    /// use tracing::info_span;
    /// use tracing_kineto::{KinetoLayer, Overflow};
    /// use tracing_subscriber::prelude::*;
    ///
    /// let builder = KinetoLayer::builder().no_output();
    /// let (layer, guard) = builder.overflow(Overflow::KeepNewest).buffer_limit_bytes(1 << 20).build()?;
    /// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    ///     (0..100_000).for_each(|_| info_span!("work").in_scope(|| ()));
    /// });
    /// let stats = guard.finish()?.stats();
    /// assert!(stats.bytes <= 1 << 20);
    /// assert_eq!(stats.slices + stats.before_window, 100_000);
    /// # Ok::<(), tracing_kineto::Error>(())
    /// ```
    KeepNewest,
    /// Moves records to a temporary file. Not available yet: `build()` returns an error.
    Spill,
}

impl Overflow {
    /// All variants.
    pub const ALL: [Overflow; 3] = [Overflow::Stop, Overflow::KeepNewest, Overflow::Spill];

    /// Returns its name in `KINETO_OVERFLOW`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Overflow::Stop => "stop",
            Overflow::KeepNewest => "keep_newest",
            Overflow::Spill => "spill",
        }
    }
}

//! The behaviour at the buffer limit.

use super::super::Config;
use super::super::keys::Key;
use super::super::value::Value;

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
    /// Moves the oldest records to disk, for recordings of hours in constant memory.
    ///
    /// Whenever 32 MiB or a quarter of the limit are complete, and each minute, a thread writes them as a
    /// [segment](crate::Segment) into a folder next to the output, or in that of
    /// [folder](crate::Spill::folder). A [`Split`](crate::Split) replaces the 32 MiB and the minute. When the guard is dropped, each part becomes a file:
    /// `app.part0001.json.gz`, `app.part0002.json.gz` and so on for `app.json.gz`. A recording that ends
    /// before its first part does is one file.
    ///
    /// A slice is in each part whose time it overlaps, marked `clipped` where it began in an earlier one. A kernel is in the
    /// part in which its end was reported, with its launch. Each part counts its own losses.
    ///
    /// If the disk is full, or too slow for the program, the newest records are kept in memory. Those that they replace are
    /// counted in [`NotSpilled`](crate::Loss::NotSpilled). Writing is tried again after 1, 2, 4 to 60 s.
    ///
    /// If the process ends without dropping the guard, the segments stay; [`Segment::files_in`](crate::Segment::files_in) finds
    /// them, and `kineto repair` makes traces of their folder. The same holds after a crash, which loses what was in memory.
    #[cfg(feature = "segments")]
    Spill,
}

impl Overflow {
    /// All variants.
    pub const ALL: &'static [Overflow] = &[
        Overflow::Stop,
        Overflow::KeepNewest,
        #[cfg(feature = "segments")]
        Overflow::Spill,
    ];

    /// Returns its name in `KINETO_OVERFLOW`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Overflow::Stop => "stop",
            Overflow::KeepNewest => "keep_newest",
            #[cfg(feature = "segments")]
            Overflow::Spill => "spill",
        }
    }
}

impl Overflow {
    /// Returns the Cargo feature that the value of this name needs, if this build lacks it.
    pub(in crate::config) fn missing_feature(name: &str) -> Option<&'static str> {
        (!cfg!(feature = "segments") && name.eq_ignore_ascii_case("spill")).then_some("segments")
    }

    /// Returns whether the oldest records are moved to disk.
    pub(crate) fn spills(self) -> bool {
        !matches!(self, Overflow::Stop | Overflow::KeepNewest)
    }
}

impl Config {
    /// Sets the behaviour in place of the configured one, also for configurations that are read again.
    pub(crate) fn set_overflow(&mut self, overflow: Overflow) {
        self.merged.replace(Key::Overflow, Value::Overflow(overflow));
        self.overflow = overflow;
    }
}

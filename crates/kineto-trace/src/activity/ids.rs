//! Typed ids. 0 is "none" in all of them, as in libkineto.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Names one slice (one enter..exit of a span) or one vendor record; the "External id" of the trace file.
    ///
    /// Unique in the process and never reused; 64 bits inside, unlike libkineto, which cuts it to 32.
    CorrelationId(u64)
}
id! {
    /// Names one span, whose slices all carry it; unique in the process, never reused.
    SpanId(u64)
}

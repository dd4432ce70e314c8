//! Typed ids. As in libkineto, 0 means "none".

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
    /// The id of a slice (one enter..exit of a span) or vendor record; the "External id" of the trace file.
    ///
    /// Unique in the process and never reused. It has 64 bits, while libkineto truncates it to 32.
    CorrelationId(u64)
}
id! {
    /// The id of a span, shared by its slices; unique in the process and never reused.
    SpanId(u64)
}

//! Spans and events with a meaning in Kineto's world.

/// Makes a user annotation: a span of Kineto's class `user_annotation`, like torch's `record_function`.
///
/// Returns a `tracing::Span` of level INFO, to be entered. Its name is a literal, or a literal format string with its
/// arguments, which is formatted each time the span is enabled. Fields come after a semicolon. What is named
/// `ProfilerStep#<n>`, HTA and TensorBoard take for a step.
///
/// Other layers see a formatted annotation as a span `user_annotation` whose field `kineto.name` has the text.
///
/// ```
/// use tracing_kineto::annotate;
///
/// for n in 0..3 {
///     let _step = annotate!("ProfilerStep#{}", n).entered();
///     annotate!("load"; batch = 32, source = "disk").in_scope(|| { /* ... */ });
/// }
/// ```
#[macro_export]
macro_rules! annotate {
    ($name:literal $(; $($fields:tt)*)?) => {{
        const IS_FORMAT: bool = $crate::__private::is_format($name);
        if IS_FORMAT {
            $crate::__private::tracing::span!(
                $crate::__private::tracing::Level::INFO, "user_annotation",
                kineto.annotation = $crate::__private::tracing::field::Empty,
                kineto.name = %::core::format_args!($name), $($($fields)*)?
            )
        } else {
            $crate::__private::tracing::span!(
                $crate::__private::tracing::Level::INFO, $name,
                kineto.annotation = $crate::__private::tracing::field::Empty, $($($fields)*)?
            )
        }
    }};
    ($name:literal, $($args:expr),+ $(,)? $(; $($fields:tt)*)?) => {
        $crate::__private::tracing::span!(
            $crate::__private::tracing::Level::INFO, "user_annotation",
            kineto.annotation = $crate::__private::tracing::field::Empty,
            kineto.name = %::core::format_args!($name, $($args),+), $($($fields)*)?
        )
    };
}

/// Records the values of a counter now.
///
/// Each numeric field is a series of the counter's row (ph "C" in the trace file); true and false are 1 and 0, and what
/// is no finite number is left out. Any event with the target `kineto::counter` is the same, which is how other layers
/// see it, at level INFO.
///
/// ```
/// tracing_kineto::counter!("queue", depth = 3, bytes = 1.5e6);
/// ```
#[macro_export]
macro_rules! counter {
    ($name:expr, $($fields:tt)+) => {
        $crate::__private::tracing::event!(
            target: "kineto::counter", $crate::__private::tracing::Level::INFO, kineto.name = $name, $($fields)+
        )
    };
}

/// What the macros need from where they are used.
#[doc(hidden)]
pub mod __private {
    pub use tracing;

    /// Returns whether a format string has anything to fill in.
    pub const fn is_format(text: &str) -> bool {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            #[expect(clippy::indexing_slicing, reason = "evaluated at compile time, within the length")]
            if bytes[at] == b'{' || bytes[at] == b'}' {
                return true;
            }
            at += 1;
        }
        false
    }
}

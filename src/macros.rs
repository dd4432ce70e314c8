//! Macros for annotations, counters and profiled blocks.

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
/// Each numeric field is a series of the counter's row (ph "C" in the trace file); true and false are 1 and 0, and values
/// that are not finite are omitted. Any event with the target `kineto::counter` has the same effect. Other layers see an
/// event of level INFO.
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

/// Runs an expression, returns its value, and prints a table of the time spent in it: a quick start without any setup.
///
/// The expression runs inside a user annotation of that name, so even a program without spans sees its duration, and the
/// kernels that it launched. The table goes to stderr and is no wider than the terminal; see
/// [`Table`](crate::analysis::Table). `?`, `return` and `break` work as without the macro. Not for code that awaits, because
/// a span must not be entered across an await.
///
/// The recording is made by:
/// - the profiler that is passed first, `profile!(profiler, "name", …)`, else
/// - the [`KinetoLayer`](crate::KinetoLayer) of the program, if it has one: of several, the last one that is idle, else
/// - a layer that the first use installs as `tracing`'s global default subscriber, permanently and without other layers. If
///   the program has set a global default without a `KinetoLayer`, the expression runs without a profile, with a warning.
///
/// An idle profiler is started and stopped, also one whose schedule waits or has ended. A recording profiler continues: the
/// table then covers the annotation, without work that devices have not reported yet.
///
/// ```
/// # fn work() -> u32 { 7 }
/// let answer = tracing_kineto::profile!("first look", { work() * 6 });
/// assert_eq!(answer, 42);
/// ```
#[cfg(feature = "analysis")]
#[macro_export]
macro_rules! profile {
    (@ $recording:expr, $name:literal, $body:expr) => {{
        let recording = $recording;
        let span = $crate::annotate!($name).entered();
        let value = $body;
        drop(span);
        drop(recording);
        value
    }};
    ($name:literal, $body:expr $(,)?) => {
        $crate::profile!(@ $crate::__private::BlockRecording::begin(::core::format_args!($name)), $name, $body)
    };
    ($profiler:expr, $name:literal, $body:expr $(,)?) => {
        $crate::profile!(@ $crate::__private::BlockRecording::with_profiler(&$profiler, ::core::format_args!($name)), $name, $body)
    };
}

/// Items that the macros need at their call sites.
#[doc(hidden)]
pub mod __private {
    #[cfg(feature = "analysis")]
    pub use crate::profile::BlockRecording;
    pub use tracing;

    /// Returns whether a format string has placeholders.
    pub const fn is_format(text: &str) -> bool {
        let mut bytes = text.as_bytes();
        while let [first, rest @ ..] = bytes {
            if matches!(first, b'{' | b'}') {
                return true;
            }
            bytes = rest;
        }
        false
    }
}

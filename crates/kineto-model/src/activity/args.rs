//! Typed argument values, borrowed from the trace.

/// The value of one argument of an activity, borrowed from the trace.
///
/// The variants are those of libkineto's typed metadata; [`Json`](ArgValue::Json) is its RawJson.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum ArgValue<'t> {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    I64(i64),
    /// An unsigned integer. Above 2^63-1 it is written as a string of all digits, since Perfetto reads such numbers as
    /// negative.
    U64(u64),
    /// A float; infinities and NaN are written as the strings "inf", "-inf" or "nan".
    F64(f64),
    /// A 128-bit integer; below -2^63 or above 2^63-1 it is written as a string.
    I128(i128),
    /// A 128-bit unsigned integer; above 2^63-1 it is written as a string.
    U128(u128),
    /// A string.
    Str(&'t str),
    /// A list of integers, such as `grid`.
    Ints(&'t [i64]),
    /// A list of strings, such as `Input type`.
    Strs(&'t [&'t str]),
    /// Valid JSON, which is written unchanged; used for nested lists such as `Input Dims`.
    Json(&'t str),
    /// A nested object, such as `occupancy`.
    Dict(&'t dyn Args),
}

/// A sequence of arguments, which can be visited repeatedly and is written in its order.
///
/// Each key occurs at most once.
///
/// ```
/// use kineto_trace::activity::{ArgValue, Args};
///
/// struct Request {
///     path: String,
///     bytes: u64,
/// }
///
/// impl Args for Request {
///     fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
///         each("path", ArgValue::Str(&self.path));
///         each("bytes", ArgValue::U64(self.bytes));
///     }
/// }
/// ```
pub trait Args {
    /// Calls `each` with every key and value.
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>));
}

impl Args for [(&str, ArgValue<'_>)] {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.iter().for_each(|(key, value)| each(key, *value));
    }
}

impl<const N: usize> Args for [(&str, ArgValue<'_>); N] {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.as_slice().visit(each);
    }
}

/// No arguments.
pub const NO_ARGS: &dyn Args = &[];

impl std::fmt::Debug for ArgValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArgValue::Bool(v) => v.fmt(f),
            ArgValue::I64(v) => v.fmt(f),
            ArgValue::U64(v) => v.fmt(f),
            ArgValue::F64(v) => v.fmt(f),
            ArgValue::I128(v) => v.fmt(f),
            ArgValue::U128(v) => v.fmt(f),
            ArgValue::Str(v) => v.fmt(f),
            ArgValue::Ints(v) => v.fmt(f),
            ArgValue::Strs(v) => v.fmt(f),
            ArgValue::Json(v) => f.write_str(v),
            ArgValue::Dict(v) => v.fmt(f),
        }
    }
}

impl std::fmt::Debug for dyn Args + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut map = f.debug_map();
        self.visit(&mut |key, value| {
            map.entry(&key, &value);
        });
        map.finish()
    }
}

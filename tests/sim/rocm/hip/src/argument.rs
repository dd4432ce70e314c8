//! Arguments of calls, as reported to profilers.

use crate::shared::tracer::{Argument, Shape, Style};
use std::ffi::{CStr, c_char, c_void};

/// A type of arguments.
pub(crate) trait Typed {
    /// The type's name, and that of a pointer to it, as C++ mangles them.
    const NAME: &'static CStr;
    const POINTER: &'static CStr;
    const STYLE: Style;
    const INDIRECTION: i32 = 0;
    /// The value behind a pointer to it, if readable.
    const BEHIND: [usize; 2];
    /// The target of a value of it.
    const TARGET: [usize; 2] = [0, 0];
    /// The style of a pointer to it.
    const POINTER_STYLE: Style = Style::Pointer;
}

/// An argument; its name ends with a zero byte.
pub(crate) fn argument<T: Typed>(name: &'static str, value: &T) -> Argument {
    let shape = Shape {
        type_name: T::NAME.as_ptr(),
        size: size_of::<T>(),
        alignment: align_of::<T>(),
        style: T::STYLE,
        indirection: T::INDIRECTION,
        target: T::TARGET,
    };
    Argument { name: name.as_ptr().cast(), shape, value: (&raw const *value).cast() }
}

macro_rules! plain {
    ($($type:ty: $name:literal, $pointer:literal, $style:ident;)+) => {$(
        impl Typed for $type {
            const NAME: &'static CStr = $name;
            const POINTER: &'static CStr = $pointer;
            const STYLE: Style = Style::$style;
            const BEHIND: [usize; 2] = [size_of::<$type>(), align_of::<$type>()];
        }
    )+};
}

plain! {
    i32: c"i", c"Pi", Signed;
    u32: c"j", c"Pj", Unsigned;
    usize: c"m", c"Pm", Unsigned;
    f32: c"f", c"Pf", Pointer;
    CopyKind: c"13hipMemcpyKind", c"P13hipMemcpyKind", CopyKind;
    Dimensions: c"18rocprofiler_dim3_t", c"P18rocprofiler_dim3_t", Dimensions;
    Properties: c"20hipDeviceProp_tR0600", c"P20hipDeviceProp_tR0600", Pointer;
}

impl Typed for c_void {
    const NAME: &'static CStr = c"v";
    const POINTER: &'static CStr = c"Pv";
    const STYLE: Style = Style::Pointer;
    const BEHIND: [usize; 2] = [0, 0];
}

impl Typed for c_char {
    const NAME: &'static CStr = c"c";
    const POINTER: &'static CStr = c"Pc";
    const STYLE: Style = Style::Signed;
    const BEHIND: [usize; 2] = [1, 1];
    const POINTER_STYLE: Style = Style::Text;
}

macro_rules! pointers {
    ($($pointer:ty: $name:literal;)+) => {$(
        impl<T: Typed> Typed for $pointer {
            const NAME: &'static CStr = T::POINTER;
            const POINTER: &'static CStr = $name;
            const STYLE: Style = T::POINTER_STYLE;
            const INDIRECTION: i32 = T::INDIRECTION + 1;
            const BEHIND: [usize; 2] = [8, 8];
            const TARGET: [usize; 2] = T::BEHIND;
        }
    )+};
}

pointers! {
    *mut T: c"PPv";
    *const T: c"PPKv";
}

macro_rules! handles {
    ($($(#[$doc:meta])* $handle:ident: $name:literal, $pointer:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $handle(pub u64);

        impl Typed for $handle {
            const NAME: &'static CStr = $name;
            const POINTER: &'static CStr = $pointer;
            const STYLE: Style = Style::Pointer;
            const INDIRECTION: i32 = 1;
            const BEHIND: [usize; 2] = [8, 8];
        }
    )+};
}

handles! {
    /// `hipStream_t`
    Stream: c"P12ihipStream_t", c"PP12ihipStream_t";
    /// `hipEvent_t`
    Event: c"P11ihipEvent_t", c"PP11ihipEvent_t";
    /// `hipModule_t`
    Module: c"P12ihipModule_t", c"PP12ihipModule_t";
    /// `hipFunction_t`
    Function: c"P18ihipModuleSymbol_t", c"PP18ihipModuleSymbol_t";
    /// `hipGraph_t`
    Graph: c"P9ihipGraph", c"PP9ihipGraph";
    /// `hipGraphNode_t`
    Node: c"P12hipGraphNode", c"PP12hipGraphNode";
    /// `hipGraphExec_t`
    Executable: c"P12hipGraphExec", c"PP12hipGraphExec";
}

/// `hipMemcpyKind`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct CopyKind(pub u32);

/// `dim3`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Dimensions {
    x: u32,
    y: u32,
    z: u32,
}

impl From<Dimensions> for [u32; 3] {
    fn from(Dimensions { x, y, z }: Dimensions) -> [u32; 3] {
        [x, y, z]
    }
}

/// `hipDeviceProp_tR0600`, of which the beginning is filled in.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Properties {
    pub(crate) name: [u8; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    luid_mask: u32,
    pub(crate) memory: usize,
    pub(crate) shared_per_block: usize,
    pub(crate) registers_per_block: i32,
    pub(crate) warp: i32,
    rest: [u64; 145],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_types_have_their_sizes() {
        let place: *mut Stream = std::ptr::null_mut();
        let argument_info = argument("stream\0", &place);
        assert_eq!(
            (argument_info.shape.size, argument_info.shape.indirection, argument_info.shape.target),
            (8, 2, [8, 8])
        );
        let argument_info = argument("dst\0", &std::ptr::null::<c_void>());
        assert_eq!(
            (argument_info.shape.indirection, argument_info.shape.target, argument_info.shape.style),
            (1, [0, 0], Style::Pointer)
        );
        assert_eq!(argument("stream\0", &Stream(0)).shape.target, [0, 0]);
        assert_eq!(argument("kname\0", &c"a".as_ptr()).shape.style, Style::Text);
        let argument_info = argument("numBlocks\0", &Dimensions { x: 1, y: 2, z: 3 });
        assert_eq!((argument_info.shape.size, argument_info.shape.alignment), (12, 4));
        assert_eq!(size_of::<Properties>(), 1472);
    }
}

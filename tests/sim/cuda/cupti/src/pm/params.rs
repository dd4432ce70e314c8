//! The parameters of the profiler's calls.

use crate::code::{Code, Outcome};
use crate::link;
use std::ffi::c_char;

/// Declares parameters, with the sizes that the library of a version accepts.
macro_rules! params {
    ($($name:ident: [$($size:literal $(since $version:literal)?),+] { $($field:ident: $type:ty),* $(,)? })+) => {$(
        #[repr(C)]
        pub struct $name { struct_size: usize, reserved: usize, $(pub(crate) $field: $type,)* }

        impl Params for $name {
            fn is_known_size(&self) -> bool {
                [$((self.struct_size == $size $(&& link::options().cupti.is_since($version))?)),+].contains(&true)
            }
        }

        impl $name {
            /// Returns whether the caller's struct contains what follows that many bytes.
            #[allow(dead_code)]
            pub(crate) fn is_longer_than(&self, bytes: usize) -> bool {
                self.struct_size > bytes
            }
        }
    )+};
}

pub(crate) trait Params {
    fn is_known_size(&self) -> bool;
}

/// Returns the caller's parameters.
///
/// # Errors
/// They are null, or their size is not known to this version.
pub(crate) fn take<'a, P: Params>(params: *mut P) -> Outcome<&'a mut P> {
    // SAFETY: the caller promises null or parameters of this call, which begin with their size.
    let params = unsafe { params.as_mut() }.ok_or(Code::INVALID_PARAMETER)?;
    if params.is_known_size() { Ok(params) } else { Err(Code::INVALID_PARAMETER) }
}

params! {
    Nothing: [16] {}
    Supported: [52, 56 since "13.1"] { device: i32, levels: [u32; 7], interface: u32 }
    ChipName: [32] { device: usize, name: *const c_char }
    Availability: [40] { device: usize, size: usize, image: *mut u8 }
    NewHost: [48, 56 since "13.2"] { profiler: u32, chip: *const c_char, availability: *const u8, host: usize }
    HostOnly: [24] { host: usize }
    AddMetrics: [40] { host: usize, names: *const *const c_char, count: usize }
    ConfigSize: [32] { host: usize, size: usize }
    ConfigImage: [40] { host: usize, size: usize, image: *mut u8 }
    Passes: [40] { size: usize, image: *const u8, passes: usize }
    BaseMetrics: [48] { host: usize, kind: u32, names: *const *const c_char, count: usize }
    SubMetrics: [56] { host: usize, kind: u32, base: *const c_char, count: usize, names: *const *const c_char }
    Properties: [60, 64 since "13.1"] {
        host: usize, name: *const c_char, description: *const c_char, unit: *const c_char, dimension: *const c_char,
        kind: u32,
    }
    Evaluate: [72] {
        host: usize, image: *const u8, size: usize, sample: usize, names: *const *const c_char, count: usize,
        values: *mut f64,
    }
    Enable: [32] { device: usize, sampler: usize }
    SetConfig: [60, 64 since "12.8"] {
        sampler: usize, config_size: usize, config: *const u8, buffer: usize, interval: u64, trigger: u32, append: u32,
    }
    ImageSize: [56] { sampler: usize, names: *const *const c_char, count: usize, samples: u32, size: usize }
    InitializeImage: [40] { sampler: usize, size: usize, image: *mut u8 }
    SamplerOnly: [24] { sampler: usize }
    Decode: [45] { sampler: usize, image: *mut u8, size: usize, reason: u32, overflow: u8 }
    ImageInfo: [56] { image: *const u8, size: usize, total: usize, populated: usize, completed: usize }
    EnableRanges: [32, 36 since "13.4"] { context: u64, profiler: usize, cache_control: u32 }
    RangeImageSize: [64] {
        profiler: usize, names: *const *const c_char, count: usize, ranges: usize, tree_nodes: u32, size: usize,
    }
    RangeImageInit: [40] { profiler: usize, size: usize, image: *mut u8 }
    RangeConfig: [90] {
        profiler: usize, config_size: usize, config: *const u8, image_size: usize, image: *mut u8, range: u32,
        replay: u32, ranges_per_pass: usize, levels: u16, first_level: u16, pass: usize, target_level: u16,
    }
    PushRange: [32] { profiler: usize, name: *const c_char }
    RangeOnly: [24] { profiler: usize }
    RangeStop: [41] { profiler: usize, pass: usize, target_level: usize, all_submitted: u8 }
    RangeDecode: [32] { profiler: usize, dropped: usize }
    RangeImageInfo: [40] { image: *const u8, size: usize, ranges: usize }
    SampleInfo: [64] { sampler: usize, image: *const u8, size: usize, sample: usize, start: u64, end: u64 }
}

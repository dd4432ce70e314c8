//! Safe wrappers of CUPTI's range profiler, which measures kernels, or ranges of a context.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::super::callbacks::{CallParams, StreamPlace};
use super::super::error::CuptiError;
use super::super::profiler::ffi::{CallFailure, CounterImage, MetricNames, Object, make_call, params};
use crate::library::functions;
use std::ffi::{c_char, c_void};
use std::fmt;
use std::ptr::{null_mut, with_exposed_provenance_mut};

params! {
    /// Newer versions have a further field, whose default is used.
    EnableParams: 32 { context: *mut c_void, profiler: Object }
    ImageSizeParams: 64 {
        profiler: Object, names: *const *const c_char, count: usize, ranges: usize, tree_nodes: u32, size: usize,
    }
    InitializeImageParams: 40 { profiler: Object, size: usize, image: *mut u8 }
    SetConfigParams: 90 {
        profiler: Object, config_size: usize, config: *const u8, image_size: usize, image: *mut u8, range: u32,
        replay: u32, ranges_per_pass: usize, levels: u16, first_level: u16, pass: usize, target_level: u16,
    }
    ProfilerParams: 24 { profiler: Object }
    StopParams: 41 { profiler: Object, pass: usize, target_level: usize, all_submitted: u8 }
    DecodeParams: 32 { profiler: Object, dropped: usize }
    ImageInfoParams: 40 { image: *const u8, size: usize, ranges: usize }
    PushRangeParams: 32 { profiler: Object, name: *const c_char }
}

functions! {
    /// The functions of CUPTI 12.6 for ranges.
    RangeApi
    required {
    device_of_context = c"cuptiGetDeviceId": fn(*mut c_void, *mut u32) -> u32;
    id_of_context = c"cuptiGetContextId": fn(*mut c_void, *mut u32) -> u32;
    enable = c"cuptiRangeProfilerEnable": fn(*mut EnableParams) -> u32;
    disable = c"cuptiRangeProfilerDisable": fn(*mut ProfilerParams) -> u32;
    image_size = c"cuptiRangeProfilerGetCounterDataSize": fn(*mut ImageSizeParams) -> u32;
    initialize_image = c"cuptiRangeProfilerCounterDataImageInitialize": fn(*mut InitializeImageParams) -> u32;
    set_config = c"cuptiRangeProfilerSetConfig": fn(*mut SetConfigParams) -> u32;
    start = c"cuptiRangeProfilerStart": fn(*mut ProfilerParams) -> u32;
    push_range = c"cuptiRangeProfilerPushRange": fn(*mut PushRangeParams) -> u32;
    pop_range = c"cuptiRangeProfilerPopRange": fn(*mut ProfilerParams) -> u32;
    stop = c"cuptiRangeProfilerStop": fn(*mut StopParams) -> u32;
    decode = c"cuptiRangeProfilerDecodeData": fn(*mut DecodeParams) -> u32;
    image_info = c"cuptiRangeProfilerGetCounterDataInfo": fn(*mut ImageInfoParams) -> u32;
    }
}

/// An object that measures the kernels of a context. It lives until it is disabled.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeHandle(usize);

/// What is measured as one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeUnit {
    Kernels,
    Annotations,
}

/// What CUPTI has after a stop. Of annotations, it must be one range of a complete pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StopReport {
    pub(super) is_complete: bool,
    pub(super) ranges: usize,
    pub(super) dropped: usize,
}

impl StopReport {
    pub(super) fn is_one_range(self) -> bool {
        self == StopReport { is_complete: true, ranges: 1, dropped: 0 }
    }
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StopReport { is_complete, ranges, dropped } = self;
        let pass = if *is_complete { "complete" } else { "incomplete" };
        write!(f, "CUPTI returned {ranges} ranges instead of 1, dropped {dropped}, and the pass was {pass}")
    }
}

/// The most ranges of an image. What is measured is one range; the other is for an unexpected one.
const RANGES: usize = 2;

impl RangeUnit {
    /// Returns the name of several.
    pub(super) fn plural(self) -> &'static str {
        match self {
            RangeUnit::Kernels => "kernels",
            RangeUnit::Annotations => "annotations",
        }
    }

    /// Returns CUPTI's numbers: ranges by kernel, which CUPTI repeats for each pass, or by push and pop, where the caller
    /// would repeat its work for a second pass.
    fn range_and_replay(self) -> (u32, u32) {
        match self {
            RangeUnit::Kernels => (1, 2),
            RangeUnit::Annotations => (2, 3),
        }
    }
}

/// Returns the stream of a call that begins; `None` if it is not known.
pub(super) fn stream_of_call(params: CallParams, place: Option<StreamPlace>) -> Option<usize> {
    // SAFETY: the call begins, and its function was found by the name that the place belongs to.
    place.and_then(|place| unsafe { params.stream(place) })
}

/// Returns the number of the device of a call that begins, whose first parameter that is.
pub(super) fn device_of_call(params: CallParams) -> Option<i32> {
    // SAFETY: the call begins, and the caller knows its function by name.
    unsafe { params.device() }
}

impl RangeHandle {
    fn object(self) -> Object {
        with_exposed_provenance_mut(self.0)
    }
}

impl RangeApi {
    /// Returns the number of a context's device.
    pub(super) fn find_device(&self, context: usize) -> Result<u32, CallFailure> {
        let mut device = 0;
        // SAFETY: the context is that of a running call, and the pointer is a valid place for a number.
        match unsafe { (self.device_of_context)(with_exposed_provenance_mut(context), &raw mut device) } {
            0 => Ok(device),
            code => Err(CallFailure { call: "cuptiGetDeviceId", error: CuptiError(code) }),
        }
    }

    /// Returns the id of a context, which must be current on the calling thread. A later context may have its handle, but never
    /// its id.
    pub(super) fn find_context_id(&self, context: usize) -> Option<u32> {
        let mut id = 0;
        // SAFETY: the context is current, and the pointer is a valid place for a number.
        let code = unsafe { (self.id_of_context)(with_exposed_provenance_mut(context), &raw mut id) };
        (code == 0).then_some(id)
    }

    /// Reserves the counters of a context, which must be current on the calling thread.
    pub(super) fn enable(&self, context: usize) -> Result<RangeHandle, CallFailure> {
        let mut params = EnableParams::new(with_exposed_provenance_mut(context), null_mut());
        make_call("cuptiRangeProfilerEnable", self.enable, &mut params)?;
        Ok(RangeHandle(params.profiler.expose_provenance()))
    }

    pub(super) fn disable(&self, profiler: RangeHandle) {
        let _ = make_call("cuptiRangeProfilerDisable", self.disable, &mut ProfilerParams::new(profiler.object()));
    }

    /// Makes an image for the values of one range.
    pub(super) fn new_image(&self, profiler: RangeHandle, names: &MetricNames) -> Result<CounterImage, CallFailure> {
        let nodes = u32::try_from(RANGES).unwrap_or(u32::MAX);
        let mut params = ImageSizeParams::new(profiler.object(), names.as_ptr(), names.count(), RANGES, nodes, 0);
        make_call("cuptiRangeProfilerGetCounterDataSize", self.image_size, &mut params)?;
        Ok(CounterImage::new(params.size))
    }

    /// Begins to measure: what the context launches from now on is replayed, or counted after a push.
    pub(super) fn start(
        &self,
        profiler: RangeHandle,
        unit: RangeUnit,
        config: &[u8],
        image: &mut CounterImage,
    ) -> Result<(), CallFailure> {
        let (object, bytes) = (profiler.object(), image.bytes());
        let mut params = InitializeImageParams::new(object, bytes, image.as_mut_ptr());
        make_call("cuptiRangeProfilerCounterDataImageInitialize", self.initialize_image, &mut params)?;
        let (size, image) = (config.len(), image.as_mut_ptr());
        let (range, replay) = unit.range_and_replay();
        let mut params =
            SetConfigParams::new(object, size, config.as_ptr(), bytes, image, range, replay, RANGES, 1, 1, 0, 0);
        make_call("cuptiRangeProfilerSetConfig", self.set_config, &mut params)?;
        make_call("cuptiRangeProfilerStart", self.start, &mut ProfilerParams::new(object))
    }

    /// Begins a range of the program's own.
    pub(super) fn push_range(&self, profiler: RangeHandle) -> Result<(), CallFailure> {
        let mut params = PushRangeParams::new(profiler.object(), c"annotation".as_ptr());
        make_call("cuptiRangeProfilerPushRange", self.push_range, &mut params)
    }

    /// Ends the range that was pushed last.
    pub(super) fn pop_range(&self, profiler: RangeHandle) -> Result<(), CallFailure> {
        make_call("cuptiRangeProfilerPopRange", self.pop_range, &mut ProfilerParams::new(profiler.object()))
    }

    /// Ends it, and moves the values into the image of the start; returns what it has. A pass that is not complete has no
    /// ranges.
    pub(super) fn stop(
        &self,
        profiler: RangeHandle,
        unit: RangeUnit,
        image: &CounterImage,
    ) -> Result<StopReport, CallFailure> {
        let object = profiler.object();
        let mut stopped = StopParams::new(object, 0, 0, 0);
        make_call("cuptiRangeProfilerStop", self.stop, &mut stopped)?;
        if unit == RangeUnit::Annotations && stopped.all_submitted == 0 {
            return Ok(StopReport { is_complete: false, ranges: 0, dropped: 0 });
        }
        let mut decoded = DecodeParams::new(object, 0);
        make_call("cuptiRangeProfilerDecodeData", self.decode, &mut decoded)?;
        let mut params = ImageInfoParams::new(image.as_ptr(), image.bytes(), 0);
        make_call("cuptiRangeProfilerGetCounterDataInfo", self.image_info, &mut params)?;
        Ok(StopReport { is_complete: true, ranges: params.ranges, dropped: decoded.dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn params_have_the_offsets_of_the_headers() {
        assert_eq!((offset_of!(EnableParams, context), offset_of!(EnableParams, profiler)), (16, 24));
        assert_eq!(
            (
                offset_of!(ImageSizeParams, ranges),
                offset_of!(ImageSizeParams, tree_nodes),
                offset_of!(ImageSizeParams, size)
            ),
            (40, 48, 56)
        );
        assert_eq!(
            (
                offset_of!(SetConfigParams, image),
                offset_of!(SetConfigParams, range),
                offset_of!(SetConfigParams, replay),
                offset_of!(SetConfigParams, ranges_per_pass)
            ),
            (48, 56, 60, 64)
        );
        assert_eq!(
            (
                offset_of!(SetConfigParams, levels),
                offset_of!(SetConfigParams, first_level),
                offset_of!(SetConfigParams, pass),
                offset_of!(SetConfigParams, target_level)
            ),
            (72, 74, 80, 88)
        );
        assert_eq!((offset_of!(StopParams, pass), offset_of!(StopParams, all_submitted)), (24, 40));
        assert_eq!(offset_of!(PushRangeParams, name), 24);
        assert_eq!((offset_of!(DecodeParams, dropped), offset_of!(ImageInfoParams, ranges)), (24, 32));
    }
}

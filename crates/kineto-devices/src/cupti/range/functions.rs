//! The functions whose callbacks are needed.

use super::super::callbacks::StreamPlace;
use super::super::ffi::{DRIVER, RUNTIME};
use super::super::subscriber::Subscriber;
use super::captures::CaptureStep;
use super::ffi::RangeUnit;
use std::collections::BTreeMap;

/// A function whose callback is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedFunction {
    Launch,
    /// Submits a copy or a fill.
    Transfer,
    /// Its first parameter is the stream.
    Capture(CaptureStep),
    ContextEnd(ContextEnd),
}

/// Which contexts a function ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextEnd {
    /// The one whose handle is its first parameter.
    Handle,
    /// The primary one of the device whose number is its first parameter.
    Device,
    /// The same, if the program has not retained it once more.
    Release,
    /// The primary one of the current device.
    CurrentDevice,
    /// One whose handle is of another type.
    Unknown,
}

/// A function to watch, with the place of its stream, if that is known.
pub(super) type WatchedCall = (WatchedFunction, Option<StreamPlace>);

/// The places in CUDA's declarations, which do not change: a new version of a function has a new name.
const STREAMS: [(&str, StreamPlace); 18] = [
    ("cuLaunchKernel", StreamPlace::At(40)),
    ("cuLaunchCooperativeKernel", StreamPlace::At(40)),
    ("cudaLaunchKernel", StreamPlace::At(48)),
    ("cudaLaunchCooperativeKernel", StreamPlace::At(48)),
    ("cuLaunchKernelEx", StreamPlace::InConfig(32)),
    ("cudaLaunchKernelExC", StreamPlace::InConfig(32)),
    ("cuGraphLaunch", StreamPlace::At(8)),
    ("cudaGraphLaunch", StreamPlace::At(8)),
    ("cuMemcpyAsync", StreamPlace::At(24)),
    ("cuMemcpyHtoDAsync", StreamPlace::At(24)),
    ("cuMemcpyDtoHAsync", StreamPlace::At(24)),
    ("cuMemcpyDtoDAsync", StreamPlace::At(24)),
    ("cuMemsetD8Async", StreamPlace::At(24)),
    ("cuMemsetD16Async", StreamPlace::At(24)),
    ("cuMemsetD32Async", StreamPlace::At(24)),
    ("cudaMemcpyAsync", StreamPlace::At(32)),
    ("cudaMemsetAsync", StreamPlace::At(24)),
    ("cudaMemcpyPeerAsync", StreamPlace::At(40)),
];

/// The functions to watch, without the endings by which CUPTI tells their variants apart.
const KERNELS: [&str; 4] = ["cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernel", "cudaLaunchKernelExC"];
const CONTEXT_ENDS: [(&str, ContextEnd); 8] = [
    ("cuCtxDestroy", ContextEnd::Handle),
    ("cuCtxDetach", ContextEnd::Handle),
    ("cuDevicePrimaryCtxReset", ContextEnd::Device),
    ("cuDevicePrimaryCtxRelease", ContextEnd::Release),
    ("cudaDeviceReset", ContextEnd::CurrentDevice),
    ("cudaThreadExit", ContextEnd::CurrentDevice),
    ("cuGreenCtxDestroy", ContextEnd::Unknown),
    ("cudaExecutionCtxDestroy", ContextEnd::Unknown),
];

/// Beginnings of the functions that capture work.
const CAPTURES: [(&str, CaptureStep); 8] = [
    ("cuStreamBeginCapture", CaptureStep::Begin),
    ("cudaStreamBeginCapture", CaptureStep::Begin),
    ("cuStreamBeginRecapture", CaptureStep::Begin),
    ("cudaStreamBeginRecapture", CaptureStep::Begin),
    ("cuStreamEndCapture", CaptureStep::End),
    ("cudaStreamEndCapture", CaptureStep::End),
    ("cuStreamDestroy", CaptureStep::Destroy),
    ("cudaStreamDestroy", CaptureStep::Destroy),
];

/// Beginnings of the functions that submit work.
const SUBMITTERS: [(&str, WatchedFunction); 10] = [
    ("cuLaunchHostFunc", WatchedFunction::Transfer),
    ("cudaLaunchHostFunc", WatchedFunction::Transfer),
    ("cuLaunch", WatchedFunction::Launch),
    ("cudaLaunch", WatchedFunction::Launch),
    ("cuGraphLaunch", WatchedFunction::Launch),
    ("cudaGraphLaunch", WatchedFunction::Launch),
    ("cuMemcpy", WatchedFunction::Transfer),
    ("cudaMemcpy", WatchedFunction::Transfer),
    ("cuMemset", WatchedFunction::Transfer),
    ("cudaMemset", WatchedFunction::Transfer),
];

/// Returns a name without what tells variants apart, and without the underscores that calls by compiled programs begin with.
fn base_name(name: &str) -> &str {
    let (base, _) = name.split_once("_v").unwrap_or((name, ""));
    base.trim_end_matches("_ptsz").trim_start_matches('_')
}

/// Returns how a function is watched, if it is.
fn watch_function(name: &str, unit: RangeUnit) -> Option<WatchedFunction> {
    let name = base_name(name);
    if let Some((_, end)) = CONTEXT_ENDS.iter().find(|(known, _)| *known == name) {
        return Some(WatchedFunction::ContextEnd(*end));
    }
    if let Some((_, step)) = CAPTURES.iter().find(|(start, _)| name.starts_with(start)) {
        return Some(WatchedFunction::Capture(*step));
    }
    match unit {
        RangeUnit::Kernels => KERNELS.contains(&name).then_some(WatchedFunction::Launch),
        RangeUnit::Annotations => {
            SUBMITTERS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, watched)| *watched)
        }
    }
}

/// Returns where the parameters of a function have its stream. A stream of 0 is the thread's own in `_ptsz` and `_ptds`
/// variants.
fn find_stream(name: &str) -> Option<StreamPlace> {
    let name = base_name(name);
    STREAMS.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
}

/// Finds the numbers of the functions to watch, which newer versions have more of.
pub(super) fn find_functions(subscriber: Subscriber, unit: RangeUnit) -> BTreeMap<(u32, u32), WatchedCall> {
    let all = [DRIVER, RUNTIME].into_iter().flat_map(|domain| (1..2048).map(move |function| (domain, function)));
    let watched = |(domain, function): (u32, u32)| {
        let name = subscriber.api.callback_name(domain, function)?;
        let watched = watch_function(&name, unit)?;
        let is_capture = matches!(watched, WatchedFunction::Capture(_));
        let place = if is_capture { Some(StreamPlace::At(0)) } else { find_stream(&name) };
        Some(((domain, function), (watched, place)))
    };
    all.filter_map(watched).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_watched_by_what_they_submit() {
        use CaptureStep::{Begin, Destroy, End};
        use WatchedFunction::{Capture, Launch, Transfer};
        let ends = |which| Some(WatchedFunction::ContextEnd(which));
        for (name, of_kernels, of_annotations) in [
            ("cudaLaunchKernel_v7000", Some(Launch), Some(Launch)),
            ("__cudaLaunchKernel_v13000", Some(Launch), Some(Launch)),
            ("__cudaLaunchKernel_ptsz_v13000", Some(Launch), Some(Launch)),
            ("cuLaunchKernelEx_ptsz", Some(Launch), Some(Launch)),
            ("cuLaunchCooperativeKernel", None, Some(Launch)),
            ("cudaGraphLaunch_v10000", None, Some(Launch)),
            ("cuMemcpyHtoDAsync_v2_ptsz", None, Some(Transfer)),
            ("cuLaunchHostFunc", None, Some(Transfer)),
            ("cuStreamBeginCapture_v2", Some(Capture(Begin)), Some(Capture(Begin))),
            ("cudaStreamBeginCapture_ptsz_v10000", Some(Capture(Begin)), Some(Capture(Begin))),
            ("cudaStreamBeginRecaptureToGraph_ptsz_v13030", Some(Capture(Begin)), Some(Capture(Begin))),
            ("cuStreamEndCaptureToCig_ptsz", Some(Capture(End)), Some(Capture(End))),
            ("cuStreamDestroy_v2", Some(Capture(Destroy)), Some(Capture(Destroy))),
            ("cuCtxDestroy_v2", ends(ContextEnd::Handle), ends(ContextEnd::Handle)),
            ("cudaThreadExit_v3020", ends(ContextEnd::CurrentDevice), ends(ContextEnd::CurrentDevice)),
            ("cudaExecutionCtxDestroy_v13010", ends(ContextEnd::Unknown), ends(ContextEnd::Unknown)),
            ("cuMemAlloc_v2", None, None),
        ] {
            let watched = [RangeUnit::Kernels, RangeUnit::Annotations].map(|unit| watch_function(name, unit));
            assert_eq!(watched, [of_kernels, of_annotations], "{name}");
        }
    }

    #[test]
    fn streams_are_found_in_the_parameters() {
        assert_eq!(find_stream("cudaLaunchKernel_ptsz_v7000"), Some(StreamPlace::At(48)));
        assert_eq!(find_stream("__cudaLaunchKernel_v13000"), Some(StreamPlace::At(48)));
        assert_eq!(find_stream("cuLaunchKernelEx_ptsz"), Some(StreamPlace::InConfig(32)));
        assert_eq!(find_stream("cuMemcpyHtoDAsync_v2_ptsz"), Some(StreamPlace::At(24)));
        assert_eq!(find_stream("cuMemcpyHtoD_v2"), None);
    }
}

//! The functions whose callbacks are needed.

use super::super::ffi::{DRIVER, RUNTIME};
use super::super::subscriber::Subscriber;
use super::ffi::RangeUnit;
use std::collections::BTreeMap;

/// A function whose callback is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedFunction {
    Launch,
    /// Submits a copy or a fill.
    Transfer,
    CaptureBegin,
    CaptureEnd,
    /// Ends a context.
    ContextEnd,
}

/// Where the parameters of a function have its stream, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collector::cupti) enum StreamPlace {
    At(usize),
    /// In the configuration that the first parameter points to.
    InConfig(usize),
}

/// A function to watch, of annotations with the place of its stream, if that is known.
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
const CONTEXT_ENDS: [&str; 4] =
    ["cuCtxDestroy", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRelease", "cudaDeviceReset"];

/// Beginnings of the functions that submit work other than single kernels, or capture it.
const OTHERS: [(&str, WatchedFunction); 14] = [
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
    ("cuStreamBeginCapture", WatchedFunction::CaptureBegin),
    ("cudaStreamBeginCapture", WatchedFunction::CaptureBegin),
    ("cuStreamEndCapture", WatchedFunction::CaptureEnd),
    ("cudaStreamEndCapture", WatchedFunction::CaptureEnd),
];

/// Returns how a function is watched, if it is.
fn watch_function(name: &str, unit: RangeUnit) -> Option<WatchedFunction> {
    let name = name.split("_v").next()?.trim_end_matches("_ptsz");
    if CONTEXT_ENDS.contains(&name) {
        return Some(WatchedFunction::ContextEnd);
    }
    match unit {
        RangeUnit::Kernels => KERNELS.contains(&name).then_some(WatchedFunction::Launch),
        RangeUnit::Annotations => OTHERS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, watched)| *watched),
    }
}

/// Returns where the parameters of a function have its stream. A stream of 0 is the thread's own in `_ptsz` and `_ptds`
/// variants, which nothing captures.
fn find_stream(name: &str) -> Option<StreamPlace> {
    let name = name.split("_v").next()?.trim_end_matches("_ptsz");
    STREAMS.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
}

/// Finds the numbers of the functions to watch, which newer versions have more of.
pub(super) fn find_functions(subscriber: Subscriber, unit: RangeUnit) -> BTreeMap<(u32, u32), WatchedCall> {
    let all = [DRIVER, RUNTIME].into_iter().flat_map(|domain| (1..2048).map(move |function| (domain, function)));
    let watched = |(domain, function): (u32, u32)| {
        let name = subscriber.api.callback_name(domain, function)?;
        Some(((domain, function), (watch_function(&name, unit)?, find_stream(&name))))
    };
    all.filter_map(watched).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_watched_by_what_they_submit() {
        use WatchedFunction::{CaptureBegin, CaptureEnd, ContextEnd, Launch, Transfer};
        for (name, of_kernels, of_annotations) in [
            ("cudaLaunchKernel_v7000", Some(Launch), Some(Launch)),
            ("cuLaunchKernelEx_ptsz", Some(Launch), Some(Launch)),
            ("cuLaunchCooperativeKernel", None, Some(Launch)),
            ("cudaGraphLaunch_v10000", None, Some(Launch)),
            ("cuMemcpyHtoDAsync_v2_ptsz", None, Some(Transfer)),
            ("cuLaunchHostFunc", None, Some(Transfer)),
            ("cuStreamBeginCapture_v2", None, Some(CaptureBegin)),
            ("cudaStreamBeginCapture_ptsz_v10000", None, Some(CaptureBegin)),
            ("cudaStreamEndCapture_v10000", None, Some(CaptureEnd)),
            ("cuCtxDestroy_v2", Some(ContextEnd), Some(ContextEnd)),
            ("cuMemAlloc_v2", None, None),
        ] {
            let watched = [RangeUnit::Kernels, RangeUnit::Annotations].map(|unit| watch_function(name, unit));
            assert_eq!(watched, [of_kernels, of_annotations], "{name}");
        }
    }

    #[test]
    fn streams_are_found_in_the_parameters() {
        assert_eq!(find_stream("cudaLaunchKernel_ptsz_v7000"), Some(StreamPlace::At(48)));
        assert_eq!(find_stream("cuLaunchKernelEx_ptsz"), Some(StreamPlace::InConfig(32)));
        assert_eq!(find_stream("cuMemcpyHtoDAsync_v2_ptsz"), Some(StreamPlace::At(24)));
        assert_eq!(find_stream("cuMemcpyHtoD_v2"), None);
    }
}

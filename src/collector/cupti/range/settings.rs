//! The settings of range metrics.

use super::super::profiler::shapes::MAX_METRICS;
use crate::collector::{Options, Selection, Unavailable, Why};
use kineto_trace::activity::ActivityType;

/// The settings of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::collector::cupti) struct RangeSettings {
    /// The metrics, such as `smsp__inst_executed.sum`, each once.
    pub(super) metrics: Vec<String>,
    /// The most launches to measure; 0 for all.
    pub(super) max_ranges: u64,
}

/// libkineto's default.
const DEFAULT_MAX_RANGES: i64 = 1500;
const METRICS: &str = "CUPTI_PROFILER_METRICS";

/// libkineto's names for groups of metrics.
fn expand_name(name: &str) -> Vec<String> {
    match name {
        "kineto__cuda_core_flops" => {
            let of_type = |kind| ["add", "fma", "mul"].map(|operation| (kind, operation));
            let all = ["d", "f", "h"].into_iter().flat_map(of_type);
            all.map(|(kind, operation)| format!("smsp__sass_thread_inst_executed_op_{kind}{operation}_pred_on.sum"))
                .collect()
        }
        "kineto__tensor_core_insts" => vec!["sm__inst_executed_pipe_tensor.sum".to_owned()],
        name => vec![name.to_owned()],
    }
}

impl RangeSettings {
    /// Returns whether metrics are named.
    pub(in crate::collector::cupti) fn is_named(options: &Options) -> bool {
        !options.list(METRICS).is_empty()
    }

    /// Returns whether kernels are to be measured.
    pub(in crate::collector::cupti) fn is_requested(options: &Options) -> bool {
        Self::is_named(options) && options.flag("CUPTI_PROFILER_ENABLE_PER_KERNEL")
    }

    /// Reads the settings.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub(super) fn read(selection: &Selection) -> Result<RangeSettings, Unavailable> {
        let options = &selection.options;
        let mut metrics: Vec<String> = Vec::new();
        for name in options.list(METRICS).iter().flat_map(|name| expand_name(name)) {
            if !metrics.contains(&name) {
                metrics.push(name);
            }
        }
        if !selection.types.contains(ActivityType::CudaProfilerRange) {
            let message = "the type cuda_profiler_range is not selected, so CUPTI_PROFILER_METRICS has no effect";
            return Err(Unavailable::new(Why::Disabled, message, "add cuda_profiler_range to ACTIVITY_TYPES"));
        }
        if !options.flag("CUPTI_PROFILER_ENABLE_PER_KERNEL") {
            let message = "metrics of a range of several kernels need a program that repeats its work for each pass";
            let advice = "set CUPTI_PROFILER_ENABLE_PER_KERNEL=true to measure each kernel";
            return Err(Unavailable::new(Why::Unsupported, message, advice));
        }
        if options.flag("TEARDOWN_CUPTI") {
            let message = "TEARDOWN_CUPTI detaches CUPTI from the process while it measures kernels";
            return Err(Unavailable::new(Why::Unsupported, message, "unset TEARDOWN_CUPTI, or name no metrics"));
        }
        if metrics.len() > MAX_METRICS {
            let message = format!("CUPTI_PROFILER_METRICS names {} metrics", metrics.len());
            return Err(Unavailable::new(Why::Unsupported, message, "name at most 127"));
        }
        let most = options.number("CUPTI_PROFILER_MAX_RANGES").unwrap_or(DEFAULT_MAX_RANGES);
        Ok(RangeSettings { metrics, max_ranges: u64::try_from(most).unwrap_or(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(metrics: &[&str]) -> Selection {
        let mut selection = Selection::of(ActivityType::CudaProfilerRange.into());
        selection.options.set(METRICS, metrics.iter().map(ToString::to_string).collect::<Vec<_>>());
        selection.options.set("CUPTI_PROFILER_ENABLE_PER_KERNEL", true);
        selection
    }

    #[test]
    fn names_of_groups_are_expanded_once() {
        let groups = ["kineto__cuda_core_flops", "kineto__tensor_core_insts", "kineto__cuda_core_flops", "a.sum"];
        let settings = RangeSettings::read(&selection(&groups)).unwrap();
        assert_eq!((settings.metrics.len(), settings.max_ranges), (11, 1500));
        assert_eq!(settings.metrics[0], "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum");
        assert_eq!(settings.metrics[9..], ["sm__inst_executed_pipe_tensor.sum", "a.sum"]);
    }

    #[test]
    fn unusable_settings_have_a_reason() {
        let mut by_annotation = selection(&["a.sum"]);
        by_annotation.options.set("CUPTI_PROFILER_ENABLE_PER_KERNEL", false);
        assert_eq!(RangeSettings::read(&by_annotation).unwrap_err().why(), Why::Unsupported);
        let mut without_type = selection(&["a.sum"]);
        without_type.types = ActivityType::CudaRuntime.into();
        assert_eq!(RangeSettings::read(&without_type).unwrap_err().why(), Why::Disabled);
        let mut teardown = selection(&["a.sum"]);
        teardown.options.set("TEARDOWN_CUPTI", true);
        assert!(RangeSettings::read(&teardown).unwrap_err().message().contains("TEARDOWN_CUPTI"));
    }
}

//! The settings of range metrics.

use super::super::metric_shapes::MAX_METRICS;
use super::super::start::{METRICS, names_metrics};
use super::ffi::RangeUnit;
use crate::{Options, Selection, Unavailable, Why};
use kineto_model::activity::{ActivityType, ActivityTypes};

/// The settings of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeSettings {
    /// The metrics, such as `smsp__inst_executed.sum`, each once.
    pub(super) metrics: Vec<String>,
    pub(super) unit: RangeUnit,
    /// The most ranges to measure; 0 for all.
    pub(super) max_ranges: u64,
}

/// The most metrics: a record also has the number of launches.
const MOST: usize = MAX_METRICS - 1;
/// The types that give annotations their rows on the host and on the device, and link both.
const OF_ANNOTATIONS: ActivityTypes = ActivityTypes::of(&[
    ActivityType::UserAnnotation,
    ActivityType::GpuUserAnnotation,
    ActivityType::ExternalCorrelation,
]);

/// libkineto's default.
const DEFAULT_MAX_RANGES: i64 = 1500;

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
    /// Returns whether kernels or annotations are to be measured.
    pub(crate) fn is_requested(selection: &Selection) -> bool {
        names_metrics(&selection.options) && selection.types.is_superset(types_of(unit_of(&selection.options)))
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
        let unit = unit_of(options);
        let missing: Vec<_> = types_of(unit).difference(selection.types).iter().map(|kind| kind.to_string()).collect();
        if !missing.is_empty() {
            let missing = missing.join(",");
            let message = format!("CUPTI_PROFILER_METRICS of {} has no effect without {missing}", unit.plural());
            return Err(Unavailable::new(Why::Disabled, message, format!("add {missing} to ACTIVITY_TYPES")));
        }
        if options.flag("TEARDOWN_CUPTI") {
            let message = "TEARDOWN_CUPTI detaches CUPTI from the process while it measures";
            return Err(Unavailable::new(Why::Unsupported, message, "unset TEARDOWN_CUPTI, or name no metrics"));
        }
        if metrics.len() > MOST {
            let message = format!("CUPTI_PROFILER_METRICS names {} metrics", metrics.len());
            return Err(Unavailable::new(Why::Unsupported, message, "name at most 126"));
        }
        let most = options.number("CUPTI_PROFILER_MAX_RANGES").unwrap_or(DEFAULT_MAX_RANGES);
        Ok(RangeSettings { metrics, unit, max_ranges: u64::try_from(most).unwrap_or(0) })
    }

    /// Checks the number of passes.
    ///
    /// # Errors
    /// An annotation would have to be repeated.
    pub(super) fn check_passes(&self, passes: usize) -> Result<(), Unavailable> {
        if self.unit == RangeUnit::Kernels || passes == 1 {
            return Ok(());
        }
        let message = format!("these metrics take {passes} passes, and an annotation runs once");
        let advice = "name metrics that fit in one pass, which `kineto doctor --metrics A,B` shows, or set \
                      CUPTI_PROFILER_ENABLE_PER_KERNEL=true to replay each kernel";
        Err(Unavailable::new(Why::Unsupported, message, advice))
    }
}

/// Returns what the metrics are measured of.
fn unit_of(options: &Options) -> RangeUnit {
    if options.flag("CUPTI_PROFILER_ENABLE_PER_KERNEL") { RangeUnit::Kernels } else { RangeUnit::Annotations }
}

/// Returns the types that must be selected.
fn types_of(unit: RangeUnit) -> ActivityTypes {
    match unit {
        RangeUnit::Kernels => ActivityType::CudaProfilerRange.into(),
        RangeUnit::Annotations => OF_ANNOTATIONS,
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
        let reason = RangeSettings::read(&by_annotation).unwrap_err();
        assert_eq!((reason.why(), reason.message().contains("gpu_user_annotation")), (Why::Disabled, true), "{reason}");
        by_annotation.types = OF_ANNOTATIONS;
        let settings = RangeSettings::read(&by_annotation).unwrap();
        assert_eq!((settings.unit, settings.check_passes(1)), (RangeUnit::Annotations, Ok(())));
        assert!(settings.check_passes(3).unwrap_err().message().contains("3 passes"));
        let mut without_type = selection(&["a.sum"]);
        without_type.types = ActivityType::CudaRuntime.into();
        assert_eq!(RangeSettings::read(&without_type).unwrap_err().why(), Why::Disabled);
        let mut teardown = selection(&["a.sum"]);
        teardown.options.set("TEARDOWN_CUPTI", true);
        assert!(RangeSettings::read(&teardown).unwrap_err().message().contains("TEARDOWN_CUPTI"));
    }
}

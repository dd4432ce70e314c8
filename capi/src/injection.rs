//! Initialization inside the first `cuInit` of a program that cannot be rebuilt: CUDA's driver loads the library there.

use super::control;
use super::status::CStatus;
use kineto_base::diag::diag;
use kineto_base::os::note;
use kineto_devices::cuda::inside_init;

/// Builds the layer that the environment configures; reports why there is none, or why it does not record CUDA.
pub(super) fn initialize() {
    if let Some(other) = note::other_copy() {
        // Two profilers would write one file, and CUPTI serves one.
        diag!(
            Warning,
            "injection",
            "CUDA_INJECTION64_PATH has no effect: {} contains tracing-kineto and records by itself; unset the variable",
            other.display()
        );
        return;
    }
    match inside_init(control::init_from_injection) {
        Ok(true) => report_missing_cuda(),
        Ok(false) => {}
        Err(fault) if fault.status == CStatus::Disabled => diag!(
            Warning,
            "injection",
            "nothing is recorded: the environment does not enable it; set KINETO_ACTIVITIES_LOG_FILE to the path of a trace, \
             or KINETO_USE_DAEMON=1 for `dyno gputrace`"
        ),
        Err(fault) => diag!(Error, "injection", "nothing is recorded: {}", fault.why),
    }
}

/// Reports why CUDA is not recorded, if so.
fn report_missing_cuda() {
    let reports = tracing_kineto::profiler().map(|profiler| profiler.collectors()).unwrap_or_default();
    for report in reports.iter().filter(|report| report.name == "cupti") {
        if let Err(why) = &report.state {
            diag!(Error, "injection", "CUDA is not recorded: {why}");
        }
    }
}

//! What is done inside of the first `cuInit` of a program that cannot be rebuilt: CUDA's driver loads the library there.

use super::control;
use super::status::Status;
use crate::collector::cuda::inside_init;
use crate::diag::diag;
use crate::os::note;
use crate::session;

/// Makes the layer that the environment asks for; says why there is none, or none that records CUDA.
pub(super) fn initialize() {
    if let Some(other) = note::other_copy() {
        // Two profilers would write one file, and CUPTI serves one.
        diag!(
            Warning,
            "injection",
            "CUDA_INJECTION64_PATH changes nothing: tracing-kineto is in {} already, which records by itself",
            other.display()
        );
        return;
    }
    match inside_init(control::inject) {
        Ok(true) => report(),
        Ok(false) => {}
        Err(fault) if fault.status == Status::Disabled => diag!(
            Warning,
            "injection",
            "nothing is recorded: set KINETO_ACTIVITIES_LOG_FILE to the path of a trace, or KINETO_USE_DAEMON=1 to have \
             traces taken by `dyno gputrace`"
        ),
        Err(fault) => diag!(Error, "injection", "nothing is recorded: {}", fault.why),
    }
}

/// Says why CUDA is not recorded, if that is so.
fn report() {
    let reports = session::newest().map(|session| session.collector_reports()).unwrap_or_default();
    for report in reports.iter().filter(|report| report.name == "cupti") {
        if let Err(why) = &report.state {
            diag!(Error, "injection", "CUDA is not recorded: {why}");
        }
    }
}

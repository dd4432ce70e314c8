//! `kineto doctor`: reports what can be recorded on this machine.

mod metrics;

use super::print_text;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use tracing_kineto::Doctor;

/// Reports what can be recorded on this machine, what cannot, why, and how to fix it.
///
/// Searches for GPU vendors' libraries as a recording would, queries the drivers for versions and devices, and reads
/// the configuration (KINETO_* and the configuration file). Starts nothing unless --start is given.
///
/// Exit status: 0 if the configuration is valid and each selected collector is ready; 1 if not; 2 for wrong arguments.
/// Vendors without a device are ignored if another vendor has one. KINETO_ACTIVITIES=cpu selects no GPU collector.
#[derive(clap::Args, Debug)]
pub(crate) struct DoctorArguments {
    /// Prints one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Starts each collector briefly, to see whether it is busy or forbidden, and whether records arrive.
    #[arg(long)]
    start: bool,
    /// Lists the hardware counters that each NVIDIA GPU can sample (CUPTI_PM_SAMPLING_METRICS), or how many passes these
    /// take, separated by commas; more than one cannot be sampled.
    #[arg(long, value_name = "NAMES", num_args = 0..=1, default_missing_value = "", conflicts_with = "start")]
    metrics: Option<String>,
    /// Examines this libcupti, or the one in this folder, instead of searching for one.
    #[arg(long, value_name = "PATH")]
    cupti: Option<PathBuf>,
    /// Examines in this process.
    #[arg(long, hide = true)]
    here: bool,
}

/// Prints the result of the examination.
///
/// A vendor's library may end its process, so the examination runs in a child process.
pub(crate) fn run(arguments: DoctorArguments) -> ExitCode {
    let child = || -> std::io::Result<ExitStatus> {
        Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).arg("--here").status()
    };
    match if arguments.here { None } else { child().ok() } {
        None => print_diagnosis(arguments),
        Some(status) => match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) => ExitCode::from(code),
            None => {
                report_crash(status, arguments.json);
                ExitCode::FAILURE
            }
        },
    }
}

fn print_diagnosis(arguments: DoctorArguments) -> ExitCode {
    let mut doctor = Doctor::new().with_start(arguments.start);
    if let Some(path) = arguments.cupti {
        doctor = doctor.option("KINETO_CUPTI_PATH", path);
    }
    if let Some(names) = arguments.metrics {
        return metrics::print_metrics(&doctor, &names, arguments.json);
    }
    let diagnosis = doctor.examine();
    print_text(&if arguments.json { diagnosis.to_json() + "\n" } else { diagnosis.to_string() });
    if diagnosis.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints that the child process ended during the examination.
fn report_crash(status: ExitStatus, json: bool) {
    let error = format!(
        "a library crashed the examining process ({status}), as it would crash a program: some versions of libcupti \
         do so with a driver that is not NVIDIA's; use another version (--cupti, KINETO_CUPTI_PATH), or disable \
         CUPTI (KINETO_DISABLE_CUPTI=1)"
    );
    print_text(&if json { serde_json::json!({ "well": false, "error": error }).to_string() } else { error });
    print_text("\n");
}

//! `kineto doctor`: what can be recorded on this machine.

use super::say;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use tracing_kineto::Doctor;

/// Says what can be recorded on this machine, what cannot, why, and what to do about it.
///
/// Looks for the libraries of GPU vendors where a recording would, asks the drivers for versions and devices, and reads
/// the configuration (KINETO_* and its file). It starts nothing unless told to.
///
/// Exit status: 0 if the configuration can be used and each collector of which it selects something is ready, but for those
/// of vendors that have no device here while another has; 1 if not; 2 if the arguments are wrong. With
/// KINETO_ACTIVITIES=cpu no GPU is asked for.
#[derive(clap::Args, Debug)]
pub(crate) struct DoctorArguments {
    /// Prints one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Starts each collector for a moment: shows whether it is busy or forbidden, and whether records arrive.
    #[arg(long)]
    start: bool,
    /// Examines this libcupti, or the one in this folder, in place of the one that would be found.
    #[arg(long, value_name = "PATH")]
    cupti: Option<PathBuf>,
    /// Examines in this very process.
    #[arg(long, hide = true)]
    here: bool,
}

/// Prints what the doctor finds.
///
/// A vendor's library may end the process that calls it, so that is a child.
pub(crate) fn run(arguments: DoctorArguments) -> ExitCode {
    let child = || -> std::io::Result<ExitStatus> {
        Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).arg("--here").status()
    };
    match if arguments.here { None } else { child().ok() } {
        None => examine(arguments),
        Some(status) => match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) => ExitCode::from(code),
            None => {
                tell_of_end(status, arguments.json);
                ExitCode::FAILURE
            }
        },
    }
}

fn examine(arguments: DoctorArguments) -> ExitCode {
    let mut doctor = Doctor::new().with_start(arguments.start);
    if let Some(path) = arguments.cupti {
        doctor = doctor.option("KINETO_CUPTI_PATH", path);
    }
    let diagnosis = doctor.examine();
    say(&if arguments.json { diagnosis.to_json() + "\n" } else { diagnosis.to_string() });
    if diagnosis.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says what it means that the examination did not come to its end.
fn tell_of_end(status: ExitStatus, json: bool) {
    let error = format!(
        "a library has ended the process that examined it ({status}), as it would end a program: some versions of \
         libcupti do so with a driver that is not NVIDIA's own; take another one (--cupti, \
         KINETO_CUPTI_PATH), or leave NVIDIA's GPUs alone (KINETO_DISABLE_CUPTI=1)"
    );
    say(&if json { serde_json::json!({ "well": false, "error": error }).to_string() } else { error });
    say("\n");
}

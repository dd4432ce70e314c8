//! `kineto record`: records a program, and prints where its time went.

use crate::terminal_width::{DEFAULT_WIDTH, terminal_width};
use crate::trace_file::{TraceFile, read_events};
use crate::{RunResult, print_error, print_text};
use kineto_base::text::escaped_path;
use kineto_model::write::file::FileFormat;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// Runs a program with recording enabled by the environment, then prints a summary of its trace.
///
/// The program installs the layer with `KinetoLayer::from_env`. A CUDA program without it is recorded with `--inject`.
/// Each forked process writes a separate trace, with its process id in the name.
///
/// Exit status: the program's; 128 plus the signal's number if a signal ended it; 1 if there is no trace.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto record -- ./train --epochs 1\n  \
    kineto record -o step.pt.trace.json.gz -- cargo run --release\n  \
    kineto record --inject libtracing_kineto_capi.so -- ./cuda_program")]
pub(crate) struct RecordArguments {
    /// The trace file. [default: the program's name with `.pt.trace.json.gz`, in the current folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Lets the CUDA driver load this library, for programs without the layer.
    #[arg(long, value_name = "LIBRARY")]
    inject: Option<PathBuf>,
    /// Prints no summary.
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the program.
pub(crate) fn run(arguments: &RecordArguments) -> RunResult {
    let Some((program, rest)) = arguments.program.split_first() else {
        return Err("no program given; name one after --".into());
    };
    let output = arguments.output.clone().unwrap_or_else(|| default_output(Path::new(program)));
    let cannot = |what: &str, error: io::Error| format!("cannot {what}: {error}");
    let output = std::path::absolute(&output).map_err(|error| cannot("find this folder", error))?;
    FileFormat::check_extension(&output)?;
    if output.as_os_str().as_encoded_bytes().contains(&b'{') {
        return Err(format!("{}: placeholders are not supported here; name a file", output.display()).into());
    }
    check_folder(&output)?;
    let pattern = with_pid(&output, "{pid}");
    let mut command = Command::new(program);
    command.args(rest).env("KINETO_ENABLED", "1").env("KINETO_ACTIVITIES_LOG_FILE", pattern);
    if let Some(library) = &arguments.inject {
        let library = library.canonicalize().map_err(|error| cannot(&format!("use {}", library.display()), error))?;
        command.env("CUDA_INJECTION64_PATH", library);
    }
    ignore_interrupts().map_err(|error| cannot("handle interrupts", error))?;
    let name = Path::new(program).display();
    let mut child = command.spawn().map_err(|error| cannot(&format!("run {name}"), error))?;
    let written = with_pid(&output, &child.id().to_string());
    let status = child.wait().map_err(|error| cannot(&format!("wait for {name}"), error))?;
    let code = exit_code(status);
    if let Err(error) = std::fs::rename(&written, &output) {
        let why = match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{name} wrote no trace: install the layer with KinetoLayer::from_env and without an output of its own, or give \
                 --inject for a CUDA program"
            ),
            _ => cannot(&format!("rename {}", written.display()), error),
        };
        print_error(&why);
        return Ok(if status.success() { ExitCode::FAILURE } else { code });
    }
    print_summary(&output, arguments.quiet);
    Ok(code)
}

/// Fails if no file can be made next to the output: the program would run in vain.
fn check_folder(output: &Path) -> Result<(), String> {
    let probe = output.with_file_name(format!(".kineto-record.{}.tmp", std::process::id()));
    let made = std::fs::File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe));
    made.map_err(|error| {
        format!("cannot write {}: {error}; name a file in a folder that you can write to (--output)", output.display())
    })
}

/// Prints the summary of a trace and how to open it.
fn print_summary(output: &Path, quiet: bool) {
    if quiet {
        return print_text(&format!("{}\n", escaped_path(output)));
    }
    match read_events(&TraceFile::named(output), false) {
        Ok(events) => {
            let summary = events.summary();
            let screen =
                summary.screen().width(terminal_width().unwrap_or(DEFAULT_WIDTH)).color(io::stdout().is_terminal());
            print_text(&format!("{}\n{screen}\nOpen it: kineto view {}\n", escaped_path(output), escaped_path(output)));
        }
        Err(error) => drop(print_error(&error)),
    }
}

fn default_output(program: &Path) -> PathBuf {
    let mut name = program.file_stem().unwrap_or_default().to_owned();
    name.push(".pt.trace.json.gz");
    PathBuf::from(name)
}

/// Returns the name of a process's trace, with `_PID` before the extensions.
fn with_pid(output: &Path, pid: &str) -> PathBuf {
    let name = output.file_name().unwrap_or_default();
    let bytes = name.as_encoded_bytes();
    let dot = bytes.iter().skip(1).position(|byte| *byte == b'.').map_or(bytes.len(), |dot| dot + 1);
    let text = name.to_string_lossy();
    match text.split_at_checked(dot) {
        Some((stem, extensions)) if name.to_str().is_some() => {
            output.with_file_name(format!("{stem}_{pid}{extensions}"))
        }
        _ => output.with_file_name(format!("{pid}.pt.trace.json.gz")),
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    let by_signal = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
    #[cfg(not(unix))]
    let by_signal = None;
    let code = status.code().or(by_signal).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Keeps this process running when the terminal interrupts the program, which then writes its trace.
#[cfg(unix)]
fn ignore_interrupts() -> io::Result<()> {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn ignore_interrupts() -> io::Result<()> {
    Ok(())
}

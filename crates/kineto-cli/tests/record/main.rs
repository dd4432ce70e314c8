//! Tests of `kineto record` on programs that this binary plays itself (`--play <name>`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::exit,
    reason = "a test; clippy knows those of Rust's own harness alone"
)]

use kineto_trace::analysis::Events;
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use support::harness::Test;
use tracing_kineto::KinetoLayer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

fn main() -> ExitCode {
    const TESTS: &[Test] = &[
        ("program_is_recorded_and_summarized", program_is_recorded_and_summarized),
        ("exit_status_is_the_programs", exit_status_is_the_programs),
        ("crashed_program_leaves_its_trace", crashed_program_leaves_its_trace),
        ("program_without_a_layer_is_an_error", program_without_a_layer_is_an_error),
        ("output_is_checked_before_the_program_runs", output_is_checked_before_the_program_runs),
        ("forked_children_write_separate_files", forked_children_write_separate_files),
        #[cfg(unix)]
        ("interrupt_ends_the_program_alone", interrupt_ends_the_program_alone),
    ];
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [play, name] if play == "--play" => ExitCode::from(act(name)),
        _ => support::harness::run(4, &[("record", &[TESTS])]),
    }
}

/// Plays a program; returns its exit status.
fn act(name: &str) -> u8 {
    if name == "bare" {
        return 0;
    }
    if name == "leaves a mark" {
        std::fs::write("mark", "").unwrap();
        return 0;
    }
    let (layer, guard) = KinetoLayer::from_env().unwrap();
    tracing_subscriber::registry().with(layer).init();
    tracing::info_span!("work", name).in_scope(|| std::hint::black_box(name.len()));
    match name {
        "fails" => 7,
        "panics" => {
            std::panic::set_hook(Box::new(|_| {}));
            panic!("on purpose")
        }
        "starts another" => {
            let status = Command::new(std::env::current_exe().unwrap()).args(["--play", "works"]).status().unwrap();
            drop(guard);
            u8::from(!status.success())
        }
        "waits" => {
            println!("ready");
            loop {
                std::thread::park();
            }
        }
        _ => 0,
    }
}

fn record(folder: &Path, output: &str, play: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kineto"));
    command.current_dir(folder).args(["record", "-o", output, "--"]).arg(std::env::current_exe().unwrap());
    command.args(["--play", play]);
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

fn output_is_checked_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), "no/such/x.json", "leaves a mark").output().unwrap();
    let (out, errors) = texts(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    assert!(
        errors.starts_with("cannot write ") && errors.contains("no/such/x.json: ") && errors.contains("--output"),
        "{errors}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the program ran");
}

#[track_caller]
fn has_work(trace: &Path) {
    let events = Events::read(trace).unwrap();
    assert!(events.iter().any(|event| event.name() == "work"), "{trace:?}");
}

fn program_is_recorded_and_summarized() {
    let folder = tempfile::Builder::new().prefix("a folder ").tempdir().unwrap();
    let output = record(folder.path(), "app.pt.trace.json.gz", "works").output().unwrap();
    let ((out, errors), trace) = (texts(&output), folder.path().join("app.pt.trace.json.gz"));
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(out.contains("Operations, by self time") && out.contains("work") && out.contains("kineto view "), "{out}");
    has_work(&trace);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn exit_status_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), "app.json", "fails").output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    has_work(&folder.path().join("app.json"));
    let missing =
        Command::new(env!("CARGO_BIN_EXE_kineto")).args(["record", "--", "/no/such/program"]).output().unwrap();
    assert!(missing.status.code() == Some(1) && texts(&missing).1.contains("cannot run /no/such/program"));
    let braces = record(folder.path(), "app_{host}.json", "works").output().unwrap();
    assert!(braces.status.code() == Some(1) && texts(&braces).1.contains("name a file"));
}

fn crashed_program_leaves_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), "app.json", "panics").output().unwrap();
    assert_eq!(output.status.code(), Some(101));
    has_work(&folder.path().join("app.json"));
}

fn program_without_a_layer_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), "app.json", "bare").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("wrote no trace: install the layer with KinetoLayer::from_env"));
}

fn forked_children_write_separate_files() {
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), "app.json", "starts another").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    files.iter().for_each(|file| has_work(file));
}

#[cfg(unix)]
fn interrupt_ends_the_program_alone() {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::process::Stdio;

    let folder = tempfile::tempdir().unwrap();
    let mut command = record(folder.path(), "app.json", "waits");
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // A terminal signals the whole process group.
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    has_work(&folder.path().join("app.json"));
}

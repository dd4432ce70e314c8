//! The files of requests: which names they get, which files they replace, and what happens at the limits of the system.

use crate::program::{Place, Program, Trace};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use support::harness::Test;

pub(crate) const TESTS: &[Test] = &[
    ("request_fails_at_the_file_size_limit", request_fails_at_the_file_size_limit),
    ("stderr_at_the_file_size_limit_ends_no_program", stderr_at_the_file_size_limit_ends_no_program),
];

/// Starts a program by a shell that first runs `prelude`.
fn start_after(place: &Place, prelude: &str, env: &[(&str, &str)]) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{prelude}; exec \"$@\""), "sh"]).arg(std::env::current_exe().unwrap());
    let folder = place.triggers().display().to_string();
    let own = [("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)];
    place.start_by(command, "serve", &[&own, env].concat())
}

/// Leaves a request, and waits until its answer ends so.
fn ask(place: &Place, program: &Program, text: &str, end: &str) -> String {
    let (request, answer) = (path_of(place, program, "request"), path_of(place, program, "answer"));
    let prepared = place.triggers().join("prepared");
    fs::write(&prepared, text).unwrap();
    let _ = fs::remove_file(&answer);
    fs::rename(&prepared, &request).unwrap();
    program.wait_until(|| {
        let answer = fs::read_to_string(&answer).unwrap_or_default();
        answer.ends_with(end).then_some(answer)
    })
}

fn path_of(place: &Place, program: &Program, end: &str) -> PathBuf {
    place.triggers().join(format!("{}.{end}", program.pid()))
}

fn request_fails_at_the_file_size_limit() {
    let place = Place::new();
    // Less than any trace has.
    let program = start_after(&place, "ulimit -S -f 4", &[]);
    program.wait_for(".request` traces this process");
    let answer = ask(&place, &program, &place.text_for_a_time("a.json", 1), "failed\n");
    assert!(answer.contains("File too large") && answer.contains("ulimit -f"), "{answer}");
    assert_eq!(place.traces().len(), 0);
    lift_limit(&program);
    ask(&place, &program, &place.text_for_a_time("b.json", 1), "done\n");
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn stderr_at_the_file_size_limit_ends_no_program() {
    let place = Place::new();
    let program = start_after(&place, "head -c 1000000 /dev/zero >&2; ulimit -S -f 4", &[]);
    ask(&place, &program, &place.text_for_a_time("a.json", 1), "failed\n");
    lift_limit(&program);
    ask(&place, &program, &place.text_for_a_time("b.json", 1), "done\n");
    program.end();
}

/// Lets a program write files of any size again.
fn lift_limit(program: &Program) {
    let lifted = Command::new("prlimit").args(["--fsize=unlimited", "--pid", &program.pid().to_string()]).status();
    assert!(lifted.unwrap().success());
}

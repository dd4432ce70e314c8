//! Two copies of the library in one process, as two shared libraries that contain this crate.

use super::program::{Program, Trace, libraries};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// Runs a program with two copies until that end; returns how it ended, its messages, and the ranges by file.
fn run(end: &str, env: &[(&str, &str)]) -> (ExitStatus, String, BTreeMap<String, Vec<String>>) {
    let program = Program::linked("cc", "-std=c11", "copies.c", &[]);
    let copies = ["one.so", "two.so"].map(|name| program.file(name));
    copies.iter().for_each(|copy| _ = std::fs::copy(libraries().0, copy).unwrap());
    let traces = program.file("traces");
    std::fs::create_dir(&traces).unwrap();
    let mut command = Command::new(program.file("program"));
    command.args(&copies).arg(end).arg(&traces).env_remove("LD_LIBRARY_PATH").envs(env.iter().copied());
    command.env("KINETO_ACTIVITIES_LOG_FILE", traces.join("{pid}.json").as_os_str());
    command.env("KINETO_FLUSH_TIMEOUT_MSECS", "60000");
    let output = command.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let files = std::fs::read_dir(&traces).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let names = Trace::read(&path).names("cpu_op").iter().map(|name| (*name).to_owned()).collect();
        (path.file_name().unwrap().to_str().unwrap().to_owned(), names)
    };
    (output.status, messages, files.map(read).collect())
}

#[test]
fn both_copies_write_their_traces_when_the_process_ends() {
    for (end, signal) in [("exit", None), ("term", Some(libc::SIGTERM)), ("hangup", Some(libc::SIGHUP))] {
        let (status, messages, files) = run(end, &[]);
        assert_eq!(status.signal(), signal, "{end}: {messages}");
        let ranges: Vec<_> = files.values().map(Vec::as_slice).collect();
        // The second has a number behind its name.
        assert_eq!(ranges, [["first"], ["second"]], "{end}: {files:?}: {messages}");
        let warning = "belongs to another layer of this process; this one's traces go to";
        assert_eq!(messages.matches(warning).count(), 1, "{end}: {messages}");
    }
}

#[test]
fn both_copies_dump_at_a_signal() {
    let env = [("KINETO_DUMP_ON", "signal"), ("KINETO_OVERFLOW", "keep_newest")];
    let (status, messages, files) = run("dump", &env);
    assert!(status.success(), "{messages}");
    let mut ranges: Vec<_> = files.into_values().collect();
    ranges.sort();
    assert_eq!(ranges, [["first"], ["second"]], "{messages}");
}

//! Tests of the command's effects, output and exit status.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::harness::Test;
use support::poll_until;
use support::program::{Program, TestFolders, Trace, in_pid_namespace};

pub(crate) const TESTS: &[Test] = &[
    ("command_follows_a_request_to_its_file", command_follows_a_request_to_its_file),
    ("command_gets_the_last_records", command_gets_the_last_records),
    ("command_starts_processes_together", command_starts_processes_together),
    ("command_reports_why_there_is_no_file", command_reports_why_there_is_no_file),
    ("command_waits_up_to_its_timeout", command_waits_up_to_its_timeout),
    ("command_reaches_into_a_container", command_reaches_into_a_container),
    ("command_does_not_follow_links_out_of_container", command_does_not_follow_links_out_of_container),
    ("command_opens_only_folders_and_files", command_opens_only_folders_and_files),
    ("command_serves_no_set_user_id_program", command_serves_no_set_user_id_program),
    ("command_cancels_requests", command_cancels_requests),
    ("command_reports_that_its_request_was_replaced", command_reports_that_its_request_was_replaced),
    ("status_reports_the_state_of_a_process", status_reports_the_state_of_a_process),
    ("top_shows_what_a_process_records", top_shows_what_a_process_records),
    ("top_shows_that_a_program_hangs_or_ended", top_shows_that_a_program_hangs_or_ended),
    ("top_fits_its_terminal_and_restores_it", top_fits_its_terminal_and_restores_it),
    ("top_draws_again_when_it_continues", top_draws_again_when_it_continues),
    ("concurrent_commands_get_their_own_files", concurrent_commands_get_their_own_files),
    ("command_rejects_the_answer_to_another_request", command_rejects_the_answer_to_another_request),
];

const KINETO: &str = env!("CARGO_BIN_EXE_kineto");

/// Runs `kineto trigger`.
fn kineto(arguments: &[&str]) -> TriggerOutput {
    TriggerOutput::new(Command::new(KINETO).arg("trigger").args(arguments).output().unwrap())
}

#[derive(Debug)]
struct TriggerOutput {
    out: String,
    errors: String,
    status: i32,
}

impl TriggerOutput {
    fn new(output: Output) -> TriggerOutput {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        TriggerOutput { out: text(output.stdout), errors: text(output.stderr), status: output.status.code().unwrap() }
    }
}

fn pid_of(program: &Program) -> String {
    program.pid().to_string()
}

fn command_follows_a_request_to_its_file() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let (pid, path) = (pid_of(&program), place.trace("a#1.json").display().to_string());
    let output = kineto(&[&pid, "--log-file", &path, "--duration-ms", "50"]);
    assert_eq!((output.status, output.errors.as_str()), (0, ""), "{output:?}");
    let written = place.trace(&format!("a#1_{pid}.json"));
    for line in ["triggered by a file of user ", "recording started", "request ended: written, trace "] {
        assert!(
            output.out.lines().any(|output| output.starts_with(&format!("{pid}: {line}"))),
            "no {line:?} in {output:?}"
        );
    }
    assert!(output.out.matches(&format!("{pid}: ")).count() == 3 && !output.out.contains('\x1b'), "{output:?}");
    assert!(output.out.contains(&format!(" to {}: ", written.display())), "{output:?}");
    assert!(!Trace::wait_for(&written).slices("work").is_empty());
    let later = kineto(&[&pid, "--no-wait", "--activities", "kernel", "--log-file", &path]);
    assert_eq!((later.status, later.out), (0, format!("{pid}: request submitted\n")));
    program.wait_for(&format!(" to {}: empty", written.display()));
    program.end();
}

/// Starts a program that always records, into a file of the test's folder.
fn start_keeping_newest(place: &TestFolders, env: &[(&str, &str)]) -> Program {
    let own = place.file("own.json").display().to_string();
    let newest = [("KINETO_OVERFLOW", "keep_newest"), ("KINETO_ACTIVITIES_LOG_FILE", own.as_str())];
    place.start_watching_with("serve", &[&newest, env].concat())
}

fn command_gets_the_last_records() {
    let place = TestFolders::new();
    let program = start_keeping_newest(&place, &[]);
    program.wait_for_watch();
    let (pid, path) = (pid_of(&program), place.trace("last.json").display().to_string());
    let output = kineto(&[&pid, "--log-file", &path, "--last", "2s"]);
    assert_eq!((output.status, output.errors.as_str()), (0, ""), "{output:?}");
    assert!(output.out.contains("the last 2s into ") && output.out.contains("request ended: written"), "{output:?}");
    Trace::wait_for(&place.trace(&format!("last_{pid}.json")));
    program.end();
    let without = place.start_watching("serve");
    let output = kineto(&[&pid_of(&without), "--last", "2s"]);
    assert!(output.status == 1 && output.errors.contains("the program records nothing now"), "{output:?}");
    without.end();
}

fn command_starts_processes_together() {
    let place = TestFolders::new();
    let programs = [place.start_watching("serve"), place.start_watching("serve"), place.start_watching("serve")];
    let pids: Vec<_> = programs.iter().map(pid_of).collect();
    let path = place.trace("t.json").display().to_string();
    let mut arguments: Vec<_> = pids.iter().map(String::as_str).collect();
    arguments.extend(["--log-file", &path, "--duration-ms", "100"]);
    let output = kineto(&arguments);
    assert_eq!((output.status, output.out.matches("written, trace ").count()), (0, 3), "{output:?}");
    assert!(programs.iter().all(|program| program.stderr().contains("from a given time on")));
    let window = |pid: &String| Trace::wait_for(&place.trace(&format!("t_{pid}.json"))).window();
    let windows: Vec<_> = pids.iter().map(window).collect();
    let starts = windows.iter().map(|window| window.0);
    println!("starts lie {} us apart", (starts.clone().max().unwrap() - starts.clone().min().unwrap()) / 1000);
    // All of them record at the same time.
    let first_end = windows.iter().map(|window| window.0 + window.1).min().unwrap();
    assert!(starts.max().unwrap() < first_end, "{windows:?}");
    // A failure for one process does not affect the others.
    let output = kineto(&[&pids[0], "999999999", "--log-file", &path, "--duration-ms", "1"]);
    assert_eq!((output.status, output.out.matches("written, trace ").count()), (1, 1), "{output:?}");
    assert_eq!(output.errors, "999999999: there is no such process\n");
    programs.into_iter().for_each(|program| drop(program.end()));
}

fn command_reports_why_there_is_no_file() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let pid = pid_of(&program);
    let output = kineto(&[&pid, "--duration-ms", "3600001"]);
    let why = format!("{pid}: request ended: the request by a file of user ");
    assert_eq!((output.status, output.out.as_str()), (1, ""), "{output:?}");
    assert!(output.errors.starts_with(&why) && output.errors.contains("between 1 ms and 3600s"), "{output:?}");
    let own = std::process::id().to_string();
    let folder = place.triggers().display().to_string();
    let fails = |arguments: &[&str], why: &str| {
        let output = kineto(arguments);
        assert!(output.status == 1 && output.errors.contains(why), "{output:?}");
    };
    fails(&[&own], "it was started without KINETO_TRIGGER_DIR");
    fails(&[&own, "--dir", &folder], "it does not listen");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut threads = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap());
    let thread = threads.find(|thread| *thread != pid).unwrap();
    fails(&[&thread], &format!("a thread of process {pid}"));
    fails(&[&pid, "--dir", "/no/such"], "cannot use /no/such: No such file");
    for wrong in [&[][..], &["x"], &[&pid, "--log-file", "a\nb"], &[&pid, "--duration-ms", "soon"]] {
        assert_eq!(kineto(wrong).status, 2, "{wrong:?}");
    }
    program.end();
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

fn command_waits_up_to_its_timeout() {
    let place = TestFolders::new();
    let mut program = place.start_watching("commanded");
    let pid = pid_of(&program);
    program.send("start");
    program.wait_for("done: start");
    let output = kineto(&[&pid, "--timeout", "1"]);
    assert!(output.status == 1 && output.errors.contains("not taken in time and was withdrawn"), "{output:?}");
    program.send("stop");
    program.wait_for("done: stop");
    // A process that ends meanwhile is reported.
    let path = place.trace("a.json").display().to_string();
    let command = std::thread::scope(|scope| {
        let command = scope.spawn(|| kineto(&[&pid, "--duration-ms", "600000", "--log-file", &path]));
        program.wait_for("recording started");
        program.kill();
        command.join().unwrap()
    });
    assert!(command.status == 1 && command.errors.contains("it ended before writing its file"), "{command:?}");
}

fn command_reaches_into_a_container() {
    let place = TestFolders::new();
    // The folder's content there is not visible from here.
    let hidden = "mount -t tmpfs none \"$KINETO_TRIGGER_DIR\" && exec \"$@\"";
    let Some(command) = in_pid_namespace(&["--mount"], &["sh", "-c", hidden, "sh"]) else { return };
    let folder = place.triggers().display().to_string();
    let program = place.start_by(command, "serve", &[("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)]);
    program.wait_for("1.request` traces this process");
    let inner = fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid())).unwrap();
    let path = place.trace("a.json").display().to_string();
    let output = kineto(&[inner.trim(), "--log-file", &path, "--duration-ms", "10"]);
    assert_eq!(output.status, 0, "{output:?}");
    let below = format!("from this file system, its files are below /proc/{}/root", inner.trim());
    assert!(output.out.contains("a_1.json: ") && output.out.contains(&below), "{output:?}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
    program.end();
}

fn command_does_not_follow_links_out_of_container() {
    let place = TestFolders::new();
    // An absolute link is resolved from the caller's root.
    let (link, folder) = (place.file("link"), place.triggers());
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    let hidden = format!("mount -t tmpfs none '{}' && exec \"$@\"", folder.display());
    let Some(command) = in_pid_namespace(&["--mount"], &["sh", "-c", &hidden, "sh"]) else { return };
    let folder = link.display().to_string();
    let program = place.start_by(command, "serve", &[("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)]);
    program.wait_for("1.request` traces this process");
    let inner = fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid())).unwrap();
    let output = kineto(&[inner.trim(), "--duration-ms", "10", "--timeout", "9"]);
    assert!(output.status == 1 && output.errors.contains("is a link"), "{output:?}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
    program.end();
}

/// Runs the command; if it hangs, it is killed and reported.
fn kineto_in_time(arguments: &[&str]) -> TriggerOutput {
    let mut command = Command::new(KINETO);
    command.arg("trigger").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while process.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            process.kill().unwrap();
            panic!("the command hangs: {:?}", process.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    TriggerOutput::new(process.wait_with_output().unwrap())
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn command_opens_only_folders_and_files() {
    let place = TestFolders::new();
    let fifo = place.file("fifo");
    make_fifo(&fifo);
    // A program's environment may name a pipe or a device.
    for (named, why) in [(fifo.as_path(), "Not a directory"), (Path::new("/dev/null"), "Not a directory")] {
        let folder = named.display().to_string();
        let program = place.start_watching_with("serve", &[("KINETO_TRIGGER_DIR", &folder)]);
        program.wait_for("cannot be watched for requests yet");
        let output = kineto_in_time(&[&pid_of(&program)]);
        assert!(output.status == 1 && output.errors.contains(why), "{output:?}");
        program.end();
    }
    // An answer that is not a regular file is not opened either.
    let listening = listen_as(None, &place.triggers());
    let request = listening.path(&place, "request");
    let folder = place.triggers().display().to_string();
    let pid = listening.0.id().to_string();
    let output = std::thread::scope(|scope| {
        let output = scope.spawn(|| kineto_in_time(&[&pid, "--dir", &folder]));
        poll_until(|| request.exists());
        make_fifo(&listening.answer_path(&place));
        fs::remove_file(&request).unwrap();
        output.join().unwrap()
    });
    assert!(output.status == 1 && output.errors.contains("it is not a regular file"), "{output:?}");
}

/// A listening process that ends with the test.
struct ListeningProcess(Child);

impl ListeningProcess {
    fn path(&self, place: &TestFolders, end: &str) -> PathBuf {
        place.triggers().join(format!("{}.{end}", self.0.id()))
    }

    /// Returns the path of the answer to the request in the folder.
    fn answer_path(&self, place: &TestFolders) -> PathBuf {
        let text = fs::read_to_string(self.path(place, "request")).unwrap();
        let id = text.lines().find_map(|line| line.strip_prefix("REQUEST_TRACE_ID=")).unwrap();
        self.path(place, &format!("{id}.answer"))
    }
}

impl Drop for ListeningProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process that pretends to take requests, with this effective user.
fn listen_as(user: Option<u32>, folder: &Path) -> ListeningProcess {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--play", &format!("pretends {}", user.map_or_else(String::new, |user| user.to_string()))]);
    command.env("KINETO_TRIGGER_DIR", folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = ListeningProcess(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "pretends\n");
    process
}

fn command_serves_no_set_user_id_program() {
    const UNPRIVILEGED_USER: u32 = 65534;
    let place = TestFolders::new();
    if std::os::unix::fs::chown(place.triggers(), Some(UNPRIVILEGED_USER), None).is_err() {
        println!("skipped: only root can be another user");
        return;
    }
    let listening = listen_as(Some(UNPRIVILEGED_USER), &place.triggers());
    let output = kineto_in_time(&[&listening.0.id().to_string(), "--no-wait"]);
    assert!(output.status == 1 && output.errors.contains("disabled in set-user-ID"), "{output:?}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

/// Waits until the status of a process satisfies `is_so`.
fn wait_for_status(pid: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
    poll_until(|| {
        let output = TriggerOutput::new(Command::new(KINETO).args(["status", "--json", pid]).output().unwrap());
        serde_json::from_str(&output.out).is_ok_and(|status| is_so(&status))
    });
}

fn status_reports_the_state_of_a_process() {
    let place = TestFolders::new();
    let mut program = place.start_watching("commanded");
    let pid = pid_of(&program);
    wait_for_status(&pid, |status| status["state"] == "idle" && status["waiting"] == 0 && status["last"].is_null());
    program.send("start");
    wait_for_status(&pid, |status| status["state"] == "recording by itself");
    program.send("stop");
    program.wait_for("done: stop");
    let path = place.trace("a.json").display().to_string();
    kineto(&[&pid, "--no-wait", "--log-file", &path, "--duration-ms", "3600000"]);
    wait_for_status(&pid, |status| {
        status["state"] == "recording" && status["request"].as_str().is_some_and(|id| !id.is_empty())
    });
    kineto(&[&pid, "--cancel"]);
    wait_for_status(&pid, |status| status["state"] == "idle" && status["last"]["outcome"] == "cancelled");
    kineto(&[&pid, "--log-file", &path, "--duration-ms", "1"]);
    let written = place.trace(&format!("a_{pid}.json")).display().to_string();
    wait_for_status(&pid, |status| status["state"] == "idle" && status["last"]["path"] == written.as_str());
    let output = TriggerOutput::new(Command::new(KINETO).args(["status", &pid]).output().unwrap());
    let expected = format!("{pid}: idle; requests waiting: 0\n{pid}: last request: written to {written}\n");
    assert_eq!((output.status, output.out), (0, expected));
    program.end();
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
    let output = TriggerOutput::new(Command::new(KINETO).args(["status", &pid]).output().unwrap());
    assert!(output.status == 1 && output.errors.contains("there is no such process"), "{output:?}");
}

fn command_cancels_requests() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let pid = pid_of(&program);
    let path = place.trace("a.json").display().to_string();
    let output = kineto(&[&pid, "--no-wait", "--log-file", &path, "--duration-ms", "3600000"]);
    assert_eq!(output.status, 0, "{output:?}");
    program.wait_for("recording started");
    let output = kineto(&[&pid, "--cancel"]);
    assert!(output.status == 0 && output.out.contains("1 request cancelled"), "{output:?}");
    program.end();
    assert_eq!(place.traces().len(), 0);
}

fn command_reports_that_its_request_was_replaced() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let pid = pid_of(&program);
    let path = place.trace("a.json").display().to_string();
    let hours = [&pid, "--log-file", &path, "--duration-ms", "3600000"];
    assert_eq!(kineto(&[&hours[..], &["--no-wait"]].concat()).status, 0);
    program.wait_for("recording started");
    std::thread::scope(|scope| {
        // The program takes the next request when this one has ended.
        let waits = scope.spawn(|| kineto(&hours));
        let request = place.triggers().join(format!("{pid}.request"));
        program.wait_until(|| request.exists().then_some(()));
        assert_eq!(kineto(&[&pid, "--cancel"]).status, 0);
        let output = waits.join().unwrap();
        assert!(
            output.status != 0 && output.errors.contains("a later request (--cancel) has replaced it"),
            "{output:?}"
        );
    });
    program.end();
}

fn top_shows_what_a_process_records() {
    let (place, shm) = (TestFolders::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    let folder = shm.path().to_str().unwrap();
    let program = start_keeping_newest(&place, &[("KINETO_SHM_DIR", folder), ("KINETO_BUFFER_LIMIT_MB", "8")]);
    program.wait_for_watch();
    let pid = pid_of(&program);
    for target in [pid.as_str(), folder] {
        // The first spans end soon after the start, and the state is on disk soon after the watch begins.
        let state = if target == pid { format!("{pid}: recording by itself") } else { String::new() };
        let output = std::iter::repeat_with(|| top(&[target, "--once", "--rows", "1"]));
        let shows_all = |output: &TriggerOutput| output.out.starts_with(&state) && output.out.contains(" work\n");
        let output = output.take(100).find(shows_all).expect("the state, and a row of the span `work`");
        assert_eq!((output.status, output.errors.as_str()), (0, ""), "{output:?}");
        let mut lines: Vec<_> = output.out.lines().collect();
        if target == pid {
            lines.remove(0);
        }
        assert!(lines[0].starts_with(&format!("process {pid}   recorded ")), "{output:?}");
        assert!(lines[1].ends_with(".klive") && lines[2].contains(" spans/s   newest record: "), "{output:?}");
        assert!(lines[3].starts_with("no device work   memory "), "{output:?}");
        assert!(lines[4].starts_with("lost: nothing   torn: "), "{output:?}");
        assert!(!output.out.contains('\x1b'), "{output:?}");
    }
    assert!(!top(&[&pid, "--once"]).out.contains("has ended"));
    // A reader that closes the pipe ends the command.
    let mut endless =
        Command::new(KINETO).args(["top", &pid, "--interval", "0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(endless.stdout.take());
    assert_eq!(endless.wait().unwrap().code(), Some(0));
    program.end();
    let ended = top(&[&pid, "--once"]);
    assert_eq!((ended.status, ended.errors), (1, format!("there is no process {pid}; check the number\n")));
    assert_eq!((top(&[folder]).status, top(&[&pid, "--interval", "0"]).status, top(&[]).status), (1, 2, 2));
}

/// Starts a program whose newest records are in a live file in `folder`, and waits for the first ones.
fn start_with_live_file(place: &TestFolders, folder: &str) -> Program {
    let program = start_keeping_newest(place, &[("KINETO_SHM_DIR", folder), ("KINETO_BUFFER_LIMIT_MB", "8")]);
    program.wait_until(|| top(&[folder, "--once"]).out.contains(" work\n").then_some(()));
    program
}

fn top(arguments: &[&str]) -> TriggerOutput {
    TriggerOutput::new(Command::new(KINETO).arg("top").args(arguments).output().unwrap())
}

fn top_shows_that_a_program_hangs_or_ended() {
    let (place, shm) = (TestFolders::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    let folder = shm.path().to_str().unwrap();
    let program = start_with_live_file(&place, folder);
    let (pid, process) = (pid_of(&program), Pid::from_raw(program.pid().cast_signed()).unwrap());
    kill_process(process, Signal::STOP).unwrap();
    let is_idle = |output: &TriggerOutput| output.out.contains(": 0.0 spans/s   newest record: ");
    for target in [&*pid, folder] {
        let stopped = program.wait_until(|| Some(top(&[target, "--once", "--interval", "0.1"])).filter(is_idle));
        assert!(!stopped.out.contains("has ended") && !stopped.out.contains(" work\n"), "{stopped:?}");
    }
    let mut watching =
        Command::new(KINETO).args(["top", &pid, "--interval", "0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watching.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    // Its parent, this process, does not wait for it.
    kill_process(process, Signal::KILL).unwrap();
    drop(watching.stdout.take());
    assert_eq!(watching.wait().unwrap().code(), Some(0), "{line}");
    let left = program.wait_until(|| Some(top(&[folder, "--once"])).filter(|output| output.out.contains("has ended")));
    assert!(left.out.contains(&format!("\nprocess {pid} has ended or stopped recording; ")), "{left:?}");
    let output = top(&[&pid, "--once"]);
    assert!(output.status == 1 && output.errors.starts_with(&format!("process {pid} has ended; ")), "{output:?}");
    let output = TriggerOutput::new(Command::new(KINETO).args(["status", &pid]).output().unwrap());
    assert!(output.status == 1 && output.errors.contains("it has ended, and its parent has not waited"), "{output:?}");
}

fn top_fits_its_terminal_and_restores_it() {
    let (place, shm) = (TestFolders::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    let program = start_with_live_file(&place, shm.path().to_str().unwrap());
    let mut watching = WatchedTop::start(&["top", &pid_of(&program), "--interval", "0.1"]);
    let text = watching.read_until(|text| text.matches("process ").count() >= 2);
    let tables: Vec<_> = text.split("\u{1b}[H\u{1b}[2J").collect();
    assert_eq!(tables[0], "\u{1b}[?1049h", "{text:?}");
    assert!(tables[2].lines().count() <= 8 && tables[2].lines().all(|line| line.chars().count() <= 40), "{text:?}");
    assert!(tables[2].lines().any(|line| line.ends_with('…')), "{text:?}");
    watching.send(Signal::INT);
    let text = watching.read_until(|_| false);
    assert!(text.ends_with("\u{1b}[?1049l"), "{text:?}");
    assert_eq!(watching.command.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    program.end();
}

fn top_draws_again_when_it_continues() {
    let (place, shm) = (TestFolders::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    let program = start_with_live_file(&place, shm.path().to_str().unwrap());
    // No second reading during the test.
    let mut watching = WatchedTop::start(&["top", &pid_of(&program), "--interval", "3600"]);
    watching.read_until(|text| text.contains("process ") && text.contains("  span"));
    for (stop, enter) in [(Signal::TSTP, "\u{1b}[?1049h"), (Signal::STOP, "")] {
        watching.shown.clear();
        watching.send(stop);
        poll_until(|| watching.is_stopped());
        watching.send(Signal::CONT);
        let left = if stop == Signal::TSTP { "\u{1b}[?1049l" } else { "" };
        let wanted = format!("{left}{enter}\u{1b}[H\u{1b}[2J");
        let is_drawn = |table: &str| table.contains("process ") && table.contains("  span");
        let text = watching.read_until(|text| text.split_once(&wanted).is_some_and(|(_, table)| is_drawn(table)));
        // The end of the table before may come after the stop.
        let parts = text.split_once(&wanted);
        let is_again = parts.is_some_and(|(before, table)| !before.contains('\u{1b}') && is_drawn(table));
        assert!(is_again, "{stop:?}: {text:?}");
    }
    watching.send(Signal::TERM);
    assert_eq!(watching.command.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    program.end();
}

/// `kineto top` in a terminal of its own.
struct WatchedTop {
    command: Child,
    terminal: fs::File,
    shown: Vec<u8>,
}

impl WatchedTop {
    fn start(arguments: &[&str]) -> WatchedTop {
        let terminal = fs::File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap());
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: 9, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let end = fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let mut command = Command::new(KINETO);
        command.args(arguments).stdin(Stdio::null()).stdout(end);
        WatchedTop { command: command.spawn().unwrap(), terminal, shown: Vec::new() }
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.command.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Reads until a text is shown, until the command has ended, or for a minute.
    fn read_until(&mut self, is_enough: impl Fn(&str) -> bool) -> String {
        const WAIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
        loop {
            let text = String::from_utf8_lossy(&self.shown).into_owned();
            let mut ready = [PollFd::new(&self.terminal, PollFlags::IN)];
            if is_enough(&text) || poll(&mut ready, Some(&WAIT)).unwrap() == 0 {
                return text;
            }
            let mut part = [0; 1024];
            match self.terminal.read(&mut part) {
                // A terminal that no process has open any more cannot be read.
                Ok(0) | Err(_) => return text,
                Ok(read) => self.shown.extend(&part[..read]),
            }
        }
    }

    fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.command.id())).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    }
}

fn concurrent_commands_get_their_own_files() {
    const CALLERS: usize = 4;
    const ROUNDS: usize = 5;
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let pid = pid_of(&program);
    let call = |name: String| {
        let path = place.trace(&format!("{name}.json")).display().to_string();
        let output = kineto(&[&pid, "--log-file", &path, "--duration-ms", "1"]);
        let own = place.trace(&format!("{name}_{pid}.json"));
        match output.status {
            0 => assert!(own.exists() && output.out.contains(&format!(" to {}: ", own.display())), "{output:?}"),
            // A request that was taken always has an answer.
            _ => assert!(output.errors.contains("another request is waiting"), "{output:?}"),
        }
        output.status == 0
    };
    let done = std::thread::scope(|scope| {
        let call = &call;
        let caller = |caller: usize| move || (0..ROUNDS).map(|n| call(format!("c{caller}-{n}"))).collect::<Vec<_>>();
        let callers: Vec<_> = (0..CALLERS).map(|number| scope.spawn(caller(number))).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
    });
    println!("{} of {} calls had their file", done.iter().filter(|done| **done).count(), done.len());
    assert!(done.contains(&true));
    program.end();
}

fn command_rejects_the_answer_to_another_request() {
    let place = TestFolders::new();
    let listening = listen_as(None, &place.triggers());
    let request = listening.path(&place, "request");
    let folder = place.triggers().display().to_string();
    let pid = listening.0.id().to_string();
    let output = std::thread::scope(|scope| {
        let output = scope.spawn(|| kineto_in_time(&[&pid, "--dir", &folder]));
        poll_until(|| request.exists());
        fs::write(listening.answer_path(&place), "request 7\nwritten to /tmp/of-another-one.json\ndone\n").unwrap();
        fs::remove_file(&request).unwrap();
        output.join().unwrap()
    });
    assert!(output.status == 1 && output.errors.contains("the answer to another request"), "{output:?}");
}

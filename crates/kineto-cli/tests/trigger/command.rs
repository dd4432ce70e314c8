//! What the command does, what it prints, and with which status it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::harness::Test;
use support::program::{Place, Program, Trace, in_pid_namespace};

pub(crate) const TESTS: &[Test] = &[
    ("the_command_follows_a_request_to_its_file", the_command_follows_a_request_to_its_file),
    ("the_command_starts_processes_together", the_command_starts_processes_together),
    ("the_command_says_why_there_is_no_file", the_command_says_why_there_is_no_file),
    ("the_command_does_not_wait_for_ever", the_command_does_not_wait_for_ever),
    ("the_command_reaches_into_a_container", the_command_reaches_into_a_container),
    ("the_command_is_not_led_out_of_a_container", the_command_is_not_led_out_of_a_container),
    ("command_opens_only_folders_and_files", command_opens_only_folders_and_files),
    ("command_serves_no_set_user_id_program", command_serves_no_set_user_id_program),
    ("command_cancels_requests", command_cancels_requests),
    (
        "command_reports_that_a_later_one_has_replaced_its_request",
        command_reports_that_a_later_one_has_replaced_its_request,
    ),
    ("status_says_what_a_process_is_doing", status_says_what_a_process_is_doing),
    ("concurrent_commands_get_their_own_files", concurrent_commands_get_their_own_files),
    ("command_takes_no_other_requests_answer", command_takes_no_other_requests_answer),
];

const KINETO: &str = env!("CARGO_BIN_EXE_kineto");

/// Runs `kineto trigger`.
fn kineto(arguments: &[&str]) -> Said {
    Said::new(Command::new(KINETO).arg("trigger").args(arguments).output().unwrap())
}

#[derive(Debug)]
struct Said {
    out: String,
    errors: String,
    status: i32,
}

impl Said {
    fn new(output: Output) -> Said {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { out: text(output.stdout), errors: text(output.stderr), status: output.status.code().unwrap() }
    }
}

fn pid_of(program: &Program) -> String {
    program.pid().to_string()
}

fn the_command_follows_a_request_to_its_file() {
    let place = Place::new();
    let program = place.start_watching("serve");
    let (pid, path) = (pid_of(&program), place.trace("a#1.json").display().to_string());
    let said = kineto(&[&pid, "--log-file", &path, "--duration-ms", "50"]);
    assert_eq!((said.status, said.errors.as_str()), (0, ""), "{said:?}");
    let written = place.trace(&format!("a#1_{pid}.json"));
    for line in ["triggered by a file of user ", "recording started", "request ended: written, trace "] {
        assert!(said.out.lines().any(|said| said.starts_with(&format!("{pid}: {line}"))), "no {line:?} in {said:?}");
    }
    assert!(said.out.matches(&format!("{pid}: ")).count() == 3 && !said.out.contains('\x1b'), "{said:?}");
    assert!(said.out.contains(&format!(" to {}: ", written.display())), "{said:?}");
    assert!(!Trace::wait_for(&written).slices("work").is_empty());
    let later = kineto(&[&pid, "--no-wait", "--activities", "kernel", "--log-file", &path]);
    assert_eq!((later.status, later.out), (0, format!("{pid}: asked\n")));
    program.wait_for(&format!(" to {}: empty", written.display()));
    program.end();
}

fn the_command_starts_processes_together() {
    let place = Place::new();
    let programs = [place.start_watching("serve"), place.start_watching("serve"), place.start_watching("serve")];
    let pids: Vec<_> = programs.iter().map(pid_of).collect();
    let path = place.trace("t.json").display().to_string();
    let mut arguments: Vec<_> = pids.iter().map(String::as_str).collect();
    arguments.extend(["--log-file", &path, "--duration-ms", "100"]);
    let said = kineto(&arguments);
    assert_eq!((said.status, said.out.matches("written, trace ").count()), (0, 3), "{said:?}");
    assert!(programs.iter().all(|program| program.stderr().contains("from a given time on")));
    let window = |pid: &String| Trace::wait_for(&place.trace(&format!("t_{pid}.json"))).window();
    let windows: Vec<_> = pids.iter().map(window).collect();
    let starts = windows.iter().map(|window| window.0);
    println!("starts lie {} us apart", (starts.clone().max().unwrap() - starts.clone().min().unwrap()) / 1000);
    // There is a time at which all of them record.
    let first_end = windows.iter().map(|window| window.0 + window.1).min().unwrap();
    assert!(starts.max().unwrap() < first_end, "{windows:?}");
    // One that cannot is told, and the others are done.
    let said = kineto(&[&pids[0], "999999999", "--log-file", &path, "--duration-ms", "1"]);
    assert_eq!((said.status, said.out.matches("written, trace ").count()), (1, 1), "{said:?}");
    assert_eq!(said.errors, "999999999: there is no such process\n");
    programs.into_iter().for_each(|program| drop(program.end()));
}

fn the_command_says_why_there_is_no_file() {
    let place = Place::new();
    let program = place.start_watching("serve");
    let pid = pid_of(&program);
    let said = kineto(&[&pid, "--duration-ms", "3600001"]);
    let why = format!("{pid}: request ended: the request by a file of user ");
    assert_eq!((said.status, said.out.as_str()), (1, ""), "{said:?}");
    assert!(said.errors.starts_with(&why) && said.errors.contains("between 1 ms and 3600s"), "{said:?}");
    let own = std::process::id().to_string();
    let folder = place.triggers().display().to_string();
    let fails = |arguments: &[&str], why: &str| {
        let said = kineto(arguments);
        assert!(said.status == 1 && said.errors.contains(why), "{said:?}");
    };
    fails(&[&own], "it was started without KINETO_TRIGGER_DIR");
    fails(&[&own, "--dir", &folder], "it does not listen");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut threads = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap());
    let thread = threads.find(|thread| *thread != pid).unwrap();
    fails(&[&thread], &format!("that is a thread of process {pid}"));
    fails(&[&pid, "--dir", "/no/such"], "cannot be used: No such file");
    for wrong in [&[][..], &["x"], &[&pid, "--log-file", "a\nb"], &[&pid, "--duration-ms", "soon"]] {
        assert_eq!(kineto(wrong).status, 2, "{wrong:?}");
    }
    program.end();
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

fn the_command_does_not_wait_for_ever() {
    let place = Place::new();
    let mut program = place.start_watching("commanded");
    let pid = pid_of(&program);
    program.send("start");
    program.wait_for("done: start");
    let said = kineto(&[&pid, "--timeout", "1"]);
    assert!(said.status == 1 && said.errors.contains("which is taken back: it records something else"), "{said:?}");
    program.send("stop");
    program.wait_for("done: stop");
    // One that ends meanwhile is told of.
    let path = place.trace("a.json").display().to_string();
    let command = std::thread::scope(|scope| {
        let command = scope.spawn(|| kineto(&[&pid, "--duration-ms", "600000", "--log-file", &path]));
        program.wait_for("recording started");
        program.kill();
        command.join().unwrap()
    });
    assert!(command.status == 1 && command.errors.contains("it has ended before its file was written"), "{command:?}");
}

fn the_command_reaches_into_a_container() {
    let place = Place::new();
    // What lies in the folder there is not seen from here.
    let hidden = "mount -t tmpfs none \"$KINETO_TRIGGER_DIR\" && exec \"$@\"";
    let Some(command) = in_pid_namespace(&["--mount"], &["sh", "-c", hidden, "sh"]) else { return };
    let folder = place.triggers().display().to_string();
    let program = place.start_by(command, "serve", &[("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)]);
    program.wait_for("1.request` traces this process");
    let inner = fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid())).unwrap();
    let path = place.trace("a.json").display().to_string();
    let said = kineto(&[inner.trim(), "--log-file", &path, "--duration-ms", "10"]);
    assert_eq!(said.status, 0, "{said:?}");
    let below = format!("from here, its files are below /proc/{}/root", inner.trim());
    assert!(said.out.contains("a_1.json: ") && said.out.contains(&below), "{said:?}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
    program.end();
}

fn the_command_is_not_led_out_of_a_container() {
    let place = Place::new();
    // An absolute link is followed from the root of whoever looks.
    let (link, folder) = (place.file("link"), place.triggers());
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    let hidden = format!("mount -t tmpfs none '{}' && exec \"$@\"", folder.display());
    let Some(command) = in_pid_namespace(&["--mount"], &["sh", "-c", &hidden, "sh"]) else { return };
    let folder = link.display().to_string();
    let program = place.start_by(command, "serve", &[("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)]);
    program.wait_for("1.request` traces this process");
    let inner = fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid())).unwrap();
    let said = kineto(&[inner.trim(), "--duration-ms", "10", "--timeout", "9"]);
    assert!(said.status == 1 && said.errors.contains("is a link"), "{said:?}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
    program.end();
}

/// Runs the command; one that hangs is killed and reported.
fn kineto_in_time(arguments: &[&str]) -> Said {
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
    Said::new(process.wait_with_output().unwrap())
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn command_opens_only_folders_and_files() {
    let place = Place::new();
    let fifo = place.file("fifo");
    make_fifo(&fifo);
    // A program's environment may name a pipe or a device.
    for (named, why) in [(fifo.as_path(), "Not a directory"), (Path::new("/dev/null"), "Not a directory")] {
        let folder = named.display().to_string();
        let program = place.start_watching_with("serve", &[("KINETO_TRIGGER_DIR", &folder)]);
        program.wait_for("cannot be watched for requests yet");
        let said = kineto_in_time(&[&pid_of(&program)]);
        assert!(said.status == 1 && said.errors.contains(why), "{said:?}");
        program.end();
    }
    // An answer that is no file is not opened either.
    let listening = listen_as(None, &place.triggers());
    let request = listening.path(&place, "request");
    let folder = place.triggers().display().to_string();
    let pid = listening.0.id().to_string();
    let said = std::thread::scope(|scope| {
        let said = scope.spawn(|| kineto_in_time(&[&pid, "--dir", &folder]));
        wait_until(|| request.exists());
        make_fifo(&listening.answer_path(&place));
        fs::remove_file(&request).unwrap();
        said.join().unwrap()
    });
    assert!(said.status == 1 && said.errors.contains("it is not the process's own"), "{said:?}");
}

/// A process that ends with the test.
struct Listening(Child);

impl Listening {
    fn path(&self, place: &Place, end: &str) -> PathBuf {
        place.triggers().join(format!("{}.{end}", self.0.id()))
    }

    /// Returns where the answer to the request that is in the folder belongs.
    fn answer_path(&self, place: &Place) -> PathBuf {
        let text = fs::read_to_string(self.path(place, "request")).unwrap();
        let id = text.lines().find_map(|line| line.strip_prefix("REQUEST_TRACE_ID=")).unwrap();
        self.path(place, &format!("{id}.answer"))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts a process that pretends to take requests, with that effective user.
fn listen_as(user: Option<u32>, folder: &Path) -> Listening {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--play", &format!("pretends {}", user.map_or_else(String::new, |user| user.to_string()))]);
    command.env("KINETO_TRIGGER_DIR", folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Listening(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "pretends\n");
    process
}

fn command_serves_no_set_user_id_program() {
    const NOBODY: u32 = 65534;
    let place = Place::new();
    if std::os::unix::fs::chown(place.triggers(), Some(NOBODY), None).is_err() {
        println!("passed over: only root can be another user");
        return;
    }
    let listening = listen_as(Some(NOBODY), &place.triggers());
    let said = kineto_in_time(&[&listening.0.id().to_string(), "--no-wait"]);
    assert!(said.status == 1 && said.errors.contains("runs with other rights than its caller's"), "{said:?}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

/// Waits until the status of a process passes `is_so`.
fn wait_for_status(pid: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
    wait_until(|| {
        let said = Said::new(Command::new(KINETO).args(["status", "--json", pid]).output().unwrap());
        serde_json::from_str(&said.out).is_ok_and(|status| is_so(&status))
    });
}

fn status_says_what_a_process_is_doing() {
    let place = Place::new();
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
    let said = Said::new(Command::new(KINETO).args(["status", &pid]).output().unwrap());
    let expected = format!("{pid}: idle; requests waiting: 0\n{pid}: last request: written to {written}\n");
    assert_eq!((said.status, said.out), (0, expected));
    program.end();
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
    let said = Said::new(Command::new(KINETO).args(["status", &pid]).output().unwrap());
    assert!(said.status == 1 && said.errors.contains("there is no such process"), "{said:?}");
}

fn command_cancels_requests() {
    let place = Place::new();
    let program = place.start_watching("serve");
    let pid = pid_of(&program);
    let path = place.trace("a.json").display().to_string();
    let said = kineto(&[&pid, "--no-wait", "--log-file", &path, "--duration-ms", "3600000"]);
    assert_eq!(said.status, 0, "{said:?}");
    program.wait_for("recording started");
    let said = kineto(&[&pid, "--cancel"]);
    assert!(said.status == 0 && said.out.contains("1 request cancelled"), "{said:?}");
    program.end();
    assert_eq!(place.traces().len(), 0);
}

fn command_reports_that_a_later_one_has_replaced_its_request() {
    let place = Place::new();
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
        let said = waits.join().unwrap();
        assert!(said.status != 0 && said.errors.contains("a later request (--cancel) has replaced it"), "{said:?}");
    });
    program.end();
}

fn concurrent_commands_get_their_own_files() {
    const CALLERS: usize = 4;
    const ROUNDS: usize = 5;
    let place = Place::new();
    let program = place.start_watching("serve");
    let pid = pid_of(&program);
    let call = |name: String| {
        let path = place.trace(&format!("{name}.json")).display().to_string();
        let said = kineto(&[&pid, "--log-file", &path, "--duration-ms", "1"]);
        let own = place.trace(&format!("{name}_{pid}.json"));
        match said.status {
            0 => assert!(own.exists() && said.out.contains(&format!(" to {}: ", own.display())), "{said:?}"),
            // A request that was taken always has its answer.
            _ => assert!(said.errors.contains("another request waits for it"), "{said:?}"),
        }
        said.status == 0
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

fn command_takes_no_other_requests_answer() {
    let place = Place::new();
    let listening = listen_as(None, &place.triggers());
    let request = listening.path(&place, "request");
    let folder = place.triggers().display().to_string();
    let pid = listening.0.id().to_string();
    let said = std::thread::scope(|scope| {
        let said = scope.spawn(|| kineto_in_time(&[&pid, "--dir", &folder]));
        wait_until(|| request.exists());
        fs::write(listening.answer_path(&place), "request 7\nwritten to /tmp/of-another-one.json\ndone\n").unwrap();
        fs::remove_file(&request).unwrap();
        said.join().unwrap()
    });
    assert!(said.status == 1 && said.errors.contains("another request's"), "{said:?}");
}

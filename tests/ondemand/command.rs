//! `kineto trigger`: what it has done, what it says, and with which status it ends.

use crate::program::{Place, Program, Trace};
use crate::trigger::{in_own_numbers, start};
use std::fs;
use std::process::{Command, Output};
use support::harness::Test;

pub(crate) const TESTS: &[Test] = &[
    ("the_command_follows_a_request_to_its_file", the_command_follows_a_request_to_its_file),
    ("the_command_starts_processes_together", the_command_starts_processes_together),
    ("the_command_says_why_there_is_no_file", the_command_says_why_there_is_no_file),
    ("the_command_does_not_wait_for_ever", the_command_does_not_wait_for_ever),
    ("the_command_reaches_into_a_container", the_command_reaches_into_a_container),
    ("the_command_is_not_led_out_of_a_container", the_command_is_not_led_out_of_a_container),
];

/// Runs the command, if it is built.
fn kineto(arguments: &[&str]) -> Option<Said> {
    let Some(command) = option_env!("CARGO_BIN_EXE_kineto") else {
        println!("passed over: the feature cli is off");
        return None;
    };
    Some(Said::new(Command::new(command).arg("trigger").args(arguments).output().unwrap()))
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
    let program = start(&place, "serve");
    let (pid, path) = (pid_of(&program), place.trace("a#1.json").display().to_string());
    let Some(said) = kineto(&[&pid, "--log-file", &path, "--duration-ms", "50"]) else { return };
    assert_eq!((said.status, said.errors.as_str()), (0, ""), "{said:?}");
    let written = place.trace(&format!("a#1_{pid}.json"));
    for line in ["triggered by a file of user ", "started what ", &format!("written to {}: ", written.display())] {
        assert!(said.out.lines().any(|said| said.starts_with(&format!("{pid}: {line}"))), "no {line:?} in {said:?}");
    }
    assert!(said.out.matches(&format!("{pid}: ")).count() == 3 && !said.out.contains('\x1b'), "{said:?}");
    assert!(!Trace::wait_for(&written).slices("work").is_empty());
    let later = kineto(&[&pid, "--no-wait", "--activities", "kernel", "--log-file", &path]).unwrap();
    assert_eq!((later.status, later.out), (0, format!("{pid}: asked\n")));
    program.wait_for(&format!("written to {}: empty", written.display()));
    program.end();
}

fn the_command_starts_processes_together() {
    let place = Place::new();
    let programs = [start(&place, "serve"), start(&place, "serve"), start(&place, "serve")];
    let pids: Vec<_> = programs.iter().map(pid_of).collect();
    let path = place.trace("t.json").display().to_string();
    let mut arguments: Vec<_> = pids.iter().map(String::as_str).collect();
    arguments.extend(["--log-file", &path, "--duration-ms", "100"]);
    let Some(said) = kineto(&arguments) else { return };
    assert_eq!((said.status, said.out.matches("written to").count()), (0, 3), "{said:?}");
    assert!(programs.iter().all(|program| program.said().contains("from a given time on")));
    let window = |pid: &String| Trace::wait_for(&place.trace(&format!("t_{pid}.json"))).window();
    let windows: Vec<_> = pids.iter().map(window).collect();
    let starts = windows.iter().map(|window| window.0);
    println!("starts lie {} us apart", (starts.clone().max().unwrap() - starts.clone().min().unwrap()) / 1000);
    // There is a time at which all of them record.
    let first_end = windows.iter().map(|window| window.0 + window.1).min().unwrap();
    assert!(starts.max().unwrap() < first_end, "{windows:?}");
    // One that cannot is told, and the others are done.
    let Some(said) = kineto(&[&pids[0], "999999999", "--log-file", &path, "--duration-ms", "1"]) else { return };
    assert_eq!((said.status, said.out.matches("written to").count()), (1, 1), "{said:?}");
    assert_eq!(said.errors, "999999999: there is no such process\n");
    programs.into_iter().for_each(|program| drop(program.end()));
}

fn the_command_says_why_there_is_no_file() {
    let place = Place::new();
    let program = start(&place, "serve");
    let pid = pid_of(&program);
    let Some(said) = kineto(&[&pid, "--duration-ms", "3600001"]) else { return };
    let why = format!("{pid}: a request by a file of user ");
    assert_eq!((said.status, said.out.as_str()), (1, ""), "{said:?}");
    assert!(said.errors.starts_with(&why) && said.errors.contains("between 1 ms and an hour"), "{said:?}");
    let own = std::process::id().to_string();
    let folder = place.triggers().display().to_string();
    let fails = |arguments: &[&str], why: &str| {
        let said = kineto(arguments).unwrap();
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
        assert_eq!(kineto(wrong).unwrap().status, 2, "{wrong:?}");
    }
    program.end();
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

fn the_command_does_not_wait_for_ever() {
    let place = Place::new();
    let mut program = start(&place, "commanded");
    let pid = pid_of(&program);
    program.tell("start");
    program.wait_for("done: start");
    let Some(said) = kineto(&[&pid, "--timeout", "1"]) else { return };
    assert!(said.status == 1 && said.errors.contains("which is taken back: it records something else"), "{said:?}");
    program.tell("stop");
    program.wait_for("done: stop");
    // One that ends meanwhile is told of.
    let path = place.trace("a.json").display().to_string();
    let command = std::thread::scope(|scope| {
        let command = scope.spawn(|| kineto(&[&pid, "--duration-ms", "600000", "--log-file", &path]).unwrap());
        program.wait_for("started what");
        program.kill();
        command.join().unwrap()
    });
    assert!(command.status == 1 && command.errors.contains("it has ended before its file was written"), "{command:?}");
}

fn the_command_reaches_into_a_container() {
    let place = Place::new();
    // What lies in the folder there is not seen from here.
    let hidden = "mount -t tmpfs none \"$KINETO_TRIGGER_DIR\" && exec \"$@\"";
    let Some(command) = in_own_numbers(&["--mount"], &["sh", "-c", hidden, "sh"]) else { return };
    let folder = place.triggers().display().to_string();
    let program = place.start_by(command, "serve", &[("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)]);
    program.wait_for("1.request` traces this process");
    let inner = fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid())).unwrap();
    let path = place.trace("a.json").display().to_string();
    let Some(said) = kineto(&[inner.trim(), "--log-file", &path, "--duration-ms", "10"]) else { return };
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
    let Some(command) = in_own_numbers(&["--mount"], &["sh", "-c", &hidden, "sh"]) else { return };
    let folder = link.display().to_string();
    let program = place.start_by(command, "serve", &[("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)]);
    program.wait_for("1.request` traces this process");
    let inner = fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid())).unwrap();
    let Some(said) = kineto(&[inner.trim(), "--duration-ms", "10", "--timeout", "9"]) else { return };
    assert!(said.status == 1 && said.errors.contains("leads out of its own files: name the folder"), "{said:?}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
    program.end();
}

//! Requests as files in a watched folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::daemon::Stub;
use support::harness::Test;
use support::program::{Place, Program, Trace, in_own_numbers};

pub(crate) const TESTS: &[Test] = &[
    ("a_touch_is_a_request", a_touch_is_a_request),
    ("a_text_is_a_request", a_text_is_a_request),
    ("a_layer_that_is_built_watches_a_folder", a_layer_that_is_built_watches_a_folder),
    ("a_file_waits_while_something_is_recorded", a_file_waits_while_something_is_recorded),
    ("a_file_that_is_being_written_waits", a_file_that_is_being_written_waits),
    ("files_that_are_not_to_be_trusted", files_that_are_not_to_be_trusted),
    ("files_of_other_users", files_of_other_users),
    ("a_file_of_an_earlier_process", a_file_of_an_earlier_process),
    ("a_folder_that_comes_and_goes", a_folder_that_comes_and_goes),
    ("a_folder_beside_the_daemon", a_folder_beside_the_daemon),
    ("a_request_by_file_ends_with_the_guard", a_request_by_file_ends_with_the_guard),
    ("a_forked_child_leaves_the_folder_alone", a_forked_child_leaves_the_folder_alone),
];

/// The file that is a request for it.
fn request(place: &Place, program: &Program) -> PathBuf {
    place.triggers().join(format!("{}.request", program.pid()))
}

/// Renames what was prepared to the request for it.
fn leave(place: &Place, program: &Program, prepare: impl FnOnce(&Path)) {
    let prepared = place.triggers().join("prepared");
    prepare(&prepared);
    fs::rename(&prepared, request(place, program)).unwrap();
}

/// What stands in the answer when it has come to that.
fn answer(place: &Place, program: &Program, end: &str) -> String {
    let path = place.triggers().join(format!("{}.answer", program.pid()));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if text.ends_with(end) {
            return text;
        }
        assert!(Instant::now() < deadline, "no {end:?} in {text:?}, but: {}", program.said());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Has a short trace taken, and waits for it.
fn is_traced(place: &Place, program: &Program) {
    fs::write(request(place, program), place.text_for_a_time("last.json", 10)).unwrap();
    Trace::wait_for(&place.trace_of(program, "last.json"));
}

fn a_touch_is_a_request() {
    let place = Place::new();
    let program = place.start_watching("serve");
    let touched = Instant::now();
    assert!(Command::new("touch").arg(request(&place, &program)).status().unwrap().success());
    let path = place.trace_of(&program, "libkineto_activities.json");
    let trace = Trace::wait_for(&path);
    println!("from the touch to the file: {} ms, of which 500 are recorded", touched.elapsed().as_millis());
    assert!(trace.window().1 >= 490_000_000 && !trace.slices("work").is_empty());
    let answer = answer(&place, &program, "done\n");
    let lines: Vec<_> = answer.lines().collect();
    assert!(
        lines[0].starts_with("triggered by a file of user ") && lines[1].starts_with("recording started"),
        "{answer}"
    );
    assert!(lines[2].starts_with(&format!("request ended: written to {}: ", path.display())), "{answer}");
    assert!(!request(&place, &program).exists());
    let (said, _) = program.end();
    let object: serde_json::Value = serde_json::from_str(lines[lines.len() - 2]).unwrap();
    assert_eq!((object["outcome"].as_str(), object["path"].as_str()), (Some("written"), path.to_str()), "{object}");
    assert!(object["slices"].as_u64().is_some_and(|slices| slices > 0) && object["losses"].is_object(), "{object}");
    // The log says what the answer says, and nothing is left.
    assert!(lines[..3].iter().all(|line| said.contains(line)) && !said.contains("WARNING"), "{said}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

fn a_text_is_a_request() {
    let place = Place::new();
    let program = place.start_watching("steps");
    program.wait_for("counts its iterations");
    let iterations = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=10\nACTIVITIES_ITERATIONS=3";
    let text = place.text_for("i.json", iterations);
    leave(&place, &program, |path| fs::write(path, text).unwrap());
    let trace = Trace::wait_for(&place.trace_of(&program, "i.json"));
    assert_eq!(trace.slices("iteration").len(), 3);
    fs::write(request(&place, &program), "ACTIVITIES_DURATION_SECS=100000").unwrap();
    let answer = answer(&place, &program, "failed\n");
    assert!(answer.contains("was refused: the duration must be between 1 ms and 3600s"), "{answer}");
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn a_layer_that_is_built_watches_a_folder() {
    let place = Place::new();
    let folder = place.triggers().display().to_string();
    let program = place.start_with(&format!("watches {folder}"), &[("KINETO_USE_DAEMON", "")]);
    program.wait_for(".request` traces this process");
    is_traced(&place, &program);
    program.end();
}

fn a_file_waits_while_something_is_recorded() {
    let place = Place::new();
    let mut program = place.start_watching("commanded");
    program.tell("start");
    program.wait_for("done: start");
    fs::write(request(&place, &program), place.text_for_a_time("a.json", 1500)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(request(&place, &program).exists());
    program.tell("stop");
    program.wait_for("recording started");
    fs::write(request(&place, &program), place.text_for_a_time("b.json", 10)).unwrap();
    let name = |name: &str| place.trace_of(&program, &format!("{name}.json"));
    let (first, second) = (Trace::wait_for(&name("a")), Trace::wait_for(&name("b")));
    assert!(second.window().0 >= first.window().0 + first.window().1);
    let (said, _) = program.end();
    assert!(!said.contains("is queued behind"), "{said}");
}

fn a_file_that_is_being_written_waits() {
    let place = Place::new();
    let program = place.start_watching("serve");
    let mut file = fs::File::create(request(&place, &program)).unwrap();
    write!(file, "ACTIVITIES_LOG_FILE={}", place.trace("a.json").display()).unwrap();
    // Longer than a file is let alone that was there before the folder was watched.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(request(&place, &program).exists());
    file.write_all(b"\nACTIVITIES_DURATION_MSECS=10").unwrap();
    drop(file);
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.end();
}

fn files_that_are_not_to_be_trusted() {
    let place = Place::new();
    let program = place.start_watching("serve");
    let outside = place.sockets().join("outside");
    fs::write(&outside, "ACTIVITIES_DURATION_MSECS=1").unwrap();
    let refuses = |why: &str, prepare: &dyn Fn(&Path)| {
        leave(&place, &program, prepare);
        program.wait_for(&format!(".request was refused: {why}"));
        assert!(answer(&place, &program, "failed\n").contains(why));
        assert!(!request(&place, &program).exists());
    };
    refuses("it is not a regular file", &|path| std::os::unix::fs::symlink(&outside, path).unwrap());
    refuses("it has other hard links", &|path| fs::hard_link(&outside, path).unwrap());
    refuses("it has 70000 bytes", &|path| fs::write(path, "x".repeat(70_000)).unwrap());
    refuses("it is not UTF-8", &|path| fs::write(path, [b'A', 0xc3, 0x28]).unwrap());
    // One that nobody writes to is not waited for.
    leave(&place, &program, |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()));
    program.wait_until(|| (program.said().matches(": it is not a regular file").count() == 2).then_some(()));
    is_traced(&place, &program);
    program.end();
    assert_eq!((place.traces().len(), fs::metadata(&outside).is_ok()), (1, true));
}

fn files_of_other_users() {
    const OTHER: u32 = 12_345;
    let place = Place::new();
    let foreign = |path: &Path| {
        fs::write(path, place.text_for_a_time("a.json", 10)).unwrap();
        std::os::unix::fs::chown(path, Some(OTHER), None)
    };
    if foreign(&place.trace("x")).is_err() {
        println!("passed over: only root can give files away");
        return;
    }
    fs::remove_file(place.trace("x")).unwrap();
    let program = place.start_watching("serve");
    leave(&place, &program, |path| foreign(path).unwrap());
    program.wait_for("it belongs to user 12345, who is not trusted; set KINETO_DAEMON_UID=12345 to trust them");
    program.end();
    assert_eq!(place.traces().len(), 0);
    let program = place.start_watching_with("serve", &[("KINETO_DAEMON_UID", "12345")]);
    program.wait_for(".request` traces this process");
    leave(&place, &program, |path| foreign(path).unwrap());
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.wait_for("triggered by a file of user 12345");
    program.end();
}

fn a_file_of_an_earlier_process() {
    let place = Place::new();
    let Some(command) = in_own_numbers(&[], &[]) else { return };
    let path = place.triggers().join("1.request");
    fs::write(&path, place.text_for_a_time("a.json", 10)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let folder = place.triggers().display().to_string();
    let program = place.start_by(command, "serve", &[("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)]);
    program.wait_for("was refused: it is older than this process");
    assert!(!path.exists());
    fs::write(&path, place.text_for_a_time("a.json", 10)).unwrap();
    Trace::wait_for(&place.trace("a_1.json"));
    program.end();
}

fn a_folder_that_comes_and_goes() {
    let place = Place::new();
    fs::remove_dir(place.triggers()).unwrap();
    let program = place.start_watching_with("serve", &[]);
    program.wait_for("cannot be watched for requests yet: No such file");
    for name in ["a", "b"] {
        // Left before the folder is watched again: it is found.
        fs::create_dir(place.triggers()).unwrap();
        fs::write(request(&place, &program), place.text_for_a_time(&format!("{name}.json"), 10)).unwrap();
        Trace::wait_for(&place.trace_of(&program, &format!("{name}.json")));
        answer(&place, &program, "done\n");
        // The program writes its status there meanwhile.
        while fs::remove_dir_all(place.triggers()).is_err() {}
    }
    let (said, _) = program.end();
    assert!((1..=3).contains(&said.matches("cannot be watched").count()), "{said}");
}

fn a_folder_beside_the_daemon() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start_watching_with("serve", &[("KINETO_USE_DAEMON", "1")]);
    stub.answer(&stub.poll(), &place.text_for_a_time("a.json", 10));
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.wait_for(".request` traces this process");
    is_traced(&place, &program);
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
    assert_eq!(place.traces().len(), 3);
}

fn a_request_by_file_ends_with_the_guard() {
    let place = Place::new();
    let mut program = place.start_watching("commanded");
    fs::write(request(&place, &program), place.text_for_a_time("a.json", 600_000)).unwrap();
    program.wait_for("recording started");
    program.tell("work");
    program.wait_for("done: work");
    let path = place.trace_of(&program, "a.json");
    let (said, _) = program.end();
    assert!(said.contains("(ended early: the program ends)"), "{said}");
    assert!(!Trace::wait_for(&path).slices("work").is_empty());
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

fn a_forked_child_leaves_the_folder_alone() {
    let place = Place::new();
    let program = place.start_watching("forks");
    program.wait_for("the child has ended with 7");
    is_traced(&place, &program);
    answer(&place, &program, "done\n");
    program.end();
    assert_eq!(place.traces().len(), 1);
}

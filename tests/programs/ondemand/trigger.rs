//! Request files in a watched folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::CLOCK_VARIABLE;
use support::daemon::Stub;
use support::harness::Test;
use support::program::{Program, TestFolders, Trace, in_pid_namespace};

pub(crate) const TESTS: &[Test] = &[
    ("empty_file_is_a_request", empty_file_is_a_request),
    ("file_with_text_is_a_request", file_with_text_is_a_request),
    ("built_layer_watches_a_folder", built_layer_watches_a_folder),
    ("request_file_waits_during_a_recording", request_file_waits_during_a_recording),
    ("request_file_waits_until_it_is_written", request_file_waits_until_it_is_written),
    ("untrusted_files_are_refused", untrusted_files_are_refused),
    ("files_of_other_users_need_trust", files_of_other_users_need_trust),
    ("request_file_older_than_the_process_is_refused", request_file_older_than_the_process_is_refused),
    ("watched_folder_may_disappear_and_return", watched_folder_may_disappear_and_return),
    ("folder_and_daemon_both_serve_requests", folder_and_daemon_both_serve_requests),
    ("file_request_ends_with_the_guard", file_request_ends_with_the_guard),
    ("forked_child_does_not_watch_the_folder", forked_child_does_not_watch_the_folder),
];

/// Returns the path of the program's request file.
fn request(place: &TestFolders, program: &Program) -> PathBuf {
    place.triggers().join(format!("{}.request", program.pid()))
}

/// Prepares a file and renames it to the request.
fn place_request(place: &TestFolders, program: &Program, prepare: impl FnOnce(&Path)) {
    let prepared = place.triggers().join("prepared");
    prepare(&prepared);
    fs::rename(&prepared, request(place, program)).unwrap();
}

/// Waits until the answer contains `end`; returns it.
fn answer(place: &TestFolders, program: &Program, end: &str) -> String {
    let path = place.triggers().join(format!("{}.answer", program.pid()));
    program.wait_until(|| fs::read_to_string(&path).ok().filter(|text| text.ends_with(end)))
}

/// Requests a short trace and waits for it.
fn take_trace(place: &TestFolders, program: &Program) {
    fs::write(request(place, program), place.text_for_a_time("last.json", 10)).unwrap();
    Trace::wait_for(&place.trace_of(program, "last.json"));
}

// Shows the key KINETO_TRIGGER_DIR.
fn empty_file_is_a_request() {
    let place = TestFolders::new();
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
    // The log equals the answer, and no file is left.
    assert!(lines[..3].iter().all(|line| said.contains(line)) && !said.contains("WARNING"), "{said}");
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

fn file_with_text_is_a_request() {
    let place = TestFolders::new();
    let program = place.start_watching("steps");
    program.wait_for("counts its iterations");
    let iterations = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=10\nACTIVITIES_ITERATIONS=3";
    let text = place.text_for("i.json", iterations);
    place_request(&place, &program, |path| fs::write(path, text).unwrap());
    let trace = Trace::wait_for(&place.trace_of(&program, "i.json"));
    assert_eq!(trace.slices("iteration").len(), 3);
    fs::write(request(&place, &program), "ACTIVITIES_DURATION_SECS=100000").unwrap();
    let answer = answer(&place, &program, "failed\n");
    assert!(answer.contains("was refused: the duration must be between 1 ms and 3600s"), "{answer}");
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn built_layer_watches_a_folder() {
    let place = TestFolders::new();
    let folder = place.triggers().display().to_string();
    let program = place.start_with(&format!("watches in {folder}"), &[("KINETO_USE_DAEMON", "")]);
    program.wait_for_watch();
    take_trace(&place, &program);
    program.end();
}

fn request_file_waits_during_a_recording() {
    let place = TestFolders::new();
    let (clock, file) = place.clock();
    let mut program = place.start_watching_with("commanded", &[(CLOCK_VARIABLE, &file)]);
    clock.run(|| {
        program.wait_for_watch();
        program.send("start");
        program.wait_for("done: start");
    });
    fs::write(request(&place, &program), place.text_for_a_time("a.json", 1500)).unwrap();
    clock.advance(Duration::from_secs(1));
    assert!(request(&place, &program).exists());
    program.send("stop");
    let (said, _) = clock.run(|| {
        program.wait_for("recording started");
        fs::write(request(&place, &program), place.text_for_a_time("b.json", 10)).unwrap();
        let name = |name: &str| place.trace_of(&program, &format!("{name}.json"));
        let (first, second) = (Trace::wait_for(&name("a")), Trace::wait_for(&name("b")));
        assert!(second.window().0 >= first.window().0 + first.window().1);
        program.end()
    });
    assert!(!said.contains("is queued behind"), "{said}");
}

fn request_file_waits_until_it_is_written() {
    let place = TestFolders::new();
    let (clock, file) = place.clock();
    let program = place.start_watching_with("serve", &[(CLOCK_VARIABLE, &file)]);
    clock.run(|| program.wait_for_watch());
    let mut file = fs::File::create(request(&place, &program)).unwrap();
    write!(file, "ACTIVITIES_LOG_FILE={}", place.trace("a.json").display()).unwrap();
    // Longer than the grace time of a file that existed before the watch.
    clock.advance(Duration::from_millis(1500));
    assert!(request(&place, &program).exists());
    file.write_all(b"\nACTIVITIES_DURATION_MSECS=10").unwrap();
    drop(file);
    clock.run(|| {
        Trace::wait_for(&place.trace_of(&program, "a.json"));
        program.end();
    });
}

fn untrusted_files_are_refused() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let outside = place.sockets().join("outside");
    fs::write(&outside, "ACTIVITIES_DURATION_MSECS=1").unwrap();
    let refuses = |why: &str, prepare: &dyn Fn(&Path)| {
        place_request(&place, &program, prepare);
        program.wait_for(&format!(".request was refused: {why}"));
        assert!(answer(&place, &program, "failed\n").contains(why));
        assert!(!request(&place, &program).exists());
    };
    refuses("it is not a regular file", &|path| std::os::unix::fs::symlink(&outside, path).unwrap());
    refuses("it has other hard links", &|path| fs::hard_link(&outside, path).unwrap());
    refuses("it has 70000 bytes", &|path| fs::write(path, "x".repeat(70_000)).unwrap());
    refuses("it is not UTF-8", &|path| fs::write(path, [b'A', 0xc3, 0x28]).unwrap());
    // A FIFO without a writer does not block.
    place_request(&place, &program, |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()));
    program.wait_until(|| (program.stderr().matches(": it is not a regular file").count() == 2).then_some(()));
    take_trace(&place, &program);
    program.end();
    assert_eq!((place.traces().len(), fs::metadata(&outside).is_ok()), (1, true));
}

fn files_of_other_users_need_trust() {
    const OTHER: u32 = 12_345;
    let place = TestFolders::new();
    let foreign = |path: &Path| {
        fs::write(path, place.text_for_a_time("a.json", 10)).unwrap();
        std::os::unix::fs::chown(path, Some(OTHER), None)
    };
    if foreign(&place.trace("x")).is_err() {
        println!("skipped: only root can change a file's owner");
        return;
    }
    fs::remove_file(place.trace("x")).unwrap();
    let program = place.start_watching("serve");
    place_request(&place, &program, |path| foreign(path).unwrap());
    program.wait_for("it belongs to user 12345, who is not trusted; set KINETO_DAEMON_UID=12345 to trust them");
    program.end();
    assert_eq!(place.traces().len(), 0);
    let program = place.start_watching_with("serve", &[("KINETO_DAEMON_UID", "12345")]);
    program.wait_for_watch();
    place_request(&place, &program, |path| foreign(path).unwrap());
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.wait_for("triggered by a file of user 12345");
    program.end();
}

fn request_file_older_than_the_process_is_refused() {
    let place = TestFolders::new();
    let Some(command) = in_pid_namespace(&[], &[]) else { return };
    let path = place.triggers().join("1.request");
    fs::write(&path, place.text_for_a_time("a.json", 10)).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let folder = place.triggers().display().to_string();
    let program = place.start_by(command, "serve", &[("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)]);
    program.wait_for("was refused: it is older than this process");
    assert!(!path.exists());
    fs::write(&path, place.text_for_a_time("a.json", 10)).unwrap();
    Trace::wait_for(&place.trace("a_1.json"));
    program.end();
}

fn watched_folder_may_disappear_and_return() {
    let place = TestFolders::new();
    fs::remove_dir(place.triggers()).unwrap();
    let program = place.start_watching_with("serve", &[]);
    program.wait_for("cannot be watched for requests yet: No such file");
    for name in ["a", "b"] {
        // A request written before the folder is watched again is found.
        fs::create_dir(place.triggers()).unwrap();
        fs::write(request(&place, &program), place.text_for_a_time(&format!("{name}.json"), 10)).unwrap();
        Trace::wait_for(&place.trace_of(&program, &format!("{name}.json")));
        answer(&place, &program, "done\n");
        // The program writes its status there in the meantime.
        while fs::remove_dir_all(place.triggers()).is_err() {}
    }
    let (said, _) = program.end();
    assert!((1..=3).contains(&said.matches("cannot be watched").count()), "{said}");
}

fn folder_and_daemon_both_serve_requests() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start_watching_with("serve", &[("KINETO_USE_DAEMON", "1")]);
    stub.answer(&stub.poll(), &place.text_for_a_time("a.json", 10));
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.wait_for_watch();
    take_trace(&place, &program);
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
    assert_eq!(place.traces().len(), 3);
}

fn file_request_ends_with_the_guard() {
    let place = TestFolders::new();
    let mut program = place.start_watching("commanded");
    fs::write(request(&place, &program), place.text_for_a_time("a.json", 600_000)).unwrap();
    program.wait_for("recording started");
    program.send("work");
    program.wait_for("done: work");
    let path = place.trace_of(&program, "a.json");
    let (said, _) = program.end();
    assert!(said.contains("(ended early: the program ends)"), "{said}");
    assert!(!Trace::wait_for(&path).slices("work").is_empty());
    assert_eq!(fs::read_dir(place.triggers()).unwrap().count(), 0);
}

fn forked_child_does_not_watch_the_folder() {
    let place = TestFolders::new();
    let program = place.start_watching("forks");
    program.wait_for("the child has ended with 7");
    take_trace(&place, &program);
    answer(&place, &program, "done\n");
    program.end();
    assert_eq!(place.traces().len(), 1);
}

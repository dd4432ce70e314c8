//! Files of requests: their names, replacement of existing files, and system limits.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::harness::Test;
use support::program::{Program, TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("request_fails_at_the_file_size_limit", request_fails_at_the_file_size_limit),
    ("program_survives_stderr_at_the_file_size_limit", program_survives_stderr_at_the_file_size_limit),
    ("request_replaces_no_foreign_file", request_replaces_no_foreign_file),
    ("request_replaces_its_own_file", request_replaces_its_own_file),
    ("request_keeps_a_file_that_replaced_its_own", request_keeps_a_file_that_replaced_its_own),
    ("oldest_files_of_requests_are_removed", oldest_files_of_requests_are_removed),
    ("request_replaces_no_execution_trace", request_replaces_no_execution_trace),
    ("processes_write_separate_files", processes_write_separate_files),
    ("files_of_requests_are_private", files_of_requests_are_private),
    ("file_names_have_the_parts_of_the_process", file_names_have_the_parts_of_the_process),
    ("log_in_json_has_the_outcome", log_in_json_has_the_outcome),
];

/// Starts a program from a shell that first runs `prelude`.
pub(crate) fn start_after(place: &TestFolders, prelude: &str, env: &[(&str, &str)]) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{prelude}; exec \"$@\""), "sh"]).arg(std::env::current_exe().unwrap());
    let folder = place.triggers().display().to_string();
    let own = [("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)];
    place.start_by(command, "serve", &[&own, env].concat())
}

/// Writes a request file, and waits until its answer ends with `end`.
pub(crate) fn ask(place: &TestFolders, program: &Program, text: &str, end: &str) -> String {
    let id = text.lines().find_map(|line| line.strip_prefix("REQUEST_TRACE_ID="));
    let end_of_answer = id.map_or_else(|| "answer".to_owned(), |id| format!("{id}.answer"));
    let (request, answer) = (path_of(place, program, "request"), path_of(place, program, &end_of_answer));
    let prepared = place.triggers().join("prepared");
    fs::write(&prepared, text).unwrap();
    let _ = fs::remove_file(&answer);
    fs::rename(&prepared, &request).unwrap();
    program.wait_until(|| {
        let answer = fs::read_to_string(&answer).unwrap_or_default();
        answer.ends_with(end).then_some(answer)
    })
}

pub(crate) fn path_of(place: &TestFolders, program: &Program, end: &str) -> PathBuf {
    place.triggers().join(format!("{}.{end}", program.pid()))
}

fn request_fails_at_the_file_size_limit() {
    let place = TestFolders::new();
    // Any trace is larger.
    let program = start_after(&place, "ulimit -S -f 4", &[]);
    program.wait_for_watch();
    let answer = ask(&place, &program, &place.text_for_a_time("a.json", 1), "failed\n");
    assert!(answer.contains("File too large") && answer.contains("ulimit -f"), "{answer}");
    assert_eq!(place.traces().len(), 0);
    lift_limit(&program);
    ask(&place, &program, &place.text_for_a_time("b.json", 1), "done\n");
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn program_survives_stderr_at_the_file_size_limit() {
    let place = TestFolders::new();
    let program = start_after(&place, "head -c 1000000 /dev/zero >&2; ulimit -S -f 4", &[]);
    ask(&place, &program, &place.text_for_a_time("a.json", 1), "failed\n");
    lift_limit(&program);
    ask(&place, &program, &place.text_for_a_time("b.json", 1), "done\n");
    program.end();
}

/// Removes the program's file size limit.
fn lift_limit(program: &Program) {
    let lifted = Command::new("prlimit").args(["--fsize=unlimited", "--pid", &program.pid().to_string()]).status();
    assert!(lifted.unwrap().success());
}

/// Writes a file that the program under test did not write.
fn write_foreign(path: &Path) {
    fs::write(path, "foreign").unwrap();
}

fn request_replaces_no_foreign_file() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let named = place.trace_of(&program, "a.json");
    let numbered = |number: u32| place.trace(&format!("a_{}.{number}.json", program.pid()));
    write_foreign(&named);
    write_foreign(&numbered(1));
    let text = place.text_for_a_time("a.json", 1);
    // The second request replaces the first one's file, which the process wrote.
    for number in [2, 2] {
        let answer = ask(&place, &program, &text, "done\n");
        let path = numbered(number);
        assert!(answer.contains(&format!("written to {}: ", path.display())), "{answer}");
        assert!(answer.contains("was not written by this process"), "{answer}");
        let name = Trace::wait_for(&path).json["traceName"].as_str().map(str::to_owned);
        assert_eq!(name.as_deref(), path.to_str());
    }
    assert!([&named, &numbered(1)].iter().all(|path| fs::read_to_string(path).unwrap() == "foreign"));
    program.end();
    assert_eq!(place.traces().len(), 3);
}

fn request_replaces_its_own_file() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let path = place.trace_of(&program, "a.json");
    let text = place.text_for_a_time("a.json", 1);
    let mut inodes = Vec::new();
    for _ in 0..3 {
        ask(&place, &program, &text, "done\n");
        inodes.push(fs::metadata(&path).unwrap().ino());
    }
    inodes.dedup();
    assert!(inodes.len() > 1, "it is a new file each time");
    program.end();
    assert_eq!(place.traces().len(), 1);
}

// Shows the key KINETO_ONDEMAND_FILES.
fn oldest_files_of_requests_are_removed() {
    let place = TestFolders::new();
    let program = start_after(&place, "true", &[("KINETO_ONDEMAND_FILES", "2")]);
    program.wait_for_watch();
    write_foreign(&place.trace("a.json"));
    for name in ["a.json", "b.json", "c.json"] {
        ask(&place, &program, &place.text_for_a_time(name, 1), "done\n");
    }
    let kept = ["b", "c"].map(|name| format!("{name}_{}.json", program.pid()));
    program.end();
    assert_eq!(place.traces(), [&["a.json".to_owned()][..], &kept].concat());
}

fn request_keeps_a_file_that_replaced_its_own() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let path = place.trace_of(&program, "a.json");
    let text = place.text_for_a_time("a.json", 1);
    ask(&place, &program, &text, "done\n");
    let new = path.with_extension("new");
    write_foreign(&new);
    fs::rename(&new, &path).unwrap();
    ask(&place, &program, &text, "done\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "foreign");
    // A link stays too, and so does its target.
    let target = place.sockets().join("target");
    write_foreign(&target);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    ask(&place, &program, &text, "done\n");
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&target).unwrap(), "foreign");
    program.end();
}

fn request_replaces_no_execution_trace() {
    let place = TestFolders::new();
    let program = start_after(&place, "true", &[("ENABLE_PYTORCH_EXECUTION_TRACE", "1")]);
    program.wait_for_watch();
    let execution_trace = place.trace_of(&program, "a.json").with_extension("et.json");
    write_foreign(&execution_trace);
    ask(&place, &program, &place.text_for_a_time("a.json", 1), "done\n");
    assert_eq!(fs::read_to_string(&execution_trace).unwrap(), "foreign");
    program.end();
    assert_eq!(place.traces().len(), 3);
}

fn processes_write_separate_files() {
    let place = TestFolders::new();
    let programs = [place.start_watching("serve"), place.start_watching("serve"), place.start_watching("serve")];
    for (name, expected) in [("plain", "plain_{}"), ("a.conf", "a_{}.conf")] {
        for program in &programs {
            let answer = ask(&place, program, &place.text_for_a_time(name, 1), "done\n");
            let path = place.trace(&expected.replace("{}", &program.pid().to_string()));
            assert!(answer.contains(&format!("written to {}: ", path.display())), "{answer}");
        }
    }
    programs.into_iter().for_each(|program| drop(program.end()));
    assert_eq!(place.traces().len(), 6);
}

// Shows the key KINETO_TRACE_FILE_MODE.
fn files_of_requests_are_private() {
    let place = TestFolders::new();
    for (env, expected) in [(&[][..], 0o600), (&[("KINETO_TRACE_FILE_MODE", "644")], 0o644)] {
        let program = start_after(&place, "umask 027", env);
        program.wait_for_watch();
        ask(&place, &program, &place.text_for_a_time("a.json", 1), "done\n");
        let mode = fs::metadata(place.trace_of(&program, "a.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, expected, "{env:?}");
        program.end();
    }
}

fn file_names_have_the_parts_of_the_process() {
    let place = TestFolders::new();
    let env = [("KINETO_HOST_NAME", "node7"), ("RANK", "3"), ("WORLD_SIZE", "8")];
    let program = start_after(&place, "true", &env);
    program.wait_for_watch();
    fs::create_dir(place.trace("node7")).unwrap();
    ask(&place, &program, &place.text_for_a_time("{host}/{rank}.{pid}.json", 1), "done\n");
    assert!(place.trace(&format!("node7/3.{}.json", program.pid())).exists());
    ask(&place, &program, &place.text_for_a_time("{time}.json", 1), "done\n");
    let named = place.traces().into_iter().find(|name| name != "node7").unwrap();
    assert!(named.ends_with(&format!("Z_{}.json", program.pid())) && named.contains('T'), "{named}");
    let answer = ask(&place, &program, &place.text_for_a_time("{job}.json", 1), "failed\n");
    assert!(answer.contains("unknown placeholder {job}"), "{answer}");
    program.end();
}

fn log_in_json_has_the_outcome() {
    let place = TestFolders::new();
    let program = start_after(&place, "true", &[("KINETO_LOG_FORMAT", "json")]);
    program.wait_for_watch();
    let text = format!("{}\nREQUEST_TRACE_ID=17", place.text_for_a_time("a.json", 1));
    ask(&place, &program, &text, "done\n");
    ask(&place, &program, "ACTIVITIES_DURATION_MSECS=0", "failed\n");
    let path = place.trace_of(&program, "a.json").display().to_string();
    let (said, _) = program.end();
    let ends: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends: Vec<_> = ends.iter().filter(|line| line["outcome"].is_object()).collect();
    assert!(ends.iter().all(|line| line["message"].as_str().unwrap().starts_with("request ended: ")), "{said}");
    let [written, refused] = ends[..] else { panic!("{said}") };
    assert_eq!((&written["outcome"]["request"], &written["outcome"]["path"]), (&"17".into(), &path.into()));
    assert_eq!(refused["outcome"]["outcome"], "refused");
    assert!(refused["outcome"]["reason"].as_str().unwrap().contains("the duration must be"), "{said}");
}

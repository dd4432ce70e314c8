//! Folders in which another user has left pipes, links and names; and pipes and links that the user names.

use super::{TRACE, run, texts, traces};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs the command; one that waits for a pipe is killed.
fn run_in_time(arguments: &[&str]) -> (String, String, Option<i32>) {
    let mut child = super::command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    texts(child.wait_with_output().unwrap())
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Returns a folder with a trace, a pipe, links, and a trace whose name has control characters.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let (folder, whole, cut) = traces();
    fs::remove_file(cut).unwrap();
    let path = |name: &str| folder.path().join(name);
    make_fifo(&path("pipe.json"));
    symlink("/dev/zero", path("zero.json")).unwrap();
    symlink("whole.json", path("link.json")).unwrap();
    fs::write(path("a\u{1b}[2J\nb.json"), TRACE).unwrap();
    (folder, whole)
}

#[test]
fn entries_of_a_folder_are_no_links_and_no_pipes() {
    let (folder, _) = folder();
    let path = folder.path().to_str().unwrap();
    let page = folder.path().join("page.html");
    for arguments in [
        &["summary", path][..],
        &["validate", path],
        &["report", path, "-o", page.to_str().unwrap()],
        &["diff", path, path],
    ] {
        let (out, errors, status) = run_in_time(arguments);
        assert_eq!(status, Some(1), "{arguments:?} {errors}");
        for (name, why) in [("pipe", "it is not a regular file"), ("zero", "it is a link"), ("link", "it is a link")] {
            let line = errors.lines().find(|line| line.contains(&format!("{name}.json"))).unwrap_or_default();
            assert!(line.contains(why) && line.ends_with("name it, if you trust it"), "{arguments:?} {errors}");
        }
        assert!(!(out + &errors).contains('\u{1b}'), "{arguments:?}");
    }
    let (out, ..) = run_in_time(&["summary", path]);
    assert!(out.contains(r"a\u{1b}[2J\nb.json") && out.contains("whole.json"), "{out}");
}

#[test]
fn files_that_the_user_names_may_be_links_and_pipes() {
    let (folder, _) = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(run(&["summary", &path("link.json")]).2, Some(0));
    let pipe = path("pipe.json");
    let writer = std::thread::Builder::new().spawn({
        let pipe = pipe.clone();
        move || File::options().write(true).open(pipe).unwrap().write_all(TRACE.as_bytes())
    });
    let (out, errors, status) = run_in_time(&["summary", &pipe]);
    assert!(status == Some(0) && out.contains("gemm"), "{out}{errors}");
    writer.unwrap().join().unwrap().unwrap();
}

#[test]
fn repair_waits_for_no_entry_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["lock", "live", "seg-000001.kseg", "seg-000002.kseg.tmp"] {
        make_fifo(&path(name));
    }
    symlink("/dev/zero", path("seg-000003.kseg")).unwrap();
    let output = path("out.json");
    let (_, errors, status) = run_in_time(&["repair", folder.path().to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!((status, errors.matches("it is not a regular file").count()), (Some(1), 2), "{errors}");
    assert!(errors.contains("it is a link, and links in a folder are not followed"), "{errors}");
}

#[test]
#[cfg(target_os = "linux")]
fn top_waits_for_no_entry_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    make_fifo(&folder.path().join("a\u{1b}.klive"));
    symlink("/dev/zero", folder.path().join("b.klive")).unwrap();
    fs::write(folder.path().join("c\u{1b}.klive"), "KINELIVE").unwrap();
    let (out, errors, status) = run_in_time(&["top", "--once", folder.path().to_str().unwrap()]);
    assert!(status == Some(1) && errors.contains(r"c\u{1b}.klive: "), "{out}{errors}");
    assert!(!errors.contains("b.klive") && !errors.contains('\u{1b}'), "{errors}");
}

#[test]
fn repair_waits_for_no_pipe() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["seg-000001.kseg", "app.klive"] {
        let path = folder.path().join(name);
        make_fifo(&path);
        let (_, errors, status) = run_in_time(&["repair", path.to_str().unwrap()]);
        assert!(status == Some(1) && errors.contains("save it to a file first"), "{errors}");
    }
}

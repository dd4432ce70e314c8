//! Starts and controls programs that are traced on demand.

use crate::{Clock, poll_until};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The folders of a test: sockets, traces, and the output of programs.
pub struct TestFolders {
    folder: tempfile::TempDir,
}

impl TestFolders {
    pub fn new() -> TestFolders {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sockets", "traces", "triggers"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        TestFolders { folder }
    }

    pub fn sockets(&self) -> PathBuf {
        self.folder.path().join("sockets")
    }

    /// Returns the watched folder for requests, if a program watches it.
    pub fn triggers(&self) -> PathBuf {
        self.folder.path().join("triggers")
    }

    /// Returns the path of a file among the traces.
    pub fn trace(&self, name: &str) -> PathBuf {
        self.folder.path().join("traces").join(name)
    }

    /// Returns the path of a program's trace for a request for `name`.
    pub fn trace_of(&self, program: &Program, name: &str) -> PathBuf {
        self.trace(&name.replace(".json", &format!("_{}.json", program.pid())))
    }

    /// Returns the text of a request for a trace of that name, with more lines.
    pub fn text_for(&self, name: &str, more: &str) -> String {
        format!("ACTIVITIES_LOG_FILE={}\n{more}", self.trace(name).display())
    }

    /// Returns the text of a request for a trace of `milliseconds`.
    pub fn text_for_a_time(&self, name: &str, milliseconds: u32) -> String {
        self.text_for(name, &format!("ACTIVITIES_DURATION_MSECS={milliseconds}"))
    }

    /// Makes a clock for programs with `CLOCK_VARIABLE`, whose time passes only as the test lets it; returns its file, too.
    pub fn clock(&self) -> (&'static Clock, String) {
        let file = self.file("clock");
        (Clock::create(&file).unwrap(), file.display().to_string())
    }

    /// Returns the path of another file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the names of all complete traces, sorted.
    pub fn traces(&self) -> Vec<String> {
        names(&self.folder.path().join("traces"))
    }

    /// Starts a program that plays a scenario.
    pub fn start(&self, scenario: &str) -> Program {
        self.start_with(scenario, &[])
    }

    pub fn start_with(&self, scenario: &str, env: &[(&str, &str)]) -> Program {
        self.start_by(Command::new(std::env::current_exe().unwrap()), scenario, env)
    }

    /// Starts a program that watches the trigger folder, and waits until it does.
    pub fn start_watching(&self, scenario: &str) -> Program {
        let program = self.start_watching_with(scenario, &[]);
        program.wait_for_watch();
        program
    }

    /// As [`TestFolders::start_watching`] with more variables, without waiting.
    pub fn start_watching_with(&self, scenario: &str, env: &[(&str, &str)]) -> Program {
        let folder = self.triggers().display().to_string();
        let own = [("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)];
        self.start_with(scenario, &[&own, env].concat())
    }

    /// Starts a program by that command, which may be a launcher's.
    pub fn start_by(&self, mut command: Command, scenario: &str, env: &[(&str, &str)]) -> Program {
        let said = self.folder.path().join(format!("stderr-{}", names(self.folder.path()).len()));
        command
            .args(["--play", scenario])
            .env_clear()
            .env("KINETO_USE_DAEMON", "1")
            .env("KINETO_DISABLE_CUPTI", "1")
            .env("KINETO_IPC_SOCKET_DIR", self.sockets())
            .env("KINETO_ONDEMAND_TRACE_DIR", self.folder.path().join("traces"))
            .env("KINETO_CONFIG", "/dev/null")
            // A busy disk takes nothing for seconds.
            .env("KINETO_FLUSH_TIMEOUT_MSECS", "300000")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&said).unwrap());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take();
        Program { process, input, said }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A program that runs until its input ends.
pub struct Program {
    process: Child,
    input: Option<ChildStdin>,
    said: PathBuf,
}

impl Program {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns its stderr so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until its stderr contains `text`.
    pub fn wait_for(&self, text: &str) {
        self.wait_for_times(text, 1);
    }

    /// Waits until its stderr contains `text` `times` times.
    #[track_caller]
    pub fn wait_for_times(&self, text: &str, times: usize) {
        self.wait_until(|| (self.stderr().matches(text).count() >= times).then_some(()));
    }

    /// Waits until `find` returns a value.
    #[track_caller]
    pub fn wait_until<T>(&self, find: impl Fn() -> Option<T>) -> T {
        let mut found = None;
        poll_until(|| {
            found = find();
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until it watches the trigger folder.
    pub fn wait_for_watch(&self) {
        self.wait_for(".request` traces this process");
    }

    /// Sends a command line to its scenario.
    pub fn send(&mut self, word: &str) {
        self.input.as_mut().unwrap().write_all(format!("{word}\n").as_bytes()).unwrap();
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Closes its input and waits for its end; returns its stderr and stdout.
    pub fn end(mut self) -> (String, String) {
        drop(self.input.take());
        poll_until(|| self.process.try_wait().unwrap().is_some());
        let status = self.process.wait().unwrap();
        let mut out = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(status.success(), "{status}: {}", self.stderr());
        (self.stderr(), out)
    }
}

impl Drop for Program {
    /// Prints the program's stderr if the test has failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the program's ({:?}) stderr: {}", self.process.try_wait(), self.stderr());
        }
        let _ = self.process.kill();
    }
}

/// Returns a command that runs a program as process 1 of a pid namespace, by `launcher` if given; `None` if impossible.
pub fn in_pid_namespace(more: &[&str], launcher: &[&str]) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).args(more);
        command
    };
    let can = unshare().arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: cannot make a pid namespace here");
        return None;
    }
    let mut command = unshare();
    command.args(launcher).arg(std::env::current_exe().unwrap());
    Some(command)
}

/// A complete trace file.
pub struct Trace {
    pub json: Value,
}

impl Trace {
    /// Waits for a file, which is complete once it exists.
    pub fn wait_for(path: &Path) -> Trace {
        poll_until(|| path.exists());
        Trace { json: serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() }
    }

    pub fn rows(&self) -> &[Value] {
        self.json["traceEvents"].as_array().unwrap()
    }

    /// Returns the slices of that name.
    pub fn slices(&self, name: &str) -> Vec<&Value> {
        self.rows().iter().filter(|row| row["ph"] == "X" && row["name"] == name).collect()
    }

    fn recording_row(&self) -> &Value {
        self.rows().iter().find(|row| row["cat"] == "Trace").expect("a row for the recording")
    }

    /// Returns the start of the recording, in the unit of rows.
    pub fn recording_start(&self) -> f64 {
        self.recording_row()["ts"].as_f64().unwrap()
    }

    /// Returns the recording's start since the Unix epoch and its length, in nanoseconds.
    pub fn window(&self) -> (i64, i64) {
        let base = self.json["baseTimeNanoseconds"].as_i64().unwrap();
        let nanoseconds = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
        let whole = self.recording_row();
        (base + nanoseconds(&whole["ts"]), nanoseconds(&whole["dur"]))
    }
}

//! Programs that are traced on demand: started, looked at, and ended.

use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The folders of a test: sockets, traces, and what programs say.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sockets", "traces", "triggers"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Place { folder }
    }

    pub fn sockets(&self) -> PathBuf {
        self.folder.path().join("sockets")
    }

    /// The folder that is watched for requests, where a program is told so.
    pub fn triggers(&self) -> PathBuf {
        self.folder.path().join("triggers")
    }

    /// A file among the traces.
    pub fn trace(&self, name: &str) -> PathBuf {
        self.folder.path().join("traces").join(name)
    }

    /// The trace that a program has of a request for `name`.
    pub fn trace_of(&self, program: &Program, name: &str) -> PathBuf {
        self.trace(&name.replace(".json", &format!("_{}.json", program.pid())))
    }

    /// The text of a request for a trace of that name, with more lines.
    pub fn text_for(&self, name: &str, more: &str) -> String {
        format!("ACTIVITIES_LOG_FILE={}\n{more}", self.trace(name).display())
    }

    /// The text of a request for a trace of so many milliseconds.
    pub fn text_for_a_time(&self, name: &str, milliseconds: u32) -> String {
        self.text_for(name, &format!("ACTIVITIES_DURATION_MSECS={milliseconds}"))
    }

    /// A file of another kind.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The names of all traces that are whole, sorted.
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

    /// Starts one that watches the trigger folder, and waits until it does.
    pub fn start_watching(&self, scenario: &str) -> Program {
        let program = self.start_watching_with(scenario, &[]);
        program.wait_for(".request` traces this process");
        program
    }

    /// The same with more in its environment, and without waiting.
    pub fn start_watching_with(&self, scenario: &str, env: &[(&str, &str)]) -> Program {
        let folder = self.triggers().display().to_string();
        let own = [("KINETO_USE_DAEMON", "0"), ("KINETO_TRIGGER_DIR", &folder)];
        self.start_with(scenario, &[&own, env].concat())
    }

    /// Starts it by that command, which may be a launcher's.
    pub fn start_by(&self, mut command: Command, scenario: &str, env: &[(&str, &str)]) -> Program {
        let said = self.folder.path().join(format!("said-{}", names(self.folder.path()).len()));
        command
            .args(["--play", scenario])
            .env_clear()
            .env("KINETO_USE_DAEMON", "1")
            .env("KINETO_DISABLE_CUPTI", "1")
            .env("KINETO_IPC_SOCKET_DIR", self.sockets())
            .env("KINETO_ONDEMAND_TRACE_DIR", self.folder.path().join("traces"))
            .env("KINETO_CONFIG", "/dev/null")
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

    /// What it has said on stderr so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until it has said that.
    pub fn wait_for(&self, text: &str) {
        self.wait_for_times(text, 1);
    }

    /// Waits until it has printed `text` so many times.
    #[track_caller]
    pub fn wait_for_times(&self, text: &str, times: usize) {
        self.wait_until(|| (self.said().matches(text).count() >= times).then_some(()));
    }

    /// Waits until `find` returns a value.
    #[track_caller]
    pub fn wait_until<T>(&self, find: impl Fn() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = find() {
                return found;
            }
            assert!(Instant::now() < deadline, "it did not come; the program has said: {}", self.said());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Tells it something that its scenario understands.
    pub fn tell(&mut self, word: &str) {
        self.input.as_mut().unwrap().write_all(format!("{word}\n").as_bytes()).unwrap();
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Ends it; returns all that it has said on stderr and on stdout.
    pub fn end(mut self) -> (String, String) {
        drop(self.input.take());
        let deadline = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.process.kill();
                panic!("the program hangs: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let mut out = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(status.success(), "{status}: {}", self.said());
        (self.said(), out)
    }
}

impl Drop for Program {
    /// Where a test has failed, what the program has said tells why.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the program ({:?}) has said: {}", self.process.try_wait(), self.said());
        }
        let _ = self.process.kill();
    }
}

/// Runs a program as the first process of a pid namespace, by a launcher if one is named; if that can be had.
pub fn in_own_numbers(more: &[&str], launcher: &[&str]) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).args(more);
        command
    };
    let can = unshare().arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("passed over: no process numbers of its own can be had here");
        return None;
    }
    let mut command = unshare();
    command.args(launcher).arg(std::env::current_exe().unwrap());
    Some(command)
}

/// A trace file that is whole.
pub struct Trace {
    pub json: Value,
}

impl Trace {
    /// Waits for a file, which is whole as soon as it is there.
    pub fn wait_for(path: &Path) -> Trace {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !path.exists() {
            assert!(Instant::now() < deadline, "no {}", path.display());
            std::thread::sleep(Duration::from_millis(1));
        }
        Trace { json: serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() }
    }

    pub fn rows(&self) -> &[Value] {
        self.json["traceEvents"].as_array().unwrap()
    }

    /// The slices of that name.
    pub fn slices(&self, name: &str) -> Vec<&Value> {
        self.rows().iter().filter(|row| row["ph"] == "X" && row["name"] == name).collect()
    }

    fn whole(&self) -> &Value {
        self.rows().iter().find(|row| row["cat"] == "Trace").expect("a row for the whole")
    }

    /// When the recording began, as rows have it.
    pub fn start_of_the_whole(&self) -> f64 {
        self.whole()["ts"].as_f64().unwrap()
    }

    /// The recording's start and length, in nanoseconds; the start since the Unix epoch.
    pub fn window(&self) -> (i64, i64) {
        let base = self.json["baseTimeNanoseconds"].as_i64().unwrap();
        let nanoseconds = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
        let whole = self.whole();
        (base + nanoseconds(&whole["ts"]), nanoseconds(&whole["dur"]))
    }
}

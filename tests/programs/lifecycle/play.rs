//! Plays a scenario in a child process, and reads the files that it leaves.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::{CLOCK_VARIABLE, Clock, poll_until};
use tracing_kineto::{KinetoGuard, KinetoLayer, KinetoLayerBuilder};
use tracing_subscriber::prelude::*;

/// The name of a scenario's output in its folder.
pub(crate) const OUTPUT: &str = "out.pt.trace.json";

/// Time limit of a scenario, which takes seconds.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// A program that has ended, and its folder.
pub(crate) struct Played {
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
    pub(crate) pid: u32,
    folder: tempfile::TempDir,
}

/// Plays a scenario until it ends.
pub(crate) fn play(name: &str) -> Played {
    play_with(name, &[])
}

/// Plays a scenario with only these variables in its environment; `{}` in a value is the folder.
pub(crate) fn play_with(name: &str, env: &[(&str, &str)]) -> Played {
    play_while(name, env, |_, _| ())
}

/// Plays a scenario on a virtual clock: time jumps to the next time that the program waits for.
pub(crate) fn play_by_clock(name: &str) -> Played {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clock");
    let clock = Clock::create(&file).unwrap();
    clock.run(|| play_with(name, &[(CLOCK_VARIABLE, file.to_str().unwrap())]))
}

/// Plays a scenario and sends it `signal`, `delay` after `is_ready` returns true.
pub(crate) fn interrupt(name: &str, is_ready: fn(&Path) -> bool, delay: Duration, signal: i32) -> Played {
    play_while(name, &[], |child, folder| {
        poll_until(|| is_ready(folder));
        std::thread::sleep(delay);
        super::sys::kill(child.cast_signed(), signal);
    })
}

/// Plays a scenario with a terminal as stderr; returns the terminal's output too.
pub(crate) fn play_on_a_terminal(name: &str, env: &[(&str, &str)]) -> (Played, String) {
    let folder = tempfile::tempdir().unwrap();
    let (mut screen, program) = super::sys::open_terminal();
    let mut child = command(name, env, &folder).stderr(program).spawn().unwrap();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut shown = Vec::new();
        // On Linux the end of the terminal is an error.
        let _ = screen.read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    });
    let (pid, status) = (child.id(), wait(name, &mut child));
    let shown = reader.unwrap().join().unwrap();
    (Played { status, stderr: shown.clone(), pid, folder }, shown)
}

/// Plays a scenario as process 1 of a container; returns `None` if the system forbids it.
pub(crate) fn play_as_first_process(name: &str) -> Option<Played> {
    let container = |program: &OsStr| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]).arg(program);
        unshare
    };
    let is_allowed = container("true".as_ref()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_allowed {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = command(name, &[], &folder);
    let mut unshare = container(program.get_program());
    unshare.args(program.get_args()).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
    let mut stderr = tempfile::tempfile().unwrap();
    let mut child = unshare.stderr(stderr.try_clone().unwrap()).spawn().unwrap();
    let (pid, status) = (child.id(), wait(name, &mut child));
    let mut text = String::new();
    stderr.rewind().unwrap();
    stderr.read_to_string(&mut text).unwrap();
    Some(Played { status, stderr: text, pid, folder })
}

fn command(name: &str, env: &[(&str, &str)], folder: &tempfile::TempDir) -> Command {
    let here = folder.path().to_str().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--play", name, here]).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
    // A busy disk takes nothing for seconds.
    command.env("KINETO_FLUSH_TIMEOUT_MSECS", "300000");
    command.envs(env.iter().map(|(key, value)| (key, value.replace("{}", here))));
    command
}

/// Plays a scenario and runs `meanwhile` with its process.
pub(crate) fn play_while(name: &str, env: &[(&str, &str)], meanwhile: impl FnOnce(u32, &Path)) -> Played {
    play_in(name, env, tempfile::tempdir().unwrap(), meanwhile)
}

/// Does the same in that folder.
pub(crate) fn play_in(
    name: &str,
    env: &[(&str, &str)],
    folder: tempfile::TempDir,
    meanwhile: impl FnOnce(u32, &Path),
) -> Played {
    // A file, not a pipe: the test must not wait for a child that outlives the program.
    let mut stderr = tempfile::tempfile().unwrap();
    let mut child = command(name, env, &folder).stderr(stderr.try_clone().unwrap()).spawn().unwrap();
    let pid = child.id();
    meanwhile(pid, folder.path());
    let status = wait(name, &mut child);
    let mut text = Vec::new();
    stderr.rewind().and_then(|()| stderr.read_to_end(&mut text)).unwrap();
    Played { status, stderr: String::from_utf8_lossy(&text).into_owned(), pid, folder }
}

fn wait(name: &str, child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the scenario {name} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Played {
    /// Checks that the program exited with success.
    pub(crate) fn succeeded(self) -> Played {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the names of the remaining files, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Checks that the output is the only file, and reads it.
    pub(crate) fn output(&self) -> File {
        assert_eq!(self.files(), [OUTPUT], "{}", self.stderr);
        self.file(OUTPUT)
    }

    pub(crate) fn file(&self, name: &str) -> File {
        File::read(&self.path(name))
    }

    /// Returns the scenario's report.
    pub(crate) fn report(&self) -> String {
        std::fs::read_to_string(self.path(REPORT)).unwrap_or_default()
    }
}

const REPORT: &str = "report";

/// Adds a line to the scenario's report.
pub(crate) fn report(folder: &Path, line: &str) {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().create(true).append(true).open(folder.join(REPORT));
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).unwrap();
}

/// A trace file that has been checked.
pub(crate) struct File {
    pub(crate) json: Value,
}

impl File {
    /// Reads a file and checks what every reader needs.
    pub(crate) fn read(path: &Path) -> File {
        let mut text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if path.extension().is_some_and(|end| end == "gz") {
            let packed = std::mem::take(&mut text);
            flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut text).unwrap();
        }
        let json: Value = serde_json::from_slice(&text).unwrap();
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!((keys[0].as_str(), keys[keys.len() - 1].as_str()), ("schemaVersion", "traceName"));
        let file = File { json };
        let rows = file.rows();
        assert_eq!(rows.last().unwrap()["name"], "Record Window End");
        for row in rows.iter().filter(|row| row["ph"] == "X") {
            assert!(row["ts"].as_f64().is_some() && row["dur"].as_f64().unwrap() >= 0.0, "{row}");
        }
        file
    }

    pub(crate) fn rows(&self) -> &[Value] {
        self.json["traceEvents"].as_array().unwrap()
    }

    /// Returns the number of slices with that name.
    pub(crate) fn slices(&self, name: &str) -> usize {
        self.rows().iter().filter(|row| row["ph"] == "X" && row["name"] == name).count()
    }

    /// Returns the process ids of all slices.
    pub(crate) fn processes(&self) -> Vec<i64> {
        let slices = self.rows().iter().filter(|row| row["ph"] == "X" && row["cat"] == "cpu_op");
        let mut processes: Vec<i64> = slices.map(|row| row["pid"].as_i64().unwrap()).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    pub(crate) fn lost(&self, cause: &str) -> u64 {
        self.json["tracing_kineto"]["losses"][cause].as_u64().unwrap_or(0)
    }
}

/// Starts a recording into the folder's output.
pub(crate) fn record(folder: &Path) -> KinetoGuard {
    record_as(KinetoLayer::builder().output(folder.join(OUTPUT)))
}

/// Starts a recording with `builder`.
pub(crate) fn record_as(builder: KinetoLayerBuilder) -> KinetoGuard {
    let (layer, guard) = builder.build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    guard
}

/// Makes one span.
pub(crate) fn work() {
    tracing::info_span!("work", n = 1).in_scope(|| std::hint::black_box(()));
}

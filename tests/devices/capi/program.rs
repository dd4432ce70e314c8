//! C and C++ programs: compiling and running them, and reading their traces.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::cuda;
use tempfile::TempDir;

/// A compiled program in its own folder.
pub(crate) struct Program {
    folder: TempDir,
}

/// A trace that a program has written.
pub(crate) struct Trace {
    pub(crate) json: Value,
}

/// Returns the paths of the shared and the static library.
pub(crate) fn libraries() -> (PathBuf, PathBuf) {
    let shared = cuda::library("tracing_kineto_capi");
    let archive = shared.with_extension("a");
    (shared, archive)
}

const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-D_GNU_SOURCE"];
/// The system libraries that std needs.
pub(crate) const SYSTEM: [&str; 5] = ["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"];

impl Program {
    pub(crate) fn c(source: &str) -> Program {
        Program::linked("cc", "-std=c11", source, &shared())
    }

    pub(crate) fn cpp(source: &str) -> Program {
        Program::linked("c++", "-std=c++17", source, &shared())
    }

    pub(crate) fn with_static_library(source: &str) -> Program {
        let (_, archive) = libraries();
        let mut what = vec![archive.display().to_string()];
        what.extend(SYSTEM.map(str::to_owned));
        Program::linked("cc", "-std=c11", source, &what)
    }

    /// Compiles a program with these linker arguments.
    pub(crate) fn linked(compiler: &str, standard: &str, source: &str, what: &[String]) -> Program {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = Program { folder: tempfile::tempdir().unwrap() };
        let mut cc = Command::new(compiler);
        cc.arg(standard).args(STRICT).arg("-I").arg(root.join("capi/include"));
        cc.arg(root.join("tests/devices/capi").join(source)).args(what).args([
            "-rdynamic",
            "-lm",
            "-lpthread",
            "-ldl",
            "-o",
        ]);
        let output = cc.arg(program.file("program")).output().expect("no compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Returns the path of a file in the program's folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs it in its folder, checks that it succeeds, and returns its output.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let mut program = Command::new(self.file("program"));
        program.args(arguments).envs(environment.iter().copied()).current_dir(self.folder.path());
        // Cargo's value leads to the library of the last `cargo build`.
        program.env_remove("LD_LIBRARY_PATH");
        let output = program.output().unwrap();
        let [said, wrong] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{arguments:?}: {} {said}{wrong}", output.status);
        said
    }

    /// Runs it with tracing enabled, and reads the trace.
    #[track_caller]
    pub(crate) fn record(&self, arguments: &[&str]) -> Trace {
        let output = self.file("output.json");
        let patience = ("KINETO_FLUSH_TIMEOUT_MSECS", "60000");
        self.run(arguments, &[("KINETO_ACTIVITIES_LOG_FILE", output.to_str().unwrap()), patience]);
        self.output()
    }

    /// Reads the automatically written trace, whose name has the process id.
    #[track_caller]
    pub(crate) fn output(&self) -> Trace {
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_output = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("output_");
        let files: Vec<_> = files.filter(is_output).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        Trace::read(&files[0])
    }
}

/// Returns the arguments that link with the shared library.
fn shared() -> Vec<String> {
    let (library, _) = libraries();
    let folder = library.parent().unwrap().display();
    [format!("-L{folder}"), "-ltracing_kineto_capi".to_owned(), format!("-Wl,-rpath,{folder}")].into()
}

impl Trace {
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Trace {
        let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Trace { json: serde_json::from_slice(&text).unwrap() }
    }

    /// Returns the rows of a phase that `which` selects, by time.
    pub(crate) fn rows(&self, ph: &str, which: impl Fn(&Value) -> bool) -> Vec<&Value> {
        let all = self.json["traceEvents"].as_array().unwrap().iter();
        let mut rows: Vec<_> = all.filter(|row| row["ph"] == ph && which(row)).collect();
        rows.sort_by_key(|row| support::nanos(&row["ts"]));
        rows
    }

    /// Returns the only slice of that type and name.
    #[track_caller]
    pub(crate) fn slice(&self, cat: &str, name: &str) -> Value {
        let found = self.rows("X", |row| row["cat"] == cat && row["name"] == name);
        assert_eq!(found.len(), 1, "{cat} {name}");
        found[0].clone()
    }

    /// Returns the number of slices with that name.
    pub(crate) fn slices(&self, name: &str) -> usize {
        self.rows("X", |row| row["name"] == name && row["args"]["target"] == "kineto::c").len()
    }

    /// Returns the names of the slices of a type, by time.
    pub(crate) fn names(&self, cat: &str) -> Vec<&str> {
        self.rows("X", |row| row["cat"] == cat).iter().map(|row| row["name"].as_str().unwrap()).collect()
    }
}

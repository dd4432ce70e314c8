//! Programs with more rights than their caller: set-user-ID, and file capabilities. The caller controls environment and folder.
//!
//! Only root can make such programs; elsewhere these tests skip.
#![allow(clippy::print_stdout, reason = "a test notes what it skips")]

use super::play::{OUTPUT, report, work};
use super::{Scenario, Test, sys};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tracing_kineto::{Devices, KinetoLayer, KinetoLayerBuilder, Mode};
use tracing_subscriber::prelude::*;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("privileged_builder", |folder| record_as(folder, KinetoLayer::builder().mode(Mode::Kineto | Mode::Nvtx))),
    ("privileged_plugins", |folder| record_as(folder, KinetoLayer::builder().devices(Devices::new().plugins(".")))),
    ("privileged_trust", |folder| {
        record_as(folder, KinetoLayer::builder().devices(Devices::new().plugins("plugins")).trust_caller(true))
    }),
    ("privileged_config", |folder| {
        report(folder, &KinetoLayer::builder().no_output().config_file("c.conf").build().unwrap_err().to_string());
    }),
    ("privileged_requests", |folder| drop(KinetoLayer::builder().no_output().trigger_folder(folder).build().unwrap())),
    ("privileged_check", |folder| report(folder, &sys::has_more_rights().to_string())),
    ("privileged_from_env", |folder| {
        let (layer, _guard) = KinetoLayer::from_env().unwrap();
        report(folder, if layer.is_some() { "layer" } else { "no layer" });
    }),
];

pub(crate) const TESTS: &[Test] = &[
    ("privileged_program_by_user_id_ignores_variables", || {
        let Some(caller) = Caller::of(Rights::SetUser) else { return };
        let (own, said) = caller.run("privileged_builder", HOSTILE);
        assert!(!own.contains("loaded") && caller.mark().is_none(), "{own}{said}");
        assert!(said.matches(WARNING).count() == 1 && !said.contains("secret"), "{said}");
        assert!(caller.path(OUTPUT).exists() && !caller.path("private/x.json").exists());
    }),
    ("privileged_program_by_file_ignores_variables", || {
        let Some(caller) = Caller::of(Rights::Capability) else { return };
        let (_, said) = caller.run("privileged_builder", HOSTILE);
        assert!(said.matches(WARNING).count() == 1 && caller.mark().is_none(), "{said}");
        let (own, said) = caller.run("privileged_from_env", &[("KINETO_ENABLED", "1")]);
        assert!(own == "no layer\n" && said.contains(WARNING), "{own}{said}");
    }),
    ("privileged_program_loads_no_library_of_its_caller", || {
        let Some(caller) = Caller::of(Rights::SetUser) else { return };
        // A plugin folder of the builder that is relative: the caller chooses the working folder.
        fs::copy(caller.path("plugins/tool.so"), caller.path("tool.so")).unwrap();
        let (_, said) = caller.run("privileged_plugins", &[]);
        assert!(caller.mark().is_none() && caller.path(OUTPUT).exists(), "{said}");
    }),
    ("privileged_program_reads_no_file_of_its_caller", || {
        let Some(caller) = Caller::of(Rights::SetUser) else { return };
        fs::write(caller.path("c.conf"), "PLUGIN_LIB_DIR_PATH=.\n").unwrap();
        let (own, said) = caller.run("privileged_config", &[]);
        assert!(own.contains("cannot read the configuration file c.conf") && own.contains("absolute"), "{own}{said}");
    }),
    ("privileged_program_may_trust_its_caller", || {
        for rights in [Rights::SetUser, Rights::Capability] {
            let Some(caller) = Caller::of(rights) else { return };
            let (_, said) =
                caller.run("privileged_trust", &[("KINETO_METADATA", "1"), ("RANK", "3"), ("WORLD_SIZE", "4")]);
            assert!(!said.contains(WARNING) && caller.mark().is_some(), "{said}");
            let trace = super::play::File::read(&caller.path(OUTPUT));
            assert_eq!(trace.json["distributedInfo"]["rank"], 3, "{said}");
        }
    }),
    ("privileged_program_serves_no_requests", || {
        let Some(caller) = Caller::of(Rights::Capability) else { return };
        let (_, said) = caller.run("privileged_requests", &[]);
        assert!(said.contains("on-demand tracing is disabled in set-user-ID programs"), "{said}");
    }),
    ("from_env_of_a_privileged_program_is_silent", || {
        let Some(caller) = Caller::of(Rights::SetUser) else { return };
        assert_eq!(caller.run("privileged_from_env", &[("HOME", "/tmp")]), ("no layer\n".to_owned(), String::new()));
    }),
];

const WARNING: &str = "the environment is not read and no library is loaded: ";

/// Variables that would load a library, print a file, or write one.
const HOSTILE: &[(&str, &str)] = &[
    ("KINETO_PLUGIN_LIB_DIR_PATH", "{}/plugins"),
    ("NVTX_INJECTION64_PATH", "{}/plugins/tool.so"),
    ("KINETO_CUPTI_PATH", "{}/plugins/tool.so"),
    ("KINETO_CONFIG", "{}/private/shadow"),
    ("KINETO_ACTIVITIES_LOG_FILE", "{}/private/x.json"),
    ("KINETO_ENABLED", "1"),
];

/// A user without rights.
const USER: u32 = 65534;

#[derive(Clone, Copy)]
enum Rights {
    SetUser,
    Capability,
}

/// Another user, who runs a program of root in a folder of their own.
struct Caller {
    folder: tempfile::TempDir,
}

impl Caller {
    /// Makes the program; `None` where that is not possible, with a note.
    fn of(rights: Rights) -> Option<Caller> {
        if !sys::is_root() {
            println!("skipped: only root can make a privileged program");
            return None;
        }
        let caller = Caller { folder: tempfile::tempdir().unwrap() };
        for folder in ["", "plugins", "private"] {
            let path = caller.path(folder);
            let _ = fs::create_dir(&path);
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        chown(caller.folder.path(), Some(USER), Some(USER)).unwrap();
        fs::write(caller.path("private/shadow"), "root:$6$secret:1:\nNAME=secret\nsecret==\n").unwrap();
        fs::set_permissions(caller.path("private"), Permissions::from_mode(0o700)).unwrap();
        caller.compile_library();
        // Another process copies it: a child of a concurrent test would inherit the open file and prevent its execution.
        let program = caller.path("program");
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
        assert!(copied.success());
        let mode = if matches!(rights, Rights::SetUser) { 0o4755 } else { 0o755 };
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        if matches!(rights, Rights::Capability) {
            let set = Command::new("setcap").arg("cap_net_raw=ep").arg(&program).stderr(Stdio::null()).status();
            if !set.is_ok_and(|status| status.success()) {
                println!("skipped: this system sets no file capabilities");
                return None;
            }
        }
        if caller.run("privileged_check", &[]).0 != "true\n" {
            println!("skipped: the file system ignores the program's rights");
            return None;
        }
        Some(caller)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a library that leaves a mark when it is loaded.
    fn compile_library(&self) {
        let source = self.path("tool.c");
        let text = "#include <fcntl.h>\n__attribute__((constructor)) static void load(void) { creat(MARK, 0644); }\n";
        fs::write(&source, text).unwrap();
        let mark = format!("-DMARK=\"{}\"", self.path("mark").display());
        support::plugins::compile(source.to_str().unwrap(), &self.path("plugins"), "tool", &[&mark]);
    }

    /// Returns the mark of the library, if it was loaded.
    fn mark(&self) -> Option<PathBuf> {
        Some(self.path("mark")).filter(|mark| mark.exists())
    }

    /// Runs the program in the caller's folder; returns its report and what it wrote to stderr.
    fn run(&self, scenario: &str, env: &[(&str, &str)]) -> (String, String) {
        let mut command = Command::new(self.path("program"));
        command.args(["--play", scenario]).arg(self.folder.path()).current_dir(self.folder.path()).env_clear();
        // `{}` is the folder.
        let here = self.folder.path().to_str().unwrap();
        command.envs(env.iter().map(|(name, value)| (name, value.replace("{}", here)))).uid(USER).gid(USER);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{scenario}: {} {said}", output.status);
        let own = fs::read_to_string(self.path("report")).unwrap_or_default();
        let _ = fs::remove_file(self.path("report"));
        (own, said)
    }
}

fn record_as(folder: &Path, builder: KinetoLayerBuilder) {
    let (layer, _guard) = builder.output(folder.join(OUTPUT)).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    work();
}

//! Tests of `kineto doctor`, help and version: output and exit status.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use support::plugins;
use support::simulator::library;

/// The output and exit status of the tool.
struct CommandOutput {
    text: String,
    status: i32,
}

impl CommandOutput {
    fn new(output: Output) -> CommandOutput {
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        CommandOutput {
            text: String::from_utf8(output.stdout).unwrap(),
            status: output.status.code().expect("no signal"),
        }
    }

    /// Returns the text in one line, with single spaces.
    fn flat(&self) -> String {
        self.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn assert_contains(&self, sentences: &[&str]) {
        let flat = self.flat();
        for sentence in sentences {
            assert!(flat.contains(sentence), "{sentence:?} is not in\n{}", self.text);
        }
    }
}

/// Runs the tool with only these environment variables.
fn kineto(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kineto"));
    command.args(arguments).env_clear().envs(env.iter().copied()).output().unwrap()
}

/// Creates a folder with the simulated GPU's libraries under their real names.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink(library("sim_cuda"), folder.path().join("libcuda.so.1")).unwrap();
    symlink(library("sim_cupti"), folder.path().join("libcupti.so.13")).unwrap();
    folder
}

/// Runs the doctor with the simulated GPU and these options of the simulator.
fn doctor(options: &str, arguments: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.replace("{}", path)).collect();
    let arguments: Vec<_> = ["doctor"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let mut env = env.to_vec();
    env.extend([("LD_LIBRARY_PATH", path), ("SIM_CUDA", options)]);
    CommandOutput::new(kineto(&arguments, &env))
}

#[test]
#[expect(clippy::print_stdout, reason = "reports why the test is skipped")]
fn missing_driver_is_reported_without_a_gpu() {
    if Path::new("/dev/nvidiactl").exists() {
        return println!("skipped: this machine has a GPU");
    }
    let output = CommandOutput::new(kineto(&["doctor"], &[]));
    assert_eq!(output.status, 1, "{}", output.text);
    output.assert_contains(&[
        "spans recorded GPU work no GPU was found",
        "Collector cupti: unavailable",
        "because there is no CUDA driver (libcuda.so.1)",
        "install NVIDIA's driver, or give the container access to it (`--gpus all`)",
        "libcuda.so.1, by the loader: libcuda.so.1: cannot open shared object file",
        "/usr/lib/wsl/lib/libcuda.so.1: not there",
        "set KINETO_ENABLED=1 to enable it",
    ]);
    assert!(!output.text.contains("libcupti.so"), "nothing is loaded without a driver\n{}", output.text);
    // No GPU is selected, so nothing is missing.
    assert_eq!(CommandOutput::new(kineto(&["doctor"], &[("KINETO_ACTIVITIES", "cpu")])).status, 0);
    doctor("", &[], &[("KINETO_ACTIVITIES", "cpu")]).assert_contains(&["GPU work not selected; cupti could record it"]);
    let names: Vec<_> = support::disabling_keys().iter().map(|key| format!("KINETO_{key}")).collect();
    let off: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(CommandOutput::new(kineto(&["doctor"], &off)).status, 0);
}

#[test]
fn recordable_gpu_is_ready() {
    let output = doctor("devices=2", &[], &[]);
    assert_eq!(output.status, 0, "{}", output.text);
    output.assert_contains(&[
        "GPU work recorded by cupti",
        "Collector cupti: ready",
        "cuda CUDA 13.0",
        "GPU 1 Simulated GPU (no real device), compute capability 9.0, 80.0 GiB, GPU-",
        "cupti_version 130001",
        "records gpu_memcpy, gpu_memset, kernel, ",
        "not started: ",
        "libcupti.so.13, by the loader: opened",
    ]);
    let output = doctor("", &["--start"], &[]);
    assert_eq!(output.status, 0, "{}", output.text);
    output.assert_contains(&["Collector cupti: ready", "tried started, and records arrived"]);
    assert!(output.text.lines().filter(|line| !line.contains('/')).all(|line| line.len() <= 100), "{}", output.text);
}

// Shows the key DISABLE_PLUGINS.
#[test]
fn plugins_are_listed_with_types_or_reasons() {
    let folder = tempfile::tempdir().unwrap();
    plugins::compile("examples/plugins/aiu.c", folder.path(), "aiu", &[]);
    plugins::compile("tests/devices/accelerators/faulty.c", folder.path(), "faulty", &["-DFAULT=NO_STOP"]);
    let of = |folder: &Path, more: &[(&str, &str)]| {
        let folder = [("KINETO_PLUGIN_LIB_DIR_PATH", folder.to_str().unwrap()), ("KINETO_DISABLE_CUPTI", "1")];
        CommandOutput::new(kineto(&["doctor", "--start"], &[&folder[..], more].concat()))
    };
    let output = of(folder.path(), &[]);
    assert_eq!(output.status, 1, "{}", output.text);
    output.assert_contains(&[
        "Collector aiu: ready",
        "records gpu_memcpy, kernel, privateuse1_runtime",
        "aiu.so: opened",
        "Collector faulty: unavailable",
        "faulty.so: its profiler lacks the function profilerStop",
    ]);
    let off = of(folder.path(), &[("KINETO_DISABLE_PLUGINS", "1")]);
    off.assert_contains(&["Collector plugins: unavailable", "KINETO_DISABLE_PLUGINS"]);
    assert!(!off.text.contains("aiu"), "{}", off.text);
    let nowhere = of(&folder.path().join("nowhere"), &[]);
    assert_eq!(nowhere.status, 1, "{}", nowhere.text);
    nowhere.assert_contains(&["nowhere: No such file or directory", "correct KINETO_PLUGIN_LIB_DIR_PATH"]);
}

#[test]
fn start_reports_what_prevents_recording() {
    let busy = doctor("busy=1", &["--start"], &[("CUDA_INJECTION64_PATH", "/opt/tool.so")]);
    assert_eq!(busy.status, 1, "{}", busy.text);
    busy.assert_contains(&[
        "Collector cupti: unavailable",
        "another profiler is subscribed to libcupti: `a tool` (",
        "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)",
        "stop it first",
        "CUDA_INJECTION64_PATH loads /opt/tool.so into every CUDA program",
    ]);
    let forbidden = doctor("privileges=1", &["--start"], &[]);
    assert_eq!(forbidden.status, 1, "{}", forbidden.text);
    forbidden.assert_contains(&[
        "because cuptiActivityEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)",
        "NVreg_RestrictProfilingToAdminUsers=0",
        "CAP_SYS_ADMIN",
    ]);
    let partly = doctor("enable_error=45:38", &["--start"], &[]);
    assert_eq!(partly.status, 1, "{}", partly.text);
    partly.assert_contains(&[
        "Collector cupti: degraded",
        "note cuda_sync is not recorded",
        "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED (45)",
    ]);
}

#[test]
fn driver_stub_and_missing_gpu_are_reported() {
    for (version, arguments) in [("13.0", &[][..]), ("13.2", &["--start"]), ("13.4", &["--cupti", "{}/libcupti.so.13"])]
    {
        let stub = doctor(&format!("driver=0,cupti={version}"), arguments, &[]);
        assert_eq!(stub.status, 1, "{}", stub.text);
        stub.assert_contains(&["because libcuda.so.1 is the toolkit's stub, not a driver", "install NVIDIA's driver"]);
        assert!(!stub.text.contains("libcupti.so.13"), "it is not opened\n{}", stub.text);
    }
    let none = doctor("devices=0", &["--start"], &[("CUDA_VISIBLE_DEVICES", "")]);
    assert_eq!(none.status, 1, "{}", none.text);
    none.assert_contains(&[
        "because the CUDA driver finds no GPU",
        "CUDA_VISIBLE_DEVICES is \"\": unset it",
        "`nvidia-smi`",
    ]);
}

// Shows the key KINETO_CUPTI_PATH.
#[test]
fn library_newer_than_the_driver_must_be_named() {
    let old = "driver=12040,cupti=13.0";
    let output = doctor(old, &[], &[]);
    assert_eq!(output.status, 1, "{}", output.text);
    output.assert_contains(&[
        "because there is no libcupti for CUDA 12.4",
        "and needs a libcupti that is not newer: `pip install nvidia-cuda-cupti-cu12`, or update the driver",
        "libcupti.so.12, by the loader: ",
    ]);
    assert!(!output.text.contains("libcupti.so.13"), "{}", output.text);
    let too_new = "libcupti is of CUDA 13, newer than the driver, which is for CUDA 12.4: it is likely to refuse";
    // By file, by folder and by the variable.
    for arguments in [&["--cupti", "{}/libcupti.so.13"][..], &["--cupti", "{}"]] {
        let named = doctor(old, arguments, &[]);
        assert_eq!(named.status, 1, "{}", named.text);
        named.assert_contains(&["Collector cupti: degraded", too_new]);
    }
    let cupti = library("sim_cupti");
    let named = doctor(old, &[], &[("KINETO_CUPTI_PATH", cupti.to_str().unwrap())]);
    named.assert_contains(&[too_new, "set KINETO_CUPTI_PATH="]);
    let started = doctor(old, &["--cupti", "{}", "--start"], &[]);
    assert_eq!(started.status, 1, "{}", started.text);
    started.assert_contains(&[
        "because cuptiSubscribe: CUPTI_ERROR_UNKNOWN (999)",
        "update NVIDIA's driver, or set KINETO_CUPTI_PATH",
    ]);
}

#[test]
fn missing_named_library_is_reported() {
    let output = doctor("", &["--cupti", "/nowhere/libcupti.so.13"], &[]);
    output.assert_contains(&["/nowhere/libcupti.so.13: not there"]);
}

#[test]
fn json_has_the_figures_of_the_text() {
    let output = doctor("devices=2", &["--json", "--start"], &[("KINETO_GZIP_LEVEL", "3")]);
    assert_eq!((output.status, output.text.lines().count()), (0, 1), "{}", output.text);
    let found: Value = serde_json::from_str(&output.text).unwrap();
    assert_eq!((&found["well"], &found["clock"]["error_ns"].is_u64()), (&json!(true), &true));
    assert_eq!(found["devices"].as_array().unwrap().len(), 2);
    assert_eq!(found["devices"][1]["properties"]["computeMajor"], 9);
    let cupti = &found["collectors"][0];
    assert_eq!(cupti["verdict"], "ready");
    assert_eq!((&cupti["versions"]["cupti_version"], &cupti["proven"]), (&json!("130001"), &json!(true)));
    assert!(cupti["library"].as_str().unwrap().ends_with("libcupti.so.13"));
    assert!(cupti["attempts"].as_array().unwrap().iter().any(|attempt| attempt["outcome"] == "opened"));
    assert!(found["configuration"]["set"].as_array().unwrap().iter().any(|set| set["key"] == "GZIP_LEVEL"));
    let busy = doctor("busy=1", &["--json", "--start"], &[]);
    let busy: Value = serde_json::from_str(&busy.text).unwrap();
    let cupti = &busy["collectors"][0];
    assert_eq!((&busy["well"], &cupti["verdict"]), (&json!(false), &json!("unavailable")));
    assert_eq!((&cupti["reason"]["why"], &cupti["records"]), (&json!("Busy"), &json!([])));
    assert!(cupti["advice"].is_array() && cupti["reason"]["advice"].as_str().unwrap().contains("stop it first"));
}

#[test]
fn invalid_configuration_is_reported() {
    let warned = doctor("devices=2", &[], &[("KINETO_ACTIVITY_TYPES", "kernels"), ("KINETO_GZIP_LEVL", "1")]);
    assert_eq!(warned.status, 0, "{}", warned.text);
    warned.assert_contains(&[
        "from_env() returns a layer that records",
        "warning `KINETO_ACTIVITY_TYPES=kernels`",
        "unknown variable KINETO_GZIP_LEVL",
    ]);
    let wrong = doctor("devices=2", &[], &[("KINETO_CONFIG", "/nowhere/kineto.conf")]);
    assert_eq!(wrong.status, 1, "{}", wrong.text);
    wrong.assert_contains(&["from_env() fails", "error cannot read the configuration file /nowhere/kineto.conf"]);
}

#[test]
fn version_and_help_are_printed() {
    let version = CommandOutput::new(kineto(&["--version"], &[]));
    assert_eq!(version.text, concat!("kineto ", env!("CARGO_PKG_VERSION"), "\n"));
    let help = CommandOutput::new(kineto(&["doctor", "--help"], &[]));
    assert_eq!(help.status, 0);
    help.assert_contains(&["Exit status: 0", "--json", "--start", "--cupti <PATH>"]);
    let help = CommandOutput::new(kineto(&["trigger", "--help"], &[]));
    help.assert_contains(&[
        "Usage: kineto trigger [OPTIONS] <PID>...",
        "Exit status: 0",
        "--profile-start-iteration-roundup <COUNT>",
    ]);
    let wrong = kineto(&["docter"], &[]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("'doctor'"), "{wrong:?}");
}

#[test]
fn metrics_of_each_gpu_are_listed() {
    let found = doctor("devices=2", &["--metrics"], &[]);
    assert_eq!(found.status, 0, "{}", found.text);
    found.assert_contains(&[
        "GPU 0: Simulated GPU (no real device) SIM100",
        "GPU 1: Simulated GPU (no real device) SIM100",
        "sm__cycles_active counter # of cycles with at least one warp [gpc_cycle]",
        "gpu__dram_throughput throughput throughput of DRAM [%]",
        "smsp__inst_issued counter # of warp instructions issued [inst], of kernels and annotations only",
        "6 metrics",
    ]);
}

#[test]
fn passes_of_named_metrics_are_counted() {
    let passes = |names: &str| doctor("", &["--metrics", names], &[]);
    let one = passes("sm__cycles_active.avg,dram__bytes_read.sum");
    assert_eq!(one.status, 0, "{}", one.text);
    one.assert_contains(&["they take 1 pass", "dram__bytes_read counter"]);
    assert!(!one.text.contains("gpu__dram_throughput"));
    let two = passes("dram__bytes_read.sum,dram__bytes_write.sum");
    assert_eq!(two.status, 0, "kernels can be measured: {}", two.text);
    two.assert_contains(&[
        "they take 2 passes, and PM sampling has one",
        "for kernels they take 2 passes; an annotation has one, in which fit: dram__bytes_read.sum",
    ]);
    let of_ranges = passes("smsp__inst_issued.sum");
    assert_eq!(of_ranges.status, 0, "{}", of_ranges.text);
    of_ranges.assert_contains(&["they cannot be sampled: SIM100 has no metric", "annotations they take 1 pass"]);
    let unknown = passes("sm__cycles_actve.avg");
    assert_eq!(unknown.status, 1, "{}", unknown.text);
    unknown.assert_contains(&["SIM100 has no metric sm__cycles_actve.avg; did you mean sm__cycles_active.avg?"]);
    let json: Value =
        serde_json::from_str(&doctor("", &["--json", "--metrics=dram__bytes_read.sum"], &[]).text).unwrap();
    assert_eq!((&json["gpus"][0]["passes"], &json["gpus"][0]["chip"]), (&json!(1), &json!("SIM100")));
    assert_eq!(
        (&json["gpus"][0]["range_passes"], &json["gpus"][0]["one_pass"][0]),
        (&json!(1), &json!("dram__bytes_read.sum"))
    );
    assert_eq!(json["gpus"][0]["metrics"].as_array().map(Vec::len), Some(6));
    assert_eq!(json["gpus"][0]["metrics"][0]["sampled"], true);
}

#[test]
fn metrics_need_a_driver_and_a_library() {
    let old = doctor("cupti=12.4", &["--metrics"], &[]);
    assert_eq!(old.status, 1);
    old.assert_contains(&["no GPU can be sampled: libcupti 22 has no PM sampling; use libcupti of CUDA 12.6 or newer"]);
    let none = doctor("driver=0", &["--metrics"], &[]);
    assert_eq!(none.status, 1);
    none.assert_contains(&["no GPU can be sampled: libcuda.so.1 is the toolkit's stub, not a driver"]);
    let disabled = doctor("", &["--metrics"], &[("KINETO_DISABLE_CUPTI", "1")]);
    disabled.assert_contains(&["switched off by KINETO_DISABLE_CUPTI"]);
}

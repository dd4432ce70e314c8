//! Injection into unmodified programs: CUDA's driver loads the library that `CUDA_INJECTION64_PATH` names.

use super::program::{Program, Trace, libraries};
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::cuda::{self, Cuda};
use support::daemon::{self, Daemon};
use support::gpu::in_child;
use support::nanos;
use support::{name_of, poll_until};
use tracing_kineto::analysis::Events;

/// Compiles the program, linked with the driver alone.
fn program() -> Program {
    let driver = cuda::library("sim_cuda");
    let link = [driver.to_str().unwrap(), "-Wl,-rpath,$ORIGIN"].map(str::to_owned);
    let program = Program::linked("cc", "-std=c11", "injected.c", &link);
    std::os::unix::fs::symlink(driver, program.file("libcuda.so.1")).unwrap();
    program
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns a command for the program with the library injected, in a clean environment.
fn injected(program: &Program, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.file("program"));
    command.args(arguments).env_clear().current_dir(program.file(""));
    command.env("CUDA_INJECTION64_PATH", libraries().0).env("KINETO_CUPTI_PATH", cuda::library("sim_cupti"));
    command.env("KINETO_FLUSH_TIMEOUT_MSECS", "60000");
    command
}

/// Runs it, checks that it succeeds, and returns its stderr.
#[track_caller]
fn run(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let messages = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{status} {messages}");
    messages
}

/// Returns the trace of a run that records from the start.
#[track_caller]
fn record(arguments: &[&str]) -> Trace {
    let program = program();
    let messages = run(injected(&program, arguments).env("KINETO_ACTIVITIES_LOG_FILE", program.file("output.json")));
    assert!(messages.lines().count() == 1 && messages.contains(" wrote "), "{messages}");
    program.output()
}

fn of<'t>(trace: &'t Trace, cat: &str, name: &str) -> Vec<&'t Value> {
    trace.rows("X", |row| row["cat"] == cat && row["name"] == name)
}

/// Correlation ids of launches and kernels, and of those that arrows join.
struct Links {
    launches: Vec<Value>,
    kernels: Vec<Value>,
    arrows: Vec<Value>,
}

impl Links {
    #[track_caller]
    fn of(trace: &Trace) -> Links {
        let number = |row: &&Value| row["args"]["correlation"].clone();
        let ends =
            |ph| -> Vec<_> { trace.rows(ph, |row| row["cat"] == "ac2g").iter().map(|row| row["id"].clone()).collect() };
        assert_eq!(ends("s"), ends("f"));
        Links {
            launches: of(trace, "cuda_driver", "cuLaunchKernel").iter().map(number).collect(),
            kernels: of(trace, "kernel", "gemm").iter().map(number).collect(),
            arrows: ends("s"),
        }
    }
}

/// Checks that each kernel has its launch's correlation id and an arrow; returns the number of kernels.
#[track_caller]
fn linked_kernels(trace: &Trace) -> usize {
    let Links { launches, kernels, arrows } = Links::of(trace);
    assert_eq!((&launches, &arrows), (&kernels, &kernels));
    kernels.len()
}

#[test]
fn injected_program_is_recorded_from_its_first_kernel() {
    let trace = record(&[]);
    assert_eq!(linked_kernels(&trace), 3);
    assert_eq!(of(&trace, "cuda_driver", "cuCtxSynchronize").len(), 1);
    assert_eq!(trace.json["deviceProperties"][0]["name"], "Simulated GPU (no real device)");
    // The collector's own driver calls are not recorded.
    for name in ["cuInit", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceTotalMem_v2"] {
        assert!(of(&trace, "cuda_driver", name).is_empty(), "{name}");
    }
    let events = Events::from_reader(trace.json.to_string().as_bytes()).unwrap();
    assert_eq!(events.iter().filter(|event| event.name() == "gemm").count(), 3);
}

#[test]
fn driver_that_permits_calls_records_the_same() {
    let program = program();
    let output = program.file("output.json");
    run(injected(&program, &[]).env("KINETO_ACTIVITIES_LOG_FILE", output).env("SIM_CUDA", "inside_init=1"));
    assert_eq!(linked_kernels(&program.output()), 3);
}

/// The thread that samples lists the devices, which the one inside of `cuInit` must not wait for.
#[test]
fn telemetry_does_not_block_the_drivers_start() {
    let program = program();
    std::os::unix::fs::symlink(cuda::library("sim_nvml"), program.file("libnvidia-ml.so.1")).unwrap();
    let mut command = injected(&program, &[]);
    command.env("KINETO_DEVICE_TELEMETRY_HZ", "10").env("LD_LIBRARY_PATH", program.file(""));
    run(command.env("KINETO_ACTIVITIES_LOG_FILE", program.file("output.json")));
    let trace = program.output();
    assert_eq!(linked_kernels(&trace), 3);
    let nvml = &trace.json["tracing_kineto"]["collectors"]["nvml"];
    assert!(nvml["records"].is_u64() && nvml["unavailable"].is_null(), "{nvml}");
}

#[test]
fn exit_on_any_thread_writes_the_file_and_uexit_does_not() {
    assert_eq!(linked_kernels(&record(&["exit in a thread"])), 3);
    let program = program();
    run(injected(&program, &["_exit"]).env("KINETO_ACTIVITIES_LOG_FILE", program.file("output.json")));
    assert_eq!(traces(&program), Vec::<PathBuf>::new());
}

fn traces(program: &Program) -> Vec<PathBuf> {
    let files = std::fs::read_dir(program.file("")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_string_lossy().contains("output_")).collect()
}

#[test]
fn child_that_initializes_cuda_itself_has_its_own_file() {
    let program = program();
    run(injected(&program, &["fork"]).env("KINETO_ACTIVITIES_LOG_FILE", program.file("output.json")));
    let mut kernels: Vec<_> = traces(&program).iter().map(|path| linked_kernels(&Trace::read(path))).collect();
    kernels.sort_unstable();
    // A child forked after CUDA's initialization has no file.
    assert_eq!(kernels, [2, 3]);
}

#[test]
fn injection_without_settings_names_the_variables() {
    let program = program();
    let messages = run(&mut injected(&program, &[]));
    assert_eq!(messages.lines().count(), 1, "{messages}");
    assert!(messages.contains("KINETO_ACTIVITIES_LOG_FILE") && messages.contains("KINETO_USE_DAEMON"), "{messages}");
    assert!(traces(&program).is_empty());
}

#[test]
fn problems_are_reported_and_the_program_continues() {
    let program = program();
    let output = program.file("output.json");
    let messages =
        run(injected(&program, &[]).env("KINETO_ACTIVITIES_LOG_FILE", &output).env("KINETO_GZIP_LEVEL", "12"));
    assert!(messages.contains("KINETO_GZIP_LEVEL=12") && messages.contains(" wrote "), "{messages}");
    assert_eq!(traces(&program).len(), 1, "the default level");
    // Another profiler holds CUPTI.
    let messages = run(injected(&program, &[]).env("KINETO_ACTIVITIES_LOG_FILE", &output).env("SIM_CUDA", "busy=1"));
    assert!(messages.contains("CUDA is not recorded: ") && messages.contains("cuptiSubscribe"), "{messages}");
    let nowhere = "/no/such/folder/output.json";
    let messages = run(injected(&program, &[]).env("KINETO_ACTIVITIES_LOG_FILE", nowhere));
    assert!(messages.contains("/no/such/folder") && messages.contains(" wrote "), "the default folder: {messages}");
}

#[test]
fn program_that_uses_the_library_itself_has_one_profiler() {
    let library = libraries().0;
    for part in ["before", "during", "after"] {
        let trace = record(&["own", text(&library), part]);
        assert_eq!(linked_kernels(&trace), 3, "{part}");
        let range = trace.slice("cpu_op", "own");
        let kernels = of(&trace, "kernel", "gemm");
        assert!(kernels.iter().all(|row| row["args"]["External id"] == range["args"]["External id"]), "{part}");
    }
}

#[test]
fn nvtx_ranges_are_rows_when_enabled() {
    let program = program();
    let [cupti, ranges] = ["sim_cupti", "sim_ranges"].map(cuda::library);
    let mut command = injected(&program, &["range", text(&ranges)]);
    command.env("KINETO_ACTIVITIES_LOG_FILE", program.file("output.json"));
    run(command.env("KINETO_NVTX_RANGES", "1").env("NVTX_INJECTION64_PATH", cupti));
    let trace = program.output();
    assert_eq!(linked_kernels(&trace), 4);
    let (range, launches) = (trace.slice("user_annotation", "layer"), of(&trace, "cuda_driver", "cuLaunchKernel"));
    let starts = |row: &Value| nanos(&row["ts"]);
    let within = launches.iter().filter(|call| starts(call) >= starts(&range)).count();
    assert_eq!((within, &range["tid"]), (1, &launches[3]["tid"]));
}

/// Checks an assumption of the other tests.
#[test]
fn simulated_driver_aborts_when_called_during_injection() {
    let program = program();
    let [source, library] = ["intruder.c", "intruder.so"].map(|name| program.file(name));
    let text = "int cuInit(unsigned);\nint InitializeInjection(void) { return cuInit(0) == 0 ? ANSWER : 2; }\n";
    std::fs::write(&source, text).unwrap();
    let ends = |answer: &str, options: &str| {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", answer, "-o"]).args([&library, &source]);
        assert!(cc.status().unwrap().success());
        let mut command = injected(&program, &[]);
        let Output { status, stderr, .. } =
            command.env("CUDA_INJECTION64_PATH", &library).env("SIM_CUDA", options).output().unwrap();
        (status.signal(), String::from_utf8(stderr).unwrap())
    };
    assert_eq!(ends("-DANSWER=1", ""), (Some(libc::SIGABRT), "sim-cuda: cuInit inside of cuInit\n".to_owned()));
    assert_eq!(ends("-DANSWER=1", "inside_init=1"), (None, String::new()));
    let (signal, messages) = ends("-DANSWER=0", "inside_init=1");
    assert!(signal.is_none() && messages.ends_with(": 3\n"), "cuInit failed: {messages}");
}

#[test]
fn injection_has_no_effect_in_a_program_with_the_crate() {
    let folder = tempfile::tempdir().unwrap();
    let (library, output) = (libraries().0, folder.path().join("output.json"));
    let env = [("CUDA_INJECTION64_PATH", text(&library)), ("KINETO_ACTIVITIES_LOG_FILE", text(&output))];
    let messages = in_child(name_of(child_with_the_crate), &env);
    let messages = String::from_utf8(messages.stderr).unwrap();
    assert!(messages.contains("CUDA_INJECTION64_PATH has no effect: "), "{messages}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "run by another test"]
fn child_with_the_crate() {
    Cuda::with("");
    assert_eq!(cuda::count("subscribes"), 0);
}

#[test]
fn daemon_can_trace_an_injected_program() {
    if !daemon::is_available() {
        return;
    }
    let program = program();
    let [sockets, traces] = ["sockets", "traces"].map(|name| program.file(name));
    [&sockets, &traces].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let daemon = Daemon::start(&sockets, &[]);
    let mut command = injected(&program, &["loop"]);
    command.env("KINETO_USE_DAEMON", "1").env("KINETO_IPC_SOCKET_DIR", &sockets);
    command.env("KINETO_ONDEMAND_TRACE_DIR", &traces).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let output = traces.join("app.json");
    let request = format!("ACTIVITIES_LOG_FILE={}\nACTIVITIES_DURATION_MSECS=200", text(&output));
    daemon.trigger_all(&request, &[process.id()]);
    let path = traces.join(format!("app_{}.json", process.id()));
    poll_until(|| path.exists());
    drop(process.stdin.take());
    let mut messages = String::new();
    process.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
    assert!(process.wait().unwrap().success(), "{messages}");
    let trace = Trace::read(&path);
    // One kernel may be launched before the trace, and one may run after it.
    let Links { launches, kernels, arrows } = Links::of(&trace);
    let most = launches.len().max(kernels.len());
    assert!(arrows.len() > 1 && arrows.len() + 1 >= most, "{} of {most}: {messages}", arrows.len());
    assert_eq!(trace.json["deviceProperties"][0]["name"], "Simulated GPU (no real device)");
}

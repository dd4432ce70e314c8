//! Programs that are not rebuilt: CUDA's driver loads the library that `CUDA_INJECTION64_PATH` names.

use crate::program::{Program, Trace, libraries};
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::cuda::{self, Cuda};
use support::daemon::{self, Daemon};
use support::gpu::in_child;
use support::nanos;
use tracing_kineto::analysis::Events;

/// The program, linked with the driver alone.
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

/// The program with the library injected, in an environment of its own.
fn injected(program: &Program, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.file("program"));
    command.args(arguments).env_clear().current_dir(program.file(""));
    command.env("CUDA_INJECTION64_PATH", libraries().0).env("KINETO_CUPTI_PATH", cuda::library("sim_cupti"));
    command.env("KINETO_FLUSH_TIMEOUT_MSECS", "60000");
    command
}

/// Runs it to its end, which must be a good one; what it says.
#[track_caller]
fn run(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{status} {said}");
    said
}

/// The trace of a run that records from the start.
#[track_caller]
fn record(arguments: &[&str]) -> Trace {
    let program = program();
    let said = run(injected(&program, arguments).env("KINETO_ACTIVITIES_LOG_FILE", program.file("output.json")));
    assert!(said.lines().count() == 1 && said.contains(" wrote "), "{said}");
    program.output()
}

fn of<'t>(trace: &'t Trace, cat: &str, name: &str) -> Vec<&'t Value> {
    trace.rows("X", |row| row["cat"] == cat && row["name"] == name)
}

/// The numbers of launches and of kernels that are joined by arrows.
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

/// Each kernel belongs to its launch, by an arrow and by the number; returns how many there are.
#[track_caller]
fn linked_kernels(trace: &Trace) -> usize {
    let Links { launches, kernels, arrows } = Links::of(trace);
    assert_eq!((&launches, &arrows), (&kernels, &kernels));
    kernels.len()
}

#[test]
fn a_program_that_knows_nothing_of_it_is_recorded_from_its_first_kernel() {
    let trace = record(&[]);
    assert_eq!(linked_kernels(&trace), 3);
    assert_eq!(of(&trace, "cuda_driver", "cuCtxSynchronize").len(), 1);
    assert_eq!(trace.json["deviceProperties"][0]["name"], "Simulated GPU (no real device)");
    // What we ask the driver is ours.
    for name in ["cuInit", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceTotalMem_v2"] {
        assert!(of(&trace, "cuda_driver", name).is_empty(), "{name}");
    }
    let events = Events::from_reader(trace.json.to_string().as_bytes()).unwrap();
    assert_eq!(events.iter().filter(|event| event.name() == "gemm").count(), 3);
}

#[test]
fn a_driver_that_may_be_called_makes_no_difference() {
    let program = program();
    let output = program.file("output.json");
    run(injected(&program, &[]).env("KINETO_ACTIVITIES_LOG_FILE", output).env("SIM_CUDA", "inside_init=1"));
    assert_eq!(linked_kernels(&program.output()), 3);
}

#[test]
fn the_file_is_written_whichever_thread_calls_exit_and_not_by_underscore_exit() {
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
fn a_child_that_comes_to_cuda_by_itself_has_a_file_of_its_own() {
    let program = program();
    run(injected(&program, &["fork"]).env("KINETO_ACTIVITIES_LOG_FILE", program.file("output.json")));
    let mut kernels: Vec<_> = traces(&program).iter().map(|path| linked_kernels(&Trace::read(path))).collect();
    kernels.sort_unstable();
    // One that was forked from a process with CUDA has none.
    assert_eq!(kernels, [2, 3]);
}

#[test]
fn who_has_asked_for_nothing_is_told_what_to_ask_for() {
    let program = program();
    let said = run(&mut injected(&program, &[]));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("KINETO_ACTIVITIES_LOG_FILE") && said.contains("KINETO_USE_DAEMON"), "{said}");
    assert!(traces(&program).is_empty());
}

#[test]
fn what_cannot_be_is_said_and_the_program_runs_on() {
    let program = program();
    let output = program.file("output.json");
    let said = run(injected(&program, &[]).env("KINETO_ACTIVITIES_LOG_FILE", &output).env("KINETO_GZIP_LEVEL", "12"));
    assert!(said.contains("KINETO_GZIP_LEVEL=12") && said.contains(" wrote "), "{said}");
    assert_eq!(traces(&program).len(), 1, "the default level");
    // Another profiler was first.
    let said = run(injected(&program, &[]).env("KINETO_ACTIVITIES_LOG_FILE", &output).env("SIM_CUDA", "busy=1"));
    assert!(said.contains("CUDA is not recorded: ") && said.contains("cuptiSubscribe"), "{said}");
    let nowhere = "/no/such/folder/output.json";
    let said = run(injected(&program, &[]).env("KINETO_ACTIVITIES_LOG_FILE", nowhere));
    assert!(said.contains("/no/such/folder") && said.contains(" wrote "), "the default folder: {said}");
}

#[test]
fn a_program_that_has_the_library_itself_has_one_profiler() {
    let library = libraries().0;
    for part in ["before", "beside", "after"] {
        let trace = record(&["own", text(&library), part]);
        assert_eq!(linked_kernels(&trace), 3, "{part}");
        let range = trace.slice("cpu_op", "own");
        let kernels = of(&trace, "kernel", "gemm");
        assert!(kernels.iter().all(|row| row["args"]["External id"] == range["args"]["External id"]), "{part}");
    }
}

#[test]
fn its_nvtx_ranges_are_rows_if_asked_for() {
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

/// What the other tests rest on.
#[test]
fn the_simulated_driver_ends_a_program_whose_library_calls_it() {
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
    let (signal, said) = ends("-DANSWER=0", "inside_init=1");
    assert!(signal.is_none() && said.ends_with(": 3\n"), "cuInit has failed: {said}");
}

#[test]
fn a_program_with_the_crate_in_it_records_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (library, output) = (libraries().0, folder.path().join("output.json"));
    let env = [("CUDA_INJECTION64_PATH", text(&library)), ("KINETO_ACTIVITIES_LOG_FILE", text(&output))];
    let said = in_child("injection::child_with_the_crate", &env);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("CUDA_INJECTION64_PATH has no effect: "), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "run by another test"]
fn child_with_the_crate() {
    Cuda::with("");
    assert_eq!(cuda::count("subscribes"), 0);
}

#[test]
fn a_daemon_has_traces_taken_of_it() {
    if !daemon::is_there() {
        return;
    }
    let program = program();
    let [sockets, traces] = ["sockets", "traces"].map(|name| program.file(name));
    [&sockets, &traces].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let daemon = Daemon::start(&sockets, &[]);
    let mut command = injected(&program, &["go on"]);
    command.env("KINETO_USE_DAEMON", "1").env("KINETO_IPC_SOCKET_DIR", &sockets);
    command.env("KINETO_ONDEMAND_TRACE_DIR", &traces).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let output = traces.join("app.json");
    let request = format!("ACTIVITIES_LOG_FILE={}\nACTIVITIES_DURATION_MSECS=200", text(&output));
    daemon.trigger_all(&request, &[process.id()]);
    let path = traces.join(format!("app_{}.json", process.id()));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !path.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(process.stdin.take());
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(process.wait().unwrap().success(), "{said}");
    let trace = Trace::read(&path);
    // A kernel may have been launched before the trace, and one may run after it.
    let Links { launches, kernels, arrows } = Links::of(&trace);
    let most = launches.len().max(kernels.len());
    assert!(arrows.len() > 1 && arrows.len() + 1 >= most, "{} of {most}: {said}", arrows.len());
    assert_eq!(trace.json["deviceProperties"][0]["name"], "Simulated GPU (no real device)");
}

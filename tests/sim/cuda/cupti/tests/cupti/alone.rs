//! CUPTI without a driver: results equal the real library's, each version in a child process.

use libloading::Library;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use support::cuda;

/// The variable with CUPTI's path for the child process.
const ALONE: &str = "SIM_CUPTI_ALONE";

/// Returns the output of the child below, with CUPTI in a folder without the driver.
fn run(version: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libsim_cupti.so");
    std::fs::copy(cuda::library("sim_cupti"), &copy).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "alone::calls", "--ignored", "--nocapture"]);
    child.env(ALONE, &copy).env("SIM_CUDA", format!("cupti={version}")).env_remove("LD_LIBRARY_PATH");
    child.output().unwrap()
}

/// Prints the codes of calls, in the child process.
fn codes(version: &str) -> String {
    let output = run(version);
    let text = String::from_utf8(output.stdout).unwrap();
    let codes = text.split_once("codes: ").unwrap_or_else(|| panic!("{version}: {text}")).1;
    codes.lines().next().unwrap().to_owned()
}

#[test]
fn codes_match_the_version() {
    assert_eq!(codes("11.8"), "version 0, subscribe 15, enable 15, push 15, flush 15, name 0, callbacks 0");
    assert_eq!(codes("12.9"), "version 0, subscribe 15, enable 15, push 15, flush 15, name 0, callbacks 0");
    assert_eq!(codes("13.0"), "version 0, subscribe 999, enable 999, push 999, flush 999, name 0, callbacks 0");
    assert_eq!(codes("13.4"), "version 999, subscribe 999, enable 999, push 999, flush 999, name 999, callbacks 999");
}

#[test]
fn version_13_2_aborts_the_process() {
    assert_eq!(run("13.2").status.signal(), Some(libc::SIGABRT));
}

#[test]
#[ignore = "the process that the other tests start"]
fn calls() {
    let Some(path) = std::env::var_os(ALONE) else { return };
    // SAFETY: the library has no initialisers.
    let cupti = unsafe { Library::new(Path::new(&path)) }.unwrap();
    // Each function called here takes at most three words, and reads none without a driver, or gets a valid place.
    let mut place = [0_u64; 4];
    let mut call = |name: &str, first: usize| {
        // SAFETY: the functions take numbers and places.
        let function = unsafe { *cupti.get::<extern "C" fn(usize, usize, *mut u64) -> i32>(name.as_bytes()).unwrap() };
        function(first, first, place.as_mut_ptr())
    };
    let place = Box::leak(Box::new([0_u64; 4])).as_mut_ptr() as usize;
    let version = call("cuptiGetVersion", place);
    let subscribe = call("cuptiSubscribe", place);
    let (enable, push) = (call("cuptiActivityEnable", 10), call("cuptiActivityPushExternalCorrelationId", 3));
    let (flush, name) = (call("cuptiActivityFlushAll", 0), call("cuptiGetCallbackName", 1));
    let callbacks = call("cuptiActivityRegisterCallbacks", calls as *const () as usize);
    println!(
        "codes: version {version}, subscribe {subscribe}, enable {enable}, push {push}, flush {flush}, name {name}, \
         callbacks {callbacks}"
    );
}

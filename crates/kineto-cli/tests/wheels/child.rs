//! Calls into libraries in a child process, which they may crash.
#![allow(unsafe_code, reason = "NVIDIA's functions are called")]

use crate::walker;
use libloading::Library;
use std::ffi::{CString, c_char};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The result of a child process.
#[derive(Clone, Debug)]
pub(crate) struct ChildResult {
    /// The lines that it printed.
    pub(crate) lines: Vec<String>,
    /// Such as "exit 0" or "signal 11".
    pub(crate) end: String,
}

/// Runs a program to its end with only these environment variables.
pub(crate) fn run(program: &Path, arguments: &[&str], env: &[(&str, &str)]) -> ChildResult {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(env.iter().copied()).stdin(Stdio::null());
    let output = command.output().unwrap();
    // Rust's own handler prints this before it aborts the process.
    let overflow = String::from_utf8_lossy(&output.stderr).contains("has overflowed its stack");
    let end = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => {
            format!("signal {}{}", signal.unwrap_or_default(), if overflow { ", stack overflow" } else { "" })
        }
    };
    let text = String::from_utf8(output.stdout).unwrap();
    ChildResult { lines: text.lines().map(str::to_owned).collect(), end }
}

/// Runs a scenario in a child.
pub(crate) fn start(scenario: &str, arguments: &[&str]) -> ChildResult {
    let arguments: Vec<_> = ["--play", scenario].into_iter().chain(arguments.iter().copied()).collect();
    run(&std::env::current_exe().unwrap(), &arguments, &[(support::PROCESS_VARIABLE, "1")])
}

/// Runs a scenario in this process.
pub(crate) fn play(scenario: &str, arguments: &[String]) {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match (scenario, arguments.as_slice()) {
        ("symbols", [library, names @ ..]) => symbols(&open(library), names),
        ("version", [library]) => version(&open(library)),
        ("pti_views", [library]) => crate::pti::call_views(&open(library)),
        ("passes", [library, metrics, names @ ..]) => {
            crate::metrics::print_passes(&open(metrics), &open(library), names)
        }
        ("chips", [library, metrics, names @ ..]) => crate::metrics::print_chips(&open(metrics), &open(library), names),
        ("evaluate", [library, metrics, image, names @ ..]) => {
            crate::metrics::evaluate(&open(metrics), &open(library), &std::fs::read(image).unwrap(), names)
        }
        ("walk", [library, buffer]) => walk(&open(library), &std::fs::read(buffer).unwrap()),
        ("capture", [version, buffer]) => {
            let (bytes, places) = walker::capture(version);
            std::fs::write(buffer, bytes).unwrap();
            places.iter().for_each(|(kind, at)| say(&format!("{kind} {at}")));
        }
        unknown => panic!("{unknown:?}"),
    }
}

/// Lets a C library create an NVTX range while the tool is loaded.
pub(crate) fn make_a_range(library: &Path, tool: &Path) {
    let library = open(library.to_str().unwrap());
    let [tool, text] = [tool.to_str().unwrap(), "range"].map(|text| CString::new(text).unwrap());
    // SAFETY: the function has this type.
    let connect = unsafe { library.get::<extern "C" fn(*const c_char) -> i32>(b"rangesConnect\0") }.unwrap();
    assert_eq!(connect(tool.as_ptr()), 1);
    // SAFETY: the function has this type.
    let push = unsafe { library.get::<extern "C" fn(usize, *const c_char, u32, u32, i64) -> i32>(b"rangesPushAll\0") };
    assert_eq!(push.unwrap()(0, text.as_ptr(), 7, 0xFF00_8000, -1), 0);
    // SAFETY: the function has this type.
    assert_eq!(unsafe { library.get::<extern "C" fn(usize) -> i32>(b"rangesPopAll\0") }.unwrap()(0), 0);
}

fn open(library: &str) -> Library {
    // SAFETY: opening it runs its initialisers, which is the purpose of this process.
    unsafe { Library::new(library) }.unwrap()
}

#[expect(clippy::print_stdout, reason = "this is how a child answers")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// Prints which of these functions the library has.
fn symbols(library: &Library, names: &[&str]) {
    for name in names {
        // SAFETY: the symbol is only resolved, never called.
        let found = unsafe { library.get::<extern "C" fn()>(name.as_bytes()) };
        if found.is_ok() {
            say(name);
        }
    }
}

/// Calls `cuptiGetVersion`, with or without a driver.
fn version(library: &Library) {
    // SAFETY: the function has this type.
    let get_version = unsafe { library.get::<extern "C" fn(*mut u32) -> u32>(b"cuptiGetVersion\0") }.unwrap();
    let mut version = 0;
    let code = get_version(&raw mut version);
    say(&format!("{code} {version}"));
}

type GetNextRecord = extern "C" fn(*const u8, usize, *mut *const u8) -> u32;

/// Prints the kind and offset of each record of a buffer, then the library's last result.
fn walk(library: &Library, buffer: &[u8]) {
    // SAFETY: the function has this type.
    let next = unsafe { library.get::<GetNextRecord>(b"cuptiActivityGetNextRecord\0") }.unwrap();
    let mut record = std::ptr::null();
    // No buffer has more records than bytes, so this stops a library that never ends.
    for _ in 0..=buffer.len() {
        let code = next(buffer.as_ptr(), buffer.len(), &raw mut record);
        if code != 0 {
            return say(&format!("end {code}"));
        }
        let at = record.addr() - buffer.as_ptr().addr();
        let kind = u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap());
        say(&format!("{kind} {at}"));
    }
    panic!("it does not end");
}

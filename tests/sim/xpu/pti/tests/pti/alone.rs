//! PTI without a loader, with one that is too old, or without a driver says what the real one says, each in a process
//! of its own.

use libloading::Library;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use support::xpu;

/// Where the process that a test starts finds PTI, and a loader to load before.
const ALONE: &str = "SIM_PTI_ALONE";
const BEFORE: &str = "SIM_PTI_BEFORE";

/// What the process below prints, with PTI in a folder without the loader.
fn run(loader: Option<&str>, settings: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libsim_pti.so");
    std::fs::copy(xpu::library("sim_pti"), &copy).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "alone::calls", "--ignored", "--nocapture"]);
    child.env(ALONE, &copy).env("SIM_XPU", settings).env_remove("LD_LIBRARY_PATH");
    if let Some(loader) = loader {
        child.env(BEFORE, xpu::library(loader));
    }
    child.output().unwrap()
}

/// The codes of the calls in the process below.
fn codes(loader: Option<&str>, settings: &str) -> String {
    let output = run(loader, settings);
    let text = String::from_utf8(output.stdout).unwrap();
    let codes = text.split_once("codes: ").unwrap_or_else(|| panic!("{settings}: {text}")).1;
    codes.lines().next().unwrap().to_owned()
}

#[test]
fn without_a_loader_it_knows_its_version_alone() {
    let nothing = "version 1.2.0, enable 2, push 2, flush 2, walk 2, now is 0, copy INVALID";
    assert_eq!(codes(None, ""), nothing);
    assert_eq!(codes(Some("sim_ze_old"), ""), nothing);
    let old = nothing.replace("1.2.0", "0.16.0");
    assert_eq!(codes(None, "pti=0.16"), old);
}

#[test]
fn with_a_loader_it_works() {
    let works = "version 0.17.0, enable 4, push 0, flush 0, walk 1, now is a time, copy H2D";
    assert_eq!(codes(Some("sim_ze_loader"), "pti=0.17"), works);
}

#[test]
fn missing_or_old_driver_aborts_the_process() {
    for settings in ["driver=0", "driver_api=1.2"] {
        assert_eq!(run(Some("sim_ze_loader"), settings).status.signal(), Some(libc::SIGABRT), "{settings}");
    }
}

#[test]
#[ignore = "the process that the other tests start"]
fn calls() {
    let Some(path) = std::env::var_os(ALONE) else { return };
    // SAFETY: the library has no initialisers.
    let _before = std::env::var_os(BEFORE).map(|loader| unsafe { Library::new(Path::new(&loader)) }.unwrap());
    // SAFETY: the same promise of the caller covers this place.
    let pti = unsafe { Library::new(Path::new(&path)) }.unwrap();
    #[repr(C)]
    struct Version([u32; 3]);
    // SAFETY: the library's function of that name has this type.
    let version = unsafe { *pti.get::<extern "C" fn() -> Version>(b"ptiVersion").unwrap() };
    let text = |name: &str, argument: u32| {
        // SAFETY: the function has this type, or takes nothing.
        let function = unsafe { *pti.get::<extern "C" fn(u32) -> *const std::ffi::c_char>(name.as_bytes()).unwrap() };
        // SAFETY: it returns a C string.
        unsafe { std::ffi::CStr::from_ptr(function(argument)) }.to_str().unwrap().to_owned()
    };
    let mut place = [0_u64; 4];
    let mut call = |name: &str, first: usize| {
        // SAFETY: the functions take numbers, and a place last.
        let function = unsafe { *pti.get::<extern "C" fn(usize, usize, *mut u64) -> u32>(name.as_bytes()).unwrap() };
        function(first, 0, place.as_mut_ptr())
    };
    let Version([major, minor, patch]) = version();
    let (enable, push) = (call("ptiViewEnable", 1), call("ptiViewPushExternalCorrelationId", 2));
    let (flush, walk) = (call("ptiFlushAllViews", 0), call("ptiViewGetNextRecord", 0));
    // SAFETY: the library's function of that name has this type.
    let now = unsafe { *pti.get::<extern "C" fn() -> u64>(b"ptiViewGetTimestamp").unwrap() };
    let now = if now() == 0 { "0" } else { "a time" };
    println!(
        "codes: version {major}.{minor}.{patch}, enable {enable}, push {push}, flush {flush}, walk {walk}, \
         now is {now}, copy {}",
        text("ptiViewMemcpyTypeToString", 6)
    );
}

//! Tests Intel's libraries without an Intel GPU: the doctor reports the reason and does not crash, while the same
//! library crashes without our checks.

use crate::child::{self, ChildResult};
use crate::report;
use crate::wheel;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::harness::Test;

pub(crate) const TESTS: &[Test] = &[("every_library_is_told_of_and_none_ends_the_process", each_library)];

/// A version of PTI.
#[derive(Clone, Debug)]
struct Pti {
    version: String,
    folder: PathBuf,
}

/// Returns all versions, oldest first; empty if there is no such folder.
fn all() -> Vec<Pti> {
    let entries = wheel::folder().and_then(|folder| std::fs::read_dir(folder.join("pti")).ok());
    let folders = entries.into_iter().flatten().map(|entry| entry.unwrap().path().canonicalize().unwrap());
    let pti = |folder: PathBuf| {
        let version = folder.file_name()?.to_str()?.to_owned();
        Some(Pti { version, folder: folder.join("lib") }).filter(|pti| pti.folder.is_dir())
    };
    let mut found: Vec<_> = folders.filter_map(pti).collect();
    found.sort_by_key(|pti| pti.version.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>());
    found
}

impl Pti {
    /// Returns the path of libpti_view.
    fn library(&self) -> String {
        let names = ["libpti_view.so.1", "libpti_view.so.0"].map(|name| self.folder.join(name));
        names.into_iter().find(|path| path.exists()).unwrap().to_str().unwrap().to_owned()
    }

    /// Returns the library that libpti_view loads, or libpti_view itself.
    fn core(&self) -> PathBuf {
        let names = ["pti/libpti.so", "libpti.so"].map(|name| self.folder.join(name));
        names.into_iter().find(|path| path.exists()).unwrap_or_else(|| self.library().into())
    }

    /// Calls a view in a child, without our checks, and optionally with a Level Zero loader.
    fn call_without_checks(&self, loader: Option<&Path>) -> ChildResult {
        let folder = self.folder.to_str().unwrap();
        let arguments = ["--play", "pti_views", &self.library()];
        child::run(&std::env::current_exe().unwrap(), &arguments, &environment(loader, &[("LD_LIBRARY_PATH", folder)]))
    }

    /// Runs the doctor; returns the reason, its exit, and whether it opened PTI.
    fn diagnose(&self, loader: Option<&Path>) -> (String, String, bool) {
        let library = self.library();
        let env = environment(loader, &[("KINETO_PTI_PATH", &library)]);
        let arguments = ["doctor", "--json", "--start"];
        let ChildResult { lines, end } = child::run(env!("CARGO_BIN_EXE_kineto").as_ref(), &arguments, &env);
        let found: Value = serde_json::from_str(&lines.concat()).unwrap_or_else(|e| panic!("{self:?}: {end}: {e}"));
        let collectors = found["collectors"].as_array().unwrap();
        let xpu = collectors.iter().find(|collector| collector["name"] == "xpu").unwrap();
        let reason = xpu["reason"]["message"].as_str().unwrap_or("none").to_owned();
        let is_opening = |attempt: &Value| {
            attempt["what"].as_str().unwrap().contains("libpti_view") && attempt["outcome"] == "opened"
        };
        (reason, end, xpu["attempts"].as_array().unwrap().iter().any(is_opening))
    }
}

fn environment<'e>(loader: Option<&'e Path>, more: &[(&'e str, &'e str)]) -> Vec<(&'e str, &'e str)> {
    let preload = loader.map(|loader| ("LD_PRELOAD", loader.to_str().unwrap()));
    preload.into_iter().chain(more.iter().copied()).collect()
}

/// Calls views of a library, and prints their results.
pub(crate) fn call_views(library: &libloading::Library) {
    type SetCallbacks =
        extern "C" fn(extern "C" fn(*mut *mut u8, *mut usize), extern "C" fn(*mut u8, usize, usize)) -> u32;
    extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize) {
        let memory = Box::leak(vec![0u64; 1 << 16].into_boxed_slice());
        // SAFETY: the library gives a valid place.
        unsafe { buffer.write(memory.as_mut_ptr().cast()) };
        // SAFETY: the library gives a valid place.
        unsafe { size.write(size_of_val(memory)) };
    }
    extern "C" fn completed(_: *mut u8, _: usize, _: usize) {}
    // SAFETY: the function has this type.
    let set_callbacks = unsafe { library.get::<SetCallbacks>(b"ptiViewSetCallbacks\0") }.unwrap();
    // SAFETY: the function has this type.
    let enable = unsafe { library.get::<extern "C" fn(u32) -> u32>(b"ptiViewEnable\0") }.unwrap();
    let codes = [set_callbacks(requested, completed), enable(1)];
    child::say(&format!("{} {}", codes[0], codes[1]));
}

/// Returns the functions that the collector resolves: required ones, and those for metrics.
fn functions() -> [Vec<String>; 2] {
    ["ffi.rs", "scope_ffi.rs"].map(|file| {
        let source = support::root().join("crates/kineto-devices/src/xpu").join(file);
        let source = std::fs::read_to_string(source).unwrap();
        let (_, list) = source.split_once("\nfunctions! {").unwrap();
        let (list, _) = list.split_once("\n}").unwrap();
        let parts = list.split("c\"").skip(1).filter_map(|part| part.split_once('"'));
        parts.map(|(name, _)| name.to_owned()).collect()
    })
}

/// Builds a Level Zero loader that finds no driver: each of its functions returns that error.
fn without_a_driver(core: &Path, folder: &Path) -> PathBuf {
    let bytes = std::fs::read(core).unwrap();
    let texts = bytes.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let is_function = |text: &&str| {
        let rest = text.strip_prefix("ze").map(|rest| rest.trim_start_matches(['s', 'l', 't']));
        let is_name = |rest: &str| rest.starts_with(|first: char| first.is_ascii_uppercase());
        rest.is_some_and(is_name) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let mut names: BTreeSet<&str> = texts.filter(is_function).collect();
    names.extend(["zeInit", "zesInit", "zeDriverGet", "zeDeviceGet", "zeDeviceGetProperties"]);
    let code: String = names.iter().map(|name| format!("int {name}(void) {{ return 0x78000001; }}\n")).collect();
    let (source, library) = (folder.join("loader.c"), folder.join("libze_loader.so.1"));
    std::fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libze_loader.so.1", "-o"]).arg(&library).arg(&source);
    assert!(cc.status().unwrap().success());
    library
}

fn each_library() {
    let has_gpu = Path::new("/sys/class/drm").exists();
    let [required, of_metrics] = functions();
    assert!(required.len() >= 12 && of_metrics.len() >= 12, "{required:?} {of_metrics:?}");
    let debian = wheel::folder().map(|folder| folder.join("pti/loader/libze_loader.so.1"));
    let debian = debian.and_then(|path| path.canonicalize().ok());
    let mut rows = Vec::new();
    for pti in all() {
        let version = &pti.version;
        let scratch = tempfile::tempdir().unwrap();
        let stub = without_a_driver(&pti.core(), scratch.path());
        let library = pti.library();
        let names: Vec<_> = required.iter().chain(&of_metrics).map(String::as_str).collect();
        let arguments: Vec<_> = ["--play", "symbols", &library, "ptiVersion"].into_iter().chain(names).collect();
        let folder = [("LD_LIBRARY_PATH", pti.folder.to_str().unwrap())];
        let found = child::run(&std::env::current_exe().unwrap(), &arguments, &folder);
        assert_eq!(found.end, "exit 0", "{version}");
        let there = |names: &[String]| names.iter().filter(|name| found.lines.contains(name)).count();
        assert_eq!(there(&required), required.len(), "{version} has only {:?}", found.lines);
        let samples = there(&of_metrics) == of_metrics.len();
        assert_eq!(samples, !version.starts_with("0.12."), "{version} has {:?}", found.lines);
        let (alone, by_debian, by_stub) =
            (pti.diagnose(None), debian.as_deref().map(|loader| pti.diagnose(Some(loader))), pti.diagnose(Some(&stub)));
        if !has_gpu {
            assert_eq!((&*alone.0, &*alone.1, alone.2), ("no Intel GPU found", "exit 1", false), "{version}");
        }
        if let Some((reason, end, is_open)) = &by_debian {
            assert_eq!((&**end, is_open, reason.contains("zesInit")), ("exit 1", &false, true), "{version}: {reason}");
        }
        // The version is read, and no other function called.
        assert_eq!((&*by_stub.1, by_stub.2), ("exit 1", true), "{version}: {by_stub:?}");
        assert!(by_stub.0.contains("0x78000001"), "{version}: {by_stub:?}");
        let control = pti.call_without_checks(Some(&stub));
        if !has_gpu {
            assert!(control.end.starts_with("signal"), "{version}: {control:?}");
        }
        let bare = pti.call_without_checks(None);
        let shown = |(reason, end, _): &(String, String, bool)| format!("{reason}: {end}");
        let said = |ended: &ChildResult| [ended.lines.join(" "), ended.end.clone()].join(" ").trim().to_owned();
        rows.push(vec![
            version.clone(),
            format!("{} of {}", required.len(), required.len()),
            format!("{} of {}", there(&of_metrics), of_metrics.len()),
            shown(&alone),
            by_debian.as_ref().map_or_else(|| "not there".to_owned(), shown),
            shown(&by_stub),
            said(&bare),
            said(&control),
        ]);
    }
    let columns = [
        "PTI",
        "required functions",
        "functions for metrics",
        "`kineto doctor` alone",
        "with Debian's loader (1.8)",
        "with a loader that finds no driver",
        "two views without our gate and without a loader: codes, end",
        "the same with a loader that finds no driver",
    ];
    report::table("The doctor against Intel's PTI", &columns, &rows);
}

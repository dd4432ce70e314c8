//! Who else in the process may hold libcupti, by the libraries that are mapped.

/// What part of a library's file name tells whose it is.
const KNOWN: [(&str, &str); 8] = [
    ("libtorch_cuda", "PyTorch's profiler (libkineto)"),
    ("libtorch_cpu", "PyTorch's profiler (libkineto)"),
    ("libkineto", "PyTorch's profiler (libkineto)"),
    ("libToolsInjection", "Nsight Systems (nsys)"),
    ("libcuda-injection", "Nsight Compute (ncu)"),
    ("libsanitizer-collection", "compute-sanitizer"),
    ("libInterceptorInjection", "compute-sanitizer"),
    ("libcudadebugger", "cuda-gdb"),
];

/// Returns who it may be, for people.
pub(super) fn text() -> String {
    of(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn of(maps: &str) -> String {
    let mut found: Vec<_> = KNOWN.iter().filter(|(file, _)| maps.contains(file)).map(|(_, whose)| *whose).collect();
    found.dedup();
    match &found[..] {
        [] => "Nsight, compute-sanitizer, cuda-gdb, PyTorch's profiler or another one".to_owned(),
        found => format!("probably {}", found.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_tell_whose_they_are() {
        assert!(of("").starts_with("Nsight, "));
        let maps = "7f00-7f01 r-xp 0 00:00 0 /x/libtorch_cpu.so\n7f00-7f01 r-xp 0 00:00 0 /x/libtorch_cuda.so\n";
        assert_eq!(of(maps), "probably PyTorch's profiler (libkineto)");
        assert_eq!(of("/opt/libToolsInjection64.so"), "probably Nsight Systems (nsys)");
    }
}

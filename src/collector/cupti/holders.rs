//! Names the tools in the process that may be subscribed to libcupti, by their mapped libraries.

/// A part of a library's file name, and its tool.
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

/// Returns a description of the tools.
pub(super) fn describe_holders() -> String {
    describe_maps(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn describe_maps(maps: &str) -> String {
    let mut found: Vec<_> = KNOWN.iter().filter(|(file, _)| maps.contains(file)).map(|(_, whose)| *whose).collect();
    found.dedup();
    match &found[..] {
        [] => "Nsight, compute-sanitizer, cuda-gdb, PyTorch's profiler or another tool".to_owned(),
        found => format!("probably {}", found.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_libraries_identify_the_tool() {
        assert!(describe_maps("").starts_with("Nsight, "));
        let maps = "7f00-7f01 r-xp 0 00:00 0 /x/libtorch_cpu.so\n7f00-7f01 r-xp 0 00:00 0 /x/libtorch_cuda.so\n";
        assert_eq!(describe_maps(maps), "probably PyTorch's profiler (libkineto)");
        assert_eq!(describe_maps("/opt/libToolsInjection64.so"), "probably Nsight Systems (nsys)");
    }
}

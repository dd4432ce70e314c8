//! Names the tools in the process that may be subscribed to libcupti, by their mapped libraries.

/// A part of a library's file name, and its tool. The libraries of a tool are adjacent.
const TOOL_LIBRARIES: [(&str, &str); 8] = [
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
pub(super) fn describe_subscribers() -> String {
    tools_in(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn tools_in(maps: &str) -> String {
    let files: Vec<_> = maps.lines().filter_map(|line| line.rsplit('/').next()).collect();
    let is_mapped = |part: &str| files.iter().any(|file| file.contains(part));
    let mut found: Vec<_> = TOOL_LIBRARIES.iter().filter(|(part, _)| is_mapped(part)).map(|(_, tool)| *tool).collect();
    found.dedup();
    match &found[..] {
        [] => "a tool that maps no known library (known: Nsight, compute-sanitizer, cuda-gdb, PyTorch's profiler)"
            .to_owned(),
        found => format!("probably {}", found.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_libraries_identify_the_tool() {
        assert!(tools_in("").starts_with("a tool that maps no known library"));
        assert!(tools_in("7f00-7f01 r-xp 0 00:00 0 /opt/libkineto-demo/program").starts_with("a tool that maps no"));
        let maps = "7f00-7f01 r-xp 0 00:00 0 /x/libtorch_cpu.so\n7f00-7f01 r-xp 0 00:00 0 /x/libtorch_cuda.so\n";
        assert_eq!(tools_in(maps), "probably PyTorch's profiler (libkineto)");
        assert_eq!(tools_in("/opt/libToolsInjection64.so"), "probably Nsight Systems (nsys)");
    }
}

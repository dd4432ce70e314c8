//! Reads the machine's state from files: its kernel, and whether this is a container.

use std::fs;
use std::path::Path;

/// The findings, made without loading or running anything.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// Such as "Linux 6.1.0".
    pub(super) kernel: String,
    /// The kind of container, if this looks like one; only a hint.
    pub(super) container: Option<&'static str>,
    /// Whether this is Linux on WSL.
    pub(super) is_wsl: bool,
    /// The kernel's clock source.
    pub(super) clock_source: Option<String>,
}

impl Machine {
    /// Reads the files below `root`, which is `/` except in tests.
    pub(super) fn from_root(root: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let release = read("proc/sys/kernel/osrelease");
        let clock_source = read("sys/devices/system/clocksource/clocksource0/current_clocksource");
        Machine {
            kernel: format!("{} {}", read("proc/sys/kernel/ostype").trim(), release.trim()).trim().to_owned(),
            container: detect_container(root),
            is_wsl: release.to_ascii_lowercase().contains("microsoft") || root.join("dev/dxg").exists(),
            clock_source: Some(clock_source.trim().to_owned()).filter(|source| !source.is_empty()),
        }
    }
}

fn detect_container(root: &Path) -> Option<&'static str> {
    if root.join(".dockerenv").exists() {
        return Some("Docker");
    }
    if root.join("run/.containerenv").exists() {
        return Some("Podman");
    }
    let groups = fs::read_to_string(root.join("proc/1/cgroup")).unwrap_or_default();
    let known = [("kubepods", "Kubernetes"), ("docker", "Docker"), ("libpod", "Podman"), ("lxc", "LXC")];
    let by_group = known.iter().find(|(mark, _)| groups.contains(mark)).map(|(_, name)| *name);
    by_group.or_else(|| {
        // The root of a container is usually an overlay of layers.
        let mounts = fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default();
        mounts.lines().any(|line| line.starts_with("overlay / ")).then_some("of an unknown kind")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn kernel_and_clock_are_read() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let machine = Machine::from_root(root);
        assert_eq!((machine.kernel.as_str(), machine.container, machine.is_wsl), ("", None, false));
        assert_eq!(machine.clock_source, None);
        file(root, "proc/sys/kernel/ostype", "Linux\n");
        file(root, "proc/sys/kernel/osrelease", "6.1.0-13-amd64\n");
        file(root, "sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
        let machine = Machine::from_root(root);
        assert_eq!(machine.kernel, "Linux 6.1.0-13-amd64");
        assert_eq!(machine.clock_source.as_deref(), Some("tsc"));
    }

    #[test]
    fn containers_and_wsl_are_detected() {
        for (name, text, container) in [
            (".dockerenv", "", Some("Docker")),
            ("run/.containerenv", "", Some("Podman")),
            ("proc/1/cgroup", "12:pids:/kubepods/besteffort/pod1\n", Some("Kubernetes")),
            ("proc/self/mounts", "overlay / overlay rw 0 0\n", Some("of an unknown kind")),
            ("proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\noverlay /x overlay rw 0 0\n", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            file(root.path(), name, text);
            assert_eq!(Machine::from_root(root.path()).container, container, "{name}");
        }
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
        assert!(Machine::from_root(root.path()).is_wsl);
    }
}

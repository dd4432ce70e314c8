//! What the machine's own files say: its kernel, whether this is a container, and what there is of NVIDIA's driver.

use std::fs;
use std::path::Path;

/// What was seen. Nothing is loaded or run for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// Such as "Linux 6.1.0".
    pub(super) kernel: String,
    /// What kind of container this is, if it looks like one: a hint, no more.
    pub(super) container: Option<&'static str>,
    /// Whether this is Linux in Windows.
    pub(super) is_wsl: bool,
    /// NVIDIA's device files, such as "nvidiactl".
    pub(super) device_files: Vec<String>,
    /// The version of NVIDIA's kernel module, if it is loaded.
    pub(super) module: Option<String>,
    /// How many of NVIDIA's GPUs are on the PCI bus.
    pub(super) gpus_on_bus: usize,
    /// Whether the kernel module lets administrators alone profile.
    pub(super) for_admins: bool,
    /// What the kernel reads its own clock from.
    pub(super) clock_source: Option<String>,
}

impl Machine {
    /// Looks at the files below `root`, which is `/` but for tests.
    pub(super) fn look(root: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let release = read("proc/sys/kernel/osrelease");
        let clock_source = read("sys/devices/system/clocksource/clocksource0/current_clocksource");
        Machine {
            kernel: format!("{} {}", read("proc/sys/kernel/ostype").trim(), release.trim()).trim().to_owned(),
            container: container(root),
            is_wsl: release.to_ascii_lowercase().contains("microsoft") || root.join("dev/dxg").exists(),
            device_files: names(&root.join("dev")).into_iter().filter(|name| name.starts_with("nvidia")).collect(),
            module: module_version(&read("proc/driver/nvidia/version")),
            gpus_on_bus: gpus_on_bus(&root.join("sys/bus/pci/devices")),
            for_admins: read("proc/driver/nvidia/params").lines().any(|line| line.trim() == "RmProfilingAdminOnly: 1"),
            clock_source: Some(clock_source.trim().to_owned()).filter(|source| !source.is_empty()),
        }
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn container(root: &Path) -> Option<&'static str> {
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
        // The root of a container is mostly made of layers.
        let mounts = fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default();
        mounts.lines().any(|line| line.starts_with("overlay / ")).then_some("of an unknown kind")
    })
}

/// The version in the text of `/proc/driver/nvidia/version`: the first word of numbers and dots.
fn module_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

fn gpus_on_bus(devices: &Path) -> usize {
    let is_gpu = |name: &String| {
        let read = |file: &str| fs::read_to_string(devices.join(name).join(file)).unwrap_or_default();
        // The class of displays, of whatever kind.
        read("vendor").trim() == "0x10de" && read("class").starts_with("0x03")
    };
    names(devices).iter().filter(|name| is_gpu(name)).count()
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
    fn an_empty_machine_says_nothing() {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine::look(root.path());
        assert_eq!((machine.kernel.as_str(), machine.container, machine.is_wsl), ("", None, false));
        assert!(machine.device_files.is_empty() && machine.module.is_none() && machine.clock_source.is_none());
        assert_eq!((machine.gpus_on_bus, machine.for_admins), (0, false));
    }

    #[test]
    fn a_machine_with_two_gpus_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        file(root, "proc/sys/kernel/ostype", "Linux\n");
        file(root, "proc/sys/kernel/osrelease", "6.1.0-13-amd64\n");
        for name in ["nvidia1", "nvidia0", "nvidiactl", "null"] {
            file(root, &format!("dev/{name}"), "");
        }
        let version =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\nGCC version: 12.2\n";
        file(root, "proc/driver/nvidia/version", version);
        file(root, "proc/driver/nvidia/params", "EnableMSI: 1\nRmProfilingAdminOnly: 1\n");
        for (device, vendor, class) in [
            ("a", "0x10de", "0x030200"),
            ("b", "0x10de", "0x030000"),
            ("c", "0x10de", "0x040300"),
            ("d", "0x8086", "0x030000"),
        ] {
            file(root, &format!("sys/bus/pci/devices/{device}/vendor"), &format!("{vendor}\n"));
            file(root, &format!("sys/bus/pci/devices/{device}/class"), &format!("{class}\n"));
        }
        file(root, "sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
        let machine = Machine::look(root);
        assert_eq!(machine.kernel, "Linux 6.1.0-13-amd64");
        assert_eq!(machine.device_files, ["nvidia0", "nvidia1", "nvidiactl"]);
        assert_eq!((machine.module.as_deref(), machine.gpus_on_bus, machine.for_admins), (Some("580.159.03"), 2, true));
        assert_eq!(machine.clock_source.as_deref(), Some("tsc"));
    }

    #[test]
    fn containers_and_windows_are_told() {
        for (name, text, container) in [
            (".dockerenv", "", Some("Docker")),
            ("run/.containerenv", "", Some("Podman")),
            ("proc/1/cgroup", "12:pids:/kubepods/besteffort/pod1\n", Some("Kubernetes")),
            ("proc/self/mounts", "overlay / overlay rw 0 0\n", Some("of an unknown kind")),
            ("proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\noverlay /x overlay rw 0 0\n", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            file(root.path(), name, text);
            assert_eq!(Machine::look(root.path()).container, container, "{name}");
        }
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
        assert!(Machine::look(root.path()).is_wsl);
    }
}

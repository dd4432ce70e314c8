//! Reads the state of NVIDIA's kernel driver from files.

use crate::library::search::files_of_vendor;
use kineto_base::sorting::sort_few;
use std::fs;
use std::path::{Path, PathBuf};

/// The findings, made without loading or running anything.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelDriver {
    /// The device files, such as "nvidiactl".
    pub(super) device_files: Vec<String>,
    /// The version of the kernel module, if it is loaded.
    pub(super) module: Option<String>,
    /// The number of NVIDIA's GPUs on the PCI bus.
    pub(super) gpus_on_bus: usize,
    /// Whether only administrators may profile.
    pub(super) for_admins: bool,
}

impl KernelDriver {
    /// Reads the files below `root`, which is `/` except in tests.
    pub(super) fn read(root: &Path) -> KernelDriver {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        KernelDriver {
            device_files: file_names(&root.join("dev")).into_iter().filter(|name| name.starts_with("nvidia")).collect(),
            module: module_version(&read("proc/driver/nvidia/version")),
            gpus_on_bus: gpus_on_bus(&root.join("sys/bus/pci/devices")),
            for_admins: read("proc/driver/nvidia/params").lines().any(|line| line.trim() == "RmProfilingAdminOnly: 1"),
        }
    }
}

/// Returns the sorted names in a folder.
fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    sort_few(&mut names);
    names
}

/// Returns the version in the text of `/proc/driver/nvidia/version`: the first word of digits and dots.
fn module_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

fn gpus_on_bus(devices: &Path) -> usize {
    // The PCI class of displays.
    let is_display = |class: PathBuf| fs::read_to_string(class).is_ok_and(|class| class.starts_with("0x03"));
    files_of_vendor(&devices.join("*/vendor"), "0x10de").filter(|file| is_display(file.with_file_name("class"))).count()
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
    fn machine_with_two_gpus_is_described() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let found = KernelDriver::read(root);
        assert!(found.device_files.is_empty() && found.module.is_none());
        assert_eq!((found.gpus_on_bus, found.for_admins), (0, false));
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
        let found = KernelDriver::read(root);
        assert_eq!(found.device_files, ["nvidia0", "nvidia1", "nvidiactl"]);
        assert_eq!((found.module.as_deref(), found.gpus_on_bus, found.for_admins), (Some("580.159.03"), 2, true));
    }
}

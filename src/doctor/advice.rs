//! The sentences that help, beyond those that a reason brings with it: what is known of the machine goes into them.

use super::machine::Machine;
use crate::collector::Why;
use crate::collector::nvidia::cuda_version;

/// What is known beside a reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    pub(super) machine: &'a Machine,
    /// The version of CUDA that the driver is for; `None` if there is no driver.
    pub(super) driver: Option<i32>,
    /// What `CUDA_VISIBLE_DEVICES` says.
    pub(super) visible: Option<&'a str>,
    /// What `CUDA_INJECTION64_PATH` says.
    pub(super) injected: Option<&'a str>,
}

impl Circumstances<'_> {
    /// Returns what to do where CUDA cannot be recorded for that reason.
    pub(super) fn advice(&self, why: Why) -> Vec<String> {
        match (why, self.driver) {
            (Why::NoDevice, None) => vec![self.without_driver()],
            (Why::NoDevice, Some(_)) => self.without_device(),
            (Why::LibraryNotFound, Some(driver)) => fitting_library(driver).into_iter().collect(),
            (Why::Busy, _) => self.injection().into_iter().collect(),
            (Why::Forbidden, _) => self.without_privileges(),
            _ => Vec::new(),
        }
    }

    fn without_driver(&self) -> String {
        let Machine { container, is_wsl, device_files, module, gpus_on_bus, .. } = self.machine;
        if *is_wsl {
            return "this is WSL, where the driver is that of Windows: update it there, let /usr/lib/wsl/lib be in the \
                    loader's path, and install no driver for Linux"
                .to_owned();
        }
        match (container, module) {
            (Some(kind), _) if device_files.is_empty() => format!(
                "this looks like a container ({kind}) without a GPU's device files (/dev/nvidia*): start it with \
                 `--gpus all`, which takes NVIDIA's Container Toolkit, or in Kubernetes with a limit for nvidia.com/gpu"
            ),
            (Some(kind), _) => format!(
                "this looks like a container ({kind}) that has the device files but not the driver's libraries: \
                 NVIDIA_DRIVER_CAPABILITIES has to name `compute,utility`, or be `all`"
            ),
            (None, Some(version)) => format!(
                "the kernel module {version} is loaded, but its library libcuda.so.1 is not found: install the driver's \
                 libraries of that very version (Debian: libcuda1), and run `ldconfig`"
            ),
            (None, None) if *gpus_on_bus > 0 => format!(
                "there is hardware of NVIDIA's on the PCI bus ({gpus_on_bus}), and no kernel module for it: install the \
                 driver, then see `modprobe nvidia` and `dmesg`"
            ),
            (None, None) => "no GPU of NVIDIA's is on the PCI bus".to_owned(),
        }
    }

    fn without_device(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if let Some(visible) = self.visible {
            advice.push(format!("CUDA_VISIBLE_DEVICES is {visible:?}: unset it, or name a GPU that is there"));
        }
        if self.machine.container.is_some() && self.machine.device_files.is_empty() {
            advice.push(self.without_driver());
        }
        advice
    }

    fn without_privileges(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.machine.for_admins {
            let file = "/proc/driver/nvidia/params";
            advice.push(format!("this machine keeps profiling to administrators: RmProfilingAdminOnly is 1 in {file}"));
        }
        if self.machine.container.is_some() {
            advice.push("a container has to be given the right too: `--cap-add SYS_ADMIN`".to_owned());
        }
        advice
    }

    /// Says which tool every CUDA program is started with.
    pub(super) fn injection(&self) -> Option<String> {
        let path = self.injected.filter(|path| !path.is_empty())?;
        Some(format!("CUDA_INJECTION64_PATH has every CUDA program load {path}, which may hold libcupti: unset it"))
    }
}

/// Which library goes with a driver, if it is not simply the newest.
pub(super) fn fitting_library(driver: i32) -> Option<String> {
    let package = match driver / 1000 {
        11 => "nvidia-cuda-cupti-cu11",
        12 => "nvidia-cuda-cupti-cu12",
        _ => return None,
    };
    let driver_for = cuda_version(driver);
    Some(format!(
        "the driver is for {driver_for}, so a libcupti of a newer CUDA does not count: `pip install {package}`, or update \
         the driver"
    ))
}

/// Says so if a libcupti, by what its `cuptiGetVersion` gives, is of a newer CUDA than the driver is for.
pub(super) fn too_new(cupti: i32, driver: i32) -> Option<String> {
    // 18 may be 11.8 or 12.0; from 13 on the number says the version.
    let library = match cupti {
        ..=18 => 11,
        19..130_000 => 12,
        _ => cupti / 10_000,
    };
    let driver_for = cuda_version(driver);
    (library > driver / 1000).then(|| {
        format!(
            "libcupti is of CUDA {library}, newer than the driver, which is for {driver_for}: it is likely to refuse"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(machine: &Machine, driver: Option<i32>, why: Why) -> String {
        Circumstances { machine, driver, visible: Some("-1"), injected: Some("/x.so") }.advice(why).join("\n")
    }

    #[test]
    fn a_missing_driver_is_explained_by_the_machine() {
        let bare = Machine::default();
        let container = Machine { container: Some("Docker"), ..Machine::default() };
        let half = Machine { device_files: vec!["nvidiactl".to_owned()], ..container.clone() };
        let module = Machine { module: Some("580.1".to_owned()), gpus_on_bus: 1, ..Machine::default() };
        let hardware = Machine { gpus_on_bus: 2, ..Machine::default() };
        let windows = Machine { is_wsl: true, ..container.clone() };
        for (machine, says) in [
            (&bare, "no GPU of NVIDIA's is on the PCI bus"),
            (&container, "`--gpus all`"),
            (&half, "NVIDIA_DRIVER_CAPABILITIES"),
            (&module, "the kernel module 580.1 is loaded"),
            (&hardware, "on the PCI bus (2), and no kernel module"),
            (&windows, "/usr/lib/wsl/lib"),
        ] {
            let advice = advice(machine, None, Why::NoDevice);
            assert!(advice.contains(says), "{advice}");
        }
    }

    #[test]
    fn each_reason_has_its_own_help() {
        let container = Machine { container: Some("Docker"), for_admins: true, ..Machine::default() };
        let none = advice(&container, Some(13_000), Why::NoDevice);
        assert!(none.contains("CUDA_VISIBLE_DEVICES is \"-1\"") && none.contains("/dev/nvidia*"), "{none}");
        let forbidden = advice(&container, Some(13_000), Why::Forbidden);
        assert!(forbidden.contains("RmProfilingAdminOnly is 1") && forbidden.contains("SYS_ADMIN"), "{forbidden}");
        assert!(advice(&container, Some(13_000), Why::Busy).contains("load /x.so"));
        let old = advice(&container, Some(12_040), Why::LibraryNotFound);
        assert!(old.contains("for CUDA 12.4") && old.contains("nvidia-cuda-cupti-cu12"), "{old}");
        assert_eq!(advice(&container, Some(13_000), Why::LibraryNotFound), "");
        assert_eq!(advice(&container, Some(13_000), Why::Failed), "");
    }

    #[test]
    fn a_library_of_a_newer_cuda_than_the_driver_is_noticed() {
        assert!(too_new(130_001, 12_040).unwrap().contains("CUDA 13, newer than the driver, which is for CUDA 12.4"));
        assert!(too_new(28, 11_080).is_some());
        for (cupti, driver) in [(130_401, 13_000), (28, 12_000), (18, 11_080), (17, 13_000)] {
            assert_eq!(too_new(cupti, driver), None);
        }
    }
}

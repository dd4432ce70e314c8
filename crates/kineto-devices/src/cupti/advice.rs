//! The doctor's findings about NVIDIA's driver, with advice that depends on driver and machine.

use super::kernel_driver::KernelDriver;
use super::nvtx::find_nvtx_fault;
use crate::cuda::{Driver, cuda_version};
use crate::vendor::{DriverDiagnosis, Examination, ExamineContext};
use crate::{OptionValue, Options, Unavailable, Why};

/// The inputs of the advice.
#[derive(Clone, Copy, Debug)]
struct Circumstances<'a> {
    kernel_driver: &'a KernelDriver,
    container: Option<&'static str>,
    is_wsl: bool,
    /// The version of CUDA that the driver supports; `None` without a driver.
    driver: Option<i32>,
    /// `CUDA_VISIBLE_DEVICES`.
    visible_devices: Option<&'a str>,
    /// `CUDA_INJECTION64_PATH`.
    injection_path: Option<&'a str>,
}

/// Returns a warning if GPUs are named whose counters are not sampled.
pub(super) fn option_warning(options: &Options) -> Option<&'static str> {
    let has_metrics = !options.list("CUPTI_PM_SAMPLING_METRICS").is_empty();
    let has_others =
        ["CUPTI_PM_SAMPLING_DEVICE_ID", "CUPTI_PM_SAMPLING_INTERVAL_US"].iter().any(|key| options.get(key).is_some());
    (has_others && !has_metrics).then_some(
        "CUPTI_PM_SAMPLING_DEVICE_ID and CUPTI_PM_SAMPLING_INTERVAL_US have no effect without metrics; name some in \
         CUPTI_PM_SAMPLING_METRICS, such as sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    )
}

/// Examines the driver, and what that means for libcupti.
pub(super) fn examine(context: &ExamineContext<'_>) -> Examination {
    let ExamineContext { options, container, is_wsl, .. } = *context;
    let driver = Driver::open(&mut Vec::new());
    let kernel_driver = KernelDriver::read(&context.root);
    let circumstances = Circumstances {
        kernel_driver: &kernel_driver,
        container,
        is_wsl,
        driver: driver.as_ref().ok().map(Driver::version),
        // An empty value hides all GPUs.
        visible_devices: match options.get("CUDA_VISIBLE_DEVICES") {
            Some(OptionValue::Text(gpus)) => Some(gpus),
            _ => None,
        },
        injection_path: options.text("CUDA_INJECTION64_PATH"),
    };
    let devices = driver.as_ref().map(Driver::described_devices).unwrap_or_default();
    let mut found = Examination::default();
    if context.is_enabled {
        if context.reason.is_none() && devices.is_empty() {
            let advice = "run `nvidia-smi`";
            found.refusal = Some(Unavailable::new(Why::NoDevice, "the CUDA driver finds no GPU", advice));
        }
        let why = context.reason.or(found.refusal.as_ref()).map(Unavailable::why);
        let version = |(key, value): &(String, String)| (key == "cupti_version").then(|| value.parse().ok())?;
        add_advice(&mut found, &circumstances, why, context.versions.iter().find_map(version));
        if options.flag("NVTX_RANGES")
            && let Some(library) = context.library
        {
            found.advice.extend(find_nvtx_fault(options.path("NVTX_INJECTION64_PATH").as_deref(), library));
        }
    }
    let facts = driver_facts(&driver, &circumstances);
    found.driver = Some(DriverDiagnosis { vendor: "NVIDIA", facts, devices });
    found
}

/// Adds advice about this version of libcupti, which cannot record because of `why`.
fn add_advice(found: &mut Examination, circumstances: &Circumstances<'_>, why: Option<Why>, version: Option<i32>) {
    match why {
        Some(why) => found.advice.extend(circumstances.advice_for(why)),
        // Report a tool that may hold libcupti before the conflict occurs.
        None => found.notes.extend(circumstances.injection_note()),
    }
    found.notes.extend(version.and_then(known_fault));
    let Some((library, driver)) = version.zip(circumstances.driver) else { return };
    let Some(too_new) = too_new(library, driver) else { return };
    found.notes.push(too_new);
    found.advice.extend(fitting_library(driver));
    found.is_doubtful = true;
}

fn driver_facts(
    driver: &Result<Driver, Unavailable>,
    circumstances: &Circumstances<'_>,
) -> Vec<(&'static str, String)> {
    let KernelDriver { module, device_files, .. } = circumstances.kernel_driver;
    let mut facts = match driver {
        Ok(driver) => vec![("cuda", cuda_version(driver.version()))],
        Err(reason) => vec![("missing", reason.message().to_owned())],
    };
    let library = driver.as_ref().ok().and_then(Driver::path);
    facts.extend(library.map(|path| ("library", path.to_string_lossy().into_owned())));
    facts.extend(module.iter().map(|version| ("kernel module", version.clone())));
    let files = if device_files.is_empty() { "none".to_owned() } else { device_files.join(", ") };
    facts.push(("device files", files));
    facts.extend(circumstances.visible_devices.map(|gpus| ("visible", format!("CUDA_VISIBLE_DEVICES={gpus}"))));
    facts
}

impl Circumstances<'_> {
    /// Returns advice if CUDA cannot be recorded for that reason.
    fn advice_for(&self, why: Why) -> Vec<String> {
        match (why, self.driver) {
            (Why::NoDevice, None) => vec![self.without_driver()],
            (Why::NoDevice, Some(_)) => self.without_device(),
            (Why::LibraryNotFound, Some(driver)) => fitting_library(driver).into_iter().collect(),
            (Why::Busy, _) => self.injection_note().into_iter().collect(),
            (Why::Forbidden, _) => self.without_privileges(),
            _ => Vec::new(),
        }
    }

    fn without_driver(&self) -> String {
        let KernelDriver { device_files, module, gpus_on_bus, .. } = self.kernel_driver;
        if self.is_wsl {
            return "this is WSL, where the driver is that of Windows: update it there, let /usr/lib/wsl/lib be in the \
                    loader's path, and install no driver for Linux"
                .to_owned();
        }
        match (self.container, module) {
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
                "NVIDIA hardware is on the PCI bus ({gpus_on_bus}), and no kernel module is loaded for it: install the \
                 driver, then see `modprobe nvidia` and `dmesg`"
            ),
            (None, None) => "no GPU of NVIDIA's is on the PCI bus".to_owned(),
        }
    }

    fn without_device(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if let Some(visible_devices) = self.visible_devices {
            advice.push(format!("CUDA_VISIBLE_DEVICES is {visible_devices:?}: unset it, or name a GPU that is there"));
        }
        if self.container.is_some() && self.kernel_driver.device_files.is_empty() {
            advice.push(self.without_driver());
        }
        advice
    }

    fn without_privileges(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.kernel_driver.for_admins {
            let file = "/proc/driver/nvidia/params";
            advice.push(format!("this machine keeps profiling to administrators: RmProfilingAdminOnly is 1 in {file}"));
        }
        if self.container.is_some() {
            advice.push("a container has to be given the right too: `--cap-add SYS_ADMIN`".to_owned());
        }
        advice
    }

    /// Returns a note about a tool that is injected into every CUDA program.
    fn injection_note(&self) -> Option<String> {
        let path = self.injection_path.filter(|path| !path.is_empty())?;
        Some(format!("CUDA_INJECTION64_PATH loads {path} into every CUDA program; it may hold libcupti: unset it"))
    }
}

/// Returns advice on the library that fits a driver, unless that driver is the newest.
fn fitting_library(driver: i32) -> Option<String> {
    let package = match driver / 1000 {
        11 => "nvidia-cuda-cupti-cu11",
        12 => "nvidia-cuda-cupti-cu12",
        _ => return None,
    };
    let driver_for = cuda_version(driver);
    Some(format!(
        "the driver supports {driver_for} and needs a libcupti that is not newer: `pip install {package}`, or update \
         the driver"
    ))
}

/// Returns a note if libcupti is of a newer CUDA than the driver supports; `cupti` is its `cuptiGetVersion`.
fn too_new(cupti: i32, driver: i32) -> Option<String> {
    // Version 18 is CUDA 11.8 or 12.0; from CUDA 13 on the number contains the version.
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

/// Returns a note if a version has a fault that long recordings meet, by NVIDIA's release notes.
fn known_fault(cupti: i32) -> Option<String> {
    (cupti == 130_400).then(|| {
        "libcupti 13.4 takes ever more processor time in long recordings before its update 1: use 13.5".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_with_a_known_fault_is_reported() {
        let (kernel_driver, mut found) = (KernelDriver::default(), Examination::default());
        let circumstances = Circumstances { driver: Some(13_000), ..circumstances(&kernel_driver, None) };
        add_advice(&mut found, &circumstances, Some(Why::Failed), Some(130_400));
        assert!(found.notes.iter().any(|note| note.contains("use 13.5")), "{found:?}");
        assert!(!found.is_doubtful && [130_401, 130_500].iter().all(|version| known_fault(*version).is_none()));
    }

    fn circumstances<'a>(kernel_driver: &'a KernelDriver, container: Option<&'static str>) -> Circumstances<'a> {
        let (visible_devices, injection_path) = (Some("-1"), Some("/x.so"));
        Circumstances { kernel_driver, container, is_wsl: false, driver: None, visible_devices, injection_path }
    }

    #[test]
    fn missing_driver_is_explained_by_the_machine() {
        let bare = KernelDriver::default();
        let half = KernelDriver { device_files: vec!["nvidiactl".to_owned()], ..KernelDriver::default() };
        let module = KernelDriver { module: Some("580.1".to_owned()), gpus_on_bus: 1, ..KernelDriver::default() };
        let hardware = KernelDriver { gpus_on_bus: 2, ..KernelDriver::default() };
        let docker = Some("Docker");
        for (circumstances, text) in [
            (circumstances(&bare, None), "no GPU of NVIDIA's is on the PCI bus"),
            (circumstances(&bare, docker), "`--gpus all`"),
            (circumstances(&half, docker), "NVIDIA_DRIVER_CAPABILITIES"),
            (circumstances(&module, None), "the kernel module 580.1 is loaded"),
            (circumstances(&hardware, None), "on the PCI bus (2), and no kernel module"),
            (Circumstances { is_wsl: true, ..circumstances(&bare, docker) }, "/usr/lib/wsl/lib"),
        ] {
            let advice = circumstances.advice_for(Why::NoDevice).join("\n");
            assert!(advice.contains(text), "{advice}");
        }
    }

    #[test]
    fn each_reason_has_its_own_advice() {
        let kernel_driver = KernelDriver { for_admins: true, ..KernelDriver::default() };
        let advice = |driver, why| {
            let circumstances = circumstances(&kernel_driver, Some("Docker"));
            Circumstances { driver: Some(driver), ..circumstances }.advice_for(why).join("\n")
        };
        let none = advice(13_000, Why::NoDevice);
        assert!(none.contains("CUDA_VISIBLE_DEVICES is \"-1\"") && none.contains("/dev/nvidia*"), "{none}");
        let forbidden = advice(13_000, Why::Forbidden);
        assert!(forbidden.contains("RmProfilingAdminOnly is 1") && forbidden.contains("SYS_ADMIN"), "{forbidden}");
        assert!(advice(13_000, Why::Busy).contains("loads /x.so"));
        let old = advice(12_040, Why::LibraryNotFound);
        assert!(old.contains("supports CUDA 12.4") && old.contains("nvidia-cuda-cupti-cu12"), "{old}");
        assert_eq!(advice(13_000, Why::LibraryNotFound), "");
        assert_eq!(advice(13_000, Why::Failed), "");
    }

    #[test]
    fn library_of_a_newer_cuda_than_the_driver_is_reported() {
        assert!(too_new(130_001, 12_040).unwrap().contains("CUDA 13, newer than the driver, which is for CUDA 12.4"));
        assert!(too_new(28, 11_080).is_some());
        for (cupti, driver) in [(130_401, 13_000), (28, 12_000), (18, 11_080), (17, 13_000)] {
            assert_eq!(too_new(cupti, driver), None);
        }
        let (kernel_driver, mut found) = (KernelDriver::default(), Examination::default());
        let circumstances =
            Circumstances { driver: Some(12_040), injection_path: None, ..circumstances(&kernel_driver, None) };
        add_advice(&mut found, &circumstances, None, Some(130_001));
        assert_eq!((found.is_doubtful, found.notes.len(), found.advice.len()), (true, 1, 1), "{found:?}");
    }
}

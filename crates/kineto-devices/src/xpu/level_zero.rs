//! Level Zero: finds a driver for Intel's GPUs, and lists the GPUs.
#![allow(unsafe_code, reason = "the loader of Level Zero is foreign code")]

use crate::library::{Attempt, Candidate, Library, functions};
use crate::{Unavailable, Why};
use kineto_base::text::count_with_noun;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

pub(super) type Code = u32;
pub(super) type Handle = *mut c_void;

functions! {
    /// The loader of Level Zero's drivers, with the functions in use.
    LevelZero
    required {
        init = c"zeInit": fn(u32) -> Code;
        drivers = c"zeDriverGet": fn(*mut u32, *mut Handle) -> Code;
        devices = c"zeDeviceGet": fn(Handle, *mut u32, *mut Handle) -> Code;
        properties = c"zeDeviceGetProperties": fn(Handle, *mut Properties) -> Code;
    }
    optional {
        version = c"zeDriverGetApiVersion": fn(Handle, *mut u32) -> Code;
        pci = c"zeDevicePciGetPropertiesExt": fn(Handle, *mut Properties) -> Code;
    }
}

/// A GPU, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LevelZeroGpu {
    pub(super) uuid: [u8; 16],
    pub(super) name: String,
    /// Domain, bus, device and function.
    pub(super) pci: Option<[u32; 4]>,
    vendor: u32,
}

pub(super) const LOADER: &str = "libze_loader.so.1";
const INTEL: u32 = 0x8086;
/// The least driver version with which PTI does not end the process.
const MIN_VERSION: (u32, u32) = (1, 3);
/// The most drivers or devices; a larger count is corrupt.
const MOST: u32 = 1024;

/// A struct of properties or of a state, as bytes, which are more than any version's struct has.
#[repr(C, align(8))]
pub(super) struct Properties([u8; 1024]);

impl Properties {
    /// The types of `ze_device_properties_t` and `ze_pci_ext_properties_t`.
    const DEVICE: u32 = 3;
    const PCI: u32 = 0x10008;
    const GPU: u32 = 1;

    /// Makes an empty struct of that type, which is its first field.
    pub(super) fn of(structure: u32) -> Properties {
        let mut bytes = [0; 1024];
        if let Some(first) = bytes.first_chunk_mut() {
            *first = structure.to_ne_bytes();
        }
        Properties(bytes)
    }

    pub(super) fn u32_at(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    pub(super) fn u64_at(&self, at: usize) -> u64 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    /// Returns the PCI address of `ze_pci_ext_properties_t` or `zes_pci_properties_t`.
    pub(super) fn pci_address(&self) -> [u32; 4] {
        [16, 20, 24, 28].map(|at| self.u32_at(at))
    }

    /// Returns the GPU that it describes, if it is a GPU.
    fn described_gpu(&self) -> Option<LevelZeroGpu> {
        const KIND: usize = 16;
        const VENDOR: usize = 20;
        const UUID: usize = 96;
        const NAME: std::ops::Range<usize> = 112..368;
        let uuid = *self.0.get(UUID..)?.first_chunk()?;
        let name = self.0.get(NAME)?.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(name).into_owned();
        (self.u32_at(KIND) == Properties::GPU).then(|| LevelZeroGpu {
            uuid,
            name,
            pci: None,
            vendor: self.u32_at(VENDOR),
        })
    }
}

#[cfg(test)]
impl LevelZeroGpu {
    /// Makes a GPU of Intel's.
    pub(super) fn of(uuid: [u8; 16], name: &str) -> LevelZeroGpu {
        LevelZeroGpu { uuid, name: name.to_owned(), pci: None, vendor: INTEL }
    }
}

impl LevelZero {
    /// Returns whether the process has loaded the loader.
    pub(super) fn is_mapped() -> bool {
        Library::open_first(Candidate::mapped(&[LOADER]), &mut Vec::new()).is_some()
    }

    /// Opens the loader; adds the attempts to `attempts`.
    pub(super) fn open_loader(attempts: &mut Vec<Attempt>) -> Option<Library> {
        Library::open_first(Candidate::mapped(&[LOADER]).chain(Candidate::by_loader(&[LOADER])), attempts)
    }

    /// Finds the loader, which must be compatible with PTI. Calls none of its functions.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn open(attempts: &mut Vec<Attempt>) -> Result<LevelZero, Unavailable> {
        let advice =
            "install the Level Zero loader 1.16 or newer (package level-zero or libze1), or load oneAPI's environment";
        let Some(library) = LevelZero::open_loader(attempts) else {
            let message = format!("there is no Level Zero loader ({LOADER})");
            return Err(Unavailable::new(Why::LibraryNotFound, message, advice));
        };
        let mut missing = |name: &str| {
            attempts.push(Attempt::new(format!("{LOADER}: {name}"), "not there"));
            Unavailable::new(
                Why::Incompatible,
                format!("the Level Zero loader is too old for PTI: it lacks {name}"),
                advice,
            )
        };
        if !library.has_symbol(c"zesInit") {
            return Err(missing("zesInit"));
        }
        LevelZero::new(library).map_err(|_| missing("zeInit or zeDeviceGetProperties"))
    }

    /// Initialises the drivers, and returns the GPUs in order, at least one of which is Intel's.
    ///
    /// # Errors
    /// There is none, or no driver that PTI can use: PTI would end the process.
    pub(super) fn list_gpus(&self, attempts: &mut Vec<Attempt>) -> Result<Vec<LevelZeroGpu>, Unavailable> {
        const GPUS_ONLY: u32 = 1;
        let advice = "install Intel's compute runtime (package intel-opencl-icd with libze-intel-gpu1), and see \
                      that you may open /dev/dri/renderD* (group render)";
        // SAFETY: it takes flags, and may be called several times.
        let code = unsafe { (self.init)(GPUS_ONLY) };
        attempts.push(Attempt::new("zeInit", if code == 0 { "done".to_owned() } else { format!("0x{code:x}") }));
        if code != 0 {
            let message = format!("Level Zero finds no GPU driver (zeInit: 0x{code:x})");
            return Err(Unavailable::new(Why::NoDevice, message, advice));
        }
        let drivers = query_list(|count, list| {
            // SAFETY: the list is null, or as long as the count.
            unsafe { (self.drivers)(count, list) }
        });
        if let Some((major, minor)) =
            drivers.first().and_then(|driver| self.version_of(*driver)).filter(|it| *it < MIN_VERSION)
        {
            let message = format!("PTI does not support Level Zero driver {major}.{minor}: it would end the process");
            return Err(Unavailable::new(Why::Incompatible, message, "update Intel's compute runtime"));
        }
        let gpus: Vec<_> = drivers.iter().flat_map(|driver| self.gpus_of(*driver)).collect();
        let found = format!(
            "{}, {}",
            count_with_noun(drivers.len() as u64, "driver"),
            count_with_noun(gpus.len() as u64, "GPU")
        );
        attempts.push(Attempt::new("zeDriverGet, zeDeviceGet", found));
        if gpus.iter().any(|gpu| gpu.vendor == INTEL) {
            return Ok(gpus);
        }
        Err(Unavailable::new(Why::NoDevice, "Level Zero lists no Intel GPU", advice))
    }

    fn version_of(&self, driver: Handle) -> Option<(u32, u32)> {
        let mut version = 0;
        // SAFETY: the loader returned the driver, and the pointer is a valid place for a version.
        let code = unsafe { (self.version?)(driver, &raw mut version) };
        (code == 0).then_some((version >> 16, version & 0xFFFF))
    }

    fn pci_address_of(&self, device: Handle) -> Option<[u32; 4]> {
        let mut properties = Properties::of(Properties::PCI);
        // SAFETY: the loader returned the device, and the struct is longer than any version's.
        let code = unsafe { (self.pci?)(device, &raw mut properties) };
        (code == 0).then(|| properties.pci_address())
    }

    fn gpus_of(&self, driver: Handle) -> Vec<LevelZeroGpu> {
        let devices = query_list(|count, list| {
            // SAFETY: the loader returned the driver; the list is null, or as long as the count.
            unsafe { (self.devices)(driver, count, list) }
        });
        let gpu = |device: &Handle| {
            let mut properties = Properties::of(Properties::DEVICE);
            // SAFETY: the loader returned the device, and the struct is longer than any version's.
            let code = unsafe { (self.properties)(*device, &raw mut properties) };
            let gpu = if code == 0 { properties.described_gpu() } else { None };
            gpu.map(|gpu| LevelZeroGpu { pci: self.pci_address_of(*device), ..gpu })
        };
        devices.iter().filter_map(gpu).collect()
    }
}

/// Queries the count, then the list.
pub(super) fn query_list(mut query: impl FnMut(*mut u32, *mut Handle) -> Code) -> Vec<Handle> {
    let mut count = 0;
    if query(&raw mut count, null_mut()) != 0 || count == 0 {
        return Vec::new();
    }
    let capacity = count.min(MOST);
    let mut all = vec![null::<c_void>().cast_mut(); capacity as usize];
    let mut count = capacity;
    if query(&raw mut count, all.as_mut_ptr()) != 0 {
        return Vec::new();
    }
    all.truncate(count as usize);
    all.retain(|handle| !handle.is_null());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_is_read_from_its_properties() {
        let mut properties = Properties::of(Properties::DEVICE);
        assert_eq!(properties.u32_at(0), 3);
        assert_eq!(properties.described_gpu(), None, "not a GPU");
        properties.0[16] = 1;
        properties.0[20..24].copy_from_slice(&INTEL.to_ne_bytes());
        properties.0[96..112].copy_from_slice(&[7; 16]);
        properties.0[112..121].copy_from_slice(b"Intel GPU");
        let gpu = properties.described_gpu().unwrap();
        assert_eq!(gpu, LevelZeroGpu::of([7; 16], "Intel GPU"));
        properties.0[112..368].fill(b'x');
        assert_eq!(properties.described_gpu().unwrap().name.len(), 256, "a name without an end");
    }

    #[test]
    fn lists_are_limited() {
        let query_with = |reported: u32, code: Code| {
            let mut capacities = Vec::new();
            let found = query_list(|count, list| {
                // SAFETY: the caller passes a valid place.
                capacities.push(unsafe { count.read() });
                let is_last = !list.is_null();
                if is_last {
                    // SAFETY: the list has room for at least one handle.
                    unsafe { list.write(std::ptr::without_provenance_mut(8)) };
                }
                // SAFETY: the caller passes a valid place.
                unsafe { count.write(reported) };
                if is_last { code } else { 0 }
            });
            (found.len(), capacities)
        };
        assert_eq!(query_with(0, 0), (0, vec![0]));
        assert_eq!(query_with(1, 0), (1, vec![0, 1]));
        assert_eq!(query_with(u32::MAX, 0), (1, vec![0, MOST]), "nulls are none");
        assert_eq!(query_with(1, 1), (0, vec![0, 1]));
    }
}

//! Level Zero: whether there is a driver for Intel's GPUs, and which they are.
#![allow(unsafe_code, reason = "the loader of Level Zero is foreign code")]

use crate::collector::library::{Attempt, Candidate, Library};
use crate::collector::{Unavailable, Why};
use std::ffi::c_void;
use std::ptr::{null, null_mut};

type Code = u32;
type Handle = *mut c_void;

/// The loader of Level Zero's drivers, with the functions that are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelZero {
    init: unsafe extern "C" fn(u32) -> Code,
    drivers: unsafe extern "C" fn(*mut u32, *mut Handle) -> Code,
    devices: unsafe extern "C" fn(Handle, *mut u32, *mut Handle) -> Code,
    properties: unsafe extern "C" fn(Handle, *mut Properties) -> Code,
    version: Option<unsafe extern "C" fn(Handle, *mut u32) -> Code>,
}

/// A GPU, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LevelZeroGpu {
    pub(super) uuid: [u8; 16],
    pub(super) name: String,
    vendor: u32,
}

pub(super) const LOADER: &str = "libze_loader.so.1";
const INTEL: u32 = 0x8086;
/// The driver's version below which PTI ends the process.
const LEAST: (u32, u32) = (1, 3);
/// More are taken for garbage.
const MOST: u32 = 1024;

/// `ze_device_properties_t`, as bytes, with room for more than any version of it has.
#[repr(C, align(8))]
struct Properties([u8; 1024]);

impl Properties {
    /// Which struct it is stands first.
    const STRUCTURE: u32 = 3;
    const GPU: u32 = 1;

    fn new() -> Properties {
        let mut bytes = [0; 1024];
        if let Some(first) = bytes.first_chunk_mut() {
            *first = Properties::STRUCTURE.to_ne_bytes();
        }
        Properties(bytes)
    }

    fn number(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// The GPU that it describes, if it is one.
    fn gpu(&self) -> Option<LevelZeroGpu> {
        const KIND: usize = 16;
        const VENDOR: usize = 20;
        const UUID: usize = 96;
        const NAME: std::ops::Range<usize> = 112..368;
        let uuid = *self.0.get(UUID..)?.first_chunk()?;
        let name = self.0.get(NAME)?.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(name).into_owned();
        (self.number(KIND) == Properties::GPU).then(|| LevelZeroGpu { uuid, name, vendor: self.number(VENDOR) })
    }
}

#[cfg(test)]
impl LevelZeroGpu {
    /// One of Intel's.
    pub(super) fn of(uuid: [u8; 16], name: &str) -> LevelZeroGpu {
        LevelZeroGpu { uuid, name: name.to_owned(), vendor: INTEL }
    }
}

impl LevelZero {
    /// Whether the loader is in the process already.
    pub(super) fn is_mapped() -> bool {
        Library::first([Candidate::Mapped(LOADER.to_owned())].into_iter(), &mut Vec::new()).is_some()
    }

    /// Finds the loader, which must be one that PTI can use. Nothing of it is called.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn open(attempts: &mut Vec<Attempt>) -> Result<LevelZero, Unavailable> {
        let candidates = [Candidate::Mapped(LOADER.to_owned()), Candidate::Loader(LOADER.to_owned())];
        let advice =
            "install the Level Zero loader 1.16 or newer (package level-zero or libze1), or load oneAPI's environment";
        let Some(library) = Library::first(candidates.into_iter(), attempts) else {
            let message = format!("there is no Level Zero loader ({LOADER})");
            return Err(Unavailable::new(Why::LibraryNotFound, message, advice));
        };
        let mut missing = |name: &str| {
            attempts.push(Attempt::new(format!("{LOADER}: {name}"), "not there"));
            Unavailable::new(
                Why::Incompatible,
                format!("the Level Zero loader is too old for PTI: it has no {name}"),
                advice,
            )
        };
        // SAFETY: it is looked for, and not called.
        if unsafe { library.function::<unsafe extern "C" fn(u32) -> Code>(c"zesInit") }.is_none() {
            return Err(missing("zesInit"));
        }
        let found = || {
            Some(LevelZero {
                // SAFETY: that is the type that Level Zero's specification gives.
                init: unsafe { library.function(c"zeInit") }?,
                // SAFETY: that is the type that Level Zero's specification gives.
                drivers: unsafe { library.function(c"zeDriverGet") }?,
                // SAFETY: that is the type that Level Zero's specification gives.
                devices: unsafe { library.function(c"zeDeviceGet") }?,
                // SAFETY: that is the type that Level Zero's specification gives.
                properties: unsafe { library.function(c"zeDeviceGetProperties") }?,
                // SAFETY: that is the type that Level Zero's specification gives.
                version: unsafe { library.function(c"zeDriverGetApiVersion") },
            })
        };
        found().ok_or_else(|| missing("zeInit or zeDeviceGetProperties"))
    }

    /// Has the drivers begin, and returns the GPUs in their order, one of which is Intel's.
    ///
    /// # Errors
    /// There is none, or no driver that PTI can use: it ends the process then.
    pub(super) fn gpus(&self, attempts: &mut Vec<Attempt>) -> Result<Vec<LevelZeroGpu>, Unavailable> {
        const GPUS_ONLY: u32 = 1;
        let advice = "install Intel's compute runtime (package intel-opencl-icd with libze-intel-gpu1), and see \
                      that you may open /dev/dri/renderD* (group render)";
        // SAFETY: any flags may be passed, and any number of calls be made.
        let code = unsafe { (self.init)(GPUS_ONLY) };
        attempts.push(Attempt::new("zeInit", if code == 0 { "done".to_owned() } else { format!("0x{code:x}") }));
        if code != 0 {
            let message = format!("Level Zero finds no driver for a GPU (zeInit: 0x{code:x})");
            return Err(Unavailable::new(Why::NoDevice, message, advice));
        }
        let drivers = listed(|count, list| {
            // SAFETY: the list is null, or as long as the count says.
            unsafe { (self.drivers)(count, list) }
        });
        if let Some((major, minor)) =
            drivers.first().and_then(|driver| self.version_of(*driver)).filter(|it| *it < LEAST)
        {
            let message = format!("the Level Zero driver has version {major}.{minor}, with which PTI ends the process");
            return Err(Unavailable::new(Why::Incompatible, message, "update Intel's compute runtime"));
        }
        let gpus: Vec<_> = drivers.iter().flat_map(|driver| self.gpus_of(*driver)).collect();
        let found = format!("{} drivers, {} GPUs", drivers.len(), gpus.len());
        attempts.push(Attempt::new("zeDriverGet, zeDeviceGet", found));
        if gpus.iter().any(|gpu| gpu.vendor == INTEL) {
            return Ok(gpus);
        }
        Err(Unavailable::new(Why::NoDevice, "Level Zero has no GPU of Intel's", advice))
    }

    fn version_of(&self, driver: Handle) -> Option<(u32, u32)> {
        let mut version = 0;
        // SAFETY: the driver is one that the loader named, and the pointer is a valid place for the result.
        let code = unsafe { (self.version?)(driver, &raw mut version) };
        (code == 0).then_some((version >> 16, version & 0xFFFF))
    }

    fn gpus_of(&self, driver: Handle) -> Vec<LevelZeroGpu> {
        let devices = listed(|count, list| {
            // SAFETY: the driver is one that the loader named; the list is null, or as long as the count says.
            unsafe { (self.devices)(driver, count, list) }
        });
        let gpu = |device: &Handle| {
            let mut properties = Properties::new();
            // SAFETY: the device is one that the loader named, and the struct is longer than any version's.
            let code = unsafe { (self.properties)(*device, &raw mut properties) };
            if code == 0 { properties.gpu() } else { None }
        };
        devices.iter().filter_map(gpu).collect()
    }
}

/// Asks how many there are, and then for all.
fn listed(mut ask: impl FnMut(*mut u32, *mut Handle) -> Code) -> Vec<Handle> {
    let mut count = 0;
    if ask(&raw mut count, null_mut()) != 0 || count == 0 {
        return Vec::new();
    }
    let room = count.min(MOST);
    let mut all = vec![null::<c_void>().cast_mut(); room as usize];
    let mut count = room;
    if ask(&raw mut count, all.as_mut_ptr()) != 0 {
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
    fn a_gpu_is_read_from_its_properties() {
        let mut properties = Properties::new();
        assert_eq!(properties.number(0), 3);
        assert_eq!(properties.gpu(), None, "no GPU");
        properties.0[16] = 1;
        properties.0[20..24].copy_from_slice(&INTEL.to_ne_bytes());
        properties.0[96..112].copy_from_slice(&[7; 16]);
        properties.0[112..121].copy_from_slice(b"Intel GPU");
        let gpu = properties.gpu().unwrap();
        assert_eq!(gpu, LevelZeroGpu { uuid: [7; 16], name: "Intel GPU".to_owned(), vendor: INTEL });
        properties.0[112..368].fill(b'x');
        assert_eq!(properties.gpu().unwrap().name.len(), 256, "a name without an end");
    }

    #[test]
    fn lists_are_no_longer_than_they_may_be() {
        let asked = |told: u32, code: Code| {
            let mut rooms = Vec::new();
            let found = listed(|count, list| {
                // SAFETY: the caller gives a valid place.
                rooms.push(unsafe { count.read() });
                let is_last = !list.is_null();
                if is_last {
                    // SAFETY: there is room for one at least.
                    unsafe { list.write(std::ptr::without_provenance_mut(8)) };
                }
                // SAFETY: the caller gives a valid place.
                unsafe { count.write(told) };
                if is_last { code } else { 0 }
            });
            (found.len(), rooms)
        };
        assert_eq!(asked(0, 0), (0, vec![0]));
        assert_eq!(asked(1, 0), (1, vec![0, 1]));
        assert_eq!(asked(u32::MAX, 0), (1, vec![0, MOST]), "nulls are none");
        assert_eq!(asked(1, 1), (0, vec![0, 1]));
    }
}

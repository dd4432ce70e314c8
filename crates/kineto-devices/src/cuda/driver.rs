//! The CUDA driver functions that a profiler needs, called through the installed library.
#![allow(unsafe_code, reason = "the driver is foreign code")]

use super::cuda_version;
use super::init::is_inside_init;
use crate::library::text::read_text;
use crate::library::{Attempt, Candidate, Library, functions};
use crate::{DeviceDescription, Unavailable, Why};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

functions! {
    /// The functions that may be called at any time, or in a program's own calls.
    DriverApi
    required {
        get_version = c"cuDriverGetVersion": fn(*mut c_int) -> c_uint;
    }
    optional {
        push_context = c"cuCtxPushCurrent_v2": fn(*mut c_void) -> c_uint;
        pop_context = c"cuCtxPopCurrent_v2": fn(*mut *mut c_void) -> c_uint;
        synchronize = c"cuCtxSynchronize": fn() -> c_uint;
        is_capturing = c"cuStreamIsCapturing": fn(*mut c_void, *mut c_int) -> c_uint;
    }
}

functions! {
    /// The functions that describe devices. `get_uuid` returns the id of a MIG instance if the device is one.
    DeviceCalls
    required {
        init = c"cuInit": fn(c_uint) -> c_uint;
        get_count = c"cuDeviceGetCount": fn(*mut c_int) -> c_uint;
        get = c"cuDeviceGet": fn(*mut c_int, c_int) -> c_uint;
        get_name = c"cuDeviceGetName": fn(*mut c_char, c_int, c_int) -> c_uint;
        get_attribute = c"cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int) -> c_uint;
        get_total_memory = c"cuDeviceTotalMem_v2": fn(*mut usize, c_int) -> c_uint;
    }
    optional {
        get_uuid = c"cuDeviceGetUuid_v2": fn(*mut [u8; 16], c_int) -> c_uint;
        get_bus_id = c"cuDeviceGetPCIBusId": fn(*mut c_char, c_int, c_int) -> c_uint;
    }
}

/// The driver, opened and checked to be a real driver.
#[derive(Debug)]
pub(crate) struct Driver {
    library: Library,
    api: DriverApi,
    version: i32,
    devices: OnceLock<Vec<DeviceDescription>>,
}

/// The names by which other libraries know a device, whatever number CUDA gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceIds {
    /// "GPU-…", as `nvidia-smi -L` shows it.
    pub(super) uuid: Option<String>,
    /// "0000:17:00.0".
    pub(super) bus_id: Option<String>,
}

/// Folders of the driver outside of the loader's path: WSL, NixOS, and containers that mount it.
const FOLDERS: [&str; 3] = ["/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/usr/local/nvidia/lib64"];
const NAME: &str = "libcuda.so.1";

/// The result of `cuDriverGetVersion` in the toolkit's stub library.
const STUB_LIBRARY: c_uint = 34;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: c_uint = 500;

impl Driver {
    /// Opens the driver and queries its version, which initialises nothing.
    ///
    /// # Errors
    /// It is missing, or not a real driver.
    pub(crate) fn open(attempts: &mut Vec<Attempt>) -> Result<Driver, Unavailable> {
        // The loader returns a library that is already loaded, and a search for loaded ones alone would take as long.
        let candidates = Candidate::by_loader(&[NAME]).chain(driver_files(NAME));
        let none = |message: &str| {
            let advice = "install NVIDIA's driver, or give the container access to it (`--gpus all`)";
            Unavailable::new(Why::NoDevice, message, advice)
        };
        let library =
            Library::open_first(candidates, attempts).ok_or_else(|| none("there is no CUDA driver (libcuda.so.1)"))?;
        let api = DriverApi::new(library).map_err(|_| none("libcuda.so.1 is not a CUDA driver"))?;
        let mut driver = Driver { library, api, version: 0, devices: OnceLock::new() };
        driver.version = driver.query_version().map_err(|code| match code {
            STUB_LIBRARY => none("libcuda.so.1 is the toolkit's stub, not a driver"),
            _ => none(&format!("the CUDA driver failed: cuDriverGetVersion returned {code}")),
        })?;
        attempts.push(Attempt::new("cuDriverGetVersion", cuda_version(driver.version)));
        Ok(driver)
    }

    /// Calls `cuDriverGetVersion`, which is safe to call at any time and changes nothing.
    pub(crate) fn query_version(&self) -> Result<i32, c_uint> {
        let mut version = 0;
        // SAFETY: the pointer is a valid place for a version.
        match unsafe { (self.api.get_version)(&raw mut version) } {
            0 => Ok(version),
            code => Err(code),
        }
    }

    /// Returns the CUDA version that it supports: 13000 is 13.0.
    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    /// Returns the devices, queried once. The first call initialises the driver, as any CUDA program does. Inside of
    /// `cuInit` it returns none.
    pub(crate) fn devices(&self) -> &[DeviceDescription] {
        if is_inside_init() {
            return &[];
        }
        self.devices.get_or_init(|| {
            let Ok(calls) = DeviceCalls::new(self.library) else { return Vec::new() };
            calls
                .handles()
                .into_iter()
                .filter_map(|(number, handle)| super::devices::describe_device(&calls, number, handle))
                .collect()
        })
    }

    /// Returns whether the devices have been queried.
    pub(crate) fn knows_devices(&self) -> bool {
        self.devices.get().is_some()
    }

    /// Returns the library, to resolve further functions.
    pub(super) fn library(&self) -> Library {
        self.library
    }

    /// Calls `act` while a context is current on the calling thread; does not if the context has ended.
    pub(crate) fn with_context(&self, context: usize, act: impl FnOnce()) {
        let Some((push, pop)) = self.api.push_context.zip(self.api.pop_context) else { return };
        // SAFETY: the driver checks the handle, which it has given out.
        if unsafe { push(std::ptr::with_exposed_provenance_mut(context)) } != 0 {
            return;
        }
        act();
        let mut popped = std::ptr::null_mut();
        // SAFETY: the pointer is a valid place for a context.
        let _ = unsafe { pop(&raw mut popped) };
    }

    /// Returns whether a stream of the calling thread's context is being captured, or none may be waited for; `false` if
    /// the driver cannot tell. `None` is the legacy stream, which a capture of any stream that synchronises with it blocks.
    pub(crate) fn is_capturing(&self, stream: Option<usize>) -> bool {
        const LEGACY: usize = 1;
        const IMPLICIT: c_uint = 906;
        let Some(is_capturing) = self.api.is_capturing else { return false };
        let stream = std::ptr::with_exposed_provenance_mut(stream.unwrap_or(LEGACY));
        let mut status = 0;
        // SAFETY: the pointer is a valid place for a status, and the stream is the legacy one or that of a running call.
        match unsafe { is_capturing(stream, &raw mut status) } {
            0 => status != 0,
            code => code == IMPLICIT,
        }
    }

    /// Waits for the work of the calling thread's context.
    ///
    /// # Errors
    /// What `cuCtxSynchronize` returns: it did not wait, or the work failed, which the program sees too.
    pub(crate) fn wait_for_context(&self) -> Result<(), c_uint> {
        // SAFETY: it takes no pointer.
        match self.api.synchronize.map_or(NOT_FOUND, |synchronize| unsafe { synchronize() }) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    /// Returns whether it has the entry point that CUPTI 13.2 and later need; without it, they end the process.
    pub(crate) fn has_export_table(&self) -> bool {
        self.library.has_symbol(c"cuGetExportTable")
    }

    /// Returns the file that it was opened from.
    pub(crate) fn path(&self) -> Option<std::path::PathBuf> {
        self.library.path_by_symbol(c"cuDriverGetVersion")
    }

    /// Returns the devices, each with the id that `nvidia-smi -L` shows ("GPU-…"), if known.
    pub(crate) fn described_devices(&self) -> Vec<(DeviceDescription, Option<String>)> {
        self.identified_devices().into_iter().map(|(device, ids)| (device, ids.uuid)).collect()
    }

    /// Returns the devices, each with its ids.
    pub(super) fn identified_devices(&self) -> Vec<(DeviceDescription, DeviceIds)> {
        let Ok(calls) = DeviceCalls::new(self.library) else { return Vec::new() };
        let handles = calls.handles();
        let ids = |number| {
            let handle = handles.iter().find(|(known, _)| *known == number).map(|(_, handle)| *handle);
            let ids = |handle| DeviceIds { uuid: calls.device_uuid(handle), bus_id: calls.device_bus_id(handle) };
            handle.map(ids).unwrap_or_default()
        };
        self.devices().iter().map(|device| (device.clone(), ids(device.id))).collect()
    }
}

impl DeviceCalls {
    /// Returns the numbers and handles of all devices.
    fn handles(&self) -> Vec<(i32, c_int)> {
        // SAFETY: it takes no pointer.
        let initialised = unsafe { (self.init)(0) };
        let mut count = 0;
        // SAFETY: the pointer is a valid place for a count.
        if initialised != 0 || unsafe { (self.get_count)(&raw mut count) } != 0 {
            return Vec::new();
        }
        let handle = |number| {
            let mut handle = 0;
            // SAFETY: the pointer is a valid place for a handle.
            (unsafe { (self.get)(&raw mut handle, number) } == 0).then_some((number, handle))
        };
        // No machine has more; a larger count is an error of the library.
        (0..count.min(1024)).filter_map(handle).collect()
    }

    pub(super) fn device_name(&self, handle: c_int) -> Option<String> {
        // SAFETY: the function takes a buffer, its length and a device.
        read_text(|text, length| unsafe { (self.get_name)(text, length, handle) })
    }

    fn device_bus_id(&self, handle: c_int) -> Option<String> {
        let get_bus_id = self.get_bus_id?;
        // SAFETY: the function takes a buffer, its length and a device.
        read_text(|text, length| unsafe { get_bus_id(text, length, handle) })
    }

    fn device_uuid(&self, handle: c_int) -> Option<String> {
        let mut uuid = [0; 16];
        // SAFETY: the pointer is a valid place for 16 bytes.
        if unsafe { (self.get_uuid?)(&raw mut uuid, handle) } != 0 {
            return None;
        }
        let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or_default().to_owned());
        Some(format!("GPU-{}", parts.join("-")))
    }

    pub(super) fn device_attribute(&self, handle: c_int, attribute: c_int) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the pointer is a valid place for a value.
        (unsafe { (self.get_attribute)(&raw mut value, attribute, handle) } == 0).then_some(value.into())
    }

    pub(super) fn total_memory(&self, handle: c_int) -> Option<i64> {
        let mut bytes = 0;
        // SAFETY: the pointer is a valid place for a size.
        (unsafe { (self.get_total_memory)(&raw mut bytes, handle) } == 0)
            .then(|| i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}

/// Returns the files of that name in the driver's folders.
pub(super) fn driver_files(name: &str) -> impl Iterator<Item = Candidate> {
    FOLDERS.iter().map(move |folder| Candidate::File([folder, name].iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_formatted_as_major_minor() {
        assert_eq!(cuda_version(13_000), "CUDA 13.0");
        assert_eq!(cuda_version(12_090), "CUDA 12.9");
        assert_eq!(cuda_version(11_080), "CUDA 11.8");
    }
}

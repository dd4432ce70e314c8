//! NVML, NVIDIA's management library, which tells the state of GPUs without a CUDA context.
//!
//! NVML and CUDA number GPUs differently: `CUDA_VISIBLE_DEVICES` renumbers those of CUDA. So GPUs are found by UUID, or by
//! their place on the PCI bus: a MIG instance has the UUID of a part, and the values are those of the whole GPU. Two
//! functions are never called, since they block: the PCIe throughput for 20 ms, the total energy for 2.4 ms.
#![allow(unsafe_code, reason = "the library is foreign code")]

use super::driver::{DeviceIds, Driver, driver_files};
use super::init::is_inside_init;
use crate::library::text::read_text;
use crate::library::{Attempt, Candidate, Library, functions};
use crate::telemetry::{DeviceMetric, ManagementLibrary, ReadError, TelemetryState, read_into};
use crate::{DeviceDescription, Options, Unavailable, Why};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;

type Code = c_uint;
/// `nvmlDevice_t`, which only the library dereferences.
type Handle = *mut c_void;

functions! {
    /// The functions of NVML.
    NvmlApi
    required {
        init = c"nvmlInit_v2": fn() -> Code;
        by_uuid = c"nvmlDeviceGetHandleByUUID": fn(*const c_char, *mut Handle) -> Code;
        by_bus_id = c"nvmlDeviceGetHandleByPciBusId_v2": fn(*const c_char, *mut Handle) -> Code;
        power = c"nvmlDeviceGetPowerUsage": fn(Handle, *mut c_uint) -> Code;
        clock = c"nvmlDeviceGetClockInfo": fn(Handle, c_uint, *mut c_uint) -> Code;
        utilization = c"nvmlDeviceGetUtilizationRates": fn(Handle, *mut [c_uint; 2]) -> Code;
        memory = c"nvmlDeviceGetMemoryInfo": fn(Handle, *mut [u64; 3]) -> Code;
    }
    optional {
        version = c"nvmlSystemGetNVMLVersion": fn(*mut c_char, c_uint) -> Code;
        fields = c"nvmlDeviceGetFieldValues": fn(Handle, c_int, *mut FieldValue) -> Code;
        temperature = c"nvmlDeviceGetTemperature": fn(Handle, c_uint, *mut c_uint) -> Code;
        temperature_v = c"nvmlDeviceGetTemperatureV": fn(Handle, *mut [u32; 3]) -> Code;
        memory_v2 = c"nvmlDeviceGetMemoryInfo_v2": fn(Handle, *mut MemoryV2) -> Code;
        event_reasons = c"nvmlDeviceGetCurrentClocksEventReasons": fn(Handle, *mut u64) -> Code;
        throttle_reasons = c"nvmlDeviceGetCurrentClocksThrottleReasons": fn(Handle, *mut u64) -> Code;
    }
}

/// `nvmlFieldValue_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct FieldValue {
    id: u32,
    scope: u32,
    timestamp: i64,
    latency_us: i64,
    kind: u32,
    code: Code,
    value: [u8; 8],
}

/// `nvmlMemory_v2_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

const NAME: &str = "libnvidia-ml.so.1";

/// `NVML_FI_DEV_POWER_INSTANT`: the average follows a step within 1.1 s, this value within 0.1 s.
const INSTANT_POWER: u32 = 186;
/// The version and length of [`MemoryV2`].
const MEMORY_V2: u32 = 0x0200_0028;
/// The version and length of `nvmlTemperature_t`.
const TEMPERATURE_V1: u32 = 0x0100_000C;
/// Clocks by NVML's numbers.
const SM_CLOCK: c_uint = 1;
const MEMORY_CLOCK: c_uint = 2;

/// NVML, opened and initialised.
#[derive(Debug)]
pub(crate) struct Nvml {
    library: Library,
    api: NvmlApi,
    driver: Driver,
}

/// A GPU.
#[derive(Debug)]
pub(crate) struct NvmlDevice {
    handle: NvmlHandle,
    /// Whether the instant power is not known here, so that the average is read.
    lacks_instant_power: bool,
    /// The utilization of the memory, which is read together with that of the GPU.
    memory_utilization: Option<c_uint>,
}

/// The library's handle of a GPU.
#[derive(Clone, Copy, Debug)]
struct NvmlHandle(Handle);

// SAFETY: NVML's functions may be called on any thread, and only they dereference a handle.
unsafe impl Send for NvmlHandle {}

static STATE: TelemetryState = TelemetryState::new();

impl FieldValue {
    /// Returns the number, by the type that it has.
    fn number(&self) -> Option<i64> {
        let [a, b, c, d, ..] = self.value;
        let (low, all) = ([a, b, c, d], self.value);
        match self.kind {
            1 => Some(u32::from_ne_bytes(low).into()),
            2 | 3 => i64::try_from(u64::from_ne_bytes(all)).ok(),
            4 => Some(i64::from_ne_bytes(all)),
            5 => Some(i32::from_ne_bytes(low).into()),
            _ => None,
        }
    }
}

/// Turns a result into an error, unless it is success.
fn check(code: Code) -> Result<(), ReadError> {
    match code {
        0 => Ok(()),
        3 | 13 => Err(ReadError::Unsupported),
        4 => Err(ReadError::Forbidden),
        other => Err(ReadError::Failed(other.into())),
    }
}

impl Nvml {
    /// Finds a GPU by its ids.
    fn find_device(&self, ids: &DeviceIds) -> Result<NvmlDevice, String> {
        let find = |id: &Option<String>, by_id: unsafe extern "C" fn(*const c_char, *mut Handle) -> Code| {
            let id = CString::new(id.as_deref()?).ok()?;
            let mut handle = null_mut();
            // SAFETY: the id is a C string, and the pointer is a valid place for a handle.
            let code = unsafe { by_id(id.as_ptr(), &raw mut handle) };
            (code == 0 && !handle.is_null()).then_some(NvmlHandle(handle))
        };
        let handle = find(&ids.uuid, self.api.by_uuid).or_else(|| find(&ids.bus_id, self.api.by_bus_id));
        let name = |id: &Option<String>| id.clone().unwrap_or_else(|| "unknown".to_owned());
        let unknown = || format!("it knows neither {} nor PCI bus id {}", name(&ids.uuid), name(&ids.bus_id));
        handle
            .map(|handle| NvmlDevice { handle, lacks_instant_power: false, memory_utilization: None })
            .ok_or_else(unknown)
    }

    fn instant_power(&self, handle: Handle) -> Result<i64, ReadError> {
        let fields = self.api.fields.ok_or(ReadError::Unsupported)?;
        let mut field = FieldValue { id: INSTANT_POWER, ..FieldValue::default() };
        // SAFETY: the library returned the handle, and the array has one field.
        check(unsafe { fields(handle, 1, &raw mut field) })?;
        check(field.code)?;
        field.number().ok_or(ReadError::Unsupported)
    }

    fn power(&self, device: &mut NvmlDevice) -> Result<i64, ReadError> {
        let NvmlHandle(handle) = device.handle;
        if !device.lacks_instant_power {
            match self.instant_power(handle) {
                // Older drivers do not know the field. After other errors, the mean of a second would mix two values in a row.
                Err(ReadError::Unsupported) => device.lacks_instant_power = true,
                result => return result,
            }
        }
        // SAFETY: the library returned the handle; the place is valid.
        read_into(check, |place| unsafe { (self.api.power)(handle, place) }).map(i64::from)
    }

    fn temperature(&self, handle: Handle) -> Result<i64, ReadError> {
        let celsius = if let Some(temperature) = self.api.temperature {
            // SAFETY: the library returned the handle; sensor 0 is the GPU's, and the place is valid.
            read_into(check, |place| unsafe { temperature(handle, 0, place) }).map(i64::from)
        } else {
            let temperature = self.api.temperature_v.ok_or(ReadError::Unsupported)?;
            let mut record = [TEMPERATURE_V1, 0, 0];
            // SAFETY: the library returned the handle; the record has the length that its version states.
            check(unsafe { temperature(handle, &raw mut record) })?;
            Ok(record[2].cast_signed().into())
        };
        celsius.map(|celsius: i64| celsius * 1000)
    }

    fn clock(&self, handle: Handle, clock: c_uint) -> Result<i64, ReadError> {
        // SAFETY: the library returned the handle; the place is valid.
        read_into(check, |place| unsafe { (self.api.clock)(handle, clock, place) }).map(i64::from)
    }

    fn utilization(&self, handle: Handle) -> Result<[c_uint; 2], ReadError> {
        // SAFETY: the library returned the handle; the place has two numbers, of the GPU and of its memory.
        read_into(check, |place| unsafe { (self.api.utilization)(handle, place) })
    }

    fn used_memory(&self, handle: Handle) -> Result<i64, ReadError> {
        let bytes = |used: u64| i64::try_from(used).unwrap_or(i64::MAX);
        // Without what the driver reserves, as `nvidia-smi` shows it.
        if let Some(memory) = self.api.memory_v2 {
            let mut record = MemoryV2 { version: MEMORY_V2, ..MemoryV2::default() };
            // SAFETY: the library returned the handle; the record has the length that its version states.
            if unsafe { memory(handle, &raw mut record) } == 0 {
                return Ok(bytes(record.used));
            }
        }
        // SAFETY: the library returned the handle; the place has three numbers, the last of which is the used memory.
        read_into(check, |place: *mut [u64; 3]| unsafe { (self.api.memory)(handle, place) })
            .map(|[.., used]| bytes(used))
    }

    fn reasons(&self, handle: Handle) -> Result<i64, ReadError> {
        let reasons = self.api.event_reasons.or(self.api.throttle_reasons).ok_or(ReadError::Unsupported)?;
        // SAFETY: the library returned the handle; the place is valid.
        read_into(check, |place: *mut u64| unsafe { reasons(handle, place) }).map(u64::cast_signed)
    }
}

impl ManagementLibrary for Nvml {
    const NAME: &'static str = "nvml";
    const LIBRARY: &'static str = "libnvidia-ml";
    const REASONS: &'static [(u64, &'static str)] = &[
        (0x2, "clocks set by an application"),
        (0x4, "power cap"),
        (0x8, "hardware slowdown"),
        (0x10, "sync boost"),
        (0x20, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "power brake"),
        (0x100, "display clocks"),
    ];

    type Device = NvmlDevice;
    type Context = ();

    fn state() -> &'static TelemetryState {
        &STATE
    }

    fn open((): &(), _options: &Options, attempts: &mut Vec<Attempt>) -> Result<Nvml, Unavailable> {
        let driver = Driver::open(attempts)?;
        let candidates = Candidate::mapped(&[NAME]).chain(Candidate::by_loader(&[NAME]));
        let library = Library::open_first(candidates.chain(driver_files(NAME)), attempts).ok_or_else(|| {
            let advice = "install the driver's management library (Debian: libnvidia-ml1); in a container, \
                          NVIDIA_DRIVER_CAPABILITIES has to name `utility`";
            Unavailable::new(Why::LibraryNotFound, format!("there is no NVML ({NAME})"), advice)
        })?;
        let api = NvmlApi::new(library).map_err(|name| {
            let message = format!("{NAME} lacks {}", name.to_string_lossy());
            Unavailable::new(Why::Incompatible, message, "update NVIDIA's driver")
        })?;
        // SAFETY: it takes nothing, and counts how often it is called.
        let code = unsafe { (api.init)() };
        attempts.push(Attempt::new("nvmlInit_v2", if code == 0 { "done".to_owned() } else { code.to_string() }));
        match code {
            0 => Ok(Nvml { library, api, driver }),
            // No driver, or none of its devices.
            9 => Err(Unavailable::new(Why::NoDevice, "NVML finds no driver (nvmlInit_v2: 9)", "run `nvidia-smi`")),
            4 => Err(Unavailable::new(Why::Forbidden, "NVML may not be used (nvmlInit_v2: 4)", "run `nvidia-smi`")),
            code => {
                let message = format!("NVML failed: nvmlInit_v2 returned {code}");
                Err(Unavailable::new(Why::Failed, message, "run `nvidia-smi`"))
            }
        }
    }

    fn describe(&self) -> (Option<PathBuf>, Option<String>) {
        let version = self.api.version.and_then(|version| {
            // SAFETY: the function takes a buffer and its length.
            read_text(|text, length| unsafe { version(text, length.unsigned_abs()) })
        });
        (self.library.path_by_symbol(c"nvmlInit_v2"), version)
    }

    fn can_wait_for_devices() -> bool {
        !is_inside_init()
    }

    fn find_devices(&self) -> Vec<(DeviceDescription, Result<NvmlDevice, String>)> {
        let devices = self.driver.identified_devices().into_iter();
        devices.map(|(description, ids)| (description, self.find_device(&ids))).collect()
    }

    fn read(&self, device: &mut NvmlDevice, metric: DeviceMetric) -> Result<i64, ReadError> {
        let NvmlHandle(handle) = device.handle;
        match metric {
            DeviceMetric::Power => self.power(device),
            DeviceMetric::Temperature => self.temperature(handle),
            DeviceMetric::SmClock => self.clock(handle, SM_CLOCK),
            DeviceMetric::MemoryClock => self.clock(handle, MEMORY_CLOCK),
            DeviceMetric::GpuUtilization => {
                let [gpu, memory] = self.utilization(handle)?;
                device.memory_utilization = Some(memory);
                Ok(gpu.into())
            }
            DeviceMetric::MemoryUtilization => match device.memory_utilization.take() {
                Some(memory) => Ok(memory.into()),
                None => self.utilization(handle).map(|[_, memory]| memory.into()),
            },
            DeviceMetric::MemoryUsed => self.used_memory(handle),
            DeviceMetric::ThrottleReasons => self.reasons(handle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn records_have_nvmls_layouts() {
        assert_eq!((size_of::<FieldValue>(), size_of::<MemoryV2>()), (40, 40));
        let field = [offset_of!(FieldValue, kind), offset_of!(FieldValue, code), offset_of!(FieldValue, value)];
        assert_eq!(field, [24, 28, 32]);
        assert_eq!([offset_of!(MemoryV2, total), offset_of!(MemoryV2, used)], [8, 32]);
    }

    #[test]
    fn field_is_read_by_its_type() {
        let number =
            |kind, value: u64| FieldValue { kind, value: value.to_ne_bytes(), ..FieldValue::default() }.number();
        let all = u64::MAX;
        let found = [0, 1, 2, 3, 4, 5, 6].map(|kind| number(kind, all));
        assert_eq!(found, [None, Some(u32::MAX.into()), None, None, Some(-1), Some(-1), None]);
        assert_eq!((number(1, 321_000), number(3, 321_000)), (Some(321_000), Some(321_000)));
    }

    #[test]
    fn results_tell_missing_from_failed() {
        let results = [0, 3, 4, 13, 15].map(check);
        use ReadError::{Failed, Forbidden, Unsupported};
        assert_eq!(results, [Ok(()), Err(Unsupported), Err(Forbidden), Err(Unsupported), Err(Failed(15))]);
    }
}

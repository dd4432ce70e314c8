//! Sysman, the part of Level Zero that tells the state of GPUs.
//!
//! A GPU is found by its place on the PCI bus. If each tile is a device of its own, all tiles of a card have the card's values.
//! Power and utilization are differences of counters, so the first sample lacks them. The memory's bandwidth has no known
//! unit on some GPUs, so its utilization is not read.
#![allow(unsafe_code, reason = "the loader of Level Zero is foreign code")]

use super::level_zero::{Code, Handle, LOADER, LevelZero, LevelZeroGpu, Properties, query_list};
use super::{Xpu, search};
use crate::library::{Attempt, Library, functions};
use crate::telemetry::{DeviceMetric, ManagementLibrary, ReadError, TelemetryState};
use crate::{Collector as _, DeviceDescription, Options, Unavailable, Why};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;

type ListParts = unsafe extern "C" fn(Handle, *mut u32, *mut Handle) -> Code;
type Describe = unsafe extern "C" fn(Handle, *mut Properties) -> Code;

functions! {
    /// The functions of Sysman.
    SysmanApi
    required {
        init = c"zesInit": fn(u32) -> Code;
        drivers = c"zesDriverGet": fn(*mut u32, *mut Handle) -> Code;
        devices = c"zesDeviceGet": fn(Handle, *mut u32, *mut Handle) -> Code;
        pci = c"zesDevicePciGetProperties": fn(Handle, *mut Properties) -> Code;
        powers = c"zesDeviceEnumPowerDomains": fn(Handle, *mut u32, *mut Handle) -> Code;
        energy = c"zesPowerGetEnergyCounter": fn(Handle, *mut [u64; 2]) -> Code;
        frequencies = c"zesDeviceEnumFrequencyDomains": fn(Handle, *mut u32, *mut Handle) -> Code;
        frequency = c"zesFrequencyGetProperties": fn(Handle, *mut Properties) -> Code;
        frequency_state = c"zesFrequencyGetState": fn(Handle, *mut Properties) -> Code;
        sensors = c"zesDeviceEnumTemperatureSensors": fn(Handle, *mut u32, *mut Handle) -> Code;
        sensor = c"zesTemperatureGetProperties": fn(Handle, *mut Properties) -> Code;
        temperature = c"zesTemperatureGetState": fn(Handle, *mut f64) -> Code;
        engines = c"zesDeviceEnumEngineGroups": fn(Handle, *mut u32, *mut Handle) -> Code;
        engine = c"zesEngineGetProperties": fn(Handle, *mut Properties) -> Code;
        activity = c"zesEngineGetActivity": fn(Handle, *mut [u64; 2]) -> Code;
        memories = c"zesDeviceEnumMemoryModules": fn(Handle, *mut u32, *mut Handle) -> Code;
        memory = c"zesMemoryGetProperties": fn(Handle, *mut Properties) -> Code;
        memory_state = c"zesMemoryGetState": fn(Handle, *mut Properties) -> Code;
    }
    optional {
        card_power = c"zesDeviceGetCardPowerDomain": fn(Handle, *mut Handle) -> Code;
    }
}

/// Types of structs.
const PCI_PROPERTIES: u32 = 0x2;
const ENGINE_PROPERTIES: u32 = 0x5;
const FREQUENCY_PROPERTIES: u32 = 0x9;
const MEMORY_PROPERTIES: u32 = 0xB;
const TEMPERATURE_PROPERTIES: u32 = 0x14;
const FREQUENCY_STATE: u32 = 0x1B;
const MEMORY_STATE: u32 = 0x1E;

/// Types of parts, the best first.
const GPU_FREQUENCY: [u32; 1] = [0];
const MEMORY_FREQUENCY: [u32; 1] = [1];
/// The highest temperature of all sensors, and of those in the GPU.
const TEMPERATURES: [u32; 2] = [0, 1];
/// All engines, those that compute, and those that render.
const ENGINES: [u32; 3] = [0, 1, 12];
/// The memory on the board, rather than the system's.
const ON_DEVICE: u32 = 1;

/// Offsets of the fields in use.
const KIND: usize = 16;
const MEMORY_LOCATION: usize = 28;
const ACTUAL_MHZ: usize = 48;
const REASONS: usize = 56;
const FREE_BYTES: usize = 24;
const ALL_BYTES: usize = 32;

/// Sysman, initialised.
#[derive(Debug)]
pub(super) struct Sysman {
    library: Library,
    api: SysmanApi,
    gpus: Vec<LevelZeroGpu>,
}

/// A part of a GPU, such as a sensor, which only the library dereferences.
#[derive(Clone, Copy, Debug)]
struct PartHandle(Handle);

// SAFETY: Sysman's functions may be called on any thread, and only they dereference a handle.
unsafe impl Send for PartHandle {}

/// The parts of a GPU, and the earlier readings of counters, each with its time.
#[derive(Debug)]
pub(super) struct SysmanDevice {
    power: Option<PartHandle>,
    temperature: Option<PartHandle>,
    gpu_frequency: Option<PartHandle>,
    memory_frequency: Option<PartHandle>,
    engine: Option<PartHandle>,
    memories: Vec<PartHandle>,
    energy: Option<[u64; 2]>,
    activity: Option<[u64; 2]>,
    /// The reasons for lower clocks, which are read together with the clock.
    reasons: Option<u32>,
}

static STATE: TelemetryState = TelemetryState::new();

/// Turns a result into an error, unless it is success.
fn check(code: Code) -> Result<(), ReadError> {
    match code {
        0 => Ok(()),
        0x7800_0003 | 0x7002_0000 => Err(ReadError::Unsupported),
        0x7001_0000 => Err(ReadError::Forbidden),
        other => Err(ReadError::Failed(other.into())),
    }
}

/// Returns how much a counter and its time have grown since the earlier reading, which this one replaces.
fn growth(earlier: &mut Option<[u64; 2]>, now: [u64; 2]) -> Result<(u64, u64), ReadError> {
    let [value, at] = now;
    // The counter may not have been updated since.
    if earlier.is_some_and(|[_, before]| before == at) {
        return Err(ReadError::Pending);
    }
    let [before, began] = earlier.replace(now).ok_or(ReadError::Pending)?;
    let growth = value.checked_sub(before).zip(at.checked_sub(began));
    // A counter that was reset.
    growth.ok_or(ReadError::Pending)
}

#[expect(clippy::cast_possible_truncation, reason = "a float that does not fit saturates")]
fn round(value: f64) -> i64 {
    value.round() as i64
}

impl Sysman {
    /// Fills a struct of that type.
    fn describe_part(
        structure: u32,
        describe: Describe,
        PartHandle(part): PartHandle,
    ) -> Result<Properties, ReadError> {
        let mut properties = Properties::of(structure);
        // SAFETY: the library returned the handle, and the struct is longer than any version's.
        check(unsafe { describe(part, &raw mut properties) })?;
        Ok(properties)
    }

    fn parts(device: Handle, list: ListParts) -> Vec<PartHandle> {
        let parts = query_list(|count, place| {
            // SAFETY: the library returned the device; the list is null, or as long as the count.
            unsafe { list(device, count, place) }
        });
        parts.into_iter().map(PartHandle).collect()
    }

    /// Returns the first part of the best type.
    fn find_part(parts: &[PartHandle], structure: u32, describe: Describe, best: &[u32]) -> Option<PartHandle> {
        let kind = |part: &PartHandle| Some(Sysman::describe_part(structure, describe, *part).ok()?.u32_at(KIND));
        let kinds: Vec<_> = parts.iter().map(kind).collect();
        best.iter().find_map(|wanted| parts.get(kinds.iter().position(|kind| *kind == Some(*wanted))?).copied())
    }

    fn find_parts(&self, device: Handle) -> SysmanDevice {
        let api = &self.api;
        let card = api.card_power.and_then(|card_power| {
            let mut power = null_mut();
            // SAFETY: the library returned the device, and the place is valid.
            let code = unsafe { card_power(device, &raw mut power) };
            (code == 0 && !power.is_null()).then_some(PartHandle(power))
        });
        let frequencies = Sysman::parts(device, api.frequencies);
        let of_kind = |best| Sysman::find_part(&frequencies, FREQUENCY_PROPERTIES, api.frequency, best);
        let is_on_device = |memory: &PartHandle| {
            let properties = Sysman::describe_part(MEMORY_PROPERTIES, api.memory, *memory);
            properties.is_ok_and(|properties| properties.u32_at(MEMORY_LOCATION) == ON_DEVICE)
        };
        let mut memories = Sysman::parts(device, api.memories);
        memories.retain(is_on_device);
        SysmanDevice {
            power: card.or_else(|| Sysman::parts(device, api.powers).first().copied()),
            temperature: Sysman::find_part(
                &Sysman::parts(device, api.sensors),
                TEMPERATURE_PROPERTIES,
                api.sensor,
                &TEMPERATURES,
            ),
            gpu_frequency: of_kind(&GPU_FREQUENCY),
            memory_frequency: of_kind(&MEMORY_FREQUENCY),
            engine: Sysman::find_part(&Sysman::parts(device, api.engines), ENGINE_PROPERTIES, api.engine, &ENGINES),
            memories,
            energy: None,
            activity: None,
            reasons: None,
        }
    }

    /// Returns milliwatts.
    fn power(&self, device: &mut SysmanDevice) -> Result<i64, ReadError> {
        let PartHandle(power) = device.power.ok_or(ReadError::Unsupported)?;
        let mut counter = [0; 2];
        // SAFETY: the library returned the handle, and the place has two numbers.
        check(unsafe { (self.api.energy)(power, &raw mut counter) })?;
        let (microjoules, microseconds) = growth(&mut device.energy, counter)?;
        Ok(i64::try_from(microjoules.saturating_mul(1000) / microseconds.max(1)).unwrap_or(i64::MAX))
    }

    /// Returns percents.
    fn utilization(&self, device: &mut SysmanDevice) -> Result<i64, ReadError> {
        let PartHandle(engine) = device.engine.ok_or(ReadError::Unsupported)?;
        let mut counter = [0; 2];
        // SAFETY: the library returned the handle, and the place has two numbers.
        check(unsafe { (self.api.activity)(engine, &raw mut counter) })?;
        let (active, all) = growth(&mut device.activity, counter)?;
        Ok(i64::try_from(active.saturating_mul(100) / all.max(1)).unwrap_or(100).min(100))
    }

    /// Returns thousandths of a degree.
    fn temperature(&self, device: &SysmanDevice) -> Result<i64, ReadError> {
        let PartHandle(sensor) = device.temperature.ok_or(ReadError::Unsupported)?;
        let mut celsius = 0.0;
        // SAFETY: the library returned the handle, and the place is valid.
        check(unsafe { (self.api.temperature)(sensor, &raw mut celsius) })?;
        Ok(round(celsius * 1000.0))
    }

    fn frequency_state(&self, frequency: Option<PartHandle>) -> Result<Properties, ReadError> {
        let frequency = frequency.ok_or(ReadError::Unsupported)?;
        Sysman::describe_part(FREQUENCY_STATE, self.api.frequency_state, frequency)
    }

    /// Returns MHz.
    fn clock(state: &Properties) -> Result<i64, ReadError> {
        let mhz = f64::from_bits(state.u64_at(ACTUAL_MHZ));
        // A negative value means that it is not known now.
        if mhz >= 0.0 { Ok(round(mhz)) } else { Err(ReadError::Pending) }
    }

    /// Returns bytes.
    fn used_memory(&self, device: &SysmanDevice) -> Result<i64, ReadError> {
        if device.memories.is_empty() {
            return Err(ReadError::Unsupported);
        }
        let mut used = 0_u64;
        for memory in &device.memories {
            let state = Sysman::describe_part(MEMORY_STATE, self.api.memory_state, *memory)?;
            used = used.saturating_add(state.u64_at(ALL_BYTES).saturating_sub(state.u64_at(FREE_BYTES)));
        }
        Ok(i64::try_from(used).unwrap_or(i64::MAX))
    }
}

impl ManagementLibrary for Sysman {
    const NAME: &'static str = "sysman";
    const LIBRARY: &'static str = "Level Zero Sysman";
    const REASONS: &'static [(u64, &'static str)] = &[
        (0x1, "average power cap"),
        (0x2, "burst power cap"),
        (0x4, "current limit"),
        (0x8, "thermal limit"),
        (0x10, "power supply"),
        (0x20, "frequency range set by software"),
        (0x40, "frequency range of the hardware"),
        (0x80, "voltage"),
        (0x100, "thermal conditions"),
        (0x200, "power constraints"),
    ];

    type Device = SysmanDevice;
    type Context = Arc<Xpu>;

    fn state() -> &'static TelemetryState {
        &STATE
    }

    fn open(xpu: &Arc<Xpu>, _options: &Options, attempts: &mut Vec<Attempt>) -> Result<Sysman, Unavailable> {
        search::check_for_gpu(attempts)?;
        // PTI has to be loaded before the driver starts. Without it, telemetry works all the same.
        let _ = xpu.probe();
        let level_zero = LevelZero::open(attempts)?;
        let gpus = level_zero.list_gpus(attempts)?;
        let missing = |message: String| {
            Unavailable::new(Why::Incompatible, message, "install the Level Zero loader 1.16 or newer")
        };
        let library = LevelZero::open_loader(attempts)
            .ok_or_else(|| missing(format!("there is no Level Zero loader ({LOADER})")))?;
        let api =
            SysmanApi::new(library).map_err(|name| missing(format!("{LOADER} lacks {}", name.to_string_lossy())))?;
        // SAFETY: it takes flags, of which there are none, and may be called several times.
        let code = unsafe { (api.init)(0) };
        attempts.push(Attempt::new("zesInit", if code == 0 { "done".to_owned() } else { format!("0x{code:x}") }));
        if code == 0 {
            return Ok(Sysman { library, api, gpus });
        }
        let why = if check(code) == Err(ReadError::Forbidden) { Why::Forbidden } else { Why::Failed };
        let advice = "see that you may read /sys/class/drm, and install Intel's compute runtime 23.22 or newer";
        Err(Unavailable::new(why, format!("Level Zero Sysman failed: zesInit returned 0x{code:x}"), advice))
    }

    fn describe(&self) -> (Option<PathBuf>, Option<String>) {
        (self.library.path_by_symbol(c"zesInit"), None)
    }

    fn find_devices(&self) -> Vec<(DeviceDescription, Result<SysmanDevice, String>)> {
        let drivers = query_list(|count, list| {
            // SAFETY: the list is null, or as long as the count.
            unsafe { (self.api.drivers)(count, list) }
        });
        let devices: Vec<_> = drivers.iter().flat_map(|driver| Sysman::parts(*driver, self.api.devices)).collect();
        let address = |device: &PartHandle| {
            let properties = Sysman::describe_part(PCI_PROPERTIES, self.api.pci, *device).ok()?;
            Some(properties.pci_address())
        };
        let addresses: Vec<_> = devices.iter().map(address).collect();
        let find = |(number, gpu): (usize, &LevelZeroGpu)| {
            let description = DeviceDescription::new(i32::try_from(number).unwrap_or(i32::MAX), gpu.name.as_str());
            let at = gpu.pci.and_then(|pci| addresses.iter().position(|address| *address == Some(pci)));
            let device = at.and_then(|at| devices.get(at)).map(|PartHandle(device)| self.find_parts(*device));
            let unknown = || match gpu.pci {
                Some([domain, bus, device, function]) => {
                    format!("it knows no GPU at {domain:04x}:{bus:02x}:{device:02x}.{function}")
                }
                None => "its place on the PCI bus is unknown".to_owned(),
            };
            (description, device.ok_or_else(unknown))
        };
        self.gpus.iter().enumerate().map(find).collect()
    }

    fn read(&self, device: &mut SysmanDevice, metric: DeviceMetric) -> Result<i64, ReadError> {
        match metric {
            DeviceMetric::Power => self.power(device),
            DeviceMetric::Temperature => self.temperature(device),
            DeviceMetric::SmClock => {
                let state = self.frequency_state(device.gpu_frequency)?;
                device.reasons = Some(state.u32_at(REASONS));
                Sysman::clock(&state)
            }
            DeviceMetric::MemoryClock => Sysman::clock(&self.frequency_state(device.memory_frequency)?),
            DeviceMetric::GpuUtilization => self.utilization(device),
            DeviceMetric::MemoryUtilization => Err(ReadError::Unsupported),
            DeviceMetric::MemoryUsed => self.used_memory(device),
            DeviceMetric::ThrottleReasons => match device.reasons.take() {
                Some(reasons) => Ok(reasons.into()),
                None => self.frequency_state(device.gpu_frequency).map(|state| state.u32_at(REASONS).into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_need_two_readings_of_different_times() {
        let mut earlier = None;
        let readings = [[100, 10], [100, 10], [400, 20], [300, 30], [350, 35]].map(|now| growth(&mut earlier, now));
        let pending = Err(ReadError::Pending);
        assert_eq!(readings, [pending, pending, Ok((300, 10)), pending, Ok((50, 5))]);
    }
}

//! ROCm SMI, AMD's management library of ROCm 5 to 7, which tells the state of GPUs.
//!
//! It numbers GPUs differently from HIP and rocprofiler-sdk, so GPUs are found by their places on the PCI bus. Only
//! functions whose types have not changed are called, and one struct whose change is known. The reasons for lower clocks are
//! in a struct that differs in each version, so they are not read.
#![allow(unsafe_code, reason = "the library is foreign code")]

use super::search;
use super::{PCI_PLACE, Rocm};
use crate::library::text::read_text;
use crate::library::{Attempt, Library, functions};
use crate::telemetry::{DeviceMetric, ManagementLibrary, ReadError, TelemetryState, read_into};
use crate::{Collector as _, DeviceDescription, Options, Unavailable, Why};
use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::Arc;

type Code = u32;

functions! {
    /// The functions of ROCm SMI. The first argument is the index of a GPU.
    SmiApi
    required {
        init = c"rsmi_init": fn(u64) -> Code;
        count = c"rsmi_num_monitor_devices": fn(*mut u32) -> Code;
        pci_id = c"rsmi_dev_pci_id_get": fn(u32, *mut u64) -> Code;
        name = c"rsmi_dev_name_get": fn(u32, *mut c_char, usize) -> Code;
        temperature = c"rsmi_dev_temp_metric_get": fn(u32, u32, u32, *mut i64) -> Code;
        clock = c"rsmi_dev_gpu_clk_freq_get": fn(u32, u32, *mut Frequencies) -> Code;
        busy = c"rsmi_dev_busy_percent_get": fn(u32, *mut u32) -> Code;
        used = c"rsmi_dev_memory_usage_get": fn(u32, u32, *mut u64) -> Code;
    }
    optional {
        version = c"rsmi_version_get": fn(*mut SmiVersion) -> Code;
        power = c"rsmi_dev_power_get": fn(u32, *mut u64, *mut u32) -> Code;
        average_power = c"rsmi_dev_power_ave_get": fn(u32, u32, *mut u64) -> Code;
        memory_busy = c"rsmi_dev_memory_busy_percent_get": fn(u32, *mut u32) -> Code;
    }
}

/// `rsmi_version_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SmiVersion {
    numbers: [u32; 3],
    /// A text, which is not read.
    build: usize,
}

/// `rsmi_frequencies_t`, with more bytes than any version's.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct Frequencies([u8; 512]);

/// The names of the library.
const NAMES: [&str; 5] =
    ["librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so.1", "librocm_smi64.so"];
/// The most GPUs; a larger count is corrupt.
const MOST: u32 = 1024;

/// The sensors of temperature: on the edge of the chip, which some lack, and the hottest one.
const SENSORS: [u32; 2] = [0, 1];
const CURRENT: u32 = 0;
/// Clocks by the library's numbers.
const SYSTEM_CLOCK: u32 = 0;
const MEMORY_CLOCK: u32 = 4;
/// The GPU's own memory.
const VRAM: u32 = 0;

/// ROCm SMI, opened and initialised.
#[derive(Debug)]
pub(super) struct RocmSmi {
    library: Library,
    api: SmiApi,
    /// The collector that numbers the devices.
    rocm: Arc<Rocm>,
}

/// A GPU.
#[derive(Debug)]
pub(super) struct SmiDevice {
    index: u32,
}

static STATE: TelemetryState = TelemetryState::new();

impl Frequencies {
    /// Returns the current frequency in Hz. Since ROCm 6 a flag precedes the number of frequencies.
    fn current(&self, has_flag: bool) -> Option<u64> {
        /// The most frequencies of any version.
        const MOST: u32 = 33;
        let [number, current, first] = if has_flag { [4, 8, 16] } else { [0, 4, 8] };
        let u32_at = |at: usize| self.0.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let (number, current) = (u32_at(number)?, u32_at(current)?);
        let at = usize::try_from(current).ok().filter(|_| current < number && number <= MOST)?;
        self.0.get(first + 8 * at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }
}

/// Turns a result into an error, unless it is success.
fn check(code: Code) -> Result<(), ReadError> {
    match code {
        0 => Ok(()),
        2 | 9 => Err(ReadError::Unsupported),
        4 => Err(ReadError::Forbidden),
        other => Err(ReadError::Failed(other.into())),
    }
}

fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl RocmSmi {
    /// Returns the places of the GPUs, by index.
    fn places(&self) -> Vec<Option<u64>> {
        // SAFETY: the place is valid.
        let count = read_into(check, |place| unsafe { (self.api.count)(place) }).unwrap_or(0).min(MOST);
        // SAFETY: the index is below the count, and the place is valid.
        (0..count).map(|at| read_into(check, |place| unsafe { (self.api.pci_id)(at, place) }).ok()).collect()
    }

    fn name(&self, index: u32) -> String {
        // SAFETY: the function takes a device, a buffer and its length.
        let name = read_text(|text, length| unsafe { (self.api.name)(index, text, length.unsigned_abs() as usize) });
        name.unwrap_or_else(|| "AMD GPU".to_owned())
    }

    fn power(&self, index: u32) -> Result<i64, ReadError> {
        let microwatts = if let Some(power) = self.api.power {
            let mut kind = 0;
            // SAFETY: both places are valid.
            read_into(check, |place| unsafe { power(index, place, &raw mut kind) })
        } else {
            let power = self.api.average_power.ok_or(ReadError::Unsupported)?;
            // SAFETY: the place is valid.
            read_into(check, |place| unsafe { power(index, 0, place) })
        };
        microwatts.map(|microwatts: u64| to_i64(microwatts / 1000))
    }

    fn temperature(&self, index: u32) -> Result<i64, ReadError> {
        let [edge, hottest] = SENSORS.map(|sensor| {
            // SAFETY: the place is valid.
            move || read_into(check, |place| unsafe { (self.api.temperature)(index, sensor, CURRENT, place) })
        });
        edge().or_else(|_| hottest())
    }

    fn clock(&self, index: u32, clock: u32) -> Result<i64, ReadError> {
        let mut frequencies = Frequencies([0; 512]);
        // SAFETY: the place is longer than any version's struct.
        check(unsafe { (self.api.clock)(index, clock, &raw mut frequencies) })?;
        // The function and the flag came with the same version.
        let hz = frequencies.current(self.api.power.is_some()).ok_or(ReadError::Unsupported)?;
        Ok(to_i64(hz / 1_000_000))
    }
}

/// Returns the index of a GPU by its place: with its partition, or else that of the whole GPU.
fn find_place(places: &[Option<u64>], wanted: u64) -> Option<u32> {
    /// All but the partition.
    const WHOLE: u64 = !(0xF << 28);
    let find = |mask: u64| places.iter().position(|place| place.is_some_and(|place| place & mask == wanted & mask));
    find(u64::MAX).or_else(|| find(WHOLE)).and_then(|at| u32::try_from(at).ok())
}

impl ManagementLibrary for RocmSmi {
    const NAME: &'static str = "rocmsmi";
    const LIBRARY: &'static str = "librocm_smi64";
    const REASONS: &'static [(u64, &'static str)] = &[];

    type Device = SmiDevice;
    type Context = Arc<Rocm>;

    fn state() -> &'static TelemetryState {
        &STATE
    }

    fn open(rocm: &Arc<Rocm>, options: &Options, attempts: &mut Vec<Attempt>) -> Result<RocmSmi, Unavailable> {
        search::check_for_device()?;
        let library = search::find_library(&NAMES, None, options, attempts).ok_or_else(|| {
            let advice = "install rocm-smi-lib, or set ROCM_PATH";
            Unavailable::new(Why::LibraryNotFound, "there is no librocm_smi64", advice)
        })?;
        let api = SmiApi::new(library).map_err(|name| {
            let message = format!("librocm_smi64 lacks {}", name.to_string_lossy());
            Unavailable::new(Why::Incompatible, message, "use that of ROCm 5 or newer")
        })?;
        // SAFETY: it takes flags, and counts how often it is called.
        let code = unsafe { (api.init)(0) };
        attempts.push(Attempt::new("rsmi_init", if code == 0 { "done".to_owned() } else { code.to_string() }));
        match check(code) {
            Ok(()) => Ok(RocmSmi { library, api, rocm: rocm.clone() }),
            Err(error) => {
                let why = if error == ReadError::Forbidden { Why::Forbidden } else { Why::Failed };
                let message = format!("librocm_smi64 failed: rsmi_init returned {code}");
                Err(Unavailable::new(why, message, "run `rocm-smi`, and check that /sys/class/drm is readable"))
            }
        }
    }

    fn describe(&self) -> (Option<PathBuf>, Option<String>) {
        // SAFETY: the place is valid.
        let version =
            self.api.version.and_then(|get| read_into(check, |place: *mut SmiVersion| unsafe { get(place) }).ok());
        let version = version.map(|version| version.numbers.map(|number| number.to_string()).join("."));
        (self.library.path_by_symbol(c"rsmi_init"), version)
    }

    fn find_devices(&self) -> Vec<(DeviceDescription, Result<SmiDevice, String>)> {
        let (places, known) = (self.places(), self.rocm.devices());
        if known.is_empty() {
            // Nothing else numbers them.
            let number = |index: u32| Some((DeviceDescription::new(index.try_into().ok()?, self.name(index)), index));
            let all = (0..u32::try_from(places.len()).unwrap_or(0)).filter_map(number);
            return all.map(|(description, index)| (description, Ok(SmiDevice { index }))).collect();
        }
        let find = |description: DeviceDescription| {
            let place = description.property(PCI_PLACE).map(i64::cast_unsigned);
            let index = place.and_then(|place| find_place(&places, place));
            let unknown = || match place {
                Some(place) => format!("it knows no GPU at {:04x}:{:02x}", place >> 32, place >> 8 & 0xFF),
                None => "its place on the PCI bus is unknown".to_owned(),
            };
            (description, index.map(|index| SmiDevice { index }).ok_or_else(unknown))
        };
        known.into_iter().map(find).collect()
    }

    fn read(&self, device: &mut SmiDevice, metric: DeviceMetric) -> Result<i64, ReadError> {
        let index = device.index;
        match metric {
            DeviceMetric::Power => self.power(index),
            DeviceMetric::Temperature => self.temperature(index),
            DeviceMetric::SmClock => self.clock(index, SYSTEM_CLOCK),
            DeviceMetric::MemoryClock => self.clock(index, MEMORY_CLOCK),
            DeviceMetric::GpuUtilization => {
                // SAFETY: the place is valid.
                read_into(check, |place| unsafe { (self.api.busy)(index, place) }).map(i64::from)
            }
            DeviceMetric::MemoryUtilization => {
                let busy = self.api.memory_busy.ok_or(ReadError::Unsupported)?;
                // SAFETY: the place is valid.
                read_into(check, |place| unsafe { busy(index, place) }).map(i64::from)
            }
            DeviceMetric::MemoryUsed => {
                // SAFETY: the place is valid.
                read_into(check, |place| unsafe { (self.api.used)(index, VRAM, place) }).map(to_i64)
            }
            DeviceMetric::ThrottleReasons => Err(ReadError::Unsupported),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(words: &[(usize, u32)]) -> Frequencies {
        let mut bytes = [0; 512];
        words.iter().for_each(|(at, word)| bytes[*at..at + 4].copy_from_slice(&word.to_ne_bytes()));
        Frequencies(bytes)
    }

    #[test]
    fn clock_is_read_in_both_layouts() {
        let since_6 = frequencies(&[(4, 3), (8, 2), (32, 2_100_000_000)]);
        let before = frequencies(&[(0, 3), (4, 2), (24, 1_700_000_000)]);
        assert_eq!((since_6.current(true), before.current(false)), (Some(2_100_000_000), Some(1_700_000_000)));
        for lie in [[(4, 3), (8, 3)], [(4, 34), (8, 33)], [(4, u32::MAX), (8, u32::MAX - 1)]] {
            assert_eq!(frequencies(&lie).current(true), None, "{lie:?}");
        }
    }

    #[test]
    fn partition_is_found_before_the_whole_gpu() {
        let places = [Some(0x1_0000_2300), None, Some(0x1_1000_2300), Some(0x2300)];
        let found =
            [0x1_0000_2300, 0x1_1000_2300, 0x1_2000_2300, 0x2300, 0x2400].map(|place| find_place(&places, place));
        assert_eq!(found, [Some(0), Some(2), Some(0), Some(3), None]);
    }
}

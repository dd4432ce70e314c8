//! The library's agents: processors and devices.

use super::super::PCI_PLACE;
use super::records::record_size;
use crate::DeviceDescription;
use kineto_base::sorting::sort_few_by_key;
use std::borrow::Cow;

/// The type of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    /// The host.
    Host,
    /// A device, with its number among all devices.
    Gpu(i32),
}

/// All agents, by their handles.
#[derive(Debug, Default)]
pub(super) struct Agents {
    all: Vec<(u64, Agent)>,
    pub(super) devices: Vec<DeviceDescription>,
}

/// The most agents; no machine has more.
const MOST: usize = 1024;

/// The least size of an agent's record: the end of the last field in use.
const LEAST: usize = 292;

/// Types of agents.
const CPU: u32 = 1;
const GPU: u32 = 2;

impl Agents {
    /// Returns whether the machine has processors only.
    pub(super) fn lacks_gpu(&self) -> bool {
        self.devices.is_empty() && !self.all.is_empty()
    }

    /// Adds an agent from its record; `text` returns the C string at an address. Skips invalid records.
    pub(super) fn add(&mut self, record: &[u8], text: impl Fn(u64) -> Option<String>) {
        let Some(record) = record_size(record).filter(|size| *size >= LEAST).and_then(|size| record.get(..size)) else {
            return;
        };
        // If a handle occurs twice, the first agent counts.
        if self.all.len() >= MOST || self.get(u64_at(record, 8)).is_some() {
            return;
        }
        match u32_at(record, 16) {
            CPU => self.all.push((u64_at(record, 8), Agent::Host)),
            GPU => {
                let number = u32_at(record, 288).cast_signed();
                self.all.push((u64_at(record, 8), Agent::Gpu(number)));
                let name =
                    [264, 248].into_iter().find_map(|at| text(u64_at(record, at)).filter(|name| !name.is_empty()));
                let mut device = DeviceDescription::new(number, name.unwrap_or_else(|| "AMD GPU".to_owned()));
                device.properties = properties(record);
                let place = u64::from(u32_at(record, 112)) << 32 | u64::from(u32_at(record, 108));
                // There is a bridge at 0.
                device.attributes.extend((place != 0).then(|| (PCI_PLACE.into(), place.cast_signed())));
                self.devices.push(device);
            }
            _ => {}
        }
        sort_few_by_key(&mut self.devices, |device| device.id);
    }

    /// Returns the number of a device, `None` for other agents.
    pub(super) fn device_number(&self, handle: u64) -> Option<i32> {
        match self.get(handle) {
            Some(Agent::Gpu(number)) => Some(number),
            _ => None,
        }
    }

    pub(super) fn get(&self, handle: u64) -> Option<Agent> {
        self.all.iter().find(|(known, _)| *known == handle).map(|(_, agent)| *agent)
    }
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    record.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    record.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns the properties of a device, under libkineto's keys.
fn properties(record: &[u8]) -> Vec<(Cow<'static, str>, i64)> {
    let number = |at| i64::from(u32_at(record, at));
    let (wave, compute, local) = (number(64), number(100), number(52) * 1024);
    let all = [
        ("totalGlobalMem", i64::try_from(u64_at(record, 176)).unwrap_or(0)),
        ("computeMajor", compute / 10_000 % 100),
        ("computeMinor", compute / 100 % 100),
        ("maxThreadsPerBlock", number(168)),
        ("maxThreadsPerMultiprocessor", number(160).saturating_mul(wave)),
        ("warpSize", wave),
        ("sharedMemPerBlock", local),
        ("numSms", number(72)),
        ("maxSharedMemoryPerMultiProcessor", local),
    ];
    // The minor version may be 0; for other values 0 means that it is not known.
    let known = all.into_iter().filter(|(key, value)| *value != 0 || *key == "computeMinor" && compute != 0);
    known.map(|(key, value)| (key.into(), value)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes an agent's record of that type, handle and logical number; its name is at address 0xA0.
    pub(crate) fn agent(kind: u32, handle: u64, number: u32) -> Vec<u8> {
        let mut record = vec![0; 312];
        let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &312_u64.to_le_bytes());
        put(8, &handle.to_le_bytes());
        put(16, &kind.to_le_bytes());
        put(264, &0xA0_u64.to_le_bytes());
        put(288, &number.to_le_bytes());
        let values =
            [(52, 64_u32), (64, 64), (72, 304), (100, 90_402), (108, 0x2300), (112, 1), (160, 32), (168, 1024)];
        for (at, value) in values {
            put(at, &value.to_le_bytes());
        }
        record
    }

    #[test]
    fn devices_are_numbered_and_have_properties() {
        let mut agents = Agents::default();
        let text = |address| (address == 0xA0).then(|| "AMD Instinct MI300X".to_owned());
        for (kind, handle, number) in [(CPU, 1, 0), (GPU, 3, 1), (GPU, 2, 0), (7, 9, 0)] {
            agents.add(&agent(kind, handle, number), text);
        }
        assert_eq!([1, 2, 3, 9].map(|handle| agents.device_number(handle)), [None, Some(0), Some(1), None]);
        assert_eq!((agents.get(1), agents.get(9)), (Some(Agent::Host), None));
        assert!(!agents.lacks_gpu() && !Agents::default().lacks_gpu(), "nothing is known");
        let names: Vec<_> = agents.devices.iter().map(|device| (device.id, device.name.as_str())).collect();
        assert_eq!(names, [(0, "AMD Instinct MI300X"), (1, "AMD Instinct MI300X")]);
        let device = &agents.devices[0];
        let known = ["computeMajor", "computeMinor", "maxThreadsPerMultiprocessor", "warpSize", "numSms"];
        assert_eq!(known.map(|key| device.property(key)), [9, 4, 2048, 64, 304].map(Some));
        assert_eq!(device.property(PCI_PLACE), Some(0x1_0000_2300));
        assert_eq!((device.property("sharedMemPerBlock"), device.property("totalGlobalMem")), (Some(65_536), None));
    }

    #[test]
    fn truncated_record_is_no_agent() {
        let mut agents = Agents::default();
        let whole = agent(GPU, 1, 0);
        agents.add(&agent(CPU, 1, 0), |_| None);
        agents.add(&whole, |_| None);
        agents.add(&whole[..300], |_| None);
        agents.add(&[], |_| None);
        assert!(agents.lacks_gpu(), "the handle is another's");
        (0..2 * MOST as u64).for_each(|handle| agents.add(&agent(CPU, handle, 0), |_| None));
        assert_eq!(agents.all.len(), MOST);
    }
}

//! What Level Zero says of the machine, in the layouts of its header.

use crate::shared::devices::{DEVICE_ID, bus, uuid};
use crate::shared::options::Options;
use sim_core::record::Record;

/// Bytes that each struct begins with: its type and a pointer to the next, which are the caller's.
pub(crate) const HEAD: usize = 16;

/// The bytes of a text for a place of 256 bytes.
fn text(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(255)]
}

/// `ze_driver_properties_t`
pub(crate) fn driver() -> Record {
    Record::zeros(40).put(16, &[0x51; 16]).u32(32, 0x0103_7a5e)
}

/// `ze_device_properties_t`
pub(crate) fn device(options: &Options, index: u32) -> Record {
    let sheet = Record::zeros(368).u32(16, options.device_type).u32(20, options.vendor).u32(24, DEVICE_ID);
    // Clock, largest allocation, contexts, priorities.
    let sheet = sheet.u32(36, 1_600).u64(40, 48 << 30).u32(48, 65_536).u32(52, 0);
    // Threads of a unit, its width, units of a subslice, subslices of a slice, slices.
    let sheet = sheet.u32(56, 8).u32(60, 16).u32(64, 8).u32(68, 64).u32(72, 1);
    let sheet = sheet.u64(80, 12_500_000).u32(88, 36).u32(92, 32);
    sheet.put(96, &uuid(options, index)).put(112, text(options.name.as_str()))
}

/// `ze_pci_ext_properties_t`, and the common part of `zes_pci_properties_t`.
pub(crate) fn pci(index: u32) -> Record {
    Record::zeros(48).u32(20, bus(index).into())
}

/// `ze_device_compute_properties_t`
pub(crate) fn compute() -> Record {
    let sheet = Record::zeros(88).u32(16, 1_024).u32(20, 1_024).u32(24, 1_024).u32(28, 1_024);
    let sheet = sheet.u32(32, u32::MAX).u32(36, u32::MAX).u32(40, u32::MAX).u32(44, 131_072);
    sheet.u32(48, 2).u32(52, 16).u32(56, 32)
}

/// `ze_device_memory_properties_t`
pub(crate) fn memory() -> Record {
    Record::zeros(296).u32(20, 3_200).u32(24, 1_024).u64(32, 64 << 30).put(40, text("HBM"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim_core::options::Text;

    /// `ze_device_properties_t` as the header has it.
    #[repr(C)]
    #[allow(dead_code, reason = "its layout is what counts")]
    struct Device {
        stype: u32,
        next: *const u8,
        kind: u32,
        vendor: u32,
        device: u32,
        flags: u32,
        subdevice: u32,
        clock: u32,
        largest: u64,
        contexts: u32,
        priority: u32,
        units: [u32; 5],
        timer: u64,
        bits: [u32; 2],
        uuid: [u8; 16],
        name: [u8; 256],
    }

    #[test]
    fn a_device_has_the_layout_of_the_header() {
        let sheet = device(&Options { name: Text::new("GPU"), ..Options::default() }, 1);
        assert_eq!(sheet.bytes().len(), size_of::<Device>());
        let at = |offset: usize| u32::from_le_bytes(sheet.bytes()[offset..offset + 4].try_into().unwrap());
        assert_eq!(at(std::mem::offset_of!(Device, vendor)), 0x8086);
        assert_eq!(at(std::mem::offset_of!(Device, kind)), 1);
        assert_eq!(at(std::mem::offset_of!(Device, clock)), 1_600);
        assert_eq!(at(std::mem::offset_of!(Device, timer)), 12_500_000);
        let name = std::mem::offset_of!(Device, name);
        assert_eq!(&sheet.bytes()[name..name + 4], b"GPU\0");
        let own = std::mem::offset_of!(Device, uuid);
        assert_eq!(sheet.bytes()[own..name], uuid(&Options::default(), 1));
    }
}

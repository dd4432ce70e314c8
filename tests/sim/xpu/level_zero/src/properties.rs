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

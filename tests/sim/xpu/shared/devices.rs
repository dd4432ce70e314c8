//! The devices of the simulated machine, as both libraries name them.

use super::options::Options;

/// The PCI id of a Data Center GPU Max.
pub(crate) const DEVICE_ID: u32 = 0x0bd5;

const FIRST: usize = 0x5e00_0000_2000;
const NEXT: usize = 0x100;

/// The handle of the device of that index.
pub(crate) fn handle(index: u32) -> usize {
    FIRST + index as usize * NEXT
}

/// The index of a device.
pub(crate) fn index(options: &Options, handle: usize) -> Option<u32> {
    let offset = handle.checked_sub(FIRST).filter(|offset| offset.is_multiple_of(NEXT))?;
    u32::try_from(offset / NEXT).ok().filter(|index| *index < options.devices)
}

/// The UUID of a device.
pub(crate) fn uuid(options: &Options, index: u32) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&options.vendor.to_le_bytes());
    uuid[4..6].copy_from_slice(&DEVICE_ID.to_le_bytes()[..2]);
    uuid[6..10].copy_from_slice(&index.to_le_bytes());
    uuid[15] = 0x51;
    uuid
}

/// The number of a device's bus.
pub(crate) fn bus(index: u32) -> u8 {
    0x3a + index as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_and_uuids_tell_devices_apart() {
        let options = Options { devices: 2, ..Options::default() };
        assert_eq!([0, 1, 2].map(|device| index(&options, handle(device))), [Some(0), Some(1), None]);
        assert_eq!(index(&options, handle(0) + 1), None);
        assert_ne!(uuid(&options, 0), uuid(&options, 1));
    }
}

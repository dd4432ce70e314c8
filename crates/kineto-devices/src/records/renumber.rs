//! Devices of several vendors, each of which numbers its own from 0.

use super::collected::Collected;
use kineto_base::sorted::SortedMap;

/// Gives each device a unique number. Devices of two collectors with the same number and name are the same device. If
/// the names differ, the later device gets the next free number, and its label includes its name.
pub(crate) fn renumber_devices<'c>(all: impl Iterator<Item = &'c mut Collected>) {
    let mut all: Vec<_> = all.collect();
    let highest = all.iter().flat_map(|records| &records.devices).map(|device| device.id).max();
    let mut free = highest.unwrap_or(-1).saturating_add(1)..;
    let mut known: SortedMap<i32, Vec<(String, i32)>> = SortedMap::new();
    for records in &mut all {
        for device in &mut records.devices {
            let of_number = known.get_or_insert_with(device.id, Default::default);
            let same = of_number.iter().find(|(name, _)| *name == device.name).map(|(_, shown)| *shown);
            let another = || if of_number.is_empty() { None } else { free.next() };
            let shown = same.or_else(another).unwrap_or(device.id);
            if same.is_none() {
                of_number.push((device.name.clone(), shown));
            }
            if shown != device.id {
                records.renumbered.push((device.id, shown));
                device.label = format!("{} ({})", device.label, device.name);
                device.id = shown;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceDescription;

    fn of(devices: &[(i32, &str)]) -> Collected {
        let mut records = Collected::empty();
        records.devices = devices.iter().map(|(id, name)| DeviceDescription::new(*id, *name)).collect();
        records.contexts = vec![(7, 0)];
        records
    }

    #[test]
    fn devices_of_two_vendors_get_unique_numbers() {
        let mut all = [
            of(&[(0, "H200"), (1, "H200")]),
            of(&[(0, "H200")]),
            of(&[(0, "Arc"), (1, "Arc")]),
            of(&[]),
            of(&[(17, "MTIA")]),
            of(&[(1, "Arc")]),
        ];
        renumber_devices(all.iter_mut());
        let ids: Vec<Vec<i32>> =
            all.iter().map(|records| records.devices.iter().map(|device| device.id).collect()).collect();
        assert_eq!(ids, [vec![0, 1], vec![0], vec![18, 19], vec![], vec![17], vec![19]]);
        assert_eq!((all[0].device_of(7), all[2].device_of(7), all[2].device_of(8)), (0, 18, -1));
        assert_eq!((&*all[0].devices[1].label, &*all[2].devices[1].label), ("GPU 1", "GPU 1 (Arc)"));
    }
}

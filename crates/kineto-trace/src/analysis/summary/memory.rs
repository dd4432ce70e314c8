//! Figures of memory: what allocators held, and how often they were called.

use crate::activity::DeviceType;
use crate::analysis::events::values::as_signed;
use crate::analysis::events::{Event, Events, MEMORY_EVENT};
use std::collections::BTreeMap;

/// The memory of one device or of the host, from the `[memory]` events of its allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFigures {
    /// torch's number of the type of device: 0 is the CPU, 1 CUDA.
    pub device_type: i64,
    /// The number of the device; -1 for the host.
    pub device: i64,
    /// The largest total of allocated bytes; `None` if the events have no totals.
    pub peak_allocated: Option<u64>,
    /// The largest total of bytes that the allocator had reserved.
    pub peak_reserved: Option<u64>,
    /// Allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// The sum of all allocations, in bytes.
    pub allocated_bytes: u64,
    /// Allocated less freed bytes: how much more the program holds at the end than at the start.
    pub growth: i64,
}

impl MemoryFigures {
    /// Returns the name of the memory, such as "CPU" or "CUDA 1".
    pub(super) fn title(&self) -> String {
        memory_title(self.device_type, self.device)
    }
}

/// Returns the name of the memory of a device or the host.
pub(super) fn memory_title(device_type: i64, device: i64) -> String {
    let name = DeviceType::ALL.iter().copied().find(|kind| i64::from(kind.number()) == device_type);
    let name = name.map_or_else(|| format!("device type {device_type}"), |kind| kind.as_str().to_uppercase());
    if device < 0 { name } else { format!("{name} {device}") }
}

/// Returns the figures of each device, in order of type and number.
pub(super) fn memory_figures(events: &Events) -> Vec<MemoryFigures> {
    let mut devices: BTreeMap<(i64, i64), MemoryFigures> = BTreeMap::new();
    for ((device_type, device), event) in memory_events(events) {
        let row = devices.entry((device_type, device)).or_insert_with(|| MemoryFigures {
            device_type,
            device,
            ..MemoryFigures::default()
        });
        row.peak_allocated = row.peak_allocated.max(event.total_allocated());
        row.peak_reserved = row.peak_reserved.max(event.total_reserved());
        let bytes = event.bytes().unwrap_or(0);
        row.growth = row.growth.saturating_add(bytes);
        if bytes < 0 {
            row.frees += 1;
        } else {
            row.allocations += 1;
            row.allocated_bytes = row.allocated_bytes.saturating_add(bytes.unsigned_abs());
        }
    }
    devices.into_values().collect()
}

/// Returns the events about allocated or freed memory, with the type and the number of their device; the host has a negative number.
pub(in crate::analysis) fn memory_events(events: &Events) -> impl Iterator<Item = ((i64, i64), Event<'_>)> {
    let name = events.strings.find(MEMORY_EVENT.as_bytes());
    events.iter().filter(move |event| Some(event.name_id()) == name).map(|event| {
        let number = |key| event.arg(key).and_then(as_signed);
        ((number("Device Type").unwrap_or(0), number("Device Id").unwrap_or(-1)), event)
    })
}

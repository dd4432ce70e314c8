//! The contents of a device's memory over time: PyTorch's memory timeline.

use super::{MemoryRecord, MemoryRows};
use crate::buffer::Tag;
use crate::memory::{Category, Device, MemoryAction, MemoryRow, MemoryTimeline};
use crate::time::Timestamp;
use crate::trace::Trace;
use kineto_base::hash::HashMap;
use kineto_base::sorted::SortedSet;
use kineto_base::sorting::sort_few_by_key;

impl Trace {
    /// Returns the devices with allocations or frees.
    pub fn memory_devices(&self) -> Vec<Device> {
        let mut devices = SortedSet::new();
        self.memory_records(&mut |_, record, _| {
            devices.insert(record.device);
        });
        devices.iter().copied().collect()
    }

    /// Returns the contents of a device's memory over time; without rows if there are no records of it.
    ///
    /// It takes some 100 bytes for each allocation.
    ///
    /// ```no_run
    /// use tracing_kineto::KinetoLayer;
    /// use tracing_kineto::memory::Device;
    ///
    /// let (_layer, guard) = KinetoLayer::builder().no_output().with_memory(true).build()?;
    /// let timeline = guard.finish()?.memory_timeline(Device::CPU);
    /// println!("at most {} bytes", timeline.max_allocated());
    /// timeline.save("memory.html")?;
    /// # Ok::<(), tracing_kineto::Error>(())
    /// ```
    pub fn memory_timeline(&self, device: Device) -> MemoryTimeline {
        let mut records = Vec::new();
        self.memory_records(&mut |at, record, category| {
            if record.device == device && !record.is_out_of_memory {
                records.push((at, *record, category));
            }
        });
        // Stable: keeps the order of each thread.
        sort_few_by_key(&mut records, |(at, ..)| *at);
        let mut blocks = MemoryBlocks::default();
        for (at, record, category) in &records {
            blocks.add_change(record, *category, *at);
        }
        let first = records.first().map(|(_, record, _)| record);
        let before = first.map_or(0, |first| i128::from(first.allocated) - i128::from(first.bytes));
        let max = |of: fn(&MemoryRecord) -> u64| records.iter().map(|(_, record, _)| of(record)).max().unwrap_or(0);
        let (rows, peak) = blocks.into_rows(u64::try_from(before).unwrap_or(0));
        let allocated = max(|record| record.allocated);
        let max_allocated = if allocated == 0 { peak } else { allocated };
        let max_reserved = max(|record| record.reserved);
        MemoryTimeline::new(device, rows, max_allocated, max_reserved, self.inner.info.config.gzip_level)
    }

    /// Calls `each` with the time, the record and the category of each allocation and free.
    fn memory_records(&self, each: &mut dyn FnMut(Timestamp, &MemoryRecord, Category)) {
        let (walk, mut memory) = (self.walk(), MemoryRows::default());
        for run in &self.index().runs {
            let records = self.inner.recorded.records_of_run(*run).filter(|record| record.head.tag == Tag::Memory);
            for (time, record) in records.map(|record| MemoryRecord::from_record(&record)) {
                if !walk.devices.is_replaced(&record) {
                    each(walk.converter.timestamp_of(time), &record, memory.category_of(&record, &walk));
                }
            }
        }
        for (at, _, record) in walk.devices.memory_records(walk.info.process) {
            each(at, &record, memory.category_of(&record, &walk));
        }
    }

    /// Returns the number of allocators' reports that are left out because collectors recorded the same memory.
    pub(in crate::trace) fn memory_replaced(&self) -> u64 {
        let devices = self.devices();
        if !devices.have_memory() {
            return 0;
        }
        let mut replaced = 0;
        for run in &self.index().runs {
            for record in self.inner.recorded.records_of_run(*run) {
                let is_memory = record.head.tag == Tag::Memory;
                replaced += u64::from(is_memory && devices.is_replaced(&MemoryRecord::from_record(&record).1));
            }
        }
        replaced
    }
}

/// The blocks of memory, derived from the records.
#[derive(Debug, Default)]
struct MemoryBlocks {
    live: HashMap<u64, UsageStep>,
    keys: u64,
    before: Vec<MemoryRow>,
    rows: Vec<MemoryRow>,
}

#[derive(Clone, Copy, Debug)]
struct UsageStep {
    key: u64,
    version: u32,
    bytes: u64,
    category: Category,
}

impl UsageStep {
    fn to_row(self, time: Option<Timestamp>, action: MemoryAction, next_category: Category) -> MemoryRow {
        let mut row = MemoryRow::new(time, action, self.key);
        (row.version, row.bytes) = (self.version, self.bytes);
        (row.category, row.next_category) = (self.category, next_category);
        row
    }
}

impl MemoryBlocks {
    fn new_block(&mut self, bytes: u64, category: Category) -> UsageStep {
        self.keys += 1;
        UsageStep { key: self.keys, version: 0, bytes, category }
    }

    fn add_change(&mut self, record: &MemoryRecord, category: Category, at: Timestamp) {
        let bytes = record.bytes.unsigned_abs();
        let destroy = |block: UsageStep| block.to_row(Some(at), MemoryAction::Destroy, block.category);
        match record.bytes {
            1.. => {
                let block = self.new_block(bytes, category);
                // The address was reused, so the free of the earlier block was not recorded.
                if let Some(unseen) = self.live.insert(record.address, block) {
                    self.rows.push(destroy(unseen));
                }
                self.rows.push(block.to_row(Some(at), MemoryAction::Create, category));
            }
            0 => {
                if let Some(block) = self.live.get_mut(&record.address) {
                    self.rows.push(block.to_row(Some(at), MemoryAction::IncrementVersion, category));
                    (block.version, block.category) = (block.version + 1, category);
                }
            }
            _ => {
                let block = self.live.remove(&record.address).unwrap_or_else(|| {
                    let block = self.new_block(bytes, Category::Unknown);
                    self.before.push(block.to_row(None, MemoryAction::Preexisting, Category::Unknown));
                    block
                });
                self.rows.push(destroy(block));
            }
        }
    }

    /// Returns the rows, given the bytes allocated before the first of them, and the peak.
    fn into_rows(mut self, before: u64) -> (Vec<MemoryRow>, u64) {
        let seen = self.before.iter().map(|row| row.bytes).fold(0, u64::saturating_add);
        if before > seen {
            let rest = self.new_block(before - seen, Category::Unknown);
            self.before.push(rest.to_row(None, MemoryAction::Preexisting, Category::Unknown));
        }
        self.before.append(&mut self.rows);
        let (mut sum, mut peak) = (0u64, 0u64);
        for row in &self.before {
            match row.action {
                MemoryAction::Preexisting | MemoryAction::Create => sum = sum.saturating_add(row.bytes),
                MemoryAction::Destroy => sum = sum.saturating_sub(row.bytes),
                _ => {}
            }
            peak = peak.max(sum);
        }
        (self.before, peak)
    }
}

//! Allocators' reports as rows of a trace.

mod timeline;

use super::walk::Walk;
use crate::buffer::{CommittedRecord, MemoryTag, flag};
use crate::memory::{CATEGORY_FIELD, Category, Device};
use crate::time::{Ticks, Timestamp};
use kineto_base::fallible::List;
use kineto_model::activity::{Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Track};
use kineto_model::rows::Rows;
use std::io;

/// An allocator's report, decoded from its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryRecord {
    /// The slice around it; 0 for none.
    pub(super) slice: u64,
    pub(super) address: u64,
    pub(super) bytes: i64,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    pub(super) device: Device,
    /// The category of the scope.
    pub(super) category: Category,
    pub(super) is_out_of_memory: bool,
}

impl MemoryRecord {
    /// Returns the time and the contents of a record.
    pub(super) fn from_record(record: &CommittedRecord<'_>) -> (Ticks, MemoryRecord) {
        let [time, slice, address] = record.words;
        let mut payload = record.payload_words();
        let mut next = || payload.next().unwrap_or(0);
        let MemoryTag { kind, index, category } = MemoryTag::from_word(record.head.site);
        let memory = MemoryRecord {
            slice,
            address,
            bytes: next().cast_signed(),
            allocated: next(),
            reserved: next(),
            device: Device::of(kind, index),
            category: Category::from_number(category).unwrap_or_default(),
            is_out_of_memory: record.head.flags & flag::OUT_OF_MEMORY != 0,
        };
        (Ticks(time), memory)
    }
}

/// Delivers the rows of allocators' reports.
#[derive(Debug, Default)]
pub(super) struct MemoryRows {
    /// For each callsite, the field of the category; empty if no callsite has one.
    fields: Option<List<Option<usize>>>,
    /// The slice of the last query, and its category: successive allocations are often in the same slice.
    last: (u64, Category),
    /// The counters of the devices seen so far.
    counters: Vec<(Device, [String; 2])>,
}

impl MemoryRows {
    /// Finds the category of memory: that of the scope, else of the innermost span that sets one.
    pub(super) fn category_of(&mut self, record: &MemoryRecord, walk: &Walk<'_>) -> Category {
        if record.category != Category::Unknown {
            return record.category;
        }
        if self.last.0 != record.slice {
            self.last = (record.slice, self.of_spans(record.slice, walk));
        }
        self.last.1
    }

    fn of_spans(&mut self, slice: u64, walk: &Walk<'_>) -> Category {
        let fields = self.fields.get_or_insert_with(|| {
            let mut all = List::new();
            for site in &walk.recorded.sites {
                all.push(site.field_index(CATEGORY_FIELD));
            }
            if all.iter().any(Option::is_some) { all } else { List::new() }
        });
        if fields.is_empty() {
            return Category::Unknown;
        }
        let mut words = List::new();
        let span = walk.recorded.find_record(slice).map_or(0, |slice| slice.span_id());
        for made in walk.recorded.definitions_up_from(span) {
            let field = fields.get(made.head.site as usize).copied().flatten();
            let mut category_in = |record: &CommittedRecord<'_>| {
                walk.field_text(record, &mut words, field?).and_then(|text| text.parse().ok())
            };
            for later in walk.index.values.paired_with(made.id()).rev() {
                if let Some(category) = walk.recorded.find_record(later).and_then(|record| category_in(&record)) {
                    return category;
                }
            }
            if let Some(category) = category_in(&made) {
                return category;
            }
        }
        Category::Unknown
    }

    /// Delivers the instant, and the new values of the device's counters.
    pub(super) fn deliver_record(
        &mut self,
        record: &MemoryRecord,
        walk: &Walk<'_>,
        at: Timestamp,
        track: Track<'_>,
        rows: &mut dyn Rows,
    ) -> io::Result<()> {
        let args = MemoryArgs { record, category: self.category_of(record, walk) };
        let name = if record.is_out_of_memory { "[OutOfMemory]" } else { "[memory]" };
        let mut instant = Activity::new(ActivityType::CpuInstantEvent, name, track, Body::Instant { at });
        (instant.linked, instant.args) = (CorrelationId(record.slice), &args);
        rows.write_activity(&instant)?;
        let [allocated, reserved] = self.counter_names(record.device);
        let mut counter = |name: &str, bytes: u64| {
            let args = [("bytes", ArgValue::U64(bytes))];
            let mut counter = Activity::new(instant.kind, name, track, Body::Counter { at });
            counter.args = &args;
            rows.write_activity(&counter)
        };
        counter(allocated, record.allocated)?;
        if record.reserved == 0 { Ok(()) } else { counter(reserved, record.reserved) }
    }

    fn counter_names(&mut self, device: Device) -> &[String; 2] {
        let at = self.counters.iter().position(|(known, _)| *known == device).unwrap_or_else(|| {
            self.counters.push((device, ["allocated", "reserved"].map(|what| format!("{device} {what}"))));
            self.counters.len() - 1
        });
        const NONE: &[String; 2] = &[const { String::new() }; 2];
        self.counters.get(at).map_or(NONE, |(_, names)| names)
    }
}

/// PyTorch's arguments of such an instant, and the category if one is set.
struct MemoryArgs<'r> {
    record: &'r MemoryRecord,
    category: Category,
}

impl Args for MemoryArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let MemoryRecord { device, address, bytes, allocated, reserved, .. } = *self.record;
        each("Device Type", ArgValue::I64(device.kind.number().into()));
        each("Device Id", ArgValue::I64(device.index.into()));
        if !self.record.is_out_of_memory {
            each("Addr", ArgValue::U64(address));
        }
        each("Bytes", ArgValue::I64(bytes));
        each("Total Allocated", ArgValue::U64(allocated));
        each("Total Reserved", ArgValue::U64(reserved));
        if self.category != Category::Unknown {
            each("Category", ArgValue::Str(self.category.as_str()));
        }
    }
}

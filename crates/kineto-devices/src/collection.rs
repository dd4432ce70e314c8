//! The records of a collector as a trace reads them: times on the clock of the host, and arguments.

use crate::{Collection, Entry, RecordView, Role};
use kineto_base::time::Timestamp;
use kineto_model::activity::ArgValue;
use kineto_model::write::counter_value;

/// Later than any record.
pub const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

impl Collection {
    /// Returns when a record began and ended; [`NEVER`] if it did not, or if the time is impossible.
    #[inline]
    pub fn entry_times(&self, entry: &Entry<'_>) -> (Timestamp, Timestamp) {
        let possible = |at: Timestamp| if at > self.latest { NEVER } else { at };
        let at = |theirs| if theirs == 0 { NEVER } else { possible(self.clock.timestamp_of(theirs)) };
        let (start, end) = (at(entry.start()), at(entry.end()));
        (start, end.max(start))
    }

    /// Returns 1 if the end of a record is impossibly late.
    pub fn is_beyond_end(&self, entry: &Entry<'_>) -> u64 {
        u64::from(entry.end() != 0 && self.entry_times(entry).1 == NEVER)
    }

    /// Returns a record as its layout reads it, without a device.
    pub fn entry_view<'t>(&'t self, entry: &Entry<'t>, (start, end): (Timestamp, Timestamp)) -> RecordView<'t> {
        let (words, names, correlation) = (entry.words, &self.records.names, entry.correlation_id());
        RecordView { words, names, start, end, correlation, device_id: -1, device: None, stream: 0, wait: None }
    }

    /// Calls `each` with a record's arguments, as far as they follow from this record alone.
    pub fn visit_args(&self, entry: &Entry<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(layout) = self.records.entry_layout(entry) else { return };
        let (start, end) = self.entry_times(entry);
        let mut view = self.entry_view(entry, (start, if end == NEVER { self.latest } else { end }));
        if entry.role() != Role::Call {
            let place = entry.device_or_context();
            let is_context = matches!(entry.role(), Role::Sync | Role::Event);
            view.device_id = if is_context { self.records.device_of(place) } else { self.records.entry_device(entry) };
            view.device = self.records.devices.iter().find(|device| device.id == view.device_id);
            view.stream = entry.stream();
        }
        layout.visit(&view, &mut |key, value| match entry.role() {
            Role::Counter => counter_value(value).into_iter().for_each(|value| each(key, value)),
            _ => each(key, value),
        });
    }
}

//! The values of devices' counters, as rows.

use super::LinkedCollection;
use super::rows::EntryArgs;
use crate::trace::walk::Walk;
use kineto_devices::{Collection, Entry};
use kineto_model::activity::{Activity, ActivityType, Body, Track};
use kineto_model::rows::Rows;
use std::io;

impl LinkedCollection {
    /// Returns all values of counters, ordered by time, each with its device; those of an unknown layout have no row.
    fn counter_values<'t>(&'t self, collection: &'t Collection) -> impl Iterator<Item = (Entry<'t>, i32)> {
        let entries = self.counters.iter().filter_map(|at| collection.records.entry_at(*at));
        let known = entries.filter(|entry| collection.records.entry_layout(entry).is_some());
        known.map(|entry| (entry, collection.records.entry_device(&entry)))
    }

    /// Returns the devices whose rows include counters; hardware counters have a separate group.
    pub(super) fn counted_devices<'t>(&'t self, collection: &'t Collection) -> impl Iterator<Item = i32> {
        let among_rows = |(entry, _): &(Entry<'_>, i32)| entry.kind() != ActivityType::HardwareCounters;
        self.counter_values(collection).filter(among_rows).map(|(_, device)| device)
    }

    /// Delivers all values of counters.
    pub(super) fn counter_rows(&self, collection: &Collection, walk: &Walk<'_>, rows: &mut dyn Rows) -> io::Result<()> {
        self.counter_values(collection).try_for_each(|(entry, device)| {
            let (at, stream) = (collection.entry_times(&entry).0, entry.stream());
            let mut args = EntryArgs::new(walk, collection, &entry, (at, at));
            (args.view.correlation, args.view.device_id, args.view.stream) = (0, device, stream);
            args.view.device = collection.records.devices.iter().find(|described| described.id == device);
            let (name, track) = (collection.records.names.text(entry.name), Track::new(device.into(), stream.into()));
            let mut activity = Activity::new(entry.kind(), name, track, Body::Counter { at });
            activity.args = &args;
            rows.write_activity(&activity)
        })
    }
}

//! The values of devices' counters, as rows.

use super::LinkedCollection;
use crate::time::Timestamp;
use kineto_devices::{Collection, Entry, RecordLayout};
use kineto_model::activity::{Activity, ActivityType, ArgValue, Args, Body, Track};

/// Values that were read at the same time.
pub(super) struct Sample<'t> {
    collection: &'t Collection,
    entry: Entry<'t>,
    at: Timestamp,
    shape: &'static dyn RecordLayout,
}

impl LinkedCollection {
    /// Returns all values of counters, ordered by time.
    pub(super) fn counter_samples<'t>(&'t self, collection: &'t Collection) -> impl Iterator<Item = Sample<'t>> {
        self.counters.iter().filter_map(move |at| {
            let entry = collection.records.entry_at(*at)?;
            let shape = collection.records.entry_layout(&entry)?;
            Some(Sample { collection, at: collection.entry_times(&entry).0, entry, shape })
        })
    }

    /// Returns the devices whose rows include counters; hardware counters have a separate group.
    pub(super) fn counted_devices<'t>(&'t self, collection: &'t Collection) -> impl Iterator<Item = i32> {
        let among_rows = |sample: &Sample<'_>| sample.entry.kind() != ActivityType::HardwareCounters;
        self.counter_samples(collection).filter(among_rows).map(|sample| sample.device())
    }
}

impl Sample<'_> {
    fn device(&self) -> i32 {
        self.collection.records.entry_device(&self.entry)
    }

    /// Returns its values as a row.
    pub(super) fn to_activity(&self) -> Activity<'_> {
        let track = Track::new(self.device().into(), self.entry.stream().into());
        let name = self.collection.records.names.text(self.entry.name);
        let mut activity = Activity::new(self.entry.kind(), name, track, Body::Counter { at: self.at });
        activity.args = self;
        activity
    }
}

impl Args for Sample<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let mut view = self.collection.entry_view(&self.entry, (self.at, self.at));
        (view.correlation, view.device_id, view.stream) = (0, self.device(), self.entry.stream());
        view.device = self.collection.records.devices.iter().find(|device| device.id == view.device_id);
        self.shape.visit(&view, each);
    }
}

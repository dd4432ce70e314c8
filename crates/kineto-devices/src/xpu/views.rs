//! The views of PTI that a recording enables.

use super::error::PtiError;
use super::ffi::Api;
use super::records::view;
use crate::buffered::kinds::KindSwitch;
use kineto_model::activity::{ActivityType, ActivityTypes};

/// The activity types, with their PTI views.
const VIEWS: [(ActivityType, &[u32]); 9] = [
    (ActivityType::ConcurrentKernel, &[view::KERNEL]),
    (ActivityType::GpuMemcpy, &[view::COPY, view::PEER_COPY]),
    (ActivityType::GpuMemset, &[view::FILL]),
    (ActivityType::XpuRuntime, &[view::RUNTIME]),
    (ActivityType::XpuDriver, &[view::DRIVER]),
    (ActivityType::ExternalCorrelation, &[view::EXTERNAL_CORRELATION]),
    (ActivityType::XpuSync, &[view::SYNCHRONIZATION]),
    (ActivityType::CollectiveComm, &[view::COMMUNICATION]),
    (ActivityType::Overhead, &[view::OVERHEAD]),
];

/// The views of device work.
const OF_DEVICES: [u32; 4] = [view::KERNEL, view::COPY, view::PEER_COPY, view::FILL];

/// Returns whether a view records API calls rather than device work.
///
/// A flush also returns buffers that PTI is writing into, without a lock against their writers. So views of API calls are
/// disabled around a flush.
pub(super) fn is_of_calls(view: u32) -> bool {
    !OF_DEVICES.contains(&view)
}

impl KindSwitch for &'static Api {
    type Error = PtiError;

    fn enable_kind(&self, view: u32) -> Result<(), PtiError> {
        Api::enable_view(self, view)?;
        // Enabling the view enables all calls.
        if view == view::RUNTIME { self.record_launches() } else { Ok(()) }
    }

    fn disable_kind(&self, view: u32) {
        let _ = Api::disable_view(self, view);
    }
}

/// Enables the views of these types; returns them, the types enabled, and the failures.
pub(super) fn enable_views(
    switch: &impl KindSwitch<Error = PtiError>,
    types: ActivityTypes,
) -> (Vec<u32>, ActivityTypes, Vec<Refused>) {
    let (mut views, mut enabled, mut refused) = (Vec::new(), ActivityTypes::EMPTY, Vec::new());
    for (kind, its) in VIEWS.iter().filter(|(kind, _)| types.contains(*kind)) {
        for view in *its {
            match switch.enable_kind(*view) {
                Ok(()) => {
                    views.push(*view);
                    enabled |= ActivityTypes::from_type(*kind);
                }
                Err(error) => {
                    switch.disable_kind(*view);
                    refused.push(Refused { kind: *kind, is_partial: *view == view::PEER_COPY, error });
                }
            }
        }
    }
    (views, enabled, refused)
}

/// A view that could not be enabled, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) kind: ActivityType,
    /// Whether most of the type is recorded anyway.
    pub(super) is_partial: bool,
    pub(super) error: PtiError,
}

/// Returns the types that views can record at best.
pub(super) fn supported_types() -> ActivityTypes {
    VIEWS.iter().fold(ActivityTypes::EMPTY, |types, (kind, _)| types.with(*kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    /// Tracks which views are enabled; rejects communication.
    #[derive(Debug, Default)]
    struct EnabledViews(Mutex<BTreeSet<u32>>);

    impl KindSwitch for EnabledViews {
        type Error = PtiError;

        fn enable_kind(&self, view: u32) -> Result<(), PtiError> {
            if view == view::COMMUNICATION {
                return Err(PtiError(3));
            }
            self.0.lock().unwrap().insert(view);
            Ok(())
        }

        fn disable_kind(&self, view: u32) {
            self.0.lock().unwrap().remove(&view);
        }
    }

    #[test]
    fn each_type_has_its_views_and_failures_are_reported() {
        let switch = EnabledViews::default();
        let (views, enabled, refused) = enable_views(&switch, supported_types());
        assert_eq!(switch.0.into_inner().unwrap(), BTreeSet::from([1, 3, 5, 6, 7, 8, 9, 10, 11]));
        assert_eq!(views.len(), 9);
        let kind = ActivityType::CollectiveComm;
        assert_eq!(refused, [Refused { kind, is_partial: false, error: PtiError(3) }]);
        assert_eq!(enabled.iter().count(), 8);
    }
}

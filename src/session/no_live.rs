//! Stub of the care for a live file, for builds without the feature `segments`: there are no live files.

use super::Session;
use crate::recorder::Recorder;
use std::sync::Arc;

/// Keeps no file up to date.
#[derive(Debug, Default)]
pub(crate) struct LiveControl(());

impl LiveControl {
    pub(super) fn set_session(&self, _session: &Arc<Session>) {}

    pub(super) fn maintain(&self, _recorder: &Recorder) {}

    pub(super) fn refresh(&self, _recorder: &Recorder) {}
}

//! Stub of what a recorder notes in a live file, for builds without the feature `segments`: there are no live files.

use super::Recorder;
use crate::live::LiveOwner;
use crate::time::Ticks;

impl Recorder {
    pub(crate) fn take_live(&self) -> Option<LiveOwner> {
        None
    }

    pub(crate) fn note_window(&self, _epoch: u64, _start: Ticks, _end: Option<Ticks>) {}
}

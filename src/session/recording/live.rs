//! The live file of a recording: created when it begins, and kept up to date with what only the session knows.

use super::super::spill::private_file;
use super::clock_thread::ClockThread;
use super::{RecordingState, SessionRecording};
use crate::buffer::Loss;
use crate::clock::{self, Anchor};
use crate::diag::diag;
use crate::encoding::Encoded;
use crate::live::{JournalKind, LiveFile, LiveGaps};
use crate::os::shared_file::Unusable;
use crate::recorder::RecordedPart;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::segment::folder;
use crate::session::machine::SessionMachine;
use crate::text::count_with_noun;
use crate::trace::Trace;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl SessionRecording {
    /// Creates the live file of a recording that begins, if that is configured.
    pub(super) fn begin_live(&self, state: &RecordingState) {
        let config = self.settings.first_config();
        let Some(folder) = config.shm_folder.as_ref().filter(|_| self.recorder.settings.records) else { return };
        match LiveFile::create(folder, self.recorder.pool().bytes_max()) {
            Ok(file) => {
                self.recorder.begin_live(file);
                self.recorder.live().put(JournalKind::Anchor, (0, 0), |out| Anchor::read_clocks().encode(out));
                self.note_info(state);
            }
            Err((why, needed)) => self.live_trouble.call_once(|| report_unusable(folder, &why, needed)),
        }
    }

    /// Calls `take`, which takes a trace of the running recording. Also returns the live file of that recording, unless another
    /// recording may have begun meanwhile.
    pub(in crate::session) fn with_live_file<R>(&self, take: impl FnOnce() -> R) -> (R, Option<Arc<LiveFile>>) {
        let live = self.recorder.live();
        let before = live.current();
        let taken = take();
        (taken, before.filter(|file| live.is_current(Some(file))))
    }

    /// Notes the facts about the recording and its metadata.
    pub(super) fn note_info(&self, state: &RecordingState) {
        if let Some(live) = self.recorder.live().current() {
            live.append(&[self.info_entry(state)]);
        }
    }

    fn info_entry(&self, state: &RecordingState) -> Option<Vec<u64>> {
        let info = self.trace_info(state, &self.recorder.losses.counts());
        LiveFile::entry(JournalKind::Info, (0, 0), |out| {
            clock::is_counter().encode(out);
            state.metadata.encode(out);
            info.encode(out);
        })
    }

    /// Notes the losses of a part that was taken out of memory, with what is left of them there.
    pub(super) fn note_part_losses(&self, state: &RecordingState, part: &Trace) {
        let Some(live) = self.recorder.live().current() else { return };
        let contents = part.contents();
        let mut losses = contents.info.losses;
        let evicted = &contents.recorded.evicted;
        let of_host = [(Loss::FieldsOverLimit, evicted.needed), (Loss::NotSpilled, evicted.unsaved)];
        for (loss, count) in of_host.into_iter().chain(contents.devices.losses()) {
            let place = losses.get_mut(loss as usize);
            if let Some(place) = place {
                *place = place.saturating_add(count);
            }
        }
        let noted = LiveFile::entry(JournalKind::PartLosses, part_key(part), |out| losses.encode(out));
        // Together: else they would be shown twice, or not at all.
        live.append(&[noted, self.info_entry(state)]);
        self.collectors.note_all(&live);
    }
}

impl ClockThread {
    /// Compacts the file's journal if that is due, and reports once that the file lacks something.
    pub(super) fn maintain_live(&self) {
        let Some(live) = self.recorder.live().current() else { return };
        let LiveGaps { entries, slots, is_journal_full, has_room_again } = live.maintain();
        if has_room_again {
            self.recorder.note_tables();
            if let Some(session) = self.session.upgrade() {
                session.recording.windows.note_all();
            }
        }
        if entries + slots > 0 && !self.is_live_gap_reported.swap(true, Ordering::Relaxed) {
            let missed = count_with_noun(entries + slots, "part");
            let path = live.path().display();
            if is_journal_full && slots == 0 {
                diag!(
                    Warning,
                    "live",
                    "{path} lacks {missed} of the recording so far, which a killed process would lose: its journal is full; \
                     raise BUFFER_LIMIT_MB"
                );
            } else {
                diag!(
                    Warning,
                    "live",
                    "{path} lacks {missed} of the recording so far, which a killed process would lose: its folder is full; \
                     free it, or lower BUFFER_LIMIT_MB"
                );
            }
        }
    }

    /// Notes what has changed without a note of its own, each second, unless a thread starts or stops a recording.
    pub(super) fn refresh_live(&self) {
        let Some(live) = self.recorder.live().current() else { return };
        // A file that is kept has what is counted from now on.
        let Some(_eviction) = live.begin_eviction() else { return };
        let Some(session) = self.session.upgrade() else { return };
        let _own = InternalAllocGuard::begin();
        let Ok(state) = session.recording.state.try_lock() else { return };
        if session.recording.machine.read(SessionMachine::has_records) {
            session.recording.note_info(&state);
            self.collectors.note_all(&live);
        }
    }
}

/// Removes the losses of a part, which are on disk with it.
pub(in crate::session) fn forget_part_losses(part: &Trace) {
    let live = part.contents().recorded.shared_live();
    if let Some(live) = live {
        live.remove(JournalKind::PartLosses, part_key(part));
    }
}

/// Identifies a part: by the end of its trace, and the first id of its records, if parts end at the same time.
fn part_key(part: &Trace) -> (u64, u64) {
    let recorded = &part.contents().recorded;
    (recorded.whole.1.0, recorded.parts.last().map_or(0, RecordedPart::first_id))
}

/// Lets a folder of segments and the live file of their recording name each other.
pub(in crate::session) fn link_live_file(live: &LiveFile, segments: &Path) {
    // One that is kept shows all its records.
    if !live.is_kept() {
        live.put_value(JournalKind::Segments, (0, 0), &segments.to_owned());
        // Without it, each is found on its own.
        let named = private_file(&segments.join(folder::LIVE));
        let _ = named.and_then(|mut file| file.write_all(live.path().as_os_str().as_encoded_bytes()));
    }
}

fn report_unusable(folder: &Path, why: &Unusable, needed: u64) {
    let folder = folder.display();
    let (needed, mebibytes) = (needed.div_ceil(1 << 20), |bytes: u64| bytes >> 20);
    let why = match why {
        Unusable::Io(error) if error.kind() == std::io::ErrorKind::FileTooLarge => format!(
            "cannot create a file of {needed} MiB in {folder}: {error}; raise the limit on file sizes (ulimit -f), or lower \
             BUFFER_LIMIT_MB"
        ),
        Unusable::Io(error) => {
            format!("cannot create a file in {folder}: {error}; set SHM_DIR to a folder that you may write")
        }
        Unusable::NotInMemory => format!("{folder} is not in shared memory (tmpfs); set SHM_DIR to /dev/shm"),
        Unusable::TooSmall(free) => format!(
            "{folder} has {} MiB free, and {needed} MiB are needed; enlarge it, or lower BUFFER_LIMIT_MB",
            mebibytes(*free)
        ),
    };
    diag!(Warning, "live", "a killed process would lose its records: {why}");
}

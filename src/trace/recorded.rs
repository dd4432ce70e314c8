//! The records that a session took from the threads, where they were written.

use super::index::Run;
use super::window_set::{WindowSet, without_stretch};
use crate::buffer::{CommittedRecord, Tag, flag};
use crate::callsite::SiteDescription;
use crate::encoding::encoded;
use crate::fields::Word;
use crate::live::{JournalKind, LiveFile, LiveOwner};
use crate::recorder::{EvictionCounts, LaneRow, LargePayload, RecordedBuffers, RecordedPart, Recorder};
use crate::time::Ticks;
use kineto_base::fallible::List;
use kineto_base::hash::HashMap;
use kineto_base::sorted::SortedSet;
use kineto_base::sorting::sort_in_place_by_key;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// The records of a trace. Returns its chunks to their pool on drop.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// Sorted by first id.
    pub(crate) parts: Vec<RecordedPart>,
    pub(crate) lanes: Vec<LaneRow>,
    pub(crate) sites: Vec<SiteDescription>,
    /// The recorded stretches of time: more than one after a pause.
    pub(crate) windows: Vec<Window>,
    /// Stretches of time of which newer records have replaced others, although older ones are kept.
    pub(crate) gaps: Vec<Stretch>,
    /// The start and end of the recording, pauses included.
    pub(crate) whole: Stretch,
    large_payloads: HashMap<u64, Arc<LargePayload>>,
    owner: Option<Arc<Recorder>>,
    /// The live file that holds these records, until they are written.
    live: Option<Arc<LiveOwner>>,
    /// The live file that holds the records of a part while the recording continues.
    shared_live: Weak<LiveFile>,
    /// Whether slices may overlap, which only a walk over all of them can tell.
    pub(crate) disorder: bool,
    /// Records of threads that had not noticed the end of an earlier session.
    pub(crate) late: u64,
    pub(crate) evicted: EvictionCounts,
}

/// The start and end of a stretch of time.
pub(crate) type Stretch = (Ticks, Ticks);

/// A stretch of time in which records were written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) epoch: u64,
    pub(crate) start: Ticks,
    pub(crate) end: Ticks,
    /// The end before the window was cut.
    pub(crate) uncut_end: Ticks,
    /// Whether the trace excludes records of the epoch that lie outside the window.
    pub(crate) is_cut: bool,
}

encoded! {
    Window { epoch, start, end, uncut_end, is_cut }
    Recorded { windows, gaps, whole, disorder, evicted } + {
        parts: Vec::new(),
        lanes: Vec::new(),
        sites: Vec::new(),
        large_payloads: HashMap::default(),
        owner: None,
        live: None,
        shared_live: Weak::new(),
        // Among the losses.
        late: 0,
    }
}

impl Recorded {
    /// Keeps the records that belong to `windows`, and counts the others.
    pub(crate) fn new(
        taken: RecordedBuffers,
        windows: Vec<Window>,
        whole: Stretch,
        owner: &Arc<Recorder>,
        owned: bool,
    ) -> Recorded {
        let (mut parts, mut stray, mut late) = (Vec::with_capacity(taken.parts.len()), Vec::new(), 0);
        for part in taken.parts {
            if window_of_epoch(&windows, part.epoch()).is_some() {
                parts.push(part);
            } else if let Some(chunk) = part.into_chunk() {
                late += chunk.committed_len().saturating_sub(2) as u64;
                stray.push(chunk);
            }
        }
        if owned {
            owner.pool().give_back(stray);
        }
        Recorded {
            parts,
            lanes: taken.lanes,
            sites: owner.sites.describe_sites(),
            windows,
            gaps: Vec::new(),
            whole,
            large_payloads: payloads_by_id(taken.large_payloads),
            owner: owned.then(|| owner.clone()),
            shared_live: owner.live().current().as_ref().map_or_else(Weak::new, Arc::downgrade),
            live: if owned { owner.take_live().map(Arc::new) } else { None },
            disorder: owner.may_overlap(),
            late: if owned { late } else { 0 },
            evicted: taken.evicted,
        }
    }

    /// Returns how many slices, events and memory records no earlier part of the recording has.
    pub(crate) fn new_record_count(&self) -> u64 {
        let count_new = |part: &RecordedPart| {
            let Some(window) = self.window_with(part) else { return 0 };
            let is_counted = |record: &CommittedRecord<'_>| {
                let at = Ticks(record.words[0]);
                matches!(record.head.tag, Tag::Slice | Tag::Instant | Tag::Counter | Tag::Memory)
                    && at <= window.end
                    && (at >= window.start || record.is_new())
            };
            part.records().records_from(0).filter(is_counted).count() as u64
        };
        self.parts.iter().map(count_new).sum()
    }

    /// Creates an empty set of records for that stretch of time.
    pub(crate) fn empty(whole: Stretch) -> Recorded {
        let mut recorded = Recorded::default();
        (recorded.windows, recorded.whole) = (vec![Window::new(0, whole.0, whole.1)], whole);
        recorded
    }

    /// Creates the records of a live file, whose process was killed, without their tables and chunks.
    pub(crate) fn of_live_file(windows: WindowSet, evicted: EvictionCounts) -> Recorded {
        let mut recorded = Recorded::default();
        (recorded.windows, recorded.gaps, recorded.whole) = (windows.host, windows.gaps, windows.extent);
        // Only a walk can tell whether slices overlap.
        (recorded.evicted, recorded.disorder) = (evicted, true);
        recorded
    }

    /// Returns the live file that holds these records, if there is one.
    pub(crate) fn live_file(&self) -> Option<&Arc<LiveOwner>> {
        self.live.as_ref()
    }

    /// Keeps the live file, because nothing else will have these records; returns whether it is kept.
    pub(crate) fn keep_live_file(&self) -> bool {
        let Some(live) = self.shared_live() else { return false };
        if self.live.is_none() {
            // A later segment does not mean that these records are on disk: the reader shows all.
            live.put_value(JournalKind::Segments, (0, 0), &PathBuf::new());
        }
        live.keep()
    }

    /// Returns the live file in which these records lie, unless it is gone.
    pub(crate) fn shared_live(&self) -> Option<Arc<LiveFile>> {
        self.shared_live.upgrade()
    }

    /// Returns the window in which a run was recorded.
    #[expect(clippy::expect_used, reason = "`new` keeps only records of its windows, so there is one")]
    pub(crate) fn window_of(&self, run: Run) -> &Window {
        let epoch = self.parts.get(run.part).map_or(0, RecordedPart::epoch);
        let window = window_of_epoch(&self.windows, epoch).or(self.windows.last());
        window.expect("a run has a window")
    }

    /// Returns the window that contains a record.
    pub(crate) fn window_around(&self, record: &CommittedRecord<'_>) -> Option<&Window> {
        self.window_with(self.part_with(record.id())?)
    }

    /// Returns the window of those records.
    pub(crate) fn window_with(&self, part: &RecordedPart) -> Option<&Window> {
        window_of_epoch(&self.windows, part.epoch())
    }

    /// Returns the records of a run.
    pub(crate) fn records_of_run(&self, run: Run) -> impl Iterator<Item = CommittedRecord<'_>> + '_ {
        let records = self.parts.get(run.part).map(RecordedPart::records);
        let mut at = run.from;
        std::iter::from_fn(move || {
            let record = records.filter(|_| at < run.to)?.read_record(at)?;
            at = record.next_slot();
            Some(record)
        })
    }

    /// Returns the part that may contain the record with that id.
    fn part_with(&self, id: u64) -> Option<&RecordedPart> {
        self.parts.get(self.parts.partition_point(|part| part.first_id() <= id).checked_sub(1)?)
    }

    /// Returns the record with that id, if the trace contains it.
    pub(crate) fn find_record(&self, id: u64) -> Option<CommittedRecord<'_>> {
        self.part_with(id)?.records().find_record(id)
    }

    /// Returns the records that define a span, its parent, and so on. A damaged file may hold a circle, so there is a limit.
    pub(crate) fn definitions_up_from(&self, span: u64) -> impl Iterator<Item = CommittedRecord<'_>> {
        const MOST: usize = 1 << 16;
        std::iter::successors(self.find_record(span), |made| self.find_record(made.parent_id()?)).take(MOST)
    }

    /// Returns the record that defines a slice's span: the slice itself, or usually the record before it.
    pub(crate) fn definition_of<'t>(&'t self, slice: &CommittedRecord<'t>) -> Option<CommittedRecord<'t>> {
        let span = slice.span_id();
        if span == slice.id() {
            return Some(*slice);
        }
        slice.all.find_record(span).or_else(|| self.find_record(span))
    }

    /// Replaces `words` by the field values of a record.
    #[inline]
    pub(crate) fn read_payload(&self, record: &CommittedRecord<'_>, words: &mut List<Word>) {
        words.clear();
        if record.head.flags & flag::LARGE == 0 {
            words.extend_exact(record.payload_words().map(u64::to_le_bytes));
        } else if let Some(large) = record.payload_words().next().and_then(|id| self.large_payloads.get(&id)) {
            words.extend_exact(large.words.iter().map(|word| word.to_le_bytes()));
        }
    }

    /// Returns the stretches of time in which the host recorded, without those of which records are missing.
    pub(crate) fn host_stretches(&self) -> Vec<Stretch> {
        let mut stretches = Vec::with_capacity(self.windows.len());
        for window in &self.windows {
            stretches.push((window.start, window.end));
        }
        for gap in &self.gaps {
            stretches = without_stretch(&stretches, *gap);
        }
        stretches
    }

    /// Returns whether a period lies in a gap.
    pub(crate) fn is_in_gap(&self, start: Ticks, end: Ticks) -> bool {
        self.gaps.iter().any(|gap| gap.0 < start && end < gap.1)
    }

    /// Returns the number of records that threads committed after these chunks were taken; 0 for a snapshot.
    pub(crate) fn committed_late(&self) -> u64 {
        let parts = if self.owner.is_some() { &self.parts[..] } else { &[] };
        parts.iter().map(RecordedPart::committed_late).sum::<u64>() + self.late
    }

    /// Returns all payloads that no chunk could hold, by id.
    pub(crate) fn large_payloads(&self) -> impl Iterator<Item = (&u64, &Arc<LargePayload>)> {
        self.large_payloads.iter()
    }

    /// Calls `each` with the return addresses of all stacks; most occur often.
    pub(crate) fn visit_stack_addresses(&self, each: &mut dyn FnMut(u64)) {
        for part in &self.parts {
            for record in part.records().records_from(0) {
                if record.head.tag == Tag::Stack {
                    for address in record.payload_words() {
                        each(address);
                    }
                }
            }
        }
    }

    /// Adds records from a file; returns how many parts are not added, because their epoch has no window.
    pub(crate) fn add_stored(&mut self, mut parts: Vec<RecordedPart>, payloads: Vec<(u64, Arc<LargePayload>)>) -> u64 {
        let all = parts.len();
        parts.retain(|part| window_of_epoch(&self.windows, part.epoch()).is_some());
        sort_in_place_by_key(&mut parts, RecordedPart::first_id);
        let strays = all - parts.len();
        self.parts = parts;
        self.large_payloads = payloads_by_id(payloads);
        strays as u64
    }

    /// Returns how many threads there were.
    pub(super) fn count_threads(&self) -> usize {
        self.lanes.iter().map(|row| row.thread).collect::<SortedSet<_>>().len()
    }

    /// Returns how many bytes the records take.
    pub(crate) fn record_bytes(&self) -> u64 {
        let large: u64 = self.large_payloads.values().map(|payload| payload.reserved.bytes).sum();
        self.parts.iter().map(RecordedPart::bytes).sum::<u64>() + large
    }
}

impl Window {
    pub(crate) fn new(epoch: u64, start: Ticks, end: Ticks) -> Window {
        Window { epoch, start, end, uncut_end: end, is_cut: false }
    }
}

fn payloads_by_id(payloads: Vec<(u64, Arc<LargePayload>)>) -> HashMap<u64, Arc<LargePayload>> {
    let mut by_id = HashMap::default();
    for (id, payload) in payloads {
        by_id.insert(id, payload);
    }
    by_id
}

/// Finds the window of an epoch; later windows have greater epochs.
fn window_of_epoch(windows: &[Window], epoch: u64) -> Option<&Window> {
    windows.binary_search_by_key(&epoch, |window| window.epoch).ok().and_then(|place| windows.get(place))
}

#[cfg(test)]
impl Recorded {
    /// Adds a callsite of which nothing is known.
    pub(crate) fn add_unknown_site(&mut self) {
        self.sites.push(SiteDescription::unknown());
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // Before its chunks are used again.
        drop(self.live.take());
        if let Some(owner) = self.owner.take() {
            owner.pool().give_back(self.parts.drain(..).filter_map(RecordedPart::into_chunk));
        }
    }
}

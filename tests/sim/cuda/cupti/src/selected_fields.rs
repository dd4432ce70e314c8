//! Records with the fields that a subscriber has selected: their layouts, and the conversion from the first version's.

use crate::activity::Activity;
use crate::code::{Code, Outcome};
use crate::layout::kind;
use crate::link;
use sim_core::buffer::PendingRecord;
use sim_core::record::Record;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// `CUpti_BufferCallbackCompleteInfo`.
#[derive(Debug)]
#[repr(C)]
pub struct BufferInfo {
    size: usize,
    thread: u64,
    layouts: *const *const RawLayout,
    layout_count: usize,
}

/// `CUpti_ActivityRecordLayout`, whose size is not set.
#[derive(Debug)]
#[repr(C)]
struct RawLayout {
    size: usize,
    fields: *const FieldLayout,
    field_count: usize,
    record_bytes: usize,
}

/// `CUpti_ActivityFieldLayoutEntry`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct FieldLayout {
    size: usize,
    id: i32,
    at: usize,
    bytes: usize,
    alignment: usize,
}

/// A field: its number, where the first version has it and in how many bytes, and its bytes in selected fields.
type Field = (i32, usize, usize, usize);

/// The fields of each kind, by CUPTI's numbers.
fn fields_of(kind: u32) -> &'static [Field] {
    match kind {
        kind::KERNEL | kind::CONCURRENT_KERNEL => &[
            (0, 0, 4, 4),
            (4, 6, 2, 2),
            (7, 16, 8, 8),
            (8, 24, 8, 8),
            (10, 40, 4, 4),
            (11, 44, 4, 4),
            (12, 48, 4, 4),
            (13, 52, 4, 4),
            (14, 56, 4, 4),
            (15, 60, 4, 4),
            (16, 64, 4, 4),
            (17, 68, 4, 4),
            (18, 72, 4, 4),
            (19, 76, 4, 4),
            (20, 80, 4, 4),
            (22, 92, 4, 8),
            (23, 96, 8, 8),
            (24, 104, 8, 8),
            (25, 120, 8, 8),
            (31, 144, 8, 8),
            (33, 156, 4, 4),
            (35, 168, 4, 4),
            (36, 172, 4, 4),
            (45, 216, 4, 4),
        ],
        kind::MEMCPY => &[
            (0, 0, 4, 4),
            (1, 4, 1, 1),
            (2, 5, 1, 1),
            (3, 6, 1, 1),
            (4, 7, 1, 1),
            (5, 8, 8, 8),
            (6, 16, 8, 8),
            (7, 24, 8, 8),
            (8, 32, 4, 4),
            (9, 36, 4, 4),
            (10, 40, 4, 4),
            (11, 44, 4, 8),
            (12, 64, 8, 8),
            (13, 72, 4, 4),
            (14, 76, 4, 4),
            (15, 80, 4, 4),
        ],
        kind::MEMCPY2 => &[
            (0, 0, 4, 4),
            (1, 4, 1, 1),
            (2, 5, 1, 1),
            (3, 6, 1, 1),
            (4, 7, 1, 1),
            (5, 8, 8, 8),
            (6, 16, 8, 8),
            (7, 24, 8, 8),
            (8, 32, 4, 4),
            (9, 36, 4, 4),
            (10, 40, 4, 4),
            (11, 44, 4, 4),
            (12, 48, 4, 4),
            (13, 52, 4, 4),
            (14, 56, 4, 4),
            (15, 60, 4, 8),
            (16, 72, 8, 8),
            (17, 80, 4, 4),
            (18, 84, 4, 4),
            (19, 88, 4, 4),
        ],
        kind::MEMSET => &[
            (0, 0, 4, 4),
            (1, 4, 4, 4),
            (2, 8, 8, 8),
            (3, 16, 8, 8),
            (4, 24, 8, 8),
            (5, 32, 4, 4),
            (6, 36, 4, 4),
            (7, 40, 4, 4),
            (8, 44, 4, 8),
            (9, 48, 2, 2),
            (10, 50, 2, 2),
            (11, 64, 8, 8),
            (12, 72, 4, 4),
            (13, 76, 4, 4),
            (14, 80, 4, 4),
        ],
        kind::RUNTIME | kind::DRIVER => &[
            (0, 0, 4, 4),
            (1, 4, 4, 4),
            (2, 8, 8, 8),
            (3, 16, 8, 8),
            (4, 24, 4, 4),
            (5, 28, 4, 8),
            (6, 32, 4, 8),
            (7, 36, 4, 4),
        ],
        kind::EXTERNAL_CORRELATION => &[(0, 0, 4, 4), (1, 4, 4, 4), (2, 8, 8, 8), (3, 16, 4, 8)],
        kind::SYNCHRONIZATION => &[
            (0, 0, 4, 4),
            (1, 4, 4, 4),
            (2, 8, 8, 8),
            (3, 16, 8, 8),
            (4, 24, 4, 8),
            (5, 28, 4, 4),
            (6, 32, 4, 4),
            (7, 36, 4, 8),
        ],
        kind::CUDA_EVENT => {
            &[(0, 0, 4, 4), (1, 4, 4, 8), (2, 8, 4, 4), (3, 12, 4, 4), (4, 16, 4, 8), (5, 24, 4, 4), (6, 40, 8, 8)]
        }
        kind::OVERHEAD => &[(0, 0, 4, 4), (1, 4, 4, 4), (4, 24, 8, 8), (5, 32, 8, 8)],
        kind::MEMORY2 => &[
            (0, 0, 4, 4),
            (1, 4, 4, 4),
            (2, 8, 4, 4),
            (3, 12, 4, 8),
            (4, 16, 8, 8),
            (5, 24, 8, 8),
            (6, 32, 8, 8),
            (7, 48, 4, 4),
            (8, 52, 4, 4),
        ],
        kind::GRAPH_TRACE => &[
            (0, 0, 4, 4),
            (1, 4, 4, 8),
            (2, 8, 8, 8),
            (3, 16, 8, 8),
            (4, 24, 4, 4),
            (5, 28, 4, 4),
            (6, 32, 4, 4),
            (7, 36, 4, 4),
        ],
        _ => &[],
    }
}

/// The layout of a kind's records.
#[derive(Clone, Debug)]
struct Layout {
    fields: Vec<(Field, usize)>,
    bytes: usize,
}

impl Layout {
    /// Lays out the fields with their natural alignment.
    fn new(selected: impl Iterator<Item = Field>) -> Layout {
        let (mut fields, mut end) = (Vec::new(), 0usize);
        for field in selected {
            let at = end.next_multiple_of(field.3);
            end = at + field.3;
            fields.push((field, at));
        }
        Layout { fields, bytes: end.next_multiple_of(8) }
    }

    /// Returns where a field of the first version is.
    fn place_of(&self, first_at: usize) -> Option<usize> {
        self.fields.iter().find(|((_, at, ..), _)| *at == first_at).map(|(_, at)| *at)
    }
}

/// The selected fields of a subscriber.
#[derive(Debug, Default)]
pub(crate) struct SelectedFields {
    is_on: AtomicBool,
    by_kind: RwLock<BTreeMap<u32, Layout>>,
    delivered: AtomicU64,
}

impl SelectedFields {
    pub(crate) fn set(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Selects the fields of a kind; none for those of the first version.
    pub(crate) fn select(&self, kind: u32, ids: &[i32]) -> Outcome {
        let mut by_kind = self.by_kind.write().unwrap_or_else(PoisonError::into_inner);
        if ids.is_empty() {
            by_kind.remove(&kind);
            return Ok(());
        }
        let known = fields_of(kind);
        let find = |id: &i32| known.iter().find(|(known, ..)| known == id).copied();
        let selected: Option<Vec<_>> = ids.iter().map(find).collect();
        if !self.is_on.load(Ordering::Relaxed) || ids.first() != Some(&0) {
            return Err(Code::INVALID_PARAMETER);
        }
        let selected = selected.ok_or(Code::INVALID_PARAMETER)?;
        let refused = link::options().refused_field.code_for(kind);
        if refused != 0 && ids.contains(&refused) {
            return Err(Code::INVALID_PARAMETER);
        }
        let missing = link::options().without_field.code_for(kind);
        let kept = selected.into_iter().filter(|field| field.0 == 0 || missing != field.0);
        by_kind.insert(kind, Layout::new(kept));
        Ok(())
    }

    /// Converts a record of the first version, and the places of its times.
    pub(crate) fn convert(&self, record: &Record, pending: Option<PendingRecord>) -> (Record, Option<PendingRecord>) {
        let by_kind = self.by_kind.read().unwrap_or_else(PoisonError::into_inner);
        let Some(layout) = by_kind.get(&record.kind()) else { return (record.clone(), pending) };
        let mut converted = Record::zeros(layout.bytes);
        for ((_, from, bytes, _), at) in &layout.fields {
            if let Some(value) = record.bytes().get(*from..from + bytes) {
                converted = converted.put(*at, value);
            }
        }
        let pending = pending.and_then(|pending| {
            let start = pending.start.and_then(|start| layout.place_of(start));
            Some(PendingRecord { start, end: layout.place_of(pending.end)?, ..pending })
        });
        (converted, pending)
    }

    /// Returns the length of a record of a kind, if its fields were selected.
    pub(crate) fn length(&self, kind: u32) -> Option<usize> {
        self.by_kind.read().unwrap_or_else(PoisonError::into_inner).get(&kind).map(|layout| layout.bytes)
    }

    /// Calls `with` with the facts about a buffer.
    /// Kinds that are disabled have no layout.
    pub(crate) fn with_info(&self, activity: &Activity, with: impl FnOnce(*const BufferInfo)) {
        /// More than the number of any kind.
        const KINDS: usize = 64;
        let delivered = self.delivered.fetch_add(1, Ordering::Relaxed);
        let layouts = self.by_kind.read().unwrap_or_else(PoisonError::into_inner).clone();
        let fault = link::options().layout_fault;
        let entries: BTreeMap<_, Vec<FieldLayout>> = layouts
            .iter()
            .map(|(kind, layout)| {
                let entry = |((id, _, _, bytes), at): &(Field, usize)| FieldLayout {
                    size: size_of::<FieldLayout>(),
                    id: *id,
                    at: if fault == OUTSIDE && *id != 0 { usize::MAX } else { *at },
                    bytes: *bytes,
                    alignment: *bytes,
                };
                (*kind, layout.fields.iter().map(entry).collect())
            })
            .collect();
        let raw: Vec<_> = layouts
            .iter()
            .map(|(kind, layout)| {
                let fields = &entries[kind];
                let shrinks = usize::from(fault == CHANGING && delivered % 2 == 1);
                let field_count = fields.len() - shrinks;
                (*kind, RawLayout { size: 0, fields: fields.as_ptr(), field_count, record_bytes: layout.bytes })
            })
            .collect();
        let mut pointers = vec![std::ptr::null(); KINDS];
        for (kind, layout) in raw.iter().filter(|(kind, _)| activity.is_enabled(*kind)) {
            pointers[*kind as usize] = &raw const *layout;
        }
        let layout_count = if fault == ABSENT { 0 } else { pointers.len() };
        let info = BufferInfo { size: size_of::<BufferInfo>(), thread: 0, layouts: pointers.as_ptr(), layout_count };
        with(&raw const info);
    }
}

/// Values of the option `layout_fault`.
const ABSENT: u64 = 1;
const CHANGING: u64 = 2;
const OUTSIDE: u64 = 3;

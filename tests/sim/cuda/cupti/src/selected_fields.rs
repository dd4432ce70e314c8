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

/// Defines the function that returns the fields of each kind from rows: number, place in the first version and its bytes,
/// bytes in selected fields if they differ.
macro_rules! fields {
    ($($($kind:ident)|+: $($id:literal at $at:literal: $bytes:literal $(as $own:literal)?),+;)+) => {
        /// Returns the fields of a kind.
        fn fields_of(number: u32) -> &'static [Field] {
            match number {
                $($(kind::$kind)|+ => &[(0, 0, 4, 4), $(($id, $at, $bytes, fields!(@ $bytes $($own)?))),+],)+
                _ => &[],
            }
        }
    };
    (@ $bytes:literal) => { $bytes };
    (@ $bytes:literal $own:literal) => { $own };
}

fields! {
    KERNEL | CONCURRENT_KERNEL: 4 at 6: 2, 7 at 16: 8, 8 at 24: 8, 10 at 40: 4, 11 at 44: 4, 12 at 48: 4, 13 at 52: 4,
        14 at 56: 4, 15 at 60: 4, 16 at 64: 4, 17 at 68: 4, 18 at 72: 4, 19 at 76: 4, 20 at 80: 4, 22 at 92: 4 as 8,
        23 at 96: 8, 24 at 104: 8, 25 at 120: 8, 31 at 144: 8, 33 at 156: 4, 35 at 168: 4, 36 at 172: 4, 45 at 216: 4;
    MEMCPY: 1 at 4: 1, 2 at 5: 1, 3 at 6: 1, 4 at 7: 1, 5 at 8: 8, 6 at 16: 8, 7 at 24: 8, 8 at 32: 4, 9 at 36: 4,
        10 at 40: 4, 11 at 44: 4 as 8, 12 at 64: 8, 13 at 72: 4, 14 at 76: 4, 15 at 80: 4;
    MEMCPY2: 1 at 4: 1, 2 at 5: 1, 3 at 6: 1, 4 at 7: 1, 5 at 8: 8, 6 at 16: 8, 7 at 24: 8, 8 at 32: 4, 9 at 36: 4,
        10 at 40: 4, 11 at 44: 4, 12 at 48: 4, 13 at 52: 4, 14 at 56: 4, 15 at 60: 4 as 8, 16 at 72: 8, 17 at 80: 4,
        18 at 84: 4, 19 at 88: 4;
    MEMSET: 1 at 4: 4, 2 at 8: 8, 3 at 16: 8, 4 at 24: 8, 5 at 32: 4, 6 at 36: 4, 7 at 40: 4, 8 at 44: 4 as 8,
        9 at 48: 2, 10 at 50: 2, 11 at 64: 8, 12 at 72: 4, 13 at 76: 4, 14 at 80: 4;
    RUNTIME | DRIVER: 1 at 4: 4, 2 at 8: 8, 3 at 16: 8, 4 at 24: 4, 5 at 28: 4 as 8, 6 at 32: 4 as 8, 7 at 36: 4;
    EXTERNAL_CORRELATION: 1 at 4: 4, 2 at 8: 8, 3 at 16: 4 as 8;
    SYNCHRONIZATION: 1 at 4: 4, 2 at 8: 8, 3 at 16: 8, 4 at 24: 4 as 8, 5 at 28: 4, 6 at 32: 4, 7 at 36: 4 as 8;
    CUDA_EVENT: 1 at 4: 4 as 8, 2 at 8: 4, 3 at 12: 4, 4 at 16: 4 as 8, 5 at 24: 4, 6 at 40: 8;
    OVERHEAD: 1 at 4: 4, 4 at 24: 8, 5 at 32: 8;
    MEMORY2: 1 at 4: 4, 2 at 8: 4, 3 at 12: 4 as 8, 4 at 16: 8, 5 at 24: 8, 6 at 32: 8, 7 at 48: 4, 8 at 52: 4;
    GRAPH_TRACE: 1 at 4: 4 as 8, 2 at 8: 8, 3 at 16: 8, 4 at 24: 4, 5 at 28: 4, 6 at 32: 4, 7 at 36: 4;
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

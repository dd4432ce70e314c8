//! Memory timelines in PyTorch's formats: sizes by time, or row by row.

use crate::memory::Category;
use crate::memory::{MemoryRow, MemoryTimeline};
use std::io::{self, Write};

pub use super::picture::write_html;

/// Bytes by category.
pub(super) type Sizes = [i64; Category::ALL.len()];

/// Applies a row's changes to the sizes.
pub(super) fn apply_row(row: &MemoryRow, sizes: &mut Sizes) {
    row.changes(|category, bytes| {
        if let Some(size) = sizes.get_mut(usize::from(category.number())) {
            *size = size.saturating_add(bytes);
        }
    });
}

/// Writes `[times, sizes]`.
///
/// # Errors
/// Those of `out`.
pub fn write_json(timeline: &MemoryTimeline, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "[[")?;
    let mut separator = "";
    each_time(timeline, &mut |time, _| {
        write!(out, "{separator}{time}")?;
        separator = ", ";
        Ok(())
    })?;
    write!(out, "], [")?;
    separator = "";
    each_time(timeline, &mut |_, sizes| {
        write!(out, "{separator}[0")?;
        sizes.iter().try_for_each(|size| write!(out, ", {size}"))?;
        separator = ", ";
        write!(out, "]")
    })?;
    write!(out, "]]")?;
    out.flush()
}

/// Calls `each` with every microsecond that has events, and the sizes after it. Memory from before the recording comes
/// first, at the time of the first event.
fn each_time(timeline: &MemoryTimeline, each: &mut dyn FnMut(i64, &Sizes) -> io::Result<()>) -> io::Result<()> {
    let micros = |row: &MemoryRow| row.time.map(|time| i64::try_from(time.as_nanos() / 1000).unwrap_or(i64::MAX));
    let first = timeline.rows().iter().find_map(micros).unwrap_or(-1);
    let mut sizes = Sizes::default();
    for rows in timeline.rows().chunk_by(|a, b| micros(a) == micros(b)) {
        rows.iter().for_each(|row| apply_row(row, &mut sizes));
        each(rows.first().and_then(micros).unwrap_or(first), &sizes)?;
    }
    Ok(())
}

/// Writes the rows: time, action, signed bytes, category.
///
/// # Errors
/// Those of `out`.
pub fn write_raw(timeline: &MemoryTimeline, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "[")?;
    let mut separator = "";
    for row in timeline.rows() {
        let time = row.time.map_or(-1, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        let mut written = Ok(());
        row.changes(|category, bytes| {
            let (action, category) = (row.action.number(), category.number());
            let this = write!(out, "{separator}[{time}, {action}, {bytes}, {category}]");
            written = std::mem::replace(&mut written, Ok(())).and(this);
            separator = ", ";
        });
        written?;
    }
    write!(out, "]")?;
    out.flush()
}

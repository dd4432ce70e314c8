//! What a slice looks like to those who read it: its row, its times, its name and its external id, as libkineto has them.
//!
//! The writer of files and the events in memory both ask here, so that they agree.

use crate::activity::{Activity, ActivityType, CorrelationId, Lane, Track};
use crate::time::Timestamp;
use std::borrow::Cow;

/// By how much the number of a row of synchronizations is greater than its stream's, as in libkineto.
pub const SYNC_ROW: i64 = 1_000_000;

/// The row of a slice in the file: its own, but a synchronization with a stream has one beside the stream's.
#[inline]
pub fn drawn_on<'t>(activity: &Activity<'t>) -> Track<'t> {
    match activity.track {
        Track { process: Lane::Id(device), thread: Lane::Id(stream) }
            if activity.kind == ActivityType::CudaSync && activity.name == "Stream Sync" && stream < SYNC_ROW =>
        {
            Track::new(device, stream.saturating_add(SYNC_ROW))
        }
        track => track,
    }
}

/// The times of a slice in the file.
pub fn drawn(kind: ActivityType, start: Timestamp, end: Timestamp) -> (Timestamp, Timestamp) {
    let end = end.max(start);
    if kind != ActivityType::GpuUserAnnotation {
        return (start, end);
    }
    // One nanosecond wider on both sides, so that what it spans lies within, as in libkineto.
    let (early, late) = (start.as_nanos().saturating_sub(1), end.as_nanos().saturating_add(1));
    (Timestamp::from_nanos(early), Timestamp::from_nanos(late))
}

/// Undoes what [`drawn`] does to an annotation on a device.
pub fn before_drawn(start: Timestamp, end: Timestamp) -> (Timestamp, Timestamp) {
    let (late, early) = (start.as_nanos().saturating_add(1), end.as_nanos().saturating_sub(1));
    (Timestamp::from_nanos(late), Timestamp::from_nanos(early))
}

/// Returns the name that a slice has in the file.
///
/// TensorBoard takes every name that begins with `ProfilerStep#` for a step, and HTA every name with `ProfilerStep` in it.
/// Both refuse a file where no number follows, so only a step keeps that word; elsewhere it is `Profiler Step`. HTA compares
/// names up to their first U+0000 and can refuse a file with two that are equal up to there, so U+2400 stands for it.
pub fn shown_name(name: &str) -> Cow<'_, str> {
    match name {
        // As libkineto prints it.
        "kernel" => Cow::Borrowed("Kernel"),
        _ if is_step(name) || !name.contains(STEP) && !name.contains('\0') => Cow::Borrowed(name),
        _ => Cow::Owned(name.replace(STEP, "Profiler Step").replace('\0', "\u{2400}")),
    }
}

const STEP: &str = "ProfilerStep";

/// Returns whether the name is `ProfilerStep#` and a number.
fn is_step(name: &str) -> bool {
    let number = name.strip_prefix(STEP).and_then(|rest| rest.strip_prefix('#'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The "External id" of a slice: the host activity that launched it, else its own id.
pub fn external_id(activity: &Activity<'_>) -> Option<CorrelationId> {
    let own = if has_own_id(activity.kind) { activity.id } else { CorrelationId(0) };
    let id = if activity.linked == CorrelationId(0) { own } else { activity.linked };
    (id != CorrelationId(0)).then_some(id)
}

/// Whether a slice that nothing launched has its own id for its "External id": device activities and calls of a
/// runtime have not.
pub fn has_own_id(kind: ActivityType) -> bool {
    use ActivityType as T;

    !matches!(
        kind,
        T::GpuMemcpy
            | T::GpuMemset
            | T::ConcurrentKernel
            | T::CudaRuntime
            | T::CudaDriver
            | T::XpuRuntime
            | T::XpuDriver
            | T::PrivateUse1Runtime
            | T::PrivateUse1Driver
    )
}

//! The presentation of a slice in a file: its row, times, name and external id, as in libkineto.
//!
//! The writers and the events in memory both use these functions, so that they agree.

use crate::activity::{Activity, ActivityType, CorrelationId, Lane, Track};
use kineto_base::time::Timestamp;
use std::borrow::Cow;

/// The offset of a row for synchronizations from its stream's number, as in libkineto.
pub const SYNC_ROW: i64 = 1_000_000;

/// Returns the row of a slice in the file. A synchronization with a stream has a row next to the stream's.
#[inline]
pub fn track_in_file<'t>(activity: &Activity<'t>) -> Track<'t> {
    match activity.track {
        Track { process: Lane::Id(device), thread: Lane::Id(stream) }
            if activity.kind == ActivityType::CudaSync && activity.name == "Stream Sync" && stream < SYNC_ROW =>
        {
            Track::new(device, stream.saturating_add(SYNC_ROW))
        }
        track => track,
    }
}

/// Returns the times of a slice in the file.
pub fn times_in_file(kind: ActivityType, start: Timestamp, end: Timestamp) -> (Timestamp, Timestamp) {
    let end = end.max(start);
    if kind != ActivityType::GpuUserAnnotation {
        return (start, end);
    }
    // One nanosecond wider on both sides, as in libkineto, so that it contains all its work.
    let (early, late) = (start.as_nanos().saturating_sub(1), end.as_nanos().saturating_add(1));
    (Timestamp::from_nanos(early), Timestamp::from_nanos(late))
}

/// Reverts the effect of [`times_in_file`] on a device annotation.
pub fn without_margin(start: Timestamp, end: Timestamp) -> (Timestamp, Timestamp) {
    let (late, early) = (start.as_nanos().saturating_add(1), end.as_nanos().saturating_sub(1));
    (Timestamp::from_nanos(late), Timestamp::from_nanos(early))
}

/// Returns the name of a slice in the file.
///
/// TensorBoard takes every name that begins with `ProfilerStep#` for a step, and HTA every name that contains
/// `ProfilerStep`. Both reject a file if no number follows, so only steps keep that word; other names get `Profiler
/// Step`. HTA compares names up to their first U+0000, and may reject a file with two names that are equal up to there.
/// So U+2400 replaces it.
pub fn name_in_file(name: &str) -> Cow<'_, str> {
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

/// Returns the "External id" of a slice: the id of the host activity that launched it, else its own id.
pub fn external_id(activity: &Activity<'_>) -> Option<CorrelationId> {
    let own = if has_own_id(activity.kind) { activity.id } else { CorrelationId(0) };
    let id = if activity.linked == CorrelationId(0) { own } else { activity.linked };
    (id != CorrelationId(0)).then_some(id)
}

/// Returns whether a slice that was not launched has its own id as "External id". Device activities and runtime calls
/// have none.
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

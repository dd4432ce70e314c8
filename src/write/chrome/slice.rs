//! Slices: activities that last.

use std::io::Write;

use super::prefix::Key;
use super::{ChromeWriter, thread_id};
use crate::activity::{Activity, ActivityType, ArgValue, CorrelationId, Lane, Track};
use crate::time::Timestamp;

/// The rows beside streams on which synchronizations with them are drawn: those that have their names already.
#[derive(Debug, Default)]
pub(super) struct SyncRows(Vec<(i64, i64)>);

/// How far such a row lies from its stream's, as in libkineto.
const SYNC_ROW: i64 = 1_000_000;

const EXTERNAL_ID: &str = "External id";

impl<W: Write> ChromeWriter<W> {
    /// Writes a slice and returns the row where it is drawn.
    pub(super) fn slice<'t>(&mut self, activity: &Activity<'t>, start: Timestamp, end: Timestamp) -> Track<'t> {
        let track = self.row_of(activity, start);
        let annotation = activity.kind == ActivityType::GpuUserAnnotation;
        // One nanosecond wider on both sides, so that what it spans lies within, as in libkineto.
        let (early, wider) = if annotation { (1, 2) } else { (0, 0) };
        self.start_of_slice(activity, track, Timestamp::from_nanos(start.as_nanos().saturating_sub(early)));
        self.out.raw(b",\"dur\":");
        self.out.micros(end.since(start).saturating_add(wider));
        match external_id(activity) {
            None if activity.kind == ActivityType::Overhead => self.args_if_any(activity.args),
            None => {
                self.out.raw(b",\"args\":{");
                self.out.members(activity.args);
                self.out.raw(b"}");
            }
            Some(id) => {
                self.out.raw(b",\"args\":{\"External id\":");
                self.out.wide(id.0);
                let (out, skipped) = (&mut self.out, &mut self.skipped);
                activity.args.visit(&mut |key, value| match key {
                    EXTERNAL_ID => *skipped += 1,
                    _ => out.member(false, key, value),
                });
                self.out.raw(b"}");
            }
        }
        self.out.raw(b"},");
        track
    }

    /// Appends everything of a slice up to its time.
    #[inline]
    fn start_of_slice(&mut self, activity: &Activity<'_>, track: Track<'_>, at: Timestamp) {
        let kind = activity.kind;
        // As libkineto prints it.
        let name = if activity.name == "kernel" { "Kernel" } else { activity.name };
        if let Track { process: Lane::Id(process), thread: Lane::Id(thread) } = track {
            let key = Key { kind, name, process, thread: thread_id(thread) };
            self.prefixes.append(&mut self.out, key);
            self.time(at);
            return;
        }
        self.out.raw(b"\n{\"ph\":\"X\",\"cat\":\"");
        self.out.verbatim(kind.as_str());
        self.out.raw(b"\",\"name\":");
        self.out.string(name);
        self.out.raw(b",");
        self.place(track, at);
    }

    /// Returns the row of a slice: its own, but a synchronization with a stream has one beside the stream's, which gets
    /// its name when it is first used.
    #[inline]
    fn row_of<'t>(&mut self, activity: &Activity<'t>, at: Timestamp) -> Track<'t> {
        match activity.track {
            Track { process: Lane::Id(device), thread: Lane::Id(stream) }
                if activity.kind == ActivityType::CudaSync && activity.name == "Stream Sync" =>
            {
                self.sync_row(device, stream, at)
            }
            track => track,
        }
    }

    #[cold]
    fn sync_row(&mut self, device: i64, stream: i64, at: Timestamp) -> Track<'static> {
        let track = Track::new(device, stream.saturating_add(SYNC_ROW));
        if !self.sync_rows.0.contains(&(device, stream)) {
            self.sync_rows.0.push((device, stream));
            let name = format!("stream {stream} (sync)");
            self.about("thread_name", track, at, ("name", ArgValue::Str(&name)));
            self.about("thread_sort_index", track, at, ("sort_index", ArgValue::I64(stream)));
        }
        track
    }
}

/// The "External id" of a slice: the host activity that launched it, else its own id; device activities and calls of a
/// runtime have none of their own.
#[inline]
fn external_id(activity: &Activity<'_>) -> Option<CorrelationId> {
    use ActivityType as T;

    let id = if activity.linked != CorrelationId(0) {
        activity.linked
    } else {
        match activity.kind {
            T::GpuMemcpy
            | T::GpuMemset
            | T::ConcurrentKernel
            | T::CudaRuntime
            | T::CudaDriver
            | T::XpuRuntime
            | T::XpuDriver
            | T::PrivateUse1Runtime
            | T::PrivateUse1Driver => return None,
            _ => activity.id,
        }
    };
    (id != CorrelationId(0)).then_some(id)
}

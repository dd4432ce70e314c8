//! Slices: activities with a duration.

use super::{ChromeWriter, put_track};
use crate::activity::{Activity, ActivityType, ArgValue, Lane, Track};
use crate::layout::{external_id, name_in_file, times_in_file, track_in_file};
use crate::write::buffer::Buffer;
use crate::write::value::EXTERNAL_ID;
use kineto_base::time::Timestamp;

/// The rows of synchronizations with streams that already have a name.
#[derive(Debug, Default)]
pub(super) struct SyncRows(Vec<(i64, i64)>);

impl ChromeWriter<'_> {
    /// Writes a slice, and returns the row on which it is drawn.
    pub(super) fn put_slice<'t>(&mut self, activity: &Activity<'t>, start: Timestamp, end: Timestamp) -> Track<'t> {
        let track = self.row_of(activity, start);
        let (start, end) = times_in_file(activity.kind, start, end);
        let (from_base, lasted) = (start.since(self.base), end.since(start));
        let external = external_id(activity);
        start_of_slice(&mut self.out, activity.kind, activity.name);
        put_track(&mut self.out, track, self.keeps_tracks);
        self.out.put_piece(|piece| {
            piece.put_micros(from_base);
            piece.put_literal(b",\"dur\":");
            piece.put_micros(lasted);
            if let Some(id) = external {
                piece.put_literal(b",\"args\":{\"External id\":");
                piece.put_wide_uint(id.0);
            }
        });
        if external.is_some() {
            let (out, skipped) = (&mut self.out, &mut self.skipped);
            activity.args.visit(&mut |key, value| match key {
                EXTERNAL_ID => *skipped += 1,
                _ => out.put_member(false, key, &value),
            });
            self.out.put_literal(b"}},");
        } else if activity.kind == ActivityType::Overhead {
            self.args_if_any(activity.args);
            self.out.put_literal(b"},");
        } else {
            self.out.put_literal(b",\"args\":{");
            self.out.put_members(activity.args);
            self.out.put_literal(b"}},");
        }
        track
    }

    /// Returns the row of a slice. A synchronization with a stream is drawn next to the stream, on a row that is named
    /// on first use.
    #[inline]
    fn row_of<'t>(&mut self, activity: &Activity<'t>, at: Timestamp) -> Track<'t> {
        if self.keeps_tracks {
            return activity.track;
        }
        let track = track_in_file(activity);
        match activity.track {
            Track { process: Lane::Id(device), thread: Lane::Id(stream) } if track != activity.track => {
                self.name_sync_row(track, device, stream, at);
            }
            _ => {}
        }
        track
    }

    #[cold]
    fn name_sync_row(&mut self, track: Track<'_>, device: i64, stream: i64, at: Timestamp) {
        if !self.sync_rows.0.contains(&(device, stream)) {
            self.sync_rows.0.push((device, stream));
            let name = format!("stream {stream} (sync)");
            self.put_metadata_row("thread_name", track, at, ("name", ArgValue::Str(&name)));
            self.put_metadata_row("thread_sort_index", track, at, ("sort_index", ArgValue::I64(stream)));
        }
    }
}

/// Appends the beginning of a slice, including its name.
pub(super) fn start_of_slice(out: &mut Buffer<'_>, kind: ActivityType, name: &str) {
    out.put_literal(b"\n{\"ph\":\"X\",\"cat\":\"");
    out.put_verbatim(kind.as_str().as_bytes());
    out.put_literal(b"\",\"name\":");
    out.put_string(&name_in_file(name));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::activity::{Body, CorrelationId};
    use crate::write::chrome::Rows;
    use crate::write::chrome::tests::{HEADER, SLICE, lines, ns, of};

    #[test]
    fn slice_matches_byte_for_byte() {
        let args: [(&str, ArgValue<'_>); 2] = [("a", ArgValue::Str("b")), ("Ev Idx", ArgValue::I64(-1))];
        let expected = r#"{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":2,"ts":2.500,"dur":0.500,"args":{"External id":7,"a":"b","Ev Idx":-1}}"#;
        assert_eq!(of(Activity { args: &args, ..SLICE }), [expected]);
        let bare = r#"{"ph":"X","cat":"overhead","name":"op","pid":-1,"tid":2,"ts":2.500,"dur":0.500}"#;
        let overhead = Activity { kind: ActivityType::Overhead, id: CorrelationId(0), ..SLICE };
        assert_eq!(of(Activity { track: Track::new(-1, -2), ..overhead }), [bare]);
        assert!(of(Activity { args: &args, ..overhead })[0].ends_with(r#","args":{"a":"b","Ev Idx":-1}}"#));
    }

    #[test]
    fn names_that_readers_reject_are_replaced() {
        for (name, shown) in [
            ("ProfilerStep#7", "ProfilerStep#7"),
            ("ProfilerStep#x", "Profiler Step#x"),
            ("ProfilerStep#7 (again)", "Profiler Step#7 (again)"),
            ("ProfilerStep#", "Profiler Step#"),
            ("ProfilerStep#-1", "Profiler Step#-1"),
            ("ProfilerStep", "Profiler Step"),
            ("after ProfilerStep#7", "after Profiler Step#7"),
            ("\0a\0", "\u{2400}a\u{2400}"),
            ("", ""),
            ("step", "step"),
        ] {
            let event: Value = serde_json::from_str(&of(Activity { name, ..SLICE })[0]).unwrap();
            assert_eq!(event["name"], shown);
        }
    }

    #[test]
    fn times_are_clamped() {
        let odd = Activity { body: Body::Slice { start: ns(999), end: ns(998) }, ..SLICE };
        assert!(of(odd)[0].contains(r#""ts":0.000,"dur":0.000"#));
        let annotation = Activity { kind: ActivityType::GpuUserAnnotation, ..SLICE };
        assert!(of(annotation)[0].contains(r#""ts":2.499,"dur":0.502"#));
        assert!(of(Activity { body: odd.body, ..annotation })[0].contains(r#""ts":0.000,"dur":0.002"#));
    }

    #[test]
    fn every_kind_has_its_external_id() {
        let without = "gpu_memcpy gpu_memset kernel cuda_runtime cuda_driver xpu_runtime xpu_driver privateuse1_runtime \
                       privateuse1_driver";
        for number in 0..29 {
            let kind = ActivityType::from_number(number).unwrap();
            let id = |activity| {
                let event: Value = serde_json::from_str(&of(activity)[0]).unwrap();
                assert_eq!(event["cat"], kind.as_str());
                event["args"].get("External id").cloned()
            };
            let own = (!without.split_whitespace().any(|name| name == kind.as_str())).then(|| json!(7));
            assert_eq!(id(Activity { kind, ..SLICE }), own, "{kind:?}");
            assert_eq!(id(Activity { kind, linked: CorrelationId(9), ..SLICE }), Some(json!(9)), "{kind:?}");
            let large = Activity { kind, linked: CorrelationId(u64::MAX), ..SLICE };
            assert_eq!(id(large), Some(json!("18446744073709551615")), "{kind:?}");
            assert_eq!(id(Activity { kind, id: CorrelationId(0), ..SLICE }), None, "{kind:?}");
        }
    }

    #[test]
    fn own_external_id_replaces_arg_of_that_name() {
        let args: [(&str, ArgValue<'_>); 1] = [("External id", ArgValue::I64(1))];
        let mut file = Vec::new();
        let mut writer = ChromeWriter::new(&mut file, &HEADER).unwrap();
        writer.write_activity(&Activity { args: &args, ..SLICE }).unwrap();
        assert_eq!(writer.skipped, 1);
        assert!(of(Activity { args: &args, ..SLICE })[0].ends_with(r#""args":{"External id":7}}"#));
        let without = Activity { args: &args, id: CorrelationId(0), ..SLICE };
        assert!(of(without)[0].ends_with(r#""args":{"External id":1}}"#));
    }

    #[test]
    fn stream_synchronizations_have_separate_rows() {
        let sync = Activity { kind: ActivityType::CudaSync, name: "Stream Sync", track: Track::new(0, 7), ..SLICE };
        let written = lines(|writer| {
            writer.write_activity(&sync).unwrap();
            writer.write_activity(&sync).unwrap();
            writer.write_activity(&Activity { track: Track::new(0, 8), ..sync }).unwrap();
            writer.write_activity(&Activity { name: "Context Sync", ..sync }).unwrap();
            writer.write_activity(&Activity { kind: ActivityType::CpuOp, ..sync }).unwrap();
        });
        let tids: Vec<(Value, Value)> = written
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|event| (event["ph"].clone(), event["tid"].clone()))
            .collect();
        let (x, m) = (json!("X"), json!("M"));
        let [seven, eight] = [json!(1_000_007), json!(1_000_008)];
        let expected = [
            (m.clone(), seven.clone()),
            (m.clone(), seven.clone()),
            (x.clone(), seven.clone()),
            (x.clone(), seven),
            (m.clone(), eight.clone()),
            (m, eight.clone()),
            (x.clone(), eight),
            (x.clone(), json!(7)),
            (x, json!(7)),
        ];
        assert_eq!(tids, expected);
    }
}

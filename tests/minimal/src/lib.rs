//! Tests of builds without the features `devices` and `segments`. They are ignored there, since the features of the workspace's
//! other packages may join in. Run them alone, after those that leave files for them:
//!
//! ```sh
//! cargo test --package test-minimal --features devices,segments
//! cargo test --package test-minimal --features segments -- --ignored
//! cargo test --package test-minimal -- --ignored
//! ```

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use std::fs;
    use std::io;
    use tracing::info_span;
    use tracing_kineto::{Format, KinetoLayer, Trace};
    use tracing_subscriber::prelude::*;

    /// Returns the names of a trace's slices.
    fn slices(trace: &Trace) -> Vec<String> {
        let mut names = Vec::new();
        trace.for_each(|row| names.push(row.name.to_owned()));
        names
    }

    /// Returns the JSON of a trace.
    fn json(trace: &Trace) -> Value {
        let mut json = Vec::new();
        trace.write(&mut json, Format::Json).unwrap();
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    #[cfg_attr(not(feature = "devices"), ignore = "features of other packages may join in")]
    fn spans_are_written_without_devices() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("app.pt.trace.json.gz");
        let (layer, guard) = KinetoLayer::builder().output(&output).build().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            info_span!("outer").in_scope(|| info_span!("inner", n = 3).in_scope(|| ()));
        });
        let trace = guard.finish().unwrap();
        trace.save(&output).unwrap();
        assert!(fs::read(&output).unwrap().starts_with(&[0x1F, 0x8B]), "compressed");
        let stats = trace.stats();
        assert_eq!((slices(&trace), stats.slices), (vec!["outer".to_owned(), "inner".to_owned()], 2));
        if !cfg!(feature = "devices") {
            let collectors = &json(&trace)["tracing_kineto"]["collectors"];
            let why = "this build lacks tracing-kineto's feature `devices`; enable it in Cargo.toml";
            assert_eq!(*collectors, serde_json::json!({ "devices": { "unavailable": why } }));
            let error = trace.write(&mut Vec::new(), Format::Perfetto).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().contains("the feature \"perfetto\" is off; "), "{error}");
        }
    }

    #[cfg(not(feature = "segments"))]
    mod without_segments {
        use super::*;
        use std::sync::{Arc, Mutex};
        use tracing_kineto::{LogSink, Loss, Overflow};

        #[test]
        #[ignore = "features of other packages may join in"]
        fn keys_of_segments_are_ignored_with_a_warning() {
            let folder = tempfile::tempdir().unwrap();
            let (file, output) = (folder.path().join("kineto.conf"), folder.path().join("app.pt.trace.json"));
            fs::write(&file, "OVERFLOW=spill\nSPILL_DIR=/tmp\nSPLIT=10min\nSHM_DIR=/dev/shm\n").unwrap();
            let logged = Arc::new(Mutex::new(Vec::new()));
            let by_sink = logged.clone();
            let sink: LogSink = Arc::new(move |message| by_sink.lock().unwrap().push(message.text.to_string()));
            let (_layer, guard) =
                KinetoLayer::builder().config_file(&file).output(&output).log_sink(sink).build().unwrap();
            let logged = logged.lock().unwrap().join("\n");
            for setting in ["OVERFLOW=spill", "SPILL_DIR", "SPLIT", "SHM_DIR"] {
                let warning =
                    format!("{setting} needs tracing-kineto's feature `segments`, which is off; it is ignored");
                assert!(logged.contains(&warning), "{warning}: {logged}");
            }
            assert_eq!(json(&guard.finish().unwrap())["tracing_kineto"]["config"]["OVERFLOW"], "stop");
            assert_eq!(Overflow::ALL, [Overflow::Stop, Overflow::KeepNewest]);
        }

        #[test]
        #[ignore = "features of other packages may join in"]
        fn records_beyond_the_limit_are_counted() {
            const SPANS: u64 = 100_000;
            for overflow in Overflow::ALL {
                let folder = tempfile::tempdir().unwrap();
                let output = folder.path().join("app.pt.trace.json");
                let builder = KinetoLayer::builder().output(&output).overflow(*overflow).buffer_limit_bytes(1 << 20);
                let (layer, guard) = builder.build().unwrap();
                tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                    (0..SPANS).for_each(|_| info_span!("work").in_scope(|| ()));
                });
                let profiler = guard.profiler();
                let stats = profiler.snapshot().unwrap().stats();
                let lost =
                    stats.losses.iter().find(|(loss, _)| *loss == Loss::SlicesOverLimit).map_or(0, |(_, count)| *count);
                assert_eq!(stats.slices + stats.before_window + lost, SPANS, "{overflow:?}: {stats:?}");
                assert_eq!(lost > 0, *overflow == Overflow::Stop, "{overflow:?}: {stats:?}");
                drop(guard);
                let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
                assert_eq!(files, [output]);
            }
        }
    }

    #[cfg(feature = "segments")]
    mod with_segments {
        use super::*;
        use std::path::PathBuf;

        /// Where a build with devices leaves a file for one without.
        pub(super) fn left_file(name: &str) -> PathBuf {
            let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/minimal"));
            fs::create_dir_all(&folder).unwrap();
            folder.join(name)
        }

        #[test]
        #[cfg_attr(not(feature = "devices"), ignore = "features of other packages may join in")]
        fn segment_of_spans_is_read() {
            let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                info_span!("outer").in_scope(|| info_span!("inner").in_scope(|| ()));
            });
            let mut segment = Vec::new();
            guard.finish().unwrap().write_segment(1, &mut segment).unwrap();
            let again = Trace::read_segment_from(segment.as_slice(), "memory").unwrap();
            assert!(again.is_whole(), "{again}");
            assert_eq!(slices(&again.trace), ["outer", "inner"]);
        }

        #[test]
        #[cfg(not(feature = "devices"))]
        #[ignore = "features of other packages may join in"]
        fn records_of_devices_in_files_are_reported() {
            for name in ["devices.kseg", "devices.live"] {
                let file = fs::read(left_file(name)).expect("run the tests with the feature `devices` first");
                let segment = Trace::read_segment_from(file.as_slice(), name).unwrap();
                assert_eq!((segment.unread_collectors, segment.lost_frames), (1, 0), "{segment}");
                let lacks = "the records of 1 collector need tracing-kineto's feature `devices`, which is off";
                assert!(segment.to_string().contains(lacks), "{segment}");
                assert!(json(&segment.trace).to_string().contains(lacks));
                assert_eq!(slices(&segment.trace), ["step"]);
                let error = segment.trace.write_segment(1, &mut Vec::new()).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            }
        }
    }

    #[cfg(all(feature = "devices", feature = "segments"))]
    mod with_devices {
        use super::with_segments::left_file;
        use super::*;
        use std::sync::{Arc, Mutex};
        use std::time::{Instant, SystemTime, UNIX_EPOCH};
        use tracing_kineto::Timestamp;
        use tracing_kineto::activity::{ActivityType, ActivityTypes, ArgValue};
        use tracing_kineto::integration::{
            Capabilities, Collector, DeviceWork, RecordLayout, RecordSink, RecordView, Recording, Selection,
            Unavailable,
        };

        /// Records one kernel.
        #[derive(Clone, Debug, Default)]
        struct Device(Arc<Mutex<Option<RecordSink>>>);

        #[derive(Debug)]
        struct NoArgs;

        impl RecordLayout for NoArgs {
            fn visit(&self, _: &RecordView<'_>, _: &mut dyn FnMut(&str, ArgValue<'_>)) {}
        }

        impl Collector for Device {
            fn name(&self) -> &'static str {
                "device"
            }

            fn types(&self) -> ActivityTypes {
                ActivityType::ConcurrentKernel.into()
            }

            fn probe(&self) -> Result<Capabilities, Unavailable> {
                Ok(Capabilities::default())
            }

            fn start(
                &self,
                _: &Selection,
                sink: RecordSink,
            ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
                *self.0.lock().unwrap() = Some(sink);
                Ok((Capabilities::default(), Box::new(self.clone())))
            }
        }

        impl Recording for Device {
            fn stop(&self, _: Timestamp, _: Instant) {
                self.0.lock().unwrap().take();
            }
        }

        #[test]
        fn files_with_records_of_devices_are_left() {
            let shm = tempfile::tempdir_in("/dev/shm").unwrap();
            let device = Device::default();
            let builder = KinetoLayer::builder().no_output().buffer_limit_bytes(4 << 20).shm_folder(shm.path());
            let (layer, guard) = builder.collector(device.clone()).build().unwrap();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                info_span!("step").in_scope(|| {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
                    let now = u64::try_from(now).unwrap();
                    device.0.lock().unwrap().as_ref().unwrap().record(|batch| {
                        let name = batch.name("kernel");
                        let kind = ActivityType::ConcurrentKernel;
                        batch.work(&DeviceWork::new(kind, name, (0, 7), (now, now + 1000), &NoArgs));
                    });
                });
            });
            let live = fs::read_dir(shm.path()).unwrap().next().unwrap().unwrap().path();
            let copy = fs::read(&live).unwrap();
            let trace = guard.finish().unwrap();
            let mut segment = Vec::new();
            trace.write_segment(1, &mut segment).unwrap();
            for (name, file) in [("devices.kseg", segment), ("devices.live", copy)] {
                let read = Trace::read_segment_from(file.as_slice(), name).unwrap();
                assert_eq!((read.unread_collectors, read.trace.stats().device_activities), (0, 1), "{name}: {read}");
                fs::write(left_file(name), file).unwrap();
            }
        }
    }
}

//! Configuration keys: the selections that collectors get, and how files are written.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{Capabilities, RecordSink, Recording, Selection, Unavailable};
use tracing_kineto::{ActivityType, ActivityTypes, ErrorKind, KinetoLayer, Timestamp};

/// A collector that keeps the selection it was started with.
#[derive(Clone, Debug)]
struct SelectionSpy(Arc<Mutex<Option<Selection>>>);

impl Collector for SelectionSpy {
    fn name(&self) -> &'static str {
        "selection-spy"
    }
    fn types(&self) -> ActivityTypes {
        ActivityTypes::ALL
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }
    fn start(&self, selection: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        *self.0.lock().unwrap() = Some(selection.clone());
        Ok((Capabilities::default(), Box::new(self.clone())))
    }
}

impl Recording for SelectionSpy {
    fn stop(&self, _: Timestamp, _: Instant) {}
}

/// Returns the selection that a collector gets, without those of vendors, from a configuration file with that text.
fn selection_for(text: &str) -> Selection {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libkineto.conf");
    let disabled: String = support::disabling_keys().iter().map(|key| format!("{key}=1\n")).collect();
    fs::write(&file, disabled + text).unwrap();
    let selection = Arc::default();
    let builder = KinetoLayer::builder().no_output().config_file(file).collector(SelectionSpy(Arc::clone(&selection)));
    let (_layer, guard) = builder.build().unwrap();
    guard.finish().unwrap();
    let got = selection.lock().unwrap().take();
    got.unwrap()
}

// Shows the keys ACTIVITIES, CUPTI_PER_THREAD_BUFFER_ENABLED, XPUPTI_PROFILER_ENABLE_PER_KERNEL.
// Shows the keys XPUPTI_PROFILER_MAX_SCOPES, XPUPTI_PROFILER_DEVICES, CUSTOM_CONFIG.
#[test]
fn selection_follows_the_keys() {
    let usual = selection_for("");
    let selection = selection_for(
        "ACTIVITY_TYPES=kernel\nACTIVITIES=hpu\nACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=64\nCUSTOM_CONFIG=a=b;c",
    );
    let types = selection.types;
    assert!(types.contains(ActivityType::ConcurrentKernel) && types.contains(ActivityType::HpuOp));
    assert!(!types.contains(ActivityType::CpuOp) && usual.types.contains(ActivityType::CpuOp));
    assert_eq!((selection.buffer_bytes, usual.buffer_bytes), (64 << 20, 128 << 20));
    assert_eq!((selection.custom_config.as_str(), usual.custom_config.as_str()), ("a=b;c", ""));
}

#[test]
#[cfg(feature = "cuda")]
fn selection_follows_the_keys_of_cuda() {
    let usual = selection_for("");
    assert_eq!((usual.range.is_none(), usual.device_memory), (true, false));
    let keys = [
        "CUPTI_PER_THREAD_BUFFER_ENABLED",
        "CUPTI_EXCLUSIVE",
        "CUPTI_ALL_FIELDS",
        "CUPTI_HARDWARE_TIMES",
        "CUDA_GRAPH_TRACE",
        "TEARDOWN_CUPTI",
        "NVTX_RANGES",
    ];
    assert!(keys.iter().all(|key| !usual.options.flag(key)));
    let text = keys.map(|key| format!("{key}=1\n")).concat();
    let selection = selection_for(&format!("PROFILE_DEVICE_MEMORY=1\nCUDA_PROFILER_RANGE=1\n{text}"));
    assert!(selection.range.is_some() && selection.device_memory);
    assert!(keys.iter().all(|key| selection.options.flag(key)));
}

#[test]
#[cfg(feature = "rocm")]
fn selection_follows_the_keys_of_rocm() {
    let most = |text: &str| selection_for(text).options.number("ROCTRACER_MAX_EVENTS");
    assert_eq!((most(""), most("ROCTRACER_MAX_EVENTS=77")), (None, Some(77)));
}

#[test]
#[cfg(feature = "xpu")]
fn selection_follows_the_keys_of_xpu() {
    let options = selection_for(
        "XPUPTI_PROFILER_METRICS=GpuTime,XVE_ACTIVE\nXPUPTI_PROFILER_ENABLE_PER_KERNEL=1\n\
         XPUPTI_PROFILER_MAX_SCOPES=9\nXPUPTI_PROFILER_DEVICES=1",
    )
    .options;
    assert_eq!(options.list("XPUPTI_PROFILER_METRICS"), ["GpuTime", "XVE_ACTIVE"]);
    assert!(options.flag("XPUPTI_PROFILER_ENABLE_PER_KERNEL"));
    assert_eq!(options.number("XPUPTI_PROFILER_MAX_SCOPES"), Some(9));
    assert_eq!(options.list("XPUPTI_PROFILER_DEVICES"), ["1"]);
}

// Shows the key GZIP_LEVEL.
#[test]
#[cfg(feature = "gzip")]
fn gzip_level_follows_the_key() {
    use tracing_subscriber::prelude::*;
    let folder = tempfile::tempdir().unwrap();
    let size = |level: u32| {
        let file = folder.path().join("libkineto.conf");
        fs::write(&file, format!("GZIP_LEVEL={level}")).unwrap();
        let (layer, guard) = KinetoLayer::builder().no_output().config_file(file).build().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (0..1000).for_each(|_| tracing::info_span!("work").in_scope(|| ()));
        });
        let path = folder.path().join("trace.json.gz");
        guard.finish().unwrap().save(&path).unwrap();
        fs::metadata(path).unwrap().len()
    };
    let (not, hard) = (size(0), size(9));
    assert!(not > 3 * hard, "{not} {hard}");
}

#[test]
fn build_fails_when_an_output_name_has_an_unknown_part() {
    let folder = tempfile::tempdir().unwrap();
    let name = "{rank}-{pid}.json";
    let (_layer, guard) = KinetoLayer::builder().output(folder.path().join(name)).build().unwrap();
    guard.flush().unwrap();
    assert!(folder.path().join(format!("0-{}.json", std::process::id())).exists());
    drop(guard.finish());
    let error = KinetoLayer::builder().output(folder.path().join("{job}.json")).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("unknown placeholder {job}"), "{error}");
}

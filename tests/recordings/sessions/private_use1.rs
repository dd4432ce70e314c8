//! A backend outside of PyTorch's tree: its name, collector, observer and timer.

use serde_json::Value;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{File, layer, record_with};
use tracing::info_span;
use tracing_kineto::activity::{Accelerator, ArgValue, CorrelationId, DeviceType};
use tracing_kineto::analysis::{Event, Events};
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{
    ApiCall, Capabilities, DeviceTimer, DeviceWork, NotTimed, RecordLayout, RecordSink, RecordView, Recording,
    Selection, Thread, Token, Unavailable,
};
use tracing_kineto::{
    ActivityType, ActivityTypes, Devices, ErrorKind, Format, KinetoLayer, Mode, ObservedSpan, SpanObserver,
};

thread_local! {
    static PUSHED: Cell<u64> = const { Cell::new(0) };
}

/// The backend: a device whose work takes a microsecond, with a collector, an observer and a timer.
#[derive(Clone, Debug, Default)]
struct Npu(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sink: Mutex<Option<RecordSink>>,
    told: Mutex<Vec<String>>,
    clock: AtomicU64,
}

#[derive(Debug)]
struct Plain;

impl RecordLayout for Plain {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("correlation", ArgValue::U64(record.correlation));
    }
}

impl Npu {
    fn launch(&self, kernel: &str) {
        self.0.clock.fetch_add(1000, Ordering::Relaxed);
        let now = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
        let (start, end, external) = (now(), now() + 100, PUSHED.get());
        self.0.sink.lock().unwrap().as_ref().unwrap().record(|batch| {
            let (call, kernel) = (batch.name("npuLaunch"), batch.name(kernel));
            let call = ApiCall::new(ActivityType::PrivateUse1Runtime, call, Thread::Id(0), (start, end), &Plain);
            batch.call(&ApiCall { correlation: 7, external, launches: true, ..call });
            let work = DeviceWork::new(ActivityType::ConcurrentKernel, kernel, (0, 1), (end, end + 1000), &Plain);
            batch.work(&DeviceWork { correlation: 7, ..work });
        });
    }
}

impl Collector for Npu {
    fn name(&self) -> &'static str {
        "npu"
    }
    fn types(&self) -> ActivityTypes {
        ActivityTypes::from(ActivityType::ConcurrentKernel).with(ActivityType::PrivateUse1Runtime)
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let mut can = Capabilities::default();
        can.types = self.types();
        Ok(can)
    }
    fn start(&self, _: &Selection, sink: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        *self.0.sink.lock().unwrap() = Some(sink);
        Ok((Collector::probe(self)?, Box::new(self.clone())))
    }
}

impl Recording for Npu {
    fn push(&self, id: CorrelationId) -> bool {
        PUSHED.set(id.0);
        true
    }
    fn stop(&self, _: tracing_kineto::Timestamp, _: Instant) {
        self.0.sink.lock().unwrap().take();
    }
}

impl SpanObserver for Npu {
    fn name(&self) -> &'static str {
        "npu marks"
    }
    fn enter(&self, span: &ObservedSpan) {
        self.0.told.lock().unwrap().push(span.name().to_owned());
    }
    fn exit(&self, _: &ObservedSpan) {
        self.0.told.lock().unwrap().push("<".to_owned());
    }
}

impl DeviceTimer for Npu {
    fn name(&self) -> &'static str {
        "npu events"
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }
    fn record(&self) -> Result<Token, NotTimed> {
        Ok(Token { id: self.0.clock.load(Ordering::Relaxed), device: 0, stream: 1 })
    }
    fn has_passed(&self, _: Token) -> bool {
        true
    }
    fn elapsed(&self, from: Token, to: Token) -> Option<Duration> {
        to.id.checked_sub(from.id).map(Duration::from_nanos)
    }
    fn release(&self, _: Token) {}
}

#[test]
fn backend_registers_a_name_collector_observer_and_timer() {
    let npu = Npu::default();
    let types = ActivityTypes::DEFAULT.with(ActivityType::PrivateUse1Runtime);
    let file = record_with(
        |b| {
            let b = b.mode(Mode::KinetoPrivateUse1Fallback).activities(types);
            let devices = Devices::new().private_use1_name("npu").timer(npu.clone());
            b.collector(npu.clone()).observer(npu.clone()).devices(devices)
        },
        || {
            info_span!("op").in_scope(|| npu.launch("gemm"));
        },
    );
    assert_eq!(*npu.0.told.lock().unwrap(), ["op", "<"]);
    let cats: Vec<_> = file.events().filter(|event| event["ph"] == "X").map(|event| event["cat"].clone()).collect();
    for cat in ["cpu_op", "privateuse1_runtime", "kernel", "gpu_user_annotation"] {
        assert!(cats.contains(&Value::from(cat)), "{cat}: {cats:?}");
    }
    assert_eq!(file.json["privateuse1_backend_name"], "npu");
    let mut text = Vec::new();
    file.trace.write(&mut text, Format::Json).unwrap();
    for events in [file.trace.events(), Events::from_reader(text.as_slice()).unwrap()] {
        assert_eq!(
            (events.accelerator(), events.device_name(DeviceType::PrivateUse1)),
            (Accelerator::PrivateUse1, "npu")
        );
        assert_eq!(events.device_name(DeviceType::Cuda), "CUDA");
        let kinds: Vec<_> = events.iter().filter(Event::is_device_work).map(|work| work.device_type()).collect();
        assert_eq!(kinds, [Some(DeviceType::PrivateUse1)]);
        let averages = events.key_averages();
        let table = averages.table().to_string();
        assert!(table.contains("Self NPU") && !table.contains("PRIVATEUSE1") && !table.contains("CUDA"), "{table}");
        assert!(averages.to_json().contains("\"NPU\""));
    }
}

#[test]
fn backend_is_privateuse1_without_a_valid_name() {
    let npu = Npu::default();
    let types = ActivityTypes::DEFAULT.with(ActivityType::PrivateUse1Runtime);
    let file: File = record_with(|b| b.collector(npu.clone()).activities(types), || npu.launch("gemm"));
    assert!(file.json.get("privateuse1_backend_name").is_none());
    assert!(file.trace.events().key_averages().table().to_string().contains("Self PRIVATEUSE1"));
    for name in ["", "Npu", "7", "n p u", "cuda", "cpu", "xpu"] {
        let error = KinetoLayer::builder().devices(Devices::new().private_use1_name(name)).build().unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("\"npu\""), "{name}: {error}");
    }
    drop(layer(|b| b.devices(Devices::new().private_use1_name("privateuse1"))));
}

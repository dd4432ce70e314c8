//! A collector that the program defines, for scenarios with device records.

use std::sync::Mutex;
use std::time::Instant;
use tracing_kineto::activity::ActivityType;
use tracing_kineto::integration::{
    Capabilities, Collector, DeviceDescription, RecordLayout, RecordSink, RecordView, Recording, Selection, Unavailable,
};
use tracing_kineto::{ActivityTypes, ArgValue, Timestamp};

/// Takes the records that a scenario delivers; each scenario has a process.
pub(crate) static SINK: Mutex<Option<RecordSink>> = Mutex::new(None);

/// A collector whose records a scenario delivers.
#[derive(Clone, Debug)]
pub(crate) struct ToyCollector;

impl Collector for ToyCollector {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn types(&self) -> ActivityTypes {
        ActivityTypes::from(ActivityType::ConcurrentKernel).with(ActivityType::CudaDriver)
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let mut can = Capabilities::default();
        can.types = self.types();
        Ok(can)
    }
    fn start(&self, _: &Selection, sink: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        *SINK.lock().unwrap() = Some(sink);
        Ok((self.probe()?, Box::new(self.clone())))
    }
}

impl Recording for ToyCollector {
    fn stop(&self, _: Timestamp, _: Instant) {}
    fn devices(&self) -> Vec<DeviceDescription> {
        vec![DeviceDescription::new(0, "toy")]
    }
}

#[derive(Debug)]
pub(crate) struct NoArgs;

impl RecordLayout for NoArgs {
    fn visit(&self, _: &RecordView<'_>, _: &mut dyn FnMut(&str, ArgValue<'_>)) {}
}

#![doc = include_str!("../README.md")]

mod calibration;
mod encoder;
mod queries;
mod timestamps;

pub use encoder::TimedEncoder;
pub use timestamps::{Align, Timestamps};
pub use wgpu;

use rustix::time::{ClockId, clock_gettime};
use tracing_kineto::ActivityType;
use tracing_kineto::integration::{DeferredEvents, DeviceClock, DeviceDescription};
use wgpu::{Adapter, DeviceDescriptor, Features, RequestDeviceError};

/// A GPU in a trace; a cheap clone.
///
/// Pass its [collector](Gpu::collector) to the layer's builder, before or after the device is opened.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub(crate) events: DeferredEvents,
    number: i32,
    pub(crate) as_cuda: bool,
}

impl Gpu {
    /// Creates the GPU with that number in the trace, which no other collector's device should have.
    pub fn new(number: i32) -> Gpu {
        Gpu { events: DeferredEvents::with_cpu_clock("wgpu", monotonic), number, as_cuda: false }
    }

    /// Names the host's rows like CUDA's (`cudaLaunchKernel`, `cudaMemcpyAsync`, `cudaMemsetAsync`), the only names that
    /// HTA's queue lengths and critical path know as launches. Default: `compute_pass`, `render_pass` and `commands`, of a
    /// separate device.
    #[must_use]
    pub fn as_cuda(self) -> Gpu {
        self.events.set_call_type(ActivityType::CudaRuntime);
        Gpu { as_cuda: true, ..self }
    }

    /// Returns its collector, for the builder's `collector(…)`, and for the error of its times.
    pub fn collector(&self) -> DeferredEvents {
        self.events.clone()
    }

    /// Opens the adapter's device with the features for timestamps that the adapter has: `TIMESTAMP_QUERY` and
    /// `TIMESTAMP_QUERY_INSIDE_ENCODERS`, and on Vulkan the extension `VK_EXT_calibrated_timestamps`.
    ///
    /// # Errors
    /// Those of [`Adapter::request_device`].
    pub async fn open(
        &self,
        adapter: &Adapter,
        descriptor: &DeviceDescriptor<'_>,
        align: Align,
    ) -> Result<Timestamps, RequestDeviceError> {
        let wanted = Features::TIMESTAMP_QUERY | Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        let required_features = descriptor.required_features | (adapter.features() & wanted);
        let descriptor = DeviceDescriptor { required_features, ..descriptor.clone() };
        let calibrated = if align == Align::Best { calibration::open(adapter, &descriptor) } else { None };
        let (device, queue) = match calibrated {
            Some(opened) => opened,
            None => adapter.request_device(&descriptor).await?,
        };
        Ok(self.attach(adapter, device, queue, align))
    }

    /// Uses a device that is open already, such as a framework's: passes are timed if it has `TIMESTAMP_QUERY`, and
    /// calibrated if it was opened with `VK_EXT_calibrated_timestamps`.
    pub fn attach(&self, adapter: &Adapter, device: wgpu::Device, queue: wgpu::Queue, align: Align) -> Timestamps {
        let ticking = DeviceClock::ticking(f64::from(queue.get_timestamp_period()));
        self.events.set_clock(if align == Align::HostClock { DeviceClock::of_cpu() } else { ticking });
        let mut described = DeviceDescription::new(self.number, adapter.get_info().name);
        described.label = format!("GPU {} (wgpu)", self.number);
        self.events.set_device(described);
        Timestamps::new(self, device, queue, align)
    }
}

/// Reads CLOCK_MONOTONIC, in nanoseconds.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

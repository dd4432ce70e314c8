//! Extension points: collectors and their records, plugins, and activities from other sources.
//!
//! Programs that record spans and known GPUs need none of this: the builder selects the collectors.
//!
//! - A [`Collector`] records a device's work. [`DeferredEvents`] and [`EventTimers`] are collectors for devices that report
//!   times late or through events; [`trial`] tests one.
//! - [`plugin`] builds shared libraries that record an accelerator in programs without support for it.
//! - [`CpuTraceBuilder`] creates a [`Trace`](crate::Trace) of activities that another program measured.

pub use crate::collector::*;
pub use crate::trace::CpuTraceBuilder;

/// Plugins in Rust, for programs without support for the accelerator.
#[cfg(feature = "plugins")]
#[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
pub mod plugin {
    pub use crate::plugin::*;
}

//! For those who record accelerators of their own: collectors, their records, plugins, and activities from elsewhere.
//!
//! Programs that record spans and known GPUs need none of this: the builder selects the collectors.
//!
//! - [`Collector`] is what records a device's work. [`DeferredEvents`] and [`EventTimers`] are collectors for devices that report
//!   times late or through events; [`trial`] checks one.
//! - [`plugin`] makes shared libraries that record an accelerator for programs that do not know it.
//! - [`CpuTraceBuilder`] makes a [`Trace`](crate::Trace) of activities that another program measured.

pub use crate::collector::*;
pub use crate::trace::CpuTraceBuilder;

/// Plugins in Rust, for programs that do not know the accelerator.
#[cfg(feature = "plugins")]
#[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
pub mod plugin {
    pub use crate::plugin::*;
}

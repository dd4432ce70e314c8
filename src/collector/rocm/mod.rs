//! AMD's GPUs, through rocprofiler-sdk, or roctracer where that is not there.

mod hip;
mod ids;
mod launches;
mod sdk;
mod search;
mod shapes;
mod streams;
mod tracer;

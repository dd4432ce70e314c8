//! AMD's GPUs through rocprofiler-sdk.

mod agents;
mod arguments;
mod names;
mod reader;
mod records;

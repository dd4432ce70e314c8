//! The XPU collector on the simulated Level Zero and PTI.

mod faults;
mod pauses;
mod recording;
mod sessions;
mod telemetry;
mod versions;

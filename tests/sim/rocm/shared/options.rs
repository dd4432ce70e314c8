//! Options of the simulator: "key=value,key=value".

use sim_core::options::{EnableError, Text, Value};

sim_core::options! {
    // The machine.
    hip: i32 = 70_051_831;
    devices: u32 = 1;
    cpus: u32 = 1;
    name: Text = Text::new("Simulated GPU (no real device)");
    no_finish: Text = Text::new("");
    overlap: bool = false;
    repeat_correlation: u64 = 0;
    clock_skew_ns: i64 = 0;
    timestamp_zero: bool = false;
    // Registration.
    sdk: Version = Version { major: 1, minor: 0 };
    locked: bool = false;
    silent_late: bool = false;
    busy: bool = false;
    enable_error: EnableError<Service> = EnableError::NONE;
    start_error: i32 = 0;
    lying_agents: bool = false;
    shifted_operations: i32 = 0;
    // Records.
    drop: u64 = 0;
    garbage: u64 = 0;
    wrong_size: u64 = 0;
    unknown_kinds: u64 = 0;
    cut: u64 = 0;
    null_names: bool = false;
    // Delivery.
    late_buffers: u64 = 0;
    foreign_thread: bool = false;
    slow_flush: u64 = 0;
    hanging_flush: bool = false;
}

/// A version of rocprofiler-sdk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Value for Version {
    fn read(text: &str) -> Result<Self, String> {
        let (major, minor) = text.split_once('.').ok_or("no such version")?;
        Ok(Version { major: Value::read(major)?, minor: Value::read(minor)? })
    }
}

/// A service of the profilers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Service {
    Calls,
    Kernels,
    Copies,
    Code,
}

impl Value for Service {
    fn read(text: &str) -> Result<Self, String> {
        Ok(match text {
            "calls" => Service::Calls,
            "kernels" => Service::Kernels,
            "copies" => Service::Copies,
            "code" => Service::Code,
            _ => return Err("no such service".to_owned()),
        })
    }
}

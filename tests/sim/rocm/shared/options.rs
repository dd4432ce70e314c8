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
    push_error: i32 = 0;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_others_are_at_their_defaults() {
        let options =
            Options::parse(" sdk=0.5, no_finish=slow ,clock_skew_ns=-5,enable_error=7:copies,busy=1").unwrap();
        assert_eq!(options.sdk, Version { major: 0, minor: 5 });
        assert_eq!((options.no_finish.as_str(), options.clock_skew_ns), ("slow", -5));
        let code_for = |service| options.enable_error.code_for(service);
        assert_eq!((code_for(Service::Copies), code_for(Service::Code)), (7, 0));
        assert!(options.busy && !options.locked);
        assert_eq!((options.hip, options.devices), (70_051_831, 1));
    }

    #[test]
    fn errors_name_the_part_and_the_reason() {
        let error = |text: &str| Options::parse(text).unwrap_err();
        assert_eq!(error("busy"), "busy: no value");
        assert_eq!(error("devices=1,bussy=1"), "bussy=1: no such key");
        assert_eq!(error("busy=yes"), "busy=yes: neither 0 nor 1");
        assert_eq!(error("devices=-1"), "devices=-1: not a number that fits");
        assert_eq!(error("enable_error=3:all"), "enable_error=3:all: no such service");
    }
}

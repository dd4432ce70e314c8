//! Options of the simulator: "key=value,key=value".

use super::clock::now;
use sim_core::options::{EnableError, Text, Value};

sim_core::options! {
    cupti: CuptiVersion = CuptiVersion::named("13.0");
    driver: i32 = 13_000;
    devices: u32 = 1;
    /// The GPUs that the program may use, by their places in the machine, "1:0"; all by default.
    visible: Text = Text::new("");
    name: Text = Text::new("Simulated GPU (no real device)");
    busy: bool = false;
    privileges: bool = false;
    enable_error: EnableError<u32> = EnableError::NONE;
    push_error: i32 = 0;
    /// The result of recording an event.
    event_error: i32 = 0;
    /// The result of waiting for a context.
    synchronize_error: i32 = 0;
    /// How long that takes at least, in milliseconds.
    slow_synchronize: u64 = 0;
    drop: u64 = 0;
    late_buffers: u64 = 0;
    hanging_flush: bool = false;
    one_byte: bool = false;
    many_dropped: bool = false;
    mutate: u64 = 0;
    foreign_thread: bool = false;
    garbage: u64 = 0;
    unknown_kinds: u64 = 0;
    clock_skew_ns: i64 = 0;
    clock_step_ns: ClockStep = ClockStep::default();
    overlap: bool = false;
    repeat_correlation: u64 = 0;
    slow_callbacks: u64 = 0;
    slow_enable: u64 = 0;
    no_finish: Text = Text::new("");
    early_kernels_ns: u64 = 0;
    timestamp_zero: bool = false;
    nested_driver: bool = false;
    /// Runtime calls begin without a context.
    late_context: bool = false;
    inside_init: bool = false;
    shared_timestamp_error: i32 = 0;
    /// No GPU but Blackwell and later has it.
    hardware_times_error: i32 = 27;
    without_field: EnableError<u32> = EnableError::NONE;
    refused_field: EnableError<u32> = EnableError::NONE;
    layout_fault: u64 = 0;
    /// Ten times the compute capability.
    capability: i32 = 90;
    pm_error: EnableError<u32> = EnableError::NONE;
    pm_level: u32 = 0;
    pm_image: u64 = 0;
    pm_overflow: u64 = 0;
    pm_overflow_flag: u64 = 0;
    pm_nan: u64 = 0;
    pm_backwards: u64 = 0;
    pm_frozen: u32 = 0;
    pm_lying: bool = false;
    pm_hang: bool = false;
    range_error: EnableError<u32> = EnableError::NONE;
    range_stop_error: i32 = 0;
    /// The result of enabling the callback of a call, or of all.
    callback_error: EnableError<u32> = EnableError::NONE;
    /// How long the launch of a measured kernel takes at least, in milliseconds.
    slow_launch: u64 = 0;
    range_fault: u32 = 0;
}

sim_core::versions! {
    /// A version of CUPTI, with the number that `cuptiGetVersion` gives.
    CuptiVersion: u32, "no such version of CUPTI";
    "11.7" = 17;
    "11.8" = 18;
    "12.0" = 18;
    "12.1" = 18;
    "12.2" = 20;
    "12.3" = 21;
    "12.4" = 22;
    "12.5" = 23;
    "12.6" = 24;
    "12.8" = 26;
    "12.9" = 28;
    "13.0" = 130_001;
    "13.1" = 130_101;
    "13.2" = 130_202;
    "13.3" = 130_301;
    "13.4" = 130_401;
    "13.5" = 130_500;
}

/// A step of the clock: `ns:ms`, by how much, and how long after the options were read.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ClockStep {
    pub(crate) ns: i64,
    pub(crate) after_ms: u64,
    /// When the options were read.
    pub(crate) since: u64,
}

impl Value for ClockStep {
    fn read(text: &str) -> Result<ClockStep, String> {
        let (ns, after_ms) = text.split_once(':').unwrap_or((text, "0"));
        Ok(ClockStep { ns: Value::read(ns)?, after_ms: Value::read(after_ms)?, since: now() })
    }
}

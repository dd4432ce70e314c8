//! Options of the simulator: "key=value,key=value".

use sim_core::options::{EnableError, Text, Value};

sim_core::options! {
    pti: PtiVersion = PtiVersion::named("1.2");
    driver: bool = true;
    driver_api: LevelZeroVersion = LevelZeroVersion { minor: 13 };
    devices: u32 = 1;
    name: Text = Text::new("Simulated Intel GPU (no real device)");
    vendor: u32 = 0x8086;
    device_type: u32 = 1;
    callbacks_error: u32 = 0;
    enable_error: EnableError<u32> = EnableError::NONE;
    push_error: u32 = 0;
    flush_error: u32 = 0;
    scope_error: u32 = 0;
    drop: u64 = 0;
    garbage: u64 = 0;
    unknown_kinds: u64 = 0;
    longer_records: usize = 0;
    cut_buffers: bool = false;
    late_buffers: u64 = 0;
    foreign_thread: bool = true;
    slow_callbacks: u64 = 0;
    slow_flush: u64 = 0;
    hanging_flush: bool = false;
    clock_skew_ns: i64 = 0;
    early_kernels_ns: u64 = 0;
    timestamp_zero: bool = false;
    overlap: bool = false;
    repeat_correlation: u64 = 0;
    no_finish: Text = Text::new("");
    unknown_uuid: bool = false;
    null_names: bool = false;
    // Sysman.
    sysman_init_error: u32 = 0;
    sysman_missing: Text = Text::new("");
    sysman_hang: bool = false;
    sysman_reasons: u32 = 0;
}

sim_core::versions! {
    /// A version of PTI, with the numbers that `ptiVersion` gives. There is no 2.0: it represents a later version.
    PtiVersion: [u32; 3], "no such version of PTI";
    "0.10" = [0, 10, 3];
    "0.11" = [0, 11, 0];
    "0.12" = [0, 12, 4];
    "0.13" = [0, 13, 1];
    "0.14" = [0, 14, 0];
    "0.15" = [0, 15, 0];
    "0.16" = [0, 16, 0];
    "0.17" = [0, 17, 0];
    "1.0" = [1, 0, 0];
    "1.1" = [1, 1, 0];
    "1.2" = [1, 2, 0];
    "2.0" = [2, 0, 0];
}

/// The version of Level Zero that the driver speaks: "1.minor".
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LevelZeroVersion {
    pub(crate) minor: u32,
}

impl Value for LevelZeroVersion {
    fn read(text: &str) -> Result<LevelZeroVersion, String> {
        let minor = text.strip_prefix("1.").ok_or("no version of Level Zero")?;
        Ok(LevelZeroVersion { minor: Value::read(minor)? })
    }
}

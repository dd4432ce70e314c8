//! The options of the simulator: "key=value,key=value".

#[path = "../../shared/settings.rs"]
mod settings;

use settings::{number, switch};

/// What the simulated machine is like, and its faults. README.md describes each key.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Index into [`VERSIONS`].
    pub(crate) pti: usize,
    pub(crate) driver: bool,
    /// The minor version of Level Zero that the driver speaks.
    pub(crate) driver_api: u32,
    pub(crate) devices: u32,
    pub(crate) name: String,
    pub(crate) vendor: u32,
    pub(crate) device_type: u32,
    pub(crate) callbacks_error: u32,
    /// A result code and the kind of view whose enabling fails with it; none is every kind.
    pub(crate) enable_error: u32,
    pub(crate) enable_error_kind: Option<u32>,
    pub(crate) push_error: u32,
    pub(crate) clock_error: u32,
    pub(crate) flush_error: u32,
    pub(crate) scope_error: u32,
    pub(crate) drop: u64,
    pub(crate) garbage: u64,
    pub(crate) unknown_kinds: u64,
    pub(crate) longer_records: usize,
    pub(crate) cut_buffers: bool,
    pub(crate) late_buffers_ms: u64,
    pub(crate) foreign_thread: bool,
    pub(crate) slow_callbacks_ms: u64,
    pub(crate) slow_flush_ms: u64,
    pub(crate) hanging_flush: bool,
    pub(crate) clock_skew_ns: i64,
    pub(crate) early_kernels_ns: u64,
    pub(crate) timestamp_zero: bool,
    pub(crate) overlap: bool,
    pub(crate) repeat_correlation: u32,
    pub(crate) no_finish: String,
    pub(crate) unknown_uuid: bool,
    pub(crate) null_names: bool,
}

/// The versions of PTI that can be asked for, with what `ptiVersion` gives. There is no 2.0; it stands for what comes.
pub(crate) const VERSIONS: [(&str, [u32; 3]); 12] = [
    ("0.10", [0, 10, 3]),
    ("0.11", [0, 11, 0]),
    ("0.12", [0, 12, 4]),
    ("0.13", [0, 13, 1]),
    ("0.14", [0, 14, 0]),
    ("0.15", [0, 15, 0]),
    ("0.16", [0, 16, 0]),
    ("0.17", [0, 17, 0]),
    ("1.0", [1, 0, 0]),
    ("1.1", [1, 1, 0]),
    ("1.2", [1, 2, 0]),
    ("2.0", [2, 0, 0]),
];

/// The index of the version of that name.
pub(crate) fn version(name: &str) -> Option<usize> {
    VERSIONS.iter().position(|(known, _)| *known == name)
}

impl Default for Options {
    fn default() -> Options {
        Options {
            pti: version("1.2").unwrap_or_default(),
            driver: true,
            driver_api: 13,
            devices: 1,
            name: "Simulated Intel GPU (no real device)".to_owned(),
            vendor: 0x8086,
            device_type: 1,
            callbacks_error: 0,
            enable_error: 0,
            enable_error_kind: None,
            push_error: 0,
            clock_error: 0,
            flush_error: 0,
            scope_error: 0,
            drop: 0,
            garbage: 0,
            unknown_kinds: 0,
            longer_records: 0,
            cut_buffers: false,
            late_buffers_ms: 0,
            foreign_thread: true,
            slow_callbacks_ms: 0,
            slow_flush_ms: 0,
            hanging_flush: false,
            clock_skew_ns: 0,
            early_kernels_ns: 0,
            timestamp_zero: false,
            overlap: false,
            repeat_correlation: 0,
            no_finish: String::new(),
            unknown_uuid: false,
            null_names: false,
        }
    }
}

impl Options {
    /// Reads "key=value,key=value"; what is not named is as by default.
    ///
    /// # Errors
    /// An unknown key or a value that does not fit it.
    pub(crate) fn parse(text: &str) -> Result<Options, String> {
        let mut options = Options::default();
        settings::each(text, |key, value| options.set(key, value))?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "pti" => self.pti = version(value).ok_or("no such version of PTI")?,
            "driver" => self.driver = switch(value)?,
            "driver_api" => {
                let minor = value.strip_prefix("1.").ok_or("no version of Level Zero")?;
                self.driver_api = number(minor)?;
            }
            "devices" => self.devices = number(value)?,
            "name" => self.name = value.to_owned(),
            "vendor" => self.vendor = number(value)?,
            "device_type" => self.device_type = number(value)?,
            "callbacks_error" => self.callbacks_error = number(value)?,
            "enable_error" => {
                let (code, kind) = value.split_once(':').map_or((value, None), |(code, kind)| (code, Some(kind)));
                (self.enable_error, self.enable_error_kind) = (number(code)?, kind.map(number).transpose()?);
            }
            "push_error" => self.push_error = number(value)?,
            "clock_error" => self.clock_error = number(value)?,
            "flush_error" => self.flush_error = number(value)?,
            "scope_error" => self.scope_error = number(value)?,
            "drop" => self.drop = number(value)?,
            "garbage" => self.garbage = number(value)?,
            "unknown_kinds" => self.unknown_kinds = number(value)?,
            "longer_records" => self.longer_records = number(value)?,
            "cut_buffers" => self.cut_buffers = switch(value)?,
            "late_buffers" => self.late_buffers_ms = number(value)?,
            "foreign_thread" => self.foreign_thread = switch(value)?,
            "slow_callbacks" => self.slow_callbacks_ms = number(value)?,
            "slow_flush" => self.slow_flush_ms = number(value)?,
            "hanging_flush" => self.hanging_flush = switch(value)?,
            "clock_skew_ns" => self.clock_skew_ns = number(value)?,
            "early_kernels_ns" => self.early_kernels_ns = number(value)?,
            "timestamp_zero" => self.timestamp_zero = switch(value)?,
            "overlap" => self.overlap = switch(value)?,
            "repeat_correlation" => self.repeat_correlation = number(value)?,
            "no_finish" => self.no_finish = value.to_owned(),
            "unknown_uuid" => self.unknown_uuid = switch(value)?,
            "null_names" => self.null_names = switch(value)?,
            _ => return Err("no such key".to_owned()),
        }
        Ok(())
    }

    /// Whether PTI is at least of that version.
    pub(crate) fn since(&self, name: &str) -> bool {
        version(name).is_some_and(|first| first <= self.pti)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_the_rest_is_default() {
        let options =
            Options::parse(" pti=0.17, no_finish=slow ,clock_skew_ns=-5,enable_error=51:6,driver=0,driver_api=1.2");
        let options = options.unwrap();
        assert_eq!(VERSIONS[options.pti], ("0.17", [0, 17, 0]));
        assert_eq!((options.no_finish.as_str(), options.clock_skew_ns), ("slow", -5));
        assert_eq!((options.enable_error, options.enable_error_kind), (51, Some(6)));
        assert_eq!(Options::parse("enable_error=51").unwrap().enable_error_kind, None);
        assert_eq!(options.driver_api, 2);
        assert!(!options.driver && options.foreign_thread);
        assert_eq!((options.vendor, options.devices), (0x8086, 1));
        assert!(options.since("0.12") && options.since("0.17") && !options.since("1.0"));
    }

    #[test]
    fn errors_name_the_part_and_the_reason() {
        let error = |text: &str| Options::parse(text).unwrap_err();
        assert_eq!(error("driver"), "driver: no value");
        assert_eq!(error("devices=1,drivr=1"), "drivr=1: no such key");
        assert_eq!(error("driver=no"), "driver=no: neither 0 nor 1");
        assert_eq!(error("devices=-1"), "devices=-1: not a number that fits");
        assert_eq!(error("pti=0.9"), "pti=0.9: no such version of PTI");
    }
}

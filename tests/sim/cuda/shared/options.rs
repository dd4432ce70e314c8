//! The options of the simulator: "key=value,key=value".

#[path = "../../shared/settings.rs"]
mod settings;

use settings::{Text, number, switch};

/// What the simulated machine is like, and its faults. README.md describes each key.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Options {
    /// When these options came into force, by the true clock.
    pub(crate) configured_at: u64,
    /// Index into [`VERSIONS`].
    pub(crate) cupti: usize,
    pub(crate) driver: i32,
    pub(crate) devices: u32,
    pub(crate) name: Text,
    pub(crate) busy: bool,
    pub(crate) privileges: bool,
    /// A result code and the kind of activity whose enabling fails with it; -1 is every kind.
    pub(crate) enable_error: i32,
    pub(crate) enable_error_kind: i64,
    pub(crate) push_error: i32,
    /// What recording an event returns.
    pub(crate) event_error: i32,
    pub(crate) drop: u64,
    pub(crate) late_buffers_ms: u64,
    pub(crate) hanging_flush: bool,
    pub(crate) one_byte: bool,
    pub(crate) many_dropped: bool,
    pub(crate) mutate: u64,
    pub(crate) foreign_thread: bool,
    pub(crate) garbage: u64,
    pub(crate) unknown_kinds: u64,
    pub(crate) clock_skew_ns: i64,
    pub(crate) clock_step_ns: i64,
    pub(crate) clock_step_after_ms: u64,
    pub(crate) overlap: bool,
    pub(crate) repeat_correlation: u32,
    pub(crate) slow_callbacks_ms: u64,
    pub(crate) no_finish: Text,
    pub(crate) early_kernels_ns: u64,
    pub(crate) timestamp_zero: bool,
    pub(crate) nested_driver: bool,
    pub(crate) inside_init: bool,
}

/// The versions of CUPTI that can be asked for, each with the number that `cuptiGetVersion` gives.
pub(crate) const VERSIONS: [(&str, u32); 16] = [
    ("11.7", 17),
    ("11.8", 18),
    ("12.0", 18),
    ("12.1", 18),
    ("12.2", 20),
    ("12.3", 21),
    ("12.4", 22),
    ("12.5", 23),
    ("12.6", 24),
    ("12.8", 26),
    ("12.9", 28),
    ("13.0", 130_001),
    ("13.1", 130_101),
    ("13.2", 130_202),
    ("13.3", 130_301),
    ("13.4", 130_401),
];

/// The index of the version of that name.
pub(crate) fn version(name: &str) -> Option<usize> {
    VERSIONS.iter().position(|(known, _)| *known == name)
}

impl Default for Options {
    fn default() -> Options {
        Options {
            configured_at: 0,
            cupti: version("13.0").unwrap_or_default(),
            driver: 13_000,
            devices: 1,
            name: Text::new("Simulated GPU (no real device)"),
            busy: false,
            privileges: false,
            enable_error: 0,
            enable_error_kind: -1,
            push_error: 0,
            event_error: 0,
            drop: 0,
            late_buffers_ms: 0,
            hanging_flush: false,
            one_byte: false,
            many_dropped: false,
            mutate: 0,
            foreign_thread: false,
            garbage: 0,
            unknown_kinds: 0,
            clock_skew_ns: 0,
            clock_step_ns: 0,
            clock_step_after_ms: 0,
            overlap: false,
            repeat_correlation: 0,
            slow_callbacks_ms: 0,
            no_finish: Text::new(""),
            early_kernels_ns: 0,
            timestamp_zero: false,
            nested_driver: false,
            inside_init: false,
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
            "cupti" => self.cupti = version(value).ok_or("no such version of CUPTI")?,
            "driver" => self.driver = number(value)?,
            "devices" => self.devices = number(value)?,
            "name" => self.name = Text::new(value),
            "busy" => self.busy = switch(value)?,
            "privileges" => self.privileges = switch(value)?,
            "enable_error" => {
                let (code, kind) = value.split_once(':').unwrap_or((value, "-1"));
                (self.enable_error, self.enable_error_kind) = (number(code)?, number(kind)?);
            }
            "push_error" => self.push_error = number(value)?,
            "event_error" => self.event_error = number(value)?,
            "drop" => self.drop = number(value)?,
            "late_buffers" => self.late_buffers_ms = number(value)?,
            "hanging_flush" => self.hanging_flush = switch(value)?,
            "one_byte" => self.one_byte = switch(value)?,
            "many_dropped" => self.many_dropped = switch(value)?,
            "mutate" => self.mutate = number(value)?,
            "foreign_thread" => self.foreign_thread = switch(value)?,
            "garbage" => self.garbage = number(value)?,
            "unknown_kinds" => self.unknown_kinds = number(value)?,
            "clock_skew_ns" => self.clock_skew_ns = number(value)?,
            "clock_step_ns" => {
                let (step, after) = value.split_once(':').unwrap_or((value, "0"));
                (self.clock_step_ns, self.clock_step_after_ms) = (number(step)?, number(after)?);
            }
            "overlap" => self.overlap = switch(value)?,
            "repeat_correlation" => self.repeat_correlation = number(value)?,
            "slow_callbacks" => self.slow_callbacks_ms = number(value)?,
            "no_finish" => self.no_finish = Text::new(value),
            "early_kernels_ns" => self.early_kernels_ns = number(value)?,
            "timestamp_zero" => self.timestamp_zero = switch(value)?,
            "nested_driver" => self.nested_driver = switch(value)?,
            "inside_init" => self.inside_init = switch(value)?,
            _ => return Err("no such key".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_the_rest_is_default() {
        let options =
            Options::parse(" cupti=12.4, no_finish=slow ,clock_step_ns=-5:20,enable_error=7:38,busy=1").unwrap();
        assert_eq!(VERSIONS[options.cupti], ("12.4", 22));
        assert_eq!(options.no_finish.as_str(), "slow");
        assert_eq!((options.clock_step_ns, options.clock_step_after_ms), (-5, 20));
        assert_eq!((options.enable_error, options.enable_error_kind), (7, 38));
        assert!(options.busy && !options.privileges);
        assert_eq!((options.driver, options.devices), (13_000, 1));
    }

    #[test]
    fn errors_name_the_part_and_the_reason() {
        let error = |text: &str| Options::parse(text).unwrap_err();
        assert_eq!(error("busy"), "busy: no value");
        assert_eq!(error("devices=1,bussy=1"), "bussy=1: no such key");
        assert_eq!(error("busy=yes"), "busy=yes: neither 0 nor 1");
        assert_eq!(error("devices=-1"), "devices=-1: not a number that fits");
        assert_eq!(error("cupti=12.7"), "cupti=12.7: no such version of CUPTI");
    }
}

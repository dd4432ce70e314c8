//! The options of the simulator: "key=value,key=value".

#[path = "../../shared/settings.rs"]
mod settings;

use settings::{Text, number, switch};

macro_rules! options {
    ($($name:ident: $type:ty = $default:expr;)+) => {
        /// What the simulated machine is like, and its faults. README.md describes each key.
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub(crate) struct Options { $(pub(crate) $name: $type,)+ }

        impl Default for Options {
            fn default() -> Options {
                Options { $($name: $default,)+ }
            }
        }

        impl Options {
            fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
                match key {
                    $(stringify!($name) => self.$name = Value::read(value)?,)+
                    _ => return Err("no such key".to_owned()),
                }
                Ok(())
            }
        }
    };
}

options! {
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
    enable_error: Failure = Failure { code: 0, what: ANYTHING };
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

    /// What enabling a service comes to: the code that the options ask for, else 0.
    pub(crate) fn enabling(&self, what: u32) -> i32 {
        let Failure { code, what: fails } = self.enable_error;
        if fails == what || fails == ANYTHING { code } else { 0 }
    }
}

/// A version of rocprofiler-sdk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// A result code and the service whose enabling fails with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Failure {
    code: i32,
    what: u32,
}

/// Services of the profilers, as options name them.
pub(crate) const ANYTHING: u32 = 0;
pub(crate) const CALLS: u32 = 1;
pub(crate) const KERNELS: u32 = 2;
pub(crate) const COPIES: u32 = 3;
pub(crate) const CODE: u32 = 4;

/// A value as a user writes it.
trait Value: Sized {
    fn read(text: &str) -> Result<Self, String>;
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                number(text)
            }
        }
    )+};
}

numbers!(i32, u32, i64, u64);

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        switch(text)
    }
}

impl Value for Text {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Text::new(text))
    }
}

impl Value for Version {
    fn read(text: &str) -> Result<Self, String> {
        let (major, minor) = text.split_once('.').ok_or("no such version")?;
        Ok(Version { major: Value::read(major)?, minor: Value::read(minor)? })
    }
}

impl Value for Failure {
    fn read(text: &str) -> Result<Self, String> {
        let (code, what) = text.split_once(':').unwrap_or((text, "anything"));
        let what = match what {
            "anything" => ANYTHING,
            "calls" => CALLS,
            "kernels" => KERNELS,
            "copies" => COPIES,
            "code" => CODE,
            _ => return Err("no such service".to_owned()),
        };
        Ok(Failure { code: Value::read(code)?, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_the_rest_is_default() {
        let options =
            Options::parse(" sdk=0.5, no_finish=slow ,clock_skew_ns=-5,enable_error=7:copies,busy=1").unwrap();
        assert_eq!(options.sdk, Version { major: 0, minor: 5 });
        assert_eq!((options.no_finish.as_str(), options.clock_skew_ns), ("slow", -5));
        assert_eq!((options.enabling(COPIES), options.enabling(CODE)), (7, 0));
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

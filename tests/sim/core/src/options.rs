//! The options of a simulator as text: "key=value,key=value".

use crate::ffi::{StaticPointer, read_text};
use std::ffi::c_char;
use std::sync::Once;

/// Declares `Options`, the options of a machine: the name of each field is the key.
#[macro_export]
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr;)+) => {
        /// The properties of the simulated machine, and its faults. README.md describes each key.
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub(crate) struct Options { $($(#[$doc])* pub(crate) $name: $type,)+ }

        impl Default for Options {
            fn default() -> Options {
                Options { $($name: $default,)+ }
            }
        }

        impl Options {
            /// Reads "key=value,key=value". Keys without a value get their default.
            ///
            /// # Errors
            /// A key is unknown, or a value does not fit it.
            pub(crate) fn parse(text: &str) -> Result<Options, String> {
                let mut options = Options::default();
                $crate::options::read_pairs(text, |key, value| {
                    match key {
                        $(stringify!($name) => options.$name = $crate::options::Value::read(value)?,)+
                        _ => return Err("no such key".to_owned()),
                    }
                    Ok(())
                })?;
                Ok(options)
            }
        }
    };
}

/// Declares the versions of a library that options can name, from the oldest to the newest.
#[macro_export]
macro_rules! versions {
    ($(#[$doc:meta])* $version:ident: $number:ty, $missing:literal; $($name:literal = $value:expr;)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(transparent)]
        pub(crate) struct $version(pub(crate) usize);

        impl $version {
            /// The names, each with the number that the library reports.
            pub(crate) const ALL: &[(&str, $number)] = &[$(($name, $value)),+];

            /// Returns the version of that name, which must exist.
            pub(crate) fn named(name: &str) -> $version {
                <$version as $crate::options::Value>::read(name).expect(name)
            }

            /// Returns whether this version is `name` or a later one.
            pub(crate) fn is_since(self, name: &str) -> bool {
                self >= $version::named(name)
            }

            pub(crate) fn number(self) -> $number {
                $version::ALL[self.0].1
            }
        }

        impl $crate::options::Value for $version {
            fn read(text: &str) -> Result<$version, String> {
                let index = $version::ALL.iter().position(|(known, _)| *known == text);
                index.map($version).ok_or_else(|| $missing.to_owned())
            }
        }
    };
}

/// Calls `set` with each key and its value.
///
/// # Errors
/// The first part without a value, or that `set` refuses.
pub fn read_pairs(text: &str, mut set: impl FnMut(&str, &str) -> Result<(), String>) -> Result<(), String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part}: no value"))?;
        set(key.trim(), value.trim()).map_err(|reason| format!("{part}: {reason}"))?;
    }
    Ok(())
}

/// The current options. Earlier ones are leaked, since other threads may still read them.
#[derive(Debug)]
pub struct OptionsStore<O> {
    simulator: &'static str,
    variable: &'static str,
    parse: fn(&str) -> Result<O, String>,
    current: StaticPointer<O>,
    environment: Once,
}

impl<O: Default + Sync + 'static> OptionsStore<O> {
    /// Creates the store of a simulator. An environment variable sets its first options.
    pub const fn new(
        simulator: &'static str,
        variable: &'static str,
        parse: fn(&str) -> Result<O, String>,
    ) -> OptionsStore<O> {
        OptionsStore { simulator, variable, parse, current: StaticPointer::null(), environment: Once::new() }
    }

    /// Returns the current options; at first those of the environment.
    pub fn get(&self) -> &'static O {
        self.environment.call_once(|| {
            let text = std::env::var(self.variable).unwrap_or_default();
            self.put((self.parse)(&text).unwrap_or_else(|reason| {
                eprintln!("{}: {}: {reason}; all options are at their defaults", self.simulator, self.variable);
                O::default()
            }));
        });
        self.current.get().expect("the environment has set them")
    }

    /// Replaces the options.
    pub fn set(&self, options: O) {
        // The environment's options would replace these otherwise.
        self.get();
        self.put(options);
    }

    fn put(&self, options: O) {
        // SAFETY: a leaked value stays valid.
        unsafe { self.current.set(Box::leak(Box::new(options))) };
    }

    /// Replaces the options by those of a C string. Returns false and writes the reason to stderr if it is invalid.
    pub fn configure(&self, settings: *const c_char) -> bool {
        let text = read_text(settings).map_or(Ok(""), |text| text.to_str().map_err(|_| "not UTF-8".to_owned()));
        match text.and_then(self.parse) {
            Ok(options) => {
                self.set(options);
                true
            }
            Err(reason) => {
                eprintln!("{}: {reason}", self.simulator);
                false
            }
        }
    }
}

/// A value of an option.
pub trait Value: Sized {
    /// Reads the value as a user writes it.
    ///
    /// # Errors
    /// The reason why the text is no such value.
    fn read(text: &str) -> Result<Self, String>;
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| "not a number that fits".to_owned())
            }
        }
    )+};
}

numbers!(i32, u32, i64, u64, usize);

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err("neither 0 nor 1".to_owned()),
        }
    }
}

/// Longest text of an option.
const TEXT: usize = 96;

/// Text in a fixed place, so that all libraries agree on its layout.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Text {
    length: usize,
    bytes: [u8; TEXT],
}

impl Text {
    /// Takes as much of `text` as fits.
    pub fn new(text: &str) -> Text {
        let mut end = text.len().min(TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; TEXT];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Text { length: end, bytes }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Value for Text {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Text::new(text))
    }
}

/// A result code, and the kind of record or service whose enabling fails with it: `code:kind`, or `code` for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EnableError<K> {
    pub code: i32,
    pub kind: Option<K>,
}

impl<K: PartialEq> EnableError<K> {
    pub const NONE: EnableError<K> = EnableError { code: 0, kind: None };

    /// Returns the result code for enabling `kind`, 0 for success.
    pub fn code_for(&self, kind: K) -> i32 {
        if self.kind.as_ref().is_none_or(|fails| *fails == kind) { self.code } else { 0 }
    }
}

impl<K: Value> Value for EnableError<K> {
    fn read(text: &str) -> Result<Self, String> {
        let (code, kind) = text.split_once(':').map_or((text, None), |(code, kind)| (code, Some(kind)));
        Ok(EnableError { code: Value::read(code)?, kind: kind.map(K::read).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::options! {
        library: LibraryVersion = LibraryVersion::named("1.1");
        devices: u32 = 1;
        busy: bool = false;
        no_finish: Text = Text::new("");
        skew: i64 = 0;
        enable_error: EnableError<u32> = EnableError::NONE;
    }

    crate::versions! {
        /// A version.
        LibraryVersion: u32, "no such version";
        "1.0" = 10;
        "1.1" = 11;
        "2.0" = 20;
    }

    #[test]
    fn keys_are_read_and_others_are_at_their_defaults() {
        let options = Options::parse(" library=1.0, no_finish=slow ,skew=-5,enable_error=7:38,busy=1").unwrap();
        assert_eq!((options.library.number(), LibraryVersion::ALL[options.library.0].0), (10, "1.0"));
        assert!(LibraryVersion::named("1.1").is_since("1.0") && !options.library.is_since("1.1"));
        assert_eq!((options.no_finish.as_str(), options.skew, options.busy), ("slow", -5, true));
        assert_eq!((options.enable_error, options.devices), (EnableError { code: 7, kind: Some(38) }, 1));
    }

    #[test]
    fn errors_name_the_part_and_the_reason() {
        let error = |text: &str| Options::parse(text).unwrap_err();
        assert_eq!(error("busy"), "busy: no value");
        assert_eq!(error("devices=1,bussy=1"), "bussy=1: no such key");
        assert_eq!(error("busy=yes"), "busy=yes: neither 0 nor 1");
        assert_eq!(error("devices=-1"), "devices=-1: not a number that fits");
        assert_eq!(error("library=9"), "library=9: no such version");
    }

    #[test]
    fn invalid_settings_change_nothing() {
        static STORE: OptionsStore<Options> = OptionsStore::new("sim-test", "SIM_TEST_OPTIONS", Options::parse);
        assert!(STORE.configure(c"devices=2".as_ptr()) && !STORE.configure(c"devices=3,bogus=1".as_ptr()));
        assert_eq!(STORE.get().devices, 2);
        assert!(STORE.configure(c"".as_ptr()) && STORE.get().devices == 1);
    }

    #[test]
    fn long_text_is_cut_at_a_character_boundary() {
        assert_eq!(Text::new(&"é".repeat(100)).as_str(), "é".repeat(48));
    }

    #[test]
    fn enable_errors_name_a_kind_or_all() {
        let read = EnableError::<u32>::read;
        assert_eq!((read("7:38").unwrap().code_for(38), read("7:38").unwrap().code_for(1)), (7, 0));
        assert_eq!((read("7").unwrap().code_for(1), EnableError::NONE.code_for(1)), (7, 0));
        assert!(read("7:x").is_err());
    }
}

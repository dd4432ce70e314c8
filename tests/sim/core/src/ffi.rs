//! Strings, pointers and results at the boundary to C.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Declares the result codes of an API: the type of a code other than success, and each code with its texts, which are its
/// name and its description. `$null` is the code for a place that is null.
#[macro_export]
macro_rules! codes {
    ($(#[$doc:meta])* $error:ident($number:ty), $null:ident; $($constant:ident = $code:literal $(, $text:literal)*;)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $error(pub(crate) $number);

        /// The result of a function of the API.
        pub(crate) type Outcome<T = ()> = Result<T, $error>;

        #[allow(dead_code, reason = "some codes have but a name, or come from options")]
        impl $error {
            $(pub(crate) const $constant: $error = $error($code);)+

            /// Fails with the code that an option names, unless that is 0.
            pub(crate) fn unless(code: $number) -> Outcome {
                if code == 0 { Ok(()) } else { Err($error(code)) }
            }
        }

        impl From<$crate::device::Refusal> for $error {
            fn from(refusal: $crate::device::Refusal) -> $error {
                $error(refusal as $number)
            }
        }

        /// Returns the texts of a code.
        #[allow(dead_code, reason = "some libraries have no function for them")]
        pub(crate) fn texts(code: $number) -> Option<&'static [&'static std::ffi::CStr]> {
            match code {
                $($code => Some(&[$($text),*]),)+
                _ => None,
            }
        }

        /// Returns the code of an outcome, 0 for success.
        #[allow(dead_code, reason = "some libraries have codes for each version")]
        pub(crate) fn code_of(outcome: Outcome) -> $number {
            outcome.map_or_else(|$error(code)| code, |()| 0)
        }

        /// Writes a value for the caller of a C function.
        ///
        /// # Errors
        /// The place is null.
        pub(crate) fn give<T>(place: *mut T, value: T) -> Outcome {
            $crate::ffi::give(place, value).ok_or($error::$null)
        }

        /// As [`give`], unless the place is null.
        #[allow(dead_code, reason = "not each library has optional places")]
        pub(crate) fn give_if_wanted<T>(place: *mut T, value: T) -> Outcome {
            if place.is_null() { Ok(()) } else { give(place, value) }
        }
    };
}

/// Exports C functions. One without a return type returns the code that `$answer` makes of its body's outcome; a function
/// `by` a check makes that first.
#[macro_export]
macro_rules! exports {
    ($answer:path as $code:ty; $($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(-> $returned:ty)? $(, by $check:path)? $body:block)+) => {$(
        $crate::exports!(@ $answer, $code, [$(#[$doc])*] $name($($argument: $type),*) [$($returned)?] [$($check)?] $body);
    )+};
    (@ $answer:path, $code:ty, [$($doc:tt)*] $name:ident($($argument:ident: $type:ty),*) [$returned:ty] [] $body:block) => {
        $($doc)*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> $returned $body
    };
    (@ $answer:path, $code:ty, [$($doc:tt)*] $name:ident($($argument:ident: $type:ty),*) [] [$($check:path)?] $body:block) => {
        $($doc)*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> $code {
            $crate::ffi::answer($answer, || {
                $($check()?;)?
                $body
            })
        }
    };
}

/// Returns the code of what `serve` returns.
pub fn answer<T, E, C>(to_code: impl FnOnce(Result<T, E>) -> C, serve: impl FnOnce() -> Result<T, E>) -> C {
    to_code(serve())
}

/// A pointer to a value that its owner never frees; null at first.
#[derive(Debug)]
pub struct StaticPointer<T>(AtomicPtr<T>);

impl<T: Sync + 'static> StaticPointer<T> {
    pub const fn null() -> StaticPointer<T> {
        StaticPointer(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Replaces the pointer.
    ///
    /// # Safety
    /// It is null, or points to a value that stays valid until the process ends.
    pub unsafe fn set(&self, value: *const T) {
        self.0.store(value.cast_mut(), Ordering::Release);
    }

    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: `set` promises that the value stays valid.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

/// Returns the text of a C string, or none for null.
pub fn read_text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller of the C function promises null or a C string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Returns the text as a C string, without its zero bytes.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Writes a value to a place of the caller. Returns none if the place is null.
pub fn give<T>(place: *mut T, value: T) -> Option<()> {
    if place.is_null() {
        return None;
    }
    // SAFETY: the caller of the C function promises a place for this type.
    unsafe { place.write(value) };
    Some(())
}

/// Writes a text and its zero byte to a place of `room` bytes, cut to fit. Returns none without a place.
pub fn give_text(place: *mut c_char, room: i32, text: &str) -> Option<()> {
    let room = usize::try_from(room).ok().filter(|room| *room > 0 && !place.is_null())?;
    for (index, byte) in text.bytes().take(room - 1).chain([0]).enumerate() {
        // SAFETY: the caller of the C function promises that much room.
        unsafe { place.add(index).write(byte as c_char) };
    }
    Some(())
}

/// A C string that stays valid until the process ends, or null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct StaticText(pub *const c_char);

// SAFETY: nothing changes the text while another thread may read it.
unsafe impl Send for StaticText {}

impl Default for StaticText {
    fn default() -> StaticText {
        StaticText(std::ptr::null())
    }
}

/// Returns the values that a caller hands in: `count` from `first` on. `first` may be null for none.
pub fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller of the C function promises that many, which stay valid until it returns.
    unsafe { std::slice::from_raw_parts(first, count) }
}

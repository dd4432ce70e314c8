//! Strings, pointers and results at the boundary to C.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Declares the result codes of an API as constants of a type, each with its name and its description.
#[macro_export]
macro_rules! result_codes {
    ($error:ident; $($constant:ident = $code:literal, $name:literal, $text:literal;)+) => {
        impl $error {
            $(pub(crate) const $constant: $error = $error($code);)+
        }

        /// Returns the name and the description of a result code.
        pub(crate) fn describe(code: i32) -> Option<(&'static std::ffi::CStr, &'static std::ffi::CStr)> {
            match code {
                $($code => Some(($name, $text)),)+
                _ => None,
            }
        }
    };
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

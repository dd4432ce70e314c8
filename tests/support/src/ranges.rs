//! A C library that makes NVTX ranges, as NCCL does.

use crate::cuda;
use libloading::Library;
use std::ffi::{CString, c_char};

pub struct Ranges(Library);

/// A domain of ranges.
#[derive(Clone, Copy)]
pub struct Domain(usize);

macro_rules! call {
    ($library:expr, $name:ident($($argument:expr => $type:ty),*) $(-> $returned:ty)?) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the library's function of that name has this type.
        let function = unsafe { *$library.get::<extern "C" fn($($type),*) $(-> $returned)?>(name).unwrap() };
        function($($argument),*)
    }};
}

impl Ranges {
    /// Opens the library. Its first range reads the tool from the environment.
    pub fn open() -> Ranges {
        // SAFETY: the library has no initialisers.
        Ranges(unsafe { Library::new(cuda::library("sim_ranges")) }.unwrap())
    }

    pub fn has_tool(&self) -> bool {
        call!(self.0, rangesAreHeard() -> i32) != 0
    }

    pub fn push(&self, text: &str) {
        let text = CString::new(text).unwrap();
        call!(self.0, rangesPush(text.as_ptr() => *const c_char) -> i32);
    }

    pub fn pop(&self) {
        call!(self.0, rangesPop() -> i32);
    }

    pub fn start(&self, text: &str) -> u64 {
        let text = CString::new(text).unwrap();
        call!(self.0, rangesStart(text.as_ptr() => *const c_char) -> u64)
    }

    pub fn end(&self, range: u64) {
        call!(self.0, rangesEnd(range => u64));
    }

    pub fn mark(&self, text: &str) {
        let text = CString::new(text).unwrap();
        call!(self.0, rangesMark(text.as_ptr() => *const c_char));
    }

    pub fn mark_value(&self, text: &str, value: f64) {
        let text = CString::new(text).unwrap();
        call!(self.0, rangesMarkValue(text.as_ptr() => *const c_char, value => f64));
    }

    pub fn domain(&self, name: &str) -> Domain {
        let name = CString::new(name).unwrap();
        Domain(call!(self.0, rangesDomain(name.as_ptr() => *const c_char) -> usize))
    }

    /// Pushes a range with category, colour and payload.
    pub fn push_all(&self, Domain(domain): Domain, text: &str, (category, color, payload): (u32, u32, i64)) {
        let text = CString::new(text).unwrap();
        let text = text.as_ptr();
        call!(self.0, rangesPushAll(domain => usize, text => *const c_char, category => u32, color => u32, payload => i64) -> i32);
    }

    pub fn pop_all(&self, Domain(domain): Domain) {
        call!(self.0, rangesPopAll(domain => usize) -> i32);
    }
}

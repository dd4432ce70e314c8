//! What PTI calls the numbers in records.

use std::ffi::CStr;

/// Its name for all that it does not know.
pub(crate) const INVALID: &CStr = c"INVALID";

const MEMORIES: [&CStr; 4] = [c"Host (User Allocated)", c"Host (Driver Allocated)", c"Device", c"Shared"];

const COPIES: [&CStr; 16] = [
    c"M2M", c"M2H", c"M2D", c"M2S", c"H2M", c"H2H", c"H2D", c"H2S", c"D2M", c"D2H", c"D2D", c"D2S", c"S2M", c"S2H",
    c"S2D", c"S2S",
];

fn of(texts: &'static [&'static CStr], number: u32) -> &'static CStr {
    texts.get(number as usize).copied().unwrap_or(INVALID)
}

pub(crate) fn memory(place: u32) -> &'static CStr {
    of(&MEMORIES, place)
}

pub(crate) fn copy(kind: u32) -> &'static CStr {
    of(&COPIES, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        assert_eq!((copy(6), memory(2)), (c"H2D", c"Device"));
        assert_eq!((copy(16), memory(4)), (INVALID, INVALID));
    }
}

//! Names of kernels, which give the properties of the kernels.

use std::ffi::{CString, c_char};

/// Returns the number behind `mark` in the name of a kernel.
pub fn number_after(name: &str, mark: &str) -> Option<u32> {
    let (_, rest) = name.split_once(mark)?;
    let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Invalidates a name like a free, but so that a later reader notices: the memory stays, and the text becomes `?`.
pub fn forget_name(name: CString) {
    let length = name.as_bytes().len();
    let address = name.into_raw();
    for index in 0..length {
        // SAFETY: the bytes before the zero byte were ours.
        unsafe { address.add(index).write(b'?' as c_char) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_names() {
        assert_eq!(number_after("slow_us500_x", "_us"), Some(500));
        assert_eq!(number_after("slow_us", "_us"), None);
        assert_eq!(number_after("fast", "_us"), None);
    }
}

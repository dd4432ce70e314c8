//! Options as text: "key=value,key=value".

/// Longest text of an option.
const TEXT: usize = 96;

/// Text in a fixed place, so that all libraries agree on its shape.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Text {
    length: usize,
    bytes: [u8; TEXT],
}

impl Text {
    /// Takes as much of `text` as fits.
    pub(crate) fn new(text: &str) -> Text {
        let mut end = text.len().min(TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; TEXT];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Text { length: end, bytes }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

/// Has each key set to its value.
///
/// # Errors
/// A part without a value, and what `set` refuses, with the part.
pub(crate) fn each(text: &str, mut set: impl FnMut(&str, &str) -> Result<(), String>) -> Result<(), String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part}: no value"))?;
        set(key.trim(), value.trim()).map_err(|reason| format!("{part}: {reason}"))?;
    }
    Ok(())
}

pub(crate) fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| "not a number that fits".to_owned())
}

pub(crate) fn switch(value: &str) -> Result<bool, String> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("neither 0 nor 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(Text::new(&"é".repeat(100)).as_str(), "é".repeat(48));
    }
}

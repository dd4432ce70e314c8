//! Tells Perfetto's format from JSON.

use super::wire::{ProtoMessage, Varint};
use crate::analysis::json_reader::Json;
use crate::write::perfetto::fields::packet;

/// How many bytes are enough to tell the formats apart.
pub(in super::super) const PREFIX: usize = 4096;

/// The first byte of each packet, which is white space in JSON.
const PACKET_TAG: u8 = b'\n';

/// Returns whether a file that begins with these bytes is in Perfetto's format.
///
/// Both formats may begin with a line feed. A text is JSON, unless its first packet is whole and another follows it.
pub(in super::super) fn is_perfetto(prefix: &[u8]) -> bool {
    if prefix.first() != Some(&PACKET_TAG) {
        return false;
    }
    let is_text = std::str::from_utf8(prefix).is_ok_and(|text| !text.contains(is_control));
    let is_json = Json::new(prefix, 0).starts_with_bracket();
    if is_text || is_json { has_whole_packet(prefix) } else { true }
}

/// Returns whether a character occurs in no text.
fn is_control(character: char) -> bool {
    character.is_control() && !character.is_whitespace()
}

/// Returns whether the first packet consists of fields, and is the last one or has another behind it.
fn has_whole_packet(prefix: &[u8]) -> bool {
    let Some((_, rest)) = prefix.split_first() else { return false };
    let Varint::Whole(length, taken) = Varint::read_from(rest) else { return false };
    let start = taken.saturating_add(1);
    let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(start);
    let Some(bytes) = prefix.get(start..end) else { return false };
    let mut message = ProtoMessage::new(bytes, 0);
    let mut is_known = bytes.is_empty();
    while let Ok(Some((field, _))) = message.next_field() {
        is_known |= field == packet::CLOCK_SNAPSHOT || field >= packet::TIMESTAMP;
    }
    is_known && message.bytes().is_empty() && prefix.get(end).is_none_or(|next| *next == PACKET_TAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart() {
        let json = [
            "",
            "\n",
            " [",
            "\n\n\n[1, 2]",
            "\n{\"traceEvents\": []}",
            "\n\u{feff}{\"traceEvents\": []}",
            "\n  {\"a\": 1}",
            "\n<html>",
            "hello",
        ];
        json.iter().for_each(|text| assert!(!is_perfetto(text.as_bytes()), "{text}"));
        let text = format!("\n{{\"traceEvents\": [{}]}}", "{\"ph\":\"X\"},".repeat(500));
        assert!(!is_perfetto(&text.as_bytes()[..PREFIX]));
        let sequence = [0x0a, 0x02, 0x50, 0x07].as_slice();
        // The length of this packet is an opening brace.
        let brace = [b"\n{\x32\x79".as_slice(), &[b' '; 121], b"\n"].concat();
        for bytes in [b"\n\0".as_slice(), sequence, b"\n\xff\xff", &brace] {
            assert!(is_perfetto(bytes), "{bytes:?}");
        }
    }
}

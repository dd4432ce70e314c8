//! Cuts a list of events into blocks of whole elements.

use super::input::Input;
use std::io::Read;

/// Part of a file.
#[derive(Debug)]
pub(super) struct ListBlock {
    pub(super) text: Vec<u8>,
    /// Its offset in the file.
    pub(super) offset: u64,
}

/// Reads blocks that probably end between two elements; parsing tells whether they do.
pub(super) struct BlockReader<'i, R> {
    input: &'i mut Input<R>,
    /// The size of a block in bytes; one with a large element may have more.
    size: usize,
    /// The bytes after the last block.
    rest: Vec<u8>,
    /// Buffers to be used again.
    free: Vec<Vec<u8>>,
    is_over: bool,
}

/// A block grows to at most this many times its size to hold a large element.
const MAX_GROWTH: usize = 8;

/// How often progress is reported, in bytes.
const PROGRESS_INTERVAL: usize = 256 << 10;

impl<'i, R: Read> BlockReader<'i, R> {
    pub(super) fn new(input: &'i mut Input<R>, size: usize) -> BlockReader<'i, R> {
        BlockReader { input, size, rest: Vec::new(), free: Vec::new(), is_over: false }
    }

    /// Returns whether the last block has been read, at the end of the file or before a value that exceeds the largest block.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads the next block; the last one ends with the file. Returns `None` after it, and at a value that exceeds the largest block.
    pub(super) fn next_block(&mut self) -> Option<ListBlock> {
        if self.is_over {
            return None;
        }
        let offset = self.input.offset() - self.rest.len() as u64;
        let mut text = self.free.pop().unwrap_or_default();
        text.clear();
        text.append(&mut self.rest);
        let mut size = self.size.max(text.len() + 1);
        loop {
            let length = text.len();
            text.resize(size, 0);
            let filled = self.input.fill(text.get_mut(length..).unwrap_or_default(), PROGRESS_INTERVAL);
            text.truncate(length + filled);
            if text.len() < size {
                self.is_over = true;
                return Some(ListBlock { text, offset });
            }
            if let Some(cut) = find_cut(&text) {
                self.rest.extend_from_slice(text.get(cut..).unwrap_or_default());
                text.truncate(cut);
                return Some(ListBlock { text, offset });
            }
            if size >= self.size * MAX_GROWTH {
                (self.is_over, self.rest) = (true, text);
                return None;
            }
            size *= 2;
        }
    }

    /// Takes the next block of the file back, which is consumed; its buffer is free.
    pub(super) fn reuse(&mut self, block: ListBlock) {
        self.input.consume(&block.text);
        self.free.push(block.text);
    }

    /// Returns bytes of the last blocks to the input, and what was read after them.
    pub(super) fn put_back(self, mut bytes: Vec<u8>) {
        bytes.extend_from_slice(&self.rest);
        self.input.put_back(bytes);
    }
}

/// Returns the place of the last `{` that follows `}` and a comma. One on another line is preferred: strings contain no
/// line breaks, and objects of arguments are usually on one line.
fn find_cut(text: &[u8]) -> Option<usize> {
    /// How far back a boundary at a line break is searched once one without is found, in bytes.
    const NEAR: usize = 64 << 10;

    let (mut before, mut on_same_line) = (text, None);
    while let Some(brace) = before.iter().rposition(|byte| *byte == b'{') {
        before = before.get(..brace).unwrap_or_default();
        let trimmed = before.trim_ascii_end();
        if trimmed.strip_suffix(b",").is_some_and(|element| element.trim_ascii_end().ends_with(b"}")) {
            if before.get(trimmed.len()..).is_some_and(|space| space.contains(&b'\n')) {
                return Some(brace);
            }
            on_same_line = on_same_line.or(Some(brace));
        }
        if on_same_line.is_some_and(|place| place - brace > NEAR) {
            break;
        }
    }
    on_same_line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_between_elements() {
        let text = "{\"a\": [{},{}]},\n{\"b\": \"}, {\"} ,\r\n {\"c\": [{}, {}, {}";
        let blocks = |size| {
            let mut input = Input::new(text.as_bytes(), u64::MAX, None);
            let mut reader = BlockReader::new(&mut input, size);
            let mut parts = Vec::new();
            while let Some(block) = reader.next_block() {
                assert_eq!(block.offset, parts.iter().map(String::len).sum::<usize>() as u64);
                parts.push(String::from_utf8(block.text.clone()).unwrap());
                reader.reuse(block);
            }
            let left = text.len() - parts.iter().map(String::len).sum::<usize>();
            reader.put_back(Vec::new());
            assert_eq!(input.offset(), (text.len() - left) as u64);
            parts
        };
        let first = "{\"a\": [{},{}]},\n";
        assert_eq!(blocks(text.len() + 1), [text]);
        let second = text.find("{\"c\"").unwrap();
        assert_eq!(blocks(30), [first, &text[first.len()..second], &text[second..]]);
        assert_eq!(blocks(20).concat(), text);
        assert_eq!(find_cut(text.as_bytes()), text.find("{\"c\""));
        assert_eq!(find_cut(b"{}, {}, {"), Some(8));
        for other in ["", "{", "{} {", "[{", "1,{", "}, ["] {
            assert_eq!(find_cut(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn value_without_a_cut_ends_the_blocks() {
        let text = vec![b' '; 1000];
        let mut input = Input::new(text.as_slice(), u64::MAX, None);
        let mut reader = BlockReader::new(&mut input, 10);
        assert!(reader.next_block().is_none() && reader.is_over());
        reader.put_back(Vec::new());
        assert_eq!(input.offset(), 0);
    }
}

//! Records, and other structs of C, under construction.

/// A struct that is filled in by offset. Unset bytes are zero; fields behind its end are omitted, since older versions
/// lack them.
#[derive(Clone, Debug)]
pub struct Record {
    /// Aligned as C aligns structs.
    words: Vec<u64>,
    length: usize,
}

impl Record {
    pub fn zeros(length: usize) -> Record {
        Record { words: vec![0; length.div_ceil(8)], length }
    }

    /// Creates a struct that begins with its kind.
    pub fn of_kind(kind: u32, length: usize) -> Record {
        Record::zeros(length).u32(0, kind)
    }

    /// Creates a struct that begins with its length.
    pub fn sized(length: usize) -> Record {
        Record::zeros(length).u64(0, length as u64)
    }

    /// Sets bytes at an offset.
    pub fn put(mut self, offset: usize, value: &[u8]) -> Record {
        if let Some(place) = self.bytes_mut().get_mut(offset..offset + value.len()) {
            place.copy_from_slice(value);
        }
        self
    }

    pub fn u8(self, offset: usize, value: u32) -> Record {
        self.put(offset, &[value as u8])
    }

    pub fn u16(self, offset: usize, value: u32) -> Record {
        self.put(offset, &(value as u16).to_le_bytes())
    }

    pub fn u32(self, offset: usize, value: u32) -> Record {
        self.put(offset, &value.to_le_bytes())
    }

    pub fn u64(self, offset: usize, value: u64) -> Record {
        self.put(offset, &value.to_le_bytes())
    }

    /// Sets three numbers in a row.
    pub fn triple(self, offset: usize, [x, y, z]: [u32; 3]) -> Record {
        self.u32(offset, x).u32(offset + 4, y).u32(offset + 8, z)
    }

    /// Returns the kind that a record of [`Record::of_kind`] begins with.
    pub fn kind(&self) -> u32 {
        self.words[0] as u32
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the words have at least that many bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nothing else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.pointer().cast(), self.length) }
    }

    pub fn pointer(&mut self) -> *mut u64 {
        self.words.as_mut_ptr()
    }

    /// Fills all from `offset` on, except the eight bytes at each offset in `kept`.
    pub fn fill(&mut self, offset: usize, byte: u8, kept: &[usize]) {
        for (index, place) in self.bytes_mut().iter_mut().enumerate().skip(offset) {
            if !kept.iter().any(|kept| (*kept..kept + 8).contains(&index)) {
                *place = byte;
            }
        }
    }
}

/// The lengths of the records of each kind, each with the version that introduced it, from the oldest to the newest.
#[derive(Debug)]
pub struct RecordLengths(pub &'static [(u32, &'static [(&'static str, usize)])]);

impl RecordLengths {
    /// Returns the length of a record of that kind, or none if the version has no such kind.
    pub fn get(&self, kind: u32, is_since: impl Fn(&str) -> bool) -> Option<usize> {
        let (_, lengths) = self.0.iter().find(|(known, _)| *known == kind)?;
        lengths.iter().rev().find(|(first, _)| is_since(first)).map(|(_, length)| *length)
    }

    /// Returns the length of the longest record of a version.
    pub fn longest(&self, is_since: impl Fn(&str) -> bool) -> usize {
        self.0.iter().filter_map(|(kind, _)| self.get(*kind, &is_since)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_begin_with_their_size() {
        let mut record = Record::sized(20).u32(8, 7);
        record.fill(12, 0xa5, &[]);
        assert_eq!(record.words, [20, 7 | 0xa5a5_a5a5 << 32, 0xa5a5_a5a5]);
    }

    #[test]
    fn fields_behind_the_end_are_omitted() {
        let mut record = Record::of_kind(3, 24).u64(16, 1).u64(20, 2).triple(4, [4, 5, 6]);
        assert_eq!((record.kind(), &record.words[..]), (3, &[3 | 4 << 32, 5 | 6 << 32, 1][..]));
        record.fill(4, 0xff, &[8]);
        assert_eq!(record.words, [3 | 0xffff_ffff << 32, 5 | 6 << 32, u64::MAX]);
    }
}

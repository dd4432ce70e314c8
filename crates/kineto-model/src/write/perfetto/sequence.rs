//! A packet sequence: a clock relative to the previous packet, and strings that are written once.

use super::fields::{Field, clock, event, interned, packet};
use super::proto::Encoder;
use kineto_base::hash::HashMap;
use std::sync::Arc;

/// The packets of one lane, in order of time.
#[derive(Debug)]
pub(super) struct Sequence {
    id: u64,
    /// The uuid of the track of its events.
    uuid: u64,
    has_begun: bool,
    /// The time of the last packet, in nanoseconds since the base.
    time: u64,
    texts: Texts,
}

impl Sequence {
    pub(super) fn new(id: u64, uuid: u64) -> Sequence {
        Sequence { id, uuid, has_begun: false, time: 0, texts: Texts::default() }
    }

    pub(super) fn texts_mut(&mut self) -> &mut Texts {
        &mut self.texts
    }

    /// Appends an event at `time` ns after `base`, and the strings that it uses first.
    pub(super) fn put_event(&mut self, out: &mut Encoder, base: u64, time: u64, encoded: &Encoder) {
        self.start_if_needed(out, base);
        out.put_message(packet::PACKET, |out| {
            self.put_timestamp(out, time);
            let new = &mut self.texts.new;
            if !new.is_empty() {
                out.put_bytes(packet::INTERNED_DATA, new.as_bytes());
            }
            out.put_bytes(packet::TRACK_EVENT, encoded.as_bytes());
            new.clear();
        });
    }

    /// Appends the end of the slice that began last.
    pub(super) fn put_slice_end(&mut self, out: &mut Encoder, base: u64, time: u64) {
        self.start_if_needed(out, base);
        out.put_message(packet::PACKET, |out| {
            self.put_timestamp(out, time);
            out.put_message(packet::TRACK_EVENT, |encoded| encoded.put_uint(event::TYPE, event::SLICE_END));
        });
    }

    /// Appends the time and sequence of a packet.
    #[inline]
    fn put_timestamp(&mut self, out: &mut Encoder, time: u64) {
        out.put_uint(packet::TIMESTAMP, time.saturating_sub(self.time));
        out.put_uint(packet::SEQUENCE_ID, self.id);
        out.put_uint(packet::SEQUENCE_FLAGS, packet::NEEDS_STATE);
        self.time = self.time.max(time);
    }

    /// Writes the defaults of the sequence before its first packet.
    #[inline]
    fn start_if_needed(&mut self, out: &mut Encoder, base: u64) {
        if !self.has_begun {
            self.has_begun = true;
            self.write_start(out, base);
        }
    }

    #[cold]
    fn write_start(&self, out: &mut Encoder, base: u64) {
        out.put_message(packet::PACKET, |out| {
            out.put_uint(packet::SEQUENCE_ID, self.id);
            out.put_uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            out.put_uint(packet::FIRST_ON_SEQUENCE, 1);
            out.put_message(packet::DEFAULTS, |defaults| {
                defaults.put_uint(packet::DEFAULT_CLOCK, clock::OF_SEQUENCE);
                defaults.put_message(packet::DEFAULT_TRACK_EVENT, |track| track.put_uint(event::TRACK_UUID, self.uuid));
            });
            out.put_message(packet::CLOCK_SNAPSHOT, |snapshot| {
                snapshot.put_message(clock::CLOCKS, |own| {
                    own.put_uint(clock::ID, clock::OF_SEQUENCE);
                    own.put_uint(clock::TIMESTAMP, base);
                    own.put_uint(clock::IS_INCREMENTAL, 1);
                });
                put_realtime_clock(snapshot, base);
            });
        });
    }
}

/// Appends the base to a clock snapshot.
pub(super) fn put_realtime_clock(snapshot: &mut Encoder, base: u64) {
    snapshot.put_message(clock::CLOCKS, |clock| {
        clock.put_uint(clock::ID, clock::REALTIME);
        clock.put_uint(clock::TIMESTAMP, base);
    });
}

/// The interned strings of a sequence, by their use.
#[derive(Debug)]
pub(super) struct Texts {
    categories: Dictionary,
    names: Dictionary,
    keys: Dictionary,
    values: Dictionary,
    /// Entries to be written with the next packet.
    new: Encoder,
}

impl Texts {
    /// Returns the id of a category, from 1; `None` for a string that is written inline.
    pub(super) fn category_id(&mut self, text: &str) -> Option<u64> {
        self.categories.find_or_add(text, &mut self.new)
    }

    /// Returns the id of an event's name.
    pub(super) fn name_id(&mut self, text: &str) -> Option<u64> {
        self.names.find_or_add(text, &mut self.new)
    }

    /// Returns the id of an argument's key.
    pub(super) fn key_id(&mut self, text: &str) -> Option<u64> {
        self.keys.find_or_add(text, &mut self.new)
    }

    /// Returns the id of an argument's value.
    pub(super) fn value_id(&mut self, text: &str) -> Option<u64> {
        self.values.find_or_add(text, &mut self.new)
    }
}

impl Default for Texts {
    fn default() -> Texts {
        let of = |field| Dictionary { field, numbers: HashMap::default(), recent: Default::default(), bytes: 0 };
        Texts {
            categories: of(interned::CATEGORIES),
            names: of(interned::NAMES),
            keys: of(interned::ANNOTATION_NAMES),
            values: of(interned::ANNOTATION_STRINGS),
            new: Encoder::default(),
        }
    }
}

/// Strings with their ids.
#[derive(Debug)]
struct Dictionary {
    /// The field of `InternedData`.
    field: Field,
    numbers: HashMap<Arc<str>, u64>,
    /// Recently used strings, by length and first byte; empty until a string is used again.
    recent: Vec<Option<(Arc<str>, u64)>>,
    /// The total size of all strings.
    bytes: usize,
}

const RECENT_SLOTS: usize = 32;

impl Dictionary {
    /// The maximum total size of a dictionary's strings; further strings are written inline.
    const BYTES_MAX: usize = 1 << 18;
    /// The maximum length of an interned string.
    const MAX_LENGTH: usize = 256;

    #[inline]
    fn find_or_add(&mut self, text: &str, new: &mut Encoder) -> Option<u64> {
        let slot = (text.len() * 31 + usize::from(*text.as_bytes().first()?)) % RECENT_SLOTS;
        match self.recent.get(slot) {
            Some(Some((known, number))) if **known == *text => Some(*number),
            _ => self.look_up(text, slot, new),
        }
    }

    fn look_up(&mut self, text: &str, slot: usize, new: &mut Encoder) -> Option<u64> {
        if let Some((known, number)) = self.numbers.get_key_value(text) {
            self.recent.resize(RECENT_SLOTS, None);
            if let Some(recent) = self.recent.get_mut(slot) {
                *recent = Some((known.clone(), *number));
            }
            return Some(*number);
        }
        let fits = text.len() <= Self::MAX_LENGTH && self.bytes + text.len() <= Self::BYTES_MAX;
        fits.then(|| self.add_text(text, new))
    }

    fn add_text(&mut self, text: &str, new: &mut Encoder) -> u64 {
        let number = u64::try_from(self.numbers.len()).unwrap_or(u64::MAX - 1) + 1;
        let known: Arc<str> = text.into();
        self.bytes += text.len();
        self.numbers.insert(known, number);
        new.put_message(self.field, |entry| {
            entry.put_uint(interned::ID, number);
            entry.put_bytes(interned::TEXT, text.as_bytes());
        });
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_written_once() {
        let mut texts = Texts::default();
        assert_eq!([texts.name_id("a"), texts.name_id("b")], [Some(1), Some(2)]);
        assert_eq!(texts.new.as_bytes(), b"\x12\x05\x08\x01\x12\x01a\x12\x05\x08\x02\x12\x01b");
        texts.new.clear();
        assert_eq!([texts.name_id("b"), texts.name_id("a")], [Some(2), Some(1)]);
        assert_eq!([texts.name_id(""), texts.name_id(&"x".repeat(257))], [None, None]);
        assert!(texts.new.is_empty());
    }

    #[test]
    fn interned_strings_are_limited() {
        let mut texts = Texts::default();
        let numbered = (0..100_000).filter(|i| texts.value_id(&format!("{i:0100}")).is_some()).count();
        assert_eq!(numbered, Dictionary::BYTES_MAX / 100);
    }
}

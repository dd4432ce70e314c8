//! The state of a packet sequence: interned strings, defaults and clocks.

use super::clocks::ReadClocks;
use super::wire::ProtoMessage;
use crate::analysis::events::{Note, Notes, StringId, Strings};
use crate::analysis::json_reader::Result;
use crate::hash::HashMap;
use crate::write::perfetto::fields::{Field, event, gpu_counter, interned, packet};

/// What packets of one writer refer to.
#[derive(Debug, Default)]
pub(super) struct PacketSequence {
    /// Whether its beginning was read, and nothing has been lost since.
    pub(super) is_complete: bool,
    pub(super) default_track: u64,
    pub(super) default_clock: Option<u64>,
    pub(super) clocks: ReadClocks,
    texts: HashMap<(Field, u64), StringId>,
    /// The names of GPU counters by their descriptor's id and their own; the descriptor of packets that name none is 0.
    counters: HashMap<(u64, u64), StringId>,
}

impl PacketSequence {
    /// Forgets everything that earlier packets defined.
    pub(super) fn clear(&mut self) {
        self.is_complete = true;
        self.default_track = 0;
        self.default_clock = None;
        self.clocks = ReadClocks::default();
        self.texts.clear();
        self.counters.clear();
    }

    pub(super) fn read_defaults(&mut self, mut message: ProtoMessage<'_>) -> Result<()> {
        while let Some((field, value)) = message.next_field()? {
            match field {
                packet::DEFAULT_CLOCK => self.default_clock = Some(value.number()),
                packet::DEFAULT_TRACK_EVENT => {
                    let mut defaults = value.message();
                    while let Some((field, value)) = defaults.next_field()? {
                        if field == event::TRACK_UUID {
                            self.default_track = value.number();
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads interned data of the kinds that events refer to.
    pub(super) fn read_interned(
        &mut self,
        mut message: ProtoMessage<'_>,
        strings: &mut Strings,
        notes: &mut Notes,
    ) -> Result<()> {
        while let Some((field, value)) = message.next_field()? {
            match field {
                interned::CATEGORIES
                | interned::NAMES
                | interned::ANNOTATION_NAMES
                | interned::ANNOTATION_STRINGS
                | interned::GPU_SPECIFICATIONS
                | interned::COMPUTE_ARG_NAMES => {
                    let (id, text) = read_entry(value.message())?;
                    self.texts.insert((field, id), intern_bytes(text, strings, notes));
                }
                interned::GPU_COUNTER_DESCRIPTORS => {
                    let (id, mut descriptor) = (read_entry(value.message())?.0, value.message());
                    while let Some((field, value)) = descriptor.next_field()? {
                        if field == gpu_counter::INTERNED_DESCRIPTOR {
                            self.read_counters(id, value.message(), strings, notes)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the names of GPU counters.
    pub(super) fn read_counters(
        &mut self,
        descriptor: u64,
        mut message: ProtoMessage<'_>,
        strings: &mut Strings,
        notes: &mut Notes,
    ) -> Result<()> {
        while let Some((field, value)) = message.next_field()? {
            if field == gpu_counter::SPECS {
                let (id, name) = read_entry(value.message())?;
                self.counters.insert((descriptor, id), intern_bytes(name, strings, notes));
            }
        }
        Ok(())
    }

    /// Returns an interned string. If it is missing, a note counts that.
    pub(super) fn text(&self, field: Field, id: u64, notes: &mut Notes) -> StringId {
        self.texts.get(&(field, id)).copied().unwrap_or_else(|| {
            notes.add(Note::LostState, 1);
            StringId::EMPTY
        })
    }

    /// Returns the name of a GPU counter.
    pub(super) fn counter_name(&self, descriptor: u64, id: u64) -> Option<StringId> {
        self.counters.get(&(descriptor, id)).copied()
    }
}

/// Reads an entry: its id and its text, which have the same numbers in all kinds.
fn read_entry(mut message: ProtoMessage<'_>) -> Result<(u64, &[u8])> {
    let (mut id, mut text): (u64, &[u8]) = (0, &[]);
    while let Some((field, value)) = message.next_field()? {
        match field {
            interned::ID => id = value.number(),
            interned::TEXT => text = value.bytes(),
            _ => {}
        }
    }
    Ok((id, text))
}

/// Interns a string; U+FFFD replaces bytes that are not UTF-8, which a note counts.
pub(super) fn intern_bytes(bytes: &[u8], strings: &mut Strings, notes: &mut Notes) -> StringId {
    match std::str::from_utf8(bytes) {
        Ok(text) => strings.intern(text),
        Err(_) => {
            notes.add(Note::InvalidText, 1);
            strings.intern(&String::from_utf8_lossy(bytes))
        }
    }
}

//! Encodes typed field values into the words of a payload.
//!
//! Typed values are never formatted; values with only a `Debug` form are formatted once, up to the limit.

use super::{Sink, Words, code};
use crate::buffer::{Loss, RecordPayload};
use crate::callsite::{self, FIELDS_MAX, Site};
use crate::diag::diag;
use crate::recorder::Recorder;
use crate::text::{Bounded, floor_char_boundary};
use std::fmt;
use tracing_core::field::{Field, Visit};

/// Encodes the fields that a site records.
pub(crate) struct Encoder<'a> {
    site: &'a Site,
    words: &'a mut Words,
    text_bytes_max: usize,
    /// The number of truncated values.
    cut: u64,
    /// The value of `kineto.kind`, if the callsite needs it.
    kind: Option<String>,
}

/// Encodes fields directly into the record in simple cases: no user code runs, nothing is truncated, and no decision is
/// needed.
pub(crate) struct PlainEncoder {
    /// The fields to record, a bit each.
    fields: u64,
    payload: RecordPayload,
    text_bytes_max: usize,
    is_plain: bool,
}

impl PlainEncoder {
    #[inline(always)]
    pub(crate) fn new(site: &Site, payload: RecordPayload, text_bytes_max: usize) -> Self {
        PlainEncoder { fields: site.fields, payload, text_bytes_max, is_plain: !site.needs_values }
    }

    /// Returns the payload, unless the fields need an [`Encoder`].
    #[inline(always)]
    pub(crate) fn finish(self) -> Option<RecordPayload> {
        self.is_plain.then_some(self.payload)
    }

    #[inline(always)]
    fn wants_field(&self, field: &Field) -> bool {
        callsite::has_field(self.fields, field.index())
    }
}

/// Returns the fields of a callsite that `record` passes on, encoded.
///
/// Counts truncated values, and decides the class of the callsite by the first value of `kineto.kind`.
#[inline]
pub(crate) fn encode_fields(recorder: &Recorder, site: &Site, record: impl FnOnce(&mut Encoder<'_>)) -> Words {
    let mut words = Words::new();
    let text_bytes_max = recorder.settings.field_bytes_max;
    let mut encoder = Encoder { site, words: &mut words, text_bytes_max, cut: 0, kind: None };
    record(&mut encoder);
    let Encoder { cut, kind, .. } = encoder;
    if cut != 0 {
        recorder.losses.add(Loss::FieldsCut, cut);
    }
    recorder.losses.add(Loss::FieldsOverLimit, u64::from(words.is_lost()));
    if let Some(kind) = &kind {
        decide_site_class(recorder, site, kind);
    }
    words
}

impl Encoder<'_> {
    fn wants_field(&self, field: &Field) -> bool {
        callsite::has_field(self.site.fields, field.index())
    }

    fn wants_kind(&self, field: &Field) -> bool {
        self.site.kind_field == Some(field.index()) && self.site.is_undecided()
    }

    /// Encodes texts for the fields that the layer adds to every callsite, in their order.
    pub(crate) fn put_added(&mut self, texts: &[impl AsRef<str>]) {
        let first = self.site.metadata.fields().len();
        (first..FIELDS_MAX).zip(texts).for_each(|(field, text)| self.put_bounded(field, text.as_ref()));
        // Those that do not fit are lost.
        self.cut += (first + texts.len()).saturating_sub(FIELDS_MAX.max(first)) as u64;
    }

    fn put_bounded(&mut self, field: usize, text: &str) {
        let kept = text.get(..floor_char_boundary(text, self.text_bytes_max)).unwrap_or_default();
        self.put_text(field, code::STR, kept, kept.len() < text.len());
    }

    fn put_text(&mut self, field: usize, code: u8, text: &str, is_cut: bool) {
        if is_cut {
            self.cut += 1;
            put_text(self.words, field, code, &format!("{text}..."));
        } else {
            put_text(self.words, field, code, text);
        }
    }
}

#[cold]
fn decide_site_class(recorder: &Recorder, site: &Site, kind: &str) {
    if !site.decide_by_kind(kind, &recorder.sites.rules) {
        recorder.losses.add(Loss::KindsRefused, 1);
        let name = site.metadata.name();
        diag!(
            Warning,
            "kineto.kind",
            "span \"{name}\": invalid kineto.kind \"{kind}\", recorded as cpu_op; use a CPU activity type"
        );
    }
    recorder.sites.note_site(site);
}

/// Returns the word before a value.
#[inline(always)]
fn value_header(field: usize, code: u8, length: usize) -> u64 {
    u64::from(code) | (field as u64) << 8 | (length as u64) << 32
}

/// Appends a value of one word.
#[inline(always)]
fn put_word(sink: &mut impl Sink, field: &Field, code: u8, word: u64) {
    sink.push_words([value_header(field.index(), code, 0), word]);
}

/// Appends a value of two words.
#[expect(clippy::cast_possible_truncation, reason = "the halves are extracted from it")]
fn put_long(sink: &mut impl Sink, field: &Field, code: u8, value: u128) {
    sink.push_words([value_header(field.index(), code, 0), value as u64, (value >> 64) as u64]);
}

/// Appends a text.
#[inline(always)]
fn put_text(sink: &mut impl Sink, field: usize, code: u8, text: &str) {
    sink.push_words([value_header(field, code, text.len())]);
    let (whole, rest) = text.as_bytes().as_chunks();
    whole.iter().for_each(|bytes| sink.push_words([u64::from_le_bytes(*bytes)]));
    if !rest.is_empty() {
        sink.push_words([partial_word(rest)]);
    }
}

/// Returns the word of one to seven bytes: by two reads that may overlap, without a copy of unknown length.
#[inline(always)]
fn partial_word(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (bytes.len() % 4 * 8);
    }
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Defines the visitor methods that the encoders share: those for values of fixed size.
macro_rules! record_sized {
    ($sink:ident) => {
        #[inline]
        fn record_i64(&mut self, field: &Field, value: i64) {
            if self.wants_field(field) {
                put_word(&mut self.$sink, field, code::I64, value.cast_unsigned());
            }
        }
        #[inline]
        fn record_u64(&mut self, field: &Field, value: u64) {
            if self.wants_field(field) {
                put_word(&mut self.$sink, field, code::U64, value);
            }
        }
        #[inline]
        fn record_f64(&mut self, field: &Field, value: f64) {
            if self.wants_field(field) {
                put_word(&mut self.$sink, field, code::F64, value.to_bits());
            }
        }
        #[inline]
        fn record_bool(&mut self, field: &Field, value: bool) {
            if self.wants_field(field) {
                put_word(&mut self.$sink, field, code::BOOL, value.into());
            }
        }
        fn record_i128(&mut self, field: &Field, value: i128) {
            if self.wants_field(field) {
                put_long(&mut self.$sink, field, code::I128, value.cast_unsigned());
            }
        }
        fn record_u128(&mut self, field: &Field, value: u128) {
            if self.wants_field(field) {
                put_long(&mut self.$sink, field, code::U128, value);
            }
        }
    };
}

impl Visit for PlainEncoder {
    record_sized!(payload);

    #[inline]
    fn record_str(&mut self, field: &Field, value: &str) {
        if !self.wants_field(field) {
            return;
        }
        if value.len() <= self.text_bytes_max {
            put_text(&mut self.payload, field.index(), code::STR, value);
        } else {
            self.is_plain = false;
        }
    }

    fn record_debug(&mut self, field: &Field, _: &dyn fmt::Debug) {
        self.is_plain &= !self.wants_field(field);
    }
}

impl Visit for Encoder<'_> {
    record_sized!(words);

    fn record_str(&mut self, field: &Field, value: &str) {
        if self.wants_kind(field) {
            self.kind = Some(value.to_owned());
        }
        if self.wants_field(field) {
            self.put_bounded(field.index(), value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let wants_kind = self.wants_kind(field);
        if !wants_kind && !self.wants_field(field) {
            return;
        }
        let text = Bounded::from_debug(value, self.text_bytes_max);
        if wants_kind {
            self.kind = Some(text.text.trim_matches('"').to_owned());
        }
        if self.wants_field(field) {
            self.put_text(field.index(), code::DEBUG, &text.text, text.cut);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_is_padded_with_zeros() {
        let text = b"abcdefg";
        for length in 1..8 {
            let mut expected = [0; 8];
            expected[..length].copy_from_slice(&text[..length]);
            assert_eq!(partial_word(&text[..length]).to_le_bytes(), expected, "{length} bytes");
        }
    }
}

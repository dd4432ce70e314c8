//! Copies field values, typed, into a flat buffer.
//!
//! Nothing is rendered that has a type of its own; what has only a Debug form is rendered once, up to the limit.

use super::{Bytes, code};
use crate::buffer::Loss;
use crate::callsite::Site;
use crate::diag::diag;
use crate::recorder::Recorder;
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing_core::field::{Field, Visit};

/// Encodes the fields that a site records.
pub(crate) struct Encoder<'a> {
    site: &'a Site,
    bytes: &'a mut Bytes,
    text_bytes_max: usize,
    /// How many values were cut.
    cut: u64,
    /// The value of `kineto.kind`, where it is waited for.
    kind: Option<String>,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(site: &'a Site, bytes: &'a mut Bytes, text_bytes_max: usize) -> Self {
        Encoder { site, bytes, text_bytes_max, cut: 0, kind: None }
    }

    /// Counts what was cut, and lets the first value of `kineto.kind` decide the class of its callsite.
    #[inline]
    pub(crate) fn finish(self, recorder: &Recorder) {
        if self.cut != 0 {
            recorder.losses.add(Loss::FieldsCut, self.cut);
        }
        if let Some(kind) = &self.kind {
            decide(recorder, self.site, kind);
        }
    }

    #[inline(always)]
    fn plain<const N: usize>(&mut self, field: &Field, code: u8, value: [u8; N]) {
        if self.site.has_field(field.index()) {
            self.bytes.push([index(field), code]);
            self.bytes.push(value);
        }
    }

    fn wants_kind(&self, field: &Field) -> bool {
        self.site.kind_field == Some(field.index()) && self.site.is_undecided()
    }
}

#[cold]
fn decide(recorder: &Recorder, site: &Site, kind: &str) {
    if !site.decide(kind, &recorder.sites.rules) {
        recorder.losses.add(Loss::KindsRefused, 1);
        let name = site.metadata.name();
        diag!(Warning, "kineto.kind", "span \"{name}\" cannot be of kind \"{kind}\", so it is a cpu_op");
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a callsite has at most 64 recorded fields")]
fn index(field: &Field) -> u8 {
    field.index() as u8
}

impl Visit for Encoder<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, code::I64, value.to_le_bytes());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, code::U64, value.to_le_bytes());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.plain(field, code::F64, value.to_bits().to_le_bytes());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, code::BOOL, [u8::from(value)]);
    }
    fn record_i128(&mut self, field: &Field, value: i128) {
        self.plain(field, code::I128, value.to_le_bytes());
    }
    fn record_u128(&mut self, field: &Field, value: u128) {
        self.plain(field, code::U128, value.to_le_bytes());
    }

    #[inline]
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.site.kind_field.is_some() && self.wants_kind(field) {
            self.kind = Some(value.to_owned());
        }
        if !self.site.has_field(field.index()) {
            return;
        }
        let kept = value.get(..boundary(value, self.text_bytes_max)).unwrap_or_default();
        let cut = if kept.len() < value.len() { code::CUT } else { 0 };
        self.cut += u64::from(cut != 0);
        self.bytes.push([index(field), code::STR | cut]);
        put_length(self.bytes, kept.len());
        self.bytes.extend(kept.as_bytes());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let wants_kind = self.wants_kind(field);
        if !wants_kind && !self.site.has_field(field.index()) {
            return;
        }
        let mut text = Bounded { text: String::new(), bytes_max: self.text_bytes_max, cut: false };
        // An error is either ours, at the limit, or the value's own: what was written until then is kept. A panic is not
        // the program's: without this layer nobody would have asked for the text.
        if catch_unwind(AssertUnwindSafe(|| write!(text, "{value:?}"))).is_err() {
            let _ = text.write_str("(Debug panicked)");
        }
        if wants_kind {
            self.kind = Some(text.text.trim_matches('"').to_owned());
        }
        if self.site.has_field(field.index()) {
            self.cut += u64::from(text.cut);
            self.bytes.push([index(field), code::DEBUG | if text.cut { code::CUT } else { 0 }]);
            put_length(self.bytes, text.text.len());
            self.bytes.extend(text.text.as_bytes());
        }
    }
}

/// A text that stops growing at a limit, so that a value of gigabytes costs no more than one of kilobytes.
struct Bounded {
    text: String,
    bytes_max: usize,
    cut: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self.bytes_max - self.text.len();
        if more.len() <= room {
            self.text.push_str(more);
            return Ok(());
        }
        self.text.push_str(more.get(..boundary(more, room)).unwrap_or_default());
        self.cut = true;
        Err(fmt::Error)
    }
}

/// The last character boundary of `text` that is not beyond `max`.
fn boundary(text: &str, max: usize) -> usize {
    if text.len() <= max { text.len() } else { (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0) }
}

/// Seven bits a byte, the low ones first; the eighth says that more follow.
#[inline]
fn put_length(bytes: &mut Bytes, mut length: usize) {
    while length >= 0x80 {
        bytes.push([u8::try_from(length & 0x7F).unwrap_or(0) | 0x80]);
        length >>= 7;
    }
    bytes.push([u8::try_from(length).unwrap_or(0)]);
}

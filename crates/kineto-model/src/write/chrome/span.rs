//! Slices of spans. Parts that slices of a callsite or of a row share are rendered once.

use super::ids::IdCache;
use super::slice::start_of_slice;
use super::{ChromeWriter, put_track};
use crate::activity::{Args, Track};
use crate::fields::decode_values;
use crate::layout::has_own_id;
use crate::rows::{SiteRow, SliceRow, WrittenFields};
use crate::write::buffer::render_bytes;
use crate::write::json::TENTH;
use kineto_base::fallible::List;

/// The parts rendered so far.
#[derive(Debug, Default)]
pub(super) struct RenderCache {
    /// By callsite number; an empty `start` means not yet rendered.
    sites: List<SiteText>,
    row: RowText,
    ids: IdCache,
    parents: IdCache,
}

/// The parts that slices of a callsite share.
#[derive(Clone, Debug, Default)]
struct SiteText {
    /// `{"ph":"X","cat":…,"name":…`.
    start: Vec<u8>,
    has_own_id: bool,
    /// By field number.
    keys: Vec<KeyText>,
    /// `,"target":…`, if it is written.
    end: Vec<u8>,
}

/// The rendered key of a field.
#[derive(Clone, Copy, Debug)]
struct KeyText {
    /// `,"key":`; the rest is undefined.
    text: [u8; KEY],
    /// 0 for a key that is long or depends on the value.
    length: usize,
}

/// Longer keys are rare.
const KEY: usize = 32;

/// The part shared by slices that begin on one row in one tenth of a second; a `length` of 0 means not yet rendered.
#[derive(Debug)]
struct RowText {
    process: i64,
    thread: i64,
    /// Tenths of a second since the base.
    tenths: u64,
    /// `,"pid":…,"tid":…,"ts":` and the tenths unless they are 0; the rest is undefined. A block of fixed size is
    /// copied by a few instructions.
    text: [u8; ROW],
    length: usize,
}

/// An upper bound: 20 bytes of keys, two numbers of 20 digits and one of 12.
const ROW: usize = 80;

impl ChromeWriter<'_> {
    /// Writes a slice of a span, byte for byte as [`put_slice`](ChromeWriter::put_slice) writes its activity.
    pub(super) fn span_slice(&mut self, slice: &SliceRow<'_>) {
        let ChromeWriter { out, shared, base, .. } = self;
        let SliceRow { args, start, end, .. } = slice;
        let (tenths, rest) = (start.since(*base) / TENTH, start.since(*base) % TENTH);
        let Some((site, row, ids, parents)) = shared.get_or_render(slice, tenths) else { return };
        match slice.name {
            None => out.put_verbatim(&site.start),
            Some(name) => start_of_slice(out, args.site.kind, name),
        }
        out.put_piece(|piece| {
            piece.put_block(&row.text, row.length);
            if tenths == 0 {
                piece.put_micros(rest);
            } else {
                piece.micros_of_tenth(rest);
            }
            piece.put_literal(b",\"dur\":");
            piece.put_micros(end.since(*start));
            if site.has_own_id {
                piece.put_literal(b",\"args\":{\"External id\":");
                ids.put_id(piece, slice.id.0);
                piece.put_literal(b",\"span id\":");
            } else {
                piece.put_literal(b",\"args\":{\"span id\":");
            }
            ids.put_id(piece, args.span);
            if args.parent != 0 {
                piece.put_literal(b",\"parent id\":");
                parents.put_id(piece, args.parent);
            }
        });
        let mut shown = WrittenFields::default();
        for value in decode_values(args.creation_fields).filter(|value| shown.is_first(value.field)) {
            match site.keys.get(value.field) {
                Some(KeyText { text, length }) if *length != 0 => out.put_datum(text, *length, value.datum),
                _ => args.site.keys.visit_value(value, &mut |key, value| out.put_member(false, key, &value)),
            }
        }
        if let Some(more) = args.more {
            more.visit(&mut |key, value| out.put_member(false, key, &value));
        }
        out.put_verbatim(&site.end);
        if let Some(marks) = args.marks {
            marks.visit(&mut |key, value| out.put_member(false, key, &value));
        }
        out.put_literal(b"}},");
    }
}

impl RenderCache {
    /// Returns the parts that a slice shares with others; `None` if memory is short.
    #[inline]
    fn get_or_render(
        &mut self,
        slice: &SliceRow<'_>,
        tenths: u64,
    ) -> Option<(&SiteText, &RowText, &mut IdCache, &mut IdCache)> {
        let number = slice.args.site.number;
        if self.sites.get(number).is_none_or(|site| site.start.is_empty()) {
            let length = self.sites.len().max(number + 1);
            self.sites.resize(length, SiteText::default());
            *self.sites.get_mut(number)? = SiteText::render(slice.args.site);
        }
        let (row, SliceRow { process, thread, .. }) = (&self.row, slice);
        if (row.process, row.thread, row.tenths) != (*process, *thread, tenths) || row.length == 0 {
            self.row = RowText::render(*process, *thread, tenths);
        }
        Some((self.sites.get(number)?, &self.row, &mut self.ids, &mut self.parents))
    }
}

impl SiteText {
    #[cold]
    fn render(site: &SiteRow) -> SiteText {
        SiteText {
            start: render_bytes(|out| start_of_slice(out, site.kind, &site.name)),
            has_own_id: has_own_id(site.kind),
            keys: site.keys.own_keys().map(KeyText::render).collect(),
            end: render_bytes(|out| site.visit(&mut |key, value| out.put_member(false, key, &value))),
        }
    }
}

impl KeyText {
    fn render(key: Option<&str>) -> KeyText {
        let rendered = key.map(|key| render_bytes(|out| out.put_key(false, key))).filter(|text| text.len() <= KEY);
        let rendered = rendered.unwrap_or_default();
        let mut key = KeyText { text: [0; KEY], length: rendered.len() };
        key.text.iter_mut().zip(rendered).for_each(|(place, byte)| *place = byte);
        key
    }
}

impl RowText {
    #[cold]
    fn render(process: i64, thread: i64, tenths: u64) -> RowText {
        let rendered = render_bytes(|out| {
            put_track(out, Track::new(process, thread), false);
            if tenths > 0 {
                out.put_uint(tenths);
            }
        });
        let mut row = RowText { process, thread, tenths, text: [0; ROW], length: rendered.len() };
        row.text.iter_mut().zip(rendered).for_each(|(place, byte)| *place = byte);
        row
    }
}

impl Default for RowText {
    fn default() -> RowText {
        RowText { process: 0, thread: 0, tenths: 0, text: [0; ROW], length: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::activity::{ActivityType, ArgValue, CorrelationId};
    use crate::fields::{self, Datum};
    use crate::rows::{Keys, Rows, SpanArgs};
    use crate::write::chrome::tests::{lines, ns};

    fn site(number: usize, kind: ActivityType, name: &'static str) -> SiteRow {
        let location = (number & 1 != 0).then(|| format!("src/\"{number}\".rs:1"));
        let long = "a key of more than thirty-two bytes";
        let fields = ["a", "k\t\"", "seq", "dims", "kineto.name", "twenty-eight bytes, which fit", long];
        let names: Vec<_> = fields.into_iter().cycle().skip(number % 3).take(7).collect();
        let keys = Keys::new(&names);
        SiteRow {
            number,
            kind,
            name: name.into(),
            target: (number & 2 != 0).then_some("a::b".into()),
            location,
            scope: None,
            keys,
        }
    }

    proptest! {
        #[test]
        fn cached_slice_is_written_as_its_activity(
            slices in prop::collection::vec((0..40_usize, -2..2_i64, any::<i64>(), any::<[u64; 5]>(), any::<u8>()), 1..50),
            (number, text) in (any::<f64>(), any::<String>()),
        ) {
            let names = ["", "kernel", "a \"b\"", "forward", "a name of more than thirty-two bytes: \u{1}é"];
            let sites: Vec<SiteRow> = (0..40_u8)
                .map(|i| {
                    let kind = ActivityType::from_number(i % 29).filter(|kind| kind.is_cpu());
                    site(usize::from(i), kind.unwrap_or(ActivityType::CpuOp), names[usize::from(i) % names.len()])
                })
                .collect();
            let more: [(&str, ArgValue<'_>); 2] = [("more\t", ArgValue::Str("v\n")), ("n", ArgValue::I64(-1))];
            let creation_fields = fields::encode_values(&[
                (1, Datum::U64(slices.len() as u64)),
                (0, Datum::F64(number)),
                (3, Datum::Text(text.as_bytes())),
                (3, Datum::Text(b"not shown, as it comes again")),
                (5, Datum::I64(slices[0].2)),
                (6, Datum::Bool(true)),
                (4, Datum::Text(b"[[1, 2]]")),
                (2, Datum::I128(-1 << 100)),
                (7, Datum::Text(b"there is no such field")),
            ]);
            let marks: [(&str, ArgValue<'_>); 1] = [("finished", ArgValue::Bool(false))];
            let rows: Vec<SliceRow<'_>> = slices
                .iter()
                .map(|(number, process, thread, [start, lasted, id, span, parent], bits)| SliceRow {
                    name: (bits & 1 != 0).then_some("its own \\"),
                    process: *process,
                    // Rows repeat.
                    thread: if bits & 16 != 0 { thread % 3 } else { *thread },
                    start: ns(start >> (bits & 31)),
                    end: ns((start >> (bits & 31)).saturating_add(lasted >> (bits >> 3))),
                    id: CorrelationId(id | 1),
                    args: SpanArgs {
                        span: *span,
                        parent: if bits & 2 != 0 { *parent } else { 0 },
                        creation_fields: if bits & 32 != 0 { &creation_fields } else { &[] },
                        more: (bits & 4 != 0).then_some(&more),
                        site: &sites[*number],
                        marks: (bits & 8 != 0).then_some(&marks),
                    },
                })
                .collect();
            let in_parts = lines(|writer| rows.iter().for_each(|row| Rows::write_slice(writer, row).unwrap()));
            let whole = lines(|writer| rows.iter().for_each(|row| writer.write_activity(&row.to_activity()).unwrap()));
            prop_assert_eq!(in_parts, whole);
        }
    }

    #[test]
    fn longest_row_fits() {
        let row = RowText::render(i64::MIN, i64::MAX, u64::MAX / TENTH);
        assert!(row.length < ROW);
        let expected = format!(",\"pid\":{},\"tid\":{},\"ts\":184467440737", i64::MIN, i64::MAX);
        assert_eq!(&row.text[..row.length], expected.as_bytes());
    }
}

//! Slices of spans: what those of a callsite share, and what those of a row share, is rendered once.

use std::io::Write;

use super::slice::{has_own_id, start_of_slice};
use super::{ChromeWriter, place};
use crate::activity::{Args, Track};
use crate::trace::rows::{SiteRow, SliceRow};
use crate::write::buffer::rendered;
use crate::write::json::TENTH;

/// What has been rendered.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// By the callsites' numbers; not rendered yet while `start` is empty.
    sites: Vec<Site>,
    row: Row,
}

/// What the slices of a callsite share.
#[derive(Clone, Debug, Default)]
struct Site {
    /// `{"ph":"X","cat":…,"name":…`.
    start: Vec<u8>,
    has_own_id: bool,
    /// `,"target":…`, if it is shown.
    end: Vec<u8>,
}

/// What the slices share that begin on one row in one tenth of a second; not rendered yet while `length` is 0.
#[derive(Debug)]
struct Row {
    process: i64,
    thread: i64,
    /// Since the base.
    tenths: u64,
    /// `,"pid":…,"tid":…,"ts":` and the tenths unless they are 0, and anything behind: a block of fixed size is copied by
    /// a few instructions.
    text: [u8; ROW],
    length: usize,
}

/// The longest row takes less: 20 bytes of keys, two numbers of 20 and one of 12.
const ROW: usize = 80;

impl<W: Write> ChromeWriter<W> {
    /// Writes a slice of a span, to the byte as [`slice`](ChromeWriter::slice) writes its activity.
    pub(super) fn span_slice(&mut self, slice: &SliceRow<'_>) {
        let ChromeWriter { out, shared, base, .. } = self;
        let SliceRow { args, start, end, .. } = slice;
        let (tenths, rest) = (start.since(*base) / TENTH, start.since(*base) % TENTH);
        let (site, row) = shared.of(slice, tenths);
        match slice.name {
            None => out.verbatim(&site.start),
            Some(name) => start_of_slice(out, args.site.kind, name),
        }
        out.piece(|piece| {
            piece.block(&row.text, row.length);
            if tenths == 0 {
                piece.micros(rest);
            } else {
                piece.micros_of_tenth(rest);
            }
            piece.raw(b",\"dur\":");
            piece.micros(end.since(*start));
            if site.has_own_id {
                piece.raw(b",\"args\":{\"External id\":");
                piece.wide(slice.id.0);
                piece.raw(b",\"span id\":");
            } else {
                piece.raw(b",\"args\":{\"span id\":");
            }
            piece.wide(args.span);
            if args.parent != 0 {
                piece.raw(b",\"parent id\":");
                piece.wide(args.parent);
            }
        });
        args.fields.visit(&mut |key, value| out.member(false, key, &value));
        out.verbatim(&site.end);
        args.marks.visit(&mut |key, value| out.member(false, key, &value));
        out.raw(b"}},");
    }
}

impl Shared {
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the list is made long enough first")]
    fn of(&mut self, slice: &SliceRow<'_>, tenths: u64) -> (&Site, &Row) {
        let number = slice.args.site.number;
        if self.sites.get(number).is_none_or(|site| site.start.is_empty()) {
            let length = self.sites.len().max(number + 1);
            self.sites.resize_with(length, Site::default);
            self.sites[number] = Site::render(slice.args.site);
        }
        let (row, SliceRow { process, thread, .. }) = (&self.row, slice);
        if (row.process, row.thread, row.tenths) != (*process, *thread, tenths) || row.length == 0 {
            self.row = Row::render(*process, *thread, tenths);
        }
        (&self.sites[number], &self.row)
    }
}

impl Site {
    #[cold]
    fn render(site: &SiteRow) -> Site {
        Site {
            start: rendered(|out| start_of_slice(out, site.kind, site.name)),
            has_own_id: has_own_id(site.kind),
            end: rendered(|out| site.visit(&mut |key, value| out.member(false, key, &value))),
        }
    }
}

impl Row {
    #[cold]
    fn render(process: i64, thread: i64, tenths: u64) -> Row {
        let rendered = rendered(|out| {
            place(out, Track::new(process, thread));
            if tenths > 0 {
                out.uint(tenths);
            }
        });
        let mut row = Row { process, thread, tenths, text: [0; ROW], length: rendered.len() };
        row.text.iter_mut().zip(rendered).for_each(|(place, byte)| *place = byte);
        row
    }
}

impl Default for Row {
    fn default() -> Row {
        Row { process: 0, thread: 0, tenths: 0, text: [0; ROW], length: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::activity::{ActivityType, ArgValue, CorrelationId, NO_ARGS};
    use crate::trace::rows::{Rows, SpanArgs};
    use crate::write::chrome::tests::{lines, ns};

    fn site(number: usize, kind: ActivityType, name: &'static str) -> SiteRow {
        let location = (number & 1 != 0).then(|| format!("src/\"{number}\".rs:1"));
        SiteRow { number, kind, name, target: (number & 2 != 0).then_some("a::b"), location }
    }

    proptest! {
        #[test]
        fn a_slice_in_parts_is_written_as_its_activity(
            slices in prop::collection::vec((0..40_usize, -2..2_i64, any::<i64>(), any::<[u64; 5]>(), any::<u8>()), 1..50)
        ) {
            let names = ["", "kernel", "a \"b\"", "forward", "a name of more than thirty-two bytes: \u{1}é"];
            let sites: Vec<SiteRow> = (0..40_u8)
                .map(|i| {
                    let kind = ActivityType::from_number(i % 29).filter(|kind| kind.is_host());
                    site(usize::from(i), kind.unwrap_or(ActivityType::CpuOp), names[usize::from(i) % names.len()])
                })
                .collect();
            let fields: [(&str, ArgValue<'_>); 2] = [("k\t", ArgValue::Str("v\n")), ("n", ArgValue::I64(-1))];
            let marks: [(&str, ArgValue<'_>); 1] = [("finished", ArgValue::Bool(false))];
            let rows: Vec<SliceRow<'_>> = slices
                .iter()
                .map(|(number, process, thread, [start, lasted, id, span, parent], bits)| SliceRow {
                    name: (bits & 1 != 0).then_some("its own \\"),
                    process: *process,
                    // Rows come again.
                    thread: if bits & 16 != 0 { thread % 3 } else { *thread },
                    start: ns(start >> (bits & 31)),
                    end: ns((start >> (bits & 31)).saturating_add(lasted >> (bits >> 3))),
                    id: CorrelationId(id | 1),
                    args: SpanArgs {
                        span: *span,
                        parent: if bits & 2 != 0 { *parent } else { 0 },
                        fields: if bits & 4 != 0 { &fields } else { NO_ARGS },
                        site: &sites[*number],
                        marks: if bits & 8 != 0 { &marks } else { NO_ARGS },
                    },
                })
                .collect();
            let in_parts = lines(|writer| rows.iter().for_each(|row| Rows::slice(writer, row).unwrap()));
            let whole = lines(|writer| rows.iter().for_each(|row| writer.activity(&row.activity()).unwrap()));
            prop_assert_eq!(in_parts, whole);
        }
    }

    #[test]
    fn the_longest_row_is_kept_whole() {
        let row = Row::render(i64::MIN, i64::MAX, u64::MAX / TENTH);
        assert!(row.length < ROW);
        let expected = format!(",\"pid\":{},\"tid\":{},\"ts\":184467440737", i64::MIN, i64::MAX);
        assert_eq!(&row.text[..row.length], expected.as_bytes());
    }
}

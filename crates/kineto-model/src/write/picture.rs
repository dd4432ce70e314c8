//! The memory timeline as an HTML page with an SVG chart: one stacked area for each category.

use super::timeline::{Sizes, apply_row};
use crate::memory::Category;
use crate::memory::MemoryTimeline;
use kineto_base::text::count_with_noun;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The page template.
const PAGE: &str = include_str!("picture.html");

/// The horizontal resolution: one column per pixel.
const COLUMNS: usize = 1112;
/// The chart area and the margins for axes.
const LEFT: u64 = 76;
const RIGHT: u64 = LEFT + COLUMNS as u64;
const WIDTH: u64 = RIGHT + 12;
const HEIGHT: u64 = 500;
const TOP: u64 = 22;
const BOTTOM: u64 = HEIGHT - 34;

/// The sizes in each column at its maximum, so that no peak is lost.
struct Columns {
    sizes: Vec<Sizes>,
    /// The time from the first row to the last.
    nanos: u64,
}

/// Writes the page.
///
/// # Errors
/// Those of `out`.
pub fn write_html(timeline: &MemoryTimeline, out: &mut dyn Write) -> io::Result<()> {
    let columns = Columns::new(timeline);
    let runs = columns.equal_runs();
    let names = Category::ALL.iter().map(|category| format!("\"{category}\"")).collect::<Vec<_>>().join(",");
    let run = |(at, sizes): &(usize, Sizes)| format!("[{at},{}]", sizes.map(|size| size.to_string()).join(","));
    let places = [
        ("{{title}}", format!("{} memory", timeline.device())),
        ("{{summary}}", summary_line(timeline, columns.nanos)),
        ("{{legend}}", columns.legend_html()),
        ("{{svg}}", if runs.is_empty() { String::new() } else { columns.chart_svg(&runs, timeline.max_allocated()) }),
        ("{{names}}", format!("[{names}]")),
        ("{{runs}}", format!("[{}]", runs.iter().map(run).collect::<Vec<_>>().join(","))),
        ("{{columns}}", COLUMNS.to_string()),
        ("{{nanos}}", columns.nanos.to_string()),
        ("{{left}}", LEFT.to_string()),
        ("{{width}}", (RIGHT - LEFT).to_string()),
    ];
    let page = places.iter().fold(PAGE.to_owned(), |page, (place, text)| page.replace(place, text));
    out.write_all(page.as_bytes())?;
    out.flush()
}

/// Returns the line above the chart.
fn summary_line(timeline: &MemoryTimeline, nanos: u64) -> String {
    if timeline.rows().is_empty() {
        return "No memory events were recorded.".to_owned();
    }
    let mut text = format!("Max allocated <b>{}</b>", format_bytes(timeline.max_allocated()));
    if timeline.max_reserved() > 0 {
        let _ = write!(text, ", max reserved <b>{}</b>", format_bytes(timeline.max_reserved()));
    }
    let _ = write!(text, ", {} in {}", count_with_noun(timeline.rows().len() as u64, "row"), format_time(nanos));
    text
}

fn total_size(sizes: &Sizes) -> u64 {
    sizes.iter().map(|size| u64::try_from(*size).unwrap_or(0)).fold(0, u64::saturating_add)
}

impl Columns {
    fn new(timeline: &MemoryTimeline) -> Columns {
        let time = |row: &crate::memory::MemoryRow| row.time.map(|time| time.as_nanos());
        let first = timeline.rows().iter().find_map(time).unwrap_or(0);
        let nanos = timeline.rows().last().and_then(time).unwrap_or(0).saturating_sub(first);
        let mut sizes = vec![Sizes::default(); if timeline.rows().is_empty() { 0 } else { COLUMNS }];
        let (mut now, mut at) = (Sizes::default(), 0);
        for row in timeline.rows() {
            let since = time(row).unwrap_or(first).saturating_sub(first);
            let column = u128::from(since) * (COLUMNS as u128 - 1) / u128::from(nanos.max(1));
            let column = usize::try_from(column).unwrap_or(at);
            // The previous sizes apply to all columns up to this one, and to its beginning.
            if let Some(between) = sizes.get_mut(at + 1..=column) {
                between.fill(now);
            }
            at = at.max(column);
            apply_row(row, &mut now);
            if let Some(highest) = sizes.get_mut(at).filter(|highest| total_size(highest) < total_size(&now)) {
                *highest = now;
            }
        }
        if let Some(rest) = sizes.get_mut(at + 1..) {
            rest.fill(now);
        }
        Columns { sizes, nanos }
    }

    /// Returns runs of equal columns, as their first column and sizes.
    fn equal_runs(&self) -> Vec<(usize, Sizes)> {
        let mut at = 0;
        let runs = self.sizes.chunk_by(|a, b| a == b).filter_map(|run| {
            let begin = at;
            at += run.len();
            run.first().map(|sizes| (begin, *sizes))
        });
        runs.collect()
    }

    /// Returns the categories in use, each with its maximum.
    fn legend_html(&self) -> String {
        let mut legend = String::new();
        for (category, number) in Category::ALL.iter().copied().zip(0usize..) {
            let sizes = self.sizes.iter().filter_map(|sizes| sizes.get(number).copied());
            let highest = sizes.max().and_then(|highest| u64::try_from(highest).ok()).filter(|highest| *highest > 0);
            if let Some(highest) = highest {
                let highest = format_bytes(highest);
                let _ = writeln!(
                    legend,
                    "<li><i style=\"background:var(--c{number})\"></i>{category} <span>up to {highest}</span></li>"
                );
            }
        }
        legend
    }

    fn chart_svg(&self, runs: &[(usize, Sizes)], max_allocated: u64) -> String {
        let top = self.sizes.iter().map(total_size).max().unwrap_or(0).max(max_allocated).max(1);
        let y = |bytes: u64| BOTTOM as f64 - (BOTTOM - TOP) as f64 * bytes as f64 / top as f64;
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
        for tick in axis_ticks(top, unit_of(top).0) {
            let (at, label) = (y(tick), format_bytes(tick));
            let _ = writeln!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8, at + 4.0);
        }
        for tick in axis_ticks(self.nanos, 1) {
            let at = LEFT as f64 + (RIGHT - LEFT) as f64 * tick as f64 / self.nanos.max(1) as f64;
            let (anchor, label) = (if at > RIGHT as f64 - 24.0 { "end" } else { "middle" }, format_time(tick));
            let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{label}</text>", HEIGHT - 14);
        }
        let mut below = vec![0u64; runs.len()];
        for number in 0..Category::ALL.len() {
            let size =
                |(_, sizes): &(usize, Sizes)| sizes.get(number).map_or(0, |size| u64::try_from(*size).unwrap_or(0));
            let above: Vec<u64> = below.iter().zip(runs).map(|(below, run)| below.saturating_add(size(run))).collect();
            if above != below {
                let _ = writeln!(svg, "<path fill=\"var(--c{number})\" d=\"{}\"/>", area_path(runs, &below, &above, y));
            }
            below = above;
        }
        let (at, label) = (y(max_allocated), format_bytes(max_allocated));
        let _ = writeln!(svg, "<line class=\"peak\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        let _ = writeln!(
            svg,
            "<text class=\"peak-text\" x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">max allocated {label}</text>",
            at - 6.0
        );
        let _ = write!(svg, "<line id=\"line\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>\n</svg>");
        svg
    }
}

/// Returns the outline of an area: to the right along the upper edge, and back along the lower one.
fn area_path(runs: &[(usize, Sizes)], below: &[u64], above: &[u64], y: impl Fn(u64) -> f64) -> String {
    let ends = runs.iter().skip(1).map(|(at, _)| *at).chain([COLUMNS]);
    let steps: Vec<_> = runs.iter().map(|(at, _)| *at).zip(ends).collect();
    let x = |column: usize| LEFT + column as u64;
    let mut path = format!("M{LEFT} {BOTTOM}");
    for ((begin, end), height) in steps.iter().zip(above) {
        let _ = write!(path, "L{} {:.1}H{}", x(*begin), y(*height), x(*end));
    }
    for ((begin, end), height) in steps.iter().zip(below).rev() {
        let _ = write!(path, "L{} {:.1}H{}", x(*end), y(*height), x(*begin));
    }
    path + "Z"
}

/// Returns round numbers from 0 to `top`, in steps of 1, 2 or 5 times a power of ten of `unit`.
fn axis_ticks(top: u64, unit: u64) -> impl Iterator<Item = u64> {
    const WANTED: u64 = 6;
    let powers = (0..20).map(|power| unit.saturating_mul(10u64.saturating_pow(power)));
    let mut steps = powers.flat_map(|power| [1, 2, 5].map(|times| power.saturating_mul(times)));
    let step = steps.find(|step| top / (*step).max(1) <= WANTED).unwrap_or(u64::MAX).max(1);
    (0..=top / step).map(move |tick| tick * step)
}

const UNITS: [(u64, &str); 5] = [(1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB")];

/// Returns the largest unit that is not larger than `bytes`.
fn unit_of(bytes: u64) -> (u64, &'static str) {
    UNITS.into_iter().rev().find(|(unit, _)| bytes >= *unit).unwrap_or((1, "B"))
}

fn format_bytes(bytes: u64) -> String {
    let (unit, name) = unit_of(bytes);
    if bytes.is_multiple_of(unit) {
        return format!("{} {name}", bytes / unit);
    }
    format!("{:.2} {name}", bytes as f64 / unit as f64)
}

fn format_time(nanos: u64) -> String {
    let (unit, name) = match nanos {
        0 => return "0".to_owned(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let text = format!("{:.3}", nanos as f64 / unit as f64);
    format!("{} {name}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_readable_units() {
        let texts = [0, 1, 1023, 1024, 1536, 5 << 30].map(format_bytes);
        assert_eq!(texts, ["0 B", "1 B", "1023 B", "1 KiB", "1.50 KiB", "5 GiB"]);
        assert_eq!(
            [0, 999, 1500, 20_000_000, 3_000_000_001].map(format_time),
            ["0", "999 ns", "1.5 µs", "20 ms", "3 s"]
        );
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(axis_ticks(13, 1).collect::<Vec<_>>(), [0, 2, 4, 6, 8, 10, 12]);
        assert_eq!(axis_ticks(6 << 20, 1 << 20).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6].map(|n| n << 20));
        for top in [0, 1, 7, 999, 1 << 40, u64::MAX] {
            assert!((1..=8).contains(&axis_ticks(top, unit_of(top).0).count()), "{top}");
        }
    }
}

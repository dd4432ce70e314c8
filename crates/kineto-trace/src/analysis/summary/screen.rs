//! Formats a summary as text: the overview first, then tables.

use super::findings::{format_ns, percent_of};
use super::path::PathText;
use super::{Occupation, Summary};
use crate::analysis::averages::Average;
use crate::analysis::averages::units::format_bytes;
use crate::text::{count_with_noun, printable};
use std::cmp::Reverse;
use std::fmt::{self, Formatter};

/// A summary as text; made by [`Summary::screen`], printed by `Display`.
///
/// Lines fit the width; times have units.
#[derive(Clone, Debug)]
#[must_use = "print it"]
pub struct Screen<'s> {
    summary: &'s Summary,
    width: usize,
    rows: usize,
    has_color: bool,
    is_brief: bool,
}

/// The width of numeric columns.
const NUMBER: usize = 12;

impl<'s> Screen<'s> {
    pub(super) fn new(summary: &'s Summary) -> Screen<'s> {
        Screen { summary, width: 100, rows: 10, has_color: false, is_brief: false }
    }

    /// Sets the line length in characters. Default: 100; at least 80.
    pub fn width(self, width: usize) -> Self {
        Screen { width: width.max(80), ..self }
    }

    /// Sets the number of operations and kernels to list. Default: 10.
    pub fn rows(self, rows: usize) -> Self {
        Screen { rows, ..self }
    }

    /// Sets whether only the first line and what to do next are shown. Default: false.
    pub fn brief(self, is_brief: bool) -> Self {
        Screen { is_brief, ..self }
    }

    /// Sets whether headings are bold, with ANSI escapes. Default: false.
    pub fn color(self, has_color: bool) -> Self {
        Screen { has_color, ..self }
    }

    fn write_heading(&self, f: &mut Formatter<'_>, text: &str) -> fmt::Result {
        if self.has_color { writeln!(f, "\n\x1b[1m{text}\x1b[0m") } else { writeln!(f, "\n{text}") }
    }

    fn write_overview(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let summary = self.summary;
        if let Some(reason) = &summary.dump_reason {
            writeln!(f, "{}", truncate_name(&format!("dumped because of: {reason}"), self.width))?;
        }
        let mut parts = vec![format_ns(summary.span_ns), count_with_noun(summary.slices, "slice").to_string()];
        parts.extend(summary.rank.map(|rank| format!("rank {rank}")));
        if summary.devices > 0 {
            parts.push(count_with_noun(summary.devices, "device").to_string());
            parts.push(count_with_noun(summary.stream_idle.len() as u64, "stream").to_string());
        }
        if let Some(median) = summary.median_step_ns() {
            parts.push(format!("{} of {}", count_with_noun(summary.steps.len() as u64, "step"), format_ns(median)));
        }
        filled_lines(&parts, "   ", self.width).iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let skipped =
            summary.notes.iter().filter(|(note, _)| note.is_loss()).map(|(note, count)| (note.to_string(), *count));
        for (cause, count) in summary.losses.iter().cloned().chain(skipped) {
            writeln!(f, "incomplete: {cause} ({count}); the figures below lack what was lost")?;
        }
        self.write_notes(f)?;
        self.write_unlisted(f)
    }

    /// Tells what was repaired or is ambiguous.
    fn write_notes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let treated = self.summary.notes.iter().filter_map(|(note, count)| Some((note, count, note.treatment()?)));
        treated.into_iter().try_for_each(|(note, count, how)| writeln!(f, "note: {note} ({count}); {how}"))
    }

    /// Tells which slices are in no table.
    fn write_unlisted(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const CATEGORIES: usize = 3;

        let unknown: Vec<_> = self.summary.unlisted.iter().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let names = unknown.iter().take(CATEGORIES).map(|(category, _)| truncate_name(category, 30));
        let mut names: Vec<_> =
            names.map(|name| if name.is_empty() { "no category".to_owned() } else { name }).collect();
        names.extend((unknown.len() > CATEGORIES).then(|| "…".to_owned()));
        let slices = count_with_noun(unknown.iter().map(|(_, count)| **count).sum(), "slice");
        writeln!(
            f,
            "not in the tables: {slices} of unknown categories ({}); kineto convert makes operations of them",
            names.join(", ")
        )
    }

    fn write_devices(&self, f: &mut Formatter<'_>, found: &Occupation) -> fmt::Result {
        /// The length of a full bar in characters.
        const BAR: usize = 25;

        let share = |ns| percent_of(ns, found.window_ns);
        let subject = if self.summary.devices == 1 { "The device is" } else { "The devices are" };
        let busy = share(found.busy_ns);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 25")]
        let filled = ((busy * BAR as f64 / 100.0).round() as usize).min(BAR);
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
        self.write_heading(f, &format!("{subject} busy {busy:.0} % of {}   {bar}", format_ns(found.window_ns)))?;
        let parts = [
            format!("compute {:.1} %", share(found.compute_ns)),
            format!(
                "communication {:.1} % ({:.1} % exposed)",
                share(found.communication_ns),
                share(found.exposed_communication_ns)
            ),
            format!("copies {:.1} %", share(found.memory_ns)),
            format!("idle {:.1} %", share(found.idle_ns())),
        ];
        filled_lines(&parts, "   ", self.width - 2).iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        let idle = &self.summary.idle;
        if idle.total_ns() > 0 {
            self.write_heading(f, "Where the idle time of streams comes from")?;
            let line = |ns, what: &str| format!("  {:5.1} %  {what}", percent_of(ns, idle.total_ns()));
            writeln!(f, "{}", line(idle.before_launch_ns, "before the launch: nothing was queued"))?;
            writeln!(f, "{}", line(idle.after_launch_ns, "after the launch: work was queued and started late"))?;
            if idle.unlinked_ns > 0 {
                writeln!(f, "{}", line(idle.unlinked_ns, "before work whose launch is unknown"))?;
            }
        }
        Ok(())
    }

    fn write_findings(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_heading(f, "What to do next")?;
        let findings = self.summary.findings();
        if findings.is_empty() {
            let text = match &self.summary.dump_reason {
                _ if self.summary.slices == 0 => "There is no slice.".to_owned(),
                Some(reason) => truncate_name(&format!("Find out what led to the dump: {reason}"), self.width - 2),
                None => "No problem was found.".to_owned(),
            };
            return writeln!(f, "  {text}");
        }
        for (number, finding) in (1..).zip(&findings) {
            let mut text = format!("{} {}", finding.title, finding.evidence);
            if finding.gain_ns > 0 {
                text += &format!(" Worth up to {}.", format_ns(finding.gain_ns));
            }
            let lines = filled_lines(&text.split_whitespace().collect::<Vec<_>>(), " ", self.width - 5);
            for (line, text) in lines.iter().enumerate() {
                let mark = if line == 0 { number.to_string() } else { String::new() };
                writeln!(f, "  {mark:1}  {text}")?;
            }
        }
        Ok(())
    }

    fn write_paths(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let summary = self.summary;
        // Without device work, the table of operations shows the same.
        if summary.device_events == 0 {
            return Ok(());
        }
        let trace = summary.critical_path.as_ref().map(|path| ("the trace".to_owned(), path));
        let step = summary
            .longest_step_path
            .as_ref()
            .map(|step| (format!("step {}, the longest", step.number), &step.figures));
        for (subject, path) in trace.into_iter().chain(step) {
            let text = PathText::new(&subject, path, self.width);
            self.write_heading(f, &text.heading)?;
            text.lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        Ok(())
    }

    fn write_steps(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const MOST: usize = 6;

        let steps = &self.summary.steps;
        if steps.is_empty() {
            return Ok(());
        }
        self.write_heading(f, "Steps")?;
        for step in steps.iter().take(MOST) {
            let busy = percent_of(step.device_busy_in_window_ns, step.ns);
            let device = if self.summary.devices > 0 { format!("   devices busy {busy:.0} %") } else { String::new() };
            writeln!(f, "  #{:<6} {:>NUMBER$}{device}", step.number, format_ns(step.ns))?;
        }
        match steps.len().checked_sub(MOST) {
            Some(more @ 1..) => writeln!(f, "  … {}", count_with_noun(more as u64, "more step")),
            _ => Ok(()),
        }
    }

    fn write_operations(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let has_devices = self.summary.device_events > 0;
        let mut rows: Vec<&Average> = self.summary.averages.ops().iter().collect();
        let key = |row: &&Average| if has_devices { row.device_ns().cast_signed() } else { row.self_cpu_ns() };
        rows.sort_by_key(|row| (Reverse(key(row)), Reverse(row.self_cpu_ns()), row.name()));
        if rows.is_empty() {
            return Ok(());
        }
        self.write_heading(f, if has_devices { "Operations, by device time" } else { "Operations, by self time" })?;
        let third = if has_devices { "device" } else { "CPU mean" };
        let cells = |row: &Average| {
            let own = u64::try_from(row.self_cpu_ns()).unwrap_or(0);
            let third = if has_devices { row.device_ns() } else { row.cpu_ns() / row.count().max(1) };
            [format_ns(own), format_ns(row.cpu_ns()), format_ns(third), row.count().to_string()]
        };
        let rows = rows.into_iter().map(|row| (row.name(), cells(row)));
        self.write_table(f, ["self CPU", "total CPU", third, "calls"], rows)
    }

    fn write_kernels(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let total: u64 = self.summary.kernels.iter().map(|row| row.durations.sum_ns).sum();
        if self.summary.kernels.is_empty() {
            return Ok(());
        }
        self.write_heading(f, "Kernels, copies and fills")?;
        let rows = self.summary.kernels.iter().map(|row| {
            let count = row.durations.count;
            let mean = row.durations.sum_ns / count.max(1);
            let share = format!("{:.1} %", percent_of(row.durations.sum_ns, total));
            (row.name.as_str(), [format_ns(row.durations.sum_ns), format_ns(mean), share, count.to_string()])
        });
        self.write_table(f, ["total", "mean", "share", "calls"], rows)
    }

    fn write_memory(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.summary.memory.is_empty() {
            return Ok(());
        }
        self.write_heading(f, "Memory")?;
        let rows = self.summary.memory.iter().map(|row| {
            let peak = row.peak_allocated.map_or_else(|| "-".to_owned(), |bytes| format_bytes(bytes.cast_signed()));
            (
                row.title(),
                [
                    peak,
                    format_bytes(row.growth),
                    format_bytes(row.allocated_bytes.cast_signed()),
                    row.allocations.to_string(),
                ],
            )
        });
        self.write_table(f, ["peak", "growth", "allocated", "allocations"], rows)
    }

    fn write_counters(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.summary.counters.is_empty() {
            return Ok(());
        }
        self.write_heading(f, "Counters")?;
        let rows = self.summary.counters.iter().map(|row| {
            let name = [row.track.as_str(), row.name.as_str(), row.series.as_str()];
            let name = name.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" · ");
            (name, [format_float(row.min), format_float(row.mean), format_float(row.max), row.count.to_string()])
        });
        self.write_table(f, ["min", "mean", "max", "values"], rows)
    }

    fn write_table(
        &self,
        f: &mut Formatter<'_>,
        titles: [&str; 4],
        rows: impl ExactSizeIterator<Item = (impl AsRef<str>, [String; 4])>,
    ) -> fmt::Result {
        let name = self.width - 2 - titles.len() * (NUMBER + 1);
        let numbers = |cells: [&str; 4]| cells.map(|cell| format!(" {cell:>NUMBER$}")).concat();
        writeln!(f, "  {:name$}{}", "", numbers(titles))?;
        let more = rows.len().saturating_sub(self.rows);
        for (text, cells) in rows.take(self.rows) {
            writeln!(
                f,
                "  {:name$}{}",
                truncate_name(text.as_ref(), name),
                numbers(cells.each_ref().map(String::as_str))
            )?;
        }
        if more > 0 { writeln!(f, "  … {}", count_with_noun(more as u64, "more row")) } else { Ok(()) }
    }
}

impl fmt::Display for Screen<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_overview(f)?;
        if self.is_brief {
            return self.write_findings(f);
        }
        if let Some(found) = &self.summary.occupation {
            self.write_devices(f, found)?;
        }
        self.write_findings(f)?;
        self.write_paths(f)?;
        self.write_steps(f)?;
        self.write_operations(f)?;
        self.write_kernels(f)?;
        self.write_memory(f)?;
        self.write_counters(f)
    }
}

/// Formats a counter's value in at most 12 characters.
fn format_float(value: f64) -> String {
    match value.abs() {
        1e9.. => format!("{value:.3e}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

/// Returns a printable name, truncated to `width`.
pub(in crate::analysis) fn truncate_name(name: &str, width: usize) -> String {
    let name = printable(name);
    if name.chars().count() <= width {
        return name;
    }
    let kept: String = name.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Fills lines with parts up to the width; longer parts are truncated.
pub(super) fn filled_lines<T: AsRef<str>>(parts: &[T], separator: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts.iter().map(T::as_ref) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + separator.len() + part.chars().count() <= width => {
                line.push_str(separator);
                line.push_str(part);
            }
            _ => lines.push(truncate_name(part, width)),
        }
    }
    lines
}

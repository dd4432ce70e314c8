//! Formats a summary as text: a first screen that answers, then tables.

use super::findings::{Finding, format_ns, percent_of};
use super::path::PathText;
use super::{Occupation, Summary};
use crate::analysis::averages::Average;
use crate::analysis::averages::units::format_bytes;
use crate::sorting::sort_few_by_key;
use crate::text::{count_with_noun, filled_lines, padded, truncate_name};
use crate::{Error, ErrorKind};
use kineto_model::named_values;
use std::cmp::Reverse;
use std::fmt::{self, Formatter};
use std::str::FromStr;

/// A summary as text; made by [`Summary::screen`], printed by `Display`.
///
/// The first 23 lines show what the trace is, how busy devices are, why they are idle, what to do next, and how long
/// requests take. All lines fit the width; times have units.
#[derive(Clone, Debug)]
#[must_use = "print it"]
pub struct Screen<'s> {
    summary: &'s Summary,
    width: usize,
    rows: usize,
    has_color: bool,
    is_brief: bool,
    section: Option<ScreenSection>,
}

named_values! {
    /// A section below the first screen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ScreenSection {
        /// The findings with their evidence.
        Findings => "findings",
        /// The critical paths.
        Path => "path",
        /// The steps.
        Steps => "steps",
        /// Operations of the host.
        Operations => "operations",
        /// Kernels, copies and fills.
        Kernels => "kernels",
        /// Memory of the host and of devices.
        Memory => "memory",
        /// Counters.
        Counters => "counters",
    }

    /// All sections, in their order.
    pub const ALL;

    /// Returns its name: "findings", "path", "steps", "operations", "kernels", "memory" or "counters".
    pub const fn as_str;
}

impl ScreenSection {
    /// Returns the name of what the section shows, for a trace that lacks it.
    const fn contents(self) -> &'static str {
        match self {
            ScreenSection::Path => "device work, which the critical path needs",
            ScreenSection::Kernels => "kernels, copies or fills",
            ScreenSection::Memory => "memory records",
            _ => self.as_str(),
        }
    }
}

impl FromStr for ScreenSection {
    type Err = Error;

    /// Parses the name.
    fn from_str(name: &str) -> Result<ScreenSection, Error> {
        let names = ScreenSection::ALL.iter().map(|each| each.as_str()).collect::<Vec<_>>().join(", ");
        let found = ScreenSection::ALL.iter().copied().find(|section| section.as_str() == name);
        found.ok_or_else(|| Error::new(ErrorKind::Config, format!("unknown section `{name}`; use one of {names}")))
    }
}

/// The lines of the first screen; a heading with the trace's name fits above them.
const FIRST_LINES: usize = 23;

/// The width of numeric columns.
const NUMBER: usize = 12;

impl<'s> Screen<'s> {
    pub(super) fn new(summary: &'s Summary) -> Screen<'s> {
        Screen { summary, width: 80, rows: 10, has_color: false, is_brief: false, section: None }
    }

    /// Sets the line length in characters. Default: 80, which is the least.
    pub fn width(self, width: usize) -> Self {
        Screen { width: width.max(80), ..self }
    }

    /// Sets the number of operations and kernels to list. Default: 10.
    pub fn rows(self, rows: usize) -> Self {
        Screen { rows, ..self }
    }

    /// Sets whether only the first screen is shown. Default: false.
    pub fn brief(self, is_brief: bool) -> Self {
        Screen { is_brief, ..self }
    }

    /// Sets that only the overview and this section are shown, or that the trace has nothing for it.
    pub fn section(self, section: ScreenSection) -> Self {
        Screen { section: Some(section), ..self }
    }

    /// Sets whether headings are bold, with ANSI escapes. Default: false.
    pub fn color(self, has_color: bool) -> Self {
        Screen { has_color, ..self }
    }

    fn write_heading(&self, f: &mut dyn fmt::Write, text: &str) -> fmt::Result {
        if self.has_color { writeln!(f, "\n\x1b[1m{text}\x1b[0m") } else { writeln!(f, "\n{text}") }
    }

    fn write_overview(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        /// The number of causes of loss that are listed.
        const CAUSES: usize = 2;

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
        let causes: Vec<_> = summary.losses.iter().cloned().chain(skipped).collect();
        for (cause, count) in causes.iter().take(CAUSES) {
            let text = format!("incomplete: {cause} ({count}); the figures below lack what was lost");
            writeln!(f, "{}", truncate_name(&text, self.width))?;
        }
        if let Some(more @ 1..) = causes.len().checked_sub(CAUSES) {
            writeln!(f, "incomplete: {}; --json lists them", count_with_noun(more as u64, "more cause"))?;
        }
        self.write_notes(f)?;
        self.write_unlisted(f)
    }

    /// Tells what was repaired or is ambiguous.
    fn write_notes(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        /// The number of notes that are listed.
        const NOTES: usize = 3;

        let notes = self.summary.notes.iter();
        let treated: Vec<_> = notes.filter_map(|(note, count)| Some((note, count, note.treatment()?))).collect();
        for (note, count, how) in treated.iter().take(NOTES) {
            writeln!(f, "{}", truncate_name(&format!("note: {note} ({count}); {how}"), self.width))?;
        }
        match treated.len().checked_sub(NOTES) {
            Some(more @ 1..) => writeln!(f, "note: {}; --json lists them", count_with_noun(more as u64, "more note")),
            _ => Ok(()),
        }
    }

    /// Tells which slices are in no table.
    fn write_unlisted(&self, f: &mut dyn fmt::Write) -> fmt::Result {
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
        let names = names.join(", ");
        let text = format!(
            "not in the tables: {slices} of unknown categories ({names}); kineto convert makes operations of them"
        );
        self.write_words(f, "", &text, 2)
    }

    /// Writes a text in at most so many lines, which begin with `indent`.
    fn write_words(&self, f: &mut dyn fmt::Write, indent: &str, text: &str, lines: usize) -> fmt::Result {
        let words: Vec<_> = text.split_whitespace().collect();
        let filled = filled_lines(&words, " ", self.width - indent.len());
        for (number, line) in (1..).zip(filled.iter().take(lines)) {
            let is_cut = number == lines && filled.len() > lines;
            let line =
                if is_cut { truncate_name(&format!("{line} …"), self.width - indent.len()) } else { line.clone() };
            writeln!(f, "{indent}{line}")?;
        }
        Ok(())
    }

    fn write_devices(&self, f: &mut dyn fmt::Write, found: &Occupation) -> fmt::Result {
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
            writeln!(f, "  Where the idle time of streams comes from:")?;
            let line = |ns, what: &str| format!("  {:5.1} %  {what}", percent_of(ns, idle.total_ns()));
            writeln!(f, "{}", line(idle.before_launch_ns, "before the launch: nothing was queued"))?;
            writeln!(f, "{}", line(idle.after_launch_ns, "after the launch: work was queued and started late"))?;
            if idle.unlinked_ns > 0 {
                writeln!(f, "{}", line(idle.unlinked_ns, "before work whose launch is unknown"))?;
            }
        }
        Ok(())
    }

    /// Writes the findings in at most so many lines, without their evidence.
    fn write_titles(&self, f: &mut dyn fmt::Write, lines: usize) -> fmt::Result {
        const LINES: usize = 2;

        self.write_heading(f, "What to do next")?;
        let findings = self.summary.findings();
        if findings.is_empty() {
            let text = match &self.summary.dump_reason {
                _ if self.summary.slices == 0 => "There is no slice.".to_owned(),
                Some(reason) => format!("Find out what led to the dump: {reason}"),
                None => "No problem was found.".to_owned(),
            };
            return self.write_words(f, "  ", &text, LINES);
        }
        let shown = findings.len().min(lines.saturating_sub(3) / LINES);
        for (number, finding) in (1..).zip(findings.iter().take(shown)) {
            let text = finding.title.clone() + &format_gain(finding);
            let mut item = String::new();
            self.write_words(&mut item, "     ", &text, LINES)?;
            writeln!(f, "  {number:1}  {}", item.trim())?;
        }
        match findings.len() - shown {
            0 => Ok(()),
            more => writeln!(f, "  … {} below", count_with_noun(more as u64, "more finding")),
        }
    }

    /// Writes how long the requests of each name take.
    fn write_requests(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        const NAMES: usize = 2;

        for row in self.summary.requests.iter().take(NAMES) {
            let (name, count) = (truncate_name(&row.name, 30), count_with_noun(row.count, "request"));
            let [median, p95, max] = [row.p50_ns, row.p95_ns, row.max_ns].map(format_ns);
            let text = format!("{count} `{name}`: median {median}, 95 % within {p95}, longest {max}");
            writeln!(f, "{}", truncate_name(&text, self.width))?;
        }
        Ok(())
    }

    /// Writes the first screen.
    fn write_first(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let (mut above, mut requests) = (String::new(), String::new());
        self.write_overview(&mut above)?;
        if let Some(found) = &self.summary.occupation {
            self.write_devices(&mut above, found)?;
        }
        self.write_requests(&mut requests)?;
        if !requests.is_empty() {
            requests.insert(0, '\n');
        }
        let used = above.lines().count() + requests.lines().count();
        f.write_str(&above)?;
        self.write_titles(f, FIRST_LINES.saturating_sub(used))?;
        f.write_str(&requests)
    }

    /// Writes the findings with their evidence.
    fn write_findings(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let (findings, is_alone) = (self.summary.findings(), self.section.is_some());
        if findings.is_empty() {
            return if is_alone { self.write_titles(f, FIRST_LINES) } else { Ok(()) };
        }
        self.write_heading(f, if is_alone { "What to do next" } else { "Findings, with evidence" })?;
        for (number, finding) in (1..).zip(&findings) {
            let text = format!("{} {}{}", finding.title, finding.evidence, format_gain(finding));
            let mut item = String::new();
            self.write_words(&mut item, "     ", &text, usize::MAX)?;
            writeln!(f, "  {number:1}  {}", item.trim())?;
        }
        Ok(())
    }

    fn write_section(&self, f: &mut dyn fmt::Write, section: ScreenSection) -> fmt::Result {
        match section {
            ScreenSection::Findings => self.write_findings(f),
            ScreenSection::Path => self.write_paths(f),
            ScreenSection::Steps => self.write_steps(f),
            ScreenSection::Operations => self.write_operations(f),
            ScreenSection::Kernels => self.write_kernels(f),
            ScreenSection::Memory => self.write_memory(f),
            ScreenSection::Counters => self.write_counters(f),
        }
    }

    fn write_paths(&self, f: &mut dyn fmt::Write) -> fmt::Result {
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

    fn write_steps(&self, f: &mut dyn fmt::Write) -> fmt::Result {
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

    fn write_operations(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let has_devices = self.summary.device_events > 0;
        let mut rows: Vec<&Average> = self.summary.averages.ops().iter().collect();
        let key = |row: &&Average| if has_devices { row.device_ns().cast_signed() } else { row.self_cpu_ns() };
        sort_few_by_key(&mut rows, |row| (Reverse(key(row)), Reverse(row.self_cpu_ns()), row.name()));
        let heading = if has_devices { "Operations, by device time" } else { "Operations, by self time" };
        let third = if has_devices { "device" } else { "CPU mean" };
        let cells = |row: &Average| {
            let own = u64::try_from(row.self_cpu_ns()).unwrap_or(0);
            let third = if has_devices { row.device_ns() } else { row.cpu_ns() / row.count().max(1) };
            [format_ns(own), format_ns(row.cpu_ns()), format_ns(third), row.count().to_string()]
        };
        let rows = rows.into_iter().map(|row| (row.name(), cells(row)));
        self.write_table(f, heading, ["self CPU", "total CPU", third, "calls"], rows)
    }

    fn write_kernels(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let total: u64 = self.summary.kernels.iter().map(|row| row.durations.sum_ns).sum();
        let rows = self.summary.kernels.iter().map(|row| {
            let count = row.durations.count;
            let mean = row.durations.sum_ns / count.max(1);
            let share = format!("{:.1} %", percent_of(row.durations.sum_ns, total));
            (row.name.as_str(), [format_ns(row.durations.sum_ns), format_ns(mean), share, count.to_string()])
        });
        self.write_table(f, "Kernels, copies and fills", ["total", "mean", "share", "calls"], rows)
    }

    fn write_memory(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let rows = self.summary.memory.iter().map(|row| {
            let peak = row.peak_allocated.map_or_else(|| "-".to_owned(), |bytes| format_bytes(bytes.cast_signed()));
            let allocated = format_bytes(row.allocated_bytes.cast_signed());
            (row.title(), [peak, format_bytes(row.growth), allocated, row.allocations.to_string()])
        });
        self.write_table(f, "Memory", ["peak", "growth", "allocated", "allocations"], rows)
    }

    fn write_counters(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let rows = self.summary.counters.iter().map(|row| {
            let name = [row.track.as_str(), row.name.as_str(), row.series.as_str()];
            let name = name.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" · ");
            (name, [format_float(row.min), format_float(row.mean), format_float(row.max), row.count.to_string()])
        });
        self.write_table(f, "Counters", ["min", "mean", "max", "values"], rows)
    }

    /// Writes a table, unless it has no row.
    fn write_table(
        &self,
        f: &mut dyn fmt::Write,
        heading: &str,
        titles: [&str; 4],
        rows: impl ExactSizeIterator<Item = (impl AsRef<str>, [String; 4])>,
    ) -> fmt::Result {
        if rows.len() == 0 {
            return Ok(());
        }
        self.write_heading(f, heading)?;
        let name = self.width - 2 - titles.len() * (NUMBER + 1);
        let numbers = |cells: [&str; 4]| cells.map(|cell| format!(" {cell:>NUMBER$}")).concat();
        writeln!(f, "  {:name$}{}", "", numbers(titles))?;
        let more = rows.len().saturating_sub(self.rows);
        for (text, cells) in rows.take(self.rows) {
            let text = padded(&truncate_name(text.as_ref(), name), name);
            writeln!(f, "  {text}{}", numbers(cells.each_ref().map(String::as_str)))?;
        }
        if more > 0 { writeln!(f, "  … {}", count_with_noun(more as u64, "more row")) } else { Ok(()) }
    }
}

impl fmt::Display for Screen<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(section) = self.section {
            self.write_overview(f)?;
            let mut text = String::new();
            self.write_section(&mut text, section)?;
            return match text.as_str() {
                "" => writeln!(f, "\nThe trace has no {}.", section.contents()),
                text => f.write_str(text),
            };
        }
        self.write_first(f)?;
        let mut sections = ScreenSection::ALL.iter().copied().filter(|_| !self.is_brief);
        sections.try_for_each(|section| self.write_section(f, section))
    }
}

/// Returns the gain of a finding as a sentence; empty without one.
fn format_gain(finding: &Finding) -> String {
    if finding.gain_ns > 0 { format!(" Worth up to {}.", format_ns(finding.gain_ns)) } else { String::new() }
}

/// Formats a counter's value in at most 12 characters.
fn format_float(value: f64) -> String {
    match value.abs() {
        1e9.. => format!("{value:.3e}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

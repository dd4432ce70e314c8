//! Formats a difference as text: the changes first, then the totals, then sections.

use super::{ChangeVerdict, ClassChange, ClassKind, ClassMove, Diff, DiffPart, DiffUnit, LeftOutReason, MatchReason};
use crate::analysis::summary::format_ns;
use crate::sorting::sort_few;
use crate::text::{filled_lines, truncate_name};
use std::fmt::{self, Formatter};

/// A difference as text; made by [`Diff::screen`], printed by `Display`.
///
/// The table of changes is first, then the totals and their parts, then all classes if [`rows`](DiffScreen::rows) is set. Lines fit the
/// width.
#[derive(Clone, Debug)]
#[must_use = "print it"]
pub struct DiffScreen<'d> {
    diff: &'d Diff,
    width: usize,
    rows: Option<usize>,
    has_color: bool,
}

/// The width of numeric columns.
const NUMBER: usize = 12;

/// The columns to the left of names: verdict, two times, change in time and percent.
const COLUMNS: usize = 8 + 3 * (NUMBER + 1) + 10;

impl<'d> DiffScreen<'d> {
    pub(super) fn new(diff: &'d Diff) -> DiffScreen<'d> {
        DiffScreen { diff, width: 100, rows: None, has_color: false }
    }

    /// Sets the line length in characters. Default: 100; at least 80.
    pub fn width(self, width: usize) -> Self {
        DiffScreen { width: width.max(80), ..self }
    }

    /// Lists this many classes of each section, in addition to the changes. Default: no sections.
    pub fn rows(self, rows: usize) -> Self {
        DiffScreen { rows: Some(rows), ..self }
    }

    /// Sets whether headings are bold, with ANSI escapes. Default: false.
    pub fn color(self, has_color: bool) -> Self {
        DiffScreen { has_color, ..self }
    }

    fn write_heading(&self, f: &mut Formatter<'_>, text: &str) -> fmt::Result {
        if self.has_color { writeln!(f, "\n\x1b[1m{text}\x1b[0m") } else { writeln!(f, "\n{text}") }
    }

    fn write_changes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        /// The most lines of the table, with its title.
        const LINES: usize = 8;

        // New and gone classes outside of steps have no time in them.
        let has_time =
            |change: &&ClassChange| [&change.a, &change.b].into_iter().flatten().any(|side| side.per_unit_ns() > 0);
        let changes: Vec<_> = self.diff.changes().filter(has_time).collect();
        if self.diff.total.verdict == ChangeVerdict::Drift && !self.diff.is_slower() {
            self.write_drift(f, changes.is_empty())?;
            if changes.is_empty() {
                return Ok(());
            }
        }
        if changes.is_empty() {
            return self.write_no_change(f);
        }
        self.write_titles(f)?;
        let shown = if changes.len() < LINES { changes.len() } else { LINES - 2 };
        changes.iter().take(shown).try_for_each(|change| self.write_class(f, change))?;
        match changes.len() - shown {
            0 => Ok(()),
            more => writeln!(f, "… {more} more changes"),
        }
    }

    /// Writes that no change is listed, unless the mean changed and too few values tell why.
    fn write_no_change(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let too_few = self.diff.with_verdict(ChangeVerdict::TooFew).count();
        if self.diff.total.verdict == ChangeVerdict::TooFew && self.diff.total.change_ns() != 0 {
            self.write_mean_doubt(f)?;
            return match too_few {
                0 => Ok(()),
                _ => {
                    let text = format!(
                        "{} changed or occurred too rarely to tell: record four or more steps or runs a side to find out.",
                        count_classes(too_few)
                    );
                    let words: Vec<_> = text.split_whitespace().collect();
                    filled_lines(&words, " ", self.width).iter().try_for_each(|line| writeln!(f, "{line}"))
                }
            };
        }
        let threshold = self.diff.threshold_percent;
        let doubt = match too_few {
            0 => String::new(),
            _ => format!("; {} occurred too rarely to tell", count_classes(too_few)),
        };
        writeln!(f, "No change above {threshold} % and the spread of the {}s{doubt}.", self.diff.unit.as_str())?;
        self.write_mean_doubt(f)
    }

    /// Writes that all changed alike if no change is listed, else that none is sure to explain the total. Both may be a real change.
    fn write_drift(&self, f: &mut Formatter<'_>, is_alike: bool) -> fmt::Result {
        let (diff, unit) = (self.diff, self.diff.unit.as_str());
        let percent = diff.total.change_percent.map_or_else(String::new, format_percent);
        if !is_alike || diff.total.slow_steps.is_some() {
            let slow = self.slow_steps();
            let has_doubtful_work = diff.changes().any(|change| change.kind == ClassKind::Work && change.needs_runs);
            let cause = if has_doubtful_work {
                "few runs cannot show whether work of a device explains it"
            } else {
                "no work of a device explains it"
            };
            writeln!(f, "The {unit} changed by {percent}{slow}, and {cause}.")?;
            self.write_place_drifts(f, ".")?;
            return writeln!(f, "The machine's load, or the program: {}.", RECORD_MORE);
        }
        let drift = diff.host_drift_percent.abs().max(diff.device_drift_percent.abs());
        let reason = if drift < diff.threshold_percent { "no more than single" } else { "as most" };
        let (host, devices) = (format_percent(diff.host_drift_percent), format_percent(diff.device_drift_percent));
        let reason = format!("{reason} classes did (of the host {host}, of devices {devices})");
        writeln!(f, "All changed alike: the {unit} by {percent}, {reason}.")?;
        let slower = if diff.is_slower_alike() { "slower" } else { "different" };
        writeln!(f, "A clock, the machine's load, or everything is {slower}: {}.", RECORD_MORE)
    }

    /// Writes that the mean changed by more than the threshold, although no change is listed.
    fn write_mean_doubt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let total = &self.diff.total;
        let percent = total.mean_change_percent();
        if percent.abs() < self.diff.threshold_percent || percent == 0.0 {
            return Ok(());
        }
        let (unit, reason) = (self.diff.unit.as_str(), total.verdict.explanation());
        let slow = self.slow_steps();
        writeln!(f, "The mean {unit} changed by {}{slow}: {reason}.", format_percent(percent))
    }

    /// Returns how many steps are slow, if that explains the change of the mean.
    fn slow_steps(&self) -> String {
        let shares = self.diff.total.slow_steps;
        shares.map_or_else(String::new, |shares| format!(", through slow steps ({})", format_shares(shares)))
    }

    fn write_titles(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let per = self.diff.unit.as_str();
        let titles = [format!("A per {per}"), format!("B per {per}"), "change".to_owned()];
        writeln!(f, "{:8}{}{:>10}  what", "", titles.map(|title| format!(" {title:>NUMBER$}")).concat(), "")
    }

    fn write_class(&self, f: &mut Formatter<'_>, change: &ClassChange) -> fmt::Result {
        let mean = |side: &Option<super::ClassSide>| {
            side.as_ref().map_or_else(|| "-".to_owned(), |side| format_ns(side.per_unit_ns()))
        };
        let percent = change.change_percent.map_or_else(String::new, format_percent);
        let name = format!("{}{}", describe_class(change), describe_match(change));
        let label = format!("{}{}", change.verdict.label(), if change.needs_runs { "?" } else { "" });
        self.write_row(f, &label, [mean(&change.a), mean(&change.b)], (change.change_ns(), &percent), &name)
    }

    fn write_row(
        &self,
        f: &mut Formatter<'_>,
        label: &str,
        [a, b]: [String; 2],
        (change, percent): (i64, &str),
        name: &str,
    ) -> fmt::Result {
        let name = truncate_name(name, self.width.saturating_sub(COLUMNS + 2));
        writeln!(f, "{label:8} {a:>NUMBER$} {b:>NUMBER$} {:>NUMBER$}{percent:>10}  {name}", format_change(change))
    }

    fn write_total(&self, f: &mut Formatter<'_>) -> fmt::Result {
        /// The most parts that are listed without `rows`.
        const PARTS: usize = 5;

        let (diff, total) = (self.diff, &self.diff.total);
        let counts = match diff.unit {
            DiffUnit::Step => format!("{} and {} steps", diff.a.steps, diff.b.steps),
            DiffUnit::Trace => format!("{} and {} traces", diff.a.traces, diff.b.traces),
        };
        let percent = match (total.slow_steps, total.change_percent) {
            (Some(_), _) => format!(" ({})", format_percent(total.mean_change_percent())),
            (None, Some(percent)) => format!(" ({} without outliers)", format_percent(percent)),
            (None, None) => String::new(),
        };
        self.write_heading(
            f,
            &format!(
                "Mean {}: {} -> {}, {}{percent}{}: {}",
                diff.unit.as_str(),
                format_ns(total.a_ns),
                format_ns(total.b_ns),
                format_change(total.change_ns()),
                self.slow_steps(),
                total.verdict.explanation(),
            ),
        )?;
        self.write_left_out(f)?;
        if let Some(side) = diff.side_without_steps {
            writeln!(f, "  {side} has fewer than four steps, so whole traces are compared")?;
        }
        writeln!(f, "  {counts}; parts of the critical path, which add up to the change:")?;
        let shown = self.rows.unwrap_or(PARTS).min(diff.parts.len());
        for part in diff.parts.iter().take(shown) {
            let name = describe_part(part);
            self.write_row(f, "", [format_ns(part.a_ns), format_ns(part.b_ns)], (part.change_ns(), ""), &name)?;
        }
        let rest = diff.parts.get(shown..).unwrap_or_default();
        if !rest.is_empty() {
            let sum = |ns: fn(&DiffPart) -> u64| rest.iter().map(ns).sum::<u64>();
            let (a, b) = (sum(|part| part.a_ns), sum(|part| part.b_ns));
            let name = format!("{} more parts of the critical path", rest.len());
            self.write_row(f, "", [format_ns(a), format_ns(b)], (super::signed_change(a, b), ""), &name)?;
        }
        self.write_drifts(f)
    }

    /// Writes what most classes share, if the first lines do not.
    fn write_drifts(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let diff = self.diff;
        if diff.total.verdict == ChangeVerdict::Drift && !diff.is_slower() {
            return Ok(());
        }
        let reason = if diff.has_enough_runs {
            ": compare it with how runs differ"
        } else {
            ": four or more runs a side rule out clocks and load"
        };
        self.write_place_drifts(f, reason)
    }

    fn write_place_drifts(&self, f: &mut Formatter<'_>, reason: &str) -> fmt::Result {
        let diff = self.diff;
        for (place, drift) in [("the host", diff.host_drift_percent), ("devices", diff.device_drift_percent)] {
            if drift.abs() >= diff.threshold_percent && drift != 0.0 {
                writeln!(f, "Most classes of {place} changed alike ({}){reason}", format_percent(drift))?;
            }
        }
        Ok(())
    }

    /// Writes which traces take no part, and why.
    fn write_left_out(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use LeftOutReason as R;
        for (name, other, side) in [("A", "B", &self.diff.a), ("B", "A", &self.diff.b)] {
            for reason in [R::RankOfOneSide, R::IncompleteRun, R::FewSteps] {
                let left_out: Vec<_> = side.left_out.iter().filter(|left_out| left_out.reason == reason).collect();
                if left_out.is_empty() {
                    continue;
                }
                let traces = list_numbers("trace", left_out.iter().map(|left_out| left_out.trace as i64 + 1));
                let ranks = list_numbers("rank", left_out.iter().filter_map(|left_out| left_out.rank));
                let why = match reason {
                    R::RankOfOneSide if ranks.is_empty() => format!("{other} has none without a rank"),
                    R::RankOfOneSide => format!("{other} lacks {ranks}"),
                    R::IncompleteRun => "other runs have more ranks".to_owned(),
                    R::FewSteps => "fewer than four steps".to_owned(),
                };
                writeln!(f, "  left out of {name}: {traces} ({why})")?;
            }
        }
        Ok(())
    }

    fn write_sections(&self, f: &mut Formatter<'_>, rows: usize) -> fmt::Result {
        let sections: [(&str, &[ClassKind]); 4] = [
            ("Operations, by self time", &[ClassKind::Operation]),
            ("Annotations", &[ClassKind::Annotation, ClassKind::DeviceAnnotation]),
            ("Runtime and driver calls", &[ClassKind::Call]),
            ("Kernels, copies and fills", &[ClassKind::Work]),
        ];
        for (title, kinds) in sections {
            let classes: Vec<_> = self.diff.classes.iter().filter(|change| kinds.contains(&change.kind)).collect();
            if classes.is_empty() {
                continue;
            }
            self.write_heading(f, title)?;
            self.write_titles(f)?;
            classes.iter().take(rows).try_for_each(|change| self.write_class(f, change))?;
            if classes.len() > rows {
                writeln!(f, "… {} more", classes.len() - rows)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for DiffScreen<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_changes(f)?;
        self.write_total(f)?;
        self.rows.map_or(Ok(()), |rows| self.write_sections(f, rows))
    }
}

impl ChangeVerdict {
    /// Returns a word of at most eight characters.
    const fn label(self) -> &'static str {
        match self {
            ChangeVerdict::TooFew => "too few",
            ChangeVerdict::Same => "",
            other => other.as_str(),
        }
    }

    /// Returns what it means for the total.
    const fn explanation(self) -> &'static str {
        match self {
            ChangeVerdict::Drift => "as most classes did",
            ChangeVerdict::Noise => "the spread explains it",
            ChangeVerdict::TooFew => "too few values to tell",
            ChangeVerdict::Same => "below the threshold",
            other => other.as_str(),
        }
    }
}

/// What to do if few runs cannot distinguish a change from the machine's load.
const RECORD_MORE: &str = "record four or more runs a side to find out";

fn count_classes(count: usize) -> String {
    format!("{count} {}", if count == 1 { "class" } else { "classes" })
}

/// Lists the first distinct numbers in order, such as "ranks 1, 2"; nothing if there are no numbers.
fn list_numbers(noun: &str, numbers: impl Iterator<Item = i64>) -> String {
    /// The most numbers of a list.
    const SHOWN: usize = 8;

    let mut all: Vec<i64> = numbers.collect();
    sort_few(&mut all);
    all.dedup();
    let shown: Vec<String> = all.iter().take(SHOWN).map(i64::to_string).collect();
    match (all.len(), all.len() - shown.len()) {
        (0, _) => String::new(),
        (1, _) => format!("{noun} {}", shown.concat()),
        (_, 0) => format!("{noun}s {}", shown.join(", ")),
        (_, more) => format!("{noun}s {} and {more} more", shown.join(", ")),
    }
}

fn describe_class(change: &ClassChange) -> String {
    let annotation = if change.kind == ClassKind::DeviceAnnotation { " (on the device)" } else { "" };
    let moves = change.moves.iter().map(|moved| match moved {
        ClassMove::Parent(a, b) => {
            let place = |name: &str| if name.is_empty() { "no operation".to_owned() } else { name.to_owned() };
            format!("from {} to {}", place(a), place(b))
        }
        ClassMove::Stream(a, b) => format!("from stream {a} to {b}"),
        ClassMove::SlowSteps(a, b) => format!("slow in {} of steps", format_shares([*a, *b])),
        ClassMove::Count(a, b) => format!("{a} -> {b} calls"),
    });
    let moves = moves.collect::<Vec<_>>().join(", ");
    let moves = if moves.is_empty() { moves } else { format!(": {moves}") };
    format!("{}{annotation}{moves}", change.name())
}

fn describe_match(change: &ClassChange) -> String {
    let names = |side: &Option<super::ClassSide>| side.as_ref().map_or_else(String::new, |side| side.names.join(", "));
    match change.matched {
        MatchReason::Place => format!(" (matched by place: {})", names(&change.a)),
        MatchReason::Name | MatchReason::Unmatched => String::new(),
    }
}

fn describe_part(part: &DiffPart) -> String {
    part.name.as_ref().map_or_else(|| part.kind.to_string(), |name| format!("{name} ({})", part.kind))
}

/// Formats a signed time in the unit of its size.
fn format_change(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "+" };
    format!("{sign}{}", format_ns(ns.unsigned_abs()))
}

fn format_shares([a, b]: [f64; 2]) -> String {
    format!("{:.0} % -> {:.0} %", a * 100.0, b * 100.0)
}

fn format_percent(percent: f64) -> String {
    format!("{percent:+.1} %")
}

//! The printed table of averages, with torch's columns, units and order.

use super::builder::{OVERLOAD_TITLE, SHAPES_TITLE, STACK_TITLE};
use super::columns::{Column, Truncation};
use super::sort::SortBy;
use super::units::{TimeUnit, flop_unit, format_bytes, format_percentage, format_short_time, format_time};
use super::{Average, KeyAverages, Section};
use crate::sorting::sort_few_by;
use crate::text::{char_width, text_width};
use std::fmt;

/// A table of averages; made by [`KeyAverages::table`] and printed by `Display`.
///
/// It prints operations, then kernels, then annotations on devices, each with the base of its percentages. Columns,
/// units and widths are those of torch's table. [`torch`](Table::torch) prints a single table, as torch does.
#[derive(Clone, Debug)]
#[must_use = "print it"]
pub struct Table<'a> {
    pub(super) averages: &'a KeyAverages,
    sort_by: Option<SortBy>,
    row_limit: Option<usize>,
    max_name: usize,
    max_shapes: usize,
    max_source: usize,
    header: Option<String>,
    top_level_only: bool,
    unit: Option<TimeUnit>,
    width: Option<usize>,
    spread: bool,
    memory: bool,
    flops: bool,
    as_torch: bool,
}

/// Spaces between two columns.
const GAP: usize = 2;
/// The width of a numeric column.
const NUMBER: usize = 12;
/// The name column shrinks to this width before columns are dropped.
const NAME_MIN: usize = 24;
/// The least widths of texts if all columns that may be dropped are: first this or the title's, then the other.
const GROUP_MIN: usize = 12;
const GROUP_LEAST: usize = 8;

impl<'a> Table<'a> {
    pub(super) fn new(averages: &'a KeyAverages) -> Table<'a> {
        Table {
            averages,
            sort_by: None,
            row_limit: Some(100),
            max_name: 55,
            max_shapes: 80,
            max_source: 75,
            header: None,
            top_level_only: false,
            unit: None,
            width: None,
            spread: false,
            memory: true,
            flops: true,
            as_torch: false,
        }
    }

    /// Sets the sort key. Default: self time, of the host for operations, of the device for other rows.
    pub fn sort_by(self, key: SortBy) -> Self {
        Table { sort_by: Some(key), ..self }
    }

    /// Limits the rows of each section. Default: 100; `None` prints all.
    pub fn row_limit(self, rows: impl Into<Option<usize>>) -> Self {
        Table { row_limit: rows.into(), ..self }
    }

    /// Limits the width of the name column, in characters. Default: 55.
    pub fn max_name_column_width(self, characters: usize) -> Self {
        Table { max_name: characters, ..self }
    }

    /// Limits the width of the shapes column, in characters. Default: 80.
    pub fn max_shapes_column_width(self, characters: usize) -> Self {
        Table { max_shapes: characters, ..self }
    }

    /// Limits the width of the source location column, in characters. Default: 75.
    pub fn max_src_column_width(self, characters: usize) -> Self {
        Table { max_source: characters, ..self }
    }

    /// Sets a line that is printed above the table.
    pub fn header(self, text: impl Into<String>) -> Self {
        Table { header: Some(text.into()), ..self }
    }

    /// Prints only operations whose first call was inside no other operation. Default: false.
    pub fn top_level_events_only(self, on: bool) -> Self {
        Table { top_level_only: on, ..self }
    }

    /// Prints all times in this unit. Default: for each time, the largest unit in which it is at least 1.
    pub fn time_unit(self, unit: TimeUnit) -> Self {
        Table { unit: Some(unit), ..self }
    }

    /// Limits the length of lines in columns of a terminal, for example to a terminal's width. Default: no limit.
    ///
    /// Names shrink first, down to 24 characters. Then columns are dropped, and a line below the table counts them.
    pub fn width(self, characters: usize) -> Self {
        Table { width: Some(characters), ..self }
    }

    /// Adds columns for the spread of durations: minimum, median, 95th percentile, maximum, standard deviation.
    /// Default: false.
    pub fn spread(self, on: bool) -> Self {
        Table { spread: on, ..self }
    }

    /// Shows memory if some was recorded. Default: true.
    pub fn memory(self, on: bool) -> Self {
        Table { memory: on, ..self }
    }

    /// Shows floating-point operations if some are known. Default: true.
    pub fn flops(self, on: bool) -> Self {
        Table { flops: on, ..self }
    }

    /// Prints operations and kernels in one table, as torch does, for comparison with torch's.
    ///
    /// Its percentages add up to more than 100, because device time counts for operations and again for kernels.
    pub fn torch(self, on: bool) -> Self {
        Table { as_torch: on, ..self }
    }

    /// Returns the rows of a table in order. All of them determine the widths of columns, even beyond the row limit.
    pub(super) fn sorted_rows(&self, sections: &[Section]) -> Vec<&'a Average> {
        let rows = self.averages.iter().filter(|row| sections.contains(&row.section));
        let rows = rows.chain(self.averages.outside_ops.as_ref().filter(|_| self.as_torch));
        let mut rows: Vec<&Average> = rows.collect();
        if let Some(key) = self.sort_by {
            sort_few_by(&mut rows, |a, b| key.compare_rows(b, a).then(a.first.cmp(&b.first)));
        }
        rows
    }

    fn has_row(&self, has: impl Fn(&Average) -> bool) -> bool {
        self.averages.iter().any(has)
    }

    /// Returns the function that formats times: torch's have three decimals whatever their length.
    fn time_format(&self) -> impl Fn(f64) -> String + 'static {
        let (unit, is_short) = (self.unit, self.unit.is_none() && !self.as_torch);
        move |ns| if is_short { format_short_time(ns) } else { format_time(ns, unit) }
    }

    fn time_column(&self, title: String, rank: u8, ns: impl Fn(&Average) -> f64 + 'a) -> Column<'a> {
        let format = self.time_format();
        Column::new(title, NUMBER, rank, move |row| format(ns(row)))
    }

    /// Returns the columns of a table for these sections and rows.
    fn build_columns(&self, sections: &[Section], rows: &[&'a Average], what: &str) -> Vec<Column<'a>> {
        let mut columns = vec![self.name_column(what, rows, |row| row.name.clone())];
        columns.extend(self.group_columns(rows, |title| title == OVERLOAD_TITLE));
        let (ops, devices) = (sections.contains(&Section::Ops), sections.contains(&Section::Kernels));
        if ops {
            columns.extend(self.cpu_columns());
        }
        if self.has_row(|row| row.self_device_ns > 0) && (ops || devices) {
            columns.extend(self.device_columns(ops));
        } else if !ops {
            let device = &self.averages.device;
            columns.push(self.time_column(format!("{device} total"), 0, |row| row.device_ns as f64));
            columns.push(self.time_column(format!("{device} time avg"), 3, Average::mean_ns));
        }
        if self.spread {
            columns.extend(self.spread_columns());
        }
        if ops && self.memory && self.averages.has_memory {
            columns.extend(self.memory_columns());
        }
        columns.push(Column::new("# of Calls", NUMBER, 0, |row| row.count().to_string()));
        if rows.iter().any(|row| row.enters() != row.count()) {
            columns.push(Column::new("# of Enters", NUMBER, 0, |row| row.enters().to_string()));
        }
        columns.extend(self.group_columns(rows, |title| ![OVERLOAD_TITLE, SHAPES_TITLE, STACK_TITLE].contains(&title)));
        columns.extend(self.group_columns(rows, |title| title == SHAPES_TITLE));
        columns.extend(self.group_columns(rows, |title| title == STACK_TITLE));
        columns.extend(self.flops_column(rows).filter(|_| ops && self.flops));
        columns.iter_mut().for_each(|column| column.char_width = self.char_width());
        columns
    }

    /// Returns the function that measures characters: torch counts them.
    fn char_width(&self) -> fn(char) -> usize {
        if self.as_torch { |_| 1 } else { char_width }
    }

    fn width_of(&self, text: &str) -> usize {
        text.chars().map(self.char_width()).sum()
    }

    /// Returns the width of a text column; torch's may be narrower than the title.
    fn at_least(&self, title: &str, width: usize) -> usize {
        if self.as_torch { width } else { width.max(text_width(title)) }
    }

    fn name_column(&self, title: &str, rows: &[&Average], name: impl Fn(&Average) -> String + 'a) -> Column<'a> {
        let longest = rows.iter().map(|row| self.width_of(&name(row))).max().unwrap_or(0);
        Column::new(title, self.at_least(title, longest + 4).min(self.max_name), 0, name)
            .with_truncation(Truncation::End, self.max_name)
    }

    /// Returns the columns of groups that `wanted` selects and for which some row has a key.
    fn group_columns(&self, rows: &[&Average], wanted: impl Fn(&str) -> bool) -> Vec<Column<'a>> {
        let groups = self.averages.groups.iter().enumerate().filter(|(_, title)| wanted(title));
        let column = |(at, title): (usize, &String)| {
            let key = move |row: &Average| row.keys.get(at).cloned().unwrap_or_default();
            let has_key = |row: &&Average| row.keys.get(at).is_some_and(|key| !["", "[]"].contains(&key.as_str()));
            rows.iter().find(|row| has_key(row))?;
            let lines = rows.iter().filter_map(|row| row.keys.get(at)).flat_map(|key| key.lines());
            let longest = lines.map(|line| self.width_of(line)).max().unwrap_or(0);
            let width = self.at_least(title, longest + 4);
            Some(match title.as_str() {
                OVERLOAD_TITLE => self.name_column(title, rows, key),
                SHAPES_TITLE => Column::new(title, width.min(self.max_shapes), 0, key)
                    .with_truncation(Truncation::EndUnmarked, self.max_shapes),
                STACK_TITLE => Column::new(title, width.min(self.max_source), 0, key)
                    .with_truncation(Truncation::Start, self.max_source)
                    .left_aligned(),
                _ => Column::new(title, width.min(self.max_name).max(NUMBER), 0, key)
                    .with_truncation(Truncation::End, self.max_name),
            })
        };
        groups.filter_map(column).collect()
    }

    fn cpu_columns(&self) -> Vec<Column<'a>> {
        let base = self.averages.cpu_base_ns() as f64;
        vec![
            Column::new("Self CPU %", NUMBER, 4, move |row| format_percentage(row.self_cpu_ns as f64, base)),
            self.time_column("Self CPU".to_owned(), 0, |row| row.self_cpu_ns as f64),
            Column::new("CPU total %", NUMBER, 6, move |row| format_percentage(row.cpu_ns as f64, base)),
            self.time_column("CPU total".to_owned(), 1, |row| row.cpu_ns as f64),
            self.time_column("CPU time avg".to_owned(), 3, |row| row.per_call(row.cpu_ns)),
        ]
    }

    fn device_columns(&self, with_ops: bool) -> Vec<Column<'a>> {
        let (device, base) = (&self.averages.device, self.averages.device_base_ns() as f64);
        let mut columns = vec![
            self.time_column(format!("Self {device}"), 0, |row| row.self_device_ns as f64),
            Column::new(format!("Self {device} %"), NUMBER, 5, move |row| {
                format_percentage(row.self_device_ns as f64, base)
            }),
        ];
        if with_ops {
            columns.push(self.time_column(format!("{device} total"), 2, |row| row.device_ns as f64));
        }
        columns.push(self.time_column(format!("{device} time avg"), 7, |row| row.per_call(row.device_ns)));
        columns
    }

    fn spread_columns(&self) -> Vec<Column<'a>> {
        vec![
            self.time_column("Min".to_owned(), 9, |row| row.min_ns() as f64),
            self.time_column("Median".to_owned(), 8, |row| row.percentile_ns(0.5) as f64),
            self.time_column("95 %".to_owned(), 8, |row| row.percentile_ns(0.95) as f64),
            self.time_column("Max".to_owned(), 9, |row| row.max_ns() as f64),
            self.time_column("Std".to_owned(), 10, Average::std_ns),
        ]
    }

    fn memory_columns(&self) -> Vec<Column<'a>> {
        let mut columns = vec![
            Column::new("CPU Mem", NUMBER, 7, |row| format_bytes(row.total_bytes.host)),
            Column::new("Self CPU Mem", NUMBER, 3, |row| format_bytes(row.self_bytes.host)),
        ];
        if self.has_row(|row| row.self_bytes.device != 0) {
            let device = &self.averages.device;
            columns.push(Column::new(format!("{device} Mem"), NUMBER, 7, |row| format_bytes(row.total_bytes.device)));
            columns
                .push(Column::new(format!("Self {device} Mem"), NUMBER, 3, |row| format_bytes(row.self_bytes.device)));
        }
        columns
    }

    /// Returns the FLOPs column, in the unit of the smallest nonzero value.
    fn flops_column(&self, rows: &[&Average]) -> Option<Column<'a>> {
        let least = rows.iter().map(|row| row.flops).filter(|flops| *flops > 0).min()?;
        let (unit, name) = flop_unit(least);
        Some(Column::new(format!("Total {name}"), NUMBER, 4, move |row| match row.flops {
            0 => "--".to_owned(),
            flops => format!("{:8.3}", flops as f64 / unit),
        }))
    }

    /// Fits lines into the width: names shrink, then columns of the highest rank are dropped, then groups shrink. Returns how
    /// many were dropped.
    fn fit_columns(&self, columns: &mut Vec<Column<'a>>) -> usize {
        let mut left_out = 0;
        let Some(width) = self.width else { return left_out };
        columns.iter_mut().for_each(|column| column.width = column.width.max(text_width(&column.title)));
        loop {
            let over = line_length(columns).saturating_sub(width);
            if let Some(name) = columns.first_mut().filter(|_| over > 0) {
                name.narrow_by(NAME_MIN, over);
            }
            let rank = columns.iter().map(|column| column.drop_priority).max().unwrap_or(0);
            if line_length(columns) <= width || rank == 0 {
                break;
            }
            if let Some(at) = columns.iter().rposition(|column| column.drop_priority == rank) {
                columns.remove(at);
                left_out += 1;
            }
        }
        // Columns of groups are never dropped, so they share what is left, and names give up more.
        for is_last in [false, true] {
            for at in (0..columns.len()).rev() {
                let over = line_length(columns).saturating_sub(width);
                if let Some(column) = columns.get_mut(at).filter(|column| column.is_text()) {
                    let least = if is_last { GROUP_LEAST } else { GROUP_MIN.max(text_width(&column.title)) };
                    column.narrow_by(least, over);
                }
            }
        }
        left_out
    }

    /// Writes the table of some sections, with the header if it is the first; returns whether it wrote anything.
    fn write_sections(
        &self,
        f: &mut fmt::Formatter<'_>,
        sections: &[Section],
        what: &str,
        is_first: bool,
    ) -> Result<bool, fmt::Error> {
        let mut rows = self.sorted_rows(sections);
        let mut columns = self.build_columns(sections, &rows, what);
        rows.retain(|row| row.is_top_level || !self.top_level_only);
        if rows.is_empty() {
            return Ok(false);
        }
        let left_out = self.fit_columns(&mut columns);
        if !self.as_torch && !is_first {
            writeln!(f)?;
        }
        let line = |f: &mut fmt::Formatter<'_>, text: String| {
            if self.as_torch { writeln!(f, "{text}") } else { writeln!(f, "{}", text.trim_end()) }
        };
        let rule: String = columns.iter().map(|column| "-".repeat(column.width) + "  ").collect();
        if let Some(header) = self.header.as_ref().filter(|_| is_first) {
            writeln!(f, "{}\n{header}", "=".repeat(line_length(&columns)))?;
        }
        if self.top_level_only && is_first {
            writeln!(f, "{}\nThis report only display top-level ops statistics", "=".repeat(line_length(&columns)))?;
        }
        line(f, rule.clone())?;
        line(f, columns.iter().map(|column| column.format_heading()).collect())?;
        line(f, rule.clone())?;
        let shown = self.row_limit.unwrap_or(usize::MAX);
        for row in rows.iter().take(shown) {
            let cells: Vec<_> = columns.iter().map(|column| (column, column.cell_lines(row))).collect();
            let count = cells.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0);
            for at in 0..count {
                let cell = |(column, lines): &(&Column<'_>, Vec<String>)| {
                    column.format_line(lines.get(at).map_or("", String::as_str))
                };
                line(f, cells.iter().map(cell).collect())?;
            }
            if count > 1 || self.as_torch && columns.iter().any(Column::is_multi_line) {
                line(f, columns.iter().map(|column| " ".repeat(column.width + GAP)).collect())?;
            }
        }
        line(f, rule)?;
        self.write_omissions(f, rows.len().saturating_sub(shown), left_out)?;
        Ok(true)
    }

    fn write_omissions(&self, f: &mut fmt::Formatter<'_>, rows: usize, columns: usize) -> fmt::Result {
        if rows > 0 && !self.as_torch {
            writeln!(f, "More rows: {rows} (--rows lists them)")?;
        }
        if columns > 0 {
            writeln!(f, "More columns: {columns} (raise width)")?;
        }
        Ok(())
    }

    fn write_bases(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let averages = self.averages;
        let device = &averages.device;
        let shown = self.time_format();
        let why = |text: &str| if self.as_torch { String::new() } else { format!(" ({text})") };
        let base = averages.cpu_base_ns() as f64;
        writeln!(f, "Self CPU time total: {}{}", shown(base), why("100 % of CPU columns"))?;
        if self.has_row(|row| row.self_device_ns > 0) {
            let base = averages.device_base_ns() as f64;
            writeln!(
                f,
                "Self {device} time total: {}{}",
                shown(base),
                why("100 % of device columns, kernels and copies")
            )?;
        }
        if self.as_torch {
            return Ok(());
        }
        if averages.unattributed_device_ns > 0 {
            writeln!(f, "Attributed to no operation: {}", shown(averages.unattributed_device_ns as f64))?;
        }
        let (host, on_device) = averages.unattributed_bytes();
        if (host, on_device) != (0, 0) {
            writeln!(
                f,
                "Memory outside all operations: CPU {}, {device} {}",
                format_bytes(host),
                format_bytes(on_device)
            )?;
        }
        averages.notes.iter().try_for_each(|note| writeln!(f, "Data loss: {note}"))
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.averages.iter().next().is_none() {
            return if self.as_torch { Ok(()) } else { writeln!(f, "no operations or device work were recorded") };
        }
        if self.as_torch {
            self.write_sections(f, &[Section::Ops, Section::Kernels, Section::DeviceAnnotations], "Name", true)?;
            return self.write_bases(f);
        }
        let tables = [
            (Section::Ops, "Operation"),
            (Section::Kernels, "Kernel"),
            (Section::DeviceAnnotations, "Annotation on the device"),
        ];
        let mut is_first = true;
        for (section, what) in tables {
            is_first &= !self.write_sections(f, &[section], what, is_first)?;
        }
        self.write_bases(f)
    }
}

/// Returns the length of a line, as torch counts it.
fn line_length(columns: &[Column<'_>]) -> usize {
    columns.iter().map(|column| column.width + GAP).sum::<usize>().saturating_sub(GAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{ActivityType, ArgValue, NO_ARGS};
    use crate::analysis::GroupBy;
    use crate::analysis::sample::SampleTrace;

    fn sample() -> SampleTrace {
        let dims =
            [("Input Dims", ArgValue::Json("[[64,32],[32,16]]")), ("location", ArgValue::Str("src/model.rs:31"))];
        SampleTrace::default()
            .host_slice(ActivityType::UserAnnotation, "ProfilerStep#0", 1, (0, 4000), NO_ARGS)
            .op_with("linear_with_a_name_that_is_longer_than_fifty_characters", 100, 1100, &dims)
            .op_with("mm", 200, 500, &dims)
            .memory(1, 300, 4096, 0)
            .kernel("gemm", 600, 1350, 3)
            .kernel("gemm", 1400, 1650, 3)
            .work(ActivityType::GpuMemcpy, "Memcpy HtoD", 2000, 2100, 0)
            .work(ActivityType::GpuUserAnnotation, "ProfilerStep#0", 600, 2100, 1)
    }

    fn check(table: &Table<'_>, name: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tables/");
        let expected = std::fs::read_to_string(folder.to_owned() + name).unwrap();
        assert!(table.to_string() == expected, "{name} is other than\n{table}");
    }

    #[test]
    fn operations_and_kernels_have_separate_tables() {
        check(&sample().into_events().key_averages().table().max_name_column_width(26), "sections.txt");
    }

    #[test]
    fn narrow_width_shortens_names_and_drops_columns() {
        let averages = sample().into_events().key_averages();
        let table = averages.table().width(80).row_limit(1).header("Training");
        assert!(table.to_string().lines().all(|line| line.chars().count() <= 80), "{table}");
        check(&table, "narrow.txt");
    }

    #[test]
    fn groups_fit_a_narrow_width() {
        let events = sample().into_events();
        let by_stack = events.averages().by(GroupBy::Stack(2)).compute();
        let by_both = events.averages().by(GroupBy::Stack(2)).by(GroupBy::Thread).compute();
        let by_three = events.averages().by(GroupBy::Stack(2)).by(GroupBy::Shapes).by(GroupBy::Thread).compute();
        for (averages, width) in [(&by_stack, 80), (&by_stack, 100), (&by_both, 80), (&by_both, 150), (&by_three, 80)] {
            let table = averages.table().width(width).to_string();
            assert!(table.lines().all(|line| line.chars().count() <= width), "{table}");
        }
    }

    #[test]
    fn groups_and_spread_are_columns() {
        let events = sample().into_events();
        let by_stack = events.averages().by(GroupBy::Stack(2)).by(GroupBy::Shapes).compute();
        check(&by_stack.table().max_src_column_width(20).max_shapes_column_width(14).width(110), "stacks.txt");
        let by_thread = events.averages().by(GroupBy::Thread).compute();
        let table = by_thread.table().spread(true).memory(false).flops(false).top_level_events_only(true);
        check(&table.time_unit(TimeUnit::Millis), "threads.txt");
    }

    #[test]
    fn header_appears_without_ops_at_any_width() {
        let events = SampleTrace::default().kernel("gemm", 0, 1, 0).into_events();
        let averages = events.averages().by(GroupBy::Thread).compute();
        let table = averages.table().header("Alone").to_string();
        assert!(table.lines().nth(1) == Some("Alone") && table.lines().nth(3).unwrap().contains("Kernel"), "{table}");
        let table = averages.table().max_name_column_width(1).max_src_column_width(0).width(1).to_string();
        assert!(table.contains("gemm") || table.contains("..."), "{table}");
    }

    #[test]
    fn unprintable_characters_are_spaces() {
        let dims = [("Input Dims", ArgValue::Str("\u{9b}2J"))];
        let events = SampleTrace::default()
            .op_with("a\x1b[2Jb\r\u{202e}c\u{200b}", 0, 10, &dims)
            .kernel("\x07\x7f", 0, 1, 0)
            .into_events();
        let averages = events.averages().by(GroupBy::Shapes).by(GroupBy::Stack(3)).compute();
        let table = averages.table().to_string();
        assert!(!table.chars().any(|each| each.is_control() && each != '\n'), "{table:?}");
        assert!(!table.contains(['\u{202e}', '\u{200b}']), "{table:?}");
        for shown in ["a [2Jb  c ", "   2J"] {
            assert!(table.contains(shown), "{table}");
        }
    }

    #[test]
    fn empty_averages_print_a_message() {
        let averages = KeyAverages::default();
        assert_eq!(averages.table().to_string(), "no operations or device work were recorded\n");
        assert_eq!(averages.table().torch(true).to_string(), "");
    }
}

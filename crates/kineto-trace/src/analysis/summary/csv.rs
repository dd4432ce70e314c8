//! A summary as comma-separated values.

use super::Summary;
use crate::analysis::csv::write_record;
use serde_json::Value;
use std::io::{self, Write};

impl Summary {
    /// The names of the columns of [`write_csv`](Summary::write_csv).
    const COLUMNS: [&str; 5] = ["trace", "section", "name", "figure", "value"];

    /// Writes all figures of [`to_json`](Summary::to_json) as CSV, a line each: the trace's name, the section, the row's name, the
    /// figure and its value. Times are microseconds.
    ///
    /// The name of a row is what distinguishes it in its list, such as a kernel's name, or the device and the stream. Figures of
    /// nested objects are joined by dots. `has_titles` adds a first line with the names of the columns.
    ///
    /// # Errors
    /// If `out` fails.
    ///
    /// ```
    /// use kineto_trace::analysis::Events;
    ///
    /// let trace = br#"[{"ph": "X", "cat": "cpu_op", "name": "train", "ts": 0, "dur": 4}]"#;
    /// let mut text = Vec::new();
    /// Events::from_reader(trace.as_slice())?.summary().write_csv(&mut text, "app", true)?;
    /// assert!(String::from_utf8_lossy(&text).contains("app,ops_top20,train,self_cpu,4.0\r\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_csv(&self, mut out: impl Write, trace: &str, has_titles: bool) -> io::Result<()> {
        if has_titles {
            write_record(&mut out, Summary::COLUMNS.map(str::to_owned).into_iter())?;
        }
        let mut written = Ok(());
        let figures = self.to_json_value();
        for (section, value) in figures.as_object().into_iter().flatten() {
            visit_figures(value, "", "", &mut |name, figure, value| {
                let fields = [trace, section, name, figure].map(str::to_owned);
                if written.is_ok() {
                    written = write_record(&mut out, fields.into_iter().chain([value.to_string()]));
                }
            });
        }
        written?;
        out.flush()
    }
}

/// Calls `each` with name, figure and value of every number and truth value within `value`.
fn visit_figures(value: &Value, name: &str, figure: &str, each: &mut dyn FnMut(&str, &str, &Value)) {
    /// The members that distinguish the rows of a list.
    const NAMES: [&str; 8] = ["track", "name", "series", "kind", "device_type", "device", "stream", "n"];

    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let figure = if figure.is_empty() { key.clone() } else { format!("{figure}.{key}") };
                visit_figures(value, name, &figure, each);
            }
        }
        Value::Array(rows) => {
            for (index, row) in rows.iter().enumerate() {
                let names = NAMES.iter().filter_map(|key| row.get(key)).map(|name| match name {
                    Value::String(name) => name.clone(),
                    other => other.to_string(),
                });
                let names = names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ");
                visit_figures(row, &if names.is_empty() { index.to_string() } else { names }, figure, each);
            }
        }
        Value::Number(_) | Value::Bool(_) => each(name, figure, value),
        Value::String(_) | Value::Null => {}
    }
}

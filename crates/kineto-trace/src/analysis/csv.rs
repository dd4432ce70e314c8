//! Comma-separated values (RFC 4180).

use super::events::{Event, Events};
use super::summary::Summary;
use crate::Error;
use crate::activity::CorrelationId;
use crate::write::file;
use serde_json::Value;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const GZIP_LEVEL: u32 = 1;

/// Writes one record; fields with a comma, quote or line break are quoted.
pub(super) fn write_record(out: &mut impl Write, fields: impl Iterator<Item = String>) -> io::Result<()> {
    let quoted = |field: String| {
        if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
    };
    let fields: Vec<String> = fields.map(quoted).collect();
    write!(out, "{}\r\n", fields.join(","))
}

impl Events {
    /// Writes a line for each event to a CSV file, compressed if its name ends with `.gz`; times are nanoseconds.
    ///
    /// The columns are start, duration, category, name, process, thread, own id, id of the launching slice, and the arguments
    /// as a JSON object.
    ///
    /// # Errors
    /// If the file cannot be written; the previous file remains.
    pub fn save_csv(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        file::save(path.as_ref(), GZIP_LEVEL, |out| self.write_csv(BufWriter::new(out)))
    }

    fn write_csv(&self, mut out: impl Write) -> io::Result<()> {
        const COLUMNS: [&str; 9] =
            ["start_ns", "duration_ns", "category", "name", "process", "thread", "id", "linked", "arguments"];

        write_record(&mut out, COLUMNS.map(str::to_owned).into_iter())?;
        self.iter().try_for_each(|event| write_record(&mut out, event_fields(&event).into_iter()))?;
        out.flush()
    }
}

fn event_fields(event: &Event<'_>) -> [String; 9] {
    let id = |id: Option<CorrelationId>| id.map_or_else(String::new, |id| id.0.to_string());
    [
        event.start().as_nanos().to_string(),
        event.duration_ns().to_string(),
        event.category().to_owned(),
        event.name().to_owned(),
        event.track().process.to_string(),
        event.track().thread.to_string(),
        id(event.id()),
        id(event.linked()),
        event.metadata_json(),
    ]
}

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

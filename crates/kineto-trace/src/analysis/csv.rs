//! Comma-separated values (RFC 4180).

use super::events::{Event, Events};
use crate::Error;
use crate::activity::CorrelationId;
use crate::write::file;
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
        file::save(path.as_ref(), GZIP_LEVEL, &mut |out| self.write_csv(BufWriter::new(out)))
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

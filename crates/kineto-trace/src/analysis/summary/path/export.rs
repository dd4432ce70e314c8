//! The pieces of a path as CSV and JSON.

use super::report::figures_json;
use super::{CriticalPath, PathPiece};
use crate::analysis::csv::write_record;
use crate::analysis::json::{write_object, written_text};
use crate::analysis::summary::json::ns_to_micros;
use serde_json::json;
use std::io::{self, Write};

impl CriticalPath<'_> {
    /// Writes a CSV header and one line for each piece; times are nanoseconds.
    ///
    /// The columns are start, end, duration, kind, and of the event its name, category, process and thread.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_csv(&self, mut out: impl Write) -> io::Result<()> {
        const COLUMNS: [&str; 8] =
            ["start_ns", "end_ns", "duration_ns", "kind", "name", "category", "process", "thread"];

        write_record(&mut out, COLUMNS.map(str::to_owned).into_iter())?;
        self.pieces().iter().try_for_each(|piece| write_record(&mut out, piece_fields(piece).into_iter()))?;
        out.flush()
    }

    /// Returns the totals and all pieces as a JSON object; times are microseconds, and those of pieces count from the window's start.
    pub fn to_json(&self) -> String {
        written_text(|out| self.write_json(out))
    }

    /// Writes the JSON of [`to_json`](CriticalPath::to_json), piece by piece.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        let mut head = figures_json(&self.figures());
        let more = [
            ("schema", json!("kineto-path/1")),
            ("unit", json!("us")),
            ("start_ns", json!(self.window.start.as_nanos())),
        ];
        head.as_object_mut()
            .into_iter()
            .for_each(|members| members.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone()))));
        let piece = |piece: &PathPiece<'_>| {
            let event = piece.event.as_ref();
            json!({
                "start": ns_to_micros(piece.start.since(self.window.start)),
                "dur": ns_to_micros(piece.duration_ns()),
                "kind": piece.kind.as_str(),
                "name": event.map(|event| event.name()),
                "cat": event.map(|event| event.category()),
                "process": event.map(|event| event.track().process.to_string()),
                "thread": event.map(|event| event.track().thread.to_string()),
            })
        };
        write_object(&mut out, &head, &mut [("pieces", &mut self.pieces().iter().map(piece))])
    }
}

fn piece_fields(piece: &PathPiece<'_>) -> [String; 8] {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let event = piece.event.as_ref();
    [
        piece.start.as_nanos().to_string(),
        piece.end.as_nanos().to_string(),
        piece.duration_ns().to_string(),
        piece.kind.as_str().to_owned(),
        text(event.map(|event| event.name())),
        text(event.map(|event| event.category())),
        event.map_or_else(String::new, |event| event.track().process.to_string()),
        event.map_or_else(String::new, |event| event.track().thread.to_string()),
    ]
}

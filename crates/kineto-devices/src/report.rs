//! The report on a collector at the end of a recording.

use super::{Capabilities, Unavailable};
use kineto_base::text::count_with_noun;
use serde_json::{Map, Value, json};
use std::fmt;

/// Describes what a collector did in a recording.
///
/// ```
/// use tracing_kineto::KinetoLayer;
///
/// let (_layer, guard) = KinetoLayer::builder().no_output().build()?;
/// for report in guard.profiler().collectors() {
///     match &report.state {
///         Ok(can) => println!("{} records {}", report.name, can.types),
///         Err(reason) => println!("{}: {reason}", report.name),
///     }
/// }
/// # drop(guard.finish()?);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CollectorReport {
    /// Its name; a second collector of the same name is "name (2)".
    pub name: String,
    /// Its capabilities, or why it recorded nothing.
    pub state: Result<Capabilities, Unavailable>,
    /// How many records are in the trace.
    pub records: u64,
    /// Notes for the reader, as sentences.
    pub notes: Vec<String>,
    /// The error of its timestamps against CLOCK_REALTIME, in nanoseconds.
    pub clock_error_ns: u64,
    /// The largest offset of its clock from CLOCK_REALTIME, in nanoseconds; 0 if it uses that clock.
    pub clock_offset_ns: i64,
}

impl CollectorReport {
    /// Makes the report on a collector that has recorded nothing yet.
    pub fn new(name: &str, state: Result<Capabilities, Unavailable>) -> CollectorReport {
        let notes = state.as_ref().map(|can| can.notes.clone()).unwrap_or_default();
        CollectorReport { name: name.to_owned(), state, records: 0, notes, clock_error_ns: 0, clock_offset_ns: 0 }
    }

    /// Numbers collectors that share a name.
    pub fn dedupe_names(reports: impl Iterator<Item = CollectorReport>) -> Vec<CollectorReport> {
        let mut unique: Vec<CollectorReport> = Vec::new();
        for mut report in reports {
            let names = std::iter::once(report.name.clone()).chain((2..).map(|nth| format!("{} ({nth})", report.name)));
            let free = names.into_iter().find(|name| !unique.iter().any(|known| known.name == *name));
            report.name = free.unwrap_or_default();
            unique.push(report);
        }
        unique
    }

    /// Returns its entry in the header of the trace.
    pub fn to_json(&self) -> Value {
        let mut about = Map::new();
        match &self.state {
            Ok(can) => {
                about.insert("records".to_owned(), self.records.into());
                let clock = json!({ "error_ns": self.clock_error_ns, "offset_ns": self.clock_offset_ns });
                about.insert("clock".to_owned(), clock);
                if let Some(library) = &can.library {
                    about.insert("library".to_owned(), library.to_string_lossy().into());
                }
            }
            Err(reason) => {
                about.insert("unavailable".to_owned(), reason.to_string().into());
            }
        }
        if !self.notes.is_empty() {
            about.insert("notes".to_owned(), self.notes.clone().into());
        }
        Value::Object(about)
    }
}

impl fmt::Display for CollectorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            Ok(_) => write!(f, "{}: {}", self.name, count_with_noun(self.records, "record"))?,
            Err(reason) => write!(f, "{}: {reason}", self.name)?,
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n    {note}"))
    }
}

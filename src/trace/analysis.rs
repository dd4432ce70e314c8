//! Analyses of a trace: its events in memory, averages and folded stacks.

use super::Trace;
use crate::diag::diag;
use crate::error::Error;
use crate::text::count_with_noun;
use crate::time::Timestamp;
use crate::write::chrome::is_reserved;
use crate::write::file;
use kineto_trace::analysis::{Builder, Events, KeyAverages, StackMetric};
use std::io::BufWriter;
use std::path::Path;

impl Trace {
    /// Returns all events in memory, in the order of their start; torch's `events()`.
    ///
    /// Each call collects them anew. They equal those that [`Events::read`] finds in the file that [`save`](Trace::save)
    /// writes. Async tracks are not events, but their slices are. At the builder's [time
    /// limit](crate::torch::TorchOptions::post_processing_timeout), only the events of the first threads are returned, with
    /// [`Note::TimeLimit`](crate::analysis::Note::TimeLimit) among the [`notes`](Events::notes).
    pub fn events(&self) -> Events {
        let limit = self.inner.info.post_processing_timeout;
        let mut builder = Builder::with_time_limit(limit);
        // The only error of `Builder` is the time limit.
        if self.deliver_rows(&mut builder).is_err() {
            let (limit, events) = (limit.unwrap_or_default(), builder.note_time_limit());
            diag!(
                Warning,
                "events",
                "the limit of {limit:?} was reached after {}; the rest is left out: raise the limit",
                count_with_noun(events as u64, "event")
            );
        }
        builder.finish_recording(self.about_recording(), self.first_start(), self.window().1)
    }

    /// Returns the time of operations and kernels by name; torch's `key_averages()`.
    ///
    /// For other groups, use [`Trace::events`] and [`Events::averages`]. Notes below the table list the losses.
    pub fn key_averages(&self) -> KeyAverages {
        let losses = self.stats().losses;
        let notes = losses.iter().filter(|(loss, _)| loss.is_loss());
        let notes = notes.map(|(loss, count)| format!("{}: {count}", loss.as_str())).collect();
        self.events().key_averages().with_notes(notes)
    }

    /// Writes the folded stacks of all operations to a file; torch's `export_stacks`. See [`Events::stacks`].
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn export_stacks(&self, path: impl AsRef<Path>, metric: StackMetric) -> Result<(), Error> {
        let events = self.events();
        let stacks = events.stacks(metric);
        Ok(file::save(path.as_ref(), 1, &mut |out| stacks.write(BufWriter::new(out)))?)
    }

    /// Returns the start of the recording, or of the earliest transferred builder.
    fn first_start(&self) -> Timestamp {
        let named = self.inner.own.iter().filter(|own| !own.name.is_empty()).map(|own| own.start);
        named.fold(self.window().0, Timestamp::min)
    }

    /// Returns the header's entries about the recording, without those about the file.
    fn about_recording(&self) -> Vec<(String, String)> {
        let devices = self.inner.devices.properties().join(",");
        let mut entries = vec![("deviceProperties".to_owned(), format!("[{devices}]"))];
        entries.extend(self.metadata().into_iter().filter(|(key, _)| !is_reserved(key)));
        const DISTRIBUTED: &str = "distributedInfo";
        if !entries.iter().any(|(key, _)| key == DISTRIBUTED) {
            entries.extend(self.distributed_info().map(|info| (DISTRIBUTED.to_owned(), info.to_json())));
        }
        entries
    }
}

//! Speedscope's file format: a profile for each row of slices, in which frames open and close.

use super::events::{Event, EventTrack, Events, ProcessTitles, StringId};
use crate::Error;
use crate::first_fit::FreeRows;
use crate::hash::HashMap;
use crate::time::Timestamp;
use crate::write::file;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
const GZIP_LEVEL: u32 = 1;

/// A row of slices that nest in one another or are disjoint.
#[derive(Default)]
struct FrameRow {
    /// Indices of events, in order of their start.
    slices: Vec<usize>,
    /// The ends of the slices that are open at the last start, outermost first.
    open: Vec<Timestamp>,
}

/// The rows of a track.
#[derive(Default)]
struct TrackRows {
    rows: Vec<FrameRow>,
    free: FreeRows,
}

impl Events {
    /// Writes all slices to a file for [speedscope](https://www.speedscope.app), compressed if its name ends with `.gz`.
    ///
    /// Each track becomes a profile, whose times are nanoseconds since the start of the trace. Slices of one track that overlap
    /// without nesting, such as kernels of one stream, get a further profile. Instants and counters are left out, since
    /// speedscope has none.
    ///
    /// # Errors
    /// If the file cannot be written; the previous file remains.
    ///
    /// ```no_run
    /// use kineto_trace::analysis::Events;
    ///
    /// Events::read("app.pt.trace.json.gz")?.save_speedscope("app.speedscope.json")?;
    /// # Ok::<(), kineto_trace::Error>(())
    /// ```
    pub fn save_speedscope(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        file::save(path.as_ref(), GZIP_LEVEL, &mut |out| self.write_speedscope(BufWriter::new(out)))
    }

    fn write_speedscope(&self, mut out: impl Write) -> io::Result<()> {
        let (mut frames, mut frame_of) = (Vec::new(), HashMap::<StringId, usize>::default());
        for row in &self.rows {
            frame_of.entry(row.name).or_insert_with(|| {
                frames.push(row.name);
                frames.len() - 1
            });
        }
        let (rows, titles) = (self.frame_rows(), self.process_titles());
        let fullest =
            (0..).zip(&rows).max_by_key(|(_, (.., row))| row.slices.len()).map_or(0, |(index, _): (usize, _)| index);
        write!(out, "{{\"$schema\":\"{SCHEMA}\",\"exporter\":\"kineto\",\"activeProfileIndex\":{fullest},")?;
        out.write_all(b"\"shared\":{\"frames\":[")?;
        for (index, name) in frames.iter().enumerate() {
            out.write_all(if index == 0 { b"{\"name\":" } else { b",\n{\"name\":" })?;
            serde_json::to_writer(&mut out, self.strings.get(*name))?;
            out.write_all(b"}")?;
        }
        out.write_all(b"]},\"profiles\":[")?;
        for (index, (track, number, row)) in rows.iter().enumerate() {
            out.write_all(if index == 0 { b"\n" } else { b",\n" })?;
            self.write_profile(&mut out, &profile_name(track, *number, &titles), row, &frame_of)?;
        }
        out.write_all(b"]}\n")?;
        out.flush()
    }

    /// Returns the rows of all tracks in order of the tracks, each with its number in its track.
    fn frame_rows(&self) -> Vec<(&EventTrack, usize, FrameRow)> {
        let mut tracks: Vec<TrackRows> = Vec::new();
        tracks.resize_with(self.tracks.len(), TrackRows::default);
        for slice in self.iter().filter(Event::is_slice) {
            tracks.get_mut(slice.track_index()).into_iter().for_each(|rows| rows.add(&slice));
        }
        let numbered =
            |(track, rows): (_, TrackRows)| (1..).zip(rows.rows).map(move |(number, row)| (track, number, row));
        self.tracks.iter().zip(tracks).flat_map(numbered).collect()
    }

    fn write_profile(
        &self,
        out: &mut impl Write,
        name: &str,
        row: &FrameRow,
        frame_of: &HashMap<StringId, usize>,
    ) -> io::Result<()> {
        let origin = self.rows.first().map_or(Timestamp::default(), |row| row.start);
        let slices = || row.slices.iter().filter_map(|index| self.rows.get(*index));
        let [start, end] = [slices().map(|slice| slice.start).min(), slices().map(|slice| slice.end).max()]
            .map(|at| at.map_or(0, |at| at.since(origin)));
        out.write_all(b"{\"type\":\"evented\",\"unit\":\"nanoseconds\",\"name\":")?;
        serde_json::to_writer(&mut *out, name)?;
        write!(out, ",\"startValue\":{start},\"endValue\":{end},\"events\":[")?;
        let (mut open, mut separator): (Vec<(usize, Timestamp)>, _) = (Vec::new(), "");
        let mut write_event = |kind: char, frame: usize, at: Timestamp| {
            let at = at.since(origin);
            let written = write!(out, "{separator}{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at}}}");
            separator = ",\n";
            written
        };
        for slice in slices() {
            while let Some((frame, end)) = open.pop_if(|(_, end)| *end <= slice.start) {
                write_event('C', frame, end)?;
            }
            let frame = frame_of.get(&slice.name).copied().unwrap_or(0);
            write_event('O', frame, slice.start)?;
            open.push((frame, slice.end));
        }
        while let Some((frame, end)) = open.pop() {
            write_event('C', frame, end)?;
        }
        out.write_all(b"]}")
    }
}

fn profile_name(track: &EventTrack, number: usize, titles: &ProcessTitles<'_>) -> String {
    let thread = if track.name.is_empty() { track.thread.to_string() } else { track.name.clone() };
    let number = if number > 1 { format!(" ({number})") } else { String::new() };
    format!("{}: {thread}{number}", titles.title(&track.process))
}

impl TrackRows {
    /// Adds a slice to the first row in which it nests; slices come in order of their start, longer ones first.
    fn add(&mut self, slice: &Event<'_>) {
        while let Some(number) = self.free.pop_ended(slice.start()) {
            if let Some(row) = self.rows.get_mut(number) {
                while row.open.pop_if(|end| *end <= slice.start()).is_some() {}
                self.free.set_free_until(number, row.free_until());
            }
        }
        let number = self.free.first_free(slice.end()).unwrap_or(self.rows.len());
        if number == self.rows.len() {
            self.rows.push(FrameRow::default());
        }
        if let Some(row) = self.rows.get_mut(number) {
            row.slices.push(slice.index());
            row.open.push(slice.end());
            self.free.push_end(slice.end(), number);
            self.free.set_free_until(number, row.free_until());
        }
    }
}

impl FrameRow {
    /// Returns the latest end of a slice that begins now.
    fn free_until(&self) -> Timestamp {
        self.open.last().copied().unwrap_or(Timestamp::from_nanos(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn written(events: &Events) -> Value {
        let mut text = Vec::new();
        events.write_speedscope(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Returns each profile as its name and its events, such as "O a@0 C a@5", and checks that they balance.
    fn profiles(file: &Value) -> Vec<(String, String)> {
        let frame = |event: &Value| {
            let frame = usize::try_from(event["frame"].as_u64().unwrap()).unwrap();
            file["shared"]["frames"][frame]["name"].as_str().unwrap().to_owned()
        };
        let profile = |profile: &Value| {
            let events = profile["events"].as_array().unwrap();
            let (mut open, mut last, mut shown) = (Vec::new(), profile["startValue"].as_u64().unwrap(), Vec::new());
            for event in events {
                let (name, at) = (frame(event), event["at"].as_u64().unwrap());
                assert!(at >= last && at <= profile["endValue"].as_u64().unwrap(), "{event}");
                last = at;
                let kind = event["type"].as_str().unwrap();
                match kind {
                    "O" => open.push(name.clone()),
                    _ => assert_eq!(open.pop().as_ref(), Some(&name)),
                }
                shown.push(format!("{kind} {name}@{at}"));
            }
            assert!(open.is_empty());
            (profile["name"].as_str().unwrap().to_owned(), shown.join(" "))
        };
        file["profiles"].as_array().unwrap().iter().map(profile).collect()
    }

    #[test]
    fn overlapping_slices_get_a_further_profile() {
        let text = br#"[{"ph":"M","name":"process_name","pid":0,"args":{"name":"app"}},
            {"ph":"M","name":"process_labels","pid":0,"args":{"labels":"GPU 0"}},
            {"ph":"M","name":"thread_name","pid":0,"tid":7,"args":{"name":"stream 7"}},
            {"ph":"X","name":"k \"1\"","pid":0,"tid":7,"ts":1,"dur":10}, {"ph":"X","name":"k2","pid":0,"tid":7,"ts":5,"dur":10},
            {"ph":"X","name":"k3","pid":0,"tid":7,"ts":11,"dur":0}, {"ph":"i","name":"mark","pid":0,"tid":7,"ts":2},
            {"ph":"X","name":"outer","pid":5,"tid":5,"ts":2,"dur":6}, {"ph":"X","name":"inner","pid":5,"tid":5,"ts":2,"dur":6}]"#;
        let file = written(&Events::from_reader(text.as_slice()).unwrap());
        assert_eq!(file["$schema"], SCHEMA);
        let expected = [
            ("app GPU 0: stream 7", "O k \"1\"@0 C k \"1\"@10000 O k3@10000 C k3@10000"),
            ("app GPU 0: stream 7 (2)", "O k2@4000 C k2@14000"),
            ("5: 5", "O outer@1000 O inner@1000 C inner@7000 C outer@7000"),
        ];
        assert_eq!(profiles(&file), expected.map(|(name, events)| (name.to_owned(), events.to_owned())));
    }

    #[test]
    fn trace_without_slices_has_no_profile() {
        assert_eq!(profiles(&written(&Events::default())), []);
    }

    proptest! {
        #[test]
        fn every_slice_opens_and_closes_once(slices in prop::collection::vec((0..3u8, 0..40u32, 0..20u32), 0..30)) {
            let rows: Vec<_> = slices.iter().map(|(tid, ts, dur)| format!(r#"{{"ph":"X","name":"a","tid":{tid},"ts":{ts},"dur":{dur}}}"#)).collect();
            let events = Events::from_reader(format!("[{}]", rows.join(",")).as_bytes()).unwrap();
            let opened: usize = profiles(&written(&events)).iter().map(|(_, shown)| shown.matches("O a").count()).sum();
            prop_assert_eq!(opened, slices.len());
        }
    }
}

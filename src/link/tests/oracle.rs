//! The same answers by linear search through all records, and a test that compares them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::fake::{FakeRecords, FakeSpans, ns};
use crate::link::{
    Call, DeviceAnnotation, LinkCounts, LinkedEventRecord, LinkedExternal, Links, RecordHandle, Spans, Work,
};
use kineto_devices::Wait;

struct Oracle {
    records: FakeRecords,
    spans: FakeSpans,
}

impl Oracle {
    fn known(&self, slice: u64) -> bool {
        slice != 0 && self.spans.slices.iter().any(|known| known.0 == slice)
    }

    /// Returns whether `inner` is nested in `outer`, which shares its id on its thread.
    fn lies_in(&self, inner: &Call, outer: &Call) -> bool {
        let same = inner.at != outer.at && inner.correlation == outer.correlation && inner.thread == outer.thread;
        let within = outer.start <= inner.start && inner.end <= outer.end;
        let equal = outer.start == inner.start && inner.end == outer.end;
        inner.correlation != 0 && same && within && (!equal || outer.at < inner.at)
    }

    fn is_outermost(&self, call: &Call) -> bool {
        !self.records.calls.iter().any(|outer| self.lies_in(call, outer))
    }

    /// Returns the outermost call of a call's launch.
    fn outermost(&self, call: &Call) -> Call {
        let around = self.records.calls.iter().filter(|outer| self.lies_in(call, outer) && self.is_outermost(outer));
        *around.max_by_key(|outer| (outer.start, std::cmp::Reverse(outer.end), outer.at)).unwrap_or(call)
    }

    /// Returns the calls of the launch with this outermost call, from the outside in.
    fn launch_of(&self, outermost: &Call) -> Vec<Call> {
        let calls = self.records.calls.iter().copied();
        let mut calls: Vec<_> = calls.filter(|call| self.outermost(call).at == outermost.at).collect();
        calls.sort_by_key(|call| (call.start, std::cmp::Reverse(call.end), call.at));
        calls
    }

    fn launch(&self, work: &Work) -> Option<Call> {
        let calls = self.records.calls.iter();
        let launches = calls.filter(|call| work.correlation != 0 && call.correlation == work.correlation);
        let launches: Vec<_> = launches.filter(|call| self.is_outermost(call)).copied().collect();
        let before = launches.iter().filter(|call| call.start <= work.start).max_by_key(|call| (call.start, call.at));
        before.or(launches.iter().min_by_key(|call| (call.start, call.at))).copied()
    }

    fn has_work(&self, call: &Call) -> bool {
        self.records.work.iter().any(|work| self.launch(work).is_some_and(|launch| launch.at == call.at))
    }

    /// Returns the slice that a launch's ids name.
    fn named(&self, launch: &[Call]) -> Option<u64> {
        let own = launch.iter().map(|call| call.external).find(|id| self.known(*id));
        let strays = self.records.externals.iter().rev();
        let mut strays = strays.filter(|stray| stray.correlation != 0 && stray.correlation == launch[0].correlation);
        own.or_else(|| strays.find(|stray| self.known(stray.id)).map(|stray| stray.id))
    }

    fn is_launch(&self, launch: &[Call]) -> bool {
        launch.iter().any(|call| call.launches) || self.has_work(&launch[0])
    }

    fn linked(&self, call: &Call) -> u64 {
        let launch = self.launch_of(&self.outermost(call));
        match self.named(&launch) {
            _ if self.known(call.external) => call.external,
            Some(slice) => slice,
            None if self.is_launch(&launch) => self.spans.innermost_at(call.thread, launch[0].start),
            None => 0,
        }
    }

    fn annotations(&self) -> Vec<DeviceAnnotation> {
        let mut extents = BTreeMap::new();
        for work in &self.records.work {
            let slice = self.launch(work).map_or(0, |launch| self.linked(&launch));
            let mut span = self.spans.span_of(slice).unwrap_or(0);
            let mut seen = BTreeSet::new();
            while span != 0 && seen.insert(span) {
                if self.spans.annotation_of(span) != 0 {
                    let key = (work.device, work.stream, self.spans.annotation_of(span));
                    let extent = extents.entry(key).or_insert((work.start, work.end));
                    *extent = (extent.0.min(work.start), extent.1.max(work.end));
                }
                span = self.spans.parent_of(span);
            }
        }
        let rows = extents.into_iter().map(|((device, stream, annotation), (start, end))| DeviceAnnotation {
            device,
            stream,
            start,
            end,
            annotation,
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|row| (row.device, row.stream, row.start, std::cmp::Reverse(row.end), row.annotation));
        rows
    }

    fn wait(&self, context: u32, event: u64, correlation: u64) -> Option<Wait> {
        let mut found: Option<&LinkedEventRecord> = None;
        for record in self.records.events.iter().filter(|record| record.correlation != 0) {
            let is_event = record.context == context && record.event == event && record.correlation <= correlation;
            if is_event && found.is_none_or(|found| found.correlation <= record.correlation) {
                found = Some(record);
            }
        }
        found.map(|record| Wait { stream: record.stream, correlation: record.correlation })
    }

    fn counts(&self) -> LinkCounts {
        let mut counts = LinkCounts::default();
        let mut ids_with_launch = BTreeSet::new();
        for call in &self.records.calls {
            counts.ids_unknown += u64::from(call.external != 0 && !self.known(call.external));
            if !self.is_outermost(call) {
                continue;
            }
            counts.correlations_reused += u64::from(call.correlation != 0 && !ids_with_launch.insert(call.correlation));
            let launch = self.launch_of(call);
            let should_work = launch.iter().any(|call| call.launches);
            counts.launches_without_work += u64::from(should_work && !self.has_work(call));
            if self.is_launch(&launch) && self.named(&launch).is_none() {
                match self.linked(call) {
                    0 => counts.unlinked += 1,
                    _ => counts.linked_by_time += 1,
                }
            }
        }
        for external in &self.records.externals {
            counts.ids_unknown += u64::from(external.id != 0 && !self.known(external.id));
        }
        for work in &self.records.work {
            match self.launch(work) {
                None => counts.work_without_launch += 1,
                Some(_) if work.includes_launch => {}
                Some(launch) => counts.work_before_launch += u64::from(work.start < launch.start),
            }
        }
        counts
    }

    fn streams(&self) -> Vec<(i32, u32, Vec<RecordHandle>)> {
        let lanes: BTreeSet<_> = self.records.work.iter().map(|work| (work.device, work.stream)).collect();
        let of_lane = |(device, stream)| {
            let mut work = self.records.work.clone();
            work.retain(|work| (work.device, work.stream) == (device, stream));
            work.sort_by(|a, b| a.start.cmp(&b.start).then(b.end.cmp(&a.end)).then(a.at.cmp(&b.at)));
            (device, stream, work.iter().map(|work| work.at).collect())
        };
        lanes.into_iter().map(of_lane).collect()
    }

    fn threads(&self) -> Vec<(u32, Vec<RecordHandle>)> {
        let threads: BTreeSet<_> = self.records.calls.iter().map(|call| call.thread).collect();
        let of_thread = |thread| {
            let mut calls = self.records.calls.clone();
            calls.retain(|call| call.thread == thread);
            calls.sort_by(|a, b| a.start.cmp(&b.start).then(b.end.cmp(&a.end)).then(a.at.cmp(&b.at)));
            (thread, calls.iter().map(|call| call.at).collect())
        };
        threads.into_iter().map(of_thread).collect()
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let links = Links::new(&self.records, &self.spans);
        prop_assert_eq!(links.counts, self.counts());
        let streams = links.streams.lanes().map(|((device, stream), work)| (device, stream, work.to_vec()));
        prop_assert_eq!(streams.collect::<Vec<_>>(), self.streams());
        prop_assert_eq!(
            links.threads.lanes().map(|(n, calls)| (n, calls.to_vec())).collect::<Vec<_>>(),
            self.threads()
        );
        for work in self.records.work() {
            prop_assert_eq!(links.launch_of(&work), self.launch(&work).map(|call| call.at), "launch of {:?}", work);
        }
        for call in self.records.calls() {
            prop_assert_eq!(links.has_work(&call), self.has_work(&call), "work of {:?}", call);
            prop_assert_eq!(links.slice_of(&call), self.linked(&call), "slice of {:?}", call);
        }
        prop_assert_eq!(&links.annotations[..], self.annotations());
        for (context, event) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for correlation in 0..9 {
                let found = links.waits.find_target(context, event, correlation);
                prop_assert_eq!(found, self.wait(context, event, correlation), "{} {} {}", context, event, correlation);
            }
        }
        Ok(())
    }
}

prop_compose! {
    /// Few ids, threads and times, so that all cases occur.
    fn calls()(
        // Correlation, thread, start, length (-1: ends before it starts), slice, whether it launches.
        calls in prop::collection::vec((0u64..6, 0u32..3, 1u64..16, -1i64..9, 0u64..9, any::<bool>()), 0..14),
        names in any::<bool>(),
        scale in prop::sample::select(vec![1, 1, 1, 1000, u64::MAX / 8]),
        base in prop::sample::select(vec![0, u32::MAX]),
    ) -> (FakeRecords, u64) {
        let len = u32::try_from(calls.len()).unwrap();
        // So that the last handle is the greatest possible.
        let mut records = FakeRecords { base: base.saturating_sub(len.max(20) - 1), ..FakeRecords::default() };
        for (correlation, thread, start, length, slice, launches) in calls {
            let end = start.saturating_add_signed(length);
            records.add_call(correlation * scale, thread, (start, end), if names { slice } else { 0 });
            records.calls.last_mut().unwrap().launches = launches;
        }
        (records, scale)
    }
}

prop_compose! {
    fn records()(
        (records, scale) in calls(),
        // Correlation, device, stream, start, length, whether it includes its launch.
        work in prop::collection::vec((0u64..7, -1i32..2, 0u32..2, 0u64..20, -1i64..9, any::<bool>()), 0..20),
        externals in prop::collection::vec((0u64..7, 0u64..9), 0..4),
        events in prop::collection::vec((0u32..2, 0u64..2, 0u64..8, 0u32..4), 0..8),
    ) -> FakeRecords {
        let mut records = records;
        for (correlation, device, stream, start, length, includes_launch) in work {
            records.add_work(correlation * scale, (device, stream), (start, start.saturating_add_signed(length)));
            records.work.last_mut().unwrap().includes_launch = includes_launch;
        }
        let externals = externals.into_iter();
        records.externals = externals.map(|(id, slice)| LinkedExternal { correlation: id * scale, id: slice }).collect();
        let events = events.into_iter();
        records.events = events.map(|(context, event, correlation, stream)| LinkedEventRecord { context, event, correlation, stream }).collect();
        records
    }
}

prop_compose! {
    fn spans()(
        // Span, thread, start, length of the slices 1, 2 ...
        slices in prop::collection::vec((0u64..7, 0u32..3, 0u64..16, 0u64..16), 0..7),
        // Parent and annotation of the spans 1, 2 ...; cycles occur by chance.
        spans in prop::collection::vec((0u64..8, 0u64..5), 0..7),
    ) -> FakeSpans {
        FakeSpans {
            slices: (1..).zip(slices).map(|(id, (span, thread, start, length))| (id, span, thread, start, start + length)).collect(),
            spans: (1..).zip(spans).map(|(span, (parent, annotation))| (span, parent, annotation.saturating_sub(1))).collect(),
            evicted: 0,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn links_match_a_linear_search(records in records(), spans in spans()) {
        Oracle { records, spans }.compare()?;
    }
}

#[test]
fn oracle_links_the_simplest_case() {
    let mut records = FakeRecords::default();
    records.add_call(1, 0, (10, 20), 5);
    records.add_work(1, (0, 7), (30, 40));
    let spans = FakeSpans { slices: vec![(5, 6, 0, 0, 50)], spans: vec![(6, 0, 9)], evicted: 0 };
    let oracle = Oracle { records, spans };
    oracle.compare().unwrap();
    let row = DeviceAnnotation { device: 0, stream: 7, start: ns(30), end: ns(40), annotation: 9 };
    assert_eq!(oracle.annotations(), [row]);
    assert_eq!(oracle.counts(), LinkCounts::default());
}

//! Tests of linking: examples, an oracle that searches linearly, and a measurement.

mod fake;
mod measure;
mod oracle;

use super::*;
use fake::{FakeRecords, FakeSpans, ns};

/// Slice 10 of span 1 on thread 0 contains slice 20 of span 2; both spans are annotations.
fn spans() -> FakeSpans {
    FakeSpans {
        slices: vec![(10, 1, 0, 0, 1000), (20, 2, 0, 100, 900)],
        spans: vec![(1, 0, 10), (2, 1, 20)],
        evicted: 0,
    }
}

fn links(records: &FakeRecords) -> Links {
    Links::new(records, &spans())
}

fn launches(links: &Links, records: &FakeRecords) -> Vec<Option<RecordHandle>> {
    records.work.iter().map(|work| links.launch_of(work)).collect()
}

fn have_work(links: &Links, records: &FakeRecords) -> Vec<bool> {
    records.calls.iter().map(|call| links.has_work(call)).collect()
}

fn linked(links: &Links, records: &FakeRecords) -> Vec<u64> {
    records.calls.iter().map(|call| links.slice_of(call)).collect()
}

#[test]
fn empty_source_has_no_links() {
    let links = links(&FakeRecords::default());
    assert_eq!((links.streams.lanes().count(), links.threads.lanes().count(), links.annotations.len()), (0, 0, 0));
    assert_eq!(links.counts, LinkCounts::default());
}

#[test]
fn graph_launch_is_linked_to_all_its_work() {
    let mut records = FakeRecords::default();
    let launch = records.add_call(7, 0, (200, 210), 20);
    records.add_call(8, 0, (220, 230), 20);
    for nth in 0..4 {
        records.add_work(7, (0, 7), (300 + 10 * nth, 305 + 10 * nth));
    }
    let links = links(&records);
    assert_eq!(launches(&links, &records), [Some(launch); 4]);
    assert_eq!(have_work(&links, &records), [true, false]);
    assert_eq!(links.counts, LinkCounts::default(), "the other call is not known to launch");
}

#[test]
fn nested_driver_call_is_the_same_launch() {
    // The inner call ends, and so arrives, first. Either call may carry the id.
    for (inner, outer) in [(20, 0), (0, 20), (20, 77)] {
        let mut records = FakeRecords::default();
        records.add_call(7, 0, (201, 209), inner);
        let launch = records.add_call(7, 0, (200, 210), outer);
        records.add_work(7, (0, 7), (300, 400));
        let links = links(&records);
        assert_eq!(launches(&links, &records), [Some(launch)]);
        assert_eq!(have_work(&links, &records), [false, true]);
        assert_eq!(linked(&links, &records), [20, 20]);
        assert_eq!((links.counts.correlations_reused, links.counts.ids_unknown), (0, u64::from(outer == 77)));
    }
}

#[test]
fn reused_correlation_links_work_to_its_own_launch() {
    let mut records = FakeRecords::default();
    let first = records.add_call(7, 0, (200, 210), 10);
    let second = records.add_call(7, 1, (500, 510), 20);
    for start in [199, 200, 499, 500, 900] {
        records.add_work(7, (0, 7), (start, start + 50));
    }
    let links = links(&records);
    assert_eq!(launches(&links, &records), [first, first, first, second, second].map(Some));
    assert_eq!(have_work(&links, &records), [true, true]);
    assert_eq!(linked(&links, &records), [10, 20]);
    assert_eq!((links.counts.correlations_reused, links.counts.work_before_launch), (1, 1));
}

#[test]
fn work_that_includes_its_launch_may_begin_before_it() {
    let mut records = FakeRecords::default();
    let call = records.add_call(7, 0, (200, 210), 10);
    for includes_launch in [true, false] {
        records.add_work(7, (0, 0), (150, 260));
        records.work.last_mut().unwrap().includes_launch = includes_launch;
    }
    let links = links(&records);
    assert_eq!(launches(&links, &records), [Some(call); 2]);
    assert_eq!(links.counts.work_before_launch, 1);
}

#[test]
fn correlation_0_links_nothing() {
    let mut records = FakeRecords::default();
    records.add_call(0, 0, (200, 210), 0);
    records.add_work(0, (0, 7), (300, 400));
    records.externals.push(LinkedExternal { correlation: 0, id: 20 });
    let links = links(&records);
    assert_eq!((launches(&links, &records), have_work(&links, &records)), (vec![None], vec![false]));
    assert_eq!(linked(&links, &records), [0]);
    assert_eq!(links.counts.work_without_launch, 1);
}

#[test]
fn launch_is_linked_by_own_id_stray_id_or_time() {
    let mut records = FakeRecords::default();
    for (correlation, external) in [(1, 10), (2, 0), (3, 77), (4, 0), (5, 0), (6, 10)] {
        records.add_call(correlation, 0, (200 + 10 * correlation, 205 + 10 * correlation), external);
    }
    // The fourth is known to launch, the third has work; the fifth is neither.
    records.calls[3].launches = true;
    records.add_work(3, (0, 7), (300, 400));
    for (correlation, id) in [(2, 20), (2, 10), (2, 77), (6, 20)] {
        records.externals.push(LinkedExternal { correlation, id });
    }
    let links = links(&records);
    assert_eq!(linked(&links, &records), [10, 10, 20, 20, 0, 10]);
    let expected = LinkCounts { linked_by_time: 2, ids_unknown: 2, launches_without_work: 1, ..LinkCounts::default() };
    assert_eq!(links.counts, expected);
}

#[test]
fn launch_without_an_open_slice_is_counted() {
    let mut records = FakeRecords::default();
    records.add_call(1, 9, (200, 210), 77);
    records.add_work(1, (0, 7), (300, 400));
    let links = links(&records);
    assert_eq!(linked(&links, &records), [0]);
    assert_eq!((links.counts.unlinked, links.counts.linked_by_time), (1, 0));
    assert_eq!(links.annotations[..], []);
}

#[test]
fn launch_of_an_evicted_slice_is_no_loss() {
    let mut records = FakeRecords::default();
    // One carries the id, that of the next arrived apart, the third has none.
    records.add_call(1, 0, (200, 210), 5);
    records.add_call(2, 0, (220, 230), 0);
    records.add_call(3, 0, (240, 250), 0);
    records.externals.push(LinkedExternal { correlation: 2, id: 6 });
    for correlation in 1..=3 {
        records.add_work(correlation, (0, 7), (300, 400));
    }
    let spans = FakeSpans { evicted: 9, ..FakeSpans::default() };
    let expected = LinkCounts { unlinked: 1, ..LinkCounts::default() };
    assert_eq!(Links::new(&records, &spans).counts, expected);
}

#[test]
fn nested_annotations_span_their_work_on_each_stream() {
    let mut records = FakeRecords::default();
    for (correlation, slice, stream, start) in [(1, 10, 7, 300), (2, 20, 7, 400), (3, 20, 7, 500), (4, 10, 8, 350)] {
        records.add_call(correlation, 0, (200, 210), slice);
        records.add_work(correlation, (0, stream), (start, start + 50));
    }
    let row = |stream, start, end, annotation| DeviceAnnotation {
        device: 0,
        stream,
        start: ns(start),
        end: ns(end),
        annotation,
    };
    assert_eq!(links(&records).annotations[..], [row(7, 300, 550, 10), row(7, 400, 550, 20), row(8, 350, 400, 10)]);
}

#[test]
fn walk_ends_in_cycles_and_at_any_depth() {
    struct Deep;
    impl Spans for Deep {
        fn span_of(&self, slice: u64) -> Option<u64> {
            Some(slice)
        }
        fn parent_of(&self, span: u64) -> u64 {
            span + 1
        }
        fn annotation_of(&self, span: u64) -> u64 {
            span
        }
        fn innermost_slices(&self, _: &[(u32, Timestamp)]) -> List<u64> {
            List::new()
        }
    }
    let mut records = FakeRecords::default();
    records.add_call(1, 0, (200, 210), 3);
    records.add_work(1, (0, 7), (300, 400));
    assert_eq!(Links::new(&records, &Deep).annotations.len(), 10_000);
    let ring = FakeSpans { slices: vec![(3, 1, 0, 0, 1)], spans: vec![(1, 2, 5), (2, 3, 6), (3, 2, 7)], evicted: 0 };
    let annotations = Links::new(&records, &ring).annotations.iter().map(|row| row.annotation).collect::<Vec<_>>();
    assert_eq!(annotations, [5, 6, 7]);
}

#[test]
fn greatest_handle_and_sparse_ids_are_linked() {
    let mut records = FakeRecords { base: u32::MAX - 1, ..FakeRecords::default() };
    let far = records.add_call(u64::MAX, 0, (200, 210), 20);
    let near = records.add_call(1, 0, (220, 230), 20);
    records.add_work(1, (0, 7), (300, 400));
    records.add_work(u64::MAX, (0, 7), (400, 500));
    assert_eq!(launches(&links(&records), &records), [Some(near), Some(far)]);
    records.calls[0].correlation = 2;
    records.work[1].correlation = 2;
    let links = links(&records);
    assert_eq!(launches(&links, &records), [Some(near), Some(far)]);
    assert_eq!((have_work(&links, &records), linked(&links, &records)), (vec![true; 2], vec![20; 2]));
    assert_eq!(links.counts, LinkCounts::default());
}

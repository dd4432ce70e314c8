//! Traces that people met, with the results that are right for them.

use super::{Events, Note};

/// Reads a file of the folder of such traces.
fn read(name: &str) -> Events {
    Events::read(format!("{}/tests/data/inputs/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn merged_ranks_are_joined_within_their_prefix() {
    let events = read("merged_ranks");
    let summary = events.summary();
    let launches = &summary.launches;
    assert_eq!(
        (launches.count, launches.unlinked, launches.p50_delay_ns, launches.max_delay_ns),
        (2, 0, 15_000, 15_000)
    );
    for op in ["op_rank0", "op_rank1"] {
        let row = summary.averages.ops().iter().find(|row| row.name() == op).unwrap();
        assert_eq!(row.device_ns(), 400_000, "{op}");
    }
    assert_eq!(summary.notes, [(Note::RepeatedId, 1)]);
    assert!(summary.screen().to_string().contains("note: repeated_id (1); launches are joined within"));
    let tree = events.tree();
    for kernel in events.iter().filter(|event| event.is_device_work()) {
        let above: Vec<_> = tree.ancestors(kernel).map(|event| event.name()).collect();
        assert_eq!(above, ["cudaLaunchKernel".to_owned(), kernel.name().replace("kernel", "op")]);
    }
    // Without prefixes, the last launch before the work is its own.
    let text =
        include_str!("../../tests/data/inputs/merged_ranks.json").replace("\"[TP00] ", "\"").replace("\"[TP01] ", "\"");
    let text = ["1000", "1001", "0", "1"].iter().fold(text, |text, id| text.replace(&format!("\"{id}\""), id));
    let summary = Events::from_reader(text.as_bytes()).unwrap().summary();
    assert_eq!((summary.launches.max_delay_ns, summary.notes.as_slice()), (15_000, &[(Note::AmbiguousId, 1)][..]));
}

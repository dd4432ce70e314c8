//! Compares reading on several threads with reading on one.

use super::*;
use crate::analysis::{Events, ReadOptions};
use proptest::prelude::*;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

/// Reads a text, and returns everything that the result contains, else the error.
fn read(options: &ReadOptions, text: &[u8], parallelism: Option<Parallelism>) -> String {
    match options.read_unpacked(text, parallelism) {
        Ok(events) => describe(&events),
        Err(error) => format!("{:?} {error}", error.kind()),
    }
}

fn describe(events: &Events) -> String {
    let mut out = String::new();
    for (row, event) in events.rows.iter().zip(events.iter()) {
        let (flows, args) = (event.flows().collect::<Vec<_>>(), event.metadata_json());
        writeln!(out, "{event:?} {row:?} {args} {flows:?} {}", event.is_async()).unwrap();
    }
    let Events { tracks, processes, async_spans, header, window, recordings, file, .. } = events;
    write!(out, "{tracks:?} {processes:?} {async_spans:?} {header:?} {window:?} {recordings:?} {file:?}").unwrap();
    write!(out, "{:?} {:?}", events.accelerator(), events.notes().collect::<Vec<_>>()).unwrap();
    out
}

/// An element, and what separates it from the next one.
fn elements() -> impl Strategy<Value = String> {
    let number = 0_u32..50;
    let phase = prop_oneof![1 => Just("X".to_owned()), 2 => "[BEiICsfMbenD]"];
    let event = (phase, "[a-e]{1,2}", "(cpu_op|kernel|ac2g|async|Trace|Operator)", number, 0_u32..4).prop_map(
        |(ph, name, cat, ts, tid)| {
            let (dur, id) = (ts % 7, ts % 5);
            format!(r#""ph":"{ph}","name":"{name}","cat":"{cat}","ts":{ts}.5,"dur":{dur},"tid":{tid},"id":{id}"#)
        },
    );
    let args = prop_oneof![
        4 => ("[a-d]{1,2}", 0_u32..9).prop_map(|(key, value)| format!(r#"{{"{key}":{value},"External id":{value}}}"#)),
        2 => "[x-z]{1,2}".prop_map(|text| format!(r#"{{"b":"{text}","span id":7,"a":[1,2],"b":"}},{{"}}"#)),
        1 => Just("{\"nested\":[{},\n{\"a\":1},\n{}]}".to_owned()),
        1 => "(a|b|)".prop_map(|name| format!(r#"{{"name":"{name}"}}"#)),
    ];
    let metadata = ("(thread_name|process_name|process_labels)", "[a-c]?", 0_u32..4).prop_map(|(kind, name, id)| {
        format!(r#"{{"ph":"M","name":"{kind}","pid":{id},"tid":"{name}","args":{{"name":"{name}"}}}}"#)
    });
    let element = prop_oneof![
        12 => (event, args).prop_map(|(event, args)| format!("{{{event},\"args\":{args}}}")),
        3 => metadata,
        1 => "(7|\\{\\}|null|\\{\"ph\":\"X\"\\}|\"text\")",
    ];
    (element, "( )?,(\n|\r\n  |\n  | )?").prop_map(|(element, separator)| element + &separator)
}

fn files() -> impl Strategy<Value = String> {
    let list = prop::collection::vec(elements(), 1..60).prop_map(|parts| {
        let text = parts.concat();
        text.trim_end().trim_end_matches(',').to_owned()
    });
    let ends = prop_oneof![
        4 => Just("\n  ],\n  \"traceName\": \"x\", \"more\": {\"a\": [{},\n{}]}, \"baseTimeNanoseconds\": 5000\n}\n"),
        1 => Just("]}"),
        1 => Just(", ]}"),
        1 => Just("]} more"),
        1 => Just("], \"traceEvents\": [{\"ph\":\"X\",\"ts\":3,\"dur\":1},\n{\"ph\":\"X\",\"ts\":2,\"dur\":1}]}"),
    ];
    (list, ends).prop_map(|(list, end)| format!("{{\"schemaVersion\": 1, \"traceEvents\": [\n  {list}{end}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]
    #[test]
    fn all_files_are_read_as_on_one_thread(
        file in files(), threads in 1_usize..4, block in 1_usize..600, cut in any::<prop::sample::Index>(),
        broken in any::<prop::sample::Index>(), byte in "[a\"{}\\[\\],:0 \n\\\\]", partial: bool,
    ) {
        let parallelism = Some(Parallelism { threads, block });
        let options = ReadOptions::new().partial(partial);
        let mut other = file.clone().into_bytes();
        other[broken.index(file.len())] = byte.as_bytes()[0];
        for text in [file.as_bytes(), &file.as_bytes()[..cut.index(file.len())], &other] {
            let (expected, found) = (read(&options, text, None), read(&options, text, parallelism));
            prop_assert_eq!(expected, found, "{}", String::from_utf8_lossy(text));
        }
    }
}

/// Returns a list of `count` slices, without its last bracket.
fn list_of(count: usize) -> String {
    let slice = |at| format!("{{\"ph\":\"X\",\"name\":\"s{}\",\"ts\":{at},\"dur\":1,\"args\":{{\"n\":{at}}}}}", at % 7);
    "[".to_owned() + &(0..count).map(slice).collect::<Vec<_>>().join(",\n")
}

#[test]
fn blocks_are_parsed_on_several_threads() {
    let text = list_of(1000);
    let mut list = EventList::default();
    let mut source = ValueReader::new(text.as_bytes(), u64::MAX, None);
    source.take_one_of(b"[", "a list").unwrap();
    assert!(!read_blocks(&mut list, &mut source, Parallelism { threads: 3, block: 1000 }));
    // Only the last block, which has no end, is left.
    assert!(list.elements > 950 && source.position() > text.len() as u64 - 1000, "{}", source.position());
    let whole = text + "]";
    let mut list = EventList::default();
    let mut source = ValueReader::new(whole.as_bytes(), u64::MAX, None);
    source.take_one_of(b"[", "a list").unwrap();
    assert!(read_blocks(&mut list, &mut source, Parallelism { threads: 3, block: 1000 }));
    assert_eq!((list.elements, source.position()), (1000, whole.len() as u64));
}

#[test]
fn only_the_first_list_is_read_ahead() {
    // Reading ahead from each of them would take hours.
    let text = "{".to_owned() + &"\"traceEvents\":[{\"ph\":\"X\",\"ts\":1,\"dur\":1}],".repeat(100_000) + "\"a\":1}";
    let events =
        ReadOptions::new().read_unpacked(text.as_bytes(), Some(Parallelism { threads: 2, block: 1 << 20 })).unwrap();
    assert_eq!(events.len(), 100_000);
}

#[test]
fn libkineto_file_is_the_same_in_any_blocks() {
    let text = include_bytes!("../../../../../kineto-model/tests/data/libkineto_cpp_writer.json");
    let options = ReadOptions::new();
    let expected = read(&options, text, None);
    for block in (1..3000).step_by(97) {
        assert_eq!(read(&options, text, Some(Parallelism { threads: 2, block })), expected, "{block}");
    }
}

#[test]
fn limits_and_errors_of_readers_are_the_same() {
    /// Returns an error after some bytes.
    struct Failing<'t>(&'t [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(buf)? {
                0 => Err(std::io::Error::other("the disk is gone")),
                read => Ok(read),
            }
        }
    }
    let text = list_of(500) + "]";
    let parallelism = Some(Parallelism { threads: 2, block: 700 });
    for max in [100, 5000, text.len() as u64 - 1, text.len() as u64] {
        let options = ReadOptions::new().max_bytes(max);
        let (expected, found) = (read(&options, text.as_bytes(), None), read(&options, text.as_bytes(), parallelism));
        assert_eq!(expected, found);
        assert_eq!(expected.starts_with("TooLarge"), max < text.len() as u64);
    }
    for length in [10, 5000, text.len() - 1, text.len()] {
        let error = |parallelism| {
            let reader = Failing(&text.as_bytes()[..length]);
            ReadOptions::new().partial(true).read_unpacked(reader, parallelism).unwrap_err().to_string()
        };
        assert_eq!(error(None), error(parallelism));
        assert!(error(parallelism).contains(&format!("the disk is gone (at byte {length})")), "{}", error(parallelism));
    }
}

#[test]
fn progress_never_decreases_when_blocks_are_read_again() {
    let text = list_of(1000) + ", 7, " + &list_of(1000)[1..] + "]";
    let reports = Arc::new(Mutex::new(Vec::new()));
    let target = reports.clone();
    let options = ReadOptions::new().on_progress(move |bytes| target.lock().unwrap().push(bytes));
    let events = options.read_unpacked(text.as_bytes(), Some(Parallelism { threads: 2, block: 1000 })).unwrap();
    let reports = reports.lock().unwrap();
    assert_eq!(events.len(), 2000);
    assert!(reports.is_sorted() && reports.last() == Some(&(text.len() as u64)), "{reports:?}");
}

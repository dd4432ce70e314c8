//! Reads any bytes as a trace; what can be read is written as JSON and read again, with as many slices. A counter without numbers is not written,
//! so that events are counted the next time.
#![no_main]

use kineto_trace::Format;
use kineto_trace::analysis::Events;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(events) = Events::from_reader(bytes) else { return };
    let rewritten = |events: &Events| {
        let mut text = Vec::new();
        events.write(&mut text, Format::Json).expect("memory takes all bytes");
        Events::from_reader(&text[..]).expect("JSON of this library is read")
    };
    let slices = |events: &Events| events.iter().filter(|event| event.is_slice()).count();
    let again = rewritten(&events);
    assert_eq!(slices(&events), slices(&again));
    assert_eq!(again.iter().count(), rewritten(&again).iter().count());
});
